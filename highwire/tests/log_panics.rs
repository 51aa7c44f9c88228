//! Tests that a `tracing` subscriber that panics loses log lines, and does no other harm.
//!
//! The test needs a separate process, because all threads share one subscriber.

mod engines;

use highwire::server::Config;
use highwire::{App, Response, StatusCode};
use std::time::{Duration, Instant};
use testkit::http1::get;
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
fn a_subscriber_that_panics_costs_lines_only() {
    tracing::subscriber::set_global_default(Panics).expect("no other subscriber is set");
    for engine in engines::available(engines::EVENT_LOOPS) {
        let set = |config: &mut Config| (config.engine, config.workers) = (engine, 1);
        // A handler that returns an interim status makes an error, which is logged.
        let app = App::new().get("/hello", || "hello").get("/logs", || Response::new(StatusCode::EARLY_HINTS));
        let handle = app.configure(set).listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
        let address = &handle.addresses()[0];
        // Logs more lines per second than the log's budget, so the worker also logs how many lines were left out.
        let end = Instant::now() + Duration::from_millis(1300);
        while Instant::now() < end {
            assert!(get(address, "/logs").starts_with("HTTP/1.1 500"), "{engine:?}");
            assert!(get(address, "/hello").ends_with("hello"), "{engine:?}");
        }
        handle.abort();
        handle.join().expect("a server that ends");
    }
}
