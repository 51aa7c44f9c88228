//! Tests the bodies of requests and responses of apps as services: back-pressure in both directions, dropped bodies,
//! timeouts.

use crate::asked::*;
use bytes::Bytes;
use highwire::body::BodyError;
use highwire::server::Stats;
use highwire::tower::{AppService, CROSSING_BYTES};
use highwire::{App, Body, HeaderMap, HeaderName, HeaderValue, Reply, Response};
use http_body::{Body as HttpBody, Frame};
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

fn trailers() -> HeaderMap {
    let field = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    HeaderMap::from_iter([field("x-sum", "7"), field("x-end", "yes")])
}

#[test]
fn bodies_and_trailers_go_both_ways_at_once() {
    let service = start(App::new().post("/", echo));
    let parts: Vec<Bytes> = (0..300_u32).map(|at| Bytes::from(vec![at as u8; 1 + at as usize * 7])).collect();
    let mut sent = Sent::nothing();
    sent.frames = parts.iter().map(|part| Ok(Frame::data(part.clone()))).collect();
    let mut fields = trailers();
    fields.insert("authorization", HeaderValue::from_static("not behind a body"));
    let sent = sent.and(Ok(Frame::trailers(fields)));
    let answer = run(async {
        whole(ask(&service, request("POST", "/").body(sent).expect("a request")).await.into_body()).await
    });
    assert!(answer.0 == parts.concat());
    assert_eq!(answer.1, trailers());
}

/// A body without an end, which counts its parts when they are polled.
struct Endless {
    asked: Arc<AtomicUsize>,
    _told: Told,
}

const PART: usize = 4096;

impl Endless {
    fn part(&self) -> Bytes {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Bytes::from(vec![b'x'; PART])
    }
}

impl futures_core::Stream for Endless {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(Some(Ok(self.part())))
    }
}

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(Some(Ok(Frame::data(self.part()))))
    }
}

/// Sends 50 requests, so that the worker runs enough turns to finish its pending work.
async fn turns(service: &AppService) {
    for _ in 0..50 {
        assert_eq!(get(service, request("GET", "/turn").body(Sent::nothing()).expect("a request")).await.1, "turned");
    }
}

#[test]
fn an_answer_that_nobody_takes_is_not_made_on_and_ends_with_its_reader() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (told, gone) = told();
    let endless = Mutex::new(Some(Endless { asked: asked.clone(), _told: told }));
    let app = App::new()
        .get("/turn", || "turned")
        .get("/", move || Response::stream(endless.lock().expect("no panic").take().expect("one request")));
    let service = start(app);
    run(async {
        let mut body = ask(&service, request("GET", "/").body(Sent::nothing()).expect("a request")).await.into_body();
        turns(&service).await;
        let first = asked.load(Ordering::SeqCst);
        assert!((1..=CROSSING_BYTES / PART).contains(&first), "{first} parts");
        // Reading makes room for more.
        for _ in 0..2 * CROSSING_BYTES / PART {
            assert!(next(&mut body).await.expect("more").is_ok());
        }
        turns(&service).await;
        let second = asked.load(Ordering::SeqCst);
        assert!((2 * CROSSING_BYTES / PART..=3 * CROSSING_BYTES / PART).contains(&second), "{second} parts");
        drop(body);
    });
    gone.recv_timeout(PATIENCE).expect("the answer's body goes");
}

#[test]
fn a_body_that_its_handler_does_not_read_is_not_asked_for_and_ends_with_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (told, gone) = told();
    let (give, take) = mpsc::channel();
    let app = App::new().get("/turn", || "turned").post("/", move |reply: Reply, mut body: Body| {
        let give = give.clone();
        highwire::spawn(async move {
            let first = body.next().await;
            assert!(first.is_some_and(|first| first.is_ok()));
            give.send(reply).expect("the test waits");
            // Keeps the body for as long as the server keeps this task.
            pending::<()>().await;
            drop(body);
        });
    });
    let service = start(app);
    let body = Endless { asked: asked.clone(), _told: told };
    let answer = service.clone().call(request("POST", "/").body(body).expect("a request"));
    run(async {
        turns(&service).await;
        // The largest number of parts that wait for the handler or that it has taken.
        let most = 64 * 1024 / PART + 2;
        let count = asked.load(Ordering::SeqCst);
        assert!((2..=most).contains(&count), "{count} parts");
        take.recv_timeout(PATIENCE).expect("the handler's reply").send("answered");
        let Ok(answer) = answer.await;
        assert_eq!(whole(answer.into_body()).await.0, b"answered");
    });
    gone.recv_timeout(PATIENCE).expect("the request's body goes with the answer");
}

