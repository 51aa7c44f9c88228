//! The incoming half of an exchange: the peer's message. On a server it is the request; on a client, the response.

use super::state::{State, Step};
use crate::body::{Body, BodyError, BodyQueue, cost, lend, most_incoming};
use crate::message::request::BodyUse;
use highwire_proto::Head;
use http::{HeaderName, HeaderValue};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

/// The peer's message.
pub(crate) struct Incoming {
    state: State,
    /// The queue between the peer and the reader of a body in parts. It stays after the end of the body, because the
    /// reader may not have taken all parts.
    parts: Option<Rc<RefCell<BodyQueue>>>,
    /// A body that is being collected, with its head.
    whole: Option<Box<Collect>>,
}

impl Incoming {
    /// Returns a message whose head has been received.
    pub(super) fn begun() -> Incoming {
        Incoming { state: State::Begun, parts: None, whole: None }
    }

    /// Returns a message that a client still awaits.
    pub(super) fn awaited() -> Incoming {
        Incoming { state: State::Awaited, ..Incoming::begun() }
    }

    /// Records the head of an awaited message.
    pub(super) fn begin(&mut self) {
        self.state.take(Step::Head);
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Starts to pass the body on in parts, and returns its reading end. The reader wakes `task` when it drops the
    /// body, and when it takes a part if [`is_full`](Self::is_full) or [`wake_for_taken`](Self::wake_for_taken) has
    /// requested that.
    pub(crate) fn stream(&mut self, task: Waker) -> Body {
        self.state.take(Step::Stream);
        let parts = Rc::new(RefCell::new(BodyQueue::new(task)));
        self.parts = Some(parts.clone());
        Body::new(parts)
    }

    /// Starts to collect the whole body. Keeps the head, because the route is looked up again and the handler called
    /// when the body is complete.
    pub(crate) fn collect(&mut self, head: &Head, window: &[u8]) {
        self.state.take(Step::Collect);
        let (head, window) = (head.to_kept(), window.to_vec());
        self.whole = Some(Box::new(Collect { head, window, body: Vec::new(), lent: 0, resident: 0 }));
    }

    /// Records that the peer's bytes belong to a tunnel from now on.
    pub(super) fn switch(&mut self) {
        self.state.take(Step::Switch);
    }

    /// Records that the handler has declined the tunnel.
    pub(super) fn decline(&mut self) {
        if self.state == State::Tunnel {
            self.state.take(Step::LetGo);
        }
    }

    /// Returns how the body is used now. The result is [`BodyUse::None`] if the reader has dropped the body.
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

    /// Returns true if the body is being passed on in parts and its reader has dropped it.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_streaming() && self.is_abandoned()
    }

    /// Keeps bytes of the body for its reader, or drops them if no reader is left. Returns how the body is used, and
    /// true if these are the first bytes since the reader dropped the body.
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

    /// Lends the buffer of a body that is taken as a whole, to receive up to `left` missing bytes into it. Returns the
    /// buffer, and how many bytes may be received. The buffer must be given to [`take_back`](Self::take_back) before
    /// [`receive`](Self::receive) is called.
    pub(crate) fn lend(&mut self, left: u64, is_paused: bool) -> Option<(Vec<u8>, usize)> {
        if let Some(whole) = &mut self.whole {
            let (buffer, room) = lend(&mut whole.body, left, is_paused, &mut whole.resident)?;
            whole.lent = (buffer.len() + room).max(whole.resident);
            return Some((buffer, room));
        }
        self.parts.as_ref()?.borrow_mut().lend(left, is_paused)
    }

    /// Returns true if a buffer is lent and its reader still waits for the body.
    pub(crate) fn is_lent(&self) -> bool {
        let of_parts = || self.parts.as_ref().is_some_and(|parts| parts.borrow().is_lent());
        self.whole.as_ref().map_or_else(of_parts, |whole| whole.lent > 0)
    }

    /// Takes back a lent buffer, and drops it if no reader is left.
    pub(crate) fn take_back(&mut self, buffer: Vec<u8>) {
        match (&mut self.whole, &self.parts) {
            (Some(whole), _) => (whole.body, whole.lent) = (buffer, 0),
            (None, Some(parts)) => parts.borrow_mut().take_back(buffer),
            (None, None) => {}
        }
    }

    /// Completes the message. Returns the effect on the handler.
    pub(super) fn end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Ended {
        // A body that was cut may still be received to its end; its bytes are dropped.
        if self.state != State::Cut {
            self.state.take(Step::End);
        }
        if let Some(whole) = self.whole.take() {
            return Ended::Collected(*whole);
        }
        let Some(parts) = &self.parts else { return Ended::Unread };
        parts.borrow_mut().finish(Ok(()), trailers);
        Ended::Told
    }

    /// Ends the message early. If it is incomplete, a reader of its body gets the bytes received so far, and then `why`
    /// as an error.
    pub(crate) fn cut(&mut self, why: BodyError) {
        self.state.take(Step::Cut);
        self.whole = None;
        self.parts.iter().for_each(|parts| parts.borrow_mut().finish(Err(why), Vec::new()));
    }

