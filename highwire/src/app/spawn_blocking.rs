//! Blocking work for async handlers. The blocking pool runs it, and the handler awaits the result.

use crate::message::response::Overloaded;
use crate::{IntoResponse, Response};
use http::StatusCode;

/// Runs blocking work for an async handler. If the whole handler blocks, use [`blocking`](crate::blocking) instead.
///
/// ```
/// use highwire::{App, testing::Client, spawn_blocking};
///
/// let app = App::new().get("/size", async || {
///     let size = spawn_blocking(|| std::fs::metadata("/etc/hosts").map(|facts| facts.len())).await?;
///     Ok::<_, highwire::SpawnBlockingError>(size.map_or("none".to_string(), |size| size.to_string()))
/// });
/// assert_eq!(Client::new(app)?.get("/size").send().status(), 200);
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::spawn_blocking;

pub use highwire_engine::SpawnBlockingError;

/// Responds with 503 if the pool is full, and with 500 otherwise.
impl IntoResponse for SpawnBlockingError {
    fn into_response(self) -> Response {
        match self {
            SpawnBlockingError::Full => Overloaded.into_response(),
            _ => Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;
    use crate::testing::Client;
    use std::future::{Future, poll_fn};
    use std::task::Poll;

    fn check(client: &mut Client, path: &str, status: u16, body: &str) {
        let answer = client.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.text()), (status, body), "{path}");
    }

    #[test]
    fn a_result_and_a_panic() {
        let app = App::new()
            .get("/two", async || spawn_blocking(|| 1 + 1).await.map(|two| two.to_string()))
            .get("/panics", async || {
                spawn_blocking(|| -> &str { std::panic::resume_unwind(Box::new("on purpose")) }).await
            });
        let mut client = Client::new(app).expect("an app");
        check(&mut client, "/two", 200, "2");
        check(&mut client, "/panics", 500, "internal server error\n");
        check(&mut client, "/two", 200, "2");
    }

    #[test]
    fn a_full_pool() {
        let app = App::new()
            .configure(|config| (config.limits.blocking_threads, config.limits.blocking_queue) = (1, 0))
            .get("/full", async || {
                let (release, gate) = std::sync::mpsc::channel::<()>();
                let mut held = std::pin::pin!(spawn_blocking(move || gate.recv().is_ok()));
                // The first poll gives the work to the pool.
                let pending = poll_fn(|cx| Poll::Ready(held.as_mut().poll(cx).is_pending())).await;
                let refused = spawn_blocking(|| ()).await;
                drop(release);
                format!("{pending} {refused:?} {:?}", held.await)
            });
        check(&mut Client::new(app).expect("an app"), "/full", 200, "true Err(Full) Ok(false)");
    }
}
