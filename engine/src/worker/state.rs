//! The state of a worker without its driver: connections, calls, tasks and deadlines. It is the [`Sink`] of the
//! driver's completions.

use super::NANOSECONDS;
use crate::connection::Connection;
use crate::raw::RawStream;
use crate::runtime::connect::attempt::Attempt;
use crate::runtime::context::TaskKind;
use crate::runtime::promise::Promise;
use crate::runtime::rate_limited;
use crate::runtime::remote::Remote;
use crate::server::accept::{Admission, CONNECTION_BYTES};
use crate::server::listen::ListenerSetup;
use crate::service::Service;
use crate::worker::calls::Calls;
use crate::worker::context::WorkerContext;
use highwire_io::wake::WAKES_KEPT;
use highwire_io::{Completion, Instant, Interest, ListenerId, Op, Peer, Queue, Sink, SocketId};
use highwire_proto::Head;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time after which a worker that has run out of descriptors, memory or room for connections tries to accept again.
/// It is long enough that the worker does not spin, and short enough that clients hardly notice it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The most rounds of woken tasks per turn, so that tasks that wake each other cannot keep connections waiting.
const TASK_ROUNDS: usize = 16;

/// The time in nanoseconds after which a turn polls no further woken task, and the number of tasks between two looks at the
/// clock. A message to thousands of subscribers wakes thousands of tasks, and all other connections wait meanwhile.
const TASKS_NANOSECONDS: u64 = 1_000_000;
const TASKS_A_LOOK: usize = 16;

/// The time in nanoseconds after which a turn continues no further connection that an earlier turn left unfinished. All
/// other connections wait during this time.
const UNFINISHED_NANOSECONDS: u64 = 1_000_000;

/// The most connections that a turn begins to open; the others wait for the next turns. The kernel takes a millisecond for each
/// if it has few free ports left, and all connections of the worker wait meanwhile.
const CONNECTS_A_TURN: usize = 8;

/// The most idle connections that are closed at once when there is no room for another one. The search for those that are
/// idle for the longest time looks at all connections, so it should serve many newcomers.
const MADE_ROOM: usize = 32;

/// The time after which the log tells again that there is no room for another connection, if none could be closed.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// The bound that [`Limits::connections`](crate::server::config::Limits::connections) sets, for the log.
const MOST_CONNECTIONS: &str = "the most connections (--connections, or the limit of file descriptors)";

/// A worker without connections keeps a connection table of up to this many slots, and frees a larger one.
const CONNECTIONS_KEPT: usize = 1024;

/// The state of a worker without its driver.
pub(super) struct WorkerState<S> {
    pub(super) cx: WorkerContext<S>,
    /// The connections, by socket index.
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) count: usize,
    pub(super) calls: Calls,
    /// The attempts to connect that are in progress, by their tokens.
    pub(super) attempts: HashMap<u64, Promise<io::Result<RawStream>>>,
    pub(super) last_attempt: u64,
    pub(super) head: Head,
    pub(super) listeners: Vec<ListenerId>,
    /// The setup of each listener, by the listener's number; empty if the connections of all listeners begin with plain
    /// HTTP.
    pub(super) listener_setups: Vec<ListenerSetup>,
    /// The moment until which accepting is paused, if it is.
    pub(super) accept_again: Option<Instant>,
    /// The moment from which on the log tells again that there is no room for another connection.
    pub(super) tells_full: Instant,
    /// True if other threads may have woken tasks.
    pub(super) woken: bool,
    /// True if other threads may have left connections or requests of this process.
    pub(super) handed: bool,
    pub(super) remote: Arc<Remote>,
    pub(super) tasks: Vec<u64>,
    pub(super) expired: Vec<u32>,
    pub(super) last_tick: u32,
    pub(super) drain_until: Option<Instant>,
    /// True if the driver has accepted a connection since [`see_shutdown`](Self::see_shutdown) last checked.
    pub(super) came: bool,
    pub(super) stopped: bool,
    /// True if a shutdown no longer waits for tasks.
    pub(super) has_cut_tasks: bool,
    /// See [`retire`](Self::retire).
    pub(super) retired: bool,
    /// The reports of watches that the host has not taken.
    pub(super) watched: Vec<(u64, Interest)>,
}

