//! A worker: one thread's driver, connections, timers and tasks, and the loop over them.
//!
//! One turn of the loop:
//!
//! 1. poll what was woken: handlers, bodies, spawned tasks;
//! 2. give the driver what was asked for and wait for completions, until the next deadline at most;
//! 3. act on each completion as it comes;
//! 4. let deadlines and timers that have passed take effect; see whether the server is to stop.

use super::accept::{Admission, CONNECTION_BYTES};
use super::calls::Calls;
use super::connection::Connection;
use super::context::{Context, TaskKind};
use super::dispatch::WorkerContext;
use super::listen::ListenerSetup;
use super::remote::Remote;
use super::report::Report;
use super::shared::Shared;
use crate::Result;
use io::wake::TaskInbox;
use io::{Completion, Driver, Instant, Listener, ListenerId, Op, Peer, Queue, Sink, SocketId};
use proto::Head;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a worker waits before it accepts again after it ran out of descriptors, memory or room. Long enough not to spin,
/// short enough that nobody notices once there is room.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Rounds of woken tasks in one turn, so that tasks which wake each other cannot keep connections waiting.
const TASK_ROUNDS: usize = 16;

/// How long connections with more work than a turn has for them may keep all others waiting, together.
const UNFINISHED_NANOSECONDS: u64 = 1_000_000;

/// Places for connections that a worker keeps when it has none.
const CONNECTIONS_KEPT: usize = 1024;

/// Turns in a row that an embedded worker takes before the host's loop gets its turn.
const READY_TURNS: usize = 4;

const NANOSECONDS: u64 = 1_000_000_000;

/// What to add to a driver's clock to have the time since 1970.
fn unix_offset<D: Driver>(driver: &D) -> u64 {
    driver.unix_nanoseconds().saturating_sub(driver.now().nanoseconds)
}

/// A worker over any driver. [`Server`](crate::Server) makes and runs them; a host with a loop of its own, and the
/// simulator, call [`turn`](Self::turn).
pub struct Worker<D: Driver> {
    driver: D,
    queue: Queue,
    state: WorkerState,
    /// A turn of the driver has failed: there is none after it.
    failed: bool,
}

impl<D: Driver> std::fmt::Debug for Worker<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("driver", &self.driver.name())
            .field("connections", &self.state.count)
            .finish_non_exhaustive()
    }
}

/// All that the sink of completions touches: everything but the driver.
struct WorkerState {
    worker: WorkerContext,
    /// By socket index.
    connections: Vec<Option<Connection>>,
    count: usize,
    calls: Calls,
    head: Head,
    listeners: Vec<ListenerId>,
    /// What connections of each begin with, in their order; empty where that is HTTP for all.
    listener_setups: Vec<ListenerSetup>,
    /// Accepting is paused until then.
    accept_again: Option<Instant>,
    /// Other threads have woken tasks.
    woken: bool,
    /// Other threads may have handed connections over.
    handed: bool,
    remote: Arc<Remote>,
    tasks: Vec<u64>,
    expired: Vec<u32>,
    last_tick: u32,
    drain_until: Option<Instant>,
    /// Connections came in this turn.
    came: bool,
    stopped: bool,
}

