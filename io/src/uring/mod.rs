//! The io_uring driver, which usually makes one system call per turn for any number of connections.
//!
//! docs/performance.md explains the design. In short:
//!
//! 1. Multishot accept and multishot receive are armed once, and again only if the kernel ends them or the loop has
//!    paused them. The kernel posts a completion for each connection and each arrival of bytes, and picks receive
//!    buffers from a ring that is small enough to stay in the cache.
//! 2. Sends from the arena have the flags `MSG_DONTWAIT`, `MSG_WAITALL` and `CQE_SKIP_SUCCESS`. They copy their bytes
//!    while they are submitted. Only a short or refused send posts a completion, and posts it immediately. Therefore
//!    the arena is free when the submitting call returns.
//! 3. The rest of a short send is copied and sent asynchronously, with a completion for each part.
//! 4. The sends of one socket stay in order: a send or a close after an arena send in the same turn waits until the
//!    result of the arena send is known.
//!
//! A ring is created disabled and belongs to the thread of the first turn, so another thread may create the driver.

mod arrive;
mod connection;
mod pace;
mod provided;
mod receive;
mod ring;
mod send;
mod watch;

use crate::clock::{self, RealClock};
use crate::connecting::Connecting;
use crate::lent_buffer::LentBuffer;
use crate::outgoing::FileRange;
use crate::slots::Slots;
use crate::socket::{self, Socket};
use crate::sys::Waitable;
use crate::sys::embed::Nest;
use crate::wake::Notifier;
use crate::watches::{Watched, Watches};
use crate::{Completion, Driver, Instant, Listener, ListenerId, Op, Peer, Queue, Sink, SocketId, limit, random};
use connection::{Closing, Connection, Receive};
use io_uring::{cqueue, opcode, squeue, types};
use pace::Pace;
use provided::BufferRing;
use ring::Ring;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The kind of a completion: the top 8 bits of its user data. The other bits contain a socket's generation (24 bits)
/// and index (32 bits), or a number.
mod kind {
    pub(super) const RECEIVE: u64 = 1;
    pub(super) const ARENA_SEND: u64 = 2;
    pub(super) const SEND: u64 = 3;
    pub(super) const ACCEPT: u64 = 4;
    pub(super) const CONNECT: u64 = 5;
    pub(super) const NOTIFIER: u64 = 6;
    pub(super) const IGNORED: u64 = 7;
    pub(super) const WRITABLE: u64 = 8;
    pub(super) const RECEIVE_INTO: u64 = 9;
    pub(super) const WATCHED: u64 = 10;
    pub(super) const ACCEPTABLE: u64 = 11;
    pub(super) const END: u64 = 12;
}

fn data(kind: u64, socket: SocketId) -> u64 {
    kind << 56 | u64::from(socket.generation) << 32 | u64::from(socket.index)
}

fn numbered(kind: u64, number: usize) -> u64 {
    kind << 56 | number as u64
}

fn socket_of(data: u64) -> SocketId {
    SocketId { index: data as u32, generation: (data >> 32) as u32 & 0xff_ffff }
}

fn number_of(data: u64) -> usize {
    data as u32 as usize
}

/// A completion, copied out of the ring.
#[derive(Clone, Copy, Debug)]
struct Entry {
    data: u64,
    result: i32,
    flags: u32,
}

#[derive(Debug)]
struct Accepting {
    listener: Listener,
    armed: bool,
    paused: bool,
    /// For a shared listener: the most connections that were accepted at once, and the turn.
    burst: usize,
    accepted_in: u32,
}

