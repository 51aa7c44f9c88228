//! Events for any number of readers, who resume after a lost connection.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use axum::routing::get;
use futures_util::{Stream, StreamExt, stream};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast::{self, Sender};
use tokio_stream::wrappers::BroadcastStream;

#[derive(Clone)]
struct News {
    next: Sender<(u64, String)>,
    kept: Arc<Mutex<VecDeque<(u64, String)>>>,
}

async fn publish(State(news): State<News>, text: String) {
    let mut kept = news.kept.lock().unwrap();
    let id = kept.back().map_or(1, |(id, _)| id + 1);
    if kept.len() == 100 {
        kept.pop_front();
    }
    kept.push_back((id, text.clone()));
    let _ = news.next.send((id, text));
}

async fn listen(State(news): State<News>, headers: HeaderMap) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let kept = news.kept.lock().unwrap();
    let next = BroadcastStream::new(news.next.subscribe()).filter_map(async |event| event.ok());
    let last: u64 = last.unwrap_or(u64::MAX);
    let missed: Vec<_> = kept.iter().filter(|(id, _)| *id > last).cloned().collect();
    let events = stream::iter(missed).chain(next);
    let events = events.map(|(id, text)| Ok(Event::default().id(id.to_string()).data(text)));
    Sse::new(events).keep_alive(KeepAlive::default())
}

pub fn app() -> Router {
    let news = News { next: broadcast::channel(100).0, kept: Arc::default() };
    Router::new().route("/news", get(listen).post(publish)).with_state(news)
}
