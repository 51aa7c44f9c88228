//! Lets a peer send further ahead if the way to it is long.
//!
//! With a window of 64 KiB, a peer sends 64 KiB per round trip: over 100 ms, 640 KB/s. The windows of a stream and of its
//! connection are therefore widened while the reader of the body keeps up: at once by what is left of a body whose length was
//! announced, otherwise to [`GROWTH`] times their size each time that the peer has waited for a window. The peers may use all that
//! they are given at any time, so the windows of all connections of a worker share [`AHEAD_BYTES`]. One stream may get four fifths of
//! it, and several an equal part each once half is used: a stream that has more gives back what its reader takes, in place of letting the peer
//! send as much again. The tunnels of a connection get at most [`TUNNELS_BYTES`], because each of them stops reading when its
//! peer does not take what it writes.

use super::grants::Granted;
use super::streams::Http2;
use crate::body::is_tight;
use crate::connection::out::Out;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h2::StreamRef;

/// The most bytes by which the windows of all HTTP/2 connections of a worker are wider than usual, and the part of the memory
/// budget that this may be for all workers together. It is 2 Gbit/s over 100 ms for one stream.
const AHEAD_BYTES: usize = 32 * 1024 * 1024;
const AHEAD_PART: usize = 16;

/// The factor by which a window grows if the length of the body is not known.
const GROWTH: usize = 16;

/// The least number of bytes by which a window is widened, unless all of a body then fits.
const LEAST_BYTES: usize = 16 * 1024;

/// The most bytes of a response that a server far away may send before its reader has taken any. Responses that never end, such as event
/// streams, keep it, so it is at most half of what is left of the first half of all.
const FIRST_BYTES: usize = 8 * 1024 * 1024;

/// The most bytes by which the windows of a connection are widened for tunnels. It is 80 Mbit/s over 100 ms.
const TUNNELS_BYTES: usize = 1024 * 1024;

/// The time in nanoseconds after which received bytes are preceded by a pause. On one machine and in one room, a peer hears
/// sooner that it may send more.
const PAUSE: u64 = 2_000_000;

/// The bytes that have come without a pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    bytes: u32,
    /// The moment at which bytes came or were given back to the peer last, in nanoseconds.
    last: u64,
}

impl Burst {
    /// Counts received bytes. After a pause, returns the number of bytes that had come before it.
    fn count(&mut self, bytes: usize, now: u64) -> Option<u32> {
        let before = (now.saturating_sub(self.last) >= PAUSE).then(|| std::mem::take(&mut self.bytes));
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.last = now;
        before
    }
}

/// Returns true if a peer that has sent so many bytes before a pause has probably waited for a window of this size. The peer
/// gets used-up bytes back when they are half of the window, so that it may have had only as many.
fn has_filled(before: u32, size: u32) -> bool {
    before >= size / 8 * 3
}

/// Returns the most bytes by which the windows of a worker may be wider than usual.
fn all_ahead(worker: &WorkerContext<impl Service>) -> usize {
    AHEAD_BYTES.min(worker.shared.budget.limit() / AHEAD_PART / worker.shared.workers())
}

/// Returns the part of these bytes that each of so many streams may have.
fn part_ahead(worker: &WorkerContext<impl Service>, streams: usize) -> usize {
    let all = all_ahead(worker);
    (all / streams.max(1)).min(all / 5 * 4)
}

impl Http2 {
    /// Records that body bytes have come.
    pub(in crate::connection) fn note_burst(
        &mut self,
        stream: StreamRef,
        bytes: usize,
        worker: &WorkerContext<impl Service>,
    ) {
        let now = worker.now().nanoseconds;
        if let Some(before) = self.burst.count(bytes, now) {
            self.has_waited |= has_filled(before, self.http.connection_window());
        }
        let Some(before) = self.get(stream).and_then(|active| active.burst.count(bytes, now)) else { return };
        let Some((size, _)) = self.http.stream_window(stream) else { return };
        if has_filled(before, size)
            && let Some(active) = self.get(stream)
        {
            active.has_waited = true;
        }
    }

    /// Widens the windows for a body whose reader has just taken all that has come, if the peer needs that.
    pub(in crate::connection) fn look_ahead(
        &mut self,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let now = worker.now().nanoseconds;
        self.burst.last = now;
        let connection_waited = std::mem::take(&mut self.has_waited);
        let Some(active) = self.get(stream) else { return };
        active.burst.last = now;
        let is_tunnel = active.exchange.tunnel().is_some();
        let (has_waited, own) = (std::mem::take(&mut active.has_waited), active.ahead);
        let is_new = !std::mem::replace(&mut active.is_looked_at, true) || own == 0;
        let Some((size, lacks)) = self.http.stream_window(stream) else { return self.end_ahead(stream) };
        let left = |ahead: &Granted| if is_tunnel { TUNNELS_BYTES.saturating_sub(ahead.own()) } else { usize::MAX };
        // The next requests need not wait for that.
        self.is_far |= has_waited || connection_waited;
        if connection_waited {
            let (size, own) = (self.http.connection_window(), self.connection_ahead);
            self.connection_ahead += self.give_ahead(left(&self.ahead).min(size as usize), own, size, worker, out);
        }
        let wanted = match lacks {
            Some(lacks) if is_new || has_waited => usize::try_from(lacks).unwrap_or(usize::MAX),
            None if has_waited => (GROWTH - 1) * size as usize,
            _ => 0,
        };
        let more = self.give_ahead(left(&self.ahead).min(wanted), own, size, worker, out);
        self.widen_ahead(stream, more, out);
    }

