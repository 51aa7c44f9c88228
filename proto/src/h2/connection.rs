//! One HTTP/2 connection, either role: what is received turned into events.
//!
//! The object owns what a connection must remember: windows, tables, streams. It borrows the window of unread bytes, and all
//! connections of a caller share one [`Head`] and one buffer for decoded fields. What has to be said at once (answers to
//! SETTINGS and PING, resets, window updates) is written to the caller's output as it is met.

use super::budget::{Budget, Kind};
use super::data::Incoming;
use super::fields::MOST_LIST_BYTES;
use super::flow::{ReceiveWindow, SendWindow};
use super::frame::{self, Code, FRAME_BYTES, FrameHead, HEAD_BYTES, PREFACE, flag, kind};
use super::section::Block;
use super::settings::{FIRST_WINDOW, Ours, Peer};
use super::streams::{End, StreamRef, Streams};
use crate::hpack;
use crate::{Head, Length, Limits, Role};
use alloc::vec::Vec;

/// What a connection lets its peer do; shared by all connections of a server or client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Streams that a peer may have open. RFC 9113 section 6.5.2 asks for 100 at least.
    pub streams: u32,
    /// Bytes that a peer may send on one stream before some are used up.
    pub stream_window: u32,
    /// The same on all streams together.
    pub connection_window: u32,
    /// Bytes of the table for the fields that a peer sends.
    pub table_bytes: u32,
    /// CONTINUATION frames behind one HEADERS: as many as full ones need for the largest head.
    pub continuations: u16,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            streams: 128,
            stream_window: 64 * 1024,
            connection_window: 256 * 1024,
            table_bytes: 4096,
            continuations: 8,
        }
    }
}

/// What a caller lends for the time of a call.
#[derive(Debug)]
pub struct Lent<'a> {
    /// Where heads are read into.
    pub head: &'a mut Head,
    /// The bytes that the head's spans point into.
    pub fields: &'a mut Vec<u8>,
    /// What is to be sent.
    pub out: &'a mut Vec<u8>,
    /// How large a head may be.
    pub limits: &'a Limits,
}

/// What a peer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// The window holds no whole event: receive more, append it and call again.
    NeedMore,
    /// A request's or final response's head, in the lent `Head`. With [`Length::Empty`] the peer's direction has ended.
    Head(StreamRef, Length),
    /// A request that a server must answer with this error; nothing of it is in the lent `Head`.
    Refused(StreamRef, crate::Error),
    /// An interim response (client role), in the lent `Head`.
    Interim(StreamRef),
    /// Bytes of a body; they count as consumed. The peer may send as many more when [`Connection::used`] has been called.
    Data(StreamRef, &'b [u8]),
    /// A body ended; where the flag is set, the lent `Head` has its trailers.
    End(StreamRef, bool),
    /// A stream is over before its time: the peer has reset it, or did what resets it. After [`Code::Refused`] nothing was
    /// done for it, and it may be asked for again, whatever its method (RFC 9113 section 8.7). [`Code::NoError`] behind the
    /// end of a response says that the rest of the request is not wanted: the response holds (section 8.1).
    Reset(StreamRef, Code),
    /// More may be sent on this stream.
    Opened(StreamRef),
    /// More may be sent on every stream, or the peer's settings have changed.
    AllOpened,
    /// The peer begins no more streams on this connection and wants no more (GOAWAY): see [`Connection::peer_goes_away`].
    /// Where it says that it does nothing for some of ours, each of them is [`Reset`](Event::Reset) with [`Code::Refused`].
    GoingAway,
}

/// An event and how many bytes of the window it used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'b> {
    /// Bytes at the front of the window that are not needed any more, once the event has been acted on.
    pub consumed: usize,
    /// What happened.
    pub event: Event<'b>,
}

/// Why a connection ends. The peer has been told in the output: nothing but that is sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code that the peer is told.
    pub code: Code,
    /// The same in words.
    pub text: &'static str,
}

pub(super) const fn failure(code: Code, text: &'static str) -> Failure {
    Failure { code, text }
}

/// What a peer has said of its going away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// The highest number of a stream of ours for which it does, or may have done, something. It is lower, or the same, each
    /// time that it is said.
    pub last: u32,
    /// Why.
    pub code: Code,
}

/// What the connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Preface,
    FirstSettings,
    Running,
    Failed,
}

