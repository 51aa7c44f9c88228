//! The place of one request between the task that makes it and the connection that sends it.

use super::failure::Failure;
use super::open::OpeningTimes;
use super::request::{Answer, Interim, Request};
use crate::message::response::Content;
use bytes::Bytes;
use highwire_io::Instant;
use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The most interim responses to one request. RFC 9110 section 15.2 sets no limit, and a server could send them for
/// ever.
pub const INTERIMS: u32 = 32;

/// A request and what has become of it.
pub(crate) struct PendingRequest {
    inner: RefCell<Inner>,
}

struct Inner {
    request: Request,
    result: Option<Result<Box<Answer>, Failure>>,
    /// True if `result` was set, even if it was taken since.
    is_over: bool,
    /// True if a connection has begun to send the request.
    is_begun: bool,
    /// True if the request had to wait for a connection.
    is_queued: bool,
    /// The number of requests that wait for a connection to the same origin, while this one does.
    waiting: Option<Rc<Cell<usize>>>,
    /// True if the requester has stopped waiting.
    is_abandoned: bool,
    interims: VecDeque<Interim>,
    interim_count: u32,
    requester: Option<Waker>,
    /// Wakes the connection, or the stream, that sends the request.
    connection: Option<Waker>,
    moments: Moments,
}

/// When the steps of a request happened. A moment is 0 if its step has not happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// A connection began to send the request.
    pub begun: Instant,
    /// The head of the response came.
    pub answered: Instant,
    /// How long the steps took that opened the connection, if it was opened for this request.
    pub opening: Option<Box<OpeningTimes>>,
}

impl PendingRequest {
    pub(super) fn new(request: Request) -> Rc<PendingRequest> {
        Rc::new(PendingRequest {
            inner: RefCell::new(Inner {
                request,
                result: None,
                is_over: false,
                is_begun: false,
                is_queued: false,
                waiting: None,
                is_abandoned: false,
                interims: VecDeque::new(),
                interim_count: 0,
                requester: None,
                connection: None,
                moments: Moments::default(),
            }),
        })
    }

    /// Returns the request.
    pub(crate) fn request(&self) -> Ref<'_, Request> {
        Ref::map(self.inner.borrow(), |inner| &inner.request)
    }

    /// Takes the request's body, because a connection begins to send it. `connection` is woken when the requester stops
    /// waiting.
    pub(crate) fn begin(&self, connection: Waker, now: Instant) -> Content {
        let mut inner = self.inner.borrow_mut();
        inner.connection = Some(connection);
        inner.is_begun = true;
        inner.waits_no_more();
        inner.moments.begun = now;
        match &inner.request.content {
            // The bytes stay for another attempt.
            Content::Bytes(bytes) => Content::Bytes(bytes.clone()),
            _ => std::mem::replace(&mut inner.request.content, Content::Bytes(Bytes::new())),
        }
    }

    /// Records that no connection had room for the request, which is counted as long as it waits.
    pub(super) fn queue(&self, waiting: &Rc<Cell<usize>>) {
        let mut inner = self.inner.borrow_mut();
        inner.is_queued = true;
        waiting.set(waiting.get() + 1);
        inner.waiting = Some(waiting.clone());
    }

    /// Records that a connection will begin the request.
    pub(super) fn leave_queue(&self) {
        self.inner.borrow_mut().waits_no_more();
    }

    /// Records how long it took to open the connection, if the request has waited for one.
    pub(super) fn set_opening(&self, times: OpeningTimes) {
        let mut inner = self.inner.borrow_mut();
        if inner.is_queued {
            inner.moments.opening = Some(Box::new(times));
        }
    }

    /// Returns true if the requester has stopped waiting.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.inner.borrow().is_abandoned
    }

    /// Gives the response to the requester.
    pub(crate) fn answer(&self, answer: Box<Answer>, now: Instant) {
        self.inner.borrow_mut().moments.answered = now;
        self.end(Ok(answer));
    }

    /// Ends the request without a response.
    pub(crate) fn fail(&self, failure: Failure) {
        self.end(Err(failure));
    }

    /// Ends the request because its connection has ended.
    pub(crate) fn lose(&self) {
        let is_begun = self.inner.borrow().is_begun;
        self.fail(if is_begun { Failure::Lost } else { Failure::Unsent });
    }

    fn end(&self, result: Result<Box<Answer>, Failure>) {
        let (waker, unwanted) = {
            let mut inner = self.inner.borrow_mut();
            inner.waits_no_more();
            if inner.is_over || inner.is_abandoned {
                (None, Some(result))
            } else {
                inner.is_over = true;
                inner.result = Some(result);
                (inner.requester.take(), None)
            }
        };
        // Dropping a response's body may wake the connection.
        drop(unwanted);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Passes an interim response on. Returns false if there have been too many.
    pub(crate) fn interim(&self, interim: impl FnOnce() -> Interim) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.interim_count += 1;
        if inner.interim_count > INTERIMS {
            return false;
        }
        if inner.request.wants_interims && !inner.is_abandoned {
            inner.interims.push_back(interim());
            let waker = inner.requester.take();
            drop(inner);
            waker.into_iter().for_each(Waker::wake);
        }
        true
    }
}

