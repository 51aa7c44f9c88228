//! DATA: bodies, read as they come and not frame by frame, with their padding and both windows (RFC 9113 section 6.1).

use super::budget::Kind;
use super::connection::{Connection, Event, Failure, Lent, failure};
use super::frame::{self, Code, FrameHead, flag};
use super::state::Step;
use super::streams::StreamRef;
use crate::Role;
use alloc::vec::Vec;

/// DATA with fewer bytes of a body has mostly framing, as in HTTP/1 a chunk with fewer.
const SMALL_BYTES: u32 = 16;

/// A DATA frame that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    /// `None` where the stream is over: its bytes are dropped.
    stream: Option<StreamRef>,
    left: u32,
    padding: u32,
    ends: bool,
}

impl Connection {
    /// Begins to read a DATA frame: how much of the payload is read, or `None` where its first byte is still to come.
    pub(super) fn begin_data(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        lent: &mut Lent<'_>,
    ) -> Result<Option<(usize, Option<Event<'static>>)>, Failure> {
        let (mut read, mut padding) = (0, 0);
        if head.has(flag::PADDED) {
            if head.length == 0 {
                // RFC 9113 section 4.2: a frame too small for its mandatory data is a FRAME_SIZE_ERROR.
                return Err(failure(Code::FrameSize, "DATA of a wrong size"));
            }
            let Some(&length) = payload.first() else { return Ok(None) };
            (read, padding) = (1, u32::from(length));
        }
        if padding + read > head.length {
            return Err(failure(Code::Protocol, "the padding is longer than its frame"));
        }
        let left = head.length - padding - read;
        if !self.receive.receive(head.length) {
            return Err(failure(Code::FlowControl, "more bytes than the connection's window allows"));
        }
        let ends = head.has(flag::END_STREAM);
        let found = self.streams.find(head.stream);
        // What ends a stream is useful once; of one that is over it never is.
        if !ends || found.is_none() {
            match left {
                0 => self.count(Kind::Empty)?,
                1..SMALL_BYTES => self.count(Kind::SmallData)?,
                _ => self.budget.received_data(left),
            }
        }
        // Padding is used up by coming.
        self.used_of_connection(padding + read, lent.out);
        let Some(stream) = found else {
            if self.is_idle(head.stream) {
                return Err(failure(Code::Protocol, "DATA for a stream that was not begun"));
            }
            self.late(head.stream, lent.out)?;
            self.incoming = Some(Incoming { stream: None, left, padding, ends: false });
            return Ok(Some((read as usize, None)));
        };
        let mut incoming = Incoming { stream: Some(stream), left, padding, ends };
        let refused = match self.streams.get(stream) {
            None => None,
            Some(found) if found.state.after(Step::Receive).is_none() => Some(Code::StreamClosed),
            Some(found) if self.role == Role::Client && !found.has_answer => Some(Code::Protocol),
            Some(found) => found.take_data(head.length, left, ends),
        };
        let event = match refused {
            None => {
                // Its own window has the padding too.
                let update = self.streams.get(stream).and_then(|found| found.receive.use_up(padding + read));
                if let Some(more) = update.filter(|_| !ends) {
                    frame::write_window_update(stream.number, more, lent.out);
                }
                None
            }
            Some(code) => {
                (incoming.stream, incoming.ends) = (None, false);
                self.reset_because(stream, code, lent.out)?;
                Some(Event::Reset(stream, code))
            }
        };
        self.incoming = Some(incoming);
        Ok(Some((read as usize, event)))
    }

