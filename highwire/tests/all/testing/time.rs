//! The clock of the test client, and real work.

use highwire::testing::Client;
use highwire::{App, Peer, Reply, Request, StatusCode, blocking, middleware::Timeout, spawn_blocking};
use std::time::Duration;

/// Takes a while, as real work does.
fn work() -> &'static str {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv_timeout(Duration::from_millis(150));
    "worked"
}

#[test]
fn time_limits_do_not_pass_while_real_work_is_done() {
    let app = App::new()
        .get("/blocking", blocking(work))
        .get("/spawned", async || spawn_blocking(work).await.unwrap_or("failed"))
        .get("/sleeps", async || {
            highwire::time::sleep(Duration::from_secs(3)).await;
            "slept"
        })
        .get("/forever", async || std::future::pending::<&str>().await)
        .with(Timeout::new(Duration::from_secs(5)));
    let mut client = Client::new(app).expect("an app");
    for path in ["/blocking", "/spawned"] {
        assert_eq!(client.get(path).send().text(), "worked", "{path}");
    }
    // The clock still jumps if nothing real is awaited.
    let begun = std::time::Instant::now();
    assert_eq!(client.get("/sleeps").send().text(), "slept");
    assert_eq!(client.get("/forever").send().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(begun.elapsed() < Duration::from_secs(3), "the clock does not wait");
}

#[test]
fn at_real_pace_the_work_of_unknown_threads_is_awaited() {
    let app = || {
        let thread = |reply: Reply| {
            std::thread::spawn(move || reply.send(work()));
        };
        App::new().get("/", thread).with(Timeout::new(Duration::from_secs(5)))
    };
    let mut client = Client::new(app()).expect("an app").at_real_pace();
    assert_eq!(client.get("/").send().text(), "worked");
    let mut client = Client::new(app()).expect("an app");
    assert_eq!(client.get("/").send().status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn the_clients_address_is_stable() {
    let peer = |request: &Request<'_>| match request.peer() {
        Peer::Internet(address, _) => address.to_string(),
        Peer::Local => String::new(),
    };
    let mut client = Client::new(App::new().get("/", peer)).expect("an app");
    for _ in 0..5 {
        assert_eq!(client.get("/").send().text(), "10.0.0.1");
    }
}
