//! The readiness driver, which uses epoll, kqueue or their Windows equivalent through mio.
//!
//! On unix, an accepted socket is registered once, edge-triggered, for reading. After that, its bytes need only the
//! calls that wait (`epoll_wait`), receive and send, unless the kernel does not take all bytes to send. Then the socket
//! is registered for both directions and stays so. (If sockets were registered for both from the start, a connection's
//! first event would usually report only that it is writable.)
//!
//! All connections share one receive buffer, so that it tends to stay in the cache. A receive that does not fill the
//! buffer has drained the socket. If the event reports that the peer has ended its direction, another receive finds the
//! end behind the data. Operations that the sink queues at a completion start before the next completion, while the
//! received bytes are probably still in the cache.

mod connect;
mod send;
mod watch;

use crate::clock::{self, RealClock};
use crate::connecting::Connecting;
use crate::lent_buffer::LentBuffer;
use crate::outgoing::{FileRange, Outgoing};
use crate::slots::Slots;
use crate::socket::{self, Lifted, Socket, Stream};
use crate::sys::Waitable;
use crate::sys::embed::Nest;
use crate::sys::wake::Watch;
use crate::wake::Notifier;
use crate::watches::{Watched, Watches};
use crate::{Completion, Driver, Instant, Listener, ListenerId, Op, Peer, Queue, Sink, SocketId, limit, op, random};
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

const NOTIFIER: Token = Token(usize::MAX);
/// Listener tokens have this bit. Socket tokens do not, because generations have 24 bits.
const LISTENER: usize = 1 << 62;
/// Tokens of connection attempts have this bit.
const ATTEMPT: usize = 1 << 61;
/// Tokens of watched descriptors have this bit.
const WATCHED: usize = 1 << 60;

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

fn token(id: SocketId) -> Token {
    Token((id.generation as usize) << 32 | id.index as usize)
}

fn attempt_token(attempt: SocketId) -> Token {
    Token(ATTEMPT | token(attempt).0)
}

