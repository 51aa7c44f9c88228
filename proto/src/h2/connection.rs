//! One HTTP/2 connection in either role: turns received bytes into events. The module `send` holds the sending half.
//!
//! The object owns the state of a connection: windows, compression tables, streams. It borrows the unread bytes, and
//! all connections of a caller can share one [`Head`] and one buffer for decoded fields. While it reads, it appends the
//! frames that the peer's frames require to the caller's output: acknowledgements of SETTINGS and PING, resets, window
//! updates, and GOAWAY after an error.

use super::budget::{Budget, Kind};
use super::data::Incoming;
use super::fields::MOST_LIST_BYTES;
use super::flow::ConnectionWindows;
use super::frame::{self, Code, FRAME_BYTES, FrameHead, HEAD_BYTES, PREFACE, flag, kind};
use super::section::Block;
use super::settings::{FIRST_WINDOW, Ours, Peer};
use super::streams::{End, StreamRef, Streams};
use crate::hpack;
use crate::{Head, Length, Limits, Role};
use alloc::vec::Vec;

/// Limits that a connection sets for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest number of streams that a peer may have open. RFC 9113 section 6.5.2 recommends at least 100.
    pub streams: u32,
    /// The number of bytes that a peer may send on one stream before the caller has used some up.
    pub stream_window: u32,
    /// The number of bytes that a peer may send on all streams together before the caller has used some up. Values
    /// below 65,535 count as 65,535.
    pub connection_window: u32,
    /// The largest size in bytes to which the caller may widen the window of a stream or of the connection
    /// ([`Connection::widen`]), such as while a body comes over a long distance and its reader keeps up. A value below the
    /// other windows leaves them as they are.
    pub most_window: u32,
    /// The largest size in bytes of the compression table for the peer's fields.
    pub table_bytes: u32,
    /// The largest number of CONTINUATION frames after one HEADERS frame. The default is more than the largest head
    /// needs if the frames are full.
    pub continuations: u16,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            streams: 128,
            stream_window: 64 * 1024,
            connection_window: 256 * 1024,
            most_window: 32 * 1024 * 1024,
            table_bytes: 4096,
            continuations: 8,
        }
    }
}

/// Buffers and limits that a caller lends for one call.
#[derive(Debug)]
pub struct Lent<'a> {
    /// Receives the parsed head.
    pub head: &'a mut Head,
    /// Receives the decoded fields, which the head's spans point into.
    pub fields: &'a mut Vec<u8>,
    /// Receives the bytes to send.
    pub out: &'a mut Vec<u8>,
    /// Limits on heads.
    pub limits: &'a Limits,
}

/// The result of reading from the window: a part of a message, or a change that the caller must react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// The window holds no whole event. The caller must append more bytes and call again.
    NeedMore,
    /// A request's or final response's head, in the lent `Head`. With [`Length::Empty`] the peer's direction has ended.
    Head(StreamRef, Length),
    /// A request that a server must answer with the status of this error. The lent `Head` does not hold the request.
    Refused(StreamRef, crate::Error),
    /// An interim response, client role only. Its head is in the lent `Head`.
    Interim(StreamRef),
    /// Bytes of a body; they count as consumed. The peer may send as many more after a call of [`Connection::used`].
    Data(StreamRef, &'b [u8]),
    /// The end of a body. If the flag is true, the lent `Head` holds its trailers.
    End(StreamRef, bool),
    /// A stream ended early: the peer reset it, or made a mistake for which we reset it. The
    /// peer has not processed a request whose stream ends with [`Code::Refused`], so the caller may repeat it with any
    /// method (RFC 9113 section 8.7). [`Code::NoError`] after the end of a response means that the server does not need the rest of the request;
    /// the response is valid (section 8.1).
    Reset(StreamRef, Code),
    /// The peer has widened this stream's window. The connection's window may still be closed.
    Opened(StreamRef),
    /// The peer has widened the connection's window or sent settings, so more bytes may be allowed on any stream.
    AllOpened,
    /// The peer has sent GOAWAY and accepts no more streams; see [`Connection::peer_goes_away`]. A
    /// [`Reset`](Event::Reset) with [`Code::Refused`] follows for each stream of ours that the peer will not process.
    GoingAway,
}

