//! The streams of an HTTP/2 connection with their exchanges, their deadlines, and the memory that they hold.

use super::ahead::Burst;
use super::grants::Granted;
use crate::body::HeldBytes;
use crate::client;
use crate::exchange::{Exchange, Intake, Waits};
use crate::runtime::deadline::NEVER;
use crate::runtime::free_list::FreeList;
use crate::runtime::memory;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::h2::{self, Schedule, StreamRef};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The memory charge in bytes for the state of an HTTP/2 connection, rounded up as the allocator does. Its compression
/// tables and streams are charged in addition.
pub(in crate::connection) const CONNECTION_BYTES: usize = 6 * 1024;

/// The most answer bytes that may wait for windows on one connection while more than [`ALL_STALLED_ANSWERS`] wait on
/// all connections of its worker. If more wait, the connection's further requests are refused.
const STALLED_ANSWERS: usize = 192 * 1024;

/// The number of answer bytes that may wait for windows on all connections of a worker before [`STALLED_ANSWERS`]
/// applies to each connection. A waiting download of a file holds at most one part of 32 KiB.
const ALL_STALLED_ANSWERS: usize = 16 * 1024 * 1024;

/// The numbers of answer bytes that wait for windows: on this connection, and on all connections of the worker.
struct Stalled {
    own: HeldBytes,
    all: Rc<Cell<usize>>,
}

impl Stalled {
    fn change(&mut self, before: usize, now: usize) {
        self.own.set(self.own.get() + now - before);
        self.all.set(self.all.get() + now - before);
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.change(self.own.get(), 0);
    }
}

/// The memory charge in bytes for a stream, besides the bytes that it holds.
const STREAM_BYTES: usize = 512;

/// A stream whose exchange was not completed at once.
pub(in crate::connection) struct Active {
    pub(in crate::connection) stream: StreamRef,
    pub(in crate::connection) exchange: Exchange,
    /// Bytes of the response's body that are ready and not sent yet.
    pub(in crate::connection) pending: Bytes,
    /// True if the stream is in the schedule.
    pub(in crate::connection) scheduled: bool,
    /// True if the answer is complete and the rest of the request is dropped as it arrives.
    pub(in crate::connection) drops: bool,
    /// True if the stream was a tunnel, whose peer gets the linger timeout also during a shutdown.
    pub(in crate::connection) lingers: bool,
    /// The number of received bytes of the request's body, or of a tunnel, that have not been credited to the stream's
    /// window yet.
    pub(in crate::connection) given: usize,
    /// The number of bytes of a whole request body that the handler holds or, once the response has begun, of a whole
    /// response body that only this stream holds.
    pub(in crate::connection) lent: usize,
    pub(in crate::connection) intake: Intake,
    /// The value of [`Http2::arrived`] when the current period began in which the rate of the request's body is measured.
    pub(in crate::connection) arrived_before: u64,
    /// The number of bytes of the answer sent since the write deadline last started, and the value of [`Http2::sent`]
    /// at that time.
    pub(in crate::connection) taken: u64,
    pub(in crate::connection) sent_before: u64,
    /// The tick of the stream's deadline, and the event that the stream waits for until then.
    pub(in crate::connection) due: u32,
    pub(in crate::connection) waits: Waits,
    /// The number of bytes that this stream adds to [`Http2::held`], the number of its stalled answer bytes, and true
    /// if both numbers may be out of date.
    counted: usize,
    counted_stalled: usize,
    stale: bool,
    /// True if body bytes were received since the handler was last polled for them.
    pub(in crate::connection) fed: bool,
    /// The number of bytes that the peer has been granted for a body that is being collected whole; otherwise 0.
    pub(in crate::connection) granted: usize,
    /// The number of bytes by which the windows are wider than usual; see [`ahead`](super::ahead).
    pub(super) ahead: u32,
    /// True if the peer wants to send further ahead, and counts among those.
    pub(super) is_ahead: bool,
    /// True if it was looked how much of the body the peer cannot send yet.
    pub(super) is_looked_at: bool,
    /// The bytes that have come without a pause, and true if the peer has waited for the window since the reader of the body
    /// has last taken all.
    pub(super) burst: Burst,
    pub(super) has_waited: bool,
    /// True if the request is ours, and the peer responds.
    pub(in crate::connection) is_asked: bool,
    /// True if [`Http2::grant`] has widened the stream's window.
    pub(in crate::connection) is_widened: bool,
}

