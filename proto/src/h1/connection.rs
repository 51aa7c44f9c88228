//! One HTTP/1 connection, either role: what was received turned into events, what is sent turned into bytes.
//!
//! The object is small and borrows everything: the window of unread bytes, the [`Head`] that heads are parsed into,
//! the [`Limits`]. It knows the states of both sides, how the two bodies under way end, and whether the connection
//! may live on.

use super::chunked::{Decoder, Found};
use super::encode::{self, FieldWriter};
use super::state::{State, Step};
use super::{framing, parse};
use crate::scan::{self, Job, Scanner};
use crate::{Error, Event, Head, Length, Limits, Method, Received, Role, Version};
use alloc::vec::Vec;

/// A body that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incoming {
    Exact(u64),
    Chunked(Decoder),
    UntilClose,
}

/// A body that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outgoing {
    Exact(u64),
    Chunked,
    UntilClose,
    /// The answer to HEAD: the head announces what GET would send, and nothing of it is sent.
    Withheld,
}

/// A response's head, as a server sends it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status, 200 to 999 (interim ones go through [`Connection::send_interim`]).
    pub status: u16,
    /// A reason phrase in place of the registered one.
    pub reason: Option<&'a str>,
    /// How long the body is.
    pub length: Length,
}

/// A request's head, as a client sends it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method's token.
    pub method: &'a str,
    /// The target, in whichever form.
    pub target: &'a str,
    /// How long the body is.
    pub length: Length,
    /// Whether to ask that the connection stay open afterwards.
    pub keep_alive: bool,
    /// Whether the fields propose another protocol (`Upgrade` is among them, or the method is CONNECT).
    pub upgrade: bool,
}

/// One connection's protocol state.
#[derive(Clone, Debug)]
pub struct Connection {
    role: Role,
    client: State,
    server: State,
    version: Version,
    method: Method,
    keep_alive: bool,
    proposes: bool,
    incoming: Incoming,
    outgoing: Outgoing,
    /// How much of the window a parse that found no whole head has seen.
    seen: u32,
}

/// Below this many bytes a head that is not complete is parsed again whenever more comes: it costs less than a look
/// at what came. Above, only when a control byte came, so that a head that drips in costs linear time.
const EAGER_BYTES: usize = 1024;

impl Connection {
    /// A fresh connection in the given role.
    pub const fn new(role: Role) -> Connection {
        Connection {
            role,
            client: State::Idle,
            server: State::Idle,
            version: Version::Http11,
            method: Method::Get,
            keep_alive: true,
            proposes: false,
            incoming: Incoming::Exact(0),
            outgoing: Outgoing::Exact(0),
            seen: 0,
        }
    }

    /// The client's state.
    pub fn client(&self) -> State {
        self.client
    }

    /// The server's state.
    pub fn server(&self) -> State {
        self.server
    }

    /// The version of the message that the peer sent last.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether another exchange may follow the present one.
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Makes the present exchange the last one.
    pub fn close_after(&mut self) {
        self.keep_alive = false;
    }

    /// Whether our own message is complete and the connection is good for nothing more.
    pub fn must_close(&self) -> bool {
        match self.role {
            Role::Server => matches!(self.server, State::MustClose | State::Closed),
            Role::Client => matches!(self.client, State::MustClose | State::Closed) && self.server != State::SendsBody,
        }
    }

    /// Bytes that the peer has announced and not yet sent, where it has: of the body, or of the current chunk.
    pub fn announced(&self) -> u64 {
        match self.incoming {
            Incoming::Exact(left) => left,
            Incoming::Chunked(ref decoder) => decoder.remaining(),
            Incoming::UntilClose => 0,
        }
    }

