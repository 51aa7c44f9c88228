//! Time for handlers and tasks: the worker's clock, which the simulator makes virtual.

use crate::context::{self, TimerKey};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Waits. Timeouts of this kind are exact to the worker's turn, not coarse like those of connections.
///
/// # Panics
/// Where no worker runs on this thread: sleep in handlers and in tasks that they spawn.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { until: context::now() + duration, registered: None }
}

/// A future of [`sleep`].
#[derive(Debug)]
#[must_use]
pub struct Sleep {
    until: highwire_io::Instant,
    /// The timer, and whom it wakes, so that polling again adds no other.
    registered: Option<(TimerKey, Waker)>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if context::now() >= self.until {
            return Poll::Ready(());
        }
        if !self.registered.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            self.cancel();
            let timer = context::wake_at(self.until, cx.waker());
            self.registered = Some((timer, cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Sleep {
    fn cancel(&mut self) {
        if let Some((timer, _)) = self.registered.take() {
            context::forget(timer);
        }
    }
}

/// A dropped sleep gives its timer back.
impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the time ran out")
    }
}

impl std::error::Error for Elapsed {}

/// Waits for a future, at most so long; after that the future is dropped.
///
/// # Errors
/// Where the time ran out first.
///
/// # Panics
/// As [`sleep`].
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = std::pin::pin!(future);
    let mut sleep = sleep(duration);
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut sleep).poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