impl Default for Active {
    fn default() -> Active {
        Active {
            stream: StreamRef { place: 0, number: 0 },
            exchange: Exchange::default(),
            pending: Bytes::new(),
            scheduled: false,
            drops: false,
            lingers: false,
            given: 0,
            lent: 0,
            intake: Intake::default(),
            arrived_before: 0,
            taken: 0,
            sent_before: 0,
            due: NEVER,
            waits: Waits::Handler,
            counted: 0,
            counted_stalled: 0,
            stale: false,
            fed: false,
            granted: 0,
            ahead: 0,
            is_ahead: false,
            is_looked_at: false,
            burst: Burst::default(),
            has_waited: false,
            is_asked: false,
            is_widened: false,
        }
    }
}

thread_local! {
    static SPARE: FreeList<Active> = const { FreeList::new() };
}

impl Active {
    /// Returns the number by which the stream is [charged](memory::is_own) for shared bytes.
    pub(in crate::connection) fn holder(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns true if the response has begun.
    pub(in crate::connection) fn is_answered(&self) -> bool {
        self.exchange.outgoing.has_begun()
    }

    /// Returns the number of bytes that are held for the stream.
    fn held(&self) -> usize {
        STREAM_BYTES + self.exchange.lent(self.lent.max(self.pending_bytes())) + self.exchange.held()
    }

    /// Returns the number of pending bytes, or 0 if other owners share them, because they are then not held for this
    /// peer alone.
    fn pending_bytes(&self) -> usize {
        if memory::is_own(&self.pending, self.holder()) { self.pending.len() } else { 0 }
    }

    /// Returns the number of answer bytes that wait for the peer to open a window, with the charge for the stream; 0 if
    /// none wait.
    fn stalled(&self) -> usize {
        if !self.is_answered() || self.is_asked || self.scheduled || self.waits != Waits::Write {
            return 0;
        }
        let body = self.exchange.outgoing.held();
        let written = self.exchange.tunnel().map_or(0, |tunnel| tunnel.raw.borrow().outgoing_held());
        STREAM_BYTES + self.lent.max(self.pending_bytes()) + body + written
    }

    /// Returns the number of received bytes that have not been credited to the connection's window. The bytes of a
    /// collected body are credited there as they arrive.
    pub(in crate::connection) fn owed(&self) -> usize {
        if self.granted > 0 { 0 } else { self.given }
    }

    /// Returns true if the stream's deadline applies. While the socket is blocked, it applies only to a stream that
    /// waits for its handler, or for the next part of its response's body, and has nothing to send, and to one that waits
    /// for a response's head.
    pub(in crate::connection) fn is_judged(&self, is_blocked: bool) -> bool {
        !is_blocked || self.waits == Waits::Head || (self.waits == Waits::Handler && !self.scheduled)
    }

    /// Returns the tick of the stream's next event: its deadline, if that applies, or the alarm of a tunnel's task.
    fn next_due(&self, is_blocked: bool) -> u32 {
        let alarm = self.exchange.tunnel().map_or(NEVER, |tunnel| tunnel.raw.borrow().alarm);
        if self.is_judged(is_blocked) { self.due.min(alarm) } else { alarm }
    }
}

/// The HTTP/2 state of a connection: its streams and their exchanges.
pub(crate) struct Http2 {
    pub(in crate::connection) http: h2::Connection,
    pub(in crate::connection) schedule: Schedule,
    /// The streams with exchanges, indexed by [`StreamRef::place`].
    pub(in crate::connection) active: Vec<Option<Box<Active>>>,
    pub(in crate::connection) count: usize,
    /// The number of received bytes of forgotten streams that have not been credited to the connection's window.
    pub(in crate::connection) owed: usize,
    /// The tick at which the second GOAWAY of a graceful shutdown is due.
    pub(in crate::connection) goes_at: Option<u32>,
    /// The number of request body bytes received on streams in `active`, without tunnels, and the number of response
    /// body bytes sent on all streams, so far.
    pub(in crate::connection) arrived: u64,
    pub(in crate::connection) sent: u64,
    /// The tick since which the socket has been blocked, and the tick by which the peer must take some bytes.
    pub(in crate::connection) blocked_at: Option<u32>,
    pub(in crate::connection) write_due: u32,
    /// The tick since which the connection has had no request.
    pub(in crate::connection) idle_since: Option<u32>,
    /// The connection's window for what we send at that tick, and how much of `sent` was the reason for more idle time.
    idle_window: usize,
    idle_taken: u64,
    /// The tick at which something was received last, and, after a PING, the tick by which something must be received.
    pub(in crate::connection) heard: u32,
    pub(in crate::connection) pinged: Option<u32>,
    /// The number of bytes held for all streams. The shares of the streams in `stale` may be out of date.
    counted: usize,
    /// The numbers of answer bytes that wait for the peer to open a window.
    stalled: Stalled,
    stale: Vec<StreamRef>,
    /// A tick before which no stream's deadline passes.
    next_due: u32,
    /// Streams that have received body bytes since their handlers were last polled for them.
    pub(in crate::connection) fed: Vec<StreamRef>,
    /// Streams whose bodies are collected whole, the oldest first (some may be over already), and the number of bytes
    /// granted to all of them.
    pub(in crate::connection) collecting: VecDeque<StreamRef>,
    pub(super) granted: Granted,
    /// The number of bytes by which windows are wider than usual, and the part of it by which only the connection's is; see
    /// [`ahead`](super::ahead).
    pub(super) ahead: Granted,
    pub(super) streams_ahead: Granted,
    pub(super) connection_ahead: u32,
    /// True if the peer has waited for a window, because it is far away.
    pub(super) is_far: bool,
    /// As those of [`Active`], for all streams of the connection.
    pub(super) burst: Burst,
    pub(super) has_waited: bool,
    /// The body of the response whose head is being handled, if all of it came with the head.
    pub(in crate::connection) came: Option<Bytes>,
    /// True if a stream was woken in a turn that had no time for it.
    pub(in crate::connection) has_late_wakes: bool,
    /// The place from which on a later turn drives the streams, because an earlier one had no time for all of them.
    pub(in crate::connection) undriven: Option<usize>,
    /// True if a collected body has ended since the last grants, so others may be granted more.
    pub(in crate::connection) is_to_grant: bool,
}

impl Http2 {
    /// Creates the state of a new connection.
    pub(in crate::connection) fn new(http: h2::Connection, worker: &WorkerContext<impl Service>) -> Http2 {
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
            idle_window: 0,
            idle_taken: 0,
            heard: NEVER,
            pinged: None,
            counted: 0,
            stalled: Stalled { own: HeldBytes::default(), all: worker.stalled.clone() },
            stale: Vec::new(),
            next_due: NEVER,
            fed: Vec::new(),
            collecting: VecDeque::new(),
            granted: Granted::new(worker.granted.clone()),
            ahead: Granted::new(worker.ahead.clone()),
            streams_ahead: Granted::new(worker.streams_ahead.clone()),
            connection_ahead: 0,
            is_far: false,
            burst: Burst::default(),
            has_waited: false,
            came: None,
            has_late_wakes: false,
            undriven: None,
            is_to_grant: false,
        }
    }

