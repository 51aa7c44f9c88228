//! Joins a client's and a server's HTTP/2 connection by two queues of bytes, and performs operations that the callers
//! may perform, in the order and with the cuts that an input chooses.
//!
//! Each side must receive the other side's messages in order. Neither side may report an error of the other, except
//! that a kind of frame was sent too often. Neither side may hold more memory than its bounds allow. When both sides
//! have ended all streams, no stream and no bytes may be left. The bytes of a body are computed from its stream's
//! number and from their position, so they need not be stored.

use super::Text;
use crate::h2::{Bounds, Code, Connection, Event, Failure, Lent, Request, StreamRef};
use crate::{Error, Head, Length, Limits, Role, Span};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// The largest number of bytes that a connection may hold for its tables and for a field section, whose vector may have
/// more capacity than it needs.
const MOST_HELD_BYTES: usize = 256 * 1024;

/// The initial window of every connection in bytes.
const FIRST_WINDOW: u32 = 65_535;

/// The number of turns within which both sides must end all streams. It is larger than the number of bytes of all
/// bodies of an input.
const MOST_TURNS: usize = 1 << 20;

/// The message that one side has sent or received on one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    heads: Vec<Text>,
    bytes: u64,
    trailers: bool,
    ended: bool,
}

/// One side.
struct Side {
    role: Role,
    bounds: Bounds,
    connection: Connection,
    head: Head,
    fields: Vec<u8>,
    limits: Limits,
    /// The bytes on their way to the other side.
    out: Vec<u8>,
    window: Vec<u8>,
    /// The streams in progress, as far as this side knows.
    streams: Vec<StreamRef>,
    said: BTreeMap<u32, Message>,
    heard: BTreeMap<u32, Message>,
    /// For each stream whose body has an announced length, the number of bytes that are left to send.
    promised: BTreeMap<u32, u64>,
    /// The streams that this side has reset, and the codes.
    reset: BTreeMap<u32, Code>,
    held: Vec<(StreamRef, usize)>,
    /// The current second.
    second: u32,
    failed: bool,
    /// The window of a stream that the peer begins when it knows all SETTINGS of this side.
    stream_window: u32,
    /// True if SETTINGS were injected.
    has_injected: bool,
}

/// The unread operations of an input.
struct Operations<'i>(&'i [u8]);

impl Operations<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Returns the next byte, or 0 at the end of the input.
    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }
}

/// Plays an input: two bytes that choose both sides' bounds, then operations of up to four bytes each.
///
/// # Panics
/// Panics if the two sides do not agree, or if one exceeds its bounds.
pub fn http2_operations(input: &[u8]) {
    let Some((&[client, server], rest)) = input.split_first_chunk() else { return };
    let mut pair = Pair { sides: [Side::new(Role::Client, client), Side::new(Role::Server, server)] };
    let mut operations = Operations(rest);
    while let Some(operation) = operations.next() {
        pair.operate(operation, &mut operations);
        pair.sides.iter().for_each(Side::check_bounds);
    }
    pair.finish();
}

/// Returns `bytes` bytes of a stream's body, from a position on.
fn body(stream: u32, from: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (u64::from(stream) * 7 + from + at) as u8).collect()
}

impl Side {
    fn new(role: Role, options: u8) -> Side {
        let bounds = Bounds {
            streams: if options & 1 != 0 { 3 } else { 128 },
            stream_window: [65_536, 1, 100, 5_000][usize::from(options >> 1 & 3)],
            connection_window: if options & 8 != 0 { FIRST_WINDOW } else { 256 * 1024 },
            table_bytes: if options & 16 != 0 { 64 } else { 4096 },
            ..Bounds::default()
        };
        let (limits, mut out) = (Limits::default(), Vec::new());
        Side {
            role,
            bounds,
            connection: Connection::new(role, bounds, &limits, &mut out),
            head: Head::default(),
            fields: Vec::new(),
            limits,
            out,
            window: Vec::new(),
            streams: Vec::new(),
            said: BTreeMap::new(),
            heard: BTreeMap::new(),
            promised: BTreeMap::new(),
            reset: BTreeMap::new(),
            held: Vec::new(),
            second: 0,
            failed: false,
            stream_window: bounds.stream_window,
            has_injected: false,
        }
    }

