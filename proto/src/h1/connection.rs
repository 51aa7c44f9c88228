//! One HTTP/1 connection, either role: what was received turned into events, what is sent turned into bytes.
//!
//! The object is small and borrows everything: the window of unread bytes, the [`Head`] that heads are parsed into,
//! the [`Limits`]. It knows the states of both sides, how the two bodies under way end, and whether the connection
//! may live on.

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
    /// The answer to HEAD: the head announces what GET would send, and nothing of it is sent.
    Withheld,
}

/// One connection's protocol state.
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
    /// How much of the window a parse that found no whole head has seen.
    seen: u32,
}

/// Below this many bytes a head that is not complete is parsed again whenever more comes: it costs less than a look
/// at what came. Above, only when a control byte came, so that a head that drips in costs linear time.
const EAGER_BYTES: usize = 1024;

/// How much of a long head comes between two parses, at most: 128 parses for the longest head.
const LOOK_BYTES: usize = 256;

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
            small_chunks: SmallChunks::new(),
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
            Role::Server => {
                matches!(self.server, State::MustClose | State::Closed)
                    || (self.server == State::Done && matches!(self.client, State::MustClose | State::Closed))
            }
            Role::Client => matches!(self.client, State::MustClose | State::Closed) && self.server != State::SendsBody,
        }
    }

    /// Whether the body of the answer under way is withheld: the answer is to HEAD, or of a status that has none.
    pub fn withholds_body(&self) -> bool {
        self.server == State::SendsBody && self.outgoing == Outgoing::Withheld
    }

    /// Whether the request is CONNECT and the tunnel is still to be decided on.
    pub fn awaits_tunnel(&self) -> bool {
        self.method == Method::Connect && self.client == State::MaySwitch
    }

    /// Bytes that the peer has announced and not yet sent, where it has: of the body, or of the current chunk.
    pub fn announced(&self) -> u64 {
        match self.incoming {
            Incoming::Exact(left) => left,
            Incoming::Chunked(ref decoder) => decoder.remaining(),
            Incoming::UntilClose => 0,
        }
    }

    /// Some time has gone by, in which a peer whose body comes in small chunks may have had little to say: it has some of
    /// [`Limits::small_chunks`] back. A caller with a clock says which second it is before it passes on what was received; what it
    /// counts from is its own.
    pub fn set_second(&mut self, second: u32) {
        self.small_chunks.set_second(second);
    }

    /// Whether the end of the peer's body is due: [`receive`](Self::receive) returns it for an empty window too, so that a
    /// caller that stopped reading in between must ask once more although nothing is left to read.
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
    pub(super) fn restart(&mut self) {
        if let (Some(client), Some(server)) =
            (self.client.after(Role::Client, Step::Restart), self.server.after(Role::Server, Step::Restart))
        {
            (self.client, self.server) = (client, server);
            // What is refused next has no method yet.
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
    // Where a limit is passed an error is due though no line ended; between the limits a look now and then will do.
    let crosses = |limit: usize| seen < limit && window.len() >= limit;
    window.len() < EAGER_BYTES
        || crosses(limits.target_bytes as usize + parse::LINE_OVERHEAD + 1)
        || crosses(limits.head_bytes as usize)
        || seen / LOOK_BYTES != window.len() / LOOK_BYTES
        || scan::with(HasControl(&window[seen.min(window.len())..]))
}
