//! Plays a connection from its first byte to its last and records it, so that two ways of cutting the input can be
//! compared.
//!
//! Our own side follows a script that the options choose, and acts only on events. A server responds when a request is
//! complete, or earlier if `early` is set. A client sends its next request when it may. The record thus does not depend
//! on when bytes arrive.

use super::{FieldText, Oracle, Text, scanners};
use crate::h1::state::State;
use crate::h1::{Connection, Request, Response, unfold};
use crate::{Error, Event, Form, Head, Known, Length, Limits, Role, Span, Version};
use alloc::vec::Vec;

/// The number of bytes at the front of an input that choose how the rest is played.
pub const HEADER_BYTES: usize = 4;

/// An incomplete head of at least this many bytes is not always parsed again when bytes arrive. If such a head is
/// invalid and the input ends before it is parsed again, the connection reports it as truncated.
const LAZY_BYTES: usize = 1024;

/// The largest number of requests that a client sends on one connection.
const REQUESTS: usize = 4;

/// The limits and the behavior of our side, as an input's header chooses them.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) limits: Limits,
    /// True if a server responds when the head has arrived, or if a client ends the request when the response's head
    /// has arrived.
    early: bool,
    /// True if a server accepts a proposed protocol, or if a client proposes one.
    switch: bool,
    /// True if a server sends an interim response to each request with a body, even if the client does not expect one.
    interim: bool,
    /// True if each exchange is the last one of its connection.
    last: bool,
    /// The kind of message that we send, one of four.
    kind: u8,
    pieces: [usize; 3],
}

impl Script {
    /// Returns the script and the rest of the input, or `None` if the header is incomplete.
    pub(super) fn from_input(input: &[u8]) -> Option<(Script, &[u8])> {
        let (&[options, first, second, third], rest) = input.split_first_chunk()?;
        let small = Limits {
            small_chunks: 3,
            head_bytes: 160,
            target_bytes: 24,
            field_bytes: 40,
            field_count: 4,
            empty_lines: 1,
            chunk_extension_bytes: 12,
            trailer_bytes: 48,
        };
        let script = Script {
            limits: if options & 1 != 0 { small } else { Limits::default() },
            early: options & 2 != 0,
            switch: options & 4 != 0,
            interim: options & 8 != 0,
            last: options & 16 != 0,
            kind: options >> 5 & 3,
            pieces: [first, second, third].map(|length| usize::from(length) + 1),
        };
        Some((script, rest))
    }

    /// Cuts the bytes into pieces whose lengths are in turn those in `pieces`.
    pub(super) fn cut<'b>(&self, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut pieces = Vec::new();
        for length in self.pieces.iter().cycle() {
            let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
            if bytes.is_empty() {
                break;
            }
        }
        pieces
    }
}

/// An event on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A head, and the bytes that it was read from.
    Head(Head, Text),
    Interim(Head, Text),
    /// All data between two other events.
    Data(Text),
    /// The end of a body, with its trailers.
    End(Vec<FieldText>),
    Closed,
    Refused(Error),
}

/// The record of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transcript {
    /// Each step, and the number of input bytes consumed by then; 0 for an error that `receive` returned.
    pub(super) steps: Vec<(usize, Step)>,
    /// The number of bytes consumed at the end; `None` if `receive` returned an error.
    consumed: Option<usize>,
    /// The unread bytes, if a head was incomplete at the end.
    waiting: Option<Text>,
    output: Text,
    states: (State, State),
}

struct Player<'s> {
    script: &'s Script,
    role: Role,
    connection: Connection,
    head: Head,
    window: Vec<u8>,
    steps: Vec<(usize, Step)>,
    consumed: usize,
    output: Vec<u8>,
    requests: usize,
    answered: bool,
}

/// Plays a connection whose input arrives in these pieces.
///
/// # Panics
/// Panics if the connection contradicts itself or its documentation.
pub(super) fn play(role: Role, script: &Script, pieces: &[&[u8]]) -> Transcript {
    let mut player = Player {
        script,
        role,
        connection: Connection::new(role),
        head: Head::default(),
        window: Vec::new(),
        steps: Vec::new(),
        consumed: 0,
        output: Vec::new(),
        requests: 0,
        answered: false,
    };
    if role == Role::Client {
        player.ask();
    }
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let refused = pieces.iter().any(|piece| {
        player.window.extend_from_slice(piece);
        player.receive(2 * total + 16).is_err()
    });
    player.finish(refused)
}