    fn check_bounds(&self) {
        assert!(self.connection.held() <= MOST_HELD_BYTES, "{:?} holds {} bytes", self.role, self.connection.held());
        assert!(
            self.fields.capacity() <= MOST_HELD_BYTES,
            "{:?} holds {} bytes of fields",
            self.role,
            self.fields.capacity()
        );
        let held: usize = self.held.iter().map(|held| held.1).sum();
        let most = self.bounds.connection_window.max(FIRST_WINDOW) as usize;
        assert!(held <= most, "{:?}: {held} bytes of bodies, but only {most} are allowed", self.role);
        let most = self.bounds.streams as usize;
        assert!(self.role == Role::Client || self.connection.open_streams() <= most, "more streams than allowed");
    }

    /// Returns one of the streams in progress, and forgets those that are over.
    fn pick(&mut self, number: u8) -> Option<StreamRef> {
        let Side { connection, streams, .. } = self;
        streams.retain(|&stream| connection.is_open(stream));
        (!streams.is_empty()).then(|| streams[usize::from(number) % streams.len()])
    }

    /// Sends a request. `kind` chooses its method and body, `size` the size of its head.
    fn ask(&mut self, kind: u8, size: u8) {
        if self.role == Role::Server || self.failed {
            return;
        }
        let protocol = (kind & 7 == 4).then_some("p");
        let method = ["GET", "POST", "HEAD", "CONNECT", "CONNECT", "PUT", "X", "POST"][usize::from(kind & 7)];
        let path = if kind & 7 == 3 { "" } else { "/" };
        let length = (kind & 7 == 5).then_some(u64::from(size) * 16);
        let ends = kind & 8 != 0 && length.is_none_or(|length| length == 0);
        // Two values of the largest size exceed a frame, but not the largest head.
        let value = body(1, 0, usize::from(size) * 55).iter().map(|byte| byte % 26 + b'a').collect::<Vec<u8>>();
        let request = Request { method, scheme: "https", authority: "h:1", path, protocol, ends };
        let before = self.out.len();
        let sent = self.connection.send_request(request, &mut self.out, |fields| {
            fields.field(b"x", &value);
            fields.field(b"z", &value);
            if let Some(length) = length {
                fields.number(b"content-length", length);
            }
        });
        match sent {
            Ok(stream) => {
                self.streams.push(stream);
                let head = Text(format!("{method} {path} {}", value.len()).into_bytes());
                self.said.insert(stream.number, Message { heads: [head].into(), ended: ends, ..Message::default() });
                if let Some(length) = length.filter(|_| !ends) {
                    self.promised.insert(stream.number, length);
                }
            }
            Err(error) => {
                let expected = if ends && method == "CONNECT" { Error::InvalidRequest } else { Error::NotNow };
                assert_eq!((error, self.out.len()), (expected, before), "nothing is sent");
            }
        }
    }