fn id(token: Token) -> SocketId {
    SocketId { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    /// True if the peer is [`Peer::Local`]. The peer's address is not kept, because it would take memory of each connection.
    is_local: bool,
    paused: bool,
    /// True if nothing more is received, because the peer has ended its direction or the connection has failed.
    ended: bool,
    /// True if an event has shown that the peer has ended its direction or that the connection is broken.
    end_arrived: bool,
    /// True if the loop waits for that: see [`Op::WatchEnd`].
    watches_end: bool,
    /// True if the connection is broken or bytes to send cannot be read. `Failed` was reported or is in `broken`.
    /// Nothing more is sent.
    failed: bool,
    /// True if the socket is in `ready`.
    queued: bool,
    /// True if the socket is registered for both directions.
    both: bool,
    lifted: Lifted,
    /// The loop's buffer for the next bytes.
    lent_buffer: Option<Box<LentBuffer>>,
    /// The bytes and parts of files that wait to be sent. The queue is boxed, because few connections ever have one.
    outgoing: Option<Box<Outgoing>>,
}

#[derive(Debug)]
struct Accepting {
    listener: Listener,
    paused: bool,
}

/// A closed connection that still has bytes to send.
#[derive(Debug)]
struct Lingering {
    since: Instant,
    stream: Stream,
    outgoing: Box<Outgoing>,
}

/// The readiness driver, over epoll, kqueue or their Windows equivalent.
#[derive(Debug)]
pub struct Readiness {
    poll: Poll,
    /// `None` while a turn handles the events, and after a failed turn.
    events: Option<Events>,
    /// True if the last poll has filled `events`, so that more may wait, of which an edge-triggered loop around this one would not
    /// learn.
    is_full: bool,
    buffer: Box<[u8]>,
    connections: Slots<Connection>,
    connecting: Connecting<(Stream, Peer)>,
    listeners: Vec<Option<Accepting>>,
    /// Sockets and listeners with which the driver continues without an event, for example because they had more work
    /// than one turn does or were resumed.
    ready: VecDeque<Token>,
    /// Sockets to report as drained.
    drained: VecDeque<SocketId>,
    /// Sockets to report as blocked.
    blocked: VecDeque<SocketId>,
    /// Sockets to report as failed.
    broken: VecDeque<(SocketId, io::Error)>,
    /// Connection attempts to report as failed, because they failed immediately.
    refused: VecDeque<(u64, io::Error)>,
    lingering: Vec<Lingering>,
    watches: Watches,
    /// Watches to report as ready, because the system cannot wait for their descriptors.
    unwatchable: Vec<SocketId>,
    nest: Option<Nest>,
    notifier: Notifier,
    watch: Watch,
    clock: RealClock,
    now: Instant,
}

impl Readiness {
    /// Creates a driver without listeners and connections.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn new() -> io::Result<Readiness> {
        let poll = Poll::new()?;
        let notifier = Notifier::new()?;
        let watch = Watch::new(notifier.bell(), poll.registry(), NOTIFIER)?;
        let clock = RealClock::start();
        Ok(Readiness {
            poll,
            events: Some(Events::with_capacity(limit::EVENTS_A_TURN)),
            is_full: false,
            buffer: vec![0; limit::RECEIVE_BYTES].into_boxed_slice(),
            connections: Slots::new(),
            connecting: Connecting::new(),
            listeners: Vec::new(),
            ready: VecDeque::new(),
            drained: VecDeque::new(),
            blocked: VecDeque::new(),
            broken: VecDeque::new(),
            refused: VecDeque::new(),
            lingering: Vec::new(),
            watches: Watches::default(),
            unwatchable: Vec::new(),
            nest: None,
            notifier,
            watch,
            clock,
            now: clock.now(),
        })
    }

    fn insert(&mut self, stream: Stream, peer: Peer) -> io::Result<SocketId> {
        let connection = Connection {
            stream,
            is_local: peer == Peer::Local,
            paused: false,
            ended: false,
            end_arrived: false,
            watches_end: false,
            failed: false,
            queued: false,
            both: false,
            lifted: Lifted::default(),
            lent_buffer: None,
            outgoing: None,
        };
        let socket = self.connections.insert(connection);
        let Some(connection) = self.connections.get(socket) else { return Ok(socket) };
        let registry = self.poll.registry();
        match socket::register(registry, &mut connection.stream, token(socket), Interest::READABLE) {
            Ok(()) => Ok(socket),
            Err(error) => {
                self.connections.remove(socket);
                Err(error)
            }
        }
    }

    /// Starts every queued operation.
    fn start(&mut self, queue: &mut Queue) {
        queue.note_use();
        let Queue { ops, output, .. } = queue;
        for op in ops.drain(..) {
            match op {
                Op::Send { socket, start, end, more } => self.send(socket, &output[start as usize..end as usize], more),
                Op::SendBytes { socket, bytes } => self.send_shared(socket, |outgoing| outgoing.push(bytes)),
                Op::SendFile { socket, file, offset, length, more } => {
                    self.send_file(socket, FileRange::new(file, offset, length, more));
                }
                Op::Shutdown { socket } => {
                    let Some(connection) = self.connections.get(socket).filter(|connection| !connection.failed) else {
                        continue;
                    };
                    match &mut connection.outgoing {
                        Some(outgoing) => outgoing.shutdown = true,
                        None => socket::shutdown(&connection.stream, Shutdown::Write),
                    }
                }
                Op::Close { socket } => {
                    let Some(connection) = self.connections.remove(socket) else { continue };
                    if connection.failed {
                        // The peer must see that the sent data is incomplete.
                        socket::reset_on_close(&connection.stream);
                    }
                    if let Some(outgoing) = connection.outgoing {
                        let (since, stream) = (self.now, connection.stream);
                        self.lingering.push(Lingering { since, stream, outgoing });
                    }
                }
                Op::Abort { socket } => {
                    let Some(connection) = self.connections.remove(socket) else { continue };
                    socket::reset_on_close(&connection.stream);
                }
                Op::PauseRecv { socket } => {
                    if let Some(connection) = self.connections.get(socket) {
                        connection.paused = connection.lent_buffer.is_none();
                    }
                }
                Op::ResumeRecv { socket } => {
                    if let Some(connection) = self.connections.get(socket)
                        && (connection.paused || connection.lent_buffer.is_some())
                    {
                        (connection.paused, connection.lent_buffer) = (false, None);
                        self.again(socket);
                    }
                }
                Op::WatchEnd { socket } => self.watch_end(socket),
                Op::ReceiveInto { socket, buffer, room } => {
                    if let Some(connection) = self.connections.get(socket).filter(|connection| !connection.ended) {
                        connection.lent_buffer = Some(Box::new(LentBuffer::new(buffer, room)));
                        connection.paused = false;
                        self.again(socket);
                    }
                }
                Op::Connect { token, address } => self.connect(token, &address),
                Op::CancelConnect { token } => self.cancel_connect(token),
                Op::Watch { token, descriptor, interest } => self.watch(Watched::new(token, descriptor, interest)),
                Op::Unwatch { token } => self.unwatch(token),
                Op::PauseAccept { listener } => self.pause_accept(listener, true),
                Op::ResumeAccept { listener } => self.pause_accept(listener, false),
                Op::CloseListener { listener } => {
                    if let Some(mut accepting) = self.listeners.get_mut(listener.0 as usize).and_then(Option::take) {
                        // Another process or worker may have a handle of the socket. Closing ours would then not remove
                        // it from the poll.
                        let _ = socket::deregister(self.poll.registry(), accepting.listener.acceptor_mut());
                    }
                }
            }
        }
        queue.clear_output();
    }

    fn pause_accept(&mut self, listener: ListenerId, paused: bool) {
        if let Some(Some(accepting)) = self.listeners.get_mut(listener.0 as usize) {
            accepting.paused = paused;
            if !paused {
                self.ready.push_back(Token(LISTENER | listener.0 as usize));
            }
        }
    }

    /// Marks a connection as failed, so that nothing more is received or sent, and queues a `Failed` report unless that
    /// was done before.
    fn fail(&mut self, id: SocketId, error: io::Error) {
        let Some(connection) = self.connections.get(id) else { return };
        // What arrived before a reset is received before the report.
        connection.ended |= !socket::is_reset(&error);
        connection.outgoing = None;
        if connection.ended {
            connection.lent_buffer = None;
        }
        if !std::mem::replace(&mut connection.failed, true) {
            self.broken.push_back((id, error));
        }
    }

    /// Reports blocked, drained and failed sockets, and failed connection attempts. Sockets that drain and attempts
    /// that fail during these reports are left for the next call, so that a peer that takes all bytes immediately does
    /// not keep the others waiting.
    fn report<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) {
        let (mut drained, mut refused) = (self.drained.len(), self.refused.len());
        loop {
            if let Some(socket) = self.blocked.pop_front() {
                let outgoing = self.connections.get(socket).and_then(|connection| connection.outgoing.as_ref());
                let held = outgoing.map_or(0, |outgoing| outgoing.copied);
                self.tell(socket, Completion::Blocked { socket, held }, queue, sink);
            } else if drained > 0
                && let Some(socket) = self.drained.pop_front()
            {
                drained -= 1;
                // Bytes that the peer does not take may have been queued since.
                if self.connections.get(socket).is_some_and(|connection| connection.outgoing.is_some()) {
                    continue;
                }
                self.tell(socket, Completion::Drained { socket }, queue, sink);
            } else if let Some((socket, error)) = self.broken.pop_front() {
                if socket::is_reset(&error) {
                    self.receive(socket, true, queue, sink);
                }
                self.tell(socket, Completion::Failed { socket, error }, queue, sink);
            } else if refused > 0
                && let Some((token, error)) = self.refused.pop_front()
            {
                // The sink may answer each failed attempt with another one that fails at once, so report only those
                // that failed before this call.
                refused -= 1;
                sink.complete(Completion::ConnectFailed { token, error }, queue);
                self.start(queue);
            } else {
                return;
            }
        }
    }

    fn tell<S: Sink>(&mut self, socket: SocketId, completion: Completion<'_>, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        if let Completion::Failed { .. } = completion {
            (connection.ended, connection.failed, connection.lent_buffer) = (true, true, None);
        } else if connection.failed
            || (matches!(completion, Completion::Drained { .. }) && connection.outgoing.is_some())
        {
            return;
        }
        sink.complete(completion, queue);
        self.start(queue);
    }

    fn accept<S: Sink>(&mut self, listener: ListenerId, queue: &mut Queue, sink: &mut S) {
        for _ in 0..limit::ACCEPTS_A_TURN {
            let Some(Some(accepting)) = self.listeners.get_mut(listener.0 as usize) else { return };
            if accepting.paused {
                return;
            }
            let error = match socket::accept(accepting.listener.acceptor()) {
                Ok((stream, peer)) => match self.insert(stream, peer) {
                    Ok(socket) => {
                        sink.complete(Completion::Accepted { listener, socket, peer }, queue);
                        self.start(queue);
                        continue;
                    }
                    Err(error) => error,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if socket::is_transient(&error) => continue,
                Err(error) => error,
            };
            if let Some(Some(accepting)) = self.listeners.get_mut(listener.0 as usize) {
                accepting.paused = true;
            }
            sink.complete(Completion::AcceptFailed { listener, error }, queue);
            self.start(queue);
            return;
        }
        let token = Token(LISTENER | listener.0 as usize);
        if !self.ready.contains(&token) {
            self.ready.push_back(token);
        }
    }

    /// Receives the waiting bytes, in at most [`limit::RECEIVES_A_TURN`] calls. With `look_again`, and always on
    /// Windows, continues after a receive that does not fill the buffer, because the peer's end or more data may
    /// follow.
    fn receive<S: Sink>(&mut self, socket: SocketId, look_again: bool, queue: &mut Queue, sink: &mut S) {
        for _ in 0..limit::RECEIVES_A_TURN {
            let Some(connection) = self.connections.get(socket) else { return };
            if connection.paused || connection.ended {
                return;
            }
            let received = match connection.lent_buffer.take() {
                None => socket::receive(&connection.stream, &mut self.buffer),
                Some(lent_buffer) => match socket::receive_into(&connection.stream, *lent_buffer) {
                    (Ok(count), Ok(buffer)) => {
                        connection.paused = true;
                        sink.complete(Completion::ReceivedInto { socket, buffer, count }, queue);
                        self.start(queue);
                        continue;
                    }
                    (nothing, lent_buffer) => {
                        connection.lent_buffer = lent_buffer.err().map(Box::new);
                        nothing
                    }
                },
            };
            match received {
                Ok(0) if connection.failed => return,
                Ok(0) => {
                    connection.ended = true;
                    connection.lent_buffer = None;
                    sink.complete(Completion::Ended { socket }, queue);
                    return self.start(queue);
                }
                Ok(count) => {
                    sink.complete(Completion::Received { socket, bytes: &self.buffer[..count] }, queue);
                    self.start(queue);
                    if count < self.buffer.len() && !look_again && socket::KEEPS_EVENTS {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(socket, error),
            }
        }
        self.again(socket);
    }

    /// Puts a socket into `ready`, unless it is there already, so that a turn continues with it without an event.
    fn again(&mut self, socket: SocketId) {
        if let Some(connection) = self.connections.get(socket)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.ready.push_back(token(socket));
        }
    }

    /// Returns how long to wait for events, or `None` to wait without a limit.
    fn patience(&self, until: Option<Instant>) -> Option<Duration> {
        let has_reports = !(self.drained.is_empty() && self.blocked.is_empty() && self.broken.is_empty());
        if has_reports
            || self.is_full
            || !self.ready.is_empty()
            || !self.refused.is_empty()
            || !self.unwatchable.is_empty()
        {
            return Some(Duration::ZERO);
        }
        // Events do not find a lingering connection, because its slot is free. Look at all lingering connections every
        // 20 ms.
        let linger = (!self.lingering.is_empty()).then_some(Duration::from_millis(20));
        let wait = until.map(|until| until.since(self.clock.now()));
        match (wait, linger) {
            (Some(wait), Some(linger)) => Some(wait.min(linger)),
            (wait, linger) => wait.or(linger),
        }
    }
}

impl Driver for Readiness {
    fn listen(&mut self, mut listener: Listener) -> io::Result<ListenerId> {
        let number = self.listeners.len();
        let (registry, acceptor) = (self.poll.registry(), listener.acceptor_mut());
        socket::register(registry, acceptor, Token(LISTENER | number), Interest::READABLE)?;
        self.listeners.push(Some(Accepting { listener, paused: false }));
        Ok(ListenerId(number as u32))
    }

    fn adopt(&mut self, socket: Socket) -> io::Result<SocketId> {
        let peer = socket.peer;
        self.insert(socket.into_stream(), peer)
    }

    fn descriptor(&mut self) -> io::Result<Waitable> {
        let nest = match self.nest.take() {
            Some(nest) => nest,
            None => Nest::around(&self.poll, &self.notifier)?,
        };
        Ok(self.nest.insert(nest).descriptor())
    }

    fn arm(&mut self, until: Option<Instant>) -> io::Result<()> {
        let now = self.clock.now();
        let patience = self.patience(until);
        self.nest.as_ref().map_or(Ok(()), |nest| nest.wake_at(patience.map(|patience| now + patience), now))
    }

    fn release(&mut self, socket: SocketId) -> Option<Socket> {
        let connection = self.connections.get(socket)?;
        if connection.outgoing.is_some() || connection.lent_buffer.is_some() {
            return None;
        }
        let peer = if connection.is_local { Peer::Local } else { socket::peer_of(&connection.stream)? };
        let mut connection = self.connections.remove(socket)?;
        let _ = socket::deregister(self.poll.registry(), &mut connection.stream);
        Some(Socket::new(connection.stream, peer))
    }

    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()> {
        self.start(queue);
        // The results of these operations are reported after the wait, with the other completions, because `until` may
        // be wrong once the sink has handled a report.
        let patience = self.patience(until);
        let mut events = self.events.take().unwrap_or_else(|| Events::with_capacity(limit::EVENTS_A_TURN));
        let may_block = patience != Some(Duration::ZERO);
        if may_block {
            sink.before_wait();
        }
        let polled = self.poll.poll(&mut events, patience);
        if may_block {
            sink.after_wait();
        }
        match polled {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.now = self.clock.now();
        let ready = self.ready.len();
        sink.begin(self.now);
        self.report(queue, sink);
        self.report_unwatchable(queue, sink);
        let mut count = 0;
        for event in &events {
            count += 1;
            match event.token() {
                NOTIFIER => {
                    self.notifier.acknowledge();
                    self.watch.rearm(self.poll.registry(), NOTIFIER)?;
                    sink.complete(Completion::Woken, queue);
                    self.start(queue);
                }
                Token(token) if token & LISTENER != 0 => {
                    self.accept(ListenerId((token & !LISTENER) as u32), queue, sink)
                }
                Token(token) if token & WATCHED != 0 => {
                    let is_broken = event.is_error();
                    let ready = op::Interest {
                        readable: event.is_readable() || event.is_read_closed() || is_broken,
                        writable: event.is_writable() || event.is_write_closed() || is_broken,
                    };
                    self.watched(id(Token(token & !WATCHED)), ready, queue, sink);
                }
                Token(token) if token & ATTEMPT != 0 => self.attempted(id(Token(token & !ATTEMPT)), queue, sink),
                socket => {
                    if event.is_writable() {
                        self.writable(id(socket), queue, sink);
                    }
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        let look_again = event.is_read_closed() || event.is_error();
                        if look_again {
                            self.end_arrived(id(socket), true, queue, sink);
                        }
                        self.receive(id(socket), look_again, queue, sink);
                    }
                }
            }
            self.report(queue, sink);
        }
        self.events = Some(events);
        self.is_full = count >= limit::EVENTS_A_TURN;
        for _ in 0..ready {
            match self.ready.pop_front() {
                Some(Token(token)) if token & LISTENER != 0 => {
                    self.accept(ListenerId((token & !LISTENER) as u32), queue, sink);
                }
                // Without an event it is unknown if the peer has ended its direction, so continue after a receive that
                // does not fill the buffer.
                Some(token) => {
                    let Some(connection) = self.connections.get(id(token)) else { continue };
                    connection.queued = false;
                    if connection.outgoing.is_some() {
                        self.writable(id(token), queue, sink);
                    }
                    self.end_arrived(id(token), false, queue, sink);
                    self.receive(id(token), true, queue, sink);
                }
                None => break,
            }
            self.report(queue, sink);
        }
        self.linger();
        Ok(())
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
        "readiness"
    }
}