impl Inner {
    /// No longer counts the request among those that wait.
    fn waits_no_more(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.set(waiting.get() - 1);
        }
    }
}

/// A request that was given to a [`Pool`](super::Pool). It is cancelled when this is dropped before the response has come.
pub struct Asked {
    pending_request: Rc<PendingRequest>,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Asked")
    }
}

impl Asked {
    pub(super) fn new(pending_request: Rc<PendingRequest>) -> Asked {
        Asked { pending_request }
    }

    /// Polls for the next interim response, or the response. Returns the response, or the reason why there is none, as
    /// `Err` of the outer result, once.
    pub fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<Result<Interim, Result<Box<Answer>, Failure>>> {
        let mut inner = self.pending_request.inner.borrow_mut();
        if let Some(interim) = inner.interims.pop_front() {
            return Poll::Ready(Ok(interim));
        }
        if let Some(result) = inner.result.take() {
            return Poll::Ready(Err(result));
        }
        if !inner.requester.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inner.requester = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Polls for the response, and drops interim responses.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<Answer>, Failure>> {
        loop {
            match self.poll_interim(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(result)) => return Poll::Ready(result),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Returns true if no connection has begun to send the request, because none had room.
    pub fn is_queued(&self) -> bool {
        let inner = self.pending_request.inner.borrow();
        inner.is_queued && !inner.is_begun && !inner.is_over
    }

    /// Returns when the steps of the request happened.
    pub fn moments(&self) -> Moments {
        self.pending_request.inner.borrow().moments.clone()
    }

    /// Returns the request, for another attempt, and cancels it if no connection has begun to send it. A body in parts is
    /// missing if a connection has begun to send it. Returns `None` while a connection sends it or awaits the response.
    pub fn into_request(self) -> Option<Request> {
        let mut inner = self.pending_request.inner.borrow_mut();
        let empty = Request::new(http::Method::GET, "", Rc::from(""), String::new());
        if inner.is_begun && !inner.is_over {
            return None;
        }
        inner.is_abandoned = true;
        inner.waits_no_more();
        Some(std::mem::replace(&mut inner.request, empty))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let (connection, result) = {
            let mut inner = self.pending_request.inner.borrow_mut();
            inner.is_abandoned = true;
            inner.waits_no_more();
            // The request may stay in a queue for a time; its body need not.
            let content = std::mem::replace(&mut inner.request.content, Content::Bytes(Bytes::new()));
            (inner.connection.take().filter(|_| !inner.is_over), (inner.result.take(), content))
        };
        drop(result);
        connection.into_iter().for_each(Waker::wake);
    }
}
