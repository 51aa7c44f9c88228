//! A worker: the driver, connections, timers and tasks of one thread, and the loop over them.
//!
//! In each turn of the loop, the worker takes these steps:
//!
//! 1. continue some of the waiting TLS handshakes and of the connections that an earlier turn left unfinished, then poll
//!    woken tasks: handlers, bodies, spawned tasks;
//! 2. give the driver the queued operations, and wait for completions, at most until the next deadline;
//! 3. handle each completion;
//! 4. take the connections and requests that other threads have left, and then handle the deadlines and timers that have
//!    passed, and a shutdown of the server.

#[cfg_attr(not(feature = "call"), path = "no_calls.rs")]
mod calls;
pub(crate) mod context;
mod state;
#[cfg_attr(not(feature = "tokio"), path = "no_tokio.rs")]
pub(crate) mod tokio;

use self::context::WorkerContext;
use self::state::WorkerState;
use self::tokio::Tokio;
use crate::Result;
use crate::body::BoxError;
use crate::runtime::context::{Context, now};
use crate::runtime::rate_limited;
use crate::runtime::remote::Remote;
use crate::runtime::time::{sleep, timeout};
use crate::server::accept::CONNECTION_BYTES;
use crate::server::listen::ListenerSetup;
use crate::server::shared::Shared;
use crate::server::stats::Stats;
use crate::service::{Hook, MakeService, Service};
use crate::worker::calls::Calls;
#[cfg(feature = "tokio")]
use highwire_io::wake;
use highwire_io::wake::TaskInbox;
use highwire_io::{Driver, Instant, Interest, Listener, Op, Queue, Sink, Waitable};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{self, Poll};
use std::time::Duration;

/// An embedded worker returns to the host's loop after at most this many turns.
const READY_TURNS: usize = 4;

const NANOSECONDS: u64 = 1_000_000_000;

/// Returns the number of nanoseconds to add to a driver's clock to get the time since 1970.
fn unix_offset<D: Driver>(driver: &D) -> u64 {
    driver.unix_nanoseconds().saturating_sub(driver.now().nanoseconds)
}

/// A worker with a driver of any kind. [`Server`](crate::Server) creates workers, and usually runs them on threads of
/// its own. A host with a loop of its own calls [`turn_ready`](Self::turn_ready) instead, and the simulator calls
/// [`turn`](Self::turn).
pub struct Worker<D: Driver, S: Service> {
    driver: D,
    queue: Queue,
    state: WorkerState<S>,
    /// True during a turn of the driver, and after one that has failed or panicked. No other turn may begin while it is
    /// true.
    failed: bool,
    tokio: Tokio,
}

/// What a worker does after a turn.
pub(crate) enum Turned {
    Stopped,
    /// It has work for another turn at once.
    Busy,
    /// It waits.
    Idle,
}

impl<D: Driver, S: Service> std::fmt::Debug for Worker<D, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("driver", &self.driver.name())
            .field("connections", &self.state.count)
            .finish_non_exhaustive()
    }
}

impl<D: Driver, S: Service> Worker<D, S> {
    /// Creates a worker without listeners.
    pub(crate) fn new(
        make: &impl MakeService<Service = S>,
        shared: Arc<Shared>,
        driver: D,
        tokio: Tokio,
    ) -> Result<Worker<D, S>> {
        let own = tokio.clone();
        let _runtime = own.enter();
        let notifier = driver.notifier();
        let inbox = TaskInbox::open(notifier.clone())?;
        let context = Context::new(inbox, shared.clone(), true);
        context.unix_offset.set(unix_offset(&driver));
        let mut cx = {
            let _entered = context.enter();
            WorkerContext::new(make, shared, context.clone())
        };
        cx.measure_by(driver.stopwatch());
        cx.begin(driver.now());
        cx.lines.refresh(driver.unix_nanoseconds() / NANOSECONDS);
        let remote = Remote::new(notifier, cx.beat.clone());
        let calls = Calls::new(&remote);
        let state = WorkerState {
            cx,
            connections: Vec::new(),
            count: 0,
            calls,
            attempts: HashMap::new(),
            last_attempt: 0,
            head: Default::default(),
            listeners: Vec::new(),
            listener_setups: Vec::new(),
            accept_again: None,
            tells_full: Instant::default(),
            woken: true,
            handed: false,
            remote: Arc::new(remote),
            tasks: Vec::new(),
            expired: Vec::new(),
            last_tick: 0,
            drain_until: None,
            came: false,
            stopped: false,
            has_cut_tasks: false,
            retired: false,
            watched: Vec::new(),
        };
        Ok(Worker { driver, queue: Queue::new(), state, failed: false, tokio })
    }

