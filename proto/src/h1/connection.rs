//! One HTTP/1 connection in either role: turns received bytes into events. The module `send` holds the sending half.
//!
//! The object is small because the caller lends the rest: the window of unread bytes, the [`Head`] to parse into, the
//! [`Limits`]. It stores the states of both sides, how the incoming and the outgoing body end, and whether the
//! connection can be used again.

use super::chunked::{Decoder, Found, SmallChunks};
use super::state::{State, Step};
use super::{framing, parse};
use crate::scan::{self, Job, Scanner};
use crate::{Error, Event, Head, Length, Limits, Method, Received, Role, Version};

/// A body that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incoming {
    Exact(u64),
    Chunked(Decoder),
    UntilClose,
}

/// A body that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    Exact(u64),
    Chunked,
    UntilClose,
    /// The response has no body because the request was HEAD or the status is 204 or 304. Its head may announce a
    /// length.
    Withheld,
}

/// The protocol state of one HTTP/1 connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) client: State,
    pub(super) server: State,
    pub(super) version: Version,
    pub(super) method: Method,
    pub(super) keep_alive: bool,
    pub(super) proposes: bool,
    incoming: Incoming,
    small_chunks: SmallChunks,
    pub(super) outgoing: Outgoing,
    /// The window's length in bytes when an incomplete head was last found in it; 0 if no head is incomplete.
    seen: u32,
}

/// The window size in bytes below which an incomplete head is parsed again whenever bytes arrive, because parsing costs
/// less than searching the new bytes. From this size on [`worth_parsing`] decides, so that a head that arrives byte by
/// byte is not parsed for each byte.
const EAGER_BYTES: usize = 1024;

/// A larger window is parsed again when its length reaches a multiple of this number of bytes, at most 128 times for a
/// head of 32 KiB.
const LOOK_BYTES: usize = 256;

