//! Connections to other servers: a task asks its worker for one and gets its raw bytes.

use crate::context;
use crate::promise::{Promise, promise};
use crate::raw::RawStream;
use highwire_io::Address;
use std::future::poll_fn;
use std::io;

/// Connects to an address. The connection belongs to the current worker, and counts among its connections: for the limit
/// of all connections, the memory budget and the shutdown of the server, which ends it as
/// [`Ended::Draining`](crate::raw::Ended::Draining) describes. [`Timeouts::tunnel`](crate::Timeouts::tunnel) applies.
///
/// There is no deadline but the system's, often two minutes. When the future is dropped, the attempt is cancelled.
///
/// # Errors
/// Returns the system's error, [`io::ErrorKind::QuotaExceeded`] if the worker has no room for another connection, or
/// [`io::ErrorKind::Unsupported`] on the engine [`Threads`](crate::Engine::Threads).
///
/// # Panics
/// Panics if no worker runs on this thread.
pub async fn connect(address: Address) -> io::Result<RawStream> {
    let (promise, mut asked) = promise();
    let _noted = NotedWhenDropped;
    context::ask_to_connect(Attempt { address, promise });
    let result = poll_fn(|cx| asked.poll(cx)).await;
    result.unwrap_or_else(|| Err(io::Error::other("the worker has ended")))
}

/// An attempt to connect that the worker must begin.
pub(crate) struct Attempt {
    pub(crate) address: Address,
    pub(crate) promise: Promise<io::Result<RawStream>>,
}

/// Lets the worker look for abandoned attempts when the task has stopped waiting.
struct NotedWhenDropped;

impl Drop for NotedWhenDropped {
    fn drop(&mut self) {
        context::note_cancelled();
    }
}
