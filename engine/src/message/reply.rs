//! Answers that are given later, from any thread, and interim responses that precede the final response.

use crate::message::response::Response;
use crate::runtime::panics::drop_safely;
use crate::runtime::rate_limited;
use http::{HeaderName, HeaderValue, StatusCode};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;

type Answer = Box<dyn FnOnce() -> Response + Send>;

/// Work for another thread. It returns the function that makes the answer.
type Work = Box<dyn FnOnce() -> Answer + Send>;

/// The slot in which an answer from another thread waits for the request's worker.
struct ReplySlot {
    content: Mutex<Content>,
    waker: Waker,
    /// True if the handler itself answers after all.
    is_waived: AtomicBool,
}

/// The content of a slot.
enum Content {
    Nothing,
    Work(Work),
    Answer(Answer),
}

impl ReplySlot {
    /// Takes the content of the slot if `is_wanted` returns true for it.
    fn take(&self, is_wanted: impl FnOnce(&Content) -> bool) -> Content {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wanted(&content) { std::mem::replace(&mut content, Content::Nothing) } else { Content::Nothing }
    }

    fn put(&self, content: Content) {
        let mut place = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, content);
        // Dropped without the lock, because it is the program's own value, whose `Drop` may use this slot.
        drop(place);
        drop(before);
    }

    fn answer(&self, answer: Answer) {
        if self.is_waived.load(Ordering::Acquire) {
            return drop_safely(answer);
        }
        self.put(Content::Answer(answer));
        self.waker.wake_by_ref();
    }
}

/// The end of a slot that waits for the answer. Dropping it also drops an answer, or work that has not begun, so that a
/// request that is over holds no memory for them.
pub struct Awaited {
    slot: Arc<ReplySlot>,
    /// The waiting end of an earlier [`Replier`] of the same request.
    #[expect(dead_code, reason = "it is held only to be dropped with this one")]
    earlier: Option<Box<Awaited>>,
}

impl Awaited {
    /// Returns the answer, if there is one. Calls the function that makes it here, on the worker, so that the answer
    /// need not be `Send`.
    pub fn take(&self) -> Option<Response> {
        match self.slot.take(|content| matches!(content, Content::Answer(_))) {
            Content::Answer(make) => Some(make()),
            Content::Nothing | Content::Work(_) => None,
        }
    }
}

impl Awaited {
    /// Returns a [`Waiver`], by which the handler takes the right to answer back from its [`Replier`].
    pub fn waiver(&self) -> Waiver {
        Waiver(Arc::downgrade(&self.slot))
    }

    /// Returns true if the handler's own result is the answer, because a [`Waiver`] was used.
    pub fn is_waived(&self) -> bool {
        self.slot.is_waived.load(Ordering::Acquire)
    }
}

/// Takes the right to answer a request back from its [`Replier`], such as when a later extractor refuses.
pub struct Waiver(Weak<ReplySlot>);

impl Waiver {
    /// Lets the handler's own result be the answer. The [`Replier`] answers no longer.
    pub fn waive(&self) {
        if let Some(slot) = self.0.upgrade() {
            slot.is_waived.store(true, Ordering::Release);
            slot.put(Content::Nothing);
        }
    }
}

impl std::fmt::Debug for Waiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiver")
    }
}

impl Awaited {
    /// Returns true if the slot has work that no thread has begun.
    pub(crate) fn has_waiting_work(&self) -> bool {
        let content = self.slot.content.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*content, Content::Work(_))
    }
}

impl std::fmt::Debug for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Awaited")
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        drop_safely(self.slot.take(|_| true));
    }
}

/// The right to answer a request once, later, from any thread. The result of the request's handler is then ignored. If
/// the `Replier` is dropped without an answer, the client gets 500.
pub struct Replier {
    slot: Option<Arc<ReplySlot>>,
}

impl Replier {
    /// Creates a right to answer, and the end that waits for the answer. `waker` wakes the request's task. `earlier` is
    /// the waiting end of an earlier right to answer the same request, whose answer is ignored from now on.
    pub(crate) fn new(waker: Waker, earlier: Option<Awaited>) -> (Replier, Awaited) {
        let slot =
            Arc::new(ReplySlot { content: Mutex::new(Content::Nothing), waker, is_waived: AtomicBool::new(false) });
        (Replier { slot: Some(slot.clone()) }, Awaited { slot, earlier: earlier.map(Box::new) })
    }

    /// Answers with the response that `make` returns. `make` runs on the request's worker, unless the request has been
    /// cut.
    pub fn send(mut self, make: impl FnOnce() -> Response + Send + 'static) {
        if let Some(slot) = self.slot.take() {
            slot.answer(Box::new(make));
        }
    }

    /// Returns true if the request still waits for the answer.
    pub fn is_wanted(&self) -> bool {
        // The other owner is the waiting end.
        self.slot.as_ref().is_some_and(|slot| Arc::strong_count(slot) > 1)
    }

    /// Stores work that [`work`](Self::work) will run. The function that the work returns makes the answer on the
    /// request's worker.
    pub fn leave<M: FnOnce() -> Response + Send + 'static>(&self, work: impl FnOnce() -> M + Send + 'static) {
        if let Some(slot) = &self.slot {
            slot.put(Content::Work(Box::new(|| Box::new(work()))));
        }
    }

    /// Runs the function given to [`leave`](Self::leave) on this thread and answers with its result. Does nothing if
    /// the request has been cut.
    pub fn work(mut self) {
        let Some(slot) = &self.slot else { return };
        if let Content::Work(work) = slot.take(|content| matches!(content, Content::Work(_))) {
            let answer = work();
            slot.answer(answer);
        }
        self.slot = None;
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.answer(Box::new(|| {
                rate_limited::log!(
                    Mistake,
                    error,
                    "a request's replier was dropped without an answer; the client gets 500"
                );
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            }));
        }
    }
}

impl std::fmt::Debug for Replier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replier")
    }
}

/// Interim responses that wait to be sent.
#[derive(Debug, Default)]
pub struct InterimQueue {
    pub(crate) waiting: Vec<(StatusCode, Vec<(HeaderName, HeaderValue)>)>,
    waker: Option<Waker>,
}

impl InterimQueue {
    /// Creates an empty queue. When an interim response is added, `waker` wakes the request's task.
    pub(crate) fn new(waker: Waker) -> Rc<RefCell<InterimQueue>> {
        Rc::new(RefCell::new(InterimQueue { waiting: Vec::new(), waker: Some(waker) }))
    }
}

/// Sends interim responses, such as 103 Early Hints, before the final one.
#[derive(Debug)]
#[doc(alias = "Interim")]
pub struct InterimResponses {
    queue: Rc<RefCell<InterimQueue>>,
}

impl InterimResponses {
    /// Creates the sending end of a queue.
    pub(crate) fn new(queue: Rc<RefCell<InterimQueue>>) -> InterimResponses {
        InterimResponses { queue }
    }

    /// Sends an interim response. The status must be 1xx, such as 103, but not 100 or 101, which the engine sends
    /// itself; any other status is ignored and logged. HTTP/1.0 clients, and callers in this process, do not receive
    /// interim responses.
    pub fn send(&self, status: StatusCode, fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>) {
        if status.is_informational() && status != StatusCode::CONTINUE && status != StatusCode::SWITCHING_PROTOCOLS {
            let mut queue = self.queue.borrow_mut();
            queue.waiting.push((status, fields.into_iter().collect()));
            queue.waker.iter().for_each(Waker::wake_by_ref);
        } else {
            rate_limited::log!(Mistake, error, %status, "a handler cannot send an interim response with this status");
        }
    }
}
