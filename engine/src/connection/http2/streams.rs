//! The exchanges of a connection that speaks HTTP/2, by their streams.

use crate::body::BodyError;
use crate::deadline::NEVER;
use crate::exchange::{Exchange, Intake, Waits};
use crate::service::Service;
use crate::worker::WorkerContext;
use bytes::Bytes;
use highwire_proto::h2::{self, Schedule, StreamRef};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a connection that speaks HTTP/2 is charged beside what it holds for its streams: its state, its tables, and what the
/// allocator rounds them to.
pub(in crate::connection) const CONNECTION_BYTES: usize = 6 * 1024;

/// Bytes of answers that may wait on one connection for the peer to open a window, once [`ALL_STALLED_ANSWERS`] wait on all
/// connections of the worker. Then further requests of the connection are refused.
const STALLED_ANSWERS: usize = 192 * 1024;

/// Bytes of answers that may wait for windows on all connections of a worker before single ones are held to
/// [`STALLED_ANSWERS`]. A download that waits holds a part of 32 KiB at most.
const ALL_STALLED_ANSWERS: usize = 16 * 1024 * 1024;

/// Bytes of answers that wait for windows, of one connection and of all.
struct Stalled {
    own: usize,
    all: Rc<Cell<usize>>,
}

impl Stalled {
    fn change(&mut self, before: usize, now: usize) {
        self.own = self.own + now - before;
        self.all.set(self.all.get() + now - before);
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.change(self.own, 0);
    }
}

/// What a stream is charged beside its bytes.
const STREAM_BYTES: usize = 512;

/// A stream whose exchange was not over at once.
pub(in crate::connection) struct Active {
    pub(in crate::connection) stream: StreamRef,
    pub(in crate::connection) exchange: Exchange,
    /// Bytes of the answer that the windows have not allowed yet.
    pub(in crate::connection) pending: Bytes,
    /// It is in the schedule.
    pub(in crate::connection) scheduled: bool,
    /// The answer is complete, and what still comes of the request is dropped.
    pub(in crate::connection) drops: bool,
    /// Bytes of the request's body that its handler has got and the peer has not been credited for.
    pub(in crate::connection) given: usize,
    /// Bytes of the request's body that the handler of a whole one has; then those of its whole answer.
    pub(in crate::connection) lent: usize,
    pub(in crate::connection) intake: Intake,
    /// What had come on all streams when the body's rate was last judged.
    pub(in crate::connection) arrived_before: u64,
    /// Bytes of the answer that the peer has taken since it was last given time, and what had been sent on all streams by then.
    pub(in crate::connection) taken: u64,
    pub(in crate::connection) sent_before: u64,
    /// When it is looked at, and why.
    pub(in crate::connection) due: u32,
    pub(in crate::connection) waits: Waits,
    /// Bytes that it was counted with, those of its answer, and whether that may have changed since.
    counted: usize,
    counted_stalled: usize,
    stale: bool,
    /// Some of its body has come that its handler was not told of.
    pub(in crate::connection) fed: bool,
    /// Of a body that is collected whole: bytes that the peer may send, or has sent, since it began.
    pub(in crate::connection) granted: usize,
    /// The peer may send more at a time on it than streams begin with.
    pub(in crate::connection) is_widened: bool,
}

impl Active {
    /// Whether an answer has begun: its head goes out, or has gone.
    pub(in crate::connection) fn is_answered(&self) -> bool {
        self.exchange.outgoing.has_begun()
    }

    /// Bytes that are held for it.
    fn held(&self) -> usize {
        STREAM_BYTES + self.exchange.lent(self.lent.max(self.pending_bytes())) + self.exchange.held()
    }

    /// Bytes of the answer that the windows have not allowed yet, if they are held for this peer alone.
    fn pending_bytes(&self) -> usize {
        if self.pending.is_unique() { self.pending.len() } else { 0 }
    }

    /// Bytes of its answer that wait for the peer to open a window.
    fn stalled(&self) -> usize {
        if !self.is_answered() || self.scheduled || self.waits != Waits::Write {
            return 0;
        }
        let body = self.exchange.outgoing.held();
        let written = self.exchange.tunnel().map_or(0, |tunnel| tunnel.raw.borrow().outgoing_held);
        STREAM_BYTES + self.lent.max(self.pending_bytes()) + body + written
    }

    /// Bytes of its body that the peer's window of the connection is owed. For a body that is collected they were given back as
    /// they came.
    pub(in crate::connection) fn owed(&self) -> usize {
        if self.granted > 0 { 0 } else { self.given }
    }

