//! Blocking work of an async handler, which the blocking pool does while the handler waits.

use crate::context;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// The reason why blocking work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnBlockingError {
    /// The pool has [`Limits::blocking_queue`](crate::Limits::blocking_queue) waiting jobs and no free thread, or
    /// cannot start its first thread.
    Full,
    /// The work panicked, or the server ended before the work began.
    Lost,
}

impl fmt::Display for SpawnBlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpawnBlockingError::Full => "the blocking pool is full",
            SpawnBlockingError::Lost => "the blocking work panicked, or the server ended before the work began",
        })
    }
}

impl std::error::Error for SpawnBlockingError {}

struct Slot<R> {
    result: Option<Result<R, SpawnBlockingError>>,
    waker: Option<Waker>,
}

/// The pool's end of a slot. If it is dropped without a result, the result is [`SpawnBlockingError::Lost`].
struct Filler<R>(Arc<Mutex<Slot<R>>>);

impl<R> Filler<R> {
    fn fill(&self, result: Result<R, SpawnBlockingError>) {
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
        self.fill(Err(SpawnBlockingError::Lost));
    }
}

/// Runs a function that blocks or computes for long on the bounded blocking pool, and waits for its result. Use it in
/// async handlers, which must not block their worker.
///
/// If the caller drops the future after its first poll, the function still runs, unless the server ends before the
/// function begins.
///
/// # Errors
/// Returns an error if the pool is full, the function panics, or the server ends before the function begins.
///
/// # Panics
/// Panics if no worker runs on this thread. Call it in handlers and in tasks that they spawn.
#[doc(alias = "unblock")]
pub async fn spawn_blocking<R: Send + 'static>(
    function: impl FnOnce() -> R + Send + 'static,
) -> Result<R, SpawnBlockingError> {
    let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
    let job = move |filler: Filler<R>| filler.fill(Ok(function()));
    if context::offer(Filler(slot.clone()), Box::new(job)).is_err() {
        return Err(SpawnBlockingError::Full);
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
