//! The requests that a worker is serving for callers in this process, without a connection.

use crate::call::inbox::{Inbox, forget};
use crate::call::{Call, CallHead};
use crate::runtime::context::{self, TaskKind};
use crate::runtime::deadline::DeadlineTable;
use crate::runtime::panics::drop_safely;
use crate::runtime::rate_limited;
use crate::runtime::remote::Remote;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The requests of this process that a worker is serving.
pub(crate) struct Calls {
    inbox: Arc<Inbox>,
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
    pub(crate) fn new(remote: &Remote) -> Calls {
        Calls {
            inbox: remote.inbox.clone(),
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: DeadlineTable::new(),
            expired: Vec::new(),
            head: CallHead::default(),
        }
    }

    /// Returns true if no request is waiting or being served.
    pub(crate) fn is_empty(&self) -> bool {
        self.inbox.count() == 0
    }

    /// Returns the moment at which the next deadline may pass.
    pub(crate) fn next(&self) -> Option<highwire_io::Instant> {
        self.deadlines.next()
    }

    /// Takes the requests that other threads have left, and begins to serve them.
    pub(crate) fn begin(&mut self, worker: &mut WorkerContext<impl Service>) {
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

    /// Continues the request whose task was woken.
    pub(crate) fn woken(&mut self, index: u32, generation: u32, worker: &mut WorkerContext<impl Service>) {
        if self.slots.get(index as usize).is_some_and(|slot| slot.generation == generation) {
            self.with(index, worker, Call::drive);
        }
    }

    /// Handles the requests whose deadlines have passed.
    pub(crate) fn expire(&mut self, worker: &mut WorkerContext<impl Service>) {
        let mut expired = std::mem::take(&mut self.expired);
        self.deadlines.expired(worker.tick, &mut expired);
        expired.drain(..).for_each(|index| self.with(index, worker, Call::expired));
        self.expired = expired;
    }

    /// Cuts all requests, because the shutdown deadline has passed or the server was aborted.
    pub(crate) fn cut(&mut self, worker: &mut WorkerContext<impl Service>) {
        for job in self.inbox.take() {
            self.inbox.finish_one();
            forget(job);
        }
        for index in 0..self.slots.len() as u32 {
            self.with(index, worker, Call::cut);
        }
    }

    /// Drops the waiting requests, cuts those in progress, and takes no more, because the worker ends.
    pub(crate) fn close(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.inbox.close();
        for index in 0..self.slots.len() as u32 {
            self.with(index, worker, Call::cut);
        }
    }

    /// Calls `act` with a request, and forgets the request if it is over afterwards. A panic in `act` is a bug of the
    /// engine; it ends only that request.
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
            rate_limited::log!(Panic, error, "the engine panicked; a request is cut");
            worker.observed = None;
        }
        if done.is_ok() && !call.is_over() {
            return self.deadlines.set_at(index, call.due());
        }
        // A handler's future may panic when it is dropped. The panic must not stop the worker.
        if catch_unwind(AssertUnwindSafe(|| call.release(worker))).is_err() {
            rate_limited::log!(Panic, error, "a handler panicked when its request ended");
        }
        drop_safely(slot.call.take());
        crate::exchange::orphans().into_iter().for_each(|future| worker.cancel(future));
        slot.generation = context::next_generation(slot.generation);
        self.free.push(index);
        self.deadlines.clear(index);
        self.inbox.finish_one();
    }
}