impl Connection {
    /// Creates a connection in the given role.
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
            small_chunks: SmallChunks::new(),
            outgoing: Outgoing::Exact(0),
            seen: 0,
        }
    }

    /// Returns the client's state.
    pub fn client(&self) -> State {
        self.client
    }

    /// Returns the server's state.
    pub fn server(&self) -> State {
        self.server
    }

    /// Returns the state of our side.
    #[inline]
    pub fn ours(&self) -> State {
        match self.role {
            Role::Client => self.client,
            Role::Server => self.server,
        }
    }

    /// Returns the state of the peer's side.
    #[inline]
    pub fn theirs(&self) -> State {
        match self.role {
            Role::Client => self.server,
            Role::Server => self.client,
        }
    }

    /// Returns true if a response is being received whose body ends with the connection.
    pub fn ends_with_connection(&self) -> bool {
        self.role == Role::Client && self.server == State::SendsBody && self.incoming == Incoming::UntilClose
    }

    /// Returns the version of the peer's last request or final response; HTTP/1.1 before the first one.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns true if another exchange may follow the current one.
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Makes the current exchange the last one.
    pub fn close_after(&mut self) {
        self.keep_alive = false;
    }

    /// Returns true if our message is complete and the connection cannot carry another one.
    pub fn must_close(&self) -> bool {
        match self.role {
            Role::Server => {
                matches!(self.server, State::MustClose | State::Closed)
                    || (self.server == State::Done && matches!(self.client, State::MustClose | State::Closed))
            }
            Role::Client => matches!(self.client, State::MustClose | State::Closed) && self.server != State::SendsBody,
        }
    }

    /// Returns true if a response is being sent whose body is withheld, because it answers HEAD or its status is 204 or
    /// 304.
    pub fn withholds_body(&self) -> bool {
        self.server == State::SendsBody && self.outgoing == Outgoing::Withheld
    }

    /// Returns true if the request is a complete CONNECT, and no response has accepted or declined the tunnel yet.
    pub fn awaits_tunnel(&self) -> bool {
        self.method == Method::Connect && self.client == State::MaySwitch
    }

    /// Returns the number of bytes of the peer's body, or of its current chunk, that are announced but not yet read.
    /// Returns 0 if no bytes are announced.
    pub fn announced(&self) -> u64 {
        match self.incoming {
            Incoming::Exact(left) => left,
            Incoming::Chunked(ref decoder) => decoder.remaining(),
            Incoming::UntilClose => 0,
        }
    }

    /// Returns the number of missing bytes of the peer's body, if its length is known. Returns 0 otherwise.
    #[inline]
    pub fn exact_left(&self) -> u64 {
        match self.incoming {
            Incoming::Exact(left) if self.theirs() == State::SendsBody => left,
            _ => 0,
        }
    }

    /// Records that the caller has received the next `count` bytes of the peer's body without
    /// [`receive`](Self::receive). They must be at most [`exact_left`](Self::exact_left).
    pub fn pass_body(&mut self, count: u64) {
        if let Incoming::Exact(left) = &mut self.incoming {
            *left = left.saturating_sub(count);
        }
    }

    /// Sets the current second, counted from any start, and restores some of [`Limits::small_chunks`] for the time
    /// since the last call, because a peer that sends small chunks slowly does no harm. A caller with a clock calls
    /// this before it passes received bytes.
    pub fn set_second(&mut self, second: u32) {
        self.small_chunks.set_second(second);
    }

    /// Returns true if [`receive`](Self::receive) returns the end of the peer's body even for an empty window. A caller
    /// that stopped reading must then call `receive` once more, although no bytes are left.
    pub fn end_is_due(&self) -> bool {
        let state = match self.role {
            Role::Server => self.client,
            Role::Client => self.server,
        };
        state == State::SendsBody && self.incoming == Incoming::Exact(0)
    }

    #[inline(always)]
    pub(super) fn step(&mut self, side: Role, step: Step) -> Result<(), Error> {
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
        // If the table has no such step, the peer's side is already finished and nothing more is read from it.
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
    /// Returns an error if the peer breaks the protocol or a limit. Nothing more is read after an error. A server may
    /// still send or finish one response, after which [`must_close`](Self::must_close) returns true.
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
            Role::Client => match parse::parse_response(window, limits, head) {
                // A line after the status line that begins with white space continues nothing.
                Err(Error::ObsoleteFold) if !head.fields.is_empty() => {
                    let event = folded(window, limits.head_bytes, Error::HeadTooLarge)?;
                    // What is unfolded is as long and must be parsed.
                    self.seen = if event == Event::Folded { 0 } else { window.len() as u32 };
                    return Ok(Received { consumed: 0, event });
                }
                parsed => parsed?,
            },
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

    /// Begins the next exchange if both messages of the current one are complete.
    #[inline(always)]
    pub(super) fn restart(&mut self) {
        if let (Some(client), Some(server)) =
            (self.client.after(Role::Client, Step::Restart), self.server.after(Role::Server, Step::Restart))
        {
            (self.client, self.server) = (client, server);
            // If the next request is refused before its method is known, the response must not be treated as one to
            // HEAD.
            self.method = Method::Get;
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
                let (taken, found) = decoder.receive(window, head, limits, &mut self.small_chunks)?;
                let event = match found {
                    Found::NeedMore => Event::NeedMore,
                    Found::Data(data) => Event::Data(data),
                    Found::End { trailers } => Event::End { trailers },
                    Found::Folded if self.role == Role::Client => {
                        folded(&window[taken..], limits.trailer_bytes, Error::TrailersTooLarge)?
                    }
                    Found::Folded => return Err(Error::ObsoleteFold),
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

    /// Handles the end of the peer's bytes; `window` holds the unread bytes. Returns [`Event::End`] for a response
    /// whose body ends with the connection, otherwise [`Event::Closed`].
    ///
    /// # Errors
    /// Returns [`Error::Truncated`] if a message is incomplete or an awaited response is missing.
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
}

/// Returns [`Event::Folded`] if the section at the front of `bytes`, which has a folded line, is complete, because lines are joined
/// in the same way however the bytes arrive.
#[cold]
fn folded(bytes: &[u8], most: u32, too_large: Error) -> Result<Event<'static>, Error> {
    let is_end = |at: usize| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
    let is_complete = memchr::memchr_iter(b'\n', bytes).any(is_end);
    match is_complete {
        true => Ok(Event::Folded),
        false if bytes.len() >= most as usize => Err(too_large),
        false => Ok(Event::NeedMore),
    }
}

/// Returns true if a head that was incomplete after `seen` bytes should be parsed again with the new bytes.
fn worth_parsing(window: &[u8], seen: usize, limits: &Limits) -> bool {
    struct HasControl<'a>(&'a [u8]);
    impl Job for HasControl<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<S: Scanner>(self) -> bool {
            S::value_end(self.0, 0) < self.0.len()
        }
    }
    // At a limit the parser may report an error even if no line has ended. Otherwise it is enough to parse every
    // `LOOK_BYTES`, and when a control byte, such as a line end, has arrived.
    let crosses = |limit: usize| seen < limit && window.len() >= limit;
    window.len() < EAGER_BYTES
        || crosses(limits.target_bytes as usize + parse::LINE_OVERHEAD + 1)
        || crosses(limits.head_bytes as usize)
        || seen / LOOK_BYTES != window.len() / LOOK_BYTES
        || scan::with(HasControl(&window[seen.min(window.len())..]))
}
