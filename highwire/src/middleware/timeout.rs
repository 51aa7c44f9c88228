//! A timeout for handlers.

use super::Middleware;
use crate::time::{Sleep, sleep};
use crate::{Request, Response, StatusCode};
use http::{HeaderValue, header};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Responds with 503 in place of a handler that takes longer than a given time, and drops the handler's future. A plain
/// function cannot be interrupted; it holds its worker until it returns.
///
/// ```
/// use highwire::middleware::Timeout;
/// use highwire::testing::Client;
/// use highwire::{App, Handler, time};
/// use std::time::Duration;
///
/// let slow = async || {
///     time::sleep(Duration::from_secs(5)).await;
///     "done"
/// };
/// let app = App::new()
///     .get("/patient", slow)
///     .get("/hasty", slow.with(Timeout::new(Duration::from_secs(1))));
/// let mut client = Client::new(app)?;
/// assert_eq!(client.get("/patient").send().text(), "done");
/// assert_eq!(client.get("/hasty").send().status(), 503);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Timeout {
    after: Duration,
}

impl Timeout {
    /// Creates a timeout of this length. [`Timeouts::handler`](crate::server::Timeouts) sets the server's own timeout
    /// for all handlers.
    pub fn new(after: Duration) -> Timeout {
        Timeout { after }
    }
}

impl Middleware for Timeout {
    type State = Sleep;

    fn before(&self, _: &mut Request<'_>) -> Result<Sleep, Response> {
        Ok(sleep(self.after))
    }

    fn pending(&self, state: &mut Sleep, cx: &mut Context<'_>) -> Poll<Response> {
        Pin::new(state).poll(cx).map(|()| {
            Response::error(StatusCode::SERVICE_UNAVAILABLE, "the answer took too long\n")
                .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        })
    }

    fn after(&self, _: Sleep, _: &mut Response) {}
}