impl<D: Driver> Worker<D> {
    /// A worker with its listeners.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut driver: D,
        listeners: Vec<Listener>,
        listener_setups: Vec<ListenerSetup>,
    ) -> Result<Worker<D>> {
        let server = shared.clone();
        let _runtime = server.enter_runtime();
        let notifier = driver.notifier();
        let inbox = TaskInbox::open(notifier.clone())?;
        let context = Context::new(inbox, shared.clone());
        context.unix_offset.set(unix_offset(&driver));
        let mut worker = {
            let _entered = context.enter();
            WorkerContext::new(shared, context.clone())
        };
        worker.stopwatch = driver.stopwatch();
        worker.begin(driver.now());
        worker.lines.refresh(driver.unix_nanoseconds() / NANOSECONDS);
        let listeners =
            listeners.into_iter().map(|listener| driver.listen(listener)).collect::<std::io::Result<Vec<_>>>()?;
        let listener_setups =
            if listener_setups.iter().all(ListenerSetup::is_plain) { Vec::new() } else { listener_setups };
        let calls = Calls::new();
        let remote = Remote::new(notifier, worker.beat.clone(), calls.inbox());
        let state = WorkerState {
            worker,
            connections: Vec::new(),
            count: 0,
            calls,
            head: Head::default(),
            listeners,
            listener_setups,
            accept_again: None,
            woken: true,
            handed: false,
            remote: Arc::new(remote),
            tasks: Vec::new(),
            expired: Vec::new(),
            last_tick: 0,
            drain_until: None,
            came: false,
            stopped: false,
        };
        Ok(Worker { driver, queue: Queue::new(), state, failed: false })
    }

    pub(crate) fn remote(&self) -> Arc<Remote> {
        self.state.remote.clone()
    }

    /// The driver.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.state.count
    }

    /// Spawned tasks that are not finished.
    pub fn tasks(&self) -> usize {
        self.state.worker.context.living_tasks()
    }

    /// Bytes that this worker has charged to the memory budget for its peers.
    pub fn account(&self) -> usize {
        self.state.worker.share.charged()
    }

    /// Stops accepting and finishes what is under way, until the shutdown deadline at the latest. The turns go on until one
    /// says that the worker has stopped.
    pub fn stop(&self) {
        self.state.worker.shared.draining.store(true, Ordering::Release);
        self.state.remote.notifier.notify();
    }

    /// The same, but nothing that is under way is waited for.
    pub fn abort(&self) {
        self.state.worker.shared.aborting.store(true, Ordering::Release);
        self.stop();
    }

    /// What became of its connections so far.
    pub fn report(&self) -> Report {
        Report::of(&self.state.worker.shared)
    }

    /// When the next timer of handlers and tasks is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.state.worker.context.next_timer()
    }

    /// Runs turns until the server stops.
    ///
    /// # Errors
    /// What makes the driver unusable.
    pub fn run(&mut self) -> Result<()> {
        let shared = self.state.worker.shared.clone();
        let _runtime = shared.enter_runtime();
        while !self.step(None)? {}
        Ok(())
    }

    /// A descriptor that is readable whenever the worker has something to do: I/O, a wake, a task, a deadline. A host waits
    /// on it in its own loop, without a timeout, and calls [`turn_ready`](Self::turn_ready) each time.
    ///
    /// # Errors
    /// What the system says.
    pub fn descriptor(&mut self) -> Result<RawFd> {
        Ok(self.driver.descriptor()?)
    }

    /// Does what there is to do, without waiting: whether the worker has stopped. Call it once before the first wait, too.
    ///
    /// # Errors
    /// What makes the driver unusable.
    pub fn turn_ready(&mut self) -> Result<bool> {
        let shared = self.state.worker.shared.clone();
        let _runtime = shared.enter_runtime();
        for _ in 0..READY_TURNS {
            if self.step(Some(Instant::default()))? {
                return Ok(true);
            }
            // What the turn's completions asked for is started by the next.
            if self.queue.ops.is_empty() && !self.state.has_work() {
                break;
            }
        }
        let busy = !self.queue.ops.is_empty() || self.state.has_work();
        let until = if busy { Some(Instant::default()) } else { self.state.next_moment() };
        self.driver.arm(until)?;
        Ok(false)
    }

    /// One turn, waiting until `limit` at most: whether the worker has stopped.
    ///
    /// # Errors
    /// What makes the driver unusable.
    pub fn turn(&mut self, limit: Option<Instant>) -> Result<bool> {
        let shared = self.state.worker.shared.clone();
        let _runtime = shared.enter_runtime();
        self.step(limit)
    }

    /// A turn, where the runtime has been entered: once for many turns.
    fn step(&mut self, limit: Option<Instant>) -> Result<bool> {
        if std::mem::replace(&mut self.failed, true) {
            return Err(std::io::Error::other("an earlier turn of this worker failed: it cannot go on").into());
        }
        let _entered = self.state.worker.context.clone().enter();
        self.state.worker.turn = self.state.worker.turn.wrapping_add(1);
        self.state.shake_hands(&mut self.queue);
        self.state.go_on(&mut self.queue);
        let mut more = self.state.run_tasks(&mut self.queue) || self.state.worker.has_unfinished();
        // The tasks may have ended the last that a shutdown waited for: nothing else would end the wait.
        more |= self.state.is_deserted();
        let until =
            if more { Some(Instant::default()) } else { self.state.next_moment().into_iter().chain(limit).min() };
        // After an error the kernel may still read what the driver was given: there is no other turn.
        self.driver.turn(until, &mut self.queue, &mut self.state)?;
        self.failed = false;
        self.state.begin(self.driver.now());
        self.state.worker.context.unix_offset.set(unix_offset(&self.driver));
        self.adopt();
        self.state.expire(&mut self.queue);
        self.state.worker.context.fire_timers();
        self.state.see_shutdown(&mut self.queue);
        Ok(self.state.stopped)
    }

    /// Takes over connections that an acceptor has handed here, and requests of this process.
    fn adopt(&mut self) {
        if !std::mem::take(&mut self.state.handed) {
            return;
        }
        for (socket, listener) in self.state.remote.take_handed() {
            let peer = socket.peer;
            match self.driver.adopt(socket) {
                Ok(socket) => self.state.connection_came(socket, peer, listener, &mut self.queue),
                Err(error) => crate::server::quiet::log!(Failure, warn, %error, "a connection could not be taken over"),
            }
        }
        self.state.calls.begin(&mut self.state.worker);
    }
}

