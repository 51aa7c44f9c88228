//! The queue through which other threads pass requests of this process to a worker.

use super::reply::Answerer;
use crate::body::BoxError;
use crate::runtime::panics::drop_safely;
use bytes::Bytes;
use http::request;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A request's body on its way to a worker.
pub type RequestBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>;

/// A request on its way to a worker.
pub(crate) struct Job {
    pub(crate) request: request::Parts,
    /// `None` if the request has no body.
    pub(crate) body: Option<RequestBody>,
    pub(crate) answerer: Answerer,
}

/// The queue of requests for a worker.
pub(crate) struct Inbox {
    /// `None` once the worker has ended.
    jobs: Mutex<Option<Vec<Job>>>,
    /// The number of requests that are queued or in progress.
    count: AtomicUsize,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { jobs: Mutex::new(Some(Vec::new())), count: AtomicUsize::new(0) }
    }
}

impl Inbox {
    /// Queues a request. If the worker has ended, drops the request, which answers it with 503.
    pub(crate) fn leave(&self, job: Job) {
        if let Some(jobs) = &mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            self.count.fetch_add(1, Ordering::Relaxed);
            jobs.push(job);
        }
    }

    /// Records that a request is over.
    pub(crate) fn finish_one(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of requests that are queued or in progress.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes all queued requests.
    pub(crate) fn take(&self) -> Vec<Job> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes the queue. Drops the queued requests, which answers them with 503. Later requests are dropped by `leave`.
    pub(crate) fn close(&self) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Drops the requests without the lock, because the drop runs code of the program.
        jobs.into_iter().flatten().for_each(forget);
    }
}

/// Drops a request that has not begun, which answers it with 503.
pub(crate) fn forget(Job { request, body, answerer }: Job) {
    drop_safely(body);
    drop_safely(request);
    drop(answerer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Frame;
    use std::task::{Context, Poll, Waker};

    /// A body that panics when it is dropped.
    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }

    impl http_body::Body for Fragile {
        type Data = Bytes;
        type Error = crate::body::BoxError;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, crate::body::BoxError>>> {
            Poll::Pending
        }
    }

    #[test]
    fn what_was_left_is_answered_where_its_bodies_panic() {
        let inbox = Inbox::default();
        let answers = [(); 2].map(|()| {
            let (request, ()) = http::Request::new(()).into_parts();
            let (answerer, answer) = crate::call::answer();
            inbox.leave(Job { request, body: Some(Box::pin(Fragile)), answerer });
            answer
        });
        inbox.close();
        for answer in answers {
            let polled = std::pin::pin!(answer).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Ok(answer)) = polled else { panic!("there is no answer") };
            assert_eq!(answer.status(), 503);
        }
    }
}