impl Player<'_> {
    /// Reads events until the received bytes hold no more.
    fn receive(&mut self, most: usize) -> Result<(), Error> {
        let mut window = core::mem::take(&mut self.window);
        let mut at = 0;
        for _ in 0..most {
            let rest = &window[at..];
            let received = match self.connection.receive(rest, &mut self.head, &self.script.limits) {
                Ok(received) => received,
                Err(error) => {
                    self.refused(error, rest);
                    return Err(error);
                }
            };
            let used = received.consumed;
            assert!(used <= rest.len(), "{used} of {} bytes are consumed", rest.len());
            at += used;
            self.consumed += used;
            let bytes = &rest[..used];
            match received.event {
                Event::NeedMore | Event::Paused => {
                    assert!(received.event == Event::NeedMore || used == 0, "Paused consumes bytes");
                    self.window = window[at..].to_vec();
                    return Ok(());
                }
                Event::Folded => {
                    assert!(self.role == Role::Client, "a request's folded lines are an error");
                    let mut unfolded = window.clone();
                    unfold(&mut unfolded[at..]);
                    assert_ne!(unfolded, window, "there are no folded lines");
                    window = unfolded;
                }
                Event::Head(length) => {
                    assert_eq!(length, self.head.length, "the event's length is the head's");
                    self.look_at_head(bytes);
                    self.steps.push((self.consumed, Step::Head(self.head.clone(), Text(bytes.to_vec()))));
                    self.head_came(length);
                }
                Event::Interim => {
                    self.look_at_head(bytes);
                    self.steps.push((self.consumed, Step::Interim(self.head.clone(), Text(bytes.to_vec()))));
                }
                Event::Data(data) => {
                    assert!(!data.is_empty(), "data without a byte");
                    assert!(within(data, bytes), "data lies outside of the consumed bytes");
                    self.data_came(data);
                }
                Event::End { trailers } => {
                    let fields = if trailers { self.fields(bytes) } else { Vec::new() };
                    assert_eq!(trailers, !fields.is_empty(), "the flag and the trailer fields disagree");
                    self.steps.push((self.consumed, Step::End(fields)));
                    self.message_ended();
                }
                Event::Closed => panic!("Closed although the input has not ended"),
            }
        }
        panic!("{most} events without an end");
    }

    fn data_came(&mut self, data: &[u8]) {
        if let Some((consumed, Step::Data(before))) = self.steps.last_mut() {
            *consumed = self.consumed;
            before.0.extend_from_slice(data);
        } else {
            self.steps.push((self.consumed, Step::Data(Text(data.to_vec()))));
        }
    }

    /// Returns the fields as text. Asserts that every span lies in the bytes.
    fn fields(&self, bytes: &[u8]) -> Vec<FieldText> {
        let text = |span: Span| {
            assert!(span.start <= span.end && usize::from(span.end) <= bytes.len(), "{span:?} leaves the window");
            Text(span.of(bytes).to_vec())
        };
        self.head.fields.iter().map(|field| (text(field.name), text(field.value))).collect()
    }

    fn look_at_head(&self, bytes: &[u8]) {
        let head = &self.head;
        let mut spans = [head.reason, Span::default(), Span::default(), Span::default(), Span::default()];
        if self.role == Role::Server {
            let target = head.target;
            spans = [head.method_span, target.whole, target.path, target.query.unwrap_or_default(), target.authority];
            assert!(!head.method_span.is_empty() && !target.whole.is_empty(), "a request without method or target");
        }
        for span in spans {
            assert!(span.start <= span.end && usize::from(span.end) <= bytes.len(), "{span:?} leaves the head");
        }
        for (Text(name), Text(value)) in self.fields(bytes) {
            assert!(!name.is_empty(), "a field without a name");
            assert_eq!(value.trim_ascii(), value, "white space around a value");
        }
        assert!(head.fields.len() <= usize::from(self.script.limits.field_count), "too many fields");
        assert!(bytes.len() <= self.script.limits.head_bytes as usize, "too large a head");
    }

    fn head_came(&mut self, length: Length) {
        if self.role == Role::Client {
            if self.script.early && self.connection.client() == State::SendsBody {
                self.connection.send_end(&mut self.output, |_| {}).expect("the request can be ended late");
            }
            return if length == Length::Empty {
                self.ask()
            };
        }
        self.answered = false;
        if self.script.last {
            self.connection.close_after();
        }
        if length == Length::Empty {
            self.answer();
        } else {
            if self.script.interim || self.head.expects_continue {
                self.connection.send_interim(100, &mut self.output, |_| {}).expect("a response is due");
            }
            if self.script.early {
                self.answer();
            }
        }
    }

    fn message_ended(&mut self) {
        match self.role {
            Role::Client => self.ask(),
            Role::Server if self.answered => {}
            Role::Server => self.answer(),
        }
    }

    fn answer(&mut self) {
        self.answered = true;
        let Player { script, connection, output, .. } = self;
        if script.switch && connection.client() == State::MaySwitch {
            let status = if connection.accept(200, output, |_| {}).is_ok() { 200 } else { 101 };
            if status == 101 {
                connection.accept(101, output, |_| {}).expect("a proposed protocol can be accepted");
            }
            assert_eq!((connection.client(), connection.server()), (State::Switched, State::Switched));
            return;
        }
        let (length, body) = match script.kind {
            0 => (Length::Empty, &b""[..]),
            1 => (Length::Exact(3), &b"abc"[..]),
            2 => (Length::Unknown, &b"abc"[..]),
            _ => (Length::Exact(0), &b""[..]),
        };
        let response = Response { status: 200, reason: None, length };
        connection.send_response(response, output, |fields| fields.field(b"X", b"y")).expect("a response is due");
        connection.send_data(body, output).expect("a body is due");
        connection.send_end(output, |_| {}).expect("the body has the announced length");
    }

    fn ask(&mut self) {
        let Player { script, connection, output, .. } = self;
        let idle = connection.client() == State::Idle && connection.server() == State::Idle;
        if !idle || self.requests == REQUESTS {
            return;
        }
        self.requests += 1;
        let (method, target, upgrade) = match script.kind {
            0 => ("GET", "/", false),
            1 => ("HEAD", "/", false),
            2 => ("CONNECT", "a:1", true),
            _ => ("POST", "/", script.switch),
        };
        let length = if script.early { Length::Unknown } else { Length::Empty };
        let version = Version::Http11;
        let request = Request { method, target, version, length, keep_alive: !script.last, upgrade };
        connection.send_request(request, output, |fields| fields.field(b"Host", b"a")).expect("both sides are idle");
        if !script.early {
            connection.send_end(output, |_| {}).expect("a request without a body can be ended");
        }
    }

    /// Checks that nothing is read after an error, and that a server that has not responded may still do so.
    fn refused(&mut self, error: Error, rest: &[u8]) {
        let Player { connection, head, output, .. } = self;
        let again =
            connection.receive(rest, head, &self.script.limits).map(|received| (received.consumed, received.event));
        assert_eq!(again, Ok((0, Event::Paused)), "something is read after {error:?}");
        if self.role == Role::Server && matches!(connection.server(), State::Idle | State::AwaitsResponse) {
            let response = Response { status: error.status(), reason: None, length: Length::Empty };
            connection.send_response(response, output, |_| {}).expect("an error can be answered");
            connection.send_end(output, |_| {}).expect("an error can be answered");
        }
        assert!(!connection.keeps_alive(), "the connection is kept alive after {error:?}");
        if self.role == Role::Server {
            assert!(
                connection.must_close(),
                "must_close is false after {error:?}, with the server {:?}",
                connection.server()
            );
        }
        self.steps.push((0, Step::Refused(error)));
    }

    /// Handles the end of the input, and returns the record.
    fn finish(mut self, refused: bool) -> Transcript {
        let mut waiting = None;
        if !refused {
            let peer = if self.role == Role::Server { self.connection.client() } else { self.connection.server() };
            let wants_head = matches!(peer, State::Idle | State::AwaitsResponse) && !self.window.is_empty();
            waiting = wants_head.then(|| Text(self.window.clone()));
            let step = match self.connection.receive_end(&self.window) {
                Ok(Event::Closed) => Step::Closed,
                Ok(Event::End { trailers: false }) => Step::End(Vec::new()),
                Ok(event) => panic!("{event:?} at the end"),
                Err(error) => Step::Refused(error),
            };
            self.steps.push((self.consumed, step));
        }
        Transcript {
            steps: self.steps,
            consumed: (!refused).then_some(self.consumed),
            waiting,
            output: Text(self.output),
            states: (self.connection.client(), self.connection.server()),
        }
    }
}

