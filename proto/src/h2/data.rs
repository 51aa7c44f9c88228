//! Reads DATA frames: passes body bytes on as they arrive, without waiting for the whole frame, and accounts for
//! padding and both windows (RFC 9113 section 6.1).

use super::budget::Kind;
use super::connection::{Connection, Event, Failure, Lent, failure};
use super::frame::{self, Code, FrameHead, HEAD_BYTES, flag, kind};
use super::settings::Ours;
use super::state::Step;
use super::streams::StreamRef;
use crate::Role;
use alloc::vec::Vec;

/// The number of body bytes below which a DATA frame counts as small, as a chunk does in HTTP/1.
const SMALL_BYTES: u32 = 16;

/// A DATA frame that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    /// `None` if the stream is over; the bytes are then dropped.
    stream: Option<StreamRef>,
    left: u32,
    padding: u32,
    ends: bool,
}

impl Connection {
    /// Begins to read a DATA frame. Returns the number of payload bytes read and maybe an event, or `None` if the byte
    /// with the length of the padding has not arrived.
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
        if !self.windows.receive(head.length) {
            return Err(failure(Code::FlowControl, "more bytes than the connection's window allows"));
        }
        let ends = head.has(flag::END_STREAM);
        let found = self.streams.find(head.stream);
        // Small and empty frames are counted, except for the frame that ends an open stream.
        if !ends || found.is_none() {
            match left {
                0 => self.count(Kind::Empty)?,
                1..SMALL_BYTES => self.count(Kind::SmallData)?,
                _ => self.budget.received_data(left),
            }
        }
        // Padding counts as used up at once.
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
                // The padding also counts in the stream's window.
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

