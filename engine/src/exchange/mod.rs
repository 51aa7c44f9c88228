//! An exchange: a request and its response, in two halves, the same for every protocol.
//!
//! Most requests are answered at once and need no [`Exchange`]; a connection keeps one only while a request is pending. Its halves
//! are [`Incoming`] and [`Outgoing`]; a table ([`state`]) permits the steps of each. [`lifecycle`] runs an exchange from its head to
//! its end, [`abort`] lists why it may end early, and [`tunnel`] replaces it with another protocol.

pub(super) mod abort;
pub(super) mod carrier;
mod incoming;
#[cfg(test)]
mod joined;
pub(super) mod lifecycle;
mod log;
mod outgoing;
mod state;
mod tunnel;

pub(super) use incoming::{Collect, INCOMING_BYTES, Incoming, Intake};
pub(super) use outgoing::Outgoing;
pub(super) use tunnel::Tunnel;

use self::abort::Abort;
use self::log::LogLine;
use super::context::TaskKind;
use super::worker::WorkerContext;
use crate::body::BodyError;
use crate::raw::{Ended, Raw, Switch};
use crate::reply::{Awaited, InterimQueue};
use crate::request::Hooks;
use crate::response::Response;
use crate::service::Service;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// A pending exchange. Threads reuse them, so that a pending handler allocates nothing.
pub(crate) struct Exchange {
    /// The peer's message.
    pub(super) incoming: Incoming,
    /// Our message.
    pub(super) outgoing: Outgoing,
    /// The other protocol that has replaced both messages.
    tunnel: Option<Tunnel>,
    /// The handler's future: its route, and its place in the route's pool.
    future: Option<(u32, u32)>,
    /// The slot that a [`Replier`](crate::reply::Replier) fills with the answer.
    reply: Option<Awaited>,
    interim: Option<Rc<RefCell<InterimQueue>>>,
    /// Bytes of the whole body that the handler holds, if middleware decoded the received one.
    unfolded: Option<Rc<Cell<usize>>>,
    log: Option<LogLine>,
}

/// Makes an exchange of a server that has received a request's head.
impl Default for Exchange {
    fn default() -> Exchange {
        Exchange {
            incoming: Incoming::begun(),
            outgoing: Outgoing::awaited(),
            tunnel: None,
            future: None,
            reply: None,
            interim: None,
            unfolded: None,
            log: None,
        }
    }
}

thread_local! {
    /// Futures of exchanges that a panic has destroyed. They still occupy their places in the pools of their routes.
    static ORPHANS: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Exchanges that a thread keeps for the next requests.
const SPARE_EXCHANGES: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again: a connection holds one, 8 bytes wide")]
    static SPARE: RefCell<Vec<Box<Exchange>>> = const { RefCell::new(Vec::new()) };
}