    /// Reads on in a DATA frame: how much, and what happened.
    pub(super) fn read_data<'b>(&mut self, bytes: &'b [u8], lent: &mut Lent<'_>) -> (usize, Option<Event<'b>>) {
        let Some(mut incoming) = self.incoming else { return (0, None) };
        // The stream may have been reset since.
        incoming.stream = incoming.stream.filter(|&stream| self.streams.get(stream).is_some());
        if incoming.stream.is_none() {
            // What nobody gets is as padding, and used up at once: however it comes, the windows are the same.
            self.used_of_connection(incoming.left, lent.out);
            incoming.padding += core::mem::take(&mut incoming.left);
        }
        if let Some(stream) = incoming.stream.filter(|_| incoming.left > 0) {
            if bytes.is_empty() {
                return (0, Some(Event::NeedMore));
            }
            let take = bytes.len().min(incoming.left as usize);
            incoming.left -= take as u32;
            // Nothing is due behind the last byte of most frames.
            let is_over = incoming.left == 0 && incoming.padding == 0 && !incoming.ends;
            self.incoming = if is_over { None } else { Some(incoming) };
            return (take, Some(Event::Data(stream, &bytes[..take])));
        }
        let skip = bytes.len().min(incoming.padding as usize);
        incoming.padding -= skip as u32;
        if incoming.padding > 0 {
            self.incoming = Some(incoming);
            return (skip, Some(Event::NeedMore));
        }
        self.incoming = None;
        match incoming.stream {
            Some(stream) if incoming.ends && self.streams.step(stream, Step::ReceiveEnd) => {
                self.completed(Role::Client);
                (skip, Some(Event::End(stream, false)))
            }
            _ => (skip, None),
        }
    }

    /// Whether an event is due that [`receive`](Self::receive) returns for an empty window too: the end of a body whose last
    /// frame was read. A caller that stopped reading in between must ask once more although nothing is left to read.
    pub fn end_is_due(&self) -> bool {
        self.incoming.is_some_and(|incoming| incoming.left == 0 && incoming.padding == 0)
    }

    /// Bytes of a body were used up: the peer may send as many more.
    pub fn used(&mut self, stream: StreamRef, bytes: usize, out: &mut Vec<u8>) {
        self.used_of_connection(bytes as u32, out);
        self.used_on_stream(stream, bytes, out);
    }

    /// Bytes of a body were used up, as [`used`](Self::used) says for the stream alone; the connection's window has them back by
    /// [`dropped`](Self::dropped).
    pub fn used_on_stream(&mut self, stream: StreamRef, bytes: usize, out: &mut Vec<u8>) {
        if let Some(found) = self.streams.get(stream)
            && let Some(more) = found.receive.use_up(bytes as u32)
            && found.state.after(Step::Receive).is_some()
        {
            frame::write_window_update(stream.number, more, out);
        }
    }

    /// Lets the peer send so many bytes more at a time on a stream than [`Bounds::stream_window`](super::Bounds::stream_window).
    pub fn widen(&mut self, stream: StreamRef, bytes: u32, out: &mut Vec<u8>) {
        if let Some(found) = self.streams.get(stream)
            && found.state.after(Step::Receive).is_some()
            && bytes > 0
            && found.receive.widen(bytes)
        {
            frame::write_window_update(stream.number, bytes, out);
        }
    }

    /// Bytes of a body were dropped: others may use the connection's window again, while the stream's stays as it is.
    pub fn dropped(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.used_of_connection(bytes as u32, out);
    }

    /// Whether the connection's window lets the peer send more of bodies, or would if it acknowledged our settings.
    pub fn may_receive(&self) -> bool {
        !self.acknowledged || !self.receive.is_closed()
    }

    /// Whether a stream's own window lets the peer send more of its body.
    pub fn may_receive_on(&mut self, stream: StreamRef) -> bool {
        self.streams.get(stream).is_some_and(|found| !found.receive.is_closed())
    }

    pub(super) fn used_of_connection(&mut self, bytes: u32, out: &mut Vec<u8>) {
        if !self.acknowledged {
            // A peer that does not say it knows our settings has the windows of RFC 9113 section 6.9.2 on every stream: together
            // it may use them once.
            self.unknown_used += bytes;
            return;
        }
        if bytes > 0
            && let Some(more) = self.receive.use_up(bytes)
        {
            frame::write_window_update(0, more, out);
        }
    }
}