/// The io_uring driver.
#[derive(Debug)]
pub struct Uring {
    ring: Ring,
    buffers: BufferRing,
    connections: Slots<Connection>,
    connecting: Connecting<(OwnedFd, Peer)>,
    listeners: Vec<Option<Accepting>>,
    /// The arena sends of this round: the socket of each, and the range of its bytes (start and end).
    batch: Vec<(SocketId, u32, u32)>,
    round: u32,
    /// The number of turns so far.
    turns: u32,
    /// Sockets with operations that wait for an arena send of this round.
    deferred: Vec<SocketId>,
    /// The buffers of receives in flight that were cancelled, with the receives' user data.
    cancelled: Vec<(u64, Box<LentBuffer>)>,
    /// Sockets whose receive found no buffer.
    starved: Vec<SocketId>,
    /// The sockets that have received all their data in this turn and may have ended without a completion.
    quiet: Vec<SocketId>,
    /// Sockets whose receive ended for another reason, mostly because the loop has paused and resumed it. The next turn
    /// receives from them after the starved ones. Otherwise a few sockets that are paused and resumed in each turn could
    /// take all buffers.
    interrupted: Vec<SocketId>,
    entries: Vec<Entry>,
    broken: Vec<(SocketId, io::Error)>,
    /// Connection attempts to report as failed, because they failed immediately.
    refused: Vec<(u64, io::Error)>,
    blocked: Vec<SocketId>,
    drained: Vec<SocketId>,
    lingering: Vec<(SocketId, Instant)>,
    watches: Watches,
    nest: Option<Nest>,
    /// The eventfd that the ring signals on completions, if a foreign loop waits for this driver.
    signal: Option<Notifier>,
    /// True if the ring signals it: while the loop waits, and not in a turn.
    signals: bool,
    notifier: Notifier,
    clock: RealClock,
    now: Instant,
    /// The arena of a failed turn. It is kept, because entries that the kernel has not taken may still point to it.
    failed: Option<Vec<u8>>,
}

impl Uring {
    /// Creates a driver without listeners and connections.
    ///
    /// # Errors
    /// Returns an error with the reason if the system has no io_uring of Linux 6.1 or later, forbids it (seccomp,
    /// `io_uring_disabled`), or allows too little locked memory. Also returns other errors of the system, for example
    /// for lack of descriptors.
    pub fn new() -> io::Result<Uring> {
        let ring = Ring::new()?;
        let buffers = BufferRing::new(&ring)?;
        let clock = RealClock::start();
        Ok(Uring {
            ring,
            buffers,
            connections: Slots::new(),
            connecting: Connecting::new(),
            listeners: Vec::new(),
            batch: Vec::new(),
            round: 1,
            turns: 0,
            deferred: Vec::new(),
            cancelled: Vec::new(),
            starved: Vec::new(),
            quiet: Vec::new(),
            interrupted: Vec::new(),
            entries: Vec::with_capacity(256),
            broken: Vec::new(),
            refused: Vec::new(),
            blocked: Vec::new(),
            drained: Vec::new(),
            lingering: Vec::new(),
            watches: Watches::default(),
            nest: None,
            signal: None,
            signals: false,
            notifier: Notifier::new()?,
            clock,
            now: clock.now(),
            failed: None,
        })
    }

    /// Queues an entry for the next `enter`. If the queue is full, submits the queue first.
    ///
    /// Callers must ensure that the memory that the entry points to outlives the operation. Received bytes go to the
    /// buffer ring or to the box of a lent buffer, which stays until the receive has completed. Arena sends finish while they
    /// are submitted, and asynchronous sends point to shared bytes that `outgoing` holds.
    fn submit(&mut self, entry: squeue::Entry) {
        self.ring.push(&entry);
    }

    fn arm(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.lent_buffer.is_some() || connection.fills_lent_buffer() {
            return self.fill_lent_buffer(id);
        }
        if connection.is_armed()
            || connection.paused
            || connection.ended
            || connection.is_closed()
            || connection.is_reset
        {
            return;
        }
        connection.receive = Receive::Armed;
        connection.newly_armed = true;
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        self.submit(opcode::RecvMulti::new(descriptor, provided::GROUP).build().user_data(data(kind::RECEIVE, id)));
    }

    fn cancel(&mut self, target: u64) {
        let entry = opcode::AsyncCancel::new(target).build();
        self.submit(entry.user_data(numbered(kind::IGNORED, 0)).flags(squeue::Flags::SKIP_SUCCESS));
    }

    fn insert(&mut self, descriptor: OwnedFd, peer: Peer) -> SocketId {
        let id = self.connections.insert(Connection::new(descriptor, peer));
        self.arm(id);
        id
    }

