//! The simulator: a single-threaded driver for an in-memory network, with virtual time and faults that a kernel can
//! report. A seed decides everything that is random.
//!
//! A [`Network`] holds the links between the driver and its peers, which a test plays: clients that connect to the
//! driver ([`Network::connect`]) and hosts that the driver connects to ([`Network::listen`]). [`Simulated`] keeps the
//! contract of [`crate::driver`]. With [`Faults`], it also uses the freedom that the contract gives: for example, bytes
//! arrive in pieces of random sizes, sends are short, sockets stall, connections break and accepting fails. A test that
//! does the same with the same seed gets the same run.
//!
//! A turn never waits: it does the work that is possible now and returns. The test that plays the clients must advance
//! the time, usually to the moment of [`Simulated::until`] or to one for which a client waits.

mod faults;
pub mod files;
pub mod names;
mod network;

pub use faults::Faults;
pub use network::{Arrived, Client, Host, Network};

use crate::connecting::Connecting;
use crate::lent_buffer::LentBuffer;
use crate::outgoing::{FileRange, Next, Outgoing};
use crate::slots::Slots;
use crate::sys::Waitable;
use crate::wake::Notifier;
use crate::watches::{Watched, Watches};
use crate::{Address, Completion, Driver, Instant, Interest, Listener, ListenerId, Op, Queue, Sink, Socket, SocketId};
use bytes::Bytes;
use std::cell::Cell;
use std::io;

thread_local! {
    static WORKED: Cell<u64> = const { Cell::new(0) };
}

/// Lets the stopwatches of this thread's drivers advance, as if the caller had computed for so many nanoseconds. Otherwise
/// nothing takes time in a turn.
pub fn work(nanoseconds: u64) {
    WORKED.set(WORKED.get() + nanoseconds);
}

#[derive(Debug)]
struct Connection {
    link: usize,
    paused: bool,
    /// True if the current turn has paused receiving. Bytes may still arrive, as from a kernel that had already passed
    /// them to the driver.
    just_paused: bool,
    ended: bool,
    /// True if the loop waits for the peer's end while it does not receive.
    watches_end: bool,
    failed: bool,
    /// True if bytes to send are missing, because the link is broken, or a file cannot be read or is too short. Nothing
    /// is sent after the missing bytes.
    lost: bool,
    /// The loop's buffer for the next bytes.
    lent_buffer: Option<LentBuffer>,
    outgoing: Option<Outgoing>,
    closed: bool,
    closed_at: Instant,
}

/// The simulated driver.
#[derive(Debug)]
pub struct Simulated {
    network: Network,
    connections: Slots<Connection>,
    connecting: Connecting<Address>,
    refused: Vec<(u64, io::Error)>,
    listening: bool,
    listeners: u32,
    accept_paused: bool,
    reports: Vec<(SocketId, Report)>,
    watches: Watches,
    notifier: Notifier,
    now: Instant,
    until: Option<Instant>,
    idle: bool,
}

/// The state of receiving on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Wanted,
    /// Paused in this turn. Bytes may still arrive, as from a kernel that had already passed them to the driver.
    JustPaused,
    Paused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Blocked,
    Drained,
    Broken,
}

/// The number of seconds from 1970 to moment zero of a simulated clock.
const START: u64 = 1_800_000_000;

impl Simulated {
    /// Creates a driver that accepts the network's clients.
    ///
    /// # Errors
    /// Returns the system's error if the notifier cannot be created, for example for lack of descriptors.
    pub fn new(network: Network) -> io::Result<Simulated> {
        let now = network.now();
        Ok(Simulated {
            network,
            connections: Slots::new(),
            connecting: Connecting::new(),
            refused: Vec::new(),
            listening: true,
            listeners: 0,
            accept_paused: false,
            reports: Vec::new(),
            watches: Watches::default(),
            notifier: Notifier::new()?,
            now,
            until: None,
            idle: false,
        })
    }

    /// Returns the latest moment for the next turn: the `until` of the last turn. `None` means that there is no
    /// deadline.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns true if the last turn did nothing and queued nothing for the next one. A fault may still hold back work
    /// that a later turn will do.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Returns the number of sockets that the driver holds. They include closed ones that still have bytes to send.
    pub fn sockets(&self) -> usize {
        self.connections.ids().count()
    }

