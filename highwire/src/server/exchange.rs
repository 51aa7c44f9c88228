//! What a connection keeps of an exchange that is not over at once: most are, and have none of this.

use super::abort::Abort;
use super::context::TaskKind;
use super::dispatch::Kit;
use crate::Response;
use crate::body::{Body, BodyError, Incoming};
use crate::reply::{Awaited, InterimQueue};
use crate::request::{BodyUse, Hooks};
use crate::response::Streamed;
use crate::upgrade::{Raw, RawStream, Switch};
use proto::Head;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bytes of a body that wait for a handler before the peer may send no more.
pub(super) const INCOMING_BYTES: usize = 64 * 1024;

/// An exchange under way. Workers use them again, so that a pending handler allocates nothing.
#[derive(Default)]
pub(crate) struct Exchange {
    /// The future that answers: its route, and its place in the route's pool.
    pub(crate) future: Option<(u32, u32)>,
    /// The answer that comes from elsewhere.
    pub(crate) reply: Option<Awaited>,
    pub(crate) interim: Option<Rc<RefCell<InterimQueue>>>,
    /// Bytes of the whole body that the handler has, where middleware made another one of what came.
    pub(crate) unfolded: Option<Rc<Cell<usize>>>,
    /// The request's body on its way to the handler.
    pub(crate) incoming: Option<Rc<RefCell<Incoming>>>,
    /// A whole body that is being collected before its handler runs.
    pub(crate) collect: Option<Collect>,
    /// The response's body that is being sent.
    pub(crate) body: Option<Streamed>,
    /// The other protocol that owns the connection.
    pub(crate) switched: Option<Switched>,
    pub(crate) log: Option<LogLine>,
}

thread_local! {
    /// Futures whose exchanges were lost in a panic of the engine, or of what it calls: their places are still taken.
    static ORPHANS: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Drops what the program has made. A panic of that costs nothing else: it ends here, also in the middle of another one.
pub(crate) fn let_go<T>(what: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(what))).is_err() {
        crate::server::quiet::log!(Panic, error, "something of the program's panicked when it was dropped");
    }
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
    /// The body that comes is handed to the handler in parts. `task` moves the exchange on when some of them are taken.
    pub(crate) fn begin_parts(&mut self, task: Waker) -> Body {
        let incoming = Rc::new(RefCell::new(Incoming::new(task)));
        self.incoming = Some(incoming.clone());
        Body::new(incoming)
    }

    /// The body that comes is collected whole; then the handler of the route is called with this head.
    pub(crate) fn begin_to_collect(&mut self, route: u32, head: &Head, window: &[u8]) {
        let (head, window) = (head.to_kept(), window.to_vec());
        self.collect = Some(Collect { route, head, window, body: Vec::new() });
    }

    /// How the body that comes is used.
    pub(crate) fn body_use(&self) -> BodyUse {
        match &self.incoming {
            _ if self.collect.is_some() => BodyUse::Whole,
            Some(incoming) if !incoming.borrow().abandoned => BodyUse::Parts,
            _ => BodyUse::None,
        }
    }

    /// Keeps bytes of the request's body for the handler, or drops them if it does not read the body. Returns which, and
    /// whether these are the first ones that are dropped since the handler has let go of the body.
    pub(crate) fn receive(&mut self, data: &[u8]) -> (BodyUse, bool) {
        let body_use = self.body_use();
        let mut has_let_go = false;
        match (&mut self.collect, &self.incoming, body_use) {
            (Some(collect), _, BodyUse::Whole) => collect.extend(data),
            (_, Some(incoming), BodyUse::Parts) if !data.is_empty() => incoming.borrow_mut().push(data),
            (_, Some(incoming), BodyUse::None) => {
                has_let_go = !std::mem::replace(&mut incoming.borrow_mut().let_go, true)
            }
            _ => {}
        }
        (body_use, has_let_go)
    }

    /// Returns true if the request's body is still coming, and its handler gets it in parts.
    pub(crate) fn receives_parts(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.borrow().is_finished())
    }

    /// Returns true if as many bytes wait for the handler as may. The task of the exchange is woken then when some are taken.
    pub(crate) fn is_full(&self) -> bool {
        let Some(incoming) = &self.incoming else { return false };
        let mut incoming = incoming.borrow_mut();
        incoming.paused = incoming.held >= INCOMING_BYTES && !incoming.is_finished();
        incoming.paused
    }

    /// Whether the handler has still to answer.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.future.is_some() || self.reply.is_some()
    }

    /// Sees whether the answer has come, from the handler's future or from elsewhere. `credits`: the peer is credited afterwards
    /// for what the handler takes of the body, and no wake has to tell of it.
    pub(crate) fn take_answer(&mut self, kit: &mut Kit, task: TaskKind, credits: bool) -> Option<Response> {
        let incoming = self.incoming.clone().filter(|_| credits);
        let pause = |paused: bool| incoming.iter().for_each(|incoming| incoming.borrow_mut().paused = paused);
        pause(false);
        let answer = self.poll_answer(kit, task);
        pause(true);
        answer
    }

    fn poll_answer(&mut self, kit: &mut Kit, task: TaskKind) -> Option<Response> {
        // The answer is made here, by a function of the program's.
        let taken = catch_unwind(AssertUnwindSafe(|| self.reply.as_ref().and_then(|slot| slot.take())));
        if let Some(response) = taken.unwrap_or_else(|_| Some(kit.panicked())) {
            self.reply = None;
            if let Some(future) = self.future.take() {
                kit.cancel(future);
            }
            return Some(response);
        }
        let Poll::Ready(response) = kit.poll(self.future?, task) else { return None };
        self.future = None;
        // A handler that took a `Reply` answers by it alone.
        self.reply.is_none().then_some(response)
    }

    /// The handler gets no more of its request, and is not waited for.
    pub(crate) fn give_up(&mut self, why: BodyError, kit: &mut Kit) {
        if let Some(incoming) = self.incoming.take() {
            incoming.borrow_mut().finish(Err(why), Vec::new());
        }
        if let Some(future) = self.future.take() {
            kit.cancel(future);
        }
        self.reply = None;
        self.collect = None;
        if let Some(switched) = &self.switched {
            switched.raw.borrow_mut().end(true);
        }
    }

    /// Takes what the handler's extractors, and the middleware around it, have left.
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
        let raw = |raw: &Raw| raw.held + raw.outgoing_held;
        self.collect.as_ref().map_or(0, |collect| collect.body.capacity() + collect.window.capacity())
            + self.incoming.as_ref().map_or(0, |incoming| incoming.borrow().held)
            + self.switched.as_ref().map_or(0, |switched| raw(&switched.raw.borrow()))
            + self.body.as_ref().map_or(0, |streamed| streamed.body.held())
            + self.log.as_ref().map_or(0, |line| line.method.capacity() + line.target.capacity())
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.awaits_answer()
            && !self.receives_parts()
            && self.collect.is_none()
            && self.body.is_none()
            && self.switched.is_none()
    }
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Nothing that has a deadline of its own.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "a connection has phases for that"))]
    Nothing,
    /// More of the request's body.
    Body,
    /// The handler, or the next part of its answer's body.
    Handler,
    /// That the peer takes the answer, or allows more of it to be sent.
    Write,
}