    /// Cuts the message as [`cut`](Self::cut) does, and no longer counts the bytes that its reader has not taken.
    pub(super) fn give_up(&mut self, why: BodyError) {
        self.cut(why);
        self.parts = None;
    }

    /// Returns true if the body is passed on in parts and has not ended. The reader may have dropped it.
    pub(crate) fn is_streaming(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| !parts.borrow().is_finished())
    }

    /// Returns true if the body is still being collected.
    pub(crate) fn is_collecting(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns true if a handler takes, or has taken, the body in parts. Received bytes and the body's end are then a
    /// reason to poll the handler.
    pub(crate) fn has_reader(&self) -> bool {
        self.parts.is_some()
    }

    /// Returns true if at least [`INCOMING_BYTES`] wait for the reader, or more bytes than it accepts if it takes the body
    /// as a whole, and the body has not ended, or if the body waits for its reader to ask for it. The reader then
    /// wakes the exchange when it takes a part, until a later call returns false.
    pub(crate) fn is_full(&self) -> bool {
        let Some(parts) = &self.parts else { return false };
        let mut parts = parts.borrow_mut();
        parts.paused = parts.is_full(most_incoming()) && !parts.is_finished();
        parts.paused
    }

    /// Records that the body is a response's, which its server can keep while much waits on this thread.
    pub(crate) fn mark_as_response(&self) {
        self.parts.iter().for_each(|parts| parts.borrow_mut().is_of_response = true);
    }

    /// Counts a body that is passed on in parts as full until its reader asks for it or, if `uses_first` is true, for its
    /// second part.
    pub(crate) fn await_reader(&self, uses_first: bool) {
        self.parts.iter().for_each(|parts| parts.borrow_mut().await_reader(uses_first));
    }

    /// Returns the number of bytes that wait for the reader, 0 if it has dropped the body. Returns `None` if the body
    /// is not taken in parts.
    pub(crate) fn untaken(&self) -> Option<usize> {
        let parts = self.parts.as_ref()?.borrow();
        Some(if parts.abandoned { 0 } else { parts.untaken() })
    }

    /// Sets whether the reader wakes the exchange when it takes a part.
    pub(crate) fn wake_for_taken(&self, wakes: bool) {
        self.parts.iter().for_each(|parts| parts.borrow_mut().paused = wakes);
    }

    /// Returns the number of bytes that the message holds.
    pub(super) fn held(&self) -> usize {
        self.whole
            .as_ref()
            .map_or(0, |whole| whole.lent.max(cost(&whole.body, whole.resident)) + whole.window.capacity())
            + self.parts.as_ref().map_or(0, |parts| parts.borrow().held.get())
    }
}

/// The effect of a message's end on its handler.
pub(super) enum Ended {
    /// The body is collected, so the handler can be called.
    Collected(Collect),
    /// The reader of the body has been woken, and the handler must be polled.
    Told,
    /// No handler reads the body.
    Unread,
}

/// A body that is being collected, with its head.
pub(crate) struct Collect {
    pub(super) head: Head,
    pub(super) window: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// The number of bytes that the body costs while it is lent.
    lent: usize,
    /// The capacity of `body`, if it is the buffer of an earlier body.
    resident: usize,
}

impl Collect {
    /// Appends body bytes. The buffer grows by about an eighth instead of doubling, because its unused capacity is
    /// charged as well. (With glibc, a large buffer usually grows by remapping its pages, without a copy.)
    fn extend(&mut self, bytes: &[u8]) {
        /// The smallest growth in bytes. A smaller one is not worth a copy.
        const LEAST_GROWTH: usize = 4 * 1024;
        if self.body.capacity() - self.body.len() < bytes.len() {
            self.body.reserve_exact(bytes.len().max(LEAST_GROWTH.max(self.body.len() / 8)));
        }
        self.body.extend_from_slice(bytes);
    }
}

/// The byte counts of a request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intake {
    /// The route whose body limit applies.
    pub(crate) route: u32,
    /// The number of body bytes received so far or, if the handler has dropped the body, since then.
    pub(crate) bytes: u64,
    /// The number of body bytes received since the body's rate was last checked.
    pub(crate) arrived: u32,
}

impl Default for Intake {
    fn default() -> Intake {
        Intake { route: u32::MAX, bytes: 0, arrived: 0 }
    }
}

impl Intake {
    /// Returns true if at least `wanted` bytes have arrived since the last check. Counts no more than 4 GiB.
    pub(crate) fn has_received(&self, wanted: u64) -> bool {
        u64::from(self.arrived) >= wanted.min(u64::from(u32::MAX))
    }

    /// Counts received bytes. If `anew` is true, first sets the count of the body's bytes to 0.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize, anew: bool) {
        self.arrived = self.arrived.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.bytes = bytes as u64 + if anew { 0 } else { self.bytes };
    }
}
