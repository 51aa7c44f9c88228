//! An exchange: a request and its response, represented as two halves in the same way for every protocol.
//!
//! Most requests on a connection are answered at once. Unless the access log is on, such a request usually needs no
//! [`Exchange`]. The halves of an exchange are [`Incoming`] and [`Outgoing`]; the table in [`state`] lists the
//! permitted steps of each half. [`lifecycle`] runs an exchange from the request's head to the end of the response,
//! [`abort`] lists the reasons to end an exchange early, and [`tunnel`] passes the bytes to another protocol.

pub(super) mod abort;
pub(super) mod carrier;
pub(crate) mod disconnect;
mod incoming;
#[cfg(test)]
mod joined;
pub(super) mod lifecycle;
mod outgoing;
mod record;
mod state;
mod tunnel;

pub(super) use incoming::{Collect, Incoming, Intake};
pub(super) use outgoing::Outgoing;
pub(super) use tunnel::Tunnel;

use self::abort::Abort;
use self::record::Record;
pub(super) use self::record::{End, Observed, log_refused};
use super::context::TaskKind;
use super::worker::context::WorkerContext;
use crate::body::BodyError;
use crate::client::{Answer, AnswerBody, PendingRequest};
use crate::exchange::disconnect::{OnDisconnect, Presence};
use crate::message::reply::{Awaited, InterimQueue};
use crate::message::request::KeptHooks;
use crate::message::response::Response;
use crate::raw::{Ended, Raw, Switch, Task};
use crate::runtime::free_list::FreeList;
use crate::service::Service;
use bytes::Bytes;
use highwire_io::Instant;
use highwire_proto::Head;
use http::{HeaderName, HeaderValue, StatusCode};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;

/// A request in progress and its response. An HTTP/1 connection gets its exchange from [`boxed`](Self::boxed), which
/// reuses memory, so a pending handler usually needs no allocation for it.
pub(crate) struct Exchange {
    /// The peer's message: on a server, the request.
    pub(super) incoming: Incoming,
    /// Our message: on a server, the response.
    pub(super) outgoing: Outgoing,
    /// The tunnel that an HTTP/2 CONNECT has proposed, or that the handler has accepted.
    tunnel: Option<Tunnel>,
    /// The route of the handler's pending future, and the future's place in the route's pool.
    future: Option<(u32, u32)>,
    /// The waiting end of the slot that a [`Replier`](crate::message::reply::Replier) fills with the answer.
    reply: Option<Awaited>,
    interim: Option<Rc<RefCell<InterimQueue>>>,
    /// The size of the whole body in bytes after decoding, if middleware has decoded it for the handler.
    decoded_bytes: Option<Rc<Cell<usize>>>,
    /// What the handler learns if the client leaves, if it has asked.
    presence: Option<Rc<Presence>>,
    /// What the access log and the service's observer learn at the end.
    record: Option<Box<Record>>,
    /// On a client, the place of the request, until its response has come.
    pending_request: Option<Rc<PendingRequest>>,
}

/// Creates the exchange of a server that has received a request's head.
impl Default for Exchange {
    fn default() -> Exchange {
        Exchange {
            incoming: Incoming::begun(),
            outgoing: Outgoing::awaited(),
            tunnel: None,
            future: None,
            reply: None,
            interim: None,
            decoded_bytes: None,
            presence: None,
            record: None,
            pending_request: None,
        }
    }
}

thread_local! {
    /// The routes and places of handler futures that were still pending when their exchange was dropped, for example
    /// after a panic. The futures still occupy their places in the pools of their routes.
    static ORPHANS: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    static SPARE: FreeList<Exchange> = const { FreeList::new() };
}

/// Takes the routes and places of the handler futures that dropped [`Exchange`]s have left in their routes' pools.
pub(crate) fn orphans() -> Vec<(u32, u32)> {
    ORPHANS.with_borrow_mut(std::mem::take)
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            ORPHANS.with_borrow_mut(|orphans| orphans.push(future));
        }
    }
}