    fn start(&mut self, queue: &mut Queue) -> bool {
        let any = !queue.ops.is_empty();
        let now = self.network.now();
        let Queue { ops, output, .. } = queue;
        for op in ops.drain(..) {
            match op {
                Op::Send { socket, start, end, .. } => {
                    self.send(socket, Bytes::copy_from_slice(&output[start as usize..end as usize]), Report::Blocked);
                }
                Op::SendBytes { socket, bytes } => self.send(socket, bytes, Report::Drained),
                Op::SendFile { socket, file, offset, length, more } => {
                    self.send_file(socket, FileRange::new(file, offset, length, more));
                }
                Op::Shutdown { socket } => {
                    if let Some(connection) = sending(&mut self.connections, socket) {
                        match &mut connection.outgoing {
                            Some(outgoing) => outgoing.shutdown = true,
                            None => self.network.server_shutdown(connection.link),
                        }
                    }
                }
                Op::Close { socket } => {
                    if let Some(connection) = open(&mut self.connections, socket) {
                        connection.closed = true;
                        connection.closed_at = now;
                        if connection.lost {
                            self.network.server_reset(connection.link);
                            self.connections.remove(socket);
                        } else if connection.outgoing.is_none() {
                            self.network.server_close(connection.link);
                            self.connections.remove(socket);
                        }
                    }
                }
                Op::Abort { socket } => {
                    if open(&mut self.connections, socket).is_some()
                        && let Some(connection) = self.connections.remove(socket)
                    {
                        self.network.server_reset(connection.link);
                    }
                }
                Op::PauseRecv { socket } => self.pause(socket, true),
                Op::ResumeRecv { socket } => self.pause(socket, false),
                Op::WatchEnd { socket } => {
                    if let Some(connection) = open(&mut self.connections, socket) {
                        connection.watches_end = true;
                    }
                }
                Op::ReceiveInto { socket, buffer, room } => {
                    if let Some(connection) = open(&mut self.connections, socket).filter(|connection| !connection.ended)
                    {
                        connection.lent_buffer = Some(LentBuffer::new(buffer, room));
                        (connection.paused, connection.just_paused) = (true, false);
                    }
                }
                Op::Connect { token, address } => {
                    if let Err(error) = self.connecting.insert(token, address) {
                        self.refused.push((token, error));
                    }
                }
                Op::CancelConnect { token } => {
                    self.connecting.cancel(token);
                    self.refused.retain(|(refused, _)| *refused != token);
                }
                Op::Watch { token, descriptor, interest } => {
                    self.watches.cancel(token);
                    self.watches.insert(Watched::new(token, descriptor, interest));
                }
                Op::Unwatch { token } => {
                    self.watches.cancel(token);
                }
                Op::PauseAccept { .. } => self.accept_paused = true,
                Op::ResumeAccept { .. } => self.accept_paused = false,
                Op::CloseListener { .. } => {
                    self.listening = false;
                    self.network.refuse_all();
                }
            }
        }
        output.clear();
        any
    }

    fn pause(&mut self, socket: SocketId, paused: bool) {
        if let Some(connection) = open(&mut self.connections, socket) {
            if paused && connection.lent_buffer.is_some() {
                return;
            }
            connection.lent_buffer = None;
            connection.just_paused = paused && !connection.paused;
            connection.paused = paused;
        }
    }

    /// Sends as many bytes as the link takes, and queues the rest. Queues all bytes if others are already waiting.
    /// `report` is `Blocked` for [`Op::Send`] and `Drained` for [`Op::SendBytes`].
    fn send(&mut self, socket: SocketId, bytes: Bytes, report: Report) {
        let Some(connection) = sending(&mut self.connections, socket) else { return };
        if let Some(outgoing) = &mut connection.outgoing {
            return outgoing.push(bytes);
        }
        let Some(sent) = self.network.server_send(connection.link, &bytes) else {
            return self.reports.push((socket, Report::Broken));
        };
        if sent < bytes.len() {
            let mut outgoing = Outgoing::default();
            match report {
                Report::Blocked => outgoing.push_copy(&bytes[sent..]),
                _ => outgoing.push(bytes.slice(sent..)),
            }
            connection.outgoing = Some(outgoing);
            if report == Report::Blocked {
                self.reports.push((socket, Report::Blocked));
            }
        } else if report == Report::Drained {
            self.reports.push((socket, Report::Drained));
        }
    }