impl<D: Driver> Drop for Worker<D> {
    fn drop(&mut self) {
        let shared = self.state.worker.shared.clone();
        let _runtime = shared.enter_runtime();
        let _entered = self.state.worker.context.clone().enter();
        for connection in self.state.connections.iter_mut().filter_map(Option::as_mut) {
            connection.cut(&mut self.state.worker, &mut self.queue);
            self.state.worker.shared.dismiss(connection.peer());
            self.state.worker.share.give(CONNECTION_BYTES);
        }
        self.state.connections.clear();
        self.state.calls.close(&mut self.state.worker);
        // Their places go with this worker.
        drop(super::exchange::orphans());
        self.state.worker.context.clear();
        crate::form::remove_dropped();
    }
}

impl WorkerState {
    /// When something is due by itself.
    fn next_moment(&self) -> Option<Instant> {
        let deadlines = [self.worker.deadlines.next(), self.calls.next(), self.accept_again, self.drain_until];
        let due = deadlines.into_iter().chain([self.worker.context.next_timer()]);
        due.into_iter().flatten().min()
    }

    /// Whether there is something to do without an event from outside.
    fn has_work(&self) -> bool {
        self.woken
            || self.handed
            || !self.tasks.is_empty()
            || self.worker.has_unfinished()
            || self.worker.context.inbox.has_local()
    }

    /// Whether there is no connection, and no request of this process.
    fn is_empty(&self) -> bool {
        self.count == 0 && self.calls.is_empty()
    }

    /// Whether the worker is to stop, and there is nobody left.
    fn is_deserted(&self) -> bool {
        self.worker.draining
            && self.is_empty()
            && self.listeners.is_empty()
            && self.worker.shared.acceptors.load(Ordering::Acquire) == 0
    }

    /// Goes on with handshakes that had to wait, as far as a turn has time for them.
    fn shake_hands(&mut self, queue: &mut Queue) {
        while self.worker.handshakes > 0 {
            let Some(id) = self.worker.waiting.pop_front() else { return };
            self.worker.handshakes -= 1;
            self.with(id, queue, |connection, worker, head, queue| connection.proceed_tls(worker, head, queue));
        }
    }