/// What was counted of a request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intake {
    /// The route that bounds it.
    pub(crate) route: u32,
    /// Bytes so far; of those that are dropped since its handler has let go of it, only these.
    pub(crate) bytes: u64,
    /// Bytes that came since the body's rate was last judged.
    pub(crate) arrived: u64,
}

impl Default for Intake {
    fn default() -> Intake {
        Intake { route: u32::MAX, bytes: 0, arrived: 0 }
    }
}

impl Intake {
    /// Counts bytes that came; `anew` without those before them.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize, anew: bool) {
        self.arrived += bytes as u64;
        self.bytes = bytes as u64 + if anew { 0 } else { self.bytes };
    }
}

/// A body that is being collected, with the head that it belongs to.
pub(crate) struct Collect {
    pub(crate) route: u32,
    pub(crate) head: Head,
    pub(crate) window: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Collect {
    /// Adds what came. The buffer grows by an eighth and not twofold: what is unused of it is held for the peer as well. (The
    /// system moves the pages of large ones and copies nothing.)
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        /// Less is not worth a copy.
        const LEAST_GROWTH: usize = 4 * 1024;
        if self.body.capacity() - self.body.len() < bytes.len() {
            self.body.reserve_exact(bytes.len().max(LEAST_GROWTH.max(self.body.len() / 8)));
        }
        self.body.extend_from_slice(bytes);
    }
}

/// Another protocol on this connection, or on this stream.
pub(crate) struct Switched {
    pub(crate) raw: Rc<RefCell<Raw>>,
    /// Its task; none where that is over, and where a CONNECT is not answered yet.
    pub(crate) task: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Switched {
    /// Starts the task of a protocol that was accepted.
    pub(crate) fn start(raw: Rc<RefCell<Raw>>, switch: Switch, is_draining: bool) -> Result<Switched, Abort> {
        let start = AssertUnwindSafe(|| (switch.start)(RawStream { raw: raw.clone() }));
        let task = catch_unwind(start).map_err(|_| Abort::TaskPanicked.logged())?;
        if is_draining {
            raw.borrow_mut().end(false);
        }
        Ok(Switched { raw, task: Some(task) })
    }

    /// Runs the task, if it is not over.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Result<(), Abort> {
        let Some(task) = &mut self.task else { return Ok(()) };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut Context::from_waker(waker)))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) => self.task = None,
            Err(_) => {
                std::mem::forget(self.task.take());
                return Err(Abort::TaskPanicked.logged());
            }
        }
        Ok(())
    }
}

/// What the access log says of a request.
pub(crate) struct LogLine {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) protocol: &'static str,
    pub(crate) since: io::Instant,
}

impl LogLine {
    /// What a head says, at a moment.
    pub(crate) fn new(head: &Head, window: &[u8], since: io::Instant) -> LogLine {
        let words = |span: proto::Span| String::from_utf8_lossy(span.of(window)).into_owned();
        let protocol = match head.version {
            proto::Version::Http10 => "HTTP/1.0",
            proto::Version::Http11 => "HTTP/1.1",
            proto::Version::Http2 => "HTTP/2",
        };
        LogLine { method: words(head.method_span), target: words(head.target.whole), protocol, since }
    }
}