/// An event and the number of window bytes that it used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'b> {
    /// The number of bytes at the front of the window that the caller can drop after it has acted on the event.
    pub consumed: usize,
    /// The event.
    pub event: Event<'b>,
}

/// The reason why a connection failed. The output ends with a GOAWAY for the peer, after which the caller must send
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error code in GOAWAY.
    pub code: Code,
    /// A description, which is also the debug data in GOAWAY.
    pub text: &'static str,
}

pub(super) const fn failure(code: Code, text: &'static str) -> Failure {
    Failure { code, text }
}

/// The content of a GOAWAY that the peer has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// The highest number of a stream of ours that the peer has processed or may process. A later GOAWAY must not raise
    /// it.
    pub last: u32,
    /// The error code.
    pub code: Code,
}

/// The progress of a connection. A server first reads the client's preface; both roles then read the peer's first
/// SETTINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Preface,
    FirstSettings,
    Running,
    Failed,
}

/// The protocol state of one HTTP/2 connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) ours: Ours,
    pub(super) peer: Peer,
    pub(super) encoder: hpack::Encoder,
    pub(super) streams: Streams,
    pub(super) windows: ConnectionWindows,
    pub(super) budget: Budget,
    /// The highest stream number that the peer has used.
    pub(super) last: u32,
    /// The number of the next stream that we begin.
    pub(super) next: u32,
    /// The last stream number in the GOAWAY that we have sent, if any.
    pub(super) going: Option<u32>,
    pub(super) decoder: hpack::Decoder,
    pub(super) phase: Phase,
    pub(super) incoming: Option<Incoming>,
    pub(super) block: Option<Block>,
    pub(super) fragments: Vec<u8>,
    pub(super) bounds: Bounds,
    pub(super) peer_goes: Option<Away>,
    /// True after a server's GOAWAY, until every stream of ours that it leaves unprocessed has been removed and reported
    /// as refused.
    pub(super) unserved: bool,
}

impl Connection {
    /// Creates a connection, and writes its first bytes to the output: the preface of a client, SETTINGS, and
    /// WINDOW_UPDATE if the connection's window is larger than its initial value.
    pub fn new(role: Role, bounds: Bounds, limits: &Limits, out: &mut Vec<u8>) -> Connection {
        let ours = Ours {
            table_bytes: bounds.table_bytes,
            streams: bounds.streams,
            window: bounds.stream_window,
            list_bytes: limits.head_bytes.min(MOST_LIST_BYTES),
            is_server: role == Role::Server,
        };
        if role == Role::Client {
            out.extend_from_slice(PREFACE);
        }
        ours.write(out);
        let wider = bounds.connection_window.saturating_sub(FIRST_WINDOW);
        if wider > 0 {
            frame::write_window_update(0, wider, out);
        }
        Connection {
            role,
            ours,
            peer: Peer::default(),
            encoder: hpack::Encoder::new(),
            streams: Streams::default(),
            windows: ConnectionWindows::new(bounds.connection_window, bounds.stream_window),
            budget: Budget::new(),
            last: 0,
            next: if role == Role::Client { 1 } else { 2 },
            going: None,
            decoder: hpack::Decoder::new(hpack::DEFAULT_TABLE_BYTES),
            phase: if role == Role::Server { Phase::Preface } else { Phase::FirstSettings },
            incoming: None,
            block: None,
            fragments: Vec::new(),
            bounds,
            peer_goes: None,
            unserved: false,
        }
    }

    /// Returns the most requests that a client may have open now: as many as the server allows, or 0 if either side ends
    /// the connection or the numbers of streams are used up.
    pub fn most_requests(&self) -> usize {
        let ends = self.going.is_some() || self.peer_goes.is_some() || self.phase == Phase::Failed;
        if ends || self.next > 0x7fff_ffff { 0 } else { self.peer.streams as usize }
    }

    /// Returns true if our side has reset this stream and still remembers it.
    pub fn has_reset(&self, stream: StreamRef) -> bool {
        self.streams.ended(stream.number) == Some(End::Own)
    }

    /// Returns the number of streams in progress.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the allowance that ran out, if the connection failed because of one.
    pub fn fired(&self) -> Option<Kind> {
        self.budget.fired()
    }