    /// Returns the state of a stream, if it has one. Marks its memory to be counted again, because the caller may
    /// change it.
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

    /// Returns the state of a stream; creates it if there is none.
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
            let mut active = FreeList::take(&SPARE);
            active.stream = stream;
            active.due = worker.tick().saturating_add(worker.rules.handler);
            active
        });
        if !std::mem::replace(&mut active.stale, true) {
            self.stale.push(stream);
        }
        active
    }

    /// Removes the state of a stream and cancels its handler. A reader of an incomplete request body gets an error.
    pub(in crate::connection) fn forget(&mut self, stream: StreamRef, worker: &mut WorkerContext<impl Service>) {
        if self.get(stream).is_none() {
            return;
        }
        let Some(mut active) = self.active[stream.place as usize].take() else { return };
        self.count -= 1;
        self.owed += active.owed();
        self.counted -= active.counted;
        self.stalled.change(active.counted_stalled, 0);
        self.granted.take_back(active.granted);
        self.take_back_ahead(active.ahead);
        self.streams_ahead.take_back(usize::from(active.is_ahead));
        self.is_to_grant |= active.granted > 0;
        if active.scheduled {
            self.schedule.remove(stream);
        }
        active.exchange.lose(worker);
        FreeList::recycle(&SPARE, active);
        if self.count == 0 {
            (self.active, self.stale, self.fed) = (Vec::new(), Vec::new(), Vec::new());
            self.collecting = VecDeque::new();
        }
    }

    /// Returns the stream that holds the most memory, if there is a stream.
    pub(in crate::connection) fn largest(&self) -> Option<StreamRef> {
        self.active.iter().flatten().max_by_key(|active| active.held()).map(|active| active.stream)
    }

    /// Begins the idle time, unless it has begun before.
    pub(super) fn is_idle_from_now(&mut self, worker: &WorkerContext<impl Service>) {
        if self.idle_since.is_none() {
            self.idle_since = Some(worker.tick());
            self.idle_window = self.http.window();
        }
    }

    /// Begins the idle time anew if the peer has given back a part of the connection's window since it began, because such
    /// a peer still takes what the kernel has taken from us. Each time uses up at least `Timeouts::least_taken` bytes of what
    /// was sent, so that a peer cannot stay by widening the window.
    pub(super) fn still_takes(&mut self, worker: &WorkerContext<impl Service>) -> bool {
        let (least, taken) = (worker.rules.least_taken, self.http.window().saturating_sub(self.idle_window) as u64);
        let still_takes = taken > 0 && self.idle_taken < self.sent;
        if still_takes {
            self.idle_taken += taken.max(least);
            self.idle_since = None;
            self.is_idle_from_now(worker);
        }
        still_takes
    }

    /// Records whether the socket is blocked. A blocked connection parses nothing, so the deadlines of streams that
    /// wait for a body or a window are extended by the time for which it was blocked.
    pub(in crate::connection) fn note_blocked(&mut self, is_blocked: bool, worker: &WorkerContext<impl Service>) {
        match (self.blocked_at, is_blocked) {
            (None, true) => self.blocked_at = Some(worker.tick()),
            (Some(since), false) => {
                self.blocked_at = None;
                // If the last request ended after the socket was blocked, or at most a tick before (the driver reports
                // the block a little late), the peer was taking the last answer until now. Then the idle time begins
                // now.
                let is_answer = |idle_since: &u32| *idle_since >= since.saturating_sub(1);
                self.idle_since = self.idle_since.map(|at| if is_answer(&at) { worker.tick() } else { at });
                let blocked = worker.tick().saturating_sub(since);
                let write_due = worker.tick().saturating_add(worker.rules.write);
                let body_due = worker.tick().saturating_add(worker.rules.body);
                for active in self.active.iter_mut().flatten() {
                    match active.waits {
                        // The new deadline is at most a full timeout from now, because the old one may have been set
                        // while the socket was blocked.
                        Waits::Body => active.due = active.due.saturating_add(blocked).min(body_due),
                        Waits::Write => active.due = active.due.saturating_add(blocked).min(write_due),
                        Waits::Head | Waits::Handler | Waits::Nothing => {}
                    }
                }
                self.look();
            }
            _ => {}
        }
    }

    /// Records that the socket is blocked, and that the peer must take some bytes by the tick `due`. Returns the tick
    /// of the connection's next deadline.
    pub(in crate::connection) fn blocked_until(&mut self, due: u32, worker: &WorkerContext<impl Service>) -> u32 {
        self.note_blocked(true, worker);
        self.write_due = due;
        self.due().map_or(due, |other| other.min(due))
    }

    /// Returns the tick of the next deadline, of a stream or of the second GOAWAY. It may be too early, because only
    /// [`look`](Self::look) walks over all streams.
    pub(in crate::connection) fn due(&mut self) -> Option<u32> {
        self.held();
        let streams = (self.count > 0).then_some(self.next_due);
        streams.into_iter().chain(self.goes_at).min()
    }

    /// Finds the earliest deadline or alarm of all streams.
    pub(in crate::connection) fn look(&mut self) {
        let is_blocked = self.blocked_at.is_some();
        let due = self.active.iter().flatten().map(|active| active.next_due(is_blocked));
        self.next_due = due.min().unwrap_or(NEVER);
    }

    /// Returns true if the connection may not begin another request, because more than [`STALLED_ANSWERS`] bytes wait
    /// for its windows, and more than [`ALL_STALLED_ANSWERS`] bytes for the windows of all connections of the worker.
    pub(in crate::connection) fn stalls_too_much(&mut self) -> bool {
        self.held();
        self.stalled.own.get() > STALLED_ANSWERS && self.stalled.all.get() > ALL_STALLED_ANSWERS
    }

    /// Fails the requests of ours that have no response, because the connection has failed.
    pub(in crate::connection) fn fail(&mut self, failure: h2::Failure) {
        for pending_request in self.active.iter_mut().flatten().filter_map(|active| active.exchange.take_pending()) {
            pending_request.fail(client::Failure::Http2(failure.code, failure.text.to_string()));
        }
    }

    /// Records for the access log why the requests of the connection end.
    pub(in crate::connection) fn record_reason(&mut self, why: &'static str) {
        self.active.iter_mut().flatten().for_each(|active| active.exchange.record_reason(why));
    }

    pub(in crate::connection) fn release(mut self: Box<Self>, worker: &mut WorkerContext<impl Service>) {
        for mut active in self.active.drain(..).flatten() {
            active.exchange.lose(worker);
        }
    }

    /// Returns the number of bytes that the HTTP/2 state and the streams hold for the peer. Counts again only the
    /// streams that may have changed. Otherwise a peer with many streams could cause a walk over all of them with each
    /// frame.
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
            *next_due = active.next_due(is_blocked).min(*next_due);
        }
        CONNECTION_BYTES + self.http.held() + self.counted
    }
}
