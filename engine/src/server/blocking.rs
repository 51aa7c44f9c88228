//! The code that accepts connections with blocking calls: the acceptor that hands connections to workers, and the
//! engine `threads`, which runs each connection on a thread of its own.
//!
//! The engine `threads` uses the same connection object as the workers do. The thread of a connection receives bytes,
//! lets the connection act, performs the operations that the connection has queued, and waits for the handler. It
//! exists for comparison, and for handlers that must block.

use crate::Result;
use crate::connection::Connection;
use crate::message::date::CommonLines;
use crate::runtime::connect::attempt::Attempt;
use crate::runtime::context::{Context, TaskKind};
use crate::runtime::deadline;
use crate::runtime::pool::Pool;
use crate::runtime::rate_limited;
use crate::runtime::remote::Remote;
use crate::server::accept::{Admission, TOO_MANY};
use crate::server::shared::Shared;
use crate::service::{MakeService, Service};
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_io::blocking::{self as calls, Got};
use highwire_io::clock::{self, RealClock};
use highwire_io::file::File;
use highwire_io::wake::{Notifier, TaskInbox};
use highwire_io::{Instant, Listener, Op, Queue, Socket, SocketId};
use highwire_proto::Head;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest wait of a thread before it checks whether to stop. An acceptor divides it among its listeners.
const PATIENCE: Duration = Duration::from_millis(50);

/// The pause of an acceptor when accepting has failed or the server has no room for another connection, so that the
/// acceptor does not spin.
const WANT: Duration = Duration::from_millis(50);

/// Accepts connections on every listener in turn until the server shuts down.
fn accept(shared: &Shared, listeners: &[Listener], mut take: impl FnMut(Socket, usize)) {
    let patience = PATIENCE / listeners.len().max(1) as u32;
    while !shared.draining.load(Ordering::Acquire) {
        for (number, listener) in listeners.iter().enumerate() {
            if !shared.has_room() {
                std::thread::sleep(WANT);
                continue;
            }
            // Waits for the first connection only, and then takes the connections that are already waiting.
            let mut patience = patience;
            loop {
                match calls::accept(listener, patience) {
                    Ok(Some(socket)) => take(socket, number),
                    Ok(None) => break,
                    Err(error) => {
                        rate_limited::log!(Failure, warn, %error, "cannot accept a connection; accepting is paused");
                        std::thread::sleep(WANT);
                        break;
                    }
                }
                if !shared.has_room() || shared.draining.load(Ordering::Acquire) {
                    break;
                }
                patience = Duration::ZERO;
            }
        }
    }
}

/// Hands connections to the workers. Workers that are stopping wait until no acceptor is left, so that they still serve
/// the last connections handed over. An acceptor is counted from `new` until it is dropped, even if its thread panics
/// or cannot be started.
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    remotes: Vec<Arc<Remote>>,
}

impl Acceptor {
    pub(crate) fn new(shared: Arc<Shared>, remotes: Vec<Arc<Remote>>) -> Acceptor {
        shared.acceptors.fetch_add(1, Ordering::Release);
        Acceptor { shared, remotes }
    }

    /// Accepts connections and hands each to the worker with the fewest connections, until the server shuts down.
    pub(crate) fn hand_out(&self, listeners: &[Listener]) {
        accept(&self.shared, listeners, |socket, number| {
            if let Some(least) = self.remotes.iter().min_by_key(|remote| remote.connections.load(Ordering::Relaxed)) {
                least.hand(socket, number);
            }
        });
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.acceptors.fetch_sub(1, Ordering::Release);
        self.remotes.iter().for_each(|remote| remote.notifier.notify());
    }
}

/// Serves each connection on a thread of a bounded pool until the server shuts down. Answers 503 if a limit on
/// connections is reached or the pool's queue is full.
pub(crate) fn accept_for_threads(
    make: &Arc<impl MakeService>,
    shared: &Arc<Shared>,
    listeners: &[Listener],
) -> Result<()> {
    let caps = &shared.config().limits;
    let pool = Pool::new("connection", caps.connection_threads, caps.connection_queue);
    accept(shared, listeners, |socket, _| {
        if shared.admit(socket.peer, false) != Admission::Taken {
            return refuse(shared, &socket);
        }
        let (peer, its, make) = (socket.peer, shared.clone(), make.clone());
        if let Err(socket) = pool.offer(socket, Box::new(move |socket| serve(&*make, its, socket))) {
            refuse(shared, &socket);
            shared.dismiss(peer);
        }
    });
    let aborting = || shared.aborting.load(Ordering::Acquire);
    wait_while(shared.config().timeouts.shutdown, || shared.connection_count() > 0 && !aborting());
    shared.aborting.store(true, Ordering::Release);
    // A thread that is not in a handler usually checks this within `PATIENCE`. The server does not wait longer for
    // threads that block in handlers.
    wait_while(PATIENCE * 10, || shared.connection_count() > 0);
    Ok(())
}