    /// Accepts connections from `listeners`. Called once.
    pub(crate) fn listen(&mut self, listeners: Vec<Listener>, listener_setups: Vec<ListenerSetup>) -> Result<()> {
        let state = &mut self.state;
        for listener in listeners {
            state.listeners.push(self.driver.listen(listener)?);
        }
        if !listener_setups.iter().all(ListenerSetup::is_plain) {
            state.listener_setups = listener_setups;
        }
        if !state.listeners.is_empty() {
            state.cx.shared.serves.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn remote(&self) -> Arc<Remote> {
        self.state.remote.clone()
    }

    /// Returns the driver.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.state.count
    }

    /// Returns the number of spawned tasks that have not finished.
    pub fn tasks(&self) -> usize {
        self.state.cx.context.living_tasks()
    }

    /// Returns the number of bytes that this worker has charged to the memory budget for its peers.
    pub fn account(&self) -> usize {
        self.state.cx.share.charged()
    }

    /// Stops accepting, and lets pending requests finish until the shutdown deadline. The host must run turns until one
    /// returns true.
    #[doc(alias = "stop")]
    pub fn shutdown(&self) {
        self.state.cx.shared.draining.store(true, Ordering::Release);
        self.state.remote.notifier.notify();
    }

    /// Stops as [`shutdown`](Self::shutdown) does, but cuts the pending requests in the next turn.
    pub fn abort(&self) {
        self.state.cx.shared.aborting.store(true, Ordering::Release);
        self.shutdown();
    }

    /// Returns the counts of the whole server since its start.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.state.cx.shared)
    }

    /// Returns true if the blocking pool works for this server. A test in virtual time lets no time pass meanwhile but that
    /// of the real clock.
    pub fn is_blocking(&self) -> bool {
        self.state.cx.shared.is_blocking()
    }

    /// Returns the earliest moment for which a handler or a task has set a timer, or `None` if there is no timer.
    pub fn next_timer(&self) -> Option<Instant> {
        self.state.cx.context.next_timer()
    }

    /// Reports once, by [`take_watched`](Self::take_watched), that a descriptor is ready which belongs to the host, so that the
    /// worker's turns are the only wait of a host's loop. `token` is a number that the host chooses; a watch in progress with the
    /// same number is replaced. A descriptor for which the system cannot wait, such as a regular file, counts as ready. The
    /// host must end the watch before it closes the descriptor, and a descriptor may have one watch at a time. The next turn
    /// begins and ends watches, so a host that waits on [`descriptor`](Self::descriptor) calls
    /// [`turn_ready`](Self::turn_ready) before it waits.
    pub fn watch(&mut self, token: u64, descriptor: Waitable, interest: Interest) {
        self.state.watched.retain(|(watched, _)| *watched != token);
        self.queue.push(Op::Watch { token, descriptor, interest });
    }

    /// Ends a watch, so that it is not reported.
    pub fn unwatch(&mut self, token: u64) {
        self.state.watched.retain(|(watched, _)| *watched != token);
        self.queue.push(Op::Unwatch { token });
    }

    /// Takes the reports of the watches that have ended because their descriptors are ready: the token of each, and its events.
    pub fn take_watched(&mut self) -> Vec<(u64, Interest)> {
        std::mem::take(&mut self.state.watched)
    }

    /// Runs turns until the worker has stopped.
    ///
    /// # Errors
    /// Returns an error if the driver fails, or if an earlier turn has failed.
    pub fn run(&mut self) -> Result<()> {
        self.tokio.clone().run(self)
    }

