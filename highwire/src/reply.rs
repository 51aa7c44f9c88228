//! Answers that come later, from any thread, and interim responses before them.

use crate::request::{FromRequest, Request};
use crate::server::let_go;
use crate::{IntoResponse, Response};
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
pub(crate) struct Awaited {
    slot: Arc<ReplySlot>,
    /// What the same request waited for before its handler took a [`Reply`] too.
    #[expect(dead_code, reason = "it is held, and dropped with this one")]
    earlier: Option<Box<Awaited>>,
}

impl Awaited {
    /// The answer, if it has come. It is made on the worker, so that it may hold what cannot cross threads.
    pub(crate) fn take(&self) -> Option<Response> {
        match self.slot.take(|content| matches!(content, Content::Answer(_))) {
            Content::Answer(make) => Some(make()),
            Content::Nothing | Content::Work(_) => None,
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let_go(self.slot.take(|_| true));
    }
}

/// The right to answer a request once, later, from any thread: an extractor. What its handler returns is then ignored.
/// Dropped without an answer, it answers 500.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Reply};
///
/// let app = App::new().get("/later", |reply: Reply| {
///     std::thread::spawn(move || reply.send("from another thread"));
/// });
/// assert_eq!(Client::new(app)?.get("/later").send().text(), "from another thread");
/// # Ok::<(), highwire::Error>(())
/// ```
pub struct Reply {
    slot: Option<Arc<ReplySlot>>,
}

impl Reply {
    /// Answers.
    pub fn send(mut self, answer: impl IntoResponse + Send + 'static) {
        if let Some(slot) = self.slot.take() {
            slot.answer(Box::new(move || answer.into_response()));
        }
    }

    /// Leaves what is to be done for the answer, for [`work`](Self::work) to do it.
    pub(crate) fn leave<R: IntoResponse + Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) {
        if let Some(slot) = &self.slot {
            slot.put(Content::Work(Box::new(|| {
                let answer = work();
                Box::new(|| answer.into_response())
            })));
        }
    }

    /// Does what was left to be done and answers with its result, or does nothing where nobody waits for that any more.
    pub(crate) fn work(mut self) {
        let Some(slot) = &self.slot else { return };
        if let Content::Work(work) = slot.take(|content| matches!(content, Content::Work(_))) {
            let answer = work();
            slot.answer(answer);
        }
        self.slot = None;
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.answer(Box::new(|| {
                crate::server::quiet::log!(Mistake, error, "a Reply was dropped without an answer");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            }));
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

impl FromRequest for Reply {
    fn from_request(request: &mut Request<'_>) -> Result<Reply, Response> {
        let slot = Arc::new(ReplySlot { content: Mutex::new(Content::Nothing), waker: request.waker() });
        let earlier = request.hooks.reply.take().map(Box::new);
        request.hooks.reply = Some(Awaited { slot: slot.clone(), earlier });
        Ok(Reply { slot: Some(slot) })
    }
}

/// Interim responses that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct InterimQueue {
    pub(crate) waiting: Vec<(StatusCode, Vec<(HeaderName, HeaderValue)>)>,
    waker: Option<Waker>,
}

impl InterimQueue {
    /// An empty one, whose sender wakes a request's task.
    pub(crate) fn new(waker: Waker) -> Rc<RefCell<InterimQueue>> {
        Rc::new(RefCell::new(InterimQueue { waiting: Vec::new(), waker: Some(waker) }))
    }
}

/// Sends interim responses, such as 103 Early Hints, before the final one: an extractor.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, HeaderValue, Html, Interim, StatusCode, header};
///
/// let app = App::new().get("/", |interim: Interim| {
///     let link = HeaderValue::from_static("</style.css>; rel=preload; as=style");
///     interim.send(StatusCode::EARLY_HINTS, [(header::LINK, link)]);
///     Html("<link rel=stylesheet href=/style.css>")
/// });
/// let answer = Client::new(app)?.get("/").send();
/// assert_eq!((answer.status().as_u16(), answer.interim()[0].0.as_u16()), (200, 103));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Debug)]
pub struct Interim {
    queue: Rc<RefCell<InterimQueue>>,
}

impl Interim {
    /// Sends an interim response: 102, 103 or another of the 1xx but 100 and 101, which the engine sends itself. HTTP/1.0
    /// clients never see it.
    pub fn send(&self, status: StatusCode, fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>) {
        if status.is_informational() && status != StatusCode::CONTINUE && status != StatusCode::SWITCHING_PROTOCOLS {
            let mut queue = self.queue.borrow_mut();
            queue.waiting.push((status, fields.into_iter().collect()));
            queue.waker.iter().for_each(Waker::wake_by_ref);
        } else {
            crate::server::quiet::log!(Mistake, error, %status, "this is no interim status for a handler to send");
        }
    }
}

impl FromRequest for Interim {
    fn from_request(request: &mut Request<'_>) -> Result<Interim, Response> {
        let waker = request.waker();
        let queue = request.hooks.interim.get_or_insert_with(|| InterimQueue::new(waker));
        Ok(Interim { queue: queue.clone() })
    }
}
