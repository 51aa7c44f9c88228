//! Limits the rate of requests per client, and the number of concurrent requests.

use highwire::middleware::{ConcurrencyLimit, RateLimit, Timeout};
use highwire::{App, Handler, time};
use std::time::Duration;

/// Returns the app.
pub(crate) fn app() -> App {
    let costly = async || {
        time::sleep(Duration::from_millis(100)).await;
        "It took a while."
    };
    App::new()
        .get("/", || "Ask as often as you are told you may.")
        // Allows at most eight requests at once, and two seconds for each.
        .get("/costly", costly.with(Timeout::new(Duration::from_secs(2))).with(ConcurrencyLimit::new(8)))
        // Allows each address one request per second, with bursts of five.
        .with(RateLimit::new(1, Duration::from_secs(1)).burst(5))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
