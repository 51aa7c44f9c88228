//! Pinned places for the futures of one route.
//!
//! A future stays in one place from its first poll on. Places are reused, so that the steady state allocates nothing. A
//! place is taken out of the pool while its future is polled, so that a handler can call its own route.

use super::Outcome;
use crate::{IntoResponse, Response};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Place<Fut> = Pin<Box<Option<Fut>>>;

/// The places of one route on one worker.
pub(crate) struct Pool<Fut> {
    places: RefCell<Places<Fut>>,
}

struct Places<Fut> {
    all: Vec<Option<Place<Fut>>>,
    /// The numbers of free places whose memory is kept; `empty` has the numbers of places whose memory was freed.
    free: Vec<u32>,
    empty: Vec<u32>,
}

impl<Fut> Default for Pool<Fut> {
    fn default() -> Pool<Fut> {
        Pool { places: RefCell::new(Places { all: Vec::new(), free: Vec::new(), empty: Vec::new() }) }
    }
}

/// The most bytes of free places that a route keeps for reuse per worker; but it may keep 16 places of any size.
/// Further places, left by a peak of requests, are freed.
const KEPT_BYTES: usize = 256 * 1024;

impl<Fut> Places<Fut> {
    /// The most free places that are kept. This is the number that fits into [`KEPT_BYTES`], but at least 16.
    const KEPT: usize = {
        let kept = KEPT_BYTES / (size_of::<Option<Fut>>() + 1);
        if kept < 16 { 16 } else { kept }
    };

    fn take_free(&mut self) -> (u32, Place<Fut>) {
        if let Some(number) = self.free.pop()
            && let Some(place) = self.all[number as usize].take()
        {
            return (number, place);
        }
        let number = self.empty.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        (number, Box::pin(None))
    }

    fn put_free(&mut self, number: u32, place: Place<Fut>) {
        if self.free.len() < Self::KEPT {
            self.all[number as usize] = Some(place);
            self.free.push(number);
        } else {
            self.empty.push(number);
        }
    }
}

/// Releases the number of a place if the handler panics. The panic drops the place's memory.
struct FreeOnPanic<'p, Fut> {
    places: &'p RefCell<Places<Fut>>,
    number: u32,
}

impl<Fut> Drop for FreeOnPanic<'_, Fut> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.places.borrow_mut().empty.push(self.number);
        }
    }
}

impl<Fut> Pool<Fut>
where
    Fut: Future,
    Fut::Output: IntoResponse,
{
    /// Polls a future for the first time. A pending future stays in the pool.
    pub(crate) fn start(&self, future: Fut, waker: &Waker, answer: &mut Option<Response>) -> Outcome {
        let (number, mut place) = self.places.borrow_mut().take_free();
        place.set(Some(future));
        let polled = {
            let _guard = FreeOnPanic { places: &self.places, number };
            poll_place(&mut place, &mut Context::from_waker(waker))
        };
        match polled {
            Poll::Ready(response) => {
                self.places.borrow_mut().put_free(number, place);
                *answer = Some(response);
                Outcome::Ready
            }
            Poll::Pending => {
                self.places.borrow_mut().all[number as usize] = Some(place);
                Outcome::Pending(number)
            }
        }
    }

    /// Polls a future again.
    pub(crate) fn poll(&self, number: u32, cx: &mut Context<'_>) -> Poll<Response> {
        let Some(mut place) = self.places.borrow_mut().all[number as usize].take() else { return Poll::Pending };
        let polled = {
            let _guard = FreeOnPanic { places: &self.places, number };
            poll_place(&mut place, cx)
        };
        let mut places = self.places.borrow_mut();
        match polled {
            Poll::Ready(_) => places.put_free(number, place),
            Poll::Pending => places.all[number as usize] = Some(place),
        }
        polled
    }

    /// Drops a future.
    pub(crate) fn cancel(&self, number: u32) {
        let Some(mut place) = self.places.borrow_mut().all[number as usize].take() else { return };
        place.set(None);
        self.places.borrow_mut().put_free(number, place);
    }
}

/// Polls the future in a place. Drops the future as soon as it is ready.
fn poll_place<Fut>(place: &mut Place<Fut>, cx: &mut Context<'_>) -> Poll<Response>
where
    Fut: Future,
    Fut::Output: IntoResponse,
{
    let Some(future) = place.as_mut().as_pin_mut() else { return Poll::Pending };
    let Poll::Ready(answer) = future.poll(cx) else { return Poll::Pending };
    place.set(None);
    Poll::Ready(answer.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_of_futures_leaves_a_bounded_number_of_places() {
        type Large = [u8; 1024];
        let kept = Places::<Large>::KEPT;
        assert!((200..=KEPT_BYTES / 1024).contains(&kept));
        let mut places = Places::<Large> { all: Vec::new(), free: Vec::new(), empty: Vec::new() };
        for _ in 0..3 {
            let taken: Vec<_> = (0..5000).map(|_| places.take_free()).collect();
            let numbers: std::collections::HashSet<u32> = taken.iter().map(|(number, _)| *number).collect();
            assert_eq!((numbers.len(), places.all.len()), (5000, 5000), "each number is given once");
            taken.into_iter().for_each(|(number, place)| places.put_free(number, place));
            assert_eq!(places.all.iter().flatten().count(), kept);
        }
        let (number, place) = places.take_free();
        assert!(places.all.iter().flatten().count() == kept - 1, "a kept place is used first");
        places.put_free(number, place);
        assert_eq!(places.all.iter().flatten().count(), kept);
    }
}