    /// Runs turns until the worker has stopped, then the hook, and drops the worker.
    pub(crate) fn run_to_the_end(mut self, on_stop: Option<Hook>) -> Result<()> {
        let ran = self.run();
        self.state.retire();
        if let (Ok(()), Some(hook)) = (&ran, on_stop)
            && let Err(error) = self.block_on(at_stop(hook, self.state.cx.shared.clone()))
        {
            tracing::error!(%error, "the worker failed while the server stopped");
        }
        let tokio = self.tokio.clone();
        drop(self);
        tokio.finish();
        ran
    }

    /// Runs turns that wait until the worker has stopped.
    pub(crate) fn run_alone(&mut self) -> Result<()> {
        while !self.step(None)? {
            self.forget_root();
        }
        Ok(())
    }

    /// Makes this the worker of the current thread until the guard is dropped, also between its turns.
    #[cfg(feature = "tokio")]
    pub(crate) fn enter(&self) -> crate::runtime::context::Entered {
        self.state.cx.context.enter()
    }

    /// Runs turns until `future` is ready, and returns its output. Connections and spawned tasks continue in a later call.
    /// The worker needs no listener.
    ///
    /// # Errors
    /// Returns an error if the driver fails, or if an earlier turn has failed.
    pub fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output> {
        self.tokio.clone().block_on(self, future)
    }

    /// Does what [`block_on`](Self::block_on) does, in turns that wait. The root's task must have been woken.
    pub(crate) fn block_on_alone<F: Future>(&mut self, mut future: Pin<&mut F>) -> Result<F::Output> {
        // The connections may have been left alone for long, so their events come first.
        self.step(Some(Instant::default()))?;
        loop {
            if let Some(output) = self.poll_root(future.as_mut()) {
                return Ok(output);
            }
            self.step(None)?;
        }
    }

    /// Forgets a late wake of the future of an earlier [`block_on`](Self::block_on), which would keep the worker busy.
    pub(crate) fn forget_root(&self) {
        self.state.cx.context.set_root_woken(false);
    }

    /// Called before the thread waits in the loop of tokio, whose other tasks run meanwhile. `waker` ends the wait.
    #[cfg(feature = "tokio")]
    pub(crate) fn begin_wait(&mut self, waker: &task::Waker) {
        self.state.cx.context.set_waiting(true);
        self.state.cx.before_wait();
        wake::begin_wait(waker);
    }