    /// Starts every queued operation. Arena sends point to `queue.output` until they are submitted.
    fn start(&mut self, queue: &mut Queue) {
        queue.note_use();
        let mut ops = queue.ops.drain(..).peekable();
        while let Some(op) = ops.next() {
            match op {
                Op::Send { socket, start, end, more: true } if matches!(ops.peek(), Some(Op::SendFile { socket: next, .. }) if *next == socket) =>
                {
                    self.send_before_file(socket, &queue.output, (start, end));
                }
                Op::Send { socket, start, end, more } => self.send(socket, &queue.output, (start, end), more),
                Op::SendBytes { socket, bytes } => self.send_shared(socket, |outgoing| outgoing.push(bytes)),
                Op::SendFile { socket, file, offset, length, more } => {
                    self.send_file(socket, FileRange::new(file, offset, length, more));
                }
                Op::Shutdown { socket } => self.shutdown(socket),
                Op::Close { socket } => self.close(socket),
                Op::Abort { socket } => self.abort(socket),
                Op::PauseRecv { socket } => {
                    if let Some(connection) = self.connections.get(socket).filter(|connection| !connection.is_closed())
                    {
                        // A receive into a lent buffer pauses when it has ended.
                        connection.paused = true;
                        if connection.is_armed() {
                            self.cancel(data(kind::RECEIVE, socket));
                        }
                    }
                }
                Op::ResumeRecv { socket } => {
                    if let Some(connection) = self.connections.get(socket).filter(|connection| !connection.is_closed())
                    {
                        (connection.paused, connection.resumed) = (false, true);
                        if let Some(lent_buffer) = connection.lent_buffer.take()
                            && connection.fills_lent_buffer()
                        {
                            // The memory stays until the receive has ended; see `filled_lent_buffer`.
                            let receive = data(kind::RECEIVE_INTO, socket);
                            self.cancelled.push((receive, lent_buffer));
                            self.cancel(receive);
                        }
                        self.arm(socket);
                    }
                }
                Op::WatchEnd { socket } => self.watch_end(socket),
                Op::ReceiveInto { socket, buffer, room } => self.receive_into(socket, buffer, room),
                Op::Connect { token, address } => self.connect(token, &address),
                Op::CancelConnect { token } => self.cancel_connect(token),
                Op::Watch { token, descriptor, interest } => self.watch(Watched::new(token, descriptor, interest)),
                Op::Unwatch { token } => self.unwatch(token),
                Op::PauseAccept { listener } => {
                    if let Some(Some(accepting)) = self.listeners.get_mut(listener.0 as usize) {
                        accepting.paused = true;
                        self.disarm_accept(listener.0 as usize);
                    }
                }
                Op::ResumeAccept { listener } => {
                    if let Some(Some(accepting)) = self.listeners.get_mut(listener.0 as usize) {
                        accepting.paused = false;
                        self.arm_accept(listener.0 as usize);
                    }
                }
                Op::CloseListener { listener } => {
                    self.disarm_accept(listener.0 as usize);
                    let taken = self.listeners.get_mut(listener.0 as usize).and_then(Option::take);
                    if taken.as_ref().is_some_and(|accepting| accepting.armed) {
                        // Submit the cancellation before the listener closes, because another descriptor may then get
                        // its number.
                        let _ = self.ring.submit();
                    }
                }
            }
        }
    }

    /// Submits the queued entries, waits for a completion, at most until `until`, and copies all available completions
    /// out of the ring.
    fn enter(&mut self, until: Option<Instant>) -> io::Result<()> {
        let patience = until.map(|until| until.since(self.clock.now()));
        self.enter_with(patience)
    }

    /// Does what [`enter`](Self::enter) does, and lets the sink know if the call may block.
    fn enter_for<S: Sink>(&mut self, until: Option<Instant>, sink: &mut S) -> io::Result<()> {
        let patience = until.map(|until| until.since(self.clock.now()));
        if patience == Some(Duration::ZERO) {
            return self.enter_with(patience);
        }
        sink.before_wait();
        let entered = self.enter_with(patience);
        sink.after_wait();
        entered
    }

    fn enter_with(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.ring.enter(patience)?;
        let entries = &mut self.entries;
        self.ring.completions(|data, result, flags| entries.push(Entry { data, result, flags }));
        Ok(())
    }

    /// Starts the queued operations if there are [`limit::RING_ENTRIES`] of them, or if the arena holds at least
    /// [`limit::OUTPUT_BYTES`]. Otherwise a turn with many completions would make the queue and the arena grow.
    #[inline]
    fn empty_arena(&mut self, queue: &mut Queue) -> io::Result<()> {
        if queue.output.len() >= limit::OUTPUT_BYTES || queue.ops.len() >= limit::RING_ENTRIES as usize {
            self.flush(queue)?;
        }
        Ok(())
    }