    /// Sends a response. `kind` chooses its status and how its length is announced, `bytes` the announced length.
    fn answer(&mut self, stream: StreamRef, kind: u8, bytes: u64) {
        if self.role == Role::Client || self.failed {
            return;
        }
        let status = [200, 200, 204, 304, 404, 103, 200, 299][usize::from(kind & 7)];
        let length = [Length::Unknown, Length::Exact(bytes), Length::Empty][usize::from(kind >> 3 & 3).min(2)];
        let head = Text(format!("{status}").into_bytes());
        let withheld = self.connection.withholds_body(stream, status);
        let Side { connection, out, said, .. } = self;
        let before = out.len();
        let sent = match status {
            103 => connection.send_interim(stream, status, out, |fields| fields.field(b"i", b"j")),
            _ => connection.send_response(stream, status, length, out, |fields| {
                if let Length::Exact(length) = length {
                    fields.number(b"content-length", length);
                }
            }),
        };
        match sent {
            Ok(()) => {
                let said = said.entry(stream.number).or_default();
                said.heads.push(head);
                said.ended = status >= 200 && (withheld || matches!(length, Length::Empty | Length::Exact(0)));
                if let (Length::Exact(length), 200.., false) = (length, status, said.ended) {
                    self.promised.insert(stream.number, length);
                }
            }
            Err(Error::NotNow | Error::LengthMismatch) => assert_eq!(self.out.len(), before, "nothing is sent"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Sends up to `bytes` bytes of a body, as far as the announced length and the windows allow. Ends the body after
    /// them if `ends` is true and no announced bytes are left.
    fn send(&mut self, stream: StreamRef, bytes: usize, ends: bool) {
        if self.failed {
            return;
        }
        let Side { connection, out, said, promised, .. } = self;
        let Some(said) = said.get_mut(&stream.number) else { return };
        let rest = promised.get_mut(&stream.number);
        let bytes = rest.as_ref().map_or(bytes, |rest| bytes.min(**rest as usize));
        let ends = ends && rest.as_ref().is_none_or(|rest| **rest == bytes as u64);
        let (before, capacity) = (out.len(), connection.capacity(stream));
        match connection.send_data(stream, &body(stream.number, said.bytes, bytes), ends, out) {
            Ok(sent) => {
                assert_eq!(sent, bytes.min(capacity), "as much as the windows allow");
                assert!(!said.ended, "bytes are sent after the end");
                said.bytes += sent as u64;
                said.ended = ends && sent == bytes;
                if let Some(rest) = rest {
                    *rest -= sent as u64;
                }
            }
            Err(error) => assert_eq!((error, out.len()), (Error::NotNow, before), "nothing is sent"),
        }
    }

    fn send_trailers(&mut self, stream: StreamRef) {
        if self.failed {
            return;
        }
        let Side { connection, out, said, .. } = self;
        let (before, tunnel) = (out.len(), connection.is_tunnel(stream));
        // The connection does not check the length that a client announces, so the caller must.
        if self.promised.get(&stream.number).is_some_and(|rest| *rest != 0) && self.role == Role::Client {
            return;
        }
        match connection.send_trailers(stream, out, |fields| fields.field(b"t", b"v")) {
            Ok(()) => {
                assert!(!tunnel, "a tunnel has no trailers");
                let said = said.entry(stream.number).or_default();
                (said.trailers, said.ended) = (true, true);
            }
            Err(Error::NotNow | Error::LengthMismatch) => assert_eq!(out.len(), before, "nothing is sent"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn send_reset(&mut self, stream: StreamRef, code: Code) {
        if !self.failed && self.connection.is_open(stream) {
            self.connection.reset(stream, code, &mut self.out);
            self.reset.insert(stream.number, code);
            assert!(!self.connection.is_open(stream), "the stream is still open");
        }
    }

    /// Uses up all received body bytes, or all but the last piece.
    fn use_up(&mut self, all: bool) {
        let Side { connection, out, held, failed, .. } = self;
        if *failed {
            return held.clear();
        }
        let keep = usize::from(!all);
        for (stream, bytes) in held.drain(..held.len().saturating_sub(keep)) {
            connection.used(stream, bytes, out);
        }
    }

    /// Drops the received body bytes, and resets their streams.
    fn drop_held(&mut self) {
        for (stream, bytes) in core::mem::take(&mut self.held) {
            if !self.failed {
                self.connection.dropped(bytes, &mut self.out);
                self.send_reset(stream, Code::NoError);
            }
        }
    }

    /// Sends a frame that a caller cannot send but a peer may. Settings in the frame allow no more than the bounds of
    /// this side.
    fn inject(&mut self, kind: u8, value: u32) {
        let setting = |name: u8, value: u32| [&[0, name][..], &value.to_be_bytes()].concat();
        let (kind, stream, payload) = match kind & 7 {
            0 => (6, 0, [7; 8].to_vec()),
            1 => (4, 0, setting(4, value.min(self.stream_window))),
            2 => (4, 0, setting(4, self.stream_window)),
            3 => (4, 0, setting(1, value.min(self.bounds.table_bytes))),
            4 => (4, 0, [setting(1, 0), setting(1, self.bounds.table_bytes)].concat()),
            5 if self.role == Role::Client => (16, 0, [&value.max(1).to_be_bytes()[..], b"u=1, i"].concat()),
            5 => (4, 0, setting(3, value.min(self.bounds.streams))),
            6 => (0x77, value, Vec::new()),
            _ => (2, value | 1, (value & !1).to_be_bytes().into_iter().chain([0]).collect()),
        };
        if !self.failed {
            self.has_injected |= kind == 4;
            self.out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
            self.out.extend([kind, 0]);
            self.out.extend(stream.to_be_bytes());
            self.out.extend(payload);
        }
    }

    /// Narrows the windows of the streams that the peer begins from now on. The peer's acknowledgements of injected SETTINGS
    /// would count as those of these.
    fn narrow(&mut self, size: u32) {
        if self.failed || self.has_injected {
            return;
        }
        let before = self.out.len();
        match self.connection.narrow_streams(size, &mut self.out) {
            true => self.stream_window = size,
            false => assert_eq!(self.out.len(), before, "nothing is sent"),
        }
    }

    fn text(&self, span: Span) -> alloc::string::String {
        alloc::string::String::from_utf8_lossy(span.of(&self.fields)).into_owned()
    }

    /// Returns the lent head in the form in which the sender recorded it.
    fn head_text(&self) -> Text {
        Text(match self.role {
            Role::Client => format!("{}", self.head.status).into_bytes(),
            Role::Server => {
                let (method, path) = (self.text(self.head.method_span), self.text(self.head.target.path));
                let [x, z] = [b"x", b"z"].map(|name| self.head.field(&self.fields, name).map_or(0, <[u8]>::len));
                assert_eq!(x, z, "two fields of the same value");
                format!("{method} {path} {x}").into_bytes()
            }
        })
    }
}

struct Pair {
    sides: [Side; 2],
}

impl Pair {
    /// Performs an operation. Its highest bit chooses the side, its lower bits the action.
    fn operate(&mut self, operation: u8, operations: &mut Operations<'_>) {
        let at = usize::from(operation >> 7);
        let (first, second) = (operations.byte(), operations.byte());
        let stream = self.sides[at].pick(first);
        let side = &mut self.sides[at];
        match (operation & 15, stream) {
            (0, _) => self.deliver(at, usize::from(first) + 1),
            (1, _) => self.deliver(at, usize::from(first) * 200 + 1),
            (2, _) => side.ask(first, second),
            (3, Some(stream)) => side.answer(stream, second, u64::from(operations.byte()) * 16),
            (4 | 5, Some(stream)) => side.send(stream, usize::from(second) * 9, operation & 1 != 0),
            (6, Some(stream)) => side.send_trailers(stream),
            (7, Some(stream)) => {
                side.send_reset(stream, [Code::Cancel, Code::NoError, Code::Connect][usize::from(second) % 3])
            }
            (8, _) => side.use_up(first & 1 != 0),
            (9, _) => side.drop_held(),
            (10, _) if !side.failed => side.connection.go_away(&mut side.out),
            (11, _) => side.inject(first, second.into()),
            (12, _) => side.connection.shrink(),
            (13, _) => {
                side.second += u32::from(first);
                side.connection.set_second(side.second);
            }
            (14, _) if !side.failed && first == 0xff => {
                side.connection.fail(Failure { code: Code::Internal, text: "" }, &mut side.out);
                side.failed = true;
            }
            (15, _) => side.narrow(u32::from(second) * 16 + 1),
            _ => self.deliver(at, usize::MAX),
        }
    }

    /// Moves up to `bytes` bytes from one side to the other, which reads them.
    fn deliver(&mut self, from: usize, bytes: usize) {
        let [client, server] = &mut self.sides;
        let (from, to) = if from == 0 { (client, server) } else { (server, client) };
        let bytes = bytes.min(from.out.len());
        to.window.extend(from.out.drain(..bytes));
        let window = core::mem::take(&mut to.window);
        let (mut at, mut idle) = (0, 0);
        while !to.failed {
            let Side { connection, head, fields, out, limits, .. } = to;
            let received = match connection.receive(&window[at..], &mut Lent { head, fields, out, limits }) {
                Ok(received) => received,
                Err(failure) => {
                    let fired = connection.fired();
                    assert!(fired.is_some(), "{:?} finds an error of the other side: {failure:?}", to.role);
                    assert_eq!(failure.code, Code::EnhanceYourCalm, "{fired:?}");
                    to.failed = true;
                    break;
                }
            };
            at += received.consumed;
            if received.event == Event::NeedMore {
                break;
            }
            idle = if received.consumed == 0 { idle + 1 } else { 0 };
            assert!(idle <= 1 << 10, "events without an end");
            hear(to, from, received.event);
            at += take_whole_body(to, from, received.event, &window[at..]);
        }
        if !to.failed {
            to.window = window[at..].to_vec();
        }
    }

    /// Lets both sides end what they have begun, and checks that nothing is left.
    fn finish(&mut self) {
        for side in &mut self.sides {
            side.inject(2, 0);
            if side.role == Role::Server {
                side.inject(5, u32::MAX);
            }
        }
        let mut turns = 0;
        loop {
            let mut streams = 0;
            for at in [0, 1] {
                self.deliver(at, usize::MAX);
                let side = &mut self.sides[at];
                side.use_up(true);
                // Forgets the streams that are over.
                side.pick(0);
                for stream in side.streams.clone() {
                    if side.connection.is_open(stream) && !side.failed {
                        streams += 1;
                        side.answer(stream, 0, 0);
                        side.send(stream, if side.promised.contains_key(&stream.number) { 5_000 } else { 0 }, true);
                    }
                }
                side.check_bounds();
            }
            if self.sides.iter().any(|side| side.failed) {
                // The failed side ignores further bytes, and the other side receives the GOAWAY.
                (0..2).for_each(|at| self.deliver(at, usize::MAX));
                return self.sides.iter().for_each(Side::check_bounds);
            }
            if streams == 0 && self.sides.iter().all(|side| side.out.is_empty()) {
                break;
            }
            turns += 1;
            assert!(turns < MOST_TURNS, "{streams} streams do not end");
        }
        self.check_end();
    }

    fn check_end(&mut self) {
        let [client, server] = &mut self.sides;
        for side in [&*client, server] {
            assert_eq!(side.connection.open_streams(), 0, "{:?} has streams left", side.role);
            assert!(side.window.is_empty() && side.held.is_empty(), "{:?} has bytes left", side.role);
        }
        for (number, asked) in &client.said {
            let reset = client.reset.contains_key(number) || server.reset.contains_key(number);
            if let (false, Some(heard)) = (reset, server.heard.get(number)) {
                assert_eq!((heard, client.heard.get(number)), (asked, server.said.get(number)), "stream {number}");
            }
        }
        // The windows are as at the start, except for used-up bytes that are not given back yet, which are less than
        // half of a window.
        client.ask(1, 0);
        let Some(stream) = client.pick(0) else { return };
        let least = |side: &Side| {
            let whole = side.bounds.connection_window.max(FIRST_WINDOW);
            side.stream_window.min(whole - whole / 2) as usize
        };
        let capacity = client.connection.capacity(stream);
        assert!(capacity >= least(server), "the server's windows allow only {capacity} bytes");
        let least = least(client);
        self.deliver(0, usize::MAX);
        let server = &mut self.sides[1];
        let capacity = server.pick(0).map(|stream| server.connection.capacity(stream));
        assert!(
            server.failed || capacity.is_some_and(|capacity| capacity >= least),
            "the client's windows allow only {capacity:?} bytes"
        );
    }
}

/// Takes the body of every other response at once, if all of it came with its head. Returns the number of used bytes.
fn take_whole_body(to: &mut Side, from: &Side, head: Event<'_>, window: &[u8]) -> usize {
    let Event::Head(stream, Length::Exact(length)) = head else { return 0 };
    if to.role == Role::Server || stream.number % 4 == 1 {
        return 0;
    }
    let taken = to.connection.take_whole_body(stream, length, window, &mut to.out);
    let Some((data, used)) = taken else { return 0 };
    hear(to, from, Event::Data(stream, data));
    // The bytes count as used up.
    to.held.pop();
    hear(to, from, Event::End(stream, false));
    used
}

/// Checks that an event matches what the other side has sent, and records it.
fn hear(to: &mut Side, from: &Side, event: Event<'_>) {
    let said = |stream: StreamRef| from.said.get(&stream.number).expect("the other side has sent a message");
    match event {
        Event::Head(stream, _) | Event::Interim(stream) => {
            let (head, is_final) = (to.head_text(), matches!(event, Event::Head(..)));
            if to.role == Role::Server {
                to.streams.push(stream);
            }
            let heard = to.heard.entry(stream.number).or_default();
            heard.ended = is_final && to.head.length == Length::Empty;
            assert_eq!(said(stream).heads.get(heard.heads.len()), Some(&head), "the head differs from the one sent");
            heard.heads.push(head);
            assert!(!heard.ended || said(stream).ended, "the message ends before its sender ended it");
        }
        Event::Data(stream, data) => {
            let heard = to.heard.entry(stream.number).or_default();
            assert_eq!(data, body(stream.number, heard.bytes, data.len()), "the bytes differ from those sent");
            heard.bytes += data.len() as u64;
            assert!(heard.bytes <= said(stream).bytes, "more bytes than were sent");
            to.held.push((stream, data.len()));
        }
        Event::End(stream, trailers) => {
            let heard = to.heard.entry(stream.number).or_default();
            (heard.ended, heard.trailers) = (true, trailers);
            assert_eq!(heard, said(stream), "the message differs from the one sent");
        }
        Event::Reset(stream, code) => {
            assert!(!to.connection.is_open(stream), "the stream is still open");
            let refused = to.role == Role::Client && code == Code::Refused && !from.heard.contains_key(&stream.number);
            assert!(
                refused || from.reset.get(&stream.number) == Some(&code),
                "{:?}: the other side has not sent {code:?} for {stream:?}",
                to.role
            );
        }
        Event::Refused(stream, error) => panic!("{error:?} on {stream:?}"),
        Event::NeedMore | Event::Opened(_) | Event::AllOpened | Event::GoingAway => {}
    }
}
