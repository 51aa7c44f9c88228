//! Plays any bytes as frames to a server's HTTP/2 connection and records its behavior, so that two ways of cutting the
//! input can be compared.
//!
//! Our own side acts on events other than data, because the pieces of data depend on when bytes arrive. Pseudo-random
//! numbers choose the event after which it responds to a head, uses up bodies or resets a stream. At the end of the
//! input it uses up the remaining bodies and responds to the remaining heads.

use super::exchange::Script;
use super::{FieldText, Text};
use crate::h2::{Bounds, Code, Connection, Event, FRAME_BYTES, Failure, Lent, PREFACE, Priority, Schedule, StreamRef};
use crate::{Error, Head, Length, Role, Span};
use alloc::vec;
use alloc::vec::Vec;

/// Each body that our side sends has fewer bytes than this number.
const MOST_BODY_BYTES: u32 = 40_000;

/// The largest number of bytes that the connection itself may write per received byte. A frame head and one byte may
/// cause a reset and two window updates.
const MOST_OWN_BYTES: usize = 5;

/// The largest number of bytes that a connection may hold for its tables and for a field section, whose vector may have
/// more capacity than it needs.
const MOST_HELD_BYTES: usize = 256 * 1024;

/// An event on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Head(u32, Length, Text, Vec<FieldText>),
    Refused(u32, Error),
    /// All data of one stream between two other events.
    Data(u32, Text),
    End(u32, Vec<FieldText>),
    Reset(u32, Code),
    Opened(u32),
    AllOpened,
    GoingAway,
    Failed(Failure),
}

/// The record of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Transcript {
    seen: Vec<Seen>,
    /// The number of bytes consumed at the end; `None` after a failure.
    consumed: Option<usize>,
    output: Text,
    streams: usize,
}

/// A body that is being sent.
struct Sending {
    stream: StreamRef,
    rest: Vec<u8>,
    trailers: bool,
}

struct Player<'s> {
    script: &'s Script,
    connection: Connection,
    bounds: Bounds,
    head: Head,
    fields: Vec<u8>,
    out: Vec<u8>,
    window: Vec<u8>,
    seen: Vec<Seen>,
    consumed: usize,
    /// The number of bytes that the connection itself has written.
    own: usize,
    /// The streams without a response, each with true if its request asks for a tunnel.
    waiting: Vec<(StreamRef, bool)>,
    held: Vec<(StreamRef, usize)>,
    sending: Vec<Sending>,
    schedule: Schedule,
    random: u32,
}

/// Plays frames to a server, after the preface. Asserts that whole and cut input give the same record, and that the
/// connection stays within its bounds.
///
/// # Panics
/// Panics if one of these does not hold.
pub fn http2(input: &[u8]) {
    let (Some((script, bytes)), Some(&options)) = (Script::from_input(input), input.first()) else { return };
    let settings: &[u8] = if options & 2 != 0 { &[0, 0, 0, 4, 0, 0, 0, 0, 0] } else { &[] };
    let bytes = [PREFACE, settings, bytes].concat();
    let random = input.iter().take(4).fold(options.into(), |sum: u32, &byte| sum.wrapping_mul(31) + u32::from(byte));
    let whole = play(&script, options, random, &[&bytes]);
    let cut = play(&script, options, random, &script.cut(&bytes));
    assert_eq!(whole, cut, "whole (left) and cut (right) differ");
    check_windows(&bytes, &whole);
}

fn play(script: &Script, options: u8, random: u32, pieces: &[&[u8]]) -> Transcript {
    let small = Bounds { streams: 4, stream_window: 64, table_bytes: 128, continuations: 2, ..Bounds::default() };
    let bounds = if options & 4 != 0 { small } else { Bounds::default() };
    let mut out = Vec::new();
    let mut player = Player {
        script,
        connection: Connection::new(Role::Server, bounds, &script.limits, &mut out),
        bounds,
        head: Head::default(),
        fields: Vec::new(),
        out,
        window: Vec::new(),
        seen: Vec::new(),
        consumed: 0,
        own: 0,
        waiting: Vec::new(),
        held: Vec::new(),
        sending: Vec::new(),
        schedule: Schedule::default(),
        random,
    };
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let failed = pieces.iter().any(|piece| {
        player.window.extend_from_slice(piece);
        player.receive(2 * total + 16)
    });
    if !failed {
        player.finish();
    }
    Transcript {
        seen: player.seen,
        consumed: (!failed).then_some(player.consumed),
        output: Text(player.out),
        streams: player.connection.open_streams(),
    }
}