    /// Called when the thread no longer waits there.
    #[cfg(feature = "tokio")]
    pub(crate) fn leave_wait(&mut self) {
        wake::leave_wait();
        if self.state.cx.context.set_waiting(false) {
            self.state.cx.after_wait();
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn host_has_work(&self) -> bool {
        self.state.cx.host_has_work()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn is_root_woken(&self) -> bool {
        self.state.cx.context.is_root_woken()
    }

    /// Lets the future of [`block_on`](Self::block_on) be polled.
    pub(crate) fn wake_root(&self) {
        self.state.cx.context.set_root_woken(true);
    }

    /// Polls the future of [`block_on`](Self::block_on), if its task was woken.
    pub(crate) fn poll_root<F: Future>(&mut self, future: Pin<&mut F>) -> Option<F::Output> {
        let context = self.state.cx.context.clone();
        if !context.is_root_woken() {
            return None;
        }
        context.set_root_woken(false);
        let (_entered, waker) = (context.enter(), context.root_waker());
        match future.poll(&mut task::Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Returns a descriptor that becomes readable when the worker has something to do: I/O, a wake, a task, a deadline.
    /// The host waits for it in its own loop, without a timeout, and then calls [`turn_ready`](Self::turn_ready).
    ///
    /// # Errors
    /// Returns an error if the kernel cannot create the descriptor, if the driver is the simulator, which has none, or if the
    /// system is not Linux.
    pub fn descriptor(&mut self) -> Result<Waitable> {
        Ok(self.driver.descriptor()?)
    }

    /// Runs a few turns without waiting. Returns true if the worker has stopped. The host must also call it once before
    /// its first wait.
    ///
    /// # Errors
    /// Returns an error if the driver fails, or if an earlier turn has failed.
    pub fn turn_ready(&mut self) -> Result<bool> {
        let tokio = self.tokio.clone();
        let _runtime = tokio.enter();
        self.forget_root();
        for _ in 0..READY_TURNS {
            match self.turn_once()? {
                Turned::Stopped => return Ok(true),
                Turned::Busy => {}
                Turned::Idle => break,
            }
        }
        self.arm()?;
        Ok(false)
    }

    /// Runs one turn without waiting.
    pub(crate) fn turn_once(&mut self) -> Result<Turned> {
        if self.step(Some(Instant::default()))? {
            return Ok(Turned::Stopped);
        }
        Ok(if self.is_busy() { Turned::Busy } else { Turned::Idle })
    }

    /// Returns true if the next turn has something to do. If the completions of a turn have queued operations, the next turn
    /// must start them.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.ops.is_empty() || self.state.has_work()
    }

    /// Makes [`descriptor`](Self::descriptor) readable when the worker has something to do.
    pub(crate) fn arm(&mut self) -> Result<()> {
        let until = if self.is_busy() { Some(Instant::default()) } else { self.state.next_moment() };
        Ok(self.driver.arm(until)?)
    }

    /// Runs one turn. The turn waits for completions at most until the next deadline or timer, or until `limit` if that
    /// is earlier. Returns true if the worker has stopped.
    ///
    /// # Errors
    /// Returns an error if the driver fails, or if an earlier turn has failed.
    pub fn turn(&mut self, limit: Option<Instant>) -> Result<bool> {
        let tokio = self.tokio.clone();
        let _runtime = tokio.enter();
        self.step(limit)
    }

    /// Runs one turn. The caller must have entered the tokio runtime, and may stay in it for many turns.
    fn step(&mut self, limit: Option<Instant>) -> Result<bool> {
        if std::mem::replace(&mut self.failed, true) {
            return Err(std::io::Error::other("this worker cannot run again, because an earlier turn failed").into());
        }
        let _entered = self.state.cx.context.clone().enter();
        self.state.cx.begin_turn();
        self.state.shake_hands(&mut self.queue);
        self.state.go_on(&mut self.queue);
        let mut more = self.state.run_tasks(&mut self.queue) || self.state.cx.has_unfinished();
        self.state.begin_connects(&mut self.queue);
        // A refused attempt has woken its task.
        let context = &self.state.cx.context;
        more |= context.inbox.has_local() || context.awaits_turn() || context.is_root_woken() || context.has_connects();
        // The tasks may have finished the last request that a shutdown waited for. No completion would then end the
        // driver's wait.
        more |= self.state.is_deserted() || self.state.cx.host_has_work();
        let until =
            if more { Some(Instant::default()) } else { self.state.next_moment().into_iter().chain(limit).min() };
        // After an error the kernel may still read the driver's buffers, so no other turn may follow.
        self.driver.turn(until, &mut self.queue, &mut self.state)?;
        self.failed = false;
        self.state.begin(self.driver.now());
        self.state.cx.context.unix_offset.set(unix_offset(&self.driver));
        self.adopt();
        self.state.expire(&mut self.queue);
        self.state.cx.context.fire_timers();
        self.state.see_shutdown(&mut self.queue);
        Ok(self.state.stopped)
    }

    /// Takes the connections that an acceptor has handed over, and the requests of this process.
    fn adopt(&mut self) {
        if !std::mem::take(&mut self.state.handed) {
            return;
        }
        for (socket, listener) in self.state.remote.take_handed() {
            let peer = socket.peer;
            match self.driver.adopt(socket) {
                Ok(socket) => self.state.connection_came(socket, peer, listener, &mut self.queue),
                Err(error) => rate_limited::log!(Failure, warn, %error, "cannot take over an accepted connection"),
            }
        }
        self.state.calls.begin(&mut self.state.cx);
    }
}

/// The time between two looks at the server's state while a hook runs.
const GLANCE: Duration = Duration::from_millis(20);

/// Runs the hook for the server's start, and drops it if the server is stopped meanwhile. Returns `None` in that case.
pub(crate) async fn at_start(mut hook: Hook, shared: Arc<Shared>) -> Option<std::result::Result<(), BoxError>> {
    loop {
        if let Ok(done) = timeout(GLANCE, &mut hook).await {
            return Some(done);
        }
        if shared.draining.load(Ordering::Acquire) {
            tracing::warn!("the server was stopped while the function for its start ran, which is dropped");
            return None;
        }
    }
}

/// Waits until the other workers have ended, for at most the time of a shutdown and some more, and then for the hook, for at most
/// the time of a shutdown. An abort ends both waits.
async fn at_stop(mut hook: Hook, shared: Arc<Shared>) {
    let most = shared.config().timeouts.shutdown.max(Duration::from_secs(1));
    let aborts = || shared.aborting.load(Ordering::Acquire);
    let begun = now();
    while shared.running.load(Ordering::Acquire) > 1 && !aborts() && now().since(begun) < 2 * most {
        sleep(GLANCE).await;
    }
    let begun = now();
    let is_late = || now().since(begun) >= most || (aborts() && now().since(begun) >= Duration::from_secs(1));
    while !is_late() {
        match timeout(GLANCE, &mut hook).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => return tracing::error!(%error, "the function for the server's stop failed"),
            Err(_) => {}
        }
    }
    tracing::error!(?most, "the function for the server's stop took too long and is dropped");
}

impl<D: Driver, S: Service> Drop for Worker<D, S> {
    fn drop(&mut self) {
        let tokio = self.tokio.clone();
        let _runtime = tokio.enter();
        let _entered = self.state.cx.context.clone().enter();
        self.state.cx.cut();
        for connection in self.state.connections.iter_mut().filter_map(Option::as_mut) {
            connection.cut(&mut self.state.cx, &mut self.queue);
            connection.dismiss(&self.state.cx.shared);
            self.state.cx.share.give(CONNECTION_BYTES);
        }
        self.state.connections.clear();
        self.state.calls.close(&mut self.state.cx);
        // The futures need not be cancelled, because their routes' pools are dropped with this worker.
        drop(crate::exchange::orphans());
        self.state.cx.context.clear();
        self.state.cx.end_service();
        rate_limited::forget_clock();
    }
}

#[cfg(test)]
mod tests {
    use crate::message::request::Caller;
    use crate::{Begin, Outcome, Response, Service};
    use highwire_io::sim::{Faults, Network, Simulated};
    use highwire_io::{Address, Listener, blocking};
    use highwire_proto::Head;
    use http::StatusCode;
    use std::time::Duration;

    /// Answers every request with 404.
    struct Nobody;

    impl Service for Nobody {
        fn route(&mut self, _: &Head, _: &[u8], _: Caller<'_>) -> Result<u32, Box<Response>> {
            Err(Box::new(Response::new(StatusCode::NOT_FOUND)))
        }
        fn begin(&mut self, _: Begin<'_>, _: &mut Option<Response>) -> Outcome {
            Outcome::Ready
        }
    }

    #[test]
    fn a_connection_that_is_handed_over_behind_the_last_wait_keeps_its_worker() {
        let address = Address::parse("127.0.0.1:0").expect("the address is valid");
        let listener = Listener::bind(&address, &highwire_io::Options::default()).expect("cannot listen");
        let _client = std::net::TcpStream::connect(listener.address().to_string()).expect("cannot connect");
        let socket = blocking::accept(&listener, Duration::from_secs(20))
            .expect("cannot accept")
            .expect("no connection within 20 seconds");
        let driver = Simulated::new(Network::new(1, Faults::default())).expect("cannot create the driver");
        let server = crate::Server::new(|_: &_| Nobody, crate::Config::default()).expect("cannot create the server");
        let mut worker = server.into_worker(driver).expect("cannot create the worker");
        worker.shutdown();
        worker.state.remote.hand(socket, 0);
        worker.state.see_shutdown(&mut worker.queue);
        assert!(!worker.state.stopped, "the worker stopped and lost the connection");
    }
}
