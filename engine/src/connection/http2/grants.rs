//! Limits the number of body bytes that a peer may send on one HTTP/2 connection for request bodies that the server
//! collects whole.
//!
//! The oldest body gets credit for all its received bytes, so that at least one body can make progress. The others share at
//! most [`UNFINISHED_BYTES`], and wait if these are used up. The limit applies to granted bytes and not to received ones,
//! because a peer may use all its windows at once. Streams begin with a wide window, so that a client far away need not wait
//! for the first answer. Once another one would have exceeded the limit, the streams of the connection begin with a small
//! window until its end, which is widened when the body begins and the limit allows.

use super::streams::Http2;
use crate::connection::out::Out;
use crate::exchange::Waits;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h2::StreamRef;
use std::cell::Cell;
use std::rc::Rc;

/// The most bytes that one connection may be granted for bodies that are collected whole, besides the oldest body. The
/// oldest body has no such limit, so that it can make progress.
const UNFINISHED_BYTES: usize = 1024 * 1024;

/// The same limit on a crowded worker. As the charge for all peers approaches [`CROWDED_BYTES`], the limit shrinks from
/// [`UNFINISHED_BYTES`] to this.
const LEAST_UNFINISHED_BYTES: usize = 256 * 1024;

/// The number of bytes held for all peers, or granted to them, at which a worker is crowded. Peers may use what they are
/// granted at any time, so that it must not be judged by what has arrived.
const CROWDED_BYTES: usize = 16 * 1024 * 1024;

/// The initial window of a stream on a connection with many unfinished bodies. Most forms and API calls fit into it. With the default of
/// 128 streams, all together have half a megabyte.
const NARROW_WINDOW: u32 = 4 * 1024;

/// The numbers of bytes that are granted, such as for bodies that are collected whole: on this connection, and on all
/// connections of the worker.
pub(super) struct Granted {
    own: usize,
    all: Rc<Cell<usize>>,
}

impl Granted {
    pub(super) fn new(all: Rc<Cell<usize>>) -> Granted {
        Granted { own: 0, all }
    }

    /// Returns the number on this connection.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Returns the number on all connections of the worker.
    pub(super) fn in_all(&self) -> usize {
        self.all.get()
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.set(self.all.get() + bytes);
    }

    pub(super) fn take_back(&mut self, bytes: usize) {
        self.own -= bytes;
        self.all.set(self.all.get() - bytes);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.take_back(self.own);
    }
}

/// Returns the most bytes that one connection may be granted besides its oldest body, while the worker holds `held`
/// bytes for all peers, or has granted them.
fn unfinished_bytes(held: usize) -> usize {
    /// The number of connections that are assumed to share the rest of [`CROWDED_BYTES`].
    const SHARERS: usize = 4;
    (CROWDED_BYTES.saturating_sub(held) / SHARERS).clamp(LEAST_UNFINISHED_BYTES, UNFINISHED_BYTES)
}

impl Http2 {
    /// Registers a body that is collected whole, and widens its window if the limit allows.
    pub(in crate::connection) fn begin_to_collect(
        &mut self,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let first = self.http.stream_window(stream).map_or(NARROW_WINDOW, |(size, _)| size) as usize;
        self.collecting.push_back(stream);
        self.granted.add(first);
        if let Some(active) = self.get(stream) {
            active.granted = first;
        }
        while self.collecting.front().is_some_and(|first| !self.is_collected(*first)) {
            self.collecting.pop_front();
        }
        if self.others_granted() + first > self.most_granted(worker)
            && self.http.narrow_streams(NARROW_WINDOW, &mut out.queue.output)
        {
            // Until the peer knows that, a window that is closed looks open, and a body behind it slow.
            let (arrived, active) = (self.arrived, self.active.iter_mut().flatten());
            for active in active.filter(|active| active.waits == Waits::Body) {
                active.judge_from_now(worker, arrived);
            }
        }
        self.grant(stream, worker, out);
    }

    /// Takes back the granted bytes of a body that is complete or no longer collected, so that they can be granted to
    /// other bodies.
    pub(in crate::connection) fn end_collecting(&mut self, stream: StreamRef) {
        let Some(active) = self.get(stream).filter(|active| active.granted > 0) else { return };
        let granted = std::mem::take(&mut active.granted);
        active.given = 0;
        self.granted.take_back(granted);
        self.is_to_grant = true;
    }

    /// Grants more to the bodies that are being collected, the oldest first, as far as the limit allows. Does nothing
    /// unless a collected body has ended since the last call.
    pub(in crate::connection) fn grant_waiting(&mut self, worker: &WorkerContext<impl Service>, out: &mut Out<'_>) {
        if !std::mem::take(&mut self.is_to_grant) {
            return;
        }
        let mut collecting = std::mem::take(&mut self.collecting);
        collecting.retain(|stream| self.is_collected(*stream));
        self.collecting = collecting;
        for at in 0..self.collecting.len() {
            let stream = self.collecting[at];
            self.grant(stream, worker, out);
        }
    }

    /// Returns true if the body of a stream is being collected.
    fn is_collected(&self, stream: StreamRef) -> bool {
        let slot = self.active.get(stream.place as usize).and_then(Option::as_deref);
        slot.is_some_and(|active| active.stream == stream && active.granted > 0)
    }

    /// Returns the number of bytes that are granted to all bodies but the oldest one.
    fn others_granted(&mut self) -> usize {
        let first = self.collecting.front().copied();
        self.granted.own - first.and_then(|first| self.get(first)).map_or(0, |active| active.granted)
    }

    /// Returns the most bytes that may be granted to all bodies but the oldest one.
    fn most_granted(&self, worker: &WorkerContext<impl Service>) -> usize {
        // What peers far away may send ahead has a bound of its own.
        let charged = worker.share.charged().saturating_sub(self.ahead.in_all());
        unfinished_bytes(charged.max(self.granted.in_all()))
    }

    /// Lets the peer send more of a body that is collected whole: as many bytes as it has sent since the last grant
    /// and, with the first grant, the bytes that widen the stream's window. Does nothing if the limit has no room for
    /// them, unless this is the oldest body.
    pub(in crate::connection) fn grant(
        &mut self,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let (was_closed, arrived) = (!self.http.may_receive_on(stream), self.arrived);
        let first = self.collecting.front().copied();
        let (others, most) = (self.others_granted(), self.most_granted(worker));
        let Some(is_widened) = self.get(stream).map(|active| active.is_widened) else { return };
        let wider = match self.http.stream_window(stream) {
            Some((size, _)) if !is_widened => worker.rules.stream_window.saturating_sub(size),
            _ => 0,
        };
        let Some(active) = self.get(stream) else { return };
        let more = active.given + wider as usize;
        if first != Some(stream) && others + more > most {
            return;
        }
        (active.is_widened, active.granted) = (true, active.granted + more);
        let given = std::mem::take(&mut active.given);
        self.granted.add(more);
        self.http.widen(stream, wider, &mut out.queue.output);
        self.http.used_on_stream(stream, given, &mut out.queue.output);
        if first == Some(stream) {
            self.look_ahead(stream, worker, out);
        }
        if was_closed
            && self.http.may_receive_on(stream)
            && let Some(active) = self.get(stream)
        {
            // The peer could not send on this stream before, so its rate is judged from now on.
            active.judge_from_now(worker, arrived);
        }
    }
}