    /// Goes on with connections that used up their allowance in an earlier turn, each once, until what they have written, or the
    /// time that they have taken, is enough for a turn. The others are the first in the next turn.
    fn go_on(&mut self, queue: &mut Queue) {
        let Some(begun) = (!self.worker.unfinished.is_empty()).then(self.worker.stopwatch) else { return };
        for _ in 0..self.worker.unfinished.len() {
            let Some(id) = self.worker.unfinished.pop_front() else { return };
            self.with(id, queue, |connection, worker, head, queue| connection.go_on(worker, head, queue));
            let is_late = (self.worker.stopwatch)().saturating_sub(begun) > UNFINISHED_NANOSECONDS;
            if is_late || queue.output.len() >= io::limit::OUTPUT_BYTES {
                return;
            }
        }
    }

    /// Polls what was woken, until what that has written is enough for a turn: whether more waits.
    fn run_tasks(&mut self, queue: &mut Queue) -> bool {
        if std::mem::take(&mut self.woken) {
            self.worker.context.inbox.take_remote(&mut self.tasks);
        }
        for _ in 0..TASK_ROUNDS {
            self.worker.context.inbox.take_local(&mut self.tasks);
            if self.tasks.is_empty() {
                return false;
            }
            let mut tasks = std::mem::take(&mut self.tasks);
            let mut done = 0;
            while done < tasks.len() && queue.output.len() < io::limit::OUTPUT_BYTES {
                let task = tasks[done];
                done += 1;
                match TaskKind::of(task) {
                    TaskKind::Connection { index, generation } => {
                        self.with(SocketId { index, generation }, queue, |connection, worker, head, queue| {
                            connection.woken(worker, head, queue);
                        });
                    }
                    TaskKind::Stream { index, generation, place } => {
                        let known = self.connections.get(index as usize).and_then(Option::as_ref);
                        let Some(id) = known.map(Connection::id).filter(|id| TaskKind::is_of(generation, *id)) else {
                            continue;
                        };
                        self.with(id, queue, |connection, worker, head, queue| {
                            connection.woken_stream(place as usize, worker, head, queue);
                        });
                    }
                    TaskKind::Spawned { index, generation } => self.worker.context.clone().poll(index, generation),
                    TaskKind::Call { index, generation } => self.calls.woken(index, generation, &mut self.worker),
                }
            }
            tasks.drain(..done);
            self.tasks = tasks;
            if !self.tasks.is_empty() {
                return true;
            }
        }
        self.worker.context.inbox.has_local()
    }

    /// Does something with a connection, if it is still there, and forgets it if it is over afterwards. A panic in here is a
    /// bug of the engine: it costs that connection, not the worker.
    #[inline]
    fn with(
        &mut self,
        id: SocketId,
        queue: &mut Queue,
        act: impl FnOnce(&mut Connection, &mut WorkerContext, &mut Head, &mut Queue),
    ) {
        let Some(Some(connection)) = self.connections.get_mut(id.index as usize) else { return };
        if connection.id() != id {
            return;
        }
        let (worker, head) = (&mut self.worker, &mut self.head);
        let done = catch_unwind(AssertUnwindSafe(|| act(connection, worker, head, queue)));
        if done.is_err() {
            crate::server::quiet::log!(Panic, error, "the engine panicked; the connection is cut");
            queue.push(Op::Abort { socket: id });
            super::exchange::orphans().into_iter().for_each(|future| self.worker.cancel(future));
        }
        if done.is_err() || connection.is_gone() {
            self.forget(id);
        }
    }

    #[cold]
    fn forget(&mut self, id: SocketId) {
        let Some(mut connection) = self.connections.get_mut(id.index as usize).and_then(Option::take) else { return };
        // A future that panics when it is dropped costs what it holds, and no more.
        if catch_unwind(AssertUnwindSafe(|| connection.release(&mut self.worker))).is_err() {
            crate::server::quiet::log!(Panic, error, "a handler panicked when its connection ended");
        }
        self.worker.deadlines.clear(id.index);
        self.worker.shared.dismiss(connection.peer());
        self.worker.share.give(CONNECTION_BYTES);
        self.count -= 1;
        if self.count == 0 && self.connections.len() > CONNECTIONS_KEPT {
            // Many were here, such as those of a flood.
            self.connections = Vec::new();
        }
        self.remote.connections.fetch_sub(1, Ordering::Relaxed);
        if self.accept_again.is_some() {
            // Room: no need to wait for the clock.
            self.accept_again = Some(self.worker.now);
        }
    }