    /// Adds a file range to the waiting bytes, of which each turn sends one piece.
    fn send_file(&mut self, socket: SocketId, range: FileRange) {
        let Some(connection) = sending(&mut self.connections, socket) else { return };
        connection.outgoing.get_or_insert_default().push_file(range);
    }

    fn report<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) -> bool {
        let reports = std::mem::take(&mut self.reports);
        let any = !reports.is_empty();
        for (socket, report) in reports {
            let Some(connection) = self.connections.get(socket) else { continue };
            if connection.closed {
                continue;
            }
            match report {
                Report::Blocked => {
                    let held = connection.outgoing.as_ref().map_or(0, |outgoing| outgoing.copied);
                    sink.complete(Completion::Blocked { socket, held }, queue);
                }
                Report::Drained if connection.outgoing.is_some() => {}
                Report::Drained => sink.complete(Completion::Drained { socket }, queue),
                Report::Broken if connection.failed => {}
                Report::Broken => {
                    (connection.ended, connection.failed) = (true, true);
                    let error = io::ErrorKind::BrokenPipe.into();
                    sink.complete(Completion::Failed { socket, error }, queue);
                }
            }
        }
        any
    }

    fn accept<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) -> bool {
        let mut any = false;
        while self.listening && !self.accept_paused {
            match self.network.accept() {
                None => break,
                Some((listener, Err(error))) => {
                    self.accept_paused = true;
                    sink.complete(Completion::AcceptFailed { listener, error }, queue);
                }
                Some((listener, Ok((link, peer)))) => {
                    let socket = self.insert(link);
                    sink.complete(Completion::Accepted { listener, socket, peer }, queue);
                }
            }
            any = true;
        }
        any
    }

    fn insert(&mut self, link: usize) -> SocketId {
        self.connections.insert(Connection {
            link,
            paused: false,
            just_paused: false,
            ended: false,
            watches_end: false,
            lent_buffer: None,
            outgoing: None,
            failed: false,
            lost: false,
            closed: false,
            closed_at: self.now,
        })
    }

    /// Reports the connection attempts that have succeeded or failed. Returns true if there were any.
    fn connect<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) -> bool {
        let mut ended = std::mem::take(&mut self.refused);
        let mut any = !ended.is_empty();
        let attempts: Vec<SocketId> = self.connecting.ids().collect();
        for attempt in attempts {
            let Some(answer) = self.connecting.get(attempt).and_then(|address| self.network.answer(address)) else {
                continue;
            };
            let Some((token, _)) = self.connecting.remove(attempt) else { continue };
            match answer {
                // The sink has cancelled the attempt in this turn.
                Ok(link) if queue.cancels(token) => self.network.server_reset(link),
                Ok(link) => {
                    let socket = self.insert(link);
                    sink.complete(Completion::Connected { token, socket }, queue);
                    any = true;
                }
                Err(error) => ended.push((token, error)),
            }
        }
        any |= !ended.is_empty();
        for (token, error) in ended {
            if !queue.cancels(token) {
                sink.complete(Completion::ConnectFailed { token, error }, queue);
            }
        }
        any
    }

    /// Moves bytes of one connection in both directions. Returns true if anything happened.
    fn move_bytes<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) -> bool {
        let mut any = false;
        let Some(connection) = self.connections.get(socket) else { return false };
        let link = connection.link;
        if connection.closed && self.now.since(connection.closed_at) >= crate::limit::LINGER {
            self.network.server_reset(link);
            self.connections.remove(socket);
            return true;
        }
        if let Some(outgoing) = &mut connection.outgoing {
            match send_next(&self.network, link, outgoing) {
                None => {
                    (connection.outgoing, connection.lost) = (None, true);
                    if connection.closed {
                        self.network.server_reset(link);
                        self.connections.remove(socket);
                        return true;
                    }
                    self.reports.push((socket, Report::Broken));
                    return true;
                }
                Some(sent) => {
                    outgoing.sent(sent);
                    any |= sent > 0;
                    if outgoing.is_empty() {
                        if outgoing.shutdown {
                            self.network.server_shutdown(link);
                        }
                        connection.outgoing = None;
                        any = true;
                        if connection.closed {
                            self.network.server_close(link);
                            self.connections.remove(socket);
                            return true;
                        }
                        sink.complete(Completion::Drained { socket }, queue);
                    } else if sent > 0 && !connection.closed {
                        sink.complete(Completion::Progress { socket }, queue);
                    }
                }
            }
        }
        let Some(connection) = self.connections.get(socket) else { return any };
        if connection.closed || connection.ended {
            return any;
        }
        if connection.watches_end && self.network.server_hears_end(link) {
            connection.watches_end = false;
            sink.complete(Completion::EndArrived { socket }, queue);
            any = true;
        }
        let receiving = match (connection.paused, std::mem::take(&mut connection.just_paused)) {
            _ if connection.lent_buffer.is_some() => Receiving::Wanted,
            (false, _) => Receiving::Wanted,
            (true, true) => Receiving::JustPaused,
            (true, false) => Receiving::Paused,
        };
        match self.network.server_receive(link, receiving) {
            None => any,
            Some(Arrived::Bytes(bytes)) => {
                let mut rest = &bytes[..];
                if let Some(lent_buffer) = connection.lent_buffer.take() {
                    let (buffer, count) = lent_buffer.append(rest);
                    rest = &rest[count..];
                    sink.complete(Completion::ReceivedInto { socket, buffer, count }, queue);
                }
                if !rest.is_empty() {
                    sink.complete(Completion::Received { socket, bytes: rest }, queue);
                }
                true
            }
            Some(Arrived::End) => {
                connection.ended = true;
                connection.lent_buffer = None;
                sink.complete(Completion::Ended { socket }, queue);
                true
            }
            Some(Arrived::Reset) => {
                connection.ended = true;
                connection.lent_buffer = None;
                if std::mem::replace(&mut connection.failed, true) {
                    return true;
                }
                let error = io::ErrorKind::ConnectionReset.into();
                sink.complete(Completion::Failed { socket, error }, queue);
                true
            }
        }
    }
}

