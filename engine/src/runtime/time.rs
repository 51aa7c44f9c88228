//! Time for handlers and tasks: the worker's clock, which the simulator makes virtual.

use crate::runtime::context::{self, TimerKey};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Waits for a duration. The wait ends in the worker's first turn after the duration, and is thus more exact than the
/// timeouts of connections, which count in ticks of 100 ms.
///
/// # Panics
/// Panics if no worker runs on this thread. Call it in handlers and in tasks that they spawn.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { until: context::now() + duration, registered: None }
}

/// The future that [`sleep`] returns.
#[derive(Debug)]
#[must_use]
pub struct Sleep {
    until: highwire_io::Instant,
    /// The timer and its waker. They are kept so that polling again with the same waker adds no other timer.
    registered: Option<(TimerKey, Waker)>,
}

impl Sleep {
    /// Returns the moment at which it is over.
    pub fn until(&self) -> highwire_io::Instant {
        self.until
    }
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

/// Removes the timer when the sleep is dropped.
impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The error of [`timeout`]: the duration has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the timeout has passed")
    }
}

impl std::error::Error for Elapsed {}

/// Waits for a future for at most `duration`, and then drops it.
///
/// # Errors
/// Returns an error if the duration passes before the future is ready.
///
/// # Panics
/// Panics if no worker runs on this thread.
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

/// Wakes a task after a duration. Unlike the timer of [`sleep`], it cannot be removed, so the duration should be short.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn wake_after(duration: Duration, waker: &Waker) {
    context::wake_at(context::now() + duration, waker);
}