    /// Starts the queued operations without waiting.
    fn flush(&mut self, queue: &mut Queue) -> io::Result<()> {
        self.buffers.publish();
        self.start(queue);
        self.enter(Some(Instant::default())).map(|()| self.settle(queue))
    }

    fn complete<S: Sink>(&mut self, entry: Entry, queue: &mut Queue, sink: &mut S) {
        match entry.data >> 56 {
            kind::RECEIVE => self.received(socket_of(entry.data), entry, queue, sink),
            kind::RECEIVE_INTO => self.filled_lent_buffer(socket_of(entry.data), entry, queue, sink),
            kind::END => self.end_arrived(socket_of(entry.data), entry.result, queue, sink),
            kind::ACCEPTABLE => self.acceptable(number_of(entry.data), entry.result, queue, sink),
            kind::ACCEPT => self.accepted(number_of(entry.data), entry, queue, sink),
            kind::SEND => self.sent(socket_of(entry.data), entry.result, queue, sink),
            kind::WRITABLE => self.writable(socket_of(entry.data), queue, sink),
            kind::WATCHED => self.watched(socket_of(entry.data), entry.result, queue, sink),
            kind::CONNECT => self.attempted(socket_of(entry.data), entry.result, queue, sink),
            kind::NOTIFIER => {
                self.notifier.acknowledge();
                if !cqueue::more(entry.flags) {
                    self.watch_notifier();
                }
                sink.complete(Completion::Woken, queue);
            }
            _ => {}
        }
    }

    fn has_reports(&self) -> bool {
        !(self.broken.is_empty() && self.blocked.is_empty() && self.drained.is_empty() && self.refused.is_empty())
    }

    fn watch_notifier(&mut self) {
        let descriptor = types::Fd(self.notifier.descriptor());
        let entry = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).multi(true).build();
        self.submit(entry.user_data(numbered(kind::NOTIFIER, 0)));
    }

    /// Reports failed sockets, failed connection attempts, and blocked and drained sockets.
    fn report<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) -> io::Result<()> {
        for (socket, error) in std::mem::take(&mut self.broken) {
            if !self.receive_rest(socket, queue, sink) {
                self.broken.push((socket, error));
                continue;
            }
            if let Some(connection) = self.connections.get(socket)
                && !connection.is_closed()
                && !std::mem::replace(&mut connection.failed, true)
            {
                connection.ended = true;
                sink.complete(Completion::Failed { socket, error }, queue);
            }
        }
        for (token, error) in std::mem::take(&mut self.refused) {
            if !queue.cancels(token) {
                sink.complete(Completion::ConnectFailed { token, error }, queue);
            }
        }
        for _ in 0..self.blocked.len() + self.drained.len() {
            self.report_one(queue, sink);
            self.empty_arena(queue)?;
        }
        Ok(())
    }

    /// Reports one blocked socket or, if there is none, one drained socket.
    fn report_one<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) {
        if let Some(socket) = self.blocked.pop() {
            if let Some(connection) = self.connections.get(socket)
                && !connection.is_closed()
                && !connection.failed
            {
                connection.told = true;
                let held = connection.outgoing.as_ref().map_or(0, |outgoing| outgoing.copied);
                sink.complete(Completion::Blocked { socket, held }, queue);
            }
        } else if let Some(socket) = self.drained.pop()
            && let Some(connection) = self.connections.get(socket)
            && !connection.is_closed()
            && !connection.failed
        {
            if connection.outgoing.is_some() {
                connection.owed = true;
                return;
            }
            // Several sends in one turn may put a socket into `drained` several times. One report is enough.
            if std::mem::take(&mut connection.told) {
                sink.complete(Completion::Drained { socket }, queue);
            }
        }
    }
}

impl Driver for Uring {
    fn listen(&mut self, listener: Listener) -> io::Result<ListenerId> {
        let number = self.listeners.len();
        self.listeners.push(Some(Accepting { listener, armed: false, paused: false, burst: 1, accepted_in: 0 }));
        self.arm_accept(number);
        Ok(ListenerId(number as u32))
    }

    fn adopt(&mut self, socket: Socket) -> io::Result<SocketId> {
        let peer = socket.peer;
        Ok(self.insert(socket.into_stream(), peer))
    }