/// One connection's protocol state.
#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) ours: Ours,
    pub(super) peer: Peer,
    pub(super) encoder: hpack::Encoder,
    pub(super) streams: Streams,
    pub(super) send: SendWindow,
    pub(super) budget: Budget,
    /// The highest number of a stream that the peer began.
    pub(super) last: u32,
    /// The number of the next stream that we begin.
    pub(super) next: u32,
    /// We have said that we go away, and the last stream that is still served.
    pub(super) going: Option<u32>,
    pub(super) receive: ReceiveWindow,
    pub(super) decoder: hpack::Decoder,
    pub(super) phase: Phase,
    pub(super) incoming: Option<Incoming>,
    pub(super) block: Option<Block>,
    pub(super) fragments: Vec<u8>,
    pub(super) bounds: Bounds,
    pub(super) peer_goes: Option<Away>,
    /// There may be streams of ours that the peer does nothing for, and that have still to be reset.
    pub(super) unserved: bool,
    /// The peer knows our settings: until then it goes by what RFC 9113 section 6.5.2 begins with.
    pub(super) acknowledged: bool,
    /// Bytes of the connection's window that were used up before that.
    pub(super) unknown_used: u32,
}

impl Connection {
    /// A fresh connection. What it begins with is written to the output: SETTINGS, and the preface of a client.
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
            send: SendWindow::new(FIRST_WINDOW),
            budget: Budget::new(),
            last: 0,
            next: if role == Role::Client { 1 } else { 2 },
            going: None,
            receive: ReceiveWindow::new(bounds.connection_window.max(FIRST_WINDOW)),
            decoder: hpack::Decoder::new(hpack::DEFAULT_TABLE_BYTES),
            acknowledged: false,
            unknown_used: 0,
            phase: if role == Role::Server { Phase::Preface } else { Phase::FirstSettings },
            incoming: None,
            block: None,
            fragments: Vec::new(),
            bounds,
            peer_goes: None,
            unserved: false,
        }
    }

    /// Streams that are under way.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Which allowance ran out, where the connection failed because of one.
    pub fn fired(&self) -> Option<Kind> {
        self.budget.fired()
    }

    /// Bytes that the connection holds: its tables, and what came of a field section.
    pub fn held(&self) -> usize {
        self.fragments.capacity() + self.decoder.memory_bytes() + self.encoder.memory_bytes()
    }

    /// Reads one event from the front of the window.
    ///
    /// # Errors
    /// Why the connection ends; the peer is told in the output.
    #[inline]
    pub fn receive<'b>(&mut self, window: &'b [u8], lent: &mut Lent<'_>) -> Result<Received<'b>, Failure> {
        self.read(window, lent).map_err(|failure| self.fail(failure, lent.out))
    }

    /// Ends the connection because of something that only the caller sees.
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

    /// What can be judged by a frame's head alone.
    #[inline]
    fn check(&self, head: FrameHead) -> Result<(), Failure> {
        // First: whatever else is wrong with it, it is no preface (RFC 9113 section 3.4).
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

    /// A response is complete, by the side of this role: work was done, in which allowances are counted.
    #[inline]
    pub(super) fn completed(&mut self, role: Role) {
        if self.role == role {
            self.budget.refill();
        }
    }

    /// Whether nothing has been said of a stream yet.
    pub(super) fn is_idle(&self, number: u32) -> bool {
        let begun_by_us = (number % 2 == 1) == (self.role == Role::Client);
        if begun_by_us { number >= self.next } else { number > self.last }
    }

    /// A frame for a stream that is over: the peer may not know yet, unless it ended it itself.
    pub(super) fn late(&mut self, number: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self.streams.ended(number) {
            Some(End::Own) => Ok(()),
            Some(End::Complete) => Err(failure(Code::StreamClosed, "a frame for a stream that is over")),
            Some(End::Peer) => Err(failure(Code::StreamClosed, "a frame for a stream that the peer has reset")),
            None => {
                // So long ago that nobody knows how it ended, or never begun.
                self.count(Kind::OwnResets)?;
                frame::write_reset(number, Code::StreamClosed, out);
                Ok(())
            }
        }
    }

    /// A stream is reset before it began.
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

    /// A stream is reset because of what the peer sent.
    pub(super) fn reset_because(&mut self, stream: StreamRef, code: Code, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.count(Kind::OwnResets)?;
        self.streams.remove(stream, End::Own);
        frame::write_reset(stream.number, code, out);
        Ok(())
    }

    /// What the peer has said of its going away, where it has.
    pub fn peer_goes_away(&self) -> Option<Away> {
        self.peer_goes
    }

    /// Some time has gone by, in which the peer may have done useful things that cannot be told from a flood but by how slowly
    /// they come: a stream of small messages, a PING now and then. It has each allowance back by its row's `a_second`. A
    /// caller with a clock says which second it is before it passes on what was received; what it counts from is its own.
    #[inline]
    pub fn set_second(&mut self, second: u32) {
        self.budget.set_second(second);
    }

    /// Gives back what only a busy connection needs.
    pub fn shrink(&mut self) {
        if self.block.is_none() {
            self.fragments = Vec::new();
        }
        self.streams.shrink();
    }
}
