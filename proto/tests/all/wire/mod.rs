//! Frames as a peer sends them, and one side of a connection that acts only on events, for the tests of HTTP/2.
//!
//! A server's side chooses its response by the path. Each side records its events in words, without details that depend
//! on when bytes arrive.

use highwire_proto::h2::{Bounds, Connection, Event, Failure, Lent, Request, StreamRef};
use highwire_proto::{Head, Length, Limits, Role};
use std::collections::BTreeMap;

// Frames. Those that nearly every row of a table needs have shorter names.
pub(crate) use testkit::frames::{
    CONTINUATION, DATA, END_HEADERS as WHOLE, END_STREAM as END, GOAWAY, HEADERS, PADDED, PING, PRIORITY,
    PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM as RESET, SETTINGS, WINDOW_UPDATE, block, frame, frames, headers, number,
    opening, settings, window_update,
};

/// Both flags of a request without a body, if it is in one frame.
pub(crate) const ALL: u8 = END | WHOLE;

/// The number of bytes of the body of `/large`.
pub(crate) const LARGE: usize = 200_000;

pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":path", "/hold"), (":authority", "h")];
pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "https"), (":path", "/hold"), (":authority", "h")];

/// Returns ways to cut an input: all those of `splits` if the input is short, else about every 31st.
pub(crate) fn ways(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = highwire_proto::testing::splits(input);
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

/// One side of a connection.
pub(crate) struct Side {
    role: Role,
    pub(crate) connection: Connection,
    pub(crate) head: Head,
    pub(crate) fields: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) out: Vec<u8>,
    pub(crate) words: Vec<String>,
    pub(crate) failure: Option<Failure>,
    /// True if received bodies are not used up until [`use_held`](Side::use_held) is called.
    pub(crate) holds: bool,
    pub(crate) held: Vec<(StreamRef, usize)>,
    /// True if bodies that came with their heads are taken by `take_whole_body`, and the number of them.
    pub(crate) takes_wholes: bool,
    pub(crate) wholes: usize,
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
            takes_wholes: false,
            wholes: 0,
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

    /// Reads bytes, and acts on their events. Reads nothing after a failure.
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
            if let (true, Event::Head(stream, Length::Exact(length))) = (self.takes_wholes, received.event)
                && let Some((body, used)) =
                    self.connection.take_whole_body(stream, length, &window[at..], &mut self.out)
            {
                (at, self.wholes) = (at + used, self.wholes + 1);
                self.bodies.insert(stream.number, body.to_vec());
                self.act(Event::End(stream, false));
            }
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

    /// Returns the fields that tests make up, whose names all begin with `x`.
    fn own_fields(&self) -> String {
        let text = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(&self.fields)).into_owned();
        let lines = self.head.fields.iter().map(|field| (text(field.name), text(field.value)));
        lines
            .filter(|(name, _)| name.starts_with('x'))
            .map(|(name, value)| format!(" {name}={}", told(value.as_bytes())))
            .collect()
    }

    fn head_came(&mut self, stream: StreamRef, length: Length) {
        let text = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(&self.fields)).into_owned();
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
            "/reset" => connection.reset(stream, highwire_proto::h2::Code::Internal, out),
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

    /// Sends a response with a body, and trailers if `trailers` is true.
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

    /// Returns the number of bytes that wait for a window.
    pub(crate) fn unsent(&self) -> usize {
        self.sending.iter().map(|sending| sending.rest.len()).sum()
    }

    /// Uses up the held bytes.
    pub(crate) fn use_held(&mut self) {
        for (stream, bytes) in std::mem::take(&mut self.held) {
            self.connection.used(stream, bytes, &mut self.out);
        }
    }

    /// Sends a request without a body.
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

/// Moves bytes in pieces until neither side has any left to send. Returns the bytes sent to the server, and those sent
/// to the client.
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