impl Simulated {
    /// Reports the watched descriptors that a test has made ready; see [`Network::set_ready`].
    fn watch<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) -> bool {
        let mut ids: Vec<_> = self.watches.ids().collect();
        self.network.shuffle(&mut ids);
        let mut any = false;
        for id in ids {
            let Some(Watched { token, descriptor, interest, .. }) = self.watches.get(id) else { continue };
            let state = self.network.ready(descriptor);
            let ready = Interest {
                readable: interest.readable && state.readable,
                writable: interest.writable && state.writable,
            };
            if (ready.readable || ready.writable) && !queue.unwatches(token) {
                self.watches.remove(id);
                sink.complete(Completion::Watched { token, ready }, queue);
                any = true;
            }
        }
        any
    }
}

impl Driver for Simulated {
    /// Closes the real listener, and returns a number to which clients connect with [`Network::connect_to`].
    fn listen(&mut self, _: Listener) -> io::Result<ListenerId> {
        self.listeners += 1;
        Ok(ListenerId(self.listeners - 1))
    }

    fn adopt(&mut self, _: Socket) -> io::Result<SocketId> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the simulator has no real sockets"))
    }

    fn descriptor(&mut self) -> io::Result<Waitable> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the simulator has no descriptor to wait for"))
    }

    fn arm(&mut self, _: Option<Instant>) -> io::Result<()> {
        Ok(())
    }

    fn release(&mut self, _: SocketId) -> Option<Socket> {
        None
    }

    fn turn<S: Sink>(&mut self, until: Option<Instant>, queue: &mut Queue, sink: &mut S) -> io::Result<()> {
        self.until = until;
        let mut any = self.start(queue);
        self.now = self.network.now();
        sink.begin(self.now);
        if self.notifier.is_notified() {
            self.notifier.acknowledge();
            sink.complete(Completion::Woken, queue);
            any = true;
        }
        any |= self.report(queue, sink);
        any |= self.accept(queue, sink);
        any |= self.connect(queue, sink);
        any |= self.watch(queue, sink);
        let mut ids: Vec<_> = self.connections.ids().collect();
        self.network.shuffle(&mut ids);
        for id in ids {
            any |= self.move_bytes(id, queue, sink);
        }
        self.idle = !any && queue.ops.is_empty() && self.reports.is_empty() && self.refused.is_empty();
        Ok(())
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn stopwatch(&self) -> fn() -> u64 {
        || WORKED.get()
    }

    fn unix_nanoseconds(&self) -> u64 {
        START * 1_000_000_000 + self.network.now().nanoseconds
    }

    fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    fn random(&mut self) -> u64 {
        self.network.random()
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}

/// The most bytes of a file that are offered to a link at once.
const PIECE_BYTES: usize = 16 * 1024;

/// Sends the next waiting piece. Returns the number of bytes that the link took, or `None` if the link is broken or no
/// bytes can be read from the file.
fn send_next(network: &Network, link: usize, outgoing: &Outgoing) -> Option<usize> {
    match outgoing.next(usize::MAX) {
        Next::Bytes(bytes) => network.server_send(link, bytes),
        Next::File(range) => {
            let mut buffer = vec![0; range.next(PIECE_BYTES)];
            match range.file.read(&mut buffer, range.offset) {
                Ok(count @ 1..) => network.server_send(link, &buffer[..count]),
                _ => None,
            }
        }
    }
}

/// Returns the connection, if the loop has not closed it and no bytes to send are missing.
fn sending(connections: &mut Slots<Connection>, socket: SocketId) -> Option<&mut Connection> {
    open(connections, socket).filter(|connection| !connection.lost)
}

/// Returns the connection, if the loop has not closed it.
fn open(connections: &mut Slots<Connection>, socket: SocketId) -> Option<&mut Connection> {
    connections.get(socket).filter(|connection| !connection.closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    #[derive(Default)]
    struct Seen(Vec<String>, Option<SocketId>);

    impl Sink for Seen {
        fn begin(&mut self, _: Instant) {}

        fn complete(&mut self, completion: Completion<'_>, _: &mut Queue) {
            if let Completion::Connected { socket, .. } = &completion {
                self.1 = Some(*socket);
            }
            self.0.push(match completion {
                Completion::Connected { token, .. } => format!("connected {token}"),
                Completion::ConnectFailed { token, error } => format!("{token}: {}", error.kind()),
                Completion::Received { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
                other => format!("{other:?}"),
            });
        }
    }

    #[test]
    fn the_driver_connects_to_hosts_that_a_test_plays() {
        let network = Network::new(1, Faults::default());
        let mut driver = Simulated::new(network.clone()).expect("a descriptor");
        let (mut queue, mut seen) = (Queue::new(), Seen::default());
        let address = |port| Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let host = network.listen(address(80));
        let silent = network.listen(address(81));
        silent.set_silent(true);
        for (token, port) in [(1, 80), (2, 81), (3, 82), (2, 80)] {
            queue.push(Op::Connect { token, address: address(port) });
        }
        driver.turn(None, &mut queue, &mut seen).expect("a turn");
        seen.0.sort();
        assert_eq!(seen.0, ["2: entity already exists", "3: connection refused", "connected 1"]);
        let (client, socket) = (host.accept().expect("the driver has connected"), seen.1.expect("a socket"));
        assert_eq!(client.address(), crate::Peer::Internet(Ipv4Addr::LOCALHOST.into(), 80));
        client.send(b"hello");
        queue.push(Op::SendBytes { socket, bytes: Bytes::from_static(b"bye") });
        seen.0.clear();
        driver.turn(None, &mut queue, &mut seen).expect("a turn");
        assert!(seen.0.contains(&"hello".to_string()));
        assert_eq!(client.receive(10), Some(Arrived::Bytes(b"bye".to_vec())));
        // The silent host does not answer. A cancelled attempt gets no completion, even if the host would now answer.
        seen.0.clear();
        network.advance(Duration::from_secs(1000));
        driver.turn(None, &mut queue, &mut seen).expect("a turn");
        queue.push(Op::CancelConnect { token: 2 });
        silent.set_silent(false);
        driver.turn(None, &mut queue, &mut seen).expect("a turn");
        assert_eq!(seen.0, [""; 0]);
        assert!(silent.accept().is_none());
    }
}