#[test]
fn handlers_hear_that_a_body_failed_and_bodies_that_nobody_reads() {
    let app = App::new()
        .post("/", async |mut body: Body| {
            let mut count = 0;
            loop {
                match body.next().await {
                    Some(Ok(part)) => count += part.len(),
                    Some(Err(error)) => return format!("{count}, {error:?}"),
                    None => return format!("{count}"),
                }
            }
        })
        .post("/drops", async |body: Body| {
            drop(body);
            pending::<()>().await
        });
    let service = start(app);
    let check = |body: Sent, expected: &str| {
        assert_eq!(run(get(&service, request("POST", "/").body(body).expect("a request"))).1, expected);
    };
    check(Sent::of(&["abc"]), "3");
    check(Sent::of(&["abc"]).and(Err(BodyError::CutShort)), "3, CutShort");
    check(Sent::of(&["abc"]).and(Err(BodyError::TooSlow)), "3, TooSlow");
    check(Sent { length: Some(9), ..Sent::of(&["abc"]) }, "3, CutShort");
    let (told, gone) = told();
    let body = Sent::of(&["abc"]).without_end().telling(told);
    let answer = service.clone().call(request("POST", "/drops").body(body).expect("a request"));
    gone.recv_timeout(PATIENCE).expect("the body is dropped before there is a response");
    drop(answer);
}

#[test]
fn a_request_that_is_dropped_cancels_its_handler() {
    let (tell, gone) = mpsc::channel();
    let tell = Mutex::new(tell);
    let (begin, begun) = mpsc::channel();
    let begin = Mutex::new(begin);
    let app = App::new().get("/turn", || "turned").get("/", move || {
        let told = Told(tell.lock().expect("no panic").clone());
        begin.lock().expect("no panic").send(()).expect("the test waits");
        async move {
            let _told = told;
            pending::<()>().await;
        }
    });
    let service = start(app);
    for _ in 0..3 {
        let answer = service.clone().call(request("GET", "/").body(Sent::nothing()).expect("a request"));
        begun.recv_timeout(PATIENCE).expect("the handler runs");
        drop(answer);
        gone.recv_timeout(PATIENCE).expect("the handler's future is dropped");
    }
    // A request that is dropped at once is either not begun, or begun and cancelled.
    for _ in 0..100 {
        drop(service.clone().call(request("GET", "/").body(Sent::nothing()).expect("a request")));
    }
    run(turns(&service));
    assert_eq!(begun.try_iter().count(), gone.try_iter().count());
}

/// Returns the number of exchanges that the server has cut.
async fn cut(service: &AppService) -> u64 {
    let (_, text, _) = get(service, request("GET", "/cut").body(Sent::nothing()).expect("a request")).await;
    text.parse().expect("a number")
}