impl Exchange {
    /// Returns the exchange of a server that has received a request's head. Reuses an exchange that the thread keeps,
    /// if there is one.
    pub(crate) fn boxed() -> Box<Exchange> {
        FreeList::take(&SPARE)
    }

    /// Drops the contents of the exchange. The thread keeps its memory for [`boxed`](Self::boxed), unless it has enough.
    pub(crate) fn recycle(self: Box<Exchange>) {
        FreeList::recycle(&SPARE, self);
    }

    /// Makes this the exchange of a client whose request is handed to the carrier.
    pub(super) fn ask(&mut self, pending_request: Rc<PendingRequest>) {
        self.incoming = Incoming::awaited();
        self.outgoing.begin();
        self.pending_request = Some(pending_request);
    }

    /// Returns the place of the request, until its response has come.
    pub(super) fn pending_request(&self) -> Option<&Rc<PendingRequest>> {
        self.pending_request.as_ref()
    }

    /// Gives the requester a tunnel, because the server has accepted another protocol.
    pub(super) fn accept_tunnel(&mut self, tunnel: Tunnel, head: &Head, window: &[u8], now: Instant) {
        let Some(pending_request) = self.pending_request.take() else { return };
        self.incoming.begin();
        self.incoming.switch();
        if !self.outgoing.is_streaming() {
            // Over HTTP/2, the bytes of the tunnel are the body of our message.
            self.outgoing.switch();
        }
        let window = Bytes::copy_from_slice(window);
        let body = AnswerBody::Tunnel(tunnel.stream());
        self.tunnel = Some(tunnel);
        pending_request.answer(Box::new(Answer { head: head.to_kept(), window, body }), now);
    }

    /// Takes the place of the request, because its response has come or it has failed.
    pub(super) fn take_pending(&mut self) -> Option<Rc<PendingRequest>> {
        self.pending_request.take()
    }

    /// Returns true if the requester has stopped waiting for the response.
    pub(super) fn is_unwanted(&self) -> bool {
        self.pending_request.as_ref().is_some_and(|pending_request| pending_request.is_abandoned())
    }

    /// Returns an exchange whose response is complete and whose request is not. The rest of the request is dropped as
    /// it arrives.
    pub(super) fn answered() -> Exchange {
        let mut exchange = Exchange::default();
        exchange.outgoing.begin();
        exchange.outgoing.end_unless_it_goes_on();
        exchange
    }