impl Player<'_> {
    /// Reads events until the received bytes hold no more. Returns true if the connection failed.
    fn receive(&mut self, most: usize) -> bool {
        let window = core::mem::take(&mut self.window);
        let mut at = 0;
        for _ in 0..most {
            let (rest, before) = (&window[at..], self.out.len());
            let Player { connection, head, fields, out, script, .. } = self;
            let mut lent = Lent { head, fields, out, limits: &script.limits };
            let received = connection.receive(rest, &mut lent);
            self.own += self.out.len() - before;
            let received = match received {
                Ok(received) => received,
                Err(failure) => {
                    self.failed(failure, rest);
                    return true;
                }
            };
            assert!(received.consumed <= rest.len(), "{} of {} bytes are consumed", received.consumed, rest.len());
            at += received.consumed;
            self.consumed += received.consumed;
            self.check_bounds(self.consumed);
            if received.event == Event::NeedMore {
                self.window = window[at..].to_vec();
                return false;
            }
            self.came(received.event, &rest[..received.consumed]);
        }
        panic!("{most} events without an end");
    }

    fn check_bounds(&self, came: usize) {
        assert!(self.own <= MOST_OWN_BYTES * came + 200, "{} bytes are written for {came}", self.own);
        assert!(self.connection.open_streams() <= self.bounds.streams as usize, "more streams than allowed");
        assert!(self.connection.held() <= MOST_HELD_BYTES, "{} bytes are held", self.connection.held());
        assert!(self.fields.capacity() <= MOST_HELD_BYTES, "{} bytes of fields", self.fields.capacity());
    }

    /// Checks that nothing is read or written after a failure.
    fn failed(&mut self, failure: Failure, rest: &[u8]) {
        self.check_bounds(self.consumed + rest.len());
        let Player { connection, head, fields, out, script, .. } = self;
        let before = out.len();
        let again = connection.receive(rest, &mut Lent { head, fields, out, limits: &script.limits });
        assert!(again.is_err(), "something is read after {failure:?}");
        assert_eq!(out.len(), before, "something is written after {failure:?}");
        let calm = failure.code == Code::EnhanceYourCalm;
        assert!(calm || connection.fired().is_none(), "{failure:?} although {:?} ran out", connection.fired());
        self.seen.push(Seen::Failed(failure));
    }

    fn came(&mut self, event: Event<'_>, bytes: &[u8]) {
        let seen = match event {
            Event::Data(stream, data) => return self.data_came(stream, data, bytes),
            Event::NeedMore => return,
            Event::Interim(stream) => panic!("an interim response from a client on {stream:?}"),
            Event::Head(stream, length) => {
                assert_eq!(length, self.head.length, "the event's length is the head's");
                assert!(self.connection.is_open(stream), "a head of a stream that is over");
                assert_eq!(length != Length::Empty, self.connection.awaits_body(stream), "a body is awaited");
                self.waiting.push((stream, self.head.upgrade));
                let fields = self.read_fields();
                assert!(fields.len() <= usize::from(self.script.limits.field_count), "too many fields");
                Seen::Head(stream.number, length, self.text(self.head.target.whole), fields)
            }
            Event::Refused(stream, error) => {
                assert!(matches!(error.status(), 400..500), "a refusal has a status of 4xx");
                self.waiting.push((stream, false));
                Seen::Refused(stream.number, error)
            }
            Event::End(stream, trailers) => {
                assert!(!self.connection.awaits_body(stream), "more of a body that has ended");
                let fields = if trailers { self.read_fields() } else { Vec::new() };
                assert_eq!(trailers, !fields.is_empty(), "the flag and the trailer fields disagree");
                Seen::End(stream.number, fields)
            }
            Event::Reset(stream, code) => {
                assert!(!self.connection.is_open(stream), "a stream is open after its reset");
                Seen::Reset(stream.number, code)
            }
            Event::Opened(stream) => Seen::Opened(stream.number),
            Event::AllOpened => Seen::AllOpened,
            Event::GoingAway => Seen::GoingAway,
        };
        self.seen.push(seen);
        self.act();
    }

    fn data_came(&mut self, stream: StreamRef, data: &[u8], bytes: &[u8]) {
        assert!(!data.is_empty(), "data without a byte");
        let (part, whole) = (data.as_ptr_range(), bytes.as_ptr_range());
        assert!(whole.start <= part.start && part.end <= whole.end, "data lies outside of the consumed bytes");
        assert!(self.connection.awaits_body(stream), "data of a stream that has ended");
        match self.held.last_mut() {
            Some((other, held)) if *other == stream => *held += data.len(),
            _ => self.held.push((stream, data.len())),
        }
        match self.seen.last_mut() {
            Some(Seen::Data(number, before)) if *number == stream.number => before.0.extend_from_slice(data),
            _ => self.seen.push(Seen::Data(stream.number, Text(data.to_vec()))),
        }
    }

    fn text(&self, span: Span) -> Text {
        assert!(span.start <= span.end && usize::from(span.end) <= self.fields.len(), "{span:?} leaves the fields");
        Text(span.of(&self.fields).to_vec())
    }

    /// Returns the fields of the lent head. Panics if one of them would be read differently in HTTP/1.
    fn read_fields(&self) -> Vec<FieldText> {
        let read = self.head.fields.iter().map(|field| (self.text(field.name), self.text(field.value)));
        let fields: Vec<FieldText> = read.collect();
        for (Text(name), Text(value)) in &fields {
            let token = |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && *byte != b':';
            assert!(!name.is_empty() && name.iter().all(token), "the name {}", name.escape_ascii());
            assert!(!value.iter().any(|byte| b"\r\n\0".contains(byte)), "the value {}", value.escape_ascii());
            assert!(!matches!(&name[..], b"connection" | b"transfer-encoding" | b"upgrade"), "a connection's field");
        }
        fields
    }

    /// Returns the next pseudo-random number below a bound.
    fn below(&mut self, bound: u32) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.random >> 16) % bound
    }

    /// Lets our side act after an event.
    fn act(&mut self) {
        if self.below(2) == 0 {
            self.use_up();
        }
        for (stream, asks) in core::mem::take(&mut self.waiting) {
            match self.below(4) {
                0 => self.waiting.push((stream, asks)),
                _ => self.answer(stream, asks),
            }
        }
        if self.below(8) != 0 {
            self.flush();
        }
        match self.below(64) {
            0 => self.connection.go_away(&mut self.out),
            1 => self.connection.shrink(),
            _ => {}
        }
    }

    fn finish(&mut self) {
        self.use_up();
        for (stream, asks) in core::mem::take(&mut self.waiting) {
            self.answer(stream, asks);
        }
        self.flush();
    }

    fn use_up(&mut self) {
        for (stream, bytes) in core::mem::take(&mut self.held) {
            self.connection.used(stream, bytes, &mut self.out);
        }
    }

    fn answer(&mut self, stream: StreamRef, asks_for_a_tunnel: bool) {
        let (kind, bytes) = (self.below(6), self.below(MOST_BODY_BYTES));
        let priority = self.connection.priority(stream);
        let Player { connection, out, .. } = self;
        let is_open = connection.is_open(stream);
        let (length, body, trailers) = match kind {
            0 => return connection.reset(stream, Code::Cancel, out),
            1 => {
                let interim = connection.send_interim(stream, 103, out, |_| {});
                assert_eq!(interim.is_ok(), is_open, "an interim response can be sent if a response is due");
                (Length::Empty, 0, false)
            }
            2 => (Length::Exact(u64::from(bytes)), bytes, false),
            3 => (Length::Unknown, bytes % 100, false),
            _ => (Length::Unknown, bytes % 1000, true),
        };
        let status = if bytes % 50 == 0 { 304 } else { 200 };
        let tunnels = asks_for_a_tunnel && status == 200;
        // A tunnel has neither a length nor trailers.
        let (length, trailers) = match length {
            Length::Exact(_) if tunnels => (Length::Unknown, false),
            length => (length, trailers && !tunnels),
        };
        let withheld = connection.withholds_body(stream, status) || matches!(length, Length::Empty | Length::Exact(0));
        let answer = connection.send_response(stream, status, length, out, |fields| fields.field(b"x", b"y"));
        assert_eq!(answer.is_ok(), is_open, "a response can be sent if one is due: {answer:?}");
        let ended = !connection.is_open(stream);
        assert!(ended || connection.is_tunnel(stream) == tunnels, "an accepted CONNECT is a tunnel");
        if is_open && !withheld {
            self.schedule.add(stream, priority);
            self.sending.push(Sending { stream, rest: vec![b'a'; body as usize], trailers });
        }
    }

    /// Sends as much as the windows allow, the most urgent streams first.
    fn flush(&mut self) {
        let mut again: Vec<(StreamRef, Priority)> = Vec::new();
        while let Some(stream) = self.schedule.take_next() {
            let at = self.sending.iter().position(|sending| sending.stream == stream).expect("the stream was added");
            let mut sending = self.sending.swap_remove(at);
            let Player { connection, out, .. } = self;
            if !connection.is_open(stream) {
                continue;
            }
            let capacity = connection.capacity(stream);
            let ends = !sending.trailers;
            let sent = connection.send_data(stream, &sending.rest, ends, out).expect("a body is due");
            assert_eq!(sent, sending.rest.len().min(capacity), "as much as the windows allow");
            sending.rest.drain(..sent);
            if !sending.rest.is_empty() {
                assert_eq!(connection.capacity(stream), 0, "a body waits although the window is open");
                again.push((stream, connection.priority(stream)));
                self.sending.push(sending);
            } else if sending.trailers {
                connection.send_trailers(stream, out, |fields| fields.field(b"t", b"v")).expect("the body is over");
            }
        }
        again.into_iter().for_each(|(stream, priority)| self.schedule.put_back(stream, priority));
    }
}

