//! A chat over WebSockets.

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Sender};

async fn chat(upgrade: WebSocketUpgrade, State(all): State<Sender<Message>>) -> Response {
    upgrade.on_upgrade(async move |mut socket: WebSocket| {
        let mut messages = all.subscribe();
        loop {
            tokio::select! {
                received = socket.recv() => match received {
                    Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => drop(all.send(message)),
                    Some(Ok(_)) => {}
                    _ => return,
                },
                message = messages.recv() => match message {
                    Ok(message) => {
                        if socket.send(message).await.is_err() {
                            return;
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        }
    })
}

pub fn app() -> Router {
    Router::new().route("/chat", get(chat)).with_state(broadcast::channel(100).0)
}
