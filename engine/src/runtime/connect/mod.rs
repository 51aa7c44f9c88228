//! Connections to other servers: a task asks its worker for one and gets its raw bytes.

pub(crate) mod attempt;

use self::attempt::Attempt;
use crate::raw::RawStream;
use crate::runtime::context;
use crate::runtime::promise::promise;
use crate::runtime::time::sleep;
use highwire_io::Address;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// The most addresses of a name to which connections are attempted.
pub const ADDRESSES: usize = 8;

/// The time after which the next address is tried beside those that have not answered (RFC 8305 section 8).
pub const NEXT_ADDRESS: Duration = Duration::from_millis(250);

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
    context::want(Box::new(Attempt { address, promise }));
    let result = poll_fn(|cx| asked.poll(cx)).await;
    result.unwrap_or_else(|| Err(io::Error::other("the worker has ended")))
}

/// Connects to the first address that accepts, as [`race`] describes, of at most [`ADDRESSES`] in the order of
/// [`alternate`].
///
/// # Errors
/// Returns the last error of [`connect`], or [`io::ErrorKind::NotFound`] without an address.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub async fn connect_any(addresses: &[SocketAddr]) -> io::Result<RawStream> {
    race(alternate(addresses).into_iter().take(ADDRESSES), |address| connect(Address::Tcp(address))).await
}

/// Returns addresses so that those of IPv4 and IPv6 alternate, beginning with the first one, and otherwise in their order
/// (RFC 8305 section 4).
pub fn alternate(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let begins_with_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv4() == begins_with_ipv4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut alternating = Vec::with_capacity(addresses.len());
    while alternating.len() < addresses.len() {
        alternating.extend(first.next());
        alternating.extend(second.next());
    }
    alternating
}

/// Attempts to connect to addresses until one attempt succeeds, and drops the others. The next attempt begins
/// [`NEXT_ADDRESS`] after the last one (RFC 8305 section 5), or at once if an attempt fails.
///
/// # Errors
/// Returns the error of the attempt that failed last, or [`io::ErrorKind::NotFound`] without an address.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub async fn race<A, T, F: Future<Output = io::Result<T>>>(
    addresses: impl IntoIterator<Item = A>,
    mut begin: impl FnMut(A) -> F,
) -> io::Result<T> {
    let mut attempts: Vec<Pin<Box<F>>> = Vec::new();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        attempts.push(Box::pin(begin(address)));
        let mut delay = pin!(sleep(NEXT_ADDRESS));
        let failed = poll_fn(|cx| match poll_any(&mut attempts, cx) {
            Poll::Pending => delay.as_mut().poll(cx).map(|()| Ok(None)),
            Poll::Ready(Ok(value)) => Poll::Ready(Err(value)),
            Poll::Ready(Err(error)) => Poll::Ready(Ok(Some(error))),
        });
        match failed.await {
            Err(value) => return Ok(value),
            Ok(error) => last = error.unwrap_or(last),
        }
    }
    while !attempts.is_empty() {
        match poll_fn(|cx| poll_any(&mut attempts, cx)).await {
            Ok(value) => return Ok(value),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Polls until one of the attempts has ended, and removes it.
fn poll_any<T, F: Future<Output = io::Result<T>>>(
    attempts: &mut Vec<Pin<Box<F>>>,
    cx: &mut std::task::Context<'_>,
) -> Poll<io::Result<T>> {
    for at in 0..attempts.len() {
        if let Poll::Ready(result) = attempts[at].as_mut().poll(cx) {
            drop(attempts.swap_remove(at));
            return Poll::Ready(result);
        }
    }
    Poll::Pending
}

/// Lets the worker look for abandoned attempts when the task has stopped waiting.
struct NotedWhenDropped;

impl Drop for NotedWhenDropped {
    fn drop(&mut self) {
        context::note_cancelled();
    }
}