    fn connection_came(&mut self, socket: SocketId, peer: Peer, listener: usize, queue: &mut Queue) {
        if !self.worker.share.take(CONNECTION_BYTES) {
            queue.push(Op::Abort { socket });
            self.pause_accept(queue);
            return;
        }
        let listener_setup = self.listener_setups.get(listener);
        let (has_tls, proxied) = listener_setup
            .map_or((false, false), |listener_setup| (listener_setup.tls.is_some(), listener_setup.proxied));
        // A driver may have accepted more before it heard that it should not.
        let admission = self.worker.shared.admit(peer, proxied);
        if admission != Admission::Taken {
            self.worker.share.give(CONNECTION_BYTES);
            if admission == Admission::TooManyInAll {
                self.pause_accept(queue);
            }
            super::accept::refuse(socket, &self.worker.lines, queue);
            return;
        }
        let mut connection = Connection::new(socket, peer, proxied, &mut self.worker);
        let secured = !has_tls
            || listener_setup.is_some_and(|listener_setup| listener_setup.secure(&mut connection, &mut self.worker));
        if !secured {
            self.worker.share.give(CONNECTION_BYTES);
            self.worker.shared.dismiss(peer);
            self.worker.deadlines.clear(socket.index);
            return queue.push(Op::Abort { socket });
        }
        let index = socket.index as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(connection);
        self.count += 1;
        self.remote.connections.store(self.count as u32, Ordering::Relaxed);
        if !self.worker.shared.config().http1 && !has_tls && !proxied {
            self.with(socket, queue, |connection, worker, _, queue| connection.speak_http2(worker, queue));
        }
        if self.worker.draining {
            self.with(socket, queue, |connection, worker, _, queue| connection.drain(worker, queue));
        }
        if !self.worker.shared.has_room() {
            self.pause_accept(queue);
        }
    }

    /// A driver may have listeners of its own, as the simulator has.
    fn know(&mut self, listener: ListenerId) {
        if !self.listeners.contains(&listener) && !self.worker.draining {
            self.listeners.push(listener);
        }
    }

    /// Lets connections wait in the kernel's backlog for a while.
    fn pause_accept(&mut self, queue: &mut Queue) {
        for &listener in &self.listeners {
            queue.push(Op::PauseAccept { listener });
        }
        self.accept_again = Some(self.worker.now + ACCEPT_PAUSE);
    }

    /// Lets what is due take effect.
    fn expire(&mut self, queue: &mut Queue) {
        let mut expired = std::mem::take(&mut self.expired);
        self.worker.deadlines.expired(self.worker.tick, &mut expired);
        for index in expired.drain(..) {
            let Some(Some(connection)) = self.connections.get(index as usize) else { continue };
            let id = connection.id();
            self.with(id, queue, |connection, worker, head, queue| connection.expired(worker, head, queue));
        }
        self.expired = expired;
        self.calls.expire(&mut self.worker);
        if self.accept_again.is_some_and(|at| at <= self.worker.now) {
            if self.worker.shared.has_room() {
                self.accept_again = None;
                for &listener in &self.listeners {
                    queue.push(Op::ResumeAccept { listener });
                }
            } else {
                self.accept_again = Some(self.worker.now + ACCEPT_PAUSE);
            }
        }
    }

