//! Metrics for Prometheus, and log lines of a request that have its ID.

use highwire::App;
use highwire::middleware::{RequestIds, RequestSpan};

pub fn app() -> App {
    App::new().get("/", || "hello").metrics("/metrics").with(RequestIds::new()).with(RequestSpan)
}
