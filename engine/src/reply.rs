//! Answers that come later, from any thread, and interim responses before them.

use crate::panics::let_go;
use crate::quiet;
use crate::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

type Answer = Box<dyn FnOnce() -> Response + Send>;

/// What is to be done elsewhere, and makes the answer.
type Work = Box<dyn FnOnce() -> Answer + Send>;

/// Where an answer from another thread waits for the connection's worker.
struct ReplySlot {
    content: Mutex<Content>,
    waker: Waker,
}

/// What a slot holds.
enum Content {
    Nothing,
    Work(Work),
    Answer(Answer),
}

impl ReplySlot {
    /// Takes what it holds where that is wanted.
    fn take(&self, is_wanted: impl FnOnce(&Content) -> bool) -> Content {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wanted(&content) { std::mem::replace(&mut content, Content::Nothing) } else { Content::Nothing }
    }

    fn put(&self, content: Content) {
        let mut place = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, content);
        // Without the lock: what is dropped is the program's own, and may reach this slot.
        drop(place);
        drop(before);
    }

    fn answer(&self, answer: Answer) {
        self.put(Content::Answer(answer));
        self.waker.wake_by_ref();
    }
}

/// The end of a slot that waits for the answer. Dropped, it takes along what was to be done for that and has not begun, so
/// that a request which is over holds nothing more and has no effect any more.
pub struct Awaited {
    slot: Arc<ReplySlot>,
    /// What the same request waited for before its handler took a [`Replier`] too.
    #[expect(dead_code, reason = "it is held, and dropped with this one")]
    earlier: Option<Box<Awaited>>,
}

impl Awaited {
    /// The answer, if it has come. It is made on the worker, so that it may hold what cannot cross threads.
    pub fn take(&self) -> Option<Response> {
        match self.slot.take(|content| matches!(content, Content::Answer(_))) {
            Content::Answer(make) => Some(make()),
            Content::Nothing | Content::Work(_) => None,
        }
    }
}

impl std::fmt::Debug for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Awaited")
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let_go(self.slot.take(|_| true));
    }
}

/// The right to answer a request once, later, from any thread. What its handler returns is then ignored. Dropped without an
/// answer, it answers 500.
pub struct Replier {
    slot: Option<Arc<ReplySlot>>,
}

impl Replier {
    /// The right to answer, and the end that waits for it. `waker` is that of the task that answers the request; `earlier` is what
    /// the request waited for before.
    pub(crate) fn new(waker: Waker, earlier: Option<Awaited>) -> (Replier, Awaited) {
        let slot = Arc::new(ReplySlot { content: Mutex::new(Content::Nothing), waker });
        (Replier { slot: Some(slot.clone()) }, Awaited { slot, earlier: earlier.map(Box::new) })
    }

    /// Answers by what a function makes on the request's worker.
    pub fn send(mut self, make: impl FnOnce() -> Response + Send + 'static) {
        if let Some(slot) = self.slot.take() {
            slot.answer(Box::new(make));
        }
    }

    /// Leaves what is to be done for the answer, for [`work`](Self::work) to do it. What it returns makes the answer, on the
    /// request's worker.
    pub fn leave<M: FnOnce() -> Response + Send + 'static>(&self, work: impl FnOnce() -> M + Send + 'static) {
        if let Some(slot) = &self.slot {
            slot.put(Content::Work(Box::new(|| Box::new(work()))));
        }
    }

    /// Runs the function given to [`leave`](Self::leave) and answers with its result. Does nothing if the request has been cut.
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
                quiet::log!(Mistake, error, "the right to answer a request was dropped without an answer");
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
    /// An empty one, whose sender wakes a request's task.
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
    /// The sending end of a queue.
    pub(crate) fn new(queue: Rc<RefCell<InterimQueue>>) -> InterimResponses {
        InterimResponses { queue }
    }

    /// Sends an interim response: 102, 103 or another of the 1xx but 100 and 101, which the engine sends itself. HTTP/1.0
    /// clients never see it.
    pub fn send(&self, status: StatusCode, fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>) {
        if status.is_informational() && status != StatusCode::CONTINUE && status != StatusCode::SWITCHING_PROTOCOLS {
            let mut queue = self.queue.borrow_mut();
            queue.waiting.push((status, fields.into_iter().collect()));
            queue.waker.iter().for_each(Waker::wake_by_ref);
        } else {
            quiet::log!(Mistake, error, %status, "this is no interim status for a handler to send");
        }
    }
}