    /// Stops accepting and lets go of who is idle, once the server is told to stop; ends when nobody is left, or when the
    /// deadline has passed.
    fn see_shutdown(&mut self, queue: &mut Queue) {
        if !self.worker.shared.draining.load(Ordering::Acquire) {
            return;
        }
        let shared = self.worker.shared.clone();
        if self.drain_until.is_none() {
            self.worker.draining = true;
            self.accept_again = None;
            for index in 0..self.connections.len() {
                if let Some(id) = self.connections.get(index).and_then(Option::as_ref).map(Connection::id) {
                    self.with(id, queue, |connection, worker, _, queue| connection.drain(worker, queue));
                }
            }
            self.drain_until = Some(self.worker.now + shared.config().deadlines.shutdown);
        }
        let late = self.drain_until.is_some_and(|until| until <= self.worker.now);
        let ends_now = late || shared.aborting.load(Ordering::Acquire);
        if !std::mem::take(&mut self.came) || ends_now {
            // Whoever the kernel has already shaken hands with is served, if there is time; then nobody else comes.
            for listener in std::mem::take(&mut self.listeners) {
                queue.push(Op::CloseListener { listener });
            }
        }
        if ends_now {
            for index in 0..self.connections.len() {
                if let Some(id) = self.connections.get(index).and_then(Option::as_ref).map(Connection::id) {
                    self.with(id, queue, |connection, worker, _, queue| {
                        if connection.cut(worker, queue) {
                            worker.shared.counters.cut.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            }
            self.calls.cut(&mut self.worker);
        }
        // One turn more, so that the driver gets the last operations.
        // In this order: the last thing that an acceptor does may be to hand over a connection.
        let handed_out = shared.acceptors.load(Ordering::Acquire) == 0 && !self.remote.has_handed();
        self.stopped = self.is_empty() && self.listeners.is_empty() && queue.ops.is_empty() && handed_out;
        if self.is_empty() {
            self.drain_until = Some(self.worker.now);
        }
    }
}

impl Sink for WorkerState {
    fn begin(&mut self, now: Instant) {
        self.worker.begin(now);
        if self.last_tick != self.worker.tick {
            // Before anything is answered: the worker may have slept for long.
            self.last_tick = self.worker.tick;
            self.worker.lines.refresh(self.worker.context.unix_nanoseconds() / NANOSECONDS);
            // By a clock that nobody sets back.
            super::listen::look_at_files(&self.listener_setups, &self.worker.shared, now.nanoseconds / NANOSECONDS);
        }
    }

    #[inline]
    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        match completion {
            Completion::Received { socket, bytes } => {
                self.with(socket, queue, |connection, worker, head, queue| {
                    connection.received(bytes, worker, head, queue)
                });
            }
            Completion::Accepted { listener, socket, peer } => {
                self.know(listener);
                self.came = true;
                self.connection_came(socket, peer, listener.0 as usize, queue);
            }
            Completion::Ended { socket } => {
                self.with(socket, queue, |connection, worker, head, queue| connection.peer_ended(worker, head, queue));
            }
            Completion::Blocked { socket, held } => {
                self.with(socket, queue, |connection, worker, _, queue| connection.blocked(held, worker, queue));
            }
            Completion::Progress { socket } => {
                self.with(socket, queue, |connection, worker, _, _| connection.progressed(worker))
            }
            Completion::Drained { socket } => {
                self.with(socket, queue, |connection, worker, head, queue| connection.drained(worker, head, queue));
            }
            Completion::Failed { socket, .. } => {
                self.with(socket, queue, |connection, worker, _, queue| connection.failed(worker, queue));
            }
            Completion::AcceptFailed { listener, error } => {
                self.know(listener);
                crate::server::quiet::log!(Failure, warn, %error, "accepting is paused");
                self.pause_accept(queue);
            }
            Completion::Woken => (self.woken, self.handed) = (true, true),
            Completion::Connected { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::sim::{Faults, Network, Simulated};
    use io::{Address, blocking};

    #[test]
    fn a_connection_that_is_handed_over_behind_the_last_wait_keeps_its_worker() {
        let address = Address::parse("127.0.0.1:0").expect("an address");
        let listener = Listener::bind(&address, &io::Options::default()).expect("a free port");
        let _client = std::net::TcpStream::connect(listener.address().to_string()).expect("it listens");
        let socket = blocking::accept(&listener, Duration::from_secs(20)).expect("it accepts").expect("a connection");
        let driver = Simulated::new(Network::new(1, Faults::default())).expect("a driver");
        let server = crate::App::new().server().expect("an app");
        let mut worker = server.into_worker(driver).expect("a worker");
        worker.stop();
        worker.state.remote.hand(socket, 0);
        worker.state.see_shutdown(&mut worker.queue);
        assert!(!worker.state.stopped, "the connection would be lost");
    }
}