    /// Lets a server far away send much of a response at once. Its reader asks for it, and need not prove that it keeps up.
    pub(super) fn begin_ahead(&mut self, stream: StreamRef, worker: &WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some((size, _)) = self.http.stream_window(stream) else { return };
        let left = (all_ahead(worker) / 2).saturating_sub(self.ahead.in_all());
        let more = self.give_ahead(FIRST_BYTES.min(left / 2), 0, size, worker, out);
        self.widen_ahead(stream, more, out);
    }

    /// Widens the window of a stream by what the connection's was widened, and counts the stream.
    fn widen_ahead(&mut self, stream: StreamRef, more: u32, out: &mut Out<'_>) {
        self.http.widen(stream, more, &mut out.queue.output);
        let Some(active) = self.get(stream).filter(|_| more > 0) else { return };
        active.ahead += more;
        if !std::mem::replace(&mut active.is_ahead, true) {
            self.streams_ahead.add(1);
        }
    }

    /// Returns how many of the bytes that the reader of a stream has just taken the peer does not get back, because the stream
    /// has more than its part of what all may have. Narrows the windows by these.
    pub(in crate::connection) fn give_back_ahead(
        &mut self,
        stream: StreamRef,
        taken: usize,
        worker: &WorkerContext<impl Service>,
    ) -> usize {
        let (all, part) = (all_ahead(worker), part_ahead(worker, self.streams_ahead.in_all()));
        if self.streams_ahead.in_all() < 2 || self.ahead.in_all() < all / 8 * 7 {
            return 0;
        }
        let Some(active) = self.get(stream) else { return 0 };
        let more = (active.ahead as usize).saturating_sub(part).min(taken);
        active.ahead -= more as u32;
        self.http.shrink_by_used(stream, more as u32);
        self.ahead.take_back(more);
        // What the connection got for all of its streams goes first.
        let shared = self.connection_ahead.min((taken - more) as u32);
        self.connection_ahead -= shared;
        self.take_back_ahead(shared);
        more
    }

    /// Widens the connection's window by at most `wanted` bytes, if a window of `size` bytes that was widened by `own` bytes before
    /// may be widened. Returns the number of bytes.
    fn give_ahead(
        &mut self,
        wanted: usize,
        own: u32,
        size: u32,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> u32 {
        let more = self.room_ahead(wanted, own, size, worker);
        if more == 0 || !self.http.widen_connection(more, &mut out.queue.output) {
            return 0;
        }
        self.ahead.add(more as usize);
        more
    }

    /// Returns the number of bytes, at most `wanted`, by which a window of `size` bytes may be widened that was widened by `own`
    /// bytes before.
    fn room_ahead(&self, wanted: usize, own: u32, size: u32, worker: &WorkerContext<impl Service>) -> u32 {
        if wanted == 0 || is_tight() {
            return 0;
        }
        let all = all_ahead(worker);
        let left = all.saturating_sub(self.ahead.in_all());
        // While more than half of the bytes are left, one stream may get as many as if it were alone.
        let sharing = if left > all / 2 { 1 } else { self.streams_ahead.in_all() + usize::from(own == 0) };
        let part = part_ahead(worker, sharing).saturating_sub(own as usize);
        let most = worker.rules.http2.most_window.saturating_sub(size) as usize;
        let more = wanted.min(left).min(part).min(most);
        if more < wanted.min(LEAST_BYTES) { 0 } else { u32::try_from(more).unwrap_or(0) }
    }

    /// Gives back what the windows were widened for a stream, because its body has ended, unless its reader has not taken all.
    /// The other streams would then have to do without what it has not taken.
    pub(in crate::connection) fn end_ahead(&mut self, stream: StreamRef) {
        let Some(active) = self.get(stream).filter(|active| active.granted > 0 || active.given == 0) else { return };
        let (given, is_ahead) = (std::mem::take(&mut active.ahead), std::mem::take(&mut active.is_ahead));
        self.take_back_ahead(given);
        self.streams_ahead.take_back(usize::from(is_ahead));
    }

    /// Narrows the connection's window by what it was widened for a stream.
    pub(super) fn take_back_ahead(&mut self, given: u32) {
        if given > 0 {
            self.http.narrow_connection(given);
            self.ahead.take_back(given as usize);
        }
    }

    /// Gives back what the connection's window was widened for all streams, because none is open.
    pub(in crate::connection) fn end_connection_ahead(&mut self) {
        let given = std::mem::take(&mut self.connection_ahead);
        self.take_back_ahead(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_waited_if_a_pause_follows_half_of_its_window() {
        let mut burst = Burst::default();
        assert_eq!(burst.count(100, 5 * PAUSE), Some(0), "what comes first follows a pause");
        assert_eq!(burst.count(200, 6 * PAUSE - 1), None);
        assert_eq!(burst.count(10, 7 * PAUSE), Some(300));
        assert_eq!(burst.count(10, 9 * PAUSE), Some(10));
        assert!(has_filled(300, 800) && !has_filled(299, 800) && has_filled(u32::MAX, u32::MAX));
    }
}
