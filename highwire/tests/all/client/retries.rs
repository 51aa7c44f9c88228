//! Tests of `client::Retry`: which requests are sent again, how often, and what the caller gets.

use crate::served::{body_of, serve, stop};
use highwire::client::{Client, Next, Request, Retry, block_on, from_fn};
use highwire::{App, Path, State, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Default)]
struct Calls(AtomicU32);

/// Answers the first `fails` requests with a status, and the others with their number.
fn app(calls: Arc<Calls>) -> App {
    let answer = |calls: State<Arc<Calls>>, Path((status, fails)): Path<(u16, u32)>| {
        let call = calls.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        let status = if call <= fails { StatusCode::from_u16(status).expect("a status") } else { StatusCode::OK };
        let after = if status == StatusCode::TOO_MANY_REQUESTS { Some([("retry-after", "3600")]) } else { None };
        (status, after, call.to_string())
    };
    App::new().get("/{status}/{fails}", answer).post("/{status}/{fails}", answer).state(calls)
}

fn retry() -> Retry {
    Retry::new().waits(Duration::from_millis(1), Duration::from_millis(4))
}

#[test]
fn requests_are_sent_again_until_they_succeed_or_the_attempts_end() {
    let calls = Arc::new(Calls::default());
    let (handle, url) = serve(app(calls.clone()));
    for (name, retry, path, status, expected_calls) in [
        ("until it succeeds", retry(), "/503/2", 200, 3),
        ("until the attempts end", retry(), "/503/9", 503, 4),
        ("two attempts", retry().attempts(2), "/502/9", 502, 2),
        ("one attempt", retry().attempts(0), "/502/9", 502, 1),
        ("a status that is final", retry(), "/500/1", 500, 1),
        ("a status of the program's own", retry().statuses([StatusCode::INTERNAL_SERVER_ERROR]), "/500/1", 200, 2),
        ("a wait that is too long", retry(), "/429/1", 429, 1),
    ] {
        calls.0.store(0, Ordering::SeqCst);
        let client = Client::builder().with(retry).build().expect("a client");
        let response = block_on(async { client.get(&format!("{url}{path}")).send().await.expect("a response") })
            .expect("a worker");
        assert_eq!((response.status().as_u16(), calls.0.load(Ordering::SeqCst)), (status, expected_calls), "{name}");
    }
    stop([handle]);
}

#[test]
fn what_must_not_be_repeated_is_sent_once() {
    let calls = Arc::new(Calls::default());
    let (handle, url) = serve(app(calls.clone()));
    let url = format!("{url}/503/1");
    let send = |retry: Retry, streams: bool| {
        calls.0.store(0, Ordering::SeqCst);
        let client = Client::builder().with(retry).build().expect("a client");
        let status = block_on(async {
            let request = client.post(&url);
            let request = match streams {
                true => request.body(highwire::client::Body::stream(body_of(["x"]))),
                false => request.body("x"),
            };
            request.send().await.expect("a response").status().as_u16()
        })
        .expect("a worker");
        (status, calls.0.load(Ordering::SeqCst))
    };
    assert_eq!(send(retry(), false), (503, 1));
    assert_eq!(send(retry().every_method(), false), (200, 2));
    assert_eq!(send(retry().every_method(), true), (503, 1));
    stop([handle]);
}

#[test]
fn a_server_that_nobody_reaches_is_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    let sent = Arc::new(AtomicU32::new(0));
    let count = sent.clone();
    let counting = from_fn(async move |request: Request, next: Next<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        next.run(request).await
    });
    let client = Client::builder().with(retry()).with(counting).build().expect("a client");
    let error = block_on(async { client.post(&url).body("x").send().await.expect_err("no server") }).expect("a worker");
    assert!(error.is_connect(), "{error}");
    assert_eq!(sent.load(Ordering::SeqCst), 4);
}

#[test]
fn retries_do_not_multiply_the_load_of_a_server_with_trouble() {
    let calls = Arc::new(Calls::default());
    let (handle, url) = serve(app(calls.clone()));
    let client = Client::builder().with(retry()).build().expect("a client");
    block_on(async {
        for _ in 0..100 {
            assert_eq!(client.get(&format!("{url}/503/100000")).send().await.expect("a response").status(), 503);
        }
    })
    .expect("a worker");
    // Ten retries at once, and one for each ten requests.
    let calls = calls.0.load(Ordering::SeqCst);
    assert!((110..=120).contains(&calls), "{calls}");
    stop([handle]);
}

#[test]
fn the_time_limit_of_a_request_includes_its_waits() {
    let calls = Arc::new(Calls::default());
    let (handle, url) = serve(app(calls.clone()));
    let retry = Retry::new().waits(Duration::from_secs(100), Duration::from_secs(1000));
    let client = Client::builder().with(retry).timeout(Duration::from_secs(20)).build().expect("a client");
    // The wait would outlast the limit, so the response comes at once.
    let status = block_on(async { client.get(&format!("{url}/503/9")).send().await.expect("a response").status() })
        .expect("a worker");
    assert_eq!((status.as_u16(), calls.0.load(Ordering::SeqCst)), (503, 1));
    stop([handle]);
}
