//! The model of the loop and its clients. It records their actions, and checks that the driver's reports can follow
//! from these.

use super::Traits;
use super::program::{Action, Step};
use super::receive_into::{BEFORE, ReceiveInto};
use super::stream::{PATTERN_BYTES, Way, check_stream, pattern, place, stream};
use crate::file::File;
use crate::{Address, Completion, Instant, ListenerId, Op, Peer, Queue, Sink, SocketId};
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The state of a client.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) port: Option<u16>,
    /// True if the loop connects to the client, false if the client connects to the loop.
    pub(super) dialed: bool,
    /// True while the client waits for the loop's connection.
    pub(super) expects: bool,
    /// The index of the client's connection, if the driver has reported one.
    pub(super) connection: Option<usize>,
    pub(super) sent: u64,
    pub(super) read: u64,
    /// True if the client has sent, or tried to send, after the loop closed the client's connection.
    pub(super) late: bool,
    pub(super) shut: bool,
    pub(super) reset: bool,
    pub(super) closed: bool,
    /// True if the client has received the end or a reset.
    pub(super) over: bool,
}

impl Client {
    /// Returns true if the client has an open socket.
    pub(super) fn is_here(&self) -> bool {
        !self.reset && !self.closed && !self.expects
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Closed,
    /// Closed, and the time for sending the last bytes (`limit::LINGER`) has passed.
    Expired,
    Aborted,
}

/// The state of receiving or accepting: open, or paused by the loop. Once a pause is in effect, the driver may report
/// only bytes that were sent, or clients that connected, before it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// The pause takes effect after this many turns.
    Closing(u8),
    /// The pause is in effect. Holds the number of bytes that the client had sent by then (or the number of clients),
    /// and true if the client had ended its direction.
    Closed {
        sent: u64,
        ended: bool,
    },
}

/// A connection, as the loop sees it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: SocketId,
    pub(super) client: usize,
    pub(super) fate: Fate,
    dialed: bool,
    pub(super) asked: u64,
    /// The value of `asked` when the current turn began.
    asked_before: u64,
    pub(super) received: u64,
    /// True from `Blocked` until `Drained`.
    blocked: bool,
    /// The numbers of `SendBytes` and `SendFile` operations for which the driver may still report `Drained`: those
    /// queued before the current turn, and those queued since it began.
    shared: [u32; 2],
    /// True if the driver must still report `Drained` or `Failed`.
    pub(super) owed: bool,
    /// True if the loop has sent a file range that ends beyond the end of the file. The bytes up to the file's end must
    /// leave, and then the driver must report `Failed`.
    pub(super) short: bool,
    pub(super) shut: bool,
    pub(super) ended: bool,
    /// True if the driver must report the client's end, although the loop may not receive.
    pub(super) watches_end: bool,
    pub(super) failed: bool,
    door: Door,
    receive_into: Option<ReceiveInto>,
}

