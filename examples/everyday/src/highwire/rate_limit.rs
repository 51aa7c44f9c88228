//! One request a second for each address, with bursts of five.

use highwire::App;
use highwire::middleware::RateLimit;
use std::time::Duration;

pub fn app() -> App {
    App::new().get("/", || "hello").with(RateLimit::new(1, Duration::from_secs(1)).burst(5))
}
