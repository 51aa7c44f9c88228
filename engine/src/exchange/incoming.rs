//! The incoming half of an exchange: the peer's message. A server's is the request, a client's will be the response.

use super::state::{State, Step};
use crate::body::{Body, BodyError, BodyQueue};
use crate::request::BodyUse;
use highwire_proto::Head;
use http::{HeaderName, HeaderValue};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

/// When so many bytes of a body wait for their reader, the peer may send no more.
pub(crate) const INCOMING_BYTES: usize = 64 * 1024;

/// The peer's message.
pub(crate) struct Incoming {
    state: State,
    /// The queue between peer and reader. It stays after the end of the body, because the reader may not have taken all of it.
    parts: Option<Rc<RefCell<BodyQueue>>>,
    /// A body that is being collected, with its head.
    whole: Option<Collect>,
}

impl Incoming {
    /// Returns a message whose head has been received.
    pub(super) fn begun() -> Incoming {
        Incoming { state: State::Begun, parts: None, whole: None }
    }

    /// Returns a message that a client still awaits.
    #[cfg(test)]
    pub(super) fn awaited() -> Incoming {
        Incoming { state: State::Awaited, ..Incoming::begun() }
    }

    /// Records the head of an awaited message.
    #[cfg(test)]
    pub(super) fn begin(&mut self) {
        self.state.take(Step::Head);
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Returns a body that its reader takes in parts. `task` wakes the exchange when the reader has taken some of them.
    pub(crate) fn stream(&mut self, task: Waker) -> Body {
        self.state.take(Step::Stream);
        let parts = Rc::new(RefCell::new(BodyQueue::new(task)));
        self.parts = Some(parts.clone());
        Body::new(parts)
    }

    /// Collects the body whole. After that its route is looked up again and the handler is called with this head.
    pub(crate) fn collect(&mut self, head: &Head, window: &[u8]) {
        self.state.take(Step::Collect);
        let (head, window) = (head.to_kept(), window.to_vec());
        self.whole = Some(Collect { head, window, body: Vec::new() });
    }

    /// The peer's bytes belong to a tunnel from now on.
    pub(super) fn switch(&mut self) {
        self.state.take(Step::Switch);
    }

    /// The handler has not accepted the tunnel.
    pub(super) fn decline(&mut self) {
        if self.state == State::Tunnel {
            self.state.take(Step::LetGo);
        }
    }

    /// Returns how the body is used.
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

    /// Keeps bytes of the body for its reader, or drops them if there is none. Returns how the body is used, and true if these are
    /// the first bytes since the reader dropped the body.
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

    /// Completes the message. Returns what follows for the handler.
    pub(super) fn end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Ended {
        // A body that was cut may still be received to its end; its bytes are dropped.
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

    /// Ends a message that is not whole: its reader gets the bytes received so far, and then `why` as an error.
    pub(crate) fn cut(&mut self, why: BodyError) {
        self.state.take(Step::Cut);
        self.whole = None;
        self.parts.iter().for_each(|parts| parts.borrow_mut().finish(Err(why), Vec::new()));
    }

    /// The same, without a wake when the reader takes something.
    pub(super) fn give_up(&mut self, why: BodyError) {
        self.cut(why);
        self.parts = None;
    }

    /// Returns true if a reader takes the body in parts and the body has not ended.
    pub(crate) fn is_streaming(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| !parts.borrow().is_finished())
    }

    /// Returns true if the body is still being collected.
    pub(crate) fn is_collecting(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns true if a handler takes, or has taken, the body in parts: its bytes and its end may move the exchange on.
    pub(crate) fn has_reader(&self) -> bool {
        self.parts.is_some()
    }

    /// Returns true if [`INCOMING_BYTES`] wait for the reader. The reader then wakes the exchange when it takes some.
    pub(crate) fn is_full(&self) -> bool {
        let Some(parts) = &self.parts else { return false };
        let mut parts = parts.borrow_mut();
        parts.paused = parts.held >= INCOMING_BYTES && !parts.is_finished();
        parts.paused
    }

    /// Returns the bytes that wait for the reader; `None` without a reader.
    pub(crate) fn untaken(&self) -> Option<usize> {
        let parts = self.parts.as_ref()?.borrow();
        Some(if parts.abandoned { 0 } else { parts.bytes })
    }

    /// Sets whether the reader wakes the exchange when it takes something.
    pub(crate) fn wake_for_taken(&self, wakes: bool) {
        self.parts.iter().for_each(|parts| parts.borrow_mut().paused = wakes);
    }

    /// Returns the bytes held for the peer.
    pub(super) fn held(&self) -> usize {
        self.whole.as_ref().map_or(0, |whole| whole.body.capacity() + whole.window.capacity())
            + self.parts.as_ref().map_or(0, |parts| parts.borrow().held)
    }
}

/// What the end of a message means for its handler.
pub(super) enum Ended {
    /// The body is collected: the handler can be called.
    Collected(Collect),
    /// The reader of the body has been woken.
    Told,
    /// Nobody reads the body.
    Unread,
}

/// A body that is being collected, with its head.
pub(crate) struct Collect {
    pub(super) head: Head,
    pub(super) window: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Collect {
    /// Appends body bytes. The buffer grows by an eighth instead of doubling, because its unused capacity is charged as well.
    /// (When a large buffer grows, the system moves its pages and copies nothing.)
    fn extend(&mut self, bytes: &[u8]) {
        /// A smaller growth is not worth a copy.
        const LEAST_GROWTH: usize = 4 * 1024;
        if self.body.capacity() - self.body.len() < bytes.len() {
            self.body.reserve_exact(bytes.len().max(LEAST_GROWTH.max(self.body.len() / 8)));
        }
        self.body.extend_from_slice(bytes);
    }
}

/// The counts of a request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intake {
    /// The route whose limit holds.
    pub(crate) route: u32,
    /// Bytes so far. After the handler has dropped the body, only those received since.
    pub(crate) bytes: u64,
    /// Bytes received since the body's rate was last judged.
    pub(crate) arrived: u64,
}

impl Default for Intake {
    fn default() -> Intake {
        Intake { route: u32::MAX, bytes: 0, arrived: 0 }
    }
}

impl Intake {
    /// Counts received bytes; `anew` begins again at 0.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize, anew: bool) {
        self.arrived += bytes as u64;
        self.bytes = bytes as u64 + if anew { 0 } else { self.bytes };
    }
}