    /// Whether its time runs. While the peer does not take what it is sent, only that of handlers and bodies' writers does,
    /// as long as they have nothing to send.
    pub(in crate::connection) fn is_judged(&self, is_blocked: bool) -> bool {
        !is_blocked || (self.waits == Waits::Handler && !self.scheduled)
    }
}

/// What a connection that speaks HTTP/2 has in place of one exchange.
pub(crate) struct Http2 {
    pub(in crate::connection) http: h2::Connection,
    pub(in crate::connection) schedule: Schedule,
    /// By the stream's place.
    pub(in crate::connection) active: Vec<Option<Box<Active>>>,
    pub(in crate::connection) count: usize,
    /// Bytes of bodies whose streams are over, and that the peer has not been credited for on the connection.
    pub(in crate::connection) owed: usize,
    /// When the second GOAWAY of a graceful shutdown is due.
    pub(in crate::connection) goes_at: Option<u32>,
    /// Bytes of bodies that came, on all streams, and that were sent.
    pub(in crate::connection) arrived: u64,
    pub(in crate::connection) sent: u64,
    /// Since when there was always something that the peer had not taken, and until when it has to take some.
    pub(in crate::connection) blocked_at: Option<u32>,
    pub(in crate::connection) write_due: u32,
    /// Since when there is no request.
    pub(in crate::connection) idle_since: Option<u32>,
    /// Bytes that are held for all streams, but for those in `stale`, whose share may have changed.
    counted: usize,
    /// Of them, those of answers that wait for the peer to open a window.
    stalled: Stalled,
    stale: Vec<StreamRef>,
    /// No stream is to be looked at before then.
    next_due: u32,
    /// Streams whose handlers have to be told of what has come of their bodies.
    pub(in crate::connection) fed: Vec<StreamRef>,
    /// Streams whose bodies are collected whole, the first one first, with those that are over since; and what was granted to
    /// them together.
    pub(in crate::connection) collecting: VecDeque<StreamRef>,
    pub(in crate::connection) granted: usize,
    /// One of them is over: others may be granted more.
    pub(in crate::connection) is_to_grant: bool,
}

impl Http2 {
    /// `all`: bytes of answers that wait for windows, on all connections of the worker.
    pub(in crate::connection) fn new(http: h2::Connection, all: Rc<Cell<usize>>) -> Http2 {
        Http2 {
            http,
            schedule: Schedule::default(),
            active: Vec::new(),
            count: 0,
            owed: 0,
            goes_at: None,
            arrived: 0,
            sent: 0,
            blocked_at: None,
            write_due: NEVER,
            idle_since: None,
            counted: 0,
            stalled: Stalled { own: 0, all },
            stale: Vec::new(),
            next_due: NEVER,
            fed: Vec::new(),
            collecting: VecDeque::new(),
            granted: 0,
            is_to_grant: false,
        }
    }

    /// The stream's exchange. What it holds is counted anew, since the caller may change it.
    pub(in crate::connection) fn get(&mut self, stream: StreamRef) -> Option<&mut Active> {
        let active = self.active.get_mut(stream.place as usize)?.as_deref_mut()?;
        if active.stream != stream {
            return None;
        }
        if !std::mem::replace(&mut active.stale, true) {
            self.stale.push(stream);
        }
        Some(active)
    }

    /// The stream's exchange, made where there is none.
    pub(in crate::connection) fn active(
        &mut self,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
    ) -> &mut Active {
        let place = stream.place as usize;
        if place >= self.active.len() {
            self.active.resize_with(place + 1, || None);
        }
        let slot = &mut self.active[place];
        if slot.as_ref().is_none_or(|active| active.stream != stream) {
            debug_assert!(slot.is_none(), "an exchange outlived its stream");
            self.count += usize::from(slot.is_none());
            *slot = None;
        }
        let active = slot.get_or_insert_with(|| {
            Box::new(Active {
                stream,
                exchange: Exchange::default(),
                pending: Bytes::new(),
                scheduled: false,
                drops: false,
                given: 0,
                lent: 0,
                intake: Intake::default(),
                arrived_before: 0,
                taken: 0,
                sent_before: 0,
                due: worker.tick.saturating_add(worker.timeouts.handler),
                waits: Waits::Handler,
                counted: 0,
                counted_stalled: 0,
                stale: false,
                fed: false,
                granted: 0,
                is_widened: false,
            })
        });
        if !std::mem::replace(&mut active.stale, true) {
            self.stale.push(stream);
        }
        active
    }

