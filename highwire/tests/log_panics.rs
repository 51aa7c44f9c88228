//! A subscriber of `tracing` that panics costs the connection whose line it was to take, and no more.
//!
//! Needs a process of its own: there is one subscriber for all threads.

use highwire::server::{Config, Engine};
use highwire::{App, Response, StatusCode};
use std::io::{Read, Write};
use std::time::Duration;
use testkit::http1::{connect_within, get};
use tracing::span;

struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        panic!("on purpose");
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_subscriber_that_panics_costs_its_connection() {
    tracing::subscriber::set_global_default(Panics).expect("nobody else logs here");
    for engine in [Engine::Uring, Engine::Readiness] {
        let set = |config: &mut Config| (config.engine, config.workers) = (engine, 1);
        // An interim status is no final one: that is a line in the log.
        let app = App::new().get("/hello", || "hello").get("/logs", || Response::new(StatusCode::EARLY_HINTS));
        let handle = app.configure(set).listen("127.0.0.1:0").expect("a free port").start().expect("it starts");
        let address = &handle.addresses()[0];
        for _ in 0..3 {
            let mut socket = connect_within(address, Duration::from_secs(20));
            socket.write_all(b"GET /logs HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("an open connection");
            let mut answer = Vec::new();
            // The end may be a reset.
            let _ = socket.read_to_end(&mut answer);
            assert!(answer.is_empty(), "{}", answer.escape_ascii());
            assert!(get(address, "/hello").ends_with("hello"), "{engine:?}");
        }
        handle.abort();
        handle.wait().expect("a server that ends");
    }
}
