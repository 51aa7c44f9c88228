//! How much of bodies that are collected whole a peer may send on one HTTP/2 connection.
//!
//! Each stream begins with a small window ([`first_window`]), which is widened when it is used. The body that began first is
//! always credited as it comes, so that there is progress; the others share [`UNFINISHED_BYTES`], and wait for their turn where
//! that is used up. What was granted is counted and not what has come: a peer may use all its windows at once.

use super::streams::Http2;
use crate::config::Config;
use crate::connection::out::Out;
use crate::service::Service;
use crate::worker::WorkerContext;
use highwire_proto::h2::StreamRef;

/// The window that a stream begins with. Wider ones are granted to those that use them: a peer may fill the windows of all its
/// streams before a byte of them is of use.
pub(in crate::connection) fn first_window(config: &Config) -> u32 {
    /// Most forms and calls fit it, and all streams together hold half a megabyte.
    const FIRST_WINDOW: u32 = 4 * 1024;
    config.http2.stream_window.min(FIRST_WINDOW)
}

/// Returns by how much a stream's window grows when it is used.
pub(in crate::connection) fn wider(config: &Config) -> u32 {
    config.http2.stream_window - first_window(config)
}

/// Bytes of bodies that are collected whole that one connection may send, beside the body that began first. That one may always
/// go on, so that there is progress however many wait.
const UNFINISHED_BYTES: usize = 1024 * 1024;

/// What that shrinks to as the worker holds more and more for all peers, up to `CROWDED_BYTES`.
const LEAST_UNFINISHED_BYTES: usize = 256 * 1024;

/// Bytes that a worker holds for its peers from which on it is crowded.
const CROWDED_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of bodies, beside the oldest, that one connection may send while the worker holds `held` bytes for all of them.
fn unfinished_bytes(held: usize) -> usize {
    /// How many connections share what is left.
    const SHARERS: usize = 4;
    (CROWDED_BYTES.saturating_sub(held) / SHARERS).clamp(LEAST_UNFINISHED_BYTES, UNFINISHED_BYTES)
}

impl Http2 {
    /// A body begins that is collected whole.
    pub(in crate::connection) fn begin_to_collect(
        &mut self,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let first = first_window(worker.shared.config()) as usize;
        self.collecting.push_back(stream);
        self.granted += first;
        if let Some(active) = self.get(stream) {
            active.granted = first;
        }
        self.grant(stream, worker, out);
    }

    /// A body that was collected is whole, or is not collected any more: the others get what it had.
    pub(in crate::connection) fn end_collecting(&mut self, stream: StreamRef) {
        let Some(active) = self.get(stream).filter(|active| active.granted > 0) else { return };
        let granted = std::mem::take(&mut active.granted);
        active.given = 0;
        self.granted -= granted;
        self.is_to_grant = true;
    }

    /// Grants those that wait for it what there is room for, the first ones first.
    pub(in crate::connection) fn grant_waiting(&mut self, worker: &WorkerContext<impl Service>, out: &mut Out<'_>) {
        if !std::mem::take(&mut self.is_to_grant) {
            return;
        }
        let Http2 { collecting, active, .. } = self;
        collecting.retain(|stream| {
            let slot = active.get(stream.place as usize).and_then(Option::as_deref);
            slot.is_some_and(|active| active.stream == *stream && active.granted > 0)
        });
        for at in 0..self.collecting.len() {
            let stream = self.collecting[at];
            self.grant(stream, worker, out);
        }
    }

    /// Lets the peer send more of a body that is collected: as much as it has sent, and once what widens the stream's window, if
    /// there is room for that.
    pub(in crate::connection) fn grant(
        &mut self,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let wider = wider(worker.shared.config());
        let (was_closed, arrived) = (!self.http.may_receive_on(stream), self.arrived);
        let first = self.collecting.front().copied();
        let firsts = first.and_then(|first| self.get(first)).map_or(0, |active| active.granted);
        let others = self.granted - firsts;
        let Some(active) = self.get(stream) else { return };
        let wider = if active.is_widened { 0 } else { wider };
        let more = active.given + wider as usize;
        if first != Some(stream) && others + more > unfinished_bytes(worker.share.charged()) {
            return;
        }
        (active.is_widened, active.granted) = (true, active.granted + more);
        let given = std::mem::take(&mut active.given);
        self.granted += more;
        self.http.widen(stream, wider, &mut out.queue.output);
        self.http.used_on_stream(stream, given, &mut out.queue.output);
        if was_closed
            && self.http.may_receive_on(stream)
            && let Some(active) = self.get(stream)
        {
            // It had to wait: from here on the peer is waited for.
            active.judge_from_now(worker, arrived);
        }
    }
}