/// The loop, its clients, and a log. The model is the driver's sink, and checks each completion.
#[derive(Debug)]
pub(super) struct Model {
    traits: Traits,
    /// A file that contains the pattern several times.
    file: Arc<dyn File>,
    copies: u64,
    pub(super) clients: Vec<Client>,
    pub(super) connections: Vec<Connection>,
    open: HashMap<SocketId, usize>,
    used: HashSet<SocketId>,
    /// Sockets closed from within the sink. Completions of the same turn may still name them.
    leaving: Vec<SocketId>,
    /// Steps for the sink, which performs one at each completion.
    pub(super) later: VecDeque<Step>,
    /// Clients that the loop has not connected to yet, and their addresses.
    pub(super) addresses: VecDeque<(usize, Address)>,
    accepting: Door,
    pub(super) accept_failed: bool,
    pub(super) woken: bool,
    log: Vec<(&'static str, usize, u64)>,
}

/// The number of bytes that are missing from the last copy of the pattern in the file. A file range that begins among
/// them contains no bytes.
const MISSING_BYTES: usize = 1_000;

impl Model {
    pub(super) fn new(traits: Traits, file: impl FnOnce(&[u8]) -> Arc<dyn File>) -> Model {
        // A range that begins in the first copy fits into the file. One that begins in the last copy may not.
        let copies = traits.most as usize / 4 / PATTERN_BYTES + 2;
        Model {
            traits,
            file: file(&pattern().repeat(copies)[..copies * PATTERN_BYTES - MISSING_BYTES]),
            copies: copies as u64,
            clients: Vec::new(),
            connections: Vec::new(),
            open: HashMap::new(),
            used: HashSet::new(),
            leaving: Vec::new(),
            later: VecDeque::new(),
            addresses: VecDeque::new(),
            accepting: Door::Open,
            accept_failed: false,
            woken: false,
            log: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, what: &'static str, who: usize, count: u64) {
        self.log.push((what, who, count));
    }

    /// Prints the log and the state, which help to explain a failure.
    pub(super) fn tell(&self) {
        for (what, who, count) in &self.log {
            eprintln!("{what} {who} {count}");
        }
        eprintln!("{:#?}\n{:#?}", self.clients, self.connections);
    }

    fn add(&mut self, socket: SocketId, client: usize, dialed: bool) {
        let number = self.connections.len();
        assert!(self.used.insert(socket), "{socket:?} is used for two connections");
        self.open.insert(socket, number);
        assert_eq!(self.clients[client].connection.replace(number), None, "client {client} is accepted twice");
        self.connections.push(Connection {
            socket,
            client,
            fate: Fate::Open,
            dialed,
            asked: 0,
            asked_before: 0,
            received: 0,
            blocked: false,
            shared: [0, 0],
            owed: false,
            short: false,
            shut: false,
            ended: false,
            watches_end: false,
            failed: false,
            door: Door::Open,
            receive_into: None,
        });
    }

    /// Returns the client of an accepted connection: the waiting client with that port, or without a port the first
    /// waiting client of a unix socket.
    fn client_at(&self, peer: Peer) -> usize {
        let waiting = |client: &Client| client.connection.is_none() && !client.dialed;
        let found = match peer {
            Peer::Internet(_, port) => {
                self.clients.iter().position(|client| waiting(client) && client.port == Some(port))
            }
            // Also allows a TCP client that is gone, although a driver should drop its connection without a report.
            Peer::Local => {
                self.clients.iter().position(|client| waiting(client) && (client.port.is_none() || !client.is_here()))
            }
        };
        found.unwrap_or_else(|| panic!("{peer:?} is accepted, but no such client waits"))
    }

    /// Must be called before each turn.
    pub(super) fn turn_begins(&mut self) {
        for connection in &mut self.connections {
            connection.asked_before = connection.asked;
            connection.receive_into.iter_mut().for_each(|receive_into| receive_into.started = true);
            connection.shared = [connection.shared[0] + connection.shared[1], 0];
        }
    }

    /// Must be called after each turn. Lets pauses take effect. Checks that an accepted connection on which no bytes
    /// wait, as far as the loop knows, has no more unread bytes than the kernel can hold.
    pub(super) fn turn_ended(&mut self) {
        for connection in &mut self.connections {
            let client = &self.clients[connection.client];
            let waits = connection.waits() || connection.failed || !client.is_here();
            let held = connection.asked_before.saturating_sub(client.read);
            let kept = connection.fate == Fate::Open && !connection.dialed && !waits && held > self.traits.capacity;
            assert!(
                !kept,
                "{held} bytes for client {} are unread, but were not reported as waiting",
                connection.client
            );
            connection.door.tick(client.sent, client.shut || !client.is_here());
        }
        self.accepting.tick(self.clients.len() as u64, false);
        for socket in self.leaving.drain(..) {
            self.open.remove(&socket);
        }
    }

    /// Performs a step of the loop. `within` is true if the sink performs it; the step may then take effect one turn
    /// later.
    pub(super) fn perform(&mut self, step: Step, within: bool, queue: &mut Queue) {
        let turns = if within { 2 } else { 1 };
        let listener = ListenerId(0);
        match step.action {
            Action::PauseAccept => {
                self.accepting.close(turns);
                return queue.push(Op::PauseAccept { listener });
            }
            Action::ResumeAccept => {
                self.accepting = Door::Open;
                self.accept_failed = false;
                return queue.push(Op::ResumeAccept { listener });
            }
            Action::Dial => {
                if let Some((client, address)) = self.addresses.pop_front() {
                    self.note(if within { "dial (within)" } else { "dial" }, client, 0);
                    queue.push(Op::Connect { token: client as u64, address });
                }
                return;
            }
            _ => {}
        }
        let Some(number) = step.who.checked_rem(self.connections.len()) else { return };
        let count = step.bytes.min(self.traits.most as usize / 4);
        self.note(if within { "(within)" } else { "" }, number, count as u64);
        let connection = &mut self.connections[number];
        let (socket, open) = (connection.socket, connection.fate == Fate::Open);
        // A driver must ignore operations on closed sockets, so a program may contain them.
        let may_send = !open || !(connection.failed || connection.shut);
        match step.action {
            Action::Send if may_send => self.send(number, count, false, queue),
            Action::SendBytes if may_send => self.send_bytes(number, count, queue),
            Action::SendFile if may_send => self.send_file(number, count, 0, queue),
            Action::SendShortFile if may_send => self.send_file(number, count, self.copies - 1, queue),
            Action::SendTogether if may_send => {
                self.send(number, count, true, queue);
                match count % 4 {
                    0 => self.send(number, count / 2 + 1, false, queue),
                    1 => self.send_bytes(number, count / 2 + 1, queue),
                    2 => self.send_file(number, count / 2 + 1, 0, queue),
                    _ => self.shutdown(number, queue),
                }
            }
            Action::Shutdown if may_send => self.shutdown(number, queue),
            Action::WatchEnd => {
                connection.watches_end |= open && !connection.ended;
                self.note("watch the end", number, 0);
                queue.push(Op::WatchEnd { socket });
            }
            Action::ReceiveInto if open && !connection.ended && connection.receive_into.is_none() => {
                (connection.receive_into, connection.door) =
                    (Some(ReceiveInto { room: count, started: false, is_cancelled: false }), Door::Open);
                self.note("receive into", number, count as u64);
                queue.push(Op::ReceiveInto { socket, buffer: BEFORE.to_vec(), room: count });
            }
            Action::Pause if connection.receive_into.is_some() => queue.push(Op::PauseRecv { socket }),
            Action::Pause => {
                connection.door.close(turns);
                self.note("pause", number, 0);
                queue.push(Op::PauseRecv { socket });
            }
            Action::Resume => {
                match &mut connection.receive_into {
                    Some(receive_into) => receive_into.is_cancelled = true,
                    None => {
                        connection.door = Door::Open;
                        self.note("resume", number, 0);
                    }
                }
                queue.push(Op::ResumeRecv { socket });
            }
            Action::Close if !open || !connection.failed => self.end(number, Fate::Closed, within, queue),
            Action::Abort => self.end(number, Fate::Aborted, within, queue),
            _ => {}
        }
    }

    fn send(&mut self, number: usize, count: usize, more: bool, queue: &mut Queue) {
        let Some((socket, bytes)) = self.ask(number, count, "send") else { return };
        let start = queue.output.len() as u32;
        queue.output.extend_from_slice(&bytes);
        queue.push(Op::Send { socket, start, end: queue.output.len() as u32, more });
    }

    pub(super) fn send_bytes(&mut self, number: usize, count: usize, queue: &mut Queue) {
        let Some((socket, bytes)) = self.ask(number, count, "send shared") else { return };
        let connection = &mut self.connections[number];
        if connection.sends() {
            connection.shared[1] += 1;
            connection.owed = true;
        }
        queue.push(Op::SendBytes { socket, bytes: Bytes::from(bytes) });
    }

    /// Sends the next bytes of the stream from one of the copies in the file. The last copy may be too short.
    fn send_file(&mut self, number: usize, count: usize, copy: u64, queue: &mut Queue) {
        let connection = &mut self.connections[number];
        let place = place(connection.client, Way::ToClient, connection.asked) as u64;
        let offset = copy * PATTERN_BYTES as u64 + place;
        let end = self.copies * PATTERN_BYTES as u64 - MISSING_BYTES as u64;
        let there = count.min(end.saturating_sub(offset) as usize);
        let Some((socket, _)) = self.ask(number, there, "send file") else { return };
        let connection = &mut self.connections[number];
        if connection.sends() {
            connection.shared[1] += 1;
            connection.owed = true;
            connection.short = there < count;
        }
        queue.push(Op::SendFile {
            socket,
            file: self.file.clone(),
            offset,
            length: count as u64,
            more: count % 2 == 1,
        });
    }

    /// Returns the next bytes of the stream to a client, and adds their number to `asked` if they must arrive. Returns
    /// `None` if the stream would become too long.
    fn ask(&mut self, number: usize, count: usize, what: &'static str) -> Option<(SocketId, Vec<u8>)> {
        let connection = &mut self.connections[number];
        if connection.asked + count as u64 > self.traits.most {
            return None;
        }
        let bytes = stream(connection.client, Way::ToClient, connection.asked, count);
        if connection.sends() {
            connection.asked += count as u64;
        }
        let socket = connection.socket;
        self.note(what, number, count as u64);
        Some((socket, bytes))
    }

    pub(super) fn shutdown(&mut self, number: usize, queue: &mut Queue) {
        let connection = &mut self.connections[number];
        connection.shut |= connection.sends();
        queue.push(Op::Shutdown { socket: connection.socket });
        self.note("shut down", number, 0);
    }

    /// Closes or aborts a connection. The id of the socket becomes invalid at once, or at the end of the turn if the
    /// sink closes or aborts (`within`).
    pub(super) fn end(&mut self, number: usize, fate: Fate, within: bool, queue: &mut Queue) {
        let connection = &mut self.connections[number];
        let socket = connection.socket;
        queue.push(if fate == Fate::Closed { Op::Close { socket } } else { Op::Abort { socket } });
        if connection.fate == Fate::Open {
            connection.fate = fate;
            if within {
                self.leaving.push(socket);
            } else {
                self.open.remove(&socket);
            }
            self.note(if fate == Fate::Closed { "close" } else { "abort" }, number, 0);
        }
    }

    fn accepted(&mut self, socket: SocketId, peer: Peer) {
        let client = self.client_at(peer);
        if let Door::Closed { sent, .. } = self.accepting {
            assert!((client as u64) < sent, "client {client} connected after accepting was paused, but is accepted");
        }
        self.add(socket, client, false);
    }

    fn happened(&mut self, number: usize, completion: &Completion<'_>) {
        let traits = self.traits;
        let connection = &mut self.connections[number];
        let client = &self.clients[connection.client];
        if connection.fate != Fate::Open {
            return;
        }
        assert!(!connection.failed, "{completion:?} after Failed");
        match completion {
            Completion::Received { bytes, .. } => {
                assert!(!bytes.is_empty(), "received 0 bytes");
                let waits = connection
                    .receive_into
                    .is_some_and(|receive_into| receive_into.started && !receive_into.is_cancelled);
                assert!(!waits, "received elsewhere than into the buffer");
                connection.receives(client, bytes);
                connection.receive_into.take_if(|receive_into| receive_into.is_cancelled);
            }
            Completion::ReceivedInto { buffer, count, .. } => {
                let receive_into = connection.receive_into.take().expect("a receive into a buffer");
                let (before, bytes) = buffer.split_at(BEFORE.len());
                assert_eq!((before, bytes.len()), (BEFORE, *count), "a buffer has other bytes");
                assert!(
                    (1..=receive_into.room).contains(count),
                    "received {count} bytes, but {} fit",
                    receive_into.room
                );
                connection.receives(client, bytes);
                // The sink resumes receiving.
                connection.door = Door::Open;
            }
            Completion::Ended { .. } => {
                assert!(!std::mem::replace(&mut connection.ended, true), "ended twice");
                let looks_like_one = !traits.resets_show && client.reset;
                assert!(client.shut || client.closed || looks_like_one, "ended, but the client did not end it");
                assert_eq!(connection.received, client.sent, "ended before everything was received");
                assert!(!matches!(connection.door, Door::Closed { ended: false, .. }), "ended while paused");
            }
            Completion::EndArrived { .. } => {
                assert!(std::mem::take(&mut connection.watches_end), "an end that the loop does not wait for");
                assert!(!connection.ended, "the end arrives after the end");
                assert!(client.shut || client.closed || client.reset, "an end that the client did not cause");
            }
            Completion::Failed { .. } => {
                connection.failed = true;
                connection.owed = false;
            }
            Completion::Blocked { .. } => {
                assert!(!std::mem::replace(&mut connection.blocked, true), "blocked twice");
                connection.owed = true;
            }
            Completion::Progress { .. } => {
                assert!(connection.waits(), "Progress, but no bytes wait");
            }
            Completion::Drained { .. } => {
                assert!(connection.waits(), "Drained, but no bytes were waiting");
                let blocked = std::mem::take(&mut connection.blocked);
                match connection.shared {
                    [0, _] if blocked => {}
                    [0, now] => connection.shared = [0, now - 1],
                    [before, now] => connection.shared = [before - 1, now],
                }
                connection.owed = false;
                let held = connection.asked_before.saturating_sub(client.read);
                let gone = connection.dialed || !client.is_here() || held <= traits.capacity;
                assert!(gone, "Drained, but {held} bytes are unread, more than the kernel holds");
            }
            _ => {}
        }
    }
}

impl Connection {
    /// Checks received bytes.
    fn receives(&mut self, client: &Client, bytes: &[u8]) {
        assert!(!self.ended, "received after the end");
        check_stream(self.client, Way::ToLoop, self.received, bytes);
        self.received += bytes.len() as u64;
        assert!(self.received <= client.sent, "received more than was sent");
        if let Door::Closed { sent, .. } = self.door {
            assert!(self.received <= sent, "received bytes that were sent after the pause");
        }
    }