    #[inline(always)]
    fn step(&mut self, side: Role, step: Step) -> Result<(), Error> {
        let state = match side {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        };
        match state.after(side, step) {
            Some(next) => {
                *state = next;
                Ok(())
            }
            None if side == self.role => Err(Error::NotNow),
            None => Err(Error::UnexpectedData),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.keep_alive = false;
        let peer = self.peer();
        // A side that has closed or switched has nothing left to refuse.
        let _ = self.step(peer, Step::Fail);
        error
    }

    fn peer(&self) -> Role {
        match self.role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }

    /// Reads one event from the front of the window. Spans in `head` count from the window's first byte.
    ///
    /// # Errors
    /// What the peer did wrong. Nothing more is read after it; a server may still send one response, after which
    /// [`must_close`](Self::must_close) holds.
    #[inline]
    pub fn receive<'b>(&mut self, window: &'b [u8], head: &mut Head, limits: &Limits) -> Result<Received<'b>, Error> {
        let state = match self.role {
            Role::Server => self.client,
            Role::Client => self.server,
        };
        let received = match state {
            State::Idle | State::AwaitsResponse => self.receive_head(window, head, limits),
            State::SendsBody => self.receive_body(window, head, limits),
            _ => return Ok(Received { consumed: 0, event: Event::Paused }),
        };
        received.map_err(|error| self.fail(error))
    }

    #[inline]
    fn receive_head<'b>(&mut self, window: &'b [u8], head: &mut Head, limits: &Limits) -> Result<Received<'b>, Error> {
        if self.role == Role::Client && self.server == State::Idle && self.client == State::Idle {
            let event = if window.is_empty() { Event::NeedMore } else { return Err(Error::UnexpectedData) };
            return Ok(Received { consumed: 0, event });
        }
        let incomplete = Received { consumed: 0, event: Event::NeedMore };
        if window.is_empty() || (self.seen != 0 && !worth_parsing(window, self.seen as usize, limits)) {
            self.seen = window.len() as u32;
            return Ok(incomplete);
        }
        let parsed = match self.role {
            Role::Server => parse::parse_request(window, limits, head)?,
            Role::Client => parse::parse_response(window, limits, head)?,
        };
        let Some(consumed) = parsed else {
            self.seen = window.len() as u32;
            return Ok(incomplete);
        };
        self.seen = 0;
        let event = match self.role {
            Role::Server => self.request_came(window, head)?,
            Role::Client => self.response_came(window, head)?,
        };
        Ok(Received { consumed, event })
    }

    #[inline]
    fn request_came(&mut self, window: &[u8], head: &mut Head) -> Result<Event<'static>, Error> {
        self.version = head.version;
        self.method = head.method;
        framing::request(window, head)?;
        self.keep_alive &= head.keep_alive;
        self.proposes = head.upgrade;
        self.step(Role::Client, Step::Request)?;
        self.step(Role::Server, Step::Request)?;
        match head.length {
            Length::Empty => self.request_ended()?,
            Length::Exact(length) => self.incoming = Incoming::Exact(length),
            Length::Unknown => self.incoming = Incoming::Chunked(Decoder::new()),
        }
        Ok(Event::Head(head.length))
    }

    #[inline(always)]
    fn request_ended(&mut self) -> Result<(), Error> {
        let answered = matches!(self.server, State::SendsBody | State::Done | State::MustClose);
        let end = match (self.proposes && !answered, self.keep_alive) {
            (true, _) => Step::EndProposing,
            (false, true) => Step::End,
            (false, false) => Step::EndLast,
        };
        self.step(Role::Client, end)?;
        self.restart();
        Ok(())
    }

    fn response_came(&mut self, window: &[u8], head: &mut Head) -> Result<Event<'static>, Error> {
        framing::response(window, head, self.method)?;
        if head.status < 200 && head.status != 101 {
            self.step(Role::Server, Step::Interim)?;
            return Ok(Event::Interim);
        }
        self.version = head.version;
        if head.upgrade {
            if !self.proposes {
                return Err(Error::UnexpectedData);
            }
            self.step(Role::Client, Step::Accept)?;
            self.step(Role::Server, Step::Accept)?;
            return Ok(Event::Head(Length::Empty));
        }
        self.keep_alive &= head.keep_alive;
        if self.client == State::MaySwitch {
            self.step(Role::Client, Step::Decline)?;
        }
        self.step(Role::Server, Step::Response)?;
        match head.length {
            Length::Empty => self.response_ended()?,
            Length::Exact(length) => self.incoming = Incoming::Exact(length),
            Length::Unknown if framing::is_chunked(head) => self.incoming = Incoming::Chunked(Decoder::new()),
            Length::Unknown => self.incoming = Incoming::UntilClose,
        }
        Ok(Event::Head(head.length))
    }

    fn response_ended(&mut self) -> Result<(), Error> {
        self.step(Role::Server, if self.keep_alive { Step::End } else { Step::EndLast })?;
        self.restart();
        Ok(())
    }

    /// Begins the next exchange where both messages of the present one are complete.
    #[inline(always)]
    fn restart(&mut self) {
        if let (Some(client), Some(server)) =
            (self.client.after(Role::Client, Step::Restart), self.server.after(Role::Server, Step::Restart))
        {
            (self.client, self.server) = (client, server);
        }
    }

    fn message_ended(&mut self) -> Result<(), Error> {
        match self.role {
            Role::Server => self.request_ended(),
            Role::Client => self.response_ended(),
        }
    }

    fn receive_body<'b>(&mut self, window: &'b [u8], head: &mut Head, limits: &Limits) -> Result<Received<'b>, Error> {
        let (consumed, event) = match &mut self.incoming {
            Incoming::Exact(0) => (0, Event::End { trailers: false }),
            _ if window.is_empty() => (0, Event::NeedMore),
            Incoming::Exact(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(window.len());
                *left -= take as u64;
                (take, Event::Data(&window[..take]))
            }
            Incoming::UntilClose => (window.len(), Event::Data(window)),
            Incoming::Chunked(decoder) => {
                let (taken, found) = decoder.receive(window, head, limits)?;
                let event = match found {
                    Found::NeedMore => Event::NeedMore,
                    Found::Data(data) => Event::Data(data),
                    Found::End { trailers } => Event::End { trailers },
                };
                (taken, event)
            }
        };
        let peer = self.peer();
        match event {
            Event::End { .. } => self.message_ended()?,
            _ => self.step(peer, Step::Data)?,
        }
        Ok(Received { consumed, event })
    }

    /// The peer closed its side; `window` is what is left unread.
    ///
    /// # Errors
    /// [`Error::Truncated`] where a message was under way.
    pub fn receive_end(&mut self, window: &[u8]) -> Result<Event<'static>, Error> {
        let (peer, state) = match self.role {
            Role::Server => (Role::Client, self.client),
            Role::Client => (Role::Server, self.server),
        };
        match state {
            State::Idle if !window.is_empty() => Err(self.fail(Error::Truncated)),
            State::Idle if self.role == Role::Client && self.client != State::Idle => Err(self.fail(Error::Truncated)),
            State::SendsBody if self.role == Role::Client && self.incoming == Incoming::UntilClose => {
                self.response_ended()?;
                Ok(Event::End { trailers: false })
            }
            State::SendsBody | State::AwaitsResponse => Err(self.fail(Error::Truncated)),
            State::Switched => Ok(Event::Closed),
            _ => {
                self.keep_alive = false;
                self.step(peer, Step::Close)?;
                Ok(Event::Closed)
            }
        }
    }

    /// Sends an interim response: 100, 102 or 103 (not 101: see [`accept`](Self::accept)).
    ///
    /// To an HTTP/1.0 client nothing is sent, since it would not understand it (RFC 9110 section 15.2).
    ///
    /// # Errors
    /// [`Error::NotNow`] when no response is due or the status is not interim; field errors as in
    /// [`send_response`](Self::send_response).
    pub fn send_interim(
        &mut self,
        status: u16,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        if !(100..200).contains(&status) || status == 101 {
            return Err(Error::NotNow);
        }
        self.step(Role::Server, Step::Interim)?;
        if self.version == Version::Http10 {
            return Ok(());
        }
        write_head(out, |out| {
            write_status(status, None, out)?;
            write_fields(out, fields).map(drop)
        })
    }

    /// Accepts the protocol that the request proposed: 101 with `Connection: upgrade` to an Upgrade, `status` 2xx to
    /// CONNECT. From then on the bytes of both directions belong to the other protocol.
    ///
    /// # Errors
    /// [`Error::NotNow`] where the request proposed none, or is not complete.
    pub fn accept(
        &mut self,
        status: u16,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        let tunnel = self.method == Method::Connect;
        let fits = if tunnel { (200..300).contains(&status) } else { status == 101 };
        if self.client != State::MaySwitch || self.server != State::AwaitsResponse || !fits {
            return Err(Error::NotNow);
        }
        write_head(out, |out| {
            write_status(status, None, out)?;
            if !tunnel {
                out.extend_from_slice(b"Connection: upgrade\r\n");
            }
            write_fields(out, fields).map(drop)
        })?;
        self.step(Role::Client, Step::Accept)?;
        self.step(Role::Server, Step::Accept)
    }

    /// Sends a final response's head: status line, the given fields, then the fields that frame the message. The body
    /// follows by [`send_data`](Self::send_data) and [`send_end`](Self::send_end), which every response needs.
    ///
    /// # Errors
    /// [`Error::NotNow`] where no response is due; [`Error::InvalidReason`], [`Error::InvalidField`] and
    /// [`Error::ReservedField`] for what would break the message. Nothing is sent then.
    #[inline]
    pub fn send_response(
        &mut self,
        response: Response<'_>,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        if self.server.after(Role::Server, Step::Response).is_none() || response.status < 200 {
            return Err(Error::NotNow);
        }
        let bodiless = matches!(response.status, 204 | 304);
        self.outgoing = match response.length {
            _ if self.method == Method::Head || bodiless => Outgoing::Withheld,
            Length::Empty => Outgoing::Exact(0),
            Length::Exact(length) => Outgoing::Exact(length),
            Length::Unknown if self.version == Version::Http11 => Outgoing::Chunked,
            Length::Unknown => {
                self.keep_alive = false;
                Outgoing::UntilClose
            }
        };
        let (keep_alive, version) = (self.keep_alive, self.version);
        write_head(out, |out| {
            write_status(response.status, response.reason, out)?;
            let upgrade = write_fields(out, fields)?;
            match response.length {
                _ if response.status == 204 => {}
                Length::Empty if bodiless => {}
                Length::Empty => out.extend_from_slice(b"Content-Length: 0\r\n"),
                Length::Exact(length) => encode::number_field(b"Content-Length: ", length, out),
                Length::Unknown if version == Version::Http11 && !bodiless => {
                    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                }
                Length::Unknown => {}
            }
            match (keep_alive, version) {
                (false, _) if upgrade => out.extend_from_slice(b"Connection: close, upgrade\r\n"),
                (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
                (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
                (true, Version::Http11) if upgrade => out.extend_from_slice(b"Connection: upgrade\r\n"),
                (true, Version::Http11) => {}
            }
            Ok(())
        })?;
        if self.client == State::MaySwitch {
            self.step(Role::Client, Step::Decline)?;
        }
        self.step(Role::Server, Step::Response)
    }

    /// Whether a response would be sent in the plain way: to an HTTP/1.1 request that is not HEAD and lets the connection live.
    /// The heads of two such responses are the same where status, fields and length are, so a caller may keep one and give
    /// it to [`send_rendered`](Self::send_rendered).
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.keep_alive && self.version == Version::Http11 && self.method != Method::Head
    }

    /// Sends a whole response whose head an earlier [`send_response`](Self::send_response) wrote on a connection that was
    /// [plain](Self::is_plain), as this one must be: with the length of this `body`, and not 204 or 304.
    ///
    /// # Errors
    /// [`Error::NotNow`] where no response is due or it would not be plain. Nothing is sent then.
    #[inline]
    pub fn send_rendered(&mut self, head: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if !self.is_plain() {
            return Err(Error::NotNow);
        }
        if self.client == State::MaySwitch {
            self.step(Role::Client, Step::Decline)?;
        }
        self.step(Role::Server, Step::Response)?;
        out.reserve(head.len() + body.len());
        out.extend_from_slice(head);
        out.extend_from_slice(body);
        self.step(Role::Server, Step::End)?;
        self.restart();
        Ok(())
    }

    /// Sends a request's head. The body follows by [`send_data`](Self::send_data) and [`send_end`](Self::send_end),
    /// which every request needs.
    ///
    /// # Errors
    /// [`Error::NotNow`] while another exchange is under way; [`Error::InvalidField`] and [`Error::ReservedField`] for
    /// a method, target or field that would break the message. Nothing is sent then.
    pub fn send_request(
        &mut self,
        request: Request<'_>,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), Error> {
        if self.role != Role::Client || self.client != State::Idle || self.server != State::Idle {
            return Err(Error::NotNow);
        }
        let valid_method = !request.method.is_empty() && request.method.bytes().all(|byte| scan::is(scan::NAME, byte));
        let valid_target =
            !request.target.is_empty() && request.target.bytes().all(|byte| (b'!'..0x7f).contains(&byte));
        if !valid_method || !valid_target {
            return Err(Error::InvalidField);
        }
        self.method = Method::from_token(request.method.as_bytes());
        self.keep_alive = request.keep_alive;
        self.proposes = request.upgrade;
        self.outgoing = match request.length {
            Length::Empty => Outgoing::Exact(0),
            Length::Exact(length) => Outgoing::Exact(length),
            Length::Unknown => Outgoing::Chunked,
        };
        write_head(out, |out| {
            out.extend_from_slice(request.method.as_bytes());
            out.push(b' ');
            out.extend_from_slice(request.target.as_bytes());
            out.extend_from_slice(b" HTTP/1.1\r\n");
            write_fields(out, fields)?;
            match request.length {
                // RFC 9110 section 8.6: these methods anticipate a body, so its absence is said.
                Length::Empty if matches!(self.method, Method::Post | Method::Put | Method::Patch) => {
                    out.extend_from_slice(b"Content-Length: 0\r\n");
                }
                Length::Empty => {}
                Length::Exact(length) => encode::number_field(b"Content-Length: ", length, out),
                Length::Unknown => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            }
            match (request.upgrade && self.method != Method::Connect, request.keep_alive) {
                (true, _) => out.extend_from_slice(b"Connection: upgrade\r\n"),
                (false, false) => out.extend_from_slice(b"Connection: close\r\n"),
                (false, true) => {}
            }
            Ok(())
        })?;
        self.step(Role::Client, Step::Request)?;
        self.step(Role::Server, Step::Request)
    }

    /// Sends a part of our message's body. Where the answer is to HEAD it is left out.
    ///
    /// # Errors
    /// [`Error::NotNow`] outside a body; [`Error::LengthMismatch`] where it is longer than announced.
    #[inline]
    pub fn send_data(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.step(self.role, Step::Data)?;
        match &mut self.outgoing {
            Outgoing::Exact(left) => {
                let Some(rest) = left.checked_sub(data.len() as u64) else { return Err(Error::LengthMismatch) };
                *left = rest;
                out.extend_from_slice(data);
            }
            // An empty chunk would end the body.
            Outgoing::Chunked if !data.is_empty() => {
                encode::chunk_size(data.len(), out);
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
            Outgoing::UntilClose => out.extend_from_slice(data),
            Outgoing::Chunked | Outgoing::Withheld => {}
        }
        Ok(())
    }

    /// Accounts for a part of our message's body that the caller sends by itself, such as a range of a file or shared
    /// bytes. `before` and `after` receive the framing to send around it. Answers whether the part is to be sent at all.
    ///
    /// # Errors
    /// As [`send_data`](Self::send_data).
    pub fn send_data_apart(&mut self, length: u64, before: &mut Vec<u8>, after: &mut Vec<u8>) -> Result<bool, Error> {
        self.step(self.role, Step::Data)?;
        match &mut self.outgoing {
            Outgoing::Exact(left) => {
                let Some(rest) = left.checked_sub(length) else { return Err(Error::LengthMismatch) };
                *left = rest;
            }
            Outgoing::Chunked if length > 0 => {
                encode::chunk_size(length as usize, before);
                after.extend_from_slice(b"\r\n");
            }
            Outgoing::UntilClose => {}
            Outgoing::Chunked | Outgoing::Withheld => return Ok(false),
        }
        Ok(length > 0)
    }

    /// Ends our message; `trailers` are sent where the body is chunked, else left out.
    ///
    /// # Errors
    /// [`Error::NotNow`] outside a body; [`Error::LengthMismatch`] where it is shorter than announced: the connection
    /// can then only be closed.
    #[inline]
    pub fn send_end(&mut self, out: &mut Vec<u8>, trailers: impl FnOnce(&mut FieldWriter<'_>)) -> Result<(), Error> {
        match self.outgoing {
            Outgoing::Exact(left) if left > 0 => return Err(Error::LengthMismatch),
            Outgoing::Chunked => {
                write_head(out, |out| {
                    out.extend_from_slice(b"0\r\n");
                    write_fields(out, trailers).map(drop)
                })?;
            }
            _ => {}
        }
        let end = match (self.role, self.keep_alive) {
            (Role::Client, _) if self.proposes => Step::EndProposing,
            (_, true) => Step::End,
            (_, false) => Step::EndLast,
        };
        self.step(self.role, end)?;
        self.restart();
        Ok(())
    }
}

/// Writes a head and its empty line, or nothing at all where a part of it is refused.
#[inline(always)]
fn write_head(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<(), Error> {
    let start = out.len();
    let written = write(out);
    match written {
        Ok(()) => out.extend_from_slice(b"\r\n"),
        Err(_) => out.truncate(start),
    }
    written
}

#[inline(always)]
fn write_status(status: u16, reason: Option<&str>, out: &mut Vec<u8>) -> Result<(), Error> {
    match (reason, encode::status_line(status)) {
        (None, Some(line)) => {
            out.extend_from_slice(line);
            Ok(())
        }
        (reason, _) => encode::custom_status_line(status, reason.unwrap_or(""), out),
    }
}

/// Writes the caller's fields: whether Upgrade was among them.
#[inline(always)]
fn write_fields(out: &mut Vec<u8>, fields: impl FnOnce(&mut FieldWriter<'_>)) -> Result<bool, Error> {
    let mut writer = FieldWriter { out, error: None, upgrade: false };
    fields(&mut writer);
    writer.error.map_or(Ok(writer.upgrade), Err)
}

/// Whether a head that was not complete after `seen` bytes can be complete, or wrong, with what has come since.
fn worth_parsing(window: &[u8], seen: usize, limits: &Limits) -> bool {
    struct HasControl<'a>(&'a [u8]);
    impl Job for HasControl<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<S: Scanner>(self) -> bool {
            S::value_end(self.0, 0) < self.0.len()
        }
    }
    window.len() < EAGER_BYTES
        || window.len() >= limits.head_bytes.min(limits.target_bytes) as usize
        || scan::with(HasControl(&window[seen.min(window.len())..]))
}
