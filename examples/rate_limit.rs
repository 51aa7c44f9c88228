//! How are callers kept from asking too often, and the server from taking on too much?

use highwire::middleware::{ConcurrencyLimit, RateLimit, Timeout};
use highwire::{App, Handler, time};
use std::time::Duration;

/// The routes.
pub(crate) fn app() -> App {
    let costly = async || {
        time::sleep(Duration::from_millis(100)).await;
        "It took a while."
    };
    App::new()
        .get("/", || "Ask as often as you are told you may.")
        // No more than eight at once, and none for longer than two seconds.
        .get("/costly", costly.with(ConcurrencyLimit::new(8)).with(Timeout::new(Duration::from_secs(2))))
        // By address: five at once, one a second in the long run.
        .with(RateLimit::new(1, Duration::from_secs(1)).burst(5))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