    /// Takes the whole body of a stream whose head has just been received, if it is announced with `length` bytes and all
    /// of it follows in one DATA frame that ends the stream. Does the same as [`receive`](Self::receive) for that frame,
    /// [`used`](Self::used) for its bytes, and `receive` for the end. Returns the bytes, and the number of used bytes of the
    /// window. Returns `None` without a change if the frame is another one or has no place in the windows.
    pub fn take_whole_body<'b>(
        &mut self,
        stream: StreamRef,
        length: u64,
        window: &'b [u8],
        out: &mut Vec<u8>,
    ) -> Option<(&'b [u8], usize)> {
        let head = FrameHead::read(window)?;
        let is_this = head.kind == kind::DATA && head.flags == flag::END_STREAM && head.stream == stream.number;
        if !is_this || self.incoming.is_some() || u64::from(head.length) != length {
            return None;
        }
        let whole = HEAD_BYTES + head.length as usize;
        let data = window.get(HEAD_BYTES..whole)?;
        let found = self.streams.get(stream)?;
        let is_allowed = found.receive.allows(head.length) && found.state.after(Step::Receive).is_some();
        if !is_allowed || found.announced != Some(length) || !self.windows.allows(head.length) {
            return None;
        }
        let is_counted = self.windows.receive(head.length);
        let is_taken = self.streams.get(stream)?.take_data(head.length, head.length, true).is_none();
        debug_assert!(is_counted && is_taken, "the checks above are the same");
        self.used_of_connection(head.length, out);
        if self.streams.step(stream, Step::ReceiveEnd) {
            self.completed(Role::Client);
        }
        Some((data, whole))
    }

    /// Reads more of a DATA frame. Returns the number of bytes read, and an event if there is one.
    pub(super) fn read_data<'b>(&mut self, bytes: &'b [u8], lent: &mut Lent<'_>) -> (usize, Option<Event<'b>>) {
        let Some(mut incoming) = self.incoming else { return (0, None) };
        // The stream may have been reset since the last call.
        incoming.stream = incoming.stream.filter(|&stream| self.streams.get(stream).is_some());
        if incoming.stream.is_none() {
            // The bytes are skipped like padding and count as used up at once, so that the windows do not depend on how
            // the input is split.
            self.used_of_connection(incoming.left, lent.out);
            incoming.padding += core::mem::take(&mut incoming.left);
        }
        if let Some(stream) = incoming.stream.filter(|_| incoming.left > 0) {
            if bytes.is_empty() {
                return (0, Some(Event::NeedMore));
            }
            let take = bytes.len().min(incoming.left as usize);
            incoming.left -= take as u32;
            // After the last byte of most frames neither padding nor the end of the stream follows.
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

    /// Returns true if [`receive`](Self::receive) may return the end of a body even for an empty window, because the
    /// body's last frame was read. A caller that stopped reading must then call `receive` once more, although no bytes
    /// are left.
    pub fn end_is_due(&self) -> bool {
        self.incoming.is_some_and(|incoming| incoming.left == 0 && incoming.padding == 0)
    }

    /// Reports that body bytes were used up. A WINDOW_UPDATE, now or after more bytes were used up, lets the peer send
    /// as many more on the stream and on the connection.
    pub fn used(&mut self, stream: StreamRef, bytes: usize, out: &mut Vec<u8>) {
        self.used_of_connection(bytes as u32, out);
        self.used_on_stream(stream, bytes, out);
    }

    /// Like [`used`](Self::used), but for the stream's window only. The caller must give the same bytes back to the
    /// connection's window by [`dropped`](Self::dropped).
    pub fn used_on_stream(&mut self, stream: StreamRef, bytes: usize, out: &mut Vec<u8>) {
        if let Some(found) = self.streams.get(stream)
            && let Some(more) = found.receive.use_up(bytes as u32)
            && found.state.after(Step::Receive).is_some()
        {
            frame::write_window_update(stream.number, more, out);
        }
    }

    /// Widens a stream's window by `bytes`, in addition to [`Bounds::stream_window`](super::Bounds::stream_window) and
    /// earlier calls. Does nothing if the peer has ended its direction or the window would be too large.
    pub fn widen(&mut self, stream: StreamRef, bytes: u32, out: &mut Vec<u8>) {
        if let Some(found) = self.streams.get(stream)
            && found.state.after(Step::Receive).is_some()
            && bytes > 0
            && let Some(more) = found.receive.widen(bytes)
        {
            frame::write_window_update(stream.number, more, out);
        }
    }

    /// Widens a stream's window to `size` bytes, unless it is at least as large. See [`widen`](Self::widen).
    pub fn widen_to(&mut self, stream: StreamRef, size: u32, out: &mut Vec<u8>) {
        if let Some((now, _)) = self.stream_window(stream) {
            self.widen(stream, size.saturating_sub(now), out);
        }
    }

    /// Gives the streams that the peer begins from now on windows of `size` bytes, in place of
    /// [`Bounds::stream_window`](super::Bounds::stream_window). The windows of the present streams stay as they are. Until the
    /// peer has acknowledged that, it may use the window from before, and gets no bytes of the connection's window back. Returns
    /// false, without a change, if new streams have no larger window, or if the peer has not acknowledged two earlier SETTINGS.
    pub fn narrow_streams(&mut self, size: u32, out: &mut Vec<u8>) -> bool {
        let Some(less) = self.windows.narrow_streams(size) else { return false };
        // SETTINGS narrow the windows of the present streams too (RFC 9113 section 6.9.2). Each is widened before that, so that none
        // becomes negative, with which some clients cannot deal.
        for (number, stream) in self.streams.each() {
            // A window that would be too large meanwhile is wide enough.
            if stream.state.after(Step::Receive).is_some()
                && let Some(receive) = stream.receive.compensated(less)
            {
                stream.receive = receive;
                frame::write_window_update(number, less, out);
            }
        }
        Ours::write_window(size, out);
        true
    }

    /// Widens the connection's window by `bytes`, until a call of [`narrow_connection`](Self::narrow_connection). Returns
    /// false, without a change, if the window would be too large.
    pub fn widen_connection(&mut self, bytes: u32, out: &mut Vec<u8>) -> bool {
        let more = self.windows.widen(bytes);
        if let Some(more @ 1..) = more {
            frame::write_window_update(0, more, out);
        }
        more.is_some()
    }

    /// Narrows the connection's window by `bytes`, by which it was widened before. What the peer may send already stays
    /// allowed.
    pub fn narrow_connection(&mut self, bytes: u32) {
        self.windows.narrow(bytes);
    }

    /// Narrows the windows of a stream and of the connection by `bytes`, by which they were widened before. The caller has used up as
    /// many bytes of the stream, and does not give these back.
    pub fn shrink_by_used(&mut self, stream: StreamRef, bytes: u32) {
        if let Some(found) = self.streams.get(stream) {
            found.receive.shrink(bytes);
            self.windows.shrink(bytes);
        }
    }

    /// Returns the size of the connection's window in bytes.
    pub fn connection_window(&self) -> u32 {
        self.windows.size()
    }

    /// Returns the size of a stream's window in bytes, and the number of bytes of an announced body that the peer cannot
    /// send before the window is widened or used-up bytes are given back. Returns `None` if the peer's direction has ended.
    pub fn stream_window(&mut self, stream: StreamRef) -> Option<(u32, Option<u64>)> {
        // The peer takes the difference back when it sees our settings.
        let more = self.windows.temporary();
        let found = self.streams.get(stream).filter(|found| found.state.after(Step::Receive).is_some())?;
        let open = i64::from(found.receive.left()) - i64::from(more);
        let lacks = |left: u64| i64::try_from(left).unwrap_or(i64::MAX).saturating_sub(open).max(0) as u64;
        Some((found.receive.size(), found.announced.map(lacks)))
    }

    /// Gives body bytes back to the connection's window, for use by any stream. The stream's window stays as it is.
    pub fn dropped(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.used_of_connection(bytes as u32, out);
    }

    /// Returns true if the connection's window lets the peer send body bytes, or if the peer has not yet acknowledged
    /// our settings, which may open the window.
    pub fn may_receive(&self) -> bool {
        self.windows.may_receive()
    }

    /// Returns true if a stream's own window lets the peer send more of its body.
    pub fn may_receive_on(&mut self, stream: StreamRef) -> bool {
        self.streams.get(stream).is_some_and(|found| !found.receive.is_closed())
    }

    pub(super) fn used_of_connection(&mut self, bytes: u32, out: &mut Vec<u8>) {
        if let Some(more) = self.windows.use_up(bytes) {
            frame::write_window_update(0, more, out);
        }
    }
}
