//! Connections to other servers: a task asks its worker for one and gets its raw bytes.

use crate::context;
use crate::raw::RawStream;
use highwire_io::Address;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

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
    let attempt = Pending(Rc::new(RefCell::new(Attempt { address: Some(address), ..Attempt::default() })));
    context::ask_to_connect(attempt.0.clone());
    poll_fn(|cx| {
        let mut state = attempt.0.borrow_mut();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// An attempt to connect, which the task and the worker share.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    /// The address, until the worker has begun.
    pub(crate) address: Option<Address>,
    result: Option<io::Result<RawStream>>,
    waker: Option<Waker>,
    /// True if the task does not wait any more.
    pub(crate) is_cancelled: bool,
}

impl Attempt {
    /// Ends the attempt. The stream is dropped, which ends the connection, if the task does not wait any more.
    pub(crate) fn end(&mut self, result: io::Result<RawStream>) {
        if !self.is_cancelled {
            self.result = Some(result);
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// The task's end of an attempt.
struct Pending(Rc<RefCell<Attempt>>);

impl Drop for Pending {
    fn drop(&mut self) {
        let result = {
            let mut attempt = self.0.borrow_mut();
            attempt.is_cancelled = true;
            attempt.result.take()
        };
        drop(result);
        context::note_cancelled();
    }
}
