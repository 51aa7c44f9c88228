//! The incoming half of an exchange: the peer's message. A server's is the request, a client's will be the response.

use super::state::{State, Step};
use crate::body::{Body, BodyError, BodyQueue};
use crate::request::BodyUse;
use highwire_proto::Head;
use http::{HeaderName, HeaderValue};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

/// Bytes of a body that wait for their reader before the peer may send no more.
pub(crate) const INCOMING_BYTES: usize = 64 * 1024;

/// The peer's message.
pub(crate) struct Incoming {
    state: State,
    /// The body on its way to its reader; it stays when all has come, since the reader may not have taken all of it.
    parts: Option<Rc<RefCell<BodyQueue>>>,
    /// A body that is collected, with its head.
    whole: Option<Collect>,
}

impl Incoming {
    /// A message whose head has come.
    pub(super) fn begun() -> Incoming {
        Incoming { state: State::Begun, parts: None, whole: None }
    }

    /// A message that is still to come: a client's.
    #[cfg(test)]
    pub(super) fn awaited() -> Incoming {
        Incoming { state: State::Awaited, ..Incoming::begun() }
    }

    /// The head of an awaited message came.
    #[cfg(test)]
    pub(super) fn begin(&mut self) {
        self.state.take(Step::Head);
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// The body goes to its reader in parts. `task` moves the exchange on when some of them are taken.
    pub(crate) fn stream(&mut self, task: Waker) -> Body {
        self.state.take(Step::Stream);
        let parts = Rc::new(RefCell::new(BodyQueue::new(task)));
        self.parts = Some(parts.clone());
        Body::new(parts)
    }

    /// The body is collected whole; then its route is looked up again and the handler called with this head.
    pub(crate) fn collect(&mut self, head: &Head, window: &[u8]) {
        self.state.take(Step::Collect);
        let (head, window) = (head.to_kept(), window.to_vec());
        self.whole = Some(Collect { head, window, body: Vec::new() });
    }

    /// What comes belongs to a tunnel.
    pub(super) fn switch(&mut self) {
        self.state.take(Step::Switch);
    }

    /// The tunnel was not accepted.
    pub(super) fn decline(&mut self) {
        if self.state == State::Tunnel {
            self.state.take(Step::LetGo);
        }
    }

    /// How the body that comes is used.
    pub(crate) fn body_use(&self) -> BodyUse {
        match self.state {
            State::Whole => BodyUse::Whole,
            State::Parts if !self.is_abandoned() => BodyUse::Parts,
            _ => BodyUse::None,
        }
    }

    fn is_abandoned(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.borrow().abandoned)
    }

    /// Keeps bytes of the body for its reader, or drops them if there is none. Returns how the body is used, and whether these are
    /// the first bytes since the reader has let go of it.
    pub(crate) fn receive(&mut self, data: &[u8]) -> (BodyUse, bool) {
        let body_use = self.body_use();
        match body_use {
            BodyUse::Whole => self.whole.iter_mut().for_each(|whole| whole.extend(data)),
            BodyUse::Parts if !data.is_empty() => self.parts.iter().for_each(|parts| parts.borrow_mut().push(data)),
            _ => {}
        }
        let has_let_go = body_use == BodyUse::None && self.state == State::Parts;
        if has_let_go {
            self.state.take(Step::LetGo);
        }
        (body_use, has_let_go)
    }

    /// The message is complete. Returns what is to be done.
    pub(super) fn end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Ended {
        // What was cut may be read to its end, and is dropped.
        if self.state != State::Cut {
            self.state.take(Step::End);
        }
        if let Some(whole) = self.whole.take() {
            return Ended::Collected(whole);
        }
        let Some(parts) = &self.parts else { return Ended::Unread };
        parts.borrow_mut().finish(Ok(()), trailers);
        Ended::Told
    }

    /// Nothing more comes, and the message is not whole: its reader gets what has come, and then why.
    pub(crate) fn cut(&mut self, why: BodyError) {
        self.state.take(Step::Cut);
        self.whole = None;
        self.parts.iter().for_each(|parts| parts.borrow_mut().finish(Err(why), Vec::new()));
    }

    /// The same where nobody waits any longer for what its reader takes.
    pub(super) fn give_up(&mut self, why: BodyError) {
        self.cut(why);
        self.parts = None;
    }

    /// Returns true if the body is still coming, and its reader gets it in parts.
    pub(crate) fn is_streaming(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| !parts.borrow().is_finished())
    }

    /// Returns true if the body is still being collected.
    pub(crate) fn is_collecting(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns true if somebody reads the body in parts, or has read it: what comes of it, and its end, may move the exchange on.
    pub(crate) fn has_reader(&self) -> bool {
        self.parts.is_some()
    }

    /// Returns true if as many bytes wait for the reader as may. The task of the exchange is woken then when some are taken.
    pub(crate) fn is_full(&self) -> bool {
        let Some(parts) = &self.parts else { return false };
        let mut parts = parts.borrow_mut();
        parts.paused = parts.held >= INCOMING_BYTES && !parts.is_finished();
        parts.paused
    }

    /// Bytes that wait for the reader; `None` if there is none.
    pub(crate) fn untaken(&self) -> Option<usize> {
        let parts = self.parts.as_ref()?.borrow();
        Some(if parts.abandoned { 0 } else { parts.bytes })
    }

    /// Says whether the task of the exchange is to be woken when the reader takes something.
    pub(crate) fn wake_for_taken(&self, wakes: bool) {
        self.parts.iter().for_each(|parts| parts.borrow_mut().paused = wakes);
    }

    /// Bytes that are held for the peer.
    pub(super) fn held(&self) -> usize {
        self.whole.as_ref().map_or(0, |whole| whole.body.capacity() + whole.window.capacity())
            + self.parts.as_ref().map_or(0, |parts| parts.borrow().held)
    }
}

/// What the end of a message is for whoever waits for it.
pub(super) enum Ended {
    /// The body was collected: the handler can be called.
    Collected(Collect),
    /// The reader of the body was told.
    Told,
    /// Nobody reads the body.
    Unread,
}

/// A body that is being collected, with the head that it belongs to.
pub(crate) struct Collect {
    pub(super) head: Head,
    pub(super) window: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Collect {
    /// Appends body bytes. The buffer grows by an eighth instead of doubling, because its unused capacity is charged as well.
    /// (When a large buffer grows, the system moves its pages and copies nothing.)
    fn extend(&mut self, bytes: &[u8]) {
        /// Less is not worth a copy.
        const LEAST_GROWTH: usize = 4 * 1024;
        if self.body.capacity() - self.body.len() < bytes.len() {
            self.body.reserve_exact(bytes.len().max(LEAST_GROWTH.max(self.body.len() / 8)));
        }
        self.body.extend_from_slice(bytes);
    }
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