    /// Returns true if bytes that the loop sends now must arrive.
    fn sends(&self) -> bool {
        self.fate == Fate::Open && !self.short
    }

    /// Returns true if bytes may be waiting, judging by the loop's operations and the driver's reports.
    fn waits(&self) -> bool {
        self.blocked || self.shared != [0, 0]
    }
}

impl Door {
    fn close(&mut self, turns: u8) {
        if *self == Door::Open {
            *self = Door::Closing(turns);
        }
    }

    fn tick(&mut self, sent: u64, ended: bool) {
        *self = match *self {
            Door::Closing(0 | 1) => Door::Closed { sent, ended },
            Door::Closing(turns) => Door::Closing(turns - 1),
            other => other,
        };
    }
}

impl Sink for Model {
    fn begin(&mut self, _: Instant) {}

    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        let (socket, what, count) = match &completion {
            Completion::Accepted { socket, peer, .. } => {
                self.accepted(*socket, *peer);
                (Some(*socket), "accepted", 0)
            }
            Completion::AcceptFailed { .. } => {
                self.accept_failed = true;
                (None, "accept failed", 0)
            }
            Completion::Watched { .. } => unreachable!("the loop watches nothing"),
            Completion::Woken => {
                self.woken = true;
                (None, "woken", 0)
            }
            Completion::Connected { token, socket } => {
                let client = *token as usize;
                assert!(self.clients[client].dialed, "the loop has not connected to client {client}");
                self.add(*socket, client, true);
                (Some(*socket), "connected", *token)
            }
            Completion::ConnectFailed { token, error } => {
                let client = &mut self.clients[*token as usize];
                // A client may reset the connection before the driver has seen that it exists.
                assert!(self.traits.connects_fail || client.reset, "the loop cannot connect: {error}");
                assert!(
                    (client.expects || client.reset) && client.connection.is_none(),
                    "the attempt to client {token} has already ended"
                );
                (client.expects, client.closed) = (false, true);
                (None, "connect failed", *token)
            }
            Completion::Received { socket, bytes } => (Some(*socket), "received", bytes.len() as u64),
            Completion::ReceivedInto { socket, count, .. } => {
                queue.push(Op::ResumeRecv { socket: *socket });
                (Some(*socket), "received into", *count as u64)
            }
            Completion::EndArrived { socket } => (Some(*socket), "the end arrives", 0),
            Completion::Ended { socket } => (Some(*socket), "ended", 0),
            Completion::Failed { socket, .. } => (Some(*socket), "failed", 0),
            Completion::Blocked { socket, .. } => (Some(*socket), "blocked", 0),
            Completion::Drained { socket } => (Some(*socket), "drained", 0),
            Completion::Progress { socket } => (Some(*socket), "progress", 0),
        };
        if let Some(socket) = socket {
            let number = self.open.get(&socket).copied();
            let number = number.unwrap_or_else(|| panic!("{completion:?} for a closed socket"));
            self.note(what, number, count);
            self.happened(number, &completion);
        }
        if let Some(step) = self.later.pop_front() {
            self.perform(step, true, queue);
        }
    }
}
