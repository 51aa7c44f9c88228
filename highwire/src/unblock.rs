//! Blocking work within an async handler: done on the blocking pool, awaited on the worker.

use crate::server::{Overloaded, context};
use crate::{IntoResponse, Response};
use http::StatusCode;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Why blocking work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnblockError {
    /// The pool is full: [`Caps::blocking_queue`](crate::server::Caps).
    Full,
    /// The work panicked, or its server has ended.
    Lost,
}

impl fmt::Display for UnblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnblockError::Full => "the blocking pool is full",
            UnblockError::Lost => "blocking work was lost",
        })
    }
}

impl std::error::Error for UnblockError {}

/// 503 where the pool is full, else 500.
impl IntoResponse for UnblockError {
    fn into_response(self) -> Response {
        match self {
            UnblockError::Full => Overloaded.into_response(),
            UnblockError::Lost => Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"),
        }
    }
}

struct Slot<R> {
    result: Option<Result<R, UnblockError>>,
    waker: Option<Waker>,
}

/// The pool's end of a slot: dropped without a result, it says so.
struct Filler<R>(Arc<Mutex<Slot<R>>>);

impl<R> Filler<R> {
    fn fill(&self, result: Result<R, UnblockError>) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.result.is_none() {
            slot.result = Some(result);
            let waker = slot.waker.take();
            drop(slot);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl<R> Drop for Filler<R> {
    fn drop(&mut self) {
        self.fill(Err(UnblockError::Lost));
    }
}

/// Runs a function that blocks or computes for long on the bounded blocking pool, and waits for its result: for what an
/// async handler has to do between other things. A handler that only blocks is [`blocking`](crate::blocking).
///
/// The function runs to its end even where nobody waits for it any more.
///
/// ```
/// use highwire::{App, testing::Client, unblock};
///
/// let app = App::new().get("/size", async || {
///     let size = unblock(|| std::fs::metadata("/etc/hosts").map(|facts| facts.len())).await?;
///     Ok::<_, highwire::UnblockError>(size.map_or("none".to_string(), |size| size.to_string()))
/// });
/// assert_eq!(Client::new(app)?.get("/size").send().status(), 200);
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// # Errors
/// Where the pool is full, and where the function panics.
///
/// # Panics
/// Where no worker runs on this thread: call it in handlers and in tasks that they spawn.
pub async fn unblock<R: Send + 'static>(function: impl FnOnce() -> R + Send + 'static) -> Result<R, UnblockError> {
    let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
    let job = move |filler: Filler<R>| filler.fill(Ok(function()));
    if context::offer(Filler(slot.clone()), Box::new(job)).is_err() {
        return Err(UnblockError::Full);
    }
    poll_fn(|cx| {
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;
    use crate::testing::Client;

    fn check(client: &mut Client, path: &str, status: u16, body: &str) {
        let answer = client.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.text()), (status, body), "{path}");
    }

    #[test]
    fn a_result_and_a_panic() {
        let app = App::new()
            .get("/two", async || unblock(|| 1 + 1).await.map(|two| two.to_string()))
            .get("/panics", async || unblock(|| -> &str { std::panic::resume_unwind(Box::new("on purpose")) }).await);
        let mut client = Client::new(app).expect("an app");
        check(&mut client, "/two", 200, "2");
        check(&mut client, "/panics", 500, "internal server error\n");
        check(&mut client, "/two", 200, "2");
    }

    #[test]
    fn a_full_pool() {
        let app = App::new()
            .configure(|config| (config.caps.blocking_threads, config.caps.blocking_queue) = (1, 0))
            .get("/full", async || {
                let (release, gate) = std::sync::mpsc::channel::<()>();
                let mut held = std::pin::pin!(unblock(move || gate.recv().is_ok()));
                // Polled once, it is with the pool.
                let pending = poll_fn(|cx| Poll::Ready(held.as_mut().poll(cx).is_pending())).await;
                let refused = unblock(|| ()).await;
                drop(release);
                format!("{pending} {refused:?} {:?}", held.await)
            });
        check(&mut Client::new(app).expect("an app"), "/full", 200, "true Err(Full) Ok(false)");
    }
}
