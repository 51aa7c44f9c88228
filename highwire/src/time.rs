//! Sleeps and timeouts for handlers and tasks, by the worker's clock, which is virtual in the simulator and in tests
//! with the module `testing`.

/// Waits for a duration.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, time};
/// use std::time::Duration;
///
/// let app = App::new().get("/", async || {
///     time::sleep(Duration::from_secs(10)).await;
///     "after ten seconds, which a test does not wait for"
/// });
/// assert!(Client::new(app)?.get("/").send().text().starts_with("after ten seconds"));
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::time::sleep;

/// Waits for a future, but no longer than a duration.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, StatusCode, time};
/// use std::time::Duration;
///
/// let app = App::new().get("/", async || {
///     let slow = time::sleep(Duration::from_secs(5));
///     time::timeout(Duration::from_secs(1), slow).await.map_err(|_| StatusCode::GATEWAY_TIMEOUT)
/// });
/// assert_eq!(Client::new(app)?.get("/").send().status(), 504);
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::time::timeout;

pub use highwire_engine::time::{Elapsed, Sleep};
