//! A value that is made elsewhere, possibly on another thread, for one task that waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Creates the two ends of a value that is made elsewhere.
pub fn promise<T>() -> (Promise<T>, Asked<T>) {
    let place = Place { result: None, is_over: false, is_abandoned: false, waiter: None, maker: None };
    let place = Arc::new(Mutex::new(place));
    (Promise { place: place.clone() }, Asked { place })
}

struct Place<T> {
    result: Option<T>,
    /// True if the [`Promise`] was dropped.
    is_over: bool,
    /// True if the [`Asked`] was dropped.
    is_abandoned: bool,
    waiter: Option<Waker>,
    maker: Option<Waker>,
}

fn lock<T>(place: &Mutex<Place<T>>) -> MutexGuard<'_, Place<T>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end that waits for the value.
pub struct Asked<T> {
    place: Arc<Mutex<Place<T>>>,
}

impl<T> Asked<T> {
    /// Polls for the value. Returns `None` if the [`Promise`] was dropped without one: for a job, because the pool was
    /// full or the job has panicked.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut place = lock(&self.place);
        if place.is_over {
            return Poll::Ready(place.result.take());
        }
        place.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        let (maker, waiter) = {
            let mut place = lock(&self.place);
            place.is_abandoned = true;
            (place.maker.take(), place.waiter.take())
        };
        drop(waiter);
        maker.into_iter().for_each(Waker::wake);
    }
}

/// The end that makes the value. When it is dropped without one, the wait ends, too.
pub struct Promise<T> {
    place: Arc<Mutex<Place<T>>>,
}

impl<T> Promise<T> {
    /// Gives the value to the task that waits for it.
    pub fn keep(self, result: T) {
        lock(&self.place).result = Some(result);
    }

    /// Polls for the moment at which the task stops waiting.
    pub fn poll_abandoned(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut place = lock(&self.place);
        if place.is_abandoned {
            return Poll::Ready(());
        }
        place.maker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns true if the task has stopped waiting.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.place).is_abandoned
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waiter = {
            let mut place = lock(&self.place);
            place.is_over = true;
            place.waiter.take()
        };
        waiter.into_iter().for_each(Waker::wake);
    }
}

impl<T> std::fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Promise")
    }
}