#[test]
fn whoever_is_too_slow_is_cut() {
    let app = App::new()
        .post("/whole", |text: String| text)
        .post("/parts", async |body: Body| body.collect(100).await.map(|_| "whole"))
        .get("/cut", |report: Stats| report.cut.to_string())
        .get("/never", async || pending::<&'static str>().await)
        .get("/stuck", || Response::stream(Stuck))
        .get("/endless", || {
            let told = Told(mpsc::channel().0);
            Response::stream(Endless { asked: Arc::default(), _told: told })
        })
        .configure(|config| {
            let short = Duration::from_millis(100);
            (config.timeouts.body, config.timeouts.handler, config.timeouts.write) = (short, short, short);
        });
    let service = start(app);
    for (method, uri, body, expected) in [
        ("POST", "/whole", Sent::of(&["a"]).without_end(), (408, SLOW)),
        ("POST", "/parts", Sent::of(&["a"]).without_end(), (408, SLOW)),
        ("GET", "/never", Sent::nothing(), (503, "the answer took too long\n")),
    ] {
        let (status, text, _) = run(get(&service, request(method, uri).body(body).expect("a request")));
        assert_eq!((status, text.as_str()), expected, "{uri}");
    }
    for (uri, expected, expected_cut) in
        [("/stuck", "the answer took too long", 4), ("/endless", "the answer was not taken in time", 5)]
    {
        let failed = run(async {
            let asked = request("GET", uri).body(Sent::nothing()).expect("a request");
            let mut body = ask(&service, asked).await.into_body();
            // Reads nothing of the body before the server cuts it.
            while cut(&service).await < expected_cut {}
            loop {
                if let Err(error) = next(&mut body).await.expect("no end") {
                    return error.to_string();
                }
            }
        });
        assert_eq!(failed, expected, "{uri}");
    }
}

/// The memory budget of the app of [`streams_errors`].
const MEMORY: usize = 64 * 1024;

/// Returns an app whose error responses are streams.
fn streams_errors() -> App {
    App::new()
        .post("/", |body: Bytes| body.len().to_string())
        .on_error(|status, text| {
            // A task makes the body, so it is not ready at once.
            let (mut sender, receiver) = highwire::body::channel();
            let text = Bytes::from(format!("{} {text}", status.as_u16()));
            highwire::spawn(async move {
                if sender.send(text).await.is_ok() {
                    sender.finish();
                }
            });
            Response::stream(receiver)
        })
        .configure(|config| config.memory = Some(MEMORY))
}

#[test]
fn an_error_that_is_answered_as_a_stream_is_sent_where_there_is_no_memory() {
    // First without memory for the request, then with memory for the request, but not for its head too.
    for (left, head) in [(800, 10), (5000, 8000)] {
        let service = start(streams_errors());
        let most: &'static str = Box::leak("x".repeat(MEMORY - 2048 - left).into_boxed_str());
        let waiting = request("POST", "/").body(Sent::of(&[most]).without_end()).expect("a request");
        let kept = service.clone().call(waiting);
        let refused = request("POST", "/").header("x-long", "x".repeat(head));
        let refused = refused.body(Sent::of(&["x"]).without_end()).expect("a request");
        let (status, text, _) = run(get(&service, refused));
        assert_eq!((status, text.as_str()), (503, "503 the server has no memory for this now"), "{left} left");
        drop(kept);
    }
}

/// A body that panics when it is dropped. In a request it has the frames of [`Sent`]; in a response it stays pending.
struct Fragile(Sent);

impl Drop for Fragile {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

impl HttpBody for Fragile {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

impl futures_core::Stream for Fragile {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Pending
    }
}

#[test]
fn bodies_that_panic_when_they_are_dropped_cost_nothing_else() {
    let (told, gone) = told();
    let answer = Mutex::new(Some(Fragile(Sent::nothing().telling(told))));
    let app = App::new()
        .get("/turn", || "turned")
        .post("/ignores", || "ignored")
        .post("/collects", |text: String| text)
        .post("/streams", move |body: Body| {
            highwire::spawn(async move {
                pending::<()>().await;
                drop(body);
            });
            Response::stream(answer.lock().expect("no panic").take().expect("one request"))
        });
    let service = start(app);
    let ask =
        |uri: &str, sent: Sent| service.clone().call(request("POST", uri).body(Fragile(sent)).expect("a request"));
    let check = |uri: &str, sent: Sent, expected: &str| {
        let Ok(answer) = run(ask(uri, sent));
        let text = run(whole(answer.into_body())).0;
        assert_eq!(String::from_utf8_lossy(&text), expected, "{uri}");
    };
    check("/ignores", Sent::nothing().without_end(), "ignored");
    check("/collects", Sent::of(&["abc"]), "abc");
    // Both the request's and the response's body panic. The server must catch the second panic too.
    drop(run(ask("/streams", Sent::nothing().without_end())));
    gone.recv_timeout(PATIENCE).expect("the answer's body goes");
    run(turns(&service));
}
