//! An exchange: a request and its response, in two halves, the same for every protocol.
//!
//! [`Exchange`] is what a connection keeps of one that is not over at once: most are, and have none of this. Its halves are
//! [`Incoming`] and [`Outgoing`], whose states are a table ([`state`]). What happens to an exchange is in [`lifecycle`], why it may
//! end before its time in [`abort`], and what another protocol makes of it in [`tunnel`].

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

/// An exchange under way. Workers use them again, so that a pending handler allocates nothing.
pub(crate) struct Exchange {
    /// The peer's message.
    pub(super) incoming: Incoming,
    /// Ours.
    pub(super) outgoing: Outgoing,
    /// The other protocol that has taken their place.
    tunnel: Option<Tunnel>,
    /// The future that answers: its route, and its place in the route's pool.
    future: Option<(u32, u32)>,
    /// The answer that comes from elsewhere.
    reply: Option<Awaited>,
    interim: Option<Rc<RefCell<InterimQueue>>>,
    /// Bytes of the whole body that the handler has, where middleware made another one of what came.
    unfolded: Option<Rc<Cell<usize>>>,
    log: Option<LogLine>,
}

/// A server's, whose request's head has come.
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
    /// Futures whose exchanges were lost in a panic of the engine, or of what it calls: their places are still taken.
    static ORPHANS: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Exchanges that a thread keeps for the next requests.
const SPARE_EXCHANGES: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again: a connection holds one, 8 bytes wide")]
    static SPARE: RefCell<Vec<Box<Exchange>>> = const { RefCell::new(Vec::new()) };
}

/// What [`Exchange`]s that were lost have left.
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
    /// A server's, whose request's head has come.
    pub(crate) fn boxed() -> Box<Exchange> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Keeps it for [`boxed`](Self::boxed), without what it holds.
    pub(crate) fn recycle(mut self: Box<Exchange>) {
        *self = Exchange::default();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_EXCHANGES {
                spare.push(self);
            }
        });
    }

    /// One whose answer is complete, while the request is not: what comes of it is dropped.
    pub(super) fn answered() -> Exchange {
        let mut exchange = Exchange::default();
        exchange.outgoing.begin();
        exchange.outgoing.end_unless_it_goes_on();
        exchange
    }

    /// Whether the handler has still to answer.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.future.is_some() || self.reply.is_some()
    }

    /// Sees whether the answer has come, from the handler's future or from elsewhere. `credits`: the peer is credited afterwards
    /// for what the handler takes of the body, and no wake has to tell of it.
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
        // The answer is made here, by a function of the program's.
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

    /// The handler gets no more of its request, and is not waited for.
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

    /// Keeps the handler's pending future: its route, and its place there.
    pub(super) fn keep_future(&mut self, future: (u32, u32)) {
        self.future = Some(future);
    }

    /// Returns true if the handler answers by a [`Replier`](crate::reply::Replier), and by that alone.
    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// Interim responses that the handler has asked for go by this queue.
    pub(super) fn interims(&self) -> Option<Rc<RefCell<InterimQueue>>> {
        self.interim.clone()
    }

    /// Lets go of what the handler was given, after it has answered.
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

    /// What the peer sends is kept for a tunnel that may be accepted.
    pub(super) fn propose_tunnel(&mut self, raw: Raw) {
        self.incoming.switch();
        self.tunnel = Some(Tunnel::proposed(Rc::new(RefCell::new(raw))));
    }

    /// There will be no tunnel: what the peer sends for it is dropped.
    pub(super) fn decline_tunnel(&mut self) {
        if let Some(tunnel) = self.tunnel.take() {
            self.incoming.decline();
            tunnel.end(Ended::Broken);
        }
    }

    /// Lets go of a tunnel whose bytes have ended in both directions. Returns its task, if that is not over.
    pub(super) fn detach_tunnel(&mut self) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        self.tunnel.take().and_then(Tunnel::into_task)
    }

    /// Starts the tunnel that was proposed; what it writes is sent by somebody who asks for it.
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

    /// Both halves become a tunnel.
    pub(super) fn start_tunnel(&mut self, raw: Raw, switch: Switch, is_draining: bool) -> Result<(), Abort> {
        self.tunnel = Some(Tunnel::start(Rc::new(RefCell::new(raw)), switch, is_draining)?);
        self.incoming.switch();
        self.outgoing.switch();
        Ok(())
    }

    /// Takes what the handler's call has left.
    pub(crate) fn take_hooks(&mut self, hooks: &mut Hooks) {
        (self.reply, self.interim, self.unfolded) = (hooks.reply.take(), hooks.interim.take(), hooks.unfolded.take());
    }

    /// Bytes of a whole body that the handler has, where its connection has `lent` it so many: a body that was decoded has
    /// taken the place of those.
    pub(crate) fn lent(&self, lent: usize) -> usize {
        let unfolded = self.unfolded.as_ref().filter(|_| self.awaits_answer());
        unfolded.map_or(lent, |unfolded| lent.max(unfolded.get()))
    }

    /// Bytes that it holds for the peer.
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
    /// Nothing that has a deadline of its own.
    #[cfg_attr(not(feature = "call"), expect(dead_code, reason = "a connection has phases for that"))]
    Nothing,
    /// More of the request's body.
    Body,
    /// The handler, or the next part of its answer's body.
    Handler,
    /// That the peer takes the answer, or allows more of it to be sent.
    Write,
}