    /// Forgets a stream's exchange: its handler is cancelled, its body ends.
    pub(in crate::connection) fn forget(&mut self, stream: StreamRef, worker: &mut WorkerContext<impl Service>) {
        if self.get(stream).is_none() {
            return;
        }
        let Some(mut active) = self.active[stream.place as usize].take() else { return };
        self.count -= 1;
        self.owed += active.owed();
        self.counted -= active.counted;
        self.stalled.change(active.counted_stalled, 0);
        self.granted -= active.granted;
        self.is_to_grant |= active.granted > 0;
        if active.scheduled {
            self.schedule.remove(stream);
        }
        active.exchange.give_up(BodyError::CutShort, worker);
        if self.count == 0 {
            (self.active, self.stale, self.fed) = (Vec::new(), Vec::new(), Vec::new());
            self.collecting = VecDeque::new();
        }
    }

    /// The stream that holds the most.
    pub(in crate::connection) fn largest(&self) -> Option<StreamRef> {
        self.active.iter().flatten().max_by_key(|active| active.held()).map(|active| active.stream)
    }

    /// Whether the peer takes what it is sent. While it does not, nothing that it says is read: neither bodies nor windows are
    /// judged by that time.
    pub(in crate::connection) fn note_blocked(&mut self, is_blocked: bool, worker: &WorkerContext<impl Service>) {
        match (self.blocked_at, is_blocked) {
            (None, true) => self.blocked_at = Some(worker.tick),
            (Some(since), false) => {
                self.blocked_at = None;
                // What it has taken was the last answer, where there was no other reason to send. (The driver says so a little
                // behind that.)
                let is_answer = |idle_since: &u32| *idle_since >= since.saturating_sub(1);
                self.idle_since = self.idle_since.map(|at| if is_answer(&at) { worker.tick } else { at });
                let blocked = worker.tick.saturating_sub(since);
                let write_due = worker.tick.saturating_add(worker.timeouts.write);
                let body_due = worker.tick.saturating_add(worker.timeouts.body);
                for active in self.active.iter_mut().flatten() {
                    match active.waits {
                        // Some of its time may have begun meanwhile.
                        Waits::Body => active.due = active.due.saturating_add(blocked).min(body_due),
                        Waits::Write => active.due = active.due.saturating_add(blocked).min(write_due),
                        Waits::Handler | Waits::Nothing => {}
                    }
                }
                self.look();
            }
            _ => {}
        }
    }

    /// The peer has until then to take some of what it is sent: when to look at the connection.
    pub(in crate::connection) fn blocked_until(&mut self, due: u32, worker: &WorkerContext<impl Service>) -> u32 {
        self.note_blocked(true, worker);
        self.write_due = due;
        self.due().map_or(due, |other| other.min(due))
    }

    /// When to look at the streams, the first of which may have waited too long then. It may be too early: a walk over all
    /// streams is for [`look`](Self::look).
    pub(in crate::connection) fn due(&mut self) -> Option<u32> {
        self.held();
        let streams = (self.count > 0).then_some(self.next_due);
        streams.into_iter().chain(self.goes_at).min()
    }

    /// Finds out anew when to look at the streams.
    pub(in crate::connection) fn look(&mut self) {
        let is_blocked = self.blocked_at.is_some();
        let judged = self.active.iter().flatten().filter(|active| active.is_judged(is_blocked));
        self.next_due = judged.map(|active| active.due).min().unwrap_or(NEVER);
    }

    /// Returns true if the peer leaves so much of its answers behind closed windows that it may not ask for more, since all peers
    /// of the worker together leave too much there.
    pub(in crate::connection) fn stalls_too_much(&mut self) -> bool {
        self.held();
        self.stalled.own > STALLED_ANSWERS && self.stalled.all.get() > ALL_STALLED_ANSWERS
    }

    pub(in crate::connection) fn release(mut self: Box<Self>, worker: &mut WorkerContext<impl Service>) {
        for mut active in self.active.drain(..).flatten() {
            active.exchange.give_up(BodyError::CutShort, worker);
        }
    }

    /// Bytes that are held for the peer. Counts only those streams anew that may have changed: a peer with many of them could
    /// make a walk over all of them follow each of its frames.
    pub(in crate::connection) fn held(&mut self) -> usize {
        let is_blocked = self.blocked_at.is_some();
        let Http2 { active, stale, counted, stalled, next_due, .. } = self;
        for stream in stale.drain(..) {
            let slot = active.get_mut(stream.place as usize).and_then(Option::as_deref_mut);
            let Some(active) = slot.filter(|active| active.stream == stream) else { continue };
            let held = active.held();
            *counted = *counted + held - std::mem::replace(&mut active.counted, held);
            let waits = active.stalled();
            stalled.change(std::mem::replace(&mut active.counted_stalled, waits), waits);
            active.stale = false;
            if active.is_judged(is_blocked) {
                *next_due = active.due.min(*next_due);
            }
        }
        CONNECTION_BYTES + self.http.held() + self.counted
    }
}
