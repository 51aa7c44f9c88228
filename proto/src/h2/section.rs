//! Reads HEADERS and CONTINUATION, whose field sections begin a stream, respond to it, or end it with trailers (RFC
//! 9113 section 6.2).

use super::budget::Kind;
use super::connection::{Connection, Event, Failure, Lent, failure};
use super::fields::{self, MOST_LIST_BYTES, Malformed, Section};
use super::flow::SendWindow;
use super::frame::{self, Code, FrameHead, flag};
use super::schedule::Priority;
use super::state::{State, Step};
use super::streams::{End, Stream, StreamRef};
use crate::hpack;
use crate::{Field, Known, Length, Method, Role, Span};

/// A field section whose last frame has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    ends: bool,
    depends_on_itself: bool,
    continuations: u16,
}

impl Connection {
    pub(super) fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        let mut fragment = payload;
        let mut padding = 0;
        if head.has(flag::PADDED) {
            let Some((&length, rest)) = fragment.split_first() else {
                return Err(failure(Code::FrameSize, "HEADERS of a wrong size"));
            };
            (padding, fragment) = (usize::from(length), rest);
        }
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let Some((priority, rest)) = fragment.split_at_checked(5) else {
                return Err(failure(Code::FrameSize, "HEADERS of a wrong size"));
            };
            depends_on_itself = frame::number(priority) & 0x7fff_ffff == head.stream;
            fragment = rest;
        }
        let Some(length) = fragment.len().checked_sub(padding) else {
            return Err(failure(Code::Protocol, "the padding is longer than its frame"));
        };
        fragment = &fragment[..length];
        let ends = head.has(flag::END_STREAM);
        let block = Block { stream: head.stream, ends, depends_on_itself, continuations: 0 };
        if head.has(flag::END_HEADERS) {
            return self.section(block, fragment, lent);
        }
        if fragment.is_empty() {
            self.count(Kind::Empty)?;
        }
        self.fragments.extend_from_slice(fragment);
        self.block = Some(block);
        Ok(None)
    }

    pub(super) fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        let Some(mut block) = self.block.take() else {
            return Err(failure(Code::Protocol, "CONTINUATION without HEADERS"));
        };
        block.continuations += 1;
        // Compression hardly ever makes fields longer, so these bounds leave room for heads that are refused with 431.
        let too_many = block.continuations > self.bounds.continuations;
        if too_many || self.fragments.len() + payload.len() > 2 * MOST_LIST_BYTES as usize {
            self.count(Kind::Continuations)?;
        }
        if payload.is_empty() {
            self.count(Kind::Empty)?;
        }
        self.fragments.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        let fragments = core::mem::take(&mut self.fragments);
        self.section(block, &fragments, lent)
    }

    /// Handles a complete field section.
    pub(super) fn section(
        &mut self,
        block: Block,
        fragment: &[u8],
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        // The section is decoded even if it is refused, because the compression tables of both sides must stay equal.
        let too_large = self.decode(fragment, lent)?;
        match self.streams.find(block.stream) {
            Some(stream) if self.role == Role::Client => self.response(stream, block, too_large, lent),
            Some(stream) => self.trailers(stream, block, too_large, lent),
            None if self.role == Role::Client => {
                if self.is_idle(block.stream) {
                    return Err(failure(Code::Protocol, "HEADERS for a stream that was not begun"));
                }
                self.late(block.stream, lent.out).map(|()| None)
            }
            None => self.request(block, too_large, lent),
        }
    }

    /// Decodes a section into the lent head. Returns true if the section is larger than allowed.
    pub(super) fn decode(&mut self, fragment: &[u8], lent: &mut Lent<'_>) -> Result<bool, Failure> {
        let Lent { head, fields, limits, .. } = lent;
        head.clear();
        fields.clear();
        let most_fields = limits.field_count as usize + 8;
        let lines = &mut head.fields;
        let mut too_many = false;
        let most = (self.ours.list_bytes, hpack::HARD_FACTOR * most_fields as u32);
        let decoded = self.decoder.decode(fragment, fields, most, |line| {
            if lines.len() < most_fields {
                let span = |range: core::ops::Range<usize>| Span::new(range.start, range.end);
                lines.push(Field { name: span(line.name), value: span(line.value), known: Known::Other });
            } else {
                too_many = true;
            }
        });
        match decoded {
            Ok(decoded) => {
                let too_large = decoded.too_large || too_many;
                if too_large {
                    self.count(Kind::LargeHeads)?;
                }
                Ok(too_large)
            }
            Err(hpack::Error::ListTooLarge) => {
                // The list is recorded as a use of `Continuations`, whose allowance is 0, because no well-behaved
                // client sends such a list.
                let _ = self.budget.take(Kind::Continuations);
                Err(failure(Code::EnhanceYourCalm, "a field section is much larger than allowed"))
            }
            Err(error) => Err(failure(Code::Compression, error.text())),
        }
    }

    pub(super) fn request(
        &mut self,
        block: Block,
        too_large: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        let number = block.stream;
        if number.is_multiple_of(2) {
            return Err(failure(Code::Protocol, "a client's stream has an even number"));
        }
        if number <= self.last {
            return match self.streams.ended(number) {
                // This is usual once per reset, if the client sent trailers before it received the reset.
                Some(End::Own) => self.count(Kind::Empty).map(|()| None),
                Some(_) => Err(failure(Code::StreamClosed, "HEADERS for a stream that is over")),
                None => Err(failure(Code::Protocol, "a stream's number is lower than an earlier one's")),
            };
        }
        if self.going.is_some_and(|last| number > last) {
            // Our GOAWAY lets the client send this request elsewhere. Later frames of the stream are no error (RFC 9113
            // section 6.8).
            self.count(Kind::Empty)?;
            self.last = number;
            self.streams.remember(number, End::Own);
            return Ok(None);
        }
        self.last = number;
        if block.depends_on_itself {
            return self.refuse(number, Code::Protocol, lent.out);
        }
        if self.streams.len() >= self.bounds.streams as usize {
            return self.refuse(number, Code::Refused, lent.out);
        }
        let read = match too_large {
            true => Err(Malformed::Answer(crate::Error::HeadTooLarge)),
            false => fields::read(Section::Request, lent.fields, block.ends, lent.limits, lent.head),
        };
        let head = &lent.head;
        let (length, method) = match read {
            Ok(()) => (head.length, head.method),
            Err(Malformed::Malformed) => return self.refuse(number, Code::Protocol, lent.out),
            Err(Malformed::Answer(_)) => (if block.ends { Length::Empty } else { Length::Unknown }, Method::Get),
        };
        let priority = match head.fields.iter().find(|field| field.name.of(lent.fields) == b"priority") {
            Some(field) => Priority::read(field.value.of(lent.fields)),
            None => Priority::default(),
        };
        let stream = self.begin(number, method, priority);
        if let Some(begun) = self.streams.get(stream) {
            begun.announced = if let Length::Exact(length) = length { Some(length) } else { None };
        }
        if block.ends {
            self.streams.step(stream, Step::ReceiveEnd);
        }
        Ok(Some(match read {
            Err(Malformed::Answer(error)) => Event::Refused(stream, error),
            _ => Event::Head(stream, length),
        }))
    }

    /// Begins a stream.
    pub(super) fn begin(&mut self, number: u32, method: Method, priority: Priority) -> StreamRef {
        let state = State::Idle.after(Step::Begin).unwrap_or(State::Open);
        self.streams.insert(
            number,
            Stream {
                state,
                send: SendWindow::new(self.peer.window),
                receive: self.windows.of_stream(),
                announced: None,
                promised: None,
                priority,
                method,
                has_answer: false,
                is_tunnel: false,
            },
        )
    }

    pub(super) fn trailers(
        &mut self,
        stream: StreamRef,
        block: Block,
        too_large: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        let is_clients = self.role == Role::Server;
        let Some(found) = self.streams.get(stream) else { return Ok(None) };
        let code = if found.state.after(Step::ReceiveEnd).is_none() {
            Some(Code::StreamClosed)
        } else if !found.may_have_trailers(is_clients)
            || !block.ends
            || block.depends_on_itself
            || found.announced.is_some_and(|rest| rest != 0)
        {
            Some(Code::Protocol)
        } else if too_large {
            Some(Code::EnhanceYourCalm)
        } else {
            let read = fields::read(Section::Trailers, lent.fields, true, lent.limits, lent.head);
            read.err().map(|_| Code::Protocol)
        };
        if let Some(code) = code {
            self.reset_because(stream, code, lent.out)?;
            return Ok(Some(Event::Reset(stream, code)));
        }
        self.streams.step(stream, Step::ReceiveEnd);
        self.completed(Role::Client);
        Ok(Some(Event::End(stream, !lent.head.fields.is_empty())))
    }

    pub(super) fn response(
        &mut self,
        stream: StreamRef,
        block: Block,
        too_large: bool,
        lent: &mut Lent<'_>,
    ) -> Result<Option<Event<'static>>, Failure> {
        let Some(found) = self.streams.get(stream) else { return Ok(None) };
        if found.has_answer {
            return self.trailers(stream, block, too_large, lent);
        }
        let read = fields::read(Section::Response, lent.fields, block.ends, lent.limits, lent.head);
        let head = &mut *lent.head;
        let interim = head.status < 200;
        let bodiless = found.withholds(head.status);
        let tunnels = found.tunnels(head.status);
        // A response must not announce a body and have none (RFC 9113 section 8.1.1).
        let announced = head.known(Known::ContentLength).map_or(&[][..], |field| field.value.of(lent.fields));
        let lacks = block.ends && !bodiless && !tunnels && announced.iter().any(|&digit| digit != b'0');
        if too_large || read.is_err() || lacks || (interim && block.ends) {
            self.reset_because(stream, Code::Protocol, lent.out)?;
            return Ok(Some(Event::Reset(stream, Code::Protocol)));
        }
        if interim {
            return Ok(Some(Event::Interim(stream)));
        }
        found.has_answer = true;
        found.is_tunnel = tunnels;
        head.upgrade = tunnels;
        if tunnels && !block.ends {
            // A tunnel ignores an announced length (RFC 9110 section 9.3.6).
            head.length = Length::Unknown;
        }
        found.announced = match head.length {
            _ if bodiless => Some(0),
            Length::Exact(length) => Some(length),
            _ => None,
        };
        let length = head.length;
        if block.ends {
            self.streams.step(stream, Step::ReceiveEnd);
            self.completed(Role::Client);
        }
        Ok(Some(Event::Head(stream, length)))
    }
}