/// Takes the futures that destroyed [`Exchange`]s have left.
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
    /// Returns an exchange of a server that has received a request's head.
    pub(crate) fn boxed() -> Box<Exchange> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Drops what the exchange holds and keeps its memory for [`boxed`](Self::boxed).
    pub(crate) fn recycle(mut self: Box<Exchange>) {
        *self = Exchange::default();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_EXCHANGES {
                spare.push(self);
            }
        });
    }

    /// Returns an exchange whose response is complete and whose request is not: the rest of the request is dropped.
    pub(super) fn answered() -> Exchange {
        let mut exchange = Exchange::default();
        exchange.outgoing.begin();
        exchange.outgoing.end_unless_it_goes_on();
        exchange
    }

    /// Returns true if the handler has not answered yet.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.future.is_some() || self.reply.is_some()
    }

    /// Polls the handler's future and looks into its reply slot. Returns the answer if there is one. With `credits` the caller
    /// credits the peer afterwards for what the handler takes of the body, so that no wake is needed for that.
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
        // A function of the program makes the answer here.
        let taken = catch_unwind(AssertUnwindSafe(|| self.reply.as_ref().and_then(|slot| slot.take())));
        if let Some(response) = taken.unwrap_or_else(|_| Some(worker.panicked())) {
            self.reply = None;
            if let Some(future) = self.future.take() {
                worker.cancel(future);
            }
            return Some(response);
        }
        let Poll::Ready(response) = worker.poll(self.future?, task) else { return None };
        self.future = None;
        // A handler that took a `Replier` answers by it alone.
        self.reply.is_none().then_some(response)
    }

    /// Cancels the handler. A reader of the request's body gets `why` as its error.
    pub(crate) fn give_up(&mut self, why: BodyError, worker: &mut WorkerContext<impl Service>) {
        self.incoming.give_up(why);
        if let Some(future) = self.future.take() {
            worker.cancel(future);
        }
        self.reply = None;
        if let Some(tunnel) = &self.tunnel {
            tunnel.end(Ended::Broken);
        }
    }

    /// Keeps the pending future of the handler: its route, and its place in the route's pool.
    pub(super) fn keep_future(&mut self, future: (u32, u32)) {
        self.future = Some(future);
    }

    /// Returns true if a [`Replier`](crate::reply::Replier) answers, and not the handler's result.
    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// Returns the queue of interim responses, if the handler has asked for one.
    pub(super) fn interims(&self) -> Option<Rc<RefCell<InterimQueue>>> {
        self.interim.clone()
    }

    /// Drops what the handler's call has left, after the answer.
    pub(super) fn drop_hooks(&mut self) {
        (self.interim, self.unfolded) = (None, None);
    }

    fn keep_log(&mut self, line: LogLine) {
        self.log = Some(line);
    }

    fn take_log(&mut self) -> Option<LogLine> {
        self.log.take()
    }

    pub(super) fn tunnel(&self) -> Option<&Tunnel> {
        self.tunnel.as_ref()
    }

    pub(super) fn tunnel_mut(&mut self) -> Option<&mut Tunnel> {
        self.tunnel.as_mut()
    }

    /// From now on keeps what the peer sends, for a tunnel that the handler may accept.
    pub(super) fn propose_tunnel(&mut self, raw: Raw) {
        self.incoming.switch();
        self.tunnel = Some(Tunnel::proposed(Rc::new(RefCell::new(raw))));
    }

    /// Ends a tunnel that the handler has not accepted, and drops what the peer sent for it.
    pub(super) fn decline_tunnel(&mut self) {
        if let Some(tunnel) = self.tunnel.take() {
            self.incoming.decline();
            tunnel.end(Ended::Broken);
        }
    }

    /// Removes a tunnel whose bytes have ended in both directions. Returns its task if that is not finished.
    pub(super) fn detach_tunnel(&mut self) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        self.tunnel.take().and_then(Tunnel::into_task)
    }

    /// Starts the proposed tunnel. The caller takes what it writes from the returned [`Raw`].
    pub(super) fn start_proposed(&mut self, switch: Switch, is_draining: bool) -> Result<Rc<RefCell<Raw>>, Abort> {
        let raw = self.tunnel.as_ref().map(|tunnel| tunnel.raw.clone()).unwrap_or_default();
        match Tunnel::start(raw.clone(), switch, is_draining) {
            Ok(tunnel) => self.tunnel = Some(tunnel),
            Err(abort) => {
                self.decline_tunnel();
                return Err(abort);
            }
        }
        Ok(raw)
    }

    /// Turns both halves into a tunnel.
    pub(super) fn start_tunnel(&mut self, raw: Raw, switch: Switch, is_draining: bool) -> Result<(), Abort> {
        self.tunnel = Some(Tunnel::start(Rc::new(RefCell::new(raw)), switch, is_draining)?);
        self.incoming.switch();
        self.outgoing.switch();
        Ok(())
    }

    /// Takes over what the handler's call has left.
    pub(crate) fn take_hooks(&mut self, hooks: &mut Hooks) {
        (self.reply, self.interim, self.unfolded) = (hooks.reply.take(), hooks.interim.take(), hooks.unfolded.take());
    }

    /// Returns the bytes of a whole body that the handler holds. The connection gave it `lent` bytes; if middleware decoded them,
    /// the handler holds the decoded ones instead.
    pub(crate) fn lent(&self, lent: usize) -> usize {
        let unfolded = self.unfolded.as_ref().filter(|_| self.awaits_answer());
        unfolded.map_or(lent, |unfolded| lent.max(unfolded.get()))
    }

    /// Returns the bytes that the exchange holds for the peer.
    pub(crate) fn held(&self) -> usize {
        self.incoming.held()
            + self.outgoing.held()
            + self.tunnel.as_ref().map_or(0, Tunnel::held)
            + self.log.as_ref().map_or(0, |line| line.method.capacity() + line.target.capacity())
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.awaits_answer()
            && !self.incoming.is_streaming()
            && !self.incoming.is_collecting()
            && !self.outgoing.is_streaming()
            && self.tunnel.is_none()
    }
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For nothing that has a deadline.
    #[cfg_attr(not(feature = "call"), expect(dead_code, reason = "a connection has phases for that"))]
    Nothing,
    /// For more of the request's body.
    Body,
    /// For the handler, or for the next part of the response's body.
    Handler,
    /// For the peer to take the response, or to allow more of it.
    Write,
}
