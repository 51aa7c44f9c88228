//! For the tests of HTTP/2: frames as a peer sends them, and a side of a connection that acts on nothing but events.
//!
//! A server's side answers by the path. What either side sees is told in words, without what depends on when bytes arrive.
#![allow(dead_code, reason = "each test program uses a part of it")]

use proto::h2::{Bounds, Connection, Event, Failure, Lent, PREFACE, Request, StreamRef};
use proto::{Head, Length, Limits, Role};
use std::collections::BTreeMap;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

/// Flags, as far as more than one test has them: END_STREAM (and ACK), END_HEADERS, both, PADDED.
pub(crate) const END: u8 = 1;
pub(crate) const WHOLE: u8 = 4;
pub(crate) const ALL: u8 = 5;
pub(crate) const PADDED: u8 = 8;

/// Bytes of the body of `/large`.
pub(crate) const LARGE: usize = 200_000;

pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":path", "/hold"), (":authority", "h")];
pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "https"), (":path", "/hold"), (":authority", "h")];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// SETTINGS with these values.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let entry = |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &values.iter().flat_map(entry).collect::<Vec<u8>>())
}

/// A window that grows by so much.
pub(crate) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// A field section, each field spelled out: literals without indexing.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            match text.len().checked_sub(127) {
                None => bytes.push(text.len() as u8),
                Some(rest) => bytes.extend([127, rest as u8 | 0x80, (rest >> 7) as u8 | 0x80, (rest >> 14) as u8]),
            }
            bytes.extend(text.bytes());
        }
    }
    bytes
}

/// HEADERS in one frame.
pub(crate) fn headers(flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, WHOLE | flags, stream, &block(fields))
}

/// What a client begins with.
pub(crate) fn opening() -> Vec<u8> {
    [PREFACE, &settings(&[])].concat()
}

/// What a side has written, by frames: kind, flags, stream, payload.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, &[u8])> {
    bytes = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        frames.push((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), &rest[..length]));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "whole frames are written");
    frames
}

/// The number in the first four bytes of a payload.
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Ways to cut an input: all of them where it is short, and every 31st where it is not.
pub(crate) fn ways(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = proto::testing::splits(input);
    if input.len() > 1200 {
        let last = ways.len() - 1;
        ways = ways.into_iter().enumerate().filter(|(at, _)| *at == last || at % 31 == 0).map(|(_, way)| way).collect();
    }
    ways
}

/// A body that is being sent.
#[derive(Clone, Debug)]
struct Sending {
    stream: StreamRef,
    rest: Vec<u8>,
    trailers: bool,
}

/// One side.
pub(crate) struct Side {
    role: Role,
    pub(crate) connection: Connection,
    pub(crate) head: Head,
    pub(crate) fields: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) out: Vec<u8>,
    pub(crate) words: Vec<String>,
    pub(crate) failure: Option<Failure>,
    /// Bodies are not used up until somebody does so.
    pub(crate) holds: bool,
    pub(crate) held: Vec<(StreamRef, usize)>,
    window: Vec<u8>,
    sending: Vec<Sending>,
    paths: BTreeMap<u32, String>,
    bodies: BTreeMap<u32, Vec<u8>>,
}

impl Side {
    pub(crate) fn new(role: Role, bounds: Bounds) -> Side {
        let (limits, mut out) = (Limits::default(), Vec::new());
        Side {
            role,
            connection: Connection::new(role, bounds, &limits, &mut out),
            head: Head::default(),
            fields: Vec::new(),
            limits,
            out,
            words: Vec::new(),
            failure: None,
            holds: false,
            held: Vec::new(),
            window: Vec::new(),
            sending: Vec::new(),
            paths: BTreeMap::new(),
            bodies: BTreeMap::new(),
        }
    }

    pub(crate) fn server() -> Side {
        Side::new(Role::Server, Bounds::default())
    }

    pub(crate) fn client() -> Side {
        Side::new(Role::Client, Bounds::default())
    }