    /// Returns true if the handler's future is pending or a [`Replier`](crate::message::reply::Replier) has not answered yet.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.future.is_some() || self.reply.is_some()
    }

    /// Checks the reply slot, and polls the handler's future if the slot has no answer. Returns the answer if there is
    /// one. If `credits` is true, the caller returns flow-control credit to the peer after the poll, so the handler
    /// does not wake the exchange when it takes a part of the body during the poll.
    pub(crate) fn take_answer(
        &mut self,
        worker: &mut WorkerContext<impl Service>,
        task: TaskKind,
        credits: bool,
    ) -> Option<Response> {
        if credits {
            self.incoming.wake_for_taken(false);
        }
        let answer = self.poll_answer(worker, task);
        if credits {
            self.incoming.wake_for_taken(true);
        }
        answer
    }

    fn poll_answer(&mut self, worker: &mut WorkerContext<impl Service>, task: TaskKind) -> Option<Response> {
        // `take` calls the program's function that makes the answer. The function may panic.
        let taken = catch_unwind(AssertUnwindSafe(|| self.reply.as_ref().and_then(|slot| slot.take())));
        if let Some(response) = taken.unwrap_or_else(|payload| Some(worker.panicked(None, payload))) {
            self.reply = None;
            if let Some(future) = self.future.take() {
                worker.cancel(future);
            }
            return Some(response);
        }
        let Poll::Ready(response) = worker.poll(self.future?, task) else { return None };
        self.future = None;
        // If the handler took a `Replier`, only the `Replier` answers.
        self.reply.as_ref().is_none_or(Awaited::is_waived).then_some(response)
    }

    /// Cancels the handler, and breaks the tunnel if there is one. If the request's body is incomplete, its reader gets
    /// `why` as an error.
    pub(crate) fn give_up(&mut self, why: BodyError, worker: &mut WorkerContext<impl Service>) {
        self.incoming.give_up(why);
        if let Some(future) = self.future.take() {
            worker.cancel(future);
        }
        self.reply = None;
        if let Some(pending_request) = self.pending_request.take() {
            pending_request.lose();
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.end(Ended::Broken);
        }
    }

    /// Ends the exchange because its connection or stream ends. If the handler has not answered, records that.
    pub(crate) fn lose(&mut self, worker: &mut WorkerContext<impl Service>) {
        if self.outgoing.has_begun() {
            self.record_reason(if worker.cuts() { "the server has stopped" } else { "the connection ended" });
        } else if let Some(record) = self.take_record() {
            let is_received = !self.incoming.is_streaming() && !self.incoming.is_collecting();
            record.lose(worker.cuts(), is_received);
        }
        // Tasks of the handler may go on.
        if let Some(presence) = &self.presence {
            presence.left();
        }
        self.give_up(BodyError::CutShort, worker);
    }

    /// Records that the client has ended its direction. Returns what happens to the handler. Work of another thread that
    /// has not begun is given up at once.
    pub(crate) fn client_left(&self) -> OnDisconnect {
        let policy = self.presence.as_ref().map_or(OnDisconnect::default(), |presence| presence.left());
        let is_waiting = self.reply.as_ref().is_some_and(Awaited::has_waiting_work);
        if policy == OnDisconnect::Cancel && is_waiting { OnDisconnect::CancelAtOnce } else { policy }
    }

    /// Records the route of the handler's pending future, and the future's place in the route's pool.
    pub(super) fn keep_future(&mut self, future: (u32, u32)) {
        self.future = Some(future);
    }

    /// Returns true if a [`Replier`](crate::message::reply::Replier) must give the answer, so the handler's result is ignored.
    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// Takes the interim responses that the handler has queued.
    pub(super) fn take_interims(&self) -> Vec<(StatusCode, Vec<(HeaderName, HeaderValue)>)> {
        self.interim.as_ref().map_or_else(Vec::new, |queue| std::mem::take(&mut queue.borrow_mut().waiting))
    }

    /// Drops the queue of interim responses and the size of the decoded body. Called after the answer.
    pub(super) fn drop_hooks(&mut self) {
        (self.interim, self.decoded_bytes) = (None, None);
    }

    fn keep_record(&mut self, record: Record) {
        self.record = Some(Box::new(record));
    }

    fn take_record(&mut self) -> Option<Box<Record>> {
        self.record.take()
    }

    /// Counts bytes of our body that the carrier has sent, for the access log.
    #[inline]
    pub(super) fn count_sent(&mut self, bytes: usize) {
        if let Some(record) = &mut self.record {
            record.count(bytes as u64);
            self.end_record();
        }
    }

    /// Counts the bytes of a whole body, before the carrier sends it.
    #[inline]
    pub(super) fn count_whole(&mut self, bytes: usize) {
        self.record.iter_mut().for_each(|record| record.count(bytes as u64));
    }

    /// Records for the access log that the client gets an empty response with this status instead.
    #[cold]
    pub(super) fn record_instead(&mut self, status: u16) {
        self.record.iter_mut().for_each(|record| record.is_replaced(status));
    }

    /// Records the end of the exchange if the whole response is sent.
    #[inline]
    pub(super) fn end_record(&mut self) {
        self.record.take_if(|record| record.is_complete());
    }

    /// Records that the body has ended.
    fn record_over(&mut self) {
        self.record.iter_mut().for_each(|record| record.is_over());
        self.end_record();
    }

    /// Records why the exchange ends early, for the access log.
    pub(crate) fn record_reason(&mut self, why: &'static str) {
        self.record.iter_mut().for_each(|record| record.ends(why));
    }

    pub(super) fn tunnel(&self) -> Option<&Tunnel> {
        self.tunnel.as_ref()
    }

    pub(super) fn tunnel_mut(&mut self) -> Option<&mut Tunnel> {
        self.tunnel.as_mut()
    }

    /// Reserves the peer's bytes from now on for a tunnel that the handler may accept.
    pub(super) fn propose_tunnel(&mut self, raw: Raw) {
        self.incoming.switch();
        self.tunnel = Some(Tunnel::new(raw));
    }

    /// Ends a tunnel that the handler has not accepted, and drops the bytes that the peer sent for it.
    pub(super) fn decline_tunnel(&mut self) {
        if let Some(tunnel) = self.tunnel.take() {
            self.incoming.decline();
            tunnel.end(Ended::Broken);
        }
    }

    /// Removes a tunnel whose bytes have ended in both directions. Returns its task if the task has not finished.
    pub(super) fn detach_tunnel(&mut self) -> Option<Task> {
        self.tunnel.take().and_then(Tunnel::into_task)
    }

    /// Starts the proposed tunnel. The caller takes the bytes that the task writes from the returned [`Raw`].
    pub(super) fn start_proposed(&mut self, switch: Switch, is_draining: bool) -> Result<Rc<RefCell<Raw>>, Abort> {
        // The carrier has proposed it.
        let tunnel = self.tunnel.get_or_insert_with(|| Tunnel::new(Raw::default()));
        let raw = tunnel.raw.clone();
        let started = tunnel.start(switch, is_draining);
        if started.is_err() {
            self.decline_tunnel();
        }
        started.map(|()| raw)
    }

    /// Starts a tunnel that replaces both messages.
    pub(super) fn start_tunnel(&mut self, raw: Raw, switch: Switch, is_draining: bool) -> Result<(), Abort> {
        let tunnel = Tunnel::new(raw);
        tunnel.start(switch, is_draining)?;
        self.tunnel = Some(tunnel);
        self.incoming.switch();
        self.outgoing.switch();
        Ok(())
    }

    /// Takes the tunnel that has replaced both messages.
    pub(super) fn take_tunnel(&mut self) -> Option<Tunnel> {
        self.tunnel.take()
    }

    /// Keeps the reply slot, the queue of interim responses, the size of the decoded body, and what the handler learns of its
    /// client, after the handler's call.
    pub(crate) fn keep_hooks(&mut self, hooks: KeptHooks) {
        let KeptHooks { reply, interim, decoded_bytes, presence } = hooks;
        (self.reply, self.interim, self.decoded_bytes, self.presence) = (reply, interim, decoded_bytes, presence);
    }

    /// Returns the size in bytes of the whole body that the handler holds. `lent` is the size that the carrier has
    /// recorded. If middleware has decoded the body to more bytes, the decoded size counts until the answer.
    pub(crate) fn lent(&self, lent: usize) -> usize {
        let decoded_bytes = self.decoded_bytes.as_ref().filter(|_| self.awaits_answer());
        decoded_bytes.map_or(lent, |decoded_bytes| lent.max(decoded_bytes.get()))
    }

    /// Returns the number of bytes that the exchange holds for the peer, without a whole body that the handler holds.
    pub(crate) fn held(&self) -> usize {
        self.incoming.held()
            + self.outgoing.held()
            + self.tunnel.as_ref().map_or(0, Tunnel::held)
            + self.record.as_ref().map_or(0, |record| record.held())
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.awaits_answer()
            && self.pending_request.is_none()
            && !self.incoming.is_streaming()
            && !self.incoming.is_collecting()
            && !self.outgoing.is_streaming()
            && self.tunnel.is_none()
            // Its handler learns of the end of the connection that has become a tunnel.
            && !(self.presence.is_some() && self.outgoing.is_switched())
    }
}

/// The event that an exchange waits for. It selects the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The head of the response, on a client.
    Head,
    /// Nothing that has a deadline.
    #[cfg_attr(
        not(feature = "call"),
        expect(dead_code, reason = "only `Call` uses it; a connection has a `Phase` instead")
    )]
    Nothing,
    /// More of the request's body.
    Body,
    /// The handler, or the next part of the response's body.
    Handler,
    /// The peer, which must take bytes of the response or open a window for more.
    Write,
}
