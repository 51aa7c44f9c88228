//! Requests that come from this process and not by a connection: where other threads leave them, and those under way.

use super::call::{Call, CallHead, Job};
use super::context::{self, TaskKind};
use super::deadline::DeadlineTable;
use super::exchange::let_go;
use super::worker::WorkerContext;
use crate::quiet;
use crate::service::Service;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where other threads leave requests for a worker.
pub(crate) type Inbox = Arc<Left>;

/// What was left for it.
pub(crate) struct Left {
    /// None where the worker has ended.
    jobs: Mutex<Option<Vec<Job>>>,
    /// Requests that are left or under way.
    count: AtomicUsize,
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Left").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Left {
    /// Leaves a request. Where the worker has ended it is dropped, which answers it.
    pub(super) fn leave(&self, job: Job) {
        if let Some(jobs) = &mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            self.count.fetch_add(1, Ordering::Relaxed);
            jobs.push(job);
        }
    }

    /// Requests that are left or under way.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<Job> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn close(&self) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without the lock.
        jobs.into_iter().flatten().for_each(forget);
    }
}

/// Drops a request that is not begun, which answers it.
fn forget(Job { request, body, answerer }: Job) {
    let_go(body);
    let_go(request);
    drop(answerer);
}

/// The requests of this process that a worker has under way.
pub(super) struct Calls {
    inbox: Inbox,
    slots: Vec<Slot>,
    free: Vec<u32>,
    deadlines: DeadlineTable,
    expired: Vec<u32>,
    head: CallHead,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    call: Option<Box<Call>>,
}

impl Calls {
    pub(super) fn new() -> Calls {
        Calls {
            inbox: Arc::new(Left { jobs: Mutex::new(Some(Vec::new())), count: AtomicUsize::new(0) }),
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: DeadlineTable::new(),
            expired: Vec::new(),
            head: CallHead::default(),
        }
    }

    pub(super) fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Whether none is left, and none under way.
    pub(super) fn is_empty(&self) -> bool {
        self.inbox.count() == 0
    }

    /// When the next deadline may pass.
    pub(super) fn next(&self) -> Option<io::Instant> {
        self.deadlines.next()
    }

    /// Begins with what others have left.
    pub(super) fn begin(&mut self, worker: &mut WorkerContext<impl Service>) {
        for job in self.inbox.take() {
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            });
            let slot = &mut self.slots[index as usize];
            let task = TaskKind::Call { index, generation: slot.generation };
            slot.call = Some(Box::new(Call::new(job, task, worker)));
            let mut head = std::mem::take(&mut self.head);
            self.with(index, worker, |call, worker| call.begin(&mut head, worker));
            self.head = head;
        }
    }

    /// The task of one of them was woken.
    pub(super) fn woken(&mut self, index: u32, generation: u32, worker: &mut WorkerContext<impl Service>) {
        if self.slots.get(index as usize).is_some_and(|slot| slot.generation == generation) {
            self.with(index, worker, Call::drive);
        }
    }

    /// Lets deadlines that have passed take effect.
    pub(super) fn expire(&mut self, worker: &mut WorkerContext<impl Service>) {
        let mut expired = std::mem::take(&mut self.expired);
        self.deadlines.expired(worker.tick, &mut expired);
        expired.drain(..).for_each(|index| self.with(index, worker, Call::expired));
        self.expired = expired;
    }

    /// Ends all of them: the time of the shutdown is up.
    pub(super) fn cut(&mut self, worker: &mut WorkerContext<impl Service>) {
        for job in self.inbox.take() {
            self.inbox.count.fetch_sub(1, Ordering::Relaxed);
            forget(job);
        }
        for index in 0..self.slots.len() as u32 {
            self.with(index, worker, Call::cut);
        }
    }

    /// The worker ends: so does whatever is under way, and nothing is taken any more.
    pub(super) fn close(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.inbox.close();
        for index in 0..self.slots.len() as u32 {
            self.with(index, worker, Call::cut);
        }
    }

    /// Does something with a request, and forgets it if it is over afterwards. A panic in here is a bug of the engine: it
    /// costs that request.
    fn with<S: Service>(
        &mut self,
        index: u32,
        worker: &mut WorkerContext<S>,
        act: impl FnOnce(&mut Call, &mut WorkerContext<S>),
    ) {
        let slot = &mut self.slots[index as usize];
        let Some(call) = &mut slot.call else { return };
        let done = catch_unwind(AssertUnwindSafe(|| act(call, worker)));
        if done.is_err() {
            quiet::log!(Panic, error, "the engine panicked; a request is cut");
        }
        if done.is_ok() && !call.is_over() {
            return self.deadlines.set_at(index, call.due());
        }
        // A future that panics when it is dropped costs what it holds, and no more.
        if catch_unwind(AssertUnwindSafe(|| call.release(worker))).is_err() {
            quiet::log!(Panic, error, "a handler panicked when its request ended");
        }
        let_go(slot.call.take());
        super::exchange::orphans().into_iter().for_each(|future| worker.cancel(future));
        slot.generation = context::next_generation(slot.generation);
        self.free.push(index);
        self.deadlines.clear(index);
        self.inbox.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body::Frame;
    use std::pin::Pin;
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
        let calls = Calls::new();
        let answers = [(); 2].map(|()| {
            let (request, ()) = http::Request::new(()).into_parts();
            let (answerer, answer) = crate::call::answer();
            calls.inbox.leave(Job { request, body: Some(Box::pin(Fragile)), answerer });
            answer
        });
        calls.inbox.close();
        for answer in answers {
            let polled = std::pin::pin!(answer).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Ok(answer)) = polled else { panic!("there is no answer") };
            assert_eq!(answer.status(), 503);
        }
    }
}