fn within(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

/// Plays the input whole and cut, and compares the records.
pub(super) fn play_both_ways(role: Role, script: &Script, bytes: &[u8]) -> Transcript {
    let (whole, cut) = (play(role, script, &[bytes]), play(role, script, &script.cut(bytes)));
    let late = cut.waiting.as_ref().is_some_and(|waiting| waiting.0.len() >= LAZY_BYTES);
    if late && matches!(whole.steps.last(), Some((_, Step::Refused(_)))) {
        assert_eq!(whole.steps.len(), cut.steps.len(), "whole {:?}\ncut {:?}", whole.steps, cut.steps);
    } else {
        assert_eq!(whole, cut, "whole (left) and cut (right) differ");
    }
    whole
}

/// Plays requests. Asserts that whole and cut input give the same record, that `oracle` accepts each accepted head, and
/// that the machine's scanners agree.
///
/// # Panics
/// Panics if one of these does not hold.
pub fn request(input: &[u8], oracle: Oracle) {
    judge(Role::Server, input, oracle);
}

/// Plays responses, as [`request`] does requests. The client sends a request first.
///
/// # Panics
/// Panics as [`request`] does.
pub fn response(input: &[u8], oracle: Oracle) {
    judge(Role::Client, input, oracle);
}

fn judge(role: Role, input: &[u8], oracle: Oracle) {
    let Some((script, bytes)) = Script::from_input(input) else { return };
    scanners::agree(bytes);
    let transcript = play_both_ways(role, &script, bytes);
    for (_, step) in &transcript.steps {
        if let Step::Head(head, bytes) | Step::Interim(head, bytes) = step {
            compare(role, head, &bytes.0, oracle);
        }
    }
    if let Some(Text(waiting)) = &transcript.waiting {
        let other = oracle(waiting);
        assert_eq!(other, None, "we need more bytes of a head that the oracle accepts: {}", waiting.escape_ascii());
    }
}

/// Asserts that the oracle accepts a head that we accept, with the same parts. Evens out three differences of httparse,
/// which accepts only the minor versions 0 and 1, although later versions are to be read as 1 (RFC 9110 section 2.5);
/// returns an empty reason phrase if the phrase is not ASCII; and leaves Host as received, whereas our parser replaces
/// it by the authority of an absolute target.
fn compare(role: Role, head: &Head, bytes: &[u8], oracle: Oracle) {
    let mut patched = bytes.to_vec();
    let minor = match role {
        Role::Server => usize::from(head.target.whole.end) + " HTTP/1.".len(),
        Role::Client => "HTTP/1.".len(),
    };
    if bytes[minor] != b'0' {
        patched[minor] = b'1';
    }
    let version = Vec::from([patched[minor]]);
    let reason = Some(head.reason.of(bytes)).filter(|reason| reason.is_ascii()).unwrap_or_default();
    let mut parts = match role {
        Role::Server => Vec::from([head.method_span.of(bytes).to_vec(), head.target.whole.of(bytes).to_vec(), version]),
        Role::Client => Vec::from([version, alloc::format!("{}", head.status).into_bytes(), reason.to_vec()]),
    };
    for field in &head.fields {
        parts.extend([field.name.of(bytes).to_vec(), field.value.of(bytes).to_vec()]);
    }
    let mut theirs = oracle(&patched);
    if let Some((_, theirs)) = &mut theirs
        && role == Role::Server
        && head.target.form == Form::Absolute
        && let Some(at) = head.fields.iter().position(|field| field.known == Known::Host)
        && let Some(value) = theirs.get_mut(3 + 2 * at + 1)
    {
        *value = head.target.authority.of(bytes).to_vec();
    }
    assert_eq!(Some((bytes.len(), parts)), theirs, "we (left) and the oracle (right): {}", bytes.escape_ascii());
}