    fn descriptor(&mut self) -> io::Result<Waitable> {
        let nest = match self.nest.take() {
            Some(nest) => nest,
            None => {
                let signal = Notifier::new()?;
                self.ring.submitter().register_eventfd(signal.descriptor())?;
                let nest = Nest::new(signal.descriptor(), &self.notifier)?;
                (self.signal, self.signals) = (Some(signal), true);
                nest
            }
        };
        Ok(self.nest.insert(nest).descriptor())
    }

    fn arm(&mut self, until: Option<Instant>) -> io::Result<()> {
        self.check()?;
        self.ring.submit()?;
        let waits = !(self.starved.is_empty() && self.interrupted.is_empty());
        self.signals = self.signal.is_some();
        let has_completed = if self.signals { self.ring.begin_signals() } else { self.ring.has_completions() };
        let at_once = has_completed || waits || self.has_reports() || !self.entries.is_empty();
        let until = if at_once { Some(Instant::default()) } else { until };
        let linger = self.lingering.first().map(|&(_, since)| since + limit::LINGER);
        let until = until.into_iter().chain(linger).min();
        self.nest.as_ref().map_or(Ok(()), |nest| nest.wake_at(until, self.clock.now()))
    }

    fn release(&mut self, socket: SocketId) -> Option<Socket> {
        let round = self.round;
        let connection = self.connections.get(socket)?;
        let is_busy =
            connection.outgoing.is_some() || connection.lent_buffer.is_some() || connection.fills_lent_buffer();
        if is_busy || connection.round == round || connection.is_closed() {
            return None;
        }
        let peer = if connection.is_local { Peer::Local } else { socket::peer_of(&connection.descriptor)? };
        let connection = self.connections.remove(socket)?;
        if connection.is_armed() || connection.watches_end {
            self.cancel(data(kind::RECEIVE, socket));
            self.cancel(data(kind::END, socket));
            // Submit the queued entries now, while the descriptor's number in them still means this socket.
            let _ = self.ring.submit();
        }
        Some(Socket::new(connection.descriptor, peer))
    }

    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()> {
        self.check()?;
        let done = self.turn_once(until, queue, sink);
        if done.is_err() {
            // The loop may drop its queue now. The driver therefore keeps the arena until the ring is dropped. Later
            // turns submit nothing.
            queue.ops.clear();
            self.failed = Some(std::mem::take(&mut queue.output));
        }
        done
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn unix_nanoseconds(&self) -> u64 {
        clock::unix_nanoseconds()
    }

    fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    fn random(&mut self) -> u64 {
        random::system()
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}

impl Uring {
    /// Returns an error if an earlier turn has failed.
    fn check(&self) -> io::Result<()> {
        let text = "an earlier turn of this driver failed, so the driver cannot run again";
        if self.failed.is_some() { Err(io::Error::other(text)) } else { Ok(()) }
    }

    fn turn_once<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()> {
        if self.ring.enable()? {
            self.watch_notifier();
        }
        self.turns = self.turns.wrapping_add(1);
        if std::mem::take(&mut self.signals)
            && let Some(signal) = &self.signal
        {
            self.ring.end_signals();
            signal.acknowledge();
        }
        if !self.starved.is_empty() {
            self.buffers.grow();
        }
        for id in std::mem::take(&mut self.starved).into_iter().chain(std::mem::take(&mut self.interrupted)) {
            self.arm(id);
        }
        self.start(queue);
        if !self.deferred.is_empty() {
            // Operations that wait for arena sends must not also wait for an event.
            self.enter(Some(Instant::default()))?;
            self.settle(queue);
        }
        let at_once = !self.entries.is_empty() || self.has_reports();
        let until = if at_once { Some(Instant::default()) } else { until };
        let linger = self.lingering.first().map(|&(_, since)| since + limit::LINGER);
        self.enter_for(until.into_iter().chain(linger).min(), sink)?;
        self.settle(queue);
        self.now = self.clock.now();
        sink.begin(self.now);
        let mut entries = std::mem::take(&mut self.entries);
        let mut rest = &entries[..];
        let mut pace = Pace::new(self.now);
        while let Some((&entry, behind)) = rest.split_first() {
            let run = receive::run(rest);
            if run > 1 {
                self.received_run(&rest[..run], queue, sink);
                rest = &rest[run..];
            } else {
                self.complete(entry, queue, sink);
                rest = behind;
            }
            if !rest.is_empty() && pace.is_late(&self.clock) && !queue.ops.is_empty() {
                self.flush(queue)?;
            }
            self.empty_arena(queue)?;
        }
        entries.clear();
        if self.entries.is_empty() {
            self.entries = entries;
        }
        self.look_for_ends(queue, sink);
        self.buffers.publish();
        self.report(queue, sink)?;
        if !self.lingering.is_empty() {
            self.linger();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Options};
    use std::io::Write;
    use std::net::TcpStream;

    #[derive(Default)]
    struct Count(usize);

    impl Sink for Count {
        fn begin(&mut self, _: Instant) {}
        fn complete(&mut self, completion: Completion<'_>, _: &mut Queue) {
            self.0 += usize::from(matches!(completion, Completion::Received { .. }));
        }
    }

    /// Returns a driver with a listener, and the listener's address; `None` if this system has no io_uring.
    pub(super) fn listening() -> Option<(Uring, std::net::SocketAddr)> {
        let mut driver = match Uring::new() {
            Ok(driver) => driver,
            Err(error) => {
                eprintln!("not run: this system has no io_uring ({error})");
                return None;
            }
        };
        let address = Address::parse("127.0.0.1:0").expect("an address");
        let listener = Listener::bind(&address, &Options::default()).expect("a port");
        let Address::Tcp(address) = listener.address().clone() else { panic!("an internet address") };
        driver.listen(listener).expect("room");
        Some((driver, address))
    }

    /// Accepts connections until the driver has `wanted` of them.
    pub(super) fn accept(driver: &mut Uring, wanted: usize) {
        while driver.connections.ids().count() < wanted {
            driver.turn(None, &mut Queue::new(), &mut Count::default()).expect("a turn");
        }
    }

    /// Tests that receives which find no buffer get one later, and that the ring then has more buffers.
    #[test]
    fn a_burst_of_receives_makes_the_ring_of_buffers_grow() {
        const CLIENTS: usize = 3 * limit::RING_BUFFERS_AT_FIRST as usize;
        let Some((mut driver, address)) = listening() else { return };
        let (mut queue, mut count) = (Queue::new(), Count::default());
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        accept(&mut driver, CLIENTS);
        assert_eq!(driver.buffers.used(), limit::RING_BUFFERS_AT_FIRST);
        clients.iter_mut().for_each(|client| client.write_all(b"x").expect("room"));
        while count.0 < CLIENTS {
            driver.turn(None, &mut queue, &mut count).expect("a turn");
        }
        assert!(driver.buffers.used() > limit::RING_BUFFERS_AT_FIRST, "{} buffers", driver.buffers.used());
    }

    /// Pauses and resumes each flooding socket whenever it receives, as a loop does whose task takes the bytes at once.
    struct Floods {
        bystander: SocketId,
        heard: bool,
    }

    impl Sink for Floods {
        fn begin(&mut self, _: Instant) {}
        fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
            let Completion::Received { socket, .. } = completion else { return };
            self.heard |= socket == self.bystander;
            if socket != self.bystander {
                queue.push(Op::PauseRecv { socket });
                queue.push(Op::ResumeRecv { socket });
            }
        }
    }

    /// A regression test: sockets that are paused and resumed in the same turn once took all buffers in each turn.
    #[test]
    fn sockets_without_a_buffer_come_before_those_that_are_resumed() {
        const FLOODS: usize = 40;
        let Some((mut driver, address)) = listening() else { return };
        let mut queue = Queue::new();
        let mut bystander = TcpStream::connect(address).expect("a connection");
        accept(&mut driver, 1);
        let id = driver.connections.ids().next().expect("the bystander");
        let floods: Vec<_> = (0..FLOODS).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        accept(&mut driver, 1 + FLOODS);
        let flood = |floods: &[TcpStream]| {
            for mut flood in floods {
                flood.set_nonblocking(true).expect("an option");
                while flood.write(&[0; 65_536]).is_ok() {}
            }
        };
        let mut sink = Floods { bystander: id, heard: false };
        for _ in 0..20 {
            flood(&floods);
            driver.turn(Some(Instant::default()), &mut queue, &mut sink).expect("a turn");
        }
        bystander.write_all(b"x").expect("room");
        for turn in 0.. {
            if sink.heard {
                break;
            }
            assert!(turn < 20, "the bystander is not heard in 20 turns");
            flood(&floods);
            driver.turn(Some(Instant::default()), &mut queue, &mut sink).expect("a turn");
        }
    }
}