/// Returns the kind, stream and payload of each whole frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((head[3], u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]), payload));
        bytes = rest;
    }
    frames
}

/// Returns the number of bytes by which WINDOW_UPDATE frames widened the window of a stream, or of the connection if
/// `stream` is 0.
fn opened(frames: &[(u8, u32, &[u8])], stream: u32) -> u64 {
    let updates = frames.iter().filter(|frame| frame.0 == 8 && frame.1 == stream);
    updates
        .map(|frame| frame.2.first_chunk().map_or(0, |bytes| u64::from(u32::from_be_bytes(*bytes) & 0x7fff_ffff)))
        .sum()
}

/// Checks the frames that our side wrote, and that neither side sent more than the other's window of the connection
/// allowed. Does not use the connection's own counts.
fn check_windows(input: &[u8], transcript: &Transcript) {
    let (theirs, ours) = (frames(&input[PREFACE.len()..]), frames(&transcript.output.0));
    let written: usize = ours.iter().map(|frame| 9 + frame.2.len()).sum();
    assert_eq!(written, transcript.output.0.len(), "whole frames are written");
    assert!(ours.iter().all(|frame| frame.0 != 0 || frame.2.len() <= FRAME_BYTES as usize), "a frame is too large");
    let sent: u64 = ours.iter().filter(|frame| frame.0 == 0).map(|frame| frame.2.len() as u64).sum();
    assert!(sent <= 65_535 + opened(&theirs, 0), "{sent} bytes are sent");
    let updates = ours.iter().filter(|frame| frame.0 == 8);
    assert!(updates.clone().all(|frame| frame.2 != [0; 4]), "a WINDOW_UPDATE has an increment of 0");
    let mut received = 0;
    for seen in &transcript.seen {
        if let Seen::Data(_, data) = seen {
            received += data.0.len() as u64;
        }
    }
    let most = u64::from(Bounds::default().connection_window) + opened(&ours, 0);
    assert!(received <= most, "{received} bytes are received, but only {most} are allowed");
    let ends = ours.iter().filter(|frame| frame.0 == 7 && frame.2[4..8] != [0; 4]).count();
    let failed = matches!(transcript.seen.last(), Some(Seen::Failed(_)));
    assert_eq!(ends, usize::from(failed), "a connection that fails sends one GOAWAY with an error");
}