    /// Returns the number of bytes of memory that the compression tables and an unfinished field section take.
    pub fn held(&self) -> usize {
        self.fragments.capacity() + self.decoder.memory_bytes() + self.encoder.memory_bytes()
    }

    /// Reads one event from the front of the window.
    ///
    /// # Errors
    /// Returns the reason why the connection fails. The first such error appends a GOAWAY for the peer to the output.
    #[inline]
    pub fn receive<'b>(&mut self, window: &'b [u8], lent: &mut Lent<'_>) -> Result<Received<'b>, Failure> {
        self.read(window, lent).map_err(|failure| self.fail(failure, lent.out))
    }

    /// Fails the connection for a reason that the caller gives, and returns that reason. Appends GOAWAY to the output,
    /// unless the connection has already failed.
    pub fn fail(&mut self, failure: Failure, out: &mut Vec<u8>) -> Failure {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            let last = self.going.map_or(self.last, |named| named.min(self.last));
            frame::write_goaway(last, failure.code, failure.text, out);
        }
        failure
    }

    fn read<'b>(&mut self, window: &'b [u8], lent: &mut Lent<'_>) -> Result<Received<'b>, Failure> {
        let mut at = match self.phase {
            Phase::Preface => match self.read_preface(window)? {
                0 => return Ok(Received { consumed: 0, event: Event::NeedMore }),
                read => read,
            },
            Phase::Failed => return Err(failure(Code::Protocol, "the connection has failed")),
            _ => 0,
        };
        if self.unserved
            && let Some(stream) = self.next_unserved()
        {
            return Ok(Received { consumed: 0, event: Event::Reset(stream, Code::Refused) });
        }
        loop {
            let rest = &window[at..];
            if self.incoming.is_some() {
                let (read, event) = self.read_data(rest, lent);
                at += read;
                match event {
                    Some(event) => return Ok(Received { consumed: at, event }),
                    None => continue,
                }
            }
            let Some(head) = FrameHead::read(rest) else {
                return Ok(Received { consumed: at, event: Event::NeedMore });
            };
            self.check(head)?;
            let payload = &rest[HEAD_BYTES..];
            if head.kind == kind::DATA {
                match self.begin_data(head, payload, lent)? {
                    None => return Ok(Received { consumed: at, event: Event::NeedMore }),
                    Some((read, event)) => {
                        at += HEAD_BYTES + read;
                        match event {
                            Some(event) => return Ok(Received { consumed: at, event }),
                            None => continue,
                        }
                    }
                }
            }
            let Some(payload) = payload.get(..head.length as usize) else {
                return Ok(Received { consumed: at, event: Event::NeedMore });
            };
            at += HEAD_BYTES + payload.len();
            if let Some(event) = self.frame(head, payload, lent)? {
                return Ok(Received { consumed: at, event });
            }
        }
    }

    fn read_preface(&mut self, window: &[u8]) -> Result<usize, Failure> {
        let known = window.len().min(PREFACE.len());
        if window[..known] != PREFACE[..known] {
            return Err(failure(Code::Protocol, "the connection does not begin with the preface"));
        }
        if known < PREFACE.len() {
            return Ok(0);
        }
        self.phase = Phase::FirstSettings;
        Ok(known)
    }

    /// Checks a frame by its head alone.
    #[inline]
    fn check(&self, head: FrameHead) -> Result<(), Failure> {
        // This check comes first, because a first frame other than SETTINGS means an invalid preface, even if the frame
        // has other errors (RFC 9113 section 3.4).
        if self.phase == Phase::FirstSettings && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(failure(Code::Protocol, "the first frame is not SETTINGS"));
        }
        if head.length > FRAME_BYTES {
            return Err(failure(Code::FrameSize, "a frame is larger than announced"));
        }
        if let Some(block) = &self.block {
            if head.kind != kind::CONTINUATION || head.stream != block.stream {
                return Err(failure(Code::Protocol, "another frame stands inside a field section"));
            }
        } else if head.kind == kind::CONTINUATION {
            return Err(failure(Code::Protocol, "CONTINUATION without HEADERS"));
        }
        match head.wrong() {
            Some((code, text)) => Err(failure(code, text)),
            None => Ok(()),
        }
    }

    fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        match head.kind {
            kind::HEADERS => self.headers(head, payload, lent),
            kind::CONTINUATION => self.continuation(head, payload, lent),
            kind::WINDOW_UPDATE => self.window_update(head, payload, lent.out),
            kind::RST_STREAM => self.peer_reset(head, payload),
            kind::SETTINGS => self.settings(head, payload, lent.out),
            kind::PING => self.ping(head, payload, lent.out),
            kind::PRIORITY => self.old_priority(head, payload, lent.out),
            kind::PRIORITY_UPDATE => self.priority_update(payload),
            kind::GOAWAY => self.peer_away(payload),
            kind::PUSH_PROMISE => Err(failure(Code::Protocol, "PUSH_PROMISE where push is off")),
            _ => self.count(Kind::Unknown).map(|()| None),
        }
    }

    pub(super) fn count(&mut self, kind: Kind) -> Result<(), Failure> {
        if self.budget.take(kind) {
            return Ok(());
        }
        Err(failure(
            Code::EnhanceYourCalm,
            match kind {
                Kind::PeerResets => "too many streams were reset",
                Kind::OwnResets => "too many streams had to be reset",
                Kind::Settings => "too many SETTINGS",
                Kind::Pings => "too many PINGs",
                Kind::Priorities => "too many priorities",
                Kind::Empty => "too many frames without content",
                Kind::WindowUpdates => "too many WINDOW_UPDATEs",
                Kind::Unknown => "too many unknown frames",
                Kind::SmallData => "too many small pieces of bodies",
                Kind::Continuations => "a field section has too many frames",
                Kind::LargeHeads => "too many field sections are too large",
            },
        ))
    }

    /// Refills the allowances after a complete response, if our role is the given one.
    #[inline]
    pub(super) fn completed(&mut self, role: Role) {
        if self.role == role {
            self.budget.refill();
        }
    }

    /// Returns true if the stream has not begun.
    pub(super) fn is_idle(&self, number: u32) -> bool {
        let begun_by_us = (number % 2 == 1) == (self.role == Role::Client);
        if begun_by_us { number >= self.next } else { number > self.last }
    }

    /// Handles a frame for a stream that is over. Fails the connection if the peer must know that the stream is over,
    /// ignores the frame if we have reset the stream, and resets the stream if it is not remembered.
    pub(super) fn late(&mut self, number: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self.streams.ended(number) {
            Some(End::Own) => Ok(()),
            // A client has begun and ended the stream itself, and the server may not know it yet.
            None if self.role == Role::Client => Ok(()),
            Some(End::Complete) => Err(failure(Code::StreamClosed, "a frame for a stream that is over")),
            Some(End::Peer) => Err(failure(Code::StreamClosed, "a frame for a stream that the peer has reset")),
            None => {
                // The stream ended too long ago to be remembered, or its number was skipped.
                self.count(Kind::OwnResets)?;
                frame::write_reset(number, Code::StreamClosed, out);
                Ok(())
            }
        }
    }

    /// Resets a stream that is not open.
    pub(super) fn refuse(
        &mut self,
        number: u32,
        code: Code,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, Failure> {
        self.count(Kind::OwnResets)?;
        self.streams.remember(number, End::Own);
        frame::write_reset(number, code, out);
        Ok(None)
    }

    /// Resets a stream because of the peer's mistake.
    pub(super) fn reset_because(&mut self, stream: StreamRef, code: Code, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.count(Kind::OwnResets)?;
        self.streams.remove(stream, End::Own);
        frame::write_reset(stream.number, code, out);
        Ok(())
    }

    /// Returns the peer's last GOAWAY, if it has sent one.
    pub fn peer_goes_away(&self) -> Option<Away> {
        self.peer_goes
    }

    /// Sets the current second, counted from any start, and refills each allowance by its `a_second` for each second
    /// since the last call. This keeps harmless but long-lived traffic, such as a stream of small messages or an
    /// occasional PING, from using an allowance up. A caller with a clock calls this before it passes received bytes.
    #[inline]
    pub fn set_second(&mut self, second: u32) {
        self.budget.set_second(second);
    }

    /// Frees memory that only a busy connection needs.
    pub fn shrink(&mut self) {
        if self.block.is_none() {
            self.fragments = Vec::new();
        }
        self.streams.shrink();
    }
}