    /// Takes bytes, and acts on what they say, until there is no more in them. After a failure nothing is read.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.window.extend_from_slice(bytes);
        let window = std::mem::take(&mut self.window);
        let mut at = 0;
        while self.failure.is_none() {
            let Side { head, fields, out, limits, .. } = self;
            let mut lent = Lent { head, fields, out, limits };
            let received = match self.connection.receive(&window[at..], &mut lent) {
                Ok(received) => received,
                Err(failure) => {
                    self.words.push(format!("failed {:?}", failure.code));
                    self.failure = Some(failure);
                    return;
                }
            };
            at += received.consumed;
            if received.event == Event::NeedMore {
                break;
            }
            self.act(received.event);
        }
        self.window = window[at..].to_vec();
    }

    fn act(&mut self, event: Event<'_>) {
        match event {
            Event::NeedMore => {}
            Event::Head(stream, length) => self.head_came(stream, length),
            Event::Refused(stream, error) => {
                self.words.push(format!("{} refused {error:?}", stream.number));
                self.respond(stream, error.status(), b"no", false);
            }
            Event::Interim(stream) => self.words.push(format!("{} interim {}", stream.number, self.head.status)),
            Event::Data(stream, data) => {
                assert!(!data.is_empty(), "data has bytes");
                self.bodies.entry(stream.number).or_default().extend_from_slice(data);
                match self.holds {
                    true => self.held.push((stream, data.len())),
                    false => self.connection.used(stream, data.len(), &mut self.out),
                }
            }
            Event::End(stream, trailers) => {
                let body = self.bodies.remove(&stream.number).unwrap_or_default();
                let mut words = format!("{} end {}", stream.number, told(&body));
                if trailers {
                    words += &self.own_fields();
                }
                self.words.push(words);
                self.request_ended(stream, &body);
            }
            Event::Reset(stream, code) => self.words.push(format!("{} reset {code:?}", stream.number)),
            Event::Opened(_) | Event::AllOpened => self.flush(),
            Event::GoingAway => self.words.push("going away".into()),
        }
    }

    /// Fields that tests make up, all of which begin with `x`.
    fn own_fields(&self) -> String {
        let text = |span: proto::Span| String::from_utf8_lossy(span.of(&self.fields)).into_owned();
        let lines = self.head.fields.iter().map(|field| (text(field.name), text(field.value)));
        lines
            .filter(|(name, _)| name.starts_with('x'))
            .map(|(name, value)| format!(" {name}={}", told(value.as_bytes())))
            .collect()
    }

    fn head_came(&mut self, stream: StreamRef, length: Length) {
        let text = |span: proto::Span| String::from_utf8_lossy(span.of(&self.fields)).into_owned();
        let (method, target) = (text(self.head.method_span), text(self.head.target.whole));
        let protocol = text(self.head.protocol);
        let start = match self.role {
            Role::Client => self.head.status.to_string(),
            Role::Server if protocol.is_empty() => format!("{method} {target}"),
            Role::Server => format!("{method} {target} for {protocol}"),
        };
        self.words.push(format!("{} {start} {length:?}{}", stream.number, self.own_fields()));
        let tunnel = self.role == Role::Server && self.head.upgrade;
        self.paths.insert(stream.number, if tunnel { "/hold".into() } else { target });
        if tunnel {
            let Side { connection, out, .. } = self;
            connection.send_response(stream, 200, Length::Unknown, out, |_| {}).expect("an answer is due");
            connection.send_data(stream, b"hi", false, out).expect("a tunnel is open");
        } else if length == Length::Empty {
            self.request_ended(stream, b"");
        }
    }

    fn request_ended(&mut self, stream: StreamRef, body: &[u8]) {
        let path = self.paths.remove(&stream.number).unwrap_or_default();
        if self.role == Role::Client {
            return;
        }
        let Side { connection, out, .. } = self;
        match &*path {
            "/hold" => {}
            "/reset" => connection.reset(stream, proto::h2::Code::Internal, out),
            "/204" | "/304" => self.respond(stream, path[1..].parse().expect("a status"), b"abc", false),
            "/large" => self.respond(stream, 200, &vec![b'x'; LARGE], false),
            "/trailers" => self.respond(stream, 200, b"abc", true),
            "/echo" => self.respond(stream, 200, body, true),
            "/interim" => {
                connection
                    .send_interim(stream, 103, out, |fields| fields.field(b"xh", b"i"))
                    .expect("not yet answered");
                self.respond(stream, 200, b"late", false);
            }
            "/wide" => {
                let answer = connection.send_response(stream, 200, Length::Empty, out, |fields| {
                    fields.field(b"xa", &[b'!'; 10_000]);
                    fields.field(b"xb", &[b'!'; 10_000]);
                });
                answer.expect("an answer is due");
            }
            _ => self.respond(stream, 200, b"hello", false),
        }
    }

    /// Sends a response with a body, and trailers where they are wanted.
    pub(crate) fn respond(&mut self, stream: StreamRef, status: u16, body: &[u8], trailers: bool) {
        let Side { connection, out, .. } = self;
        let length = if trailers { Length::Unknown } else { Length::Exact(body.len() as u64) };
        let withheld = connection.withholds_body(stream, status);
        let answer = connection.send_response(stream, status, length, out, |fields| {
            if let Length::Exact(length) = length {
                fields.number(b"content-length", length);
            }
        });
        answer.expect("an answer is due");
        if !withheld {
            self.send(stream, body, trailers);
        }
    }

    /// Sends a body, now or when the windows allow it.
    pub(crate) fn send(&mut self, stream: StreamRef, body: &[u8], trailers: bool) {
        self.sending.push(Sending { stream, rest: body.to_vec(), trailers });
        self.flush();
    }

    fn flush(&mut self) {
        let Side { connection, out, .. } = self;
        self.sending.retain_mut(|Sending { stream, rest, trailers }| {
            if !connection.is_open(*stream) {
                return false;
            }
            let capacity = connection.capacity(*stream);
            let sent = connection.send_data(*stream, rest, !*trailers, out).expect("a body may be sent");
            assert_eq!(sent, rest.len().min(capacity), "as much as the windows allow is sent");
            rest.drain(..sent);
            if !rest.is_empty() {
                return true;
            }
            if *trailers {
                connection.send_trailers(*stream, out, |fields| fields.field(b"x-t", b"v")).expect("the body is over");
            }
            false
        });
    }

    /// Bytes that wait for a window.
    pub(crate) fn unsent(&self) -> usize {
        self.sending.iter().map(|sending| sending.rest.len()).sum()
    }

    /// Uses up what was held.
    pub(crate) fn use_held(&mut self) {
        for (stream, bytes) in std::mem::take(&mut self.held) {
            self.connection.used(stream, bytes, &mut self.out);
        }
    }

    /// Asks without a body.
    pub(crate) fn ask(&mut self, method: &str, path: &str) -> StreamRef {
        self.ask_with(method, path, true, &[])
    }

    pub(crate) fn ask_with(&mut self, method: &str, path: &str, ends: bool, fields: &[(&str, &str)]) -> StreamRef {
        let request = Request { method, scheme: "https", authority: "h", path, protocol: None, ends };
        let stream = self.connection.send_request(request, &mut self.out, |writer| {
            fields.iter().for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
        });
        stream.expect("a stream may be opened")
    }

    pub(crate) fn take_words(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words)
    }
}

fn told(body: &[u8]) -> String {
    match body.len() {
        0..100 => String::from_utf8_lossy(body).into_owned(),
        bytes => format!("<{bytes} bytes>"),
    }
}

/// Moves bytes in pieces until neither side has any: what each was sent.
pub(crate) fn exchange(client: &mut Side, server: &mut Side, piece: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    while !(client.out.is_empty() && server.out.is_empty()) {
        let bytes = std::mem::take(&mut client.out);
        bytes.chunks(piece).for_each(|piece| server.receive(piece));
        to_server.extend(bytes);
        let bytes = std::mem::take(&mut server.out);
        bytes.chunks(piece).for_each(|piece| client.receive(piece));
        to_client.extend(bytes);
    }
    (to_server, to_client)
}