/// Waits while a condition holds, but no longer than `most`.
fn wait_while(most: Duration, holds: impl Fn() -> bool) {
    let until = std::time::Instant::now() + most;
    while holds() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refuse(shared: &Shared, socket: &Socket) {
    let mut lines = CommonLines::new(shared.config().server_name.clone());
    lines.refresh(clock::unix_seconds());
    let answer = [TOO_MANY.as_bytes(), lines.server(), lines.date(), b"\r\n"].concat();
    // The refused peer may have closed the connection already.
    let _ = calls::send(socket, &answer, Duration::ZERO);
}

/// Stops counting a connection when it is dropped, even if the connection's thread panics.
struct Dismissal {
    shared: Arc<Shared>,
    peer: highwire_io::Peer,
}

impl Drop for Dismissal {
    fn drop(&mut self) {
        self.shared.dismiss(self.peer);
    }
}

/// Serves one connection from its start to its end, on the current thread.
fn serve(make: &impl MakeService, shared: Arc<Shared>, socket: Socket) {
    let server = shared.clone();
    let _runtime = server.enter_runtime();
    let _dismissal = Dismissal { shared: shared.clone(), peer: socket.peer };
    let inbox = Notifier::new().and_then(|notifier| Ok((TaskInbox::open(notifier.clone())?, notifier)));
    match inbox {
        Ok((inbox, notifier)) => Thread::new(make, shared, socket, inbox, notifier).run(),
        Err(error) => tracing::warn!(%error, "cannot set up the thread of a connection"),
    }
}

const ID: SocketId = SocketId { index: 0, generation: 0 };

struct Thread<S> {
    socket: Socket,
    notifier: Notifier,
    clock: RealClock,
    worker: WorkerContext<S>,
    head: Head,
    queue: Queue,
    connection: Connection,
    paused: bool,
    ended: bool,
    tasks: Vec<u64>,
}

impl<S: Service> Thread<S> {
    fn new(
        make: &impl MakeService<Service = S>,
        shared: Arc<Shared>,
        socket: Socket,
        inbox: TaskInbox,
        notifier: Notifier,
    ) -> Thread<S> {
        let context = Context::new(inbox, shared.clone(), false);
        let _entered = context.enter();
        let clock = RealClock::start();
        let mut worker = WorkerContext::new(make, shared, context.clone());
        // No other connection waits for this thread, so the work needs no limit.
        worker.lift_allowance();
        worker.measure_by(clock::stopwatch);
        worker.begin(clock.now());
        let connection = Connection::new(ID, socket.peer, false, &mut worker);
        let (head, queue) = (Head::default(), Queue::default());
        Thread {
            socket,
            notifier,
            clock,
            worker,
            head,
            queue,
            connection,
            paused: false,
            ended: false,
            tasks: Vec::new(),
        }
    }

    fn run(mut self) {
        let _entered = self.worker.context.clone().enter();
        let mut buffer = vec![0; highwire_io::limit::RECEIVE_BYTES / 4];
        while !self.connection.is_gone() {
            self.worker.begin_turn();
            self.worker.begin(self.clock.now());
            let unix = clock::unix_nanoseconds();
            self.worker.context.unix_offset.set(unix.saturating_sub(self.worker.now().nanoseconds));
            self.worker.lines.refresh(unix / 1_000_000_000);
            self.run_tasks();
            self.work();
            if self.connection.is_gone() {
                break;
            }
            self.receive(&mut buffer);
            self.work();
            self.expire();
            self.work();
        }
        self.worker.context.clear();
        self.worker.end_service();
        rate_limited::forget_clock();
    }

    fn run_tasks(&mut self) {
        for _ in 0..self.worker.unfinished.len() {
            self.worker.unfinished.pop_front();
            self.connection.go_on(&mut self.worker, &mut self.head, &mut self.queue);
        }
        self.notifier.acknowledge();
        self.worker.context.fire_timers();
        self.worker.context.inbox.take_remote(&mut self.tasks);
        self.worker.context.inbox.take_local(&mut self.tasks);
        // A thread serves one connection, and has no driver that could open another.
        while let Some(attempt) = Attempt::take(&self.worker.context) {
            attempt.promise.keep(Err(std::io::ErrorKind::Unsupported.into()));
        }
        self.worker.context.take_cancelled();
        for task in std::mem::take(&mut self.tasks) {
            match TaskKind::of(task) {
                TaskKind::Connection { .. } => self.connection.woken(&mut self.worker, &mut self.head, &mut self.queue),
                TaskKind::Stream { place, .. } => {
                    self.connection.woken_stream(place as usize, &mut self.worker, &mut self.head, &mut self.queue);
                }
                TaskKind::Spawned { index, generation } => self.worker.context.clone().poll(index, generation),
                // The engine `threads` serves no requests of this process.
                TaskKind::Call { .. } => {}
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        let context = &self.worker.context;
        let has_work = context.inbox.has_local() || self.worker.has_unfinished();
        if has_work || context.awaits_turn() || context.has_connects() {
            return Some(Duration::ZERO);
        }
        let due = self.worker.deadlines.next().into_iter().chain(self.worker.context.next_timer()).min();
        // The wait is bounded so that the thread notices the end of the server. A wake from another thread ends the
        // wait at once.
        let due = due.map(|due| due.since(self.clock.now()));
        Some(due.map_or(PATIENCE, |due| due.min(PATIENCE)))
    }

    fn receive(&mut self, buffer: &mut [u8]) {
        let patience = self.patience();
        let got = if self.paused || self.ended {
            calls::wait(&self.notifier, patience);
            Ok(Got::Nothing)
        } else {
            calls::receive(&self.socket, &self.notifier, buffer, patience)
        };
        self.worker.begin(self.clock.now());
        match got {
            Ok(Got::Bytes(count)) => {
                self.connection.received(&buffer[..count], &mut self.worker, &mut self.head, &mut self.queue);
            }
            Ok(Got::End) => {
                self.ended = true;
                self.connection.peer_ended(&mut self.worker, &mut self.head, &mut self.queue);
            }
            Ok(Got::Nothing) => {}
            Err(_) => self.connection.failed(&mut self.worker, &mut self.queue),
        }
    }

    fn expire(&mut self) {
        let mut expired = Vec::new();
        self.worker.deadlines.expired(deadline::tick(self.worker.now()), &mut expired);
        if !expired.is_empty() {
            self.connection.expired(&mut self.worker, &mut self.head, &mut self.queue);
        }
        let shared = self.worker.shared.clone();
        if shared.aborting.load(Ordering::Acquire) {
            self.worker.cut();
            if self.connection.cut(&mut self.worker, &mut self.queue) {
                shared.counters.cut.fetch_add(1, Ordering::Relaxed);
            }
        } else if shared.draining.load(Ordering::Acquire) && !self.worker.draining() {
            self.worker.drain();
            self.worker.context.stop();
            self.connection.drain(&mut self.worker, &mut self.queue);
        }
    }

    /// Performs the operations that the connection has queued.
    fn work(&mut self) {
        while !self.queue.ops.is_empty() {
            let ops = std::mem::take(&mut self.queue.ops);
            let output = std::mem::take(&mut self.queue.output);
            for op in ops {
                let failed = match op {
                    Op::Send { start, end, .. } => self.send(&output[start as usize..end as usize]).is_err(),
                    Op::SendBytes { bytes, .. } => self.send_shared(&bytes).is_err(),
                    Op::SendFile { file, offset, length, .. } => self.send_file(&*file, offset, length).is_err(),
                    Op::Shutdown { .. } => {
                        calls::shutdown(&self.socket);
                        false
                    }
                    Op::PauseRecv { .. } => {
                        self.paused = true;
                        false
                    }
                    Op::ResumeRecv { .. } => {
                        self.paused = false;
                        false
                    }
                    Op::ReceiveInto { buffer, .. } => {
                        // This thread's own buffer serves all receives.
                        self.connection.take_back(buffer);
                        false
                    }
                    Op::Abort { .. } => {
                        calls::reset_on_close(&self.socket);
                        false
                    }
                    // This thread waits in its sends, and learns of the peer's end when they have ended. After `Op::Close` the connection is gone, and the socket closes when `run` returns.
                    _ => false,
                };
                if failed {
                    self.connection.failed(&mut self.worker, &mut self.queue);
                    self.queue.ops.clear();
                    return;
                }
            }
        }
    }

    fn send_shared(&mut self, bytes: &Bytes) -> std::io::Result<()> {
        self.send(bytes)?;
        self.connection.drained(&mut self.worker, &mut self.head, &mut self.queue);
        Ok(())
    }

    fn send_file(&mut self, file: &dyn File, offset: u64, length: u64) -> std::io::Result<()> {
        self.send_all(length, |sent| {
            let most = usize::try_from(length - sent).unwrap_or(usize::MAX).min(highwire_io::limit::SEND_FILE_BYTES);
            calls::send_file(&self.socket, file, offset + sent, most, PATIENCE)
        })?;
        self.connection.drained(&mut self.worker, &mut self.head, &mut self.queue);
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.send_all(bytes.len() as u64, |sent| calls::send(&self.socket, &bytes[sent as usize..], PATIENCE))
    }

    /// Sends `length` bytes. Fails if the peer takes none within the write timeout, or if the server is aborted. `send`
    /// gets the number of bytes sent so far.
    fn send_all(&self, length: u64, send: impl Fn(u64) -> std::io::Result<usize>) -> std::io::Result<()> {
        let patience = self.worker.shared.config().timeouts.write;
        let patience = if patience.is_zero() { Duration::from_secs(u64::from(u32::MAX)) } else { patience };
        let mut since: Instant = self.clock.now();
        let mut done = 0;
        while done < length {
            if self.worker.shared.aborting.load(Ordering::Acquire) {
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
            match send(done)? {
                0 if self.clock.now().since(since) >= patience => return Err(std::io::ErrorKind::TimedOut.into()),
                0 => {}
                sent => {
                    done += sent as u64;
                    since = self.clock.now();
                }
            }
        }
        Ok(())
    }
}