impl<S: Service> WorkerState<S> {
    /// Returns the moment of the next deadline or timer.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        let deadlines = [self.cx.deadlines.next(), self.calls.next(), self.accept_again, self.drain_until];
        let due = deadlines.into_iter().chain([self.cx.context.next_timer(), self.cx.context.memory_due()]);
        due.into_iter().flatten().min()
    }

    /// Returns true if the worker can do work without waiting for a completion.
    pub(super) fn has_work(&self) -> bool {
        self.woken
            || self.handed
            || !self.tasks.is_empty()
            || self.cx.has_unfinished()
            || self.cx.context.inbox.has_local()
            || self.cx.context.awaits_turn()
            || self.cx.context.has_connects()
    }

    /// Returns true if there are no connections, no requests of this process, and no tasks for which a shutdown waits.
    fn is_empty(&self) -> bool {
        self.count == 0 && self.calls.is_empty() && (self.cx.context.holds() == 0 || self.has_cut_tasks)
    }

    /// Returns true if the worker is stopping and has nothing left to serve.
    pub(super) fn is_deserted(&self) -> bool {
        !self.retired
            && self.cx.draining()
            && self.is_empty()
            && self.listeners.is_empty()
            && self.cx.shared.acceptors.load(Ordering::Acquire) == 0
    }

    /// Continues the waiting TLS handshakes, up to the bound per turn.
    pub(super) fn shake_hands(&mut self, queue: &mut Queue) {
        while self.cx.handshakes > 0 {
            let Some(id) = self.cx.waiting.pop_front() else { return };
            self.cx.handshakes -= 1;
            self.with(id, queue, |connection, worker, head, queue| connection.proceed_tls(worker, head, queue));
        }
    }

    /// Continues, once each, the connections that used up their allowance in an earlier turn. Stops when they have
    /// written enough, or taken enough time, for one turn; the next turn begins with the remaining ones.
    pub(super) fn go_on(&mut self, queue: &mut Queue) {
        let Some(begun) = (!self.cx.unfinished.is_empty()).then(self.cx.stopwatch) else { return };
        for _ in 0..self.cx.unfinished.len() {
            let Some(id) = self.cx.unfinished.pop_front() else { return };
            self.with(id, queue, |connection, worker, head, queue| connection.go_on(worker, head, queue));
            let is_late = (self.cx.stopwatch)().saturating_sub(begun) > UNFINISHED_NANOSECONDS;
            if is_late || queue.output.len() >= highwire_io::limit::OUTPUT_BYTES {
                return;
            }
        }
    }

    /// Polls the woken tasks, for at most [`TASK_ROUNDS`] rounds or until they have written enough, or taken enough time,
    /// for one turn. Returns true if more tasks wait.
    pub(super) fn run_tasks(&mut self, queue: &mut Queue) -> bool {
        if std::mem::take(&mut self.woken) {
            self.cx.context.inbox.take_remote(&mut self.tasks);
        }
        let (mut count, mut begun, mut is_late) = (0, 0, false);
        for _ in 0..TASK_ROUNDS {
            self.cx.context.inbox.take_local(&mut self.tasks);
            if self.tasks.is_empty() {
                return false;
            }
            let mut tasks = std::mem::take(&mut self.tasks);
            let mut done = 0;
            while done < tasks.len() && !is_late && queue.output.len() < highwire_io::limit::OUTPUT_BYTES {
                let task = tasks[done];
                done += 1;
                count += 1;
                if count % TASKS_A_LOOK == 0 {
                    let now = (self.cx.stopwatch)();
                    begun = if count == TASKS_A_LOOK { now } else { begun };
                    is_late = now.saturating_sub(begun) > TASKS_NANOSECONDS;
                }
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
                    TaskKind::Spawned { index, generation } => self.cx.context.clone().poll(index, generation),
                    TaskKind::Call { index, generation } => self.calls.woken(index, generation, &mut self.cx),
                }
            }
            let many = tasks.len();
            tasks.drain(..done);
            if many < WAKES_KEPT && tasks.capacity() > WAKES_KEPT {
                tasks.shrink_to(WAKES_KEPT);
            }
            self.tasks = tasks;
            if !self.tasks.is_empty() {
                return true;
            }
        }
        self.cx.context.inbox.has_local()
    }

    /// Calls `act` with a connection, if it still exists, and forgets the connection if it has ended. A panic in `act`
    /// is a bug of the engine; it ends the connection but not the worker.
    #[inline]
    fn with(
        &mut self,
        id: SocketId,
        queue: &mut Queue,
        act: impl FnOnce(&mut Connection, &mut WorkerContext<S>, &mut Head, &mut Queue),
    ) {
        let Some(Some(connection)) = self.connections.get_mut(id.index as usize) else { return };
        if connection.id() != id {
            return;
        }
        let (worker, head) = (&mut self.cx, &mut self.head);
        if let Some(link) = connection.link() {
            worker.rules = link.rules.clone();
        }
        let done = catch_unwind(AssertUnwindSafe(|| {
            act(connection, worker, head, queue);
            if connection.link().is_some() {
                connection.report(worker);
            }
        }));
        worker.lend_server_rules();
        if done.is_err() {
            rate_limited::log!(Panic, error, "the engine panicked; the connection is cut");
            self.cx.observed = None;
            queue.push(Op::Abort { socket: id });
            crate::exchange::orphans().into_iter().for_each(|future| self.cx.cancel(future));
        }
        if done.is_err() || connection.is_gone() {
            self.forget(id);
        }
    }

    #[cold]
    fn forget(&mut self, id: SocketId) {
        let Some(mut connection) = self.connections.get_mut(id.index as usize).and_then(Option::take) else { return };
        // A handler's future may panic when it is dropped. The panic must not stop the worker.
        let released = catch_unwind(AssertUnwindSafe(|| {
            connection.link().into_iter().for_each(|link| link.close());
            connection.release(&mut self.cx);
        }));
        if released.is_err() {
            rate_limited::log!(Panic, error, "a handler panicked when its connection ended");
        }
        self.cx.deadlines.clear(id.index);
        connection.dismiss(&self.cx.shared);
        self.cx.share.give(CONNECTION_BYTES);
        self.count -= 1;
        if self.count == 0 && self.connections.len() > CONNECTIONS_KEPT {
            // Frees a table that a flood of connections has made large.
            self.connections = Vec::new();
        }
        self.remote.connections.fetch_sub(1, Ordering::Relaxed);
        if self.accept_again.is_some() {
            // There is room for a connection again.
            self.accept_again = Some(self.cx.now);
        }
    }

    pub(super) fn connection_came(&mut self, socket: SocketId, peer: Peer, listener: usize, queue: &mut Queue) {
        if !self.cx.share.take(CONNECTION_BYTES) {
            queue.push(Op::Abort { socket });
            self.pause_accept(queue);
            return;
        }
        let (has_tls, proxied) = self
            .listener_setups
            .get(listener)
            .map_or((false, false), |listener_setup| (listener_setup.tls.is_some(), listener_setup.proxied));
        // The driver may have accepted connections before it saw `PauseAccept`.
        let mut admission = self.cx.shared.admit(peer, proxied);
        if admission == Admission::TooManyInAll && self.make_room(MOST_CONNECTIONS, queue) {
            admission = self.cx.shared.admit(peer, proxied);
        }
        if admission != Admission::Taken {
            self.cx.share.give(CONNECTION_BYTES);
            if admission == Admission::TooManyInAll {
                self.pause_accept(queue);
            }
            crate::server::accept::refuse(socket, &self.cx.lines, queue);
            return;
        }
        let mut connection = Connection::new(socket, peer, proxied, &mut self.cx);
        let listener_setup = self.listener_setups.get(listener);
        let secured = !has_tls
            || listener_setup.is_some_and(|listener_setup| listener_setup.secure(&mut connection, &mut self.cx));
        if !secured {
            self.cx.share.give(CONNECTION_BYTES);
            self.cx.shared.dismiss(peer);
            self.cx.deadlines.clear(socket.index);
            return queue.push(Op::Abort { socket });
        }
        self.keep(connection);
        if !self.cx.shared.config().http1 && !has_tls && !proxied {
            self.with(socket, queue, |connection, worker, _, queue| connection.speak_http2(worker, queue));
        }
        if self.cx.draining() {
            self.with(socket, queue, |connection, worker, _, queue| connection.drain(worker, queue));
        }
        if !self.cx.shared.has_room() && !self.make_room(MOST_CONNECTIONS, queue) {
            self.pause_accept(queue);
        }
    }

    /// Closes the connections that are idle for the longest time, because a bound leaves no room for another one. Returns
    /// false if none has been idle for a second. Idle clients must not keep others out.
    #[cold]
    fn make_room(&mut self, bound: &'static str, queue: &mut Queue) -> bool {
        let idle_since =
            |connection: &Connection| connection.idle_since(&self.cx).map(|since| (since, connection.id()));
        let mut oldest: Vec<_> = self.connections.iter().flatten().filter_map(idle_since).collect();
        if oldest.len() > MADE_ROOM {
            oldest.select_nth_unstable_by_key(MADE_ROOM - 1, |(since, _)| *since);
            oldest.truncate(MADE_ROOM);
        }
        let closed = oldest.len();
        for (_, id) in oldest {
            self.with(id, queue, |connection, worker, _, queue| connection.close_idle(worker, queue));
        }
        let connections = self.cx.shared.connection_count();
        let text = match closed {
            0 => "there is no room for another connection, and none is idle; new clients wait until one ends",
            _ => "there is no room for another connection; those that were idle for the longest time are closed",
        };
        // A server that stays full says so from time to time only.
        if closed > 0 || self.cx.now >= self.tells_full {
            self.tells_full = self.cx.now + FULL_AGAIN;
            rate_limited::log!(Full, warn, bound, closed, connections, "{text}");
        }
        closed > 0
    }

    fn keep(&mut self, connection: Connection) {
        let index = connection.id().index as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(connection);
        self.count += 1;
        self.remote.connections.store(self.count as u32, Ordering::Relaxed);
    }

    /// Begins some of the connections that tasks have requested, and cancels the attempts whose tasks have stopped waiting.
    pub(super) fn begin_connects(&mut self, queue: &mut Queue) {
        if !self.cx.context.has_connects() {
            return;
        }
        for _ in 0..CONNECTS_A_TURN {
            let Some(Attempt { address, promise }) = Attempt::take(&self.cx.context) else { break };
            // An attempt has a descriptor, so it counts as a connection.
            let has_memory = self.cx.share.take(CONNECTION_BYTES);
            if !has_memory || !self.cx.shared.admit_opened() {
                if has_memory {
                    self.cx.share.give(CONNECTION_BYTES);
                }
                promise.keep(Err(io::ErrorKind::QuotaExceeded.into()));
                continue;
            }
            self.last_attempt += 1;
            queue.push(Op::Connect { token: self.last_attempt, address });
            self.attempts.insert(self.last_attempt, promise);
        }
        if self.cx.context.take_cancelled() {
            let cancelled = self.attempts.iter().filter(|(_, promise)| promise.is_abandoned());
            for token in cancelled.map(|(&token, _)| token).collect::<Vec<_>>() {
                queue.push(Op::CancelConnect { token });
                self.end_attempt(token);
            }
        }
    }

    /// Ends an attempt that has opened no connection. Returns the promise of its result.
    fn end_attempt(&mut self, token: u64) -> Option<Promise<io::Result<RawStream>>> {
        let promise = self.attempts.remove(&token)?;
        self.cx.share.give(CONNECTION_BYTES);
        self.cx.shared.dismiss_unopened();
        Some(promise)
    }

    fn connection_opened(&mut self, token: u64, socket: SocketId, queue: &mut Queue) {
        let Some(promise) = self.attempts.remove(&token) else { return queue.push(Op::Abort { socket }) };
        if self.attempts.is_empty() {
            self.attempts.shrink_to(CONNECTIONS_KEPT);
        }
        let (connection, stream) = Connection::opened(socket, &mut self.cx);
        self.keep(connection);
        if self.cx.draining() {
            self.with(socket, queue, |connection, worker, _, queue| connection.drain(worker, queue));
        }
        promise.keep(Ok(stream));
        if !self.cx.shared.has_room() {
            self.pause_accept(queue);
        }
    }

    /// Records a listener that the driver has reported. A driver may have listeners that the worker did not open, as
    /// the simulator has.
    fn know(&mut self, listener: ListenerId) {
        if !self.listeners.contains(&listener) && !self.cx.draining() {
            self.listeners.push(listener);
        }
    }

    /// Pauses accepting. New connections wait in the kernel's backlog.
    fn pause_accept(&mut self, queue: &mut Queue) {
        for &listener in &self.listeners {
            queue.push(Op::PauseAccept { listener });
        }
        self.accept_again = Some(self.cx.now + ACCEPT_PAUSE);
    }

    /// Handles the deadlines that have passed. Resumes accepting after a pause if the server has room for another
    /// connection.
    pub(super) fn expire(&mut self, queue: &mut Queue) {
        let mut expired = std::mem::take(&mut self.expired);
        self.cx.deadlines.expired(self.cx.tick, &mut expired);
        for index in expired.drain(..) {
            let Some(Some(connection)) = self.connections.get(index as usize) else { continue };
            let id = connection.id();
            self.with(id, queue, |connection, worker, head, queue| connection.expired(worker, head, queue));
        }
        self.expired = expired;
        self.calls.expire(&mut self.cx);
        if self.accept_again.is_some_and(|at| at <= self.cx.now) {
            if self.cx.shared.has_room() || self.make_room(MOST_CONNECTIONS, queue) {
                self.accept_again = None;
                for &listener in &self.listeners {
                    queue.push(Op::ResumeAccept { listener });
                }
            } else {
                self.accept_again = Some(self.cx.now + ACCEPT_PAUSE);
            }
        }
    }

    /// Records that the worker has stopped, and that only the server's last task uses it now.
    pub(super) fn retire(&mut self) {
        (self.retired, self.drain_until) = (true, None);
    }

    /// Continues a shutdown of the server, if one has begun: drains the connections, stops accepting, and stops the
    /// worker when nothing is left to serve. Cuts the remaining connections and requests after the shutdown deadline or
    /// an abort.
    pub(super) fn see_shutdown(&mut self, queue: &mut Queue) {
        if self.retired || !self.cx.shared.draining.load(Ordering::Acquire) {
            return;
        }
        let shared = self.cx.shared.clone();
        if self.drain_until.is_none() {
            self.cx.drain();
            self.cx.context.stop();
            self.accept_again = None;
            for index in 0..self.connections.len() {
                if let Some(id) = self.connections.get(index).and_then(Option::as_ref).map(Connection::id) {
                    self.with(id, queue, |connection, worker, _, queue| connection.drain(worker, queue));
                }
            }
            self.drain_until = Some(self.cx.now + shared.config().timeouts.shutdown);
        }
        let late = self.drain_until.is_some_and(|until| until <= self.cx.now);
        let ends_now = late || shared.aborting.load(Ordering::Acquire);
        if !std::mem::take(&mut self.came) || ends_now {
            // The worker closes its listeners in the first turn that brings no new connection, so that it still serves
            // the kernel's backlog. After the deadline or an abort it closes them at once.
            for listener in std::mem::take(&mut self.listeners) {
                queue.push(Op::CloseListener { listener });
            }
        }
        if ends_now {
            self.cx.cut();
            if !std::mem::replace(&mut self.has_cut_tasks, true) {
                shared.counters.tasks_cut.fetch_add(self.cx.context.holds() as u64, Ordering::Relaxed);
            }
            for index in 0..self.connections.len() {
                if let Some(id) = self.connections.get(index).and_then(Option::as_ref).map(Connection::id) {
                    self.with(id, queue, |connection, worker, _, queue| {
                        // The requests to other servers belong to requests of clients, which are counted.
                        if connection.cut(worker, queue) && connection.link().is_none() {
                            worker.shared.counters.cut.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            }
            self.calls.cut(&mut self.cx);
        }
        // The worker runs one more turn if operations are queued, so that the driver gets them. The number of acceptors
        // is read before the check for handed connections, because an acceptor may hand one over just before it ends.
        let handed_out = shared.acceptors.load(Ordering::Acquire) == 0 && !self.remote.has_handed();
        self.stopped = self.is_empty() && self.listeners.is_empty() && queue.ops.is_empty() && handed_out;
        if self.is_empty() {
            self.drain_until = Some(self.cx.now);
        }
    }
}

/// Returns true if a system call has failed because there are too many descriptors.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    // EMFILE and ENFILE have these numbers on all systems that we know.
    matches!(error.raw_os_error(), Some(23 | 24))
}

impl<S: Service> Sink for WorkerState<S> {
    fn begin(&mut self, now: Instant) {
        self.cx.begin(now);
        self.cx.context.let_go_of_memory();
        if self.last_tick != self.cx.tick {
            // Renders the date before any answer is sent, because the worker may have slept for long.
            self.last_tick = self.cx.tick;
            self.cx.lines.refresh(self.cx.context.unix_nanoseconds() / NANOSECONDS);
            // These seconds count on the monotonic clock.
            crate::server::listen::look_at_files(&self.listener_setups, &self.cx.shared, now.nanoseconds / NANOSECONDS);
        }
    }

    fn before_wait(&mut self) {
        self.cx.before_wait();
    }

    fn after_wait(&mut self) {
        self.cx.after_wait();
    }

    #[inline]
    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        match completion {
            Completion::Received { socket, bytes } => {
                self.with(socket, queue, |connection, worker, head, queue| {
                    connection.received(bytes, worker, head, queue)
                });
            }
            Completion::ReceivedInto { socket, buffer, count } => {
                self.with(socket, queue, |connection, worker, head, queue| {
                    connection.received_into(buffer, count, worker, head, queue)
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
            Completion::EndArrived { socket } => {
                self.with(socket, queue, |connection, worker, _, _| connection.end_arrived(worker));
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
                rate_limited::log!(Failure, warn, %error, "cannot accept a connection; accepting is paused");
                if is_out_of_descriptors(&error) {
                    self.make_room("the file descriptors of the process (LimitNOFILE) or of the system", queue);
                }
                self.pause_accept(queue);
            }
            Completion::Woken => (self.woken, self.handed) = (true, true),
            Completion::Watched { token, ready } => self.watched.push((token, ready)),
            Completion::Connected { token, socket } => self.connection_opened(token, socket, queue),
            Completion::ConnectFailed { token, error } => {
                if let Some(promise) = self.end_attempt(token) {
                    promise.keep(Err(error));
                }
            }
        }
    }
}
