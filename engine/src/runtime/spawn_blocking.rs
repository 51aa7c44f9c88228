//! Blocking work of an async handler, which the blocking pool does while the handler waits.

use crate::runtime::context;
use crate::runtime::promise::{Promise, promise};
use std::fmt;
use std::future::poll_fn;

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
    let (promise, mut asked) = promise();
    if context::offer(promise, Box::new(move |promise: Promise<R>| promise.keep(function()))).is_err() {
        return Err(SpawnBlockingError::Full);
    }
    poll_fn(|cx| asked.poll(cx)).await.ok_or(SpawnBlockingError::Lost)
}
