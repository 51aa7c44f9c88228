//! The state of a request that an application handles: what it receives, and what it has sent.

use super::answer::{Answer, Begun, Parts, begun};
use super::awaitable::waits;
use super::body_parts::BodyParts;
use super::convert::{Fields, bytes_of, header_fields, is};
use super::file_part::FilePart;
use super::hints::{Hints, link_fields};
use super::received::{ProtocolClosed, disconnect, end_of_body, gather, part};
use super::shared::{CountedTask, Futures, Shared, settle};
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::BodyStream;
use highwire_engine::http::StatusCode;
use highwire_engine::response::{Content, Streamed};
use highwire_engine::{Begin, Body, Disconnect, Response};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The number of bytes that wait for the client at which `send` begins to wait.
pub(super) const MOST_WAITING: usize = 64 * 1024;

/// A request that an application handles.
pub(crate) struct Exchange {
    shared: Rc<Shared>,
    /// True if the method is HEAD.
    is_head: bool,
    /// True if the application is one of RSGI, which reads the parts of a body as bytes, not as events.
    is_rsgi: bool,
    pub(super) answer: RefCell<Answer>,
    /// The rest of the request's body, until its last part is received.
    body: RefCell<Option<Body>>,
    /// A part of the body that is behind the one which was received last.
    next: RefCell<Option<Bytes>>,
    /// True if the application has received the end of the body.
    has_body: Cell<bool>,
    is_reading: Cell<bool>,
    has_left: Cell<bool>,
    disconnect: RefCell<Option<Disconnect>>,
    awaits_disconnect: Cell<bool>,
    /// The futures that `receive` has returned and that are pending.
    receivers: Futures,
    /// The futures of RSGI that wait only for the disconnect.
    watchers: Futures,
    /// Wakes the engine's task that waits for the disconnect.
    watch: RefCell<Option<Waker>>,
    /// The futures that `send` has returned and that are pending.
    pub(super) senders: Futures,
    /// The task of the application, which the event loop only refers to weakly.
    task: RefCell<Option<(Py<PyAny>, CountedTask)>>,
    trailers: RefCell<Fields>,
    hints: RefCell<Hints>,
    /// Wakes the engine's task of the request.
    waker: RefCell<Option<Waker>>,
}

impl Exchange {
    pub(crate) fn new(shared: Rc<Shared>, is_head: bool, is_rsgi: bool, body: Option<Body>) -> Rc<Exchange> {
        Rc::new(Exchange {
            shared,
            is_head,
            is_rsgi,
            watchers: Futures::default(),
            watch: RefCell::default(),
            answer: RefCell::new(Answer::Nothing),
            body: RefCell::new(body),
            next: RefCell::default(),
            has_body: Cell::new(false),
            is_reading: Cell::new(false),
            has_left: Cell::new(false),
            disconnect: RefCell::default(),
            awaits_disconnect: Cell::new(false),
            receivers: Futures::default(),
            senders: Futures::default(),
            task: RefCell::default(),
            trailers: RefCell::default(),
            hints: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    pub(crate) fn keep_task(&self, task: Py<PyAny>) {
        *self.task.borrow_mut() = Some((task, CountedTask::new(&self.shared.tasks)));
    }

    /// Keeps what a request needs that is not answered by its first step.
    pub(crate) fn keep(self: &Rc<Self>, waker: Waker, disconnect: Disconnect) {
        disconnect.set(highwire_engine::OnDisconnect::GoOn);
        *self.waker.borrow_mut() = Some(waker);
        *self.disconnect.borrow_mut() = Some(disconnect);
        if self.awaits_disconnect.get() {
            self.watch_disconnect();
        }
    }

    /// Sends the hints of the application's first step, and later ones if the response is `pending`.
    pub(crate) fn send_hints(&self, request: &mut Begin<'_>, pending: bool) {
        self.hints.borrow_mut().connect(request, pending && !self.is_rsgi);
    }

    /// Takes the response, as soon as its head is known.
    pub(crate) fn take_response(self: &Rc<Self>) -> Option<Response> {
        let mut answer = self.answer.borrow_mut();
        match &mut *answer {
            Answer::Ready(_) => {
                let Answer::Ready(response) = std::mem::replace(&mut *answer, Answer::Over) else { return None };
                Some(*response)
            }
            Answer::Streaming(parts) if !parts.is_taken => {
                parts.is_taken = true;
                let begun = parts.begun.take()?;
                let has_trailers = begun.has_trailers;
                let stream = BodyParts(self.clone());
                let streamed = Streamed { length: begun.length, body: BodyStream::new(stream), trailers: None };
                // Unlike `Response::stream`, this adds no media type.
                let mut response = Response::with_content(Content::Stream(Box::new(streamed)));
                begun.fill(&mut response);
                if has_trailers {
                    let exchange = self.clone();
                    response = response.with_trailers(move || exchange.trailers.take());
                }
                Some(response)
            }
            _ => None,
        }
    }

    /// The client, or the whole server, has ended the request.
    pub(crate) fn leave(&self, py: Python<'_>) {
        self.has_left.set(true);
        *self.body.borrow_mut() = None;
        self.disconnected(py);
        self.resume_senders(py);
    }

    /// The task of the application has ended.
    pub(crate) fn finished(self: &Rc<Self>, py: Python<'_>, error: Option<Bound<'_, PyAny>>) {
        self.task.borrow_mut().take();
        let is_over = self.answer.borrow().is_complete();
        // The response of RSGI ends when its transport is dropped, which another task may have.
        let goes_on = self.is_rsgi && error.is_none() && matches!(&*self.answer.borrow(), Answer::Streaming(_));
        let text = match &error {
            Some(_) => Some("the application raised an exception"),
            None if is_over || goes_on || self.has_left.get() => None,
            None if matches!(&*self.answer.borrow(), Answer::Nothing) => {
                Some("the application returned without a response")
            }
            None => Some("the application returned before its response was complete"),
        };
        if let Some(text) = text
            && !self.has_left.get()
        {
            self.shared.log(py, error, text);
        }
        if is_over || goes_on {
            return;
        }
        let mut answer = self.answer.borrow_mut();
        match &mut *answer {
            Answer::Nothing | Answer::Begun(_) => {
                let text = "Internal Server Error";
                *answer = Answer::Ready(Box::new(Response::error(StatusCode::INTERNAL_SERVER_ERROR, text)));
            }
            Answer::Streaming(parts) => {
                parts.end = Some(Err(()));
                let waker = parts.waker.take();
                drop(answer);
                waker.into_iter().for_each(Waker::wake);
            }
            _ => {}
        }
        self.wake();
        // Another task of the application may wait.
        self.answered(py);
    }

    fn wake(&self) {
        self.waker.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Takes the next event for the application, if there is one.
    pub(crate) fn take<'py>(self: &Rc<Self>, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.has_body.get() && !self.has_left.get() {
            return self.read(py);
        }
        if self.is_rsgi && !self.has_left.get() {
            return Err(end_of_body());
        }
        if self.has_left.get() || self.answer.borrow().is_complete() {
            return self.disconnect_event(py).map(Some);
        }
        Ok(None)
    }

    /// Returns a future that wakes a task when [`take`](Self::take) may have an event.
    pub(crate) fn wait<'py>(self: &Rc<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let future = self.receivers.add(py, &self.shared)?;
        if !self.has_body.get() {
            self.begin_to_read();
        } else if !self.awaits_disconnect.get() {
            self.watch_disconnect();
        }
        Ok(future)
    }

    /// Returns the next part of the body, if it has come.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut body = self.body.borrow_mut();
        let Some(reader) = body.as_mut() else {
            self.has_body.set(true);
            return self.request_event(py, &[], false).map(Some);
        };
        let next = self.next.borrow_mut().take();
        if next.is_none() && self.is_reading.get() {
            // Polling the body here would take the place of the task that waits for it.
            return Ok(None);
        }
        let mut cx = Context::from_waker(Waker::noop());
        let part = match next {
            Some(part) => Poll::Ready(Some(Ok(part))),
            None => Pin::new(&mut *reader).poll_next(&mut cx),
        };
        let part = match part {
            Poll::Pending => return Ok(None),
            Poll::Ready(Some(Ok(part))) => part,
            Poll::Ready(None) => Bytes::new(),
            Poll::Ready(Some(Err(_))) => {
                *body = None;
                self.has_body.set(true);
                self.has_left.set(true);
                return self.disconnect_event(py).map(Some);
            }
        };
        let is_last = match Pin::new(reader).poll_next(&mut cx) {
            Poll::Ready(Some(Ok(next))) => {
                *self.next.borrow_mut() = Some(next);
                false
            }
            Poll::Ready(None) => true,
            // An error is found again by the next call.
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_last {
            *body = None;
            self.has_body.set(true);
        }
        self.request_event(py, &part, !is_last).map(Some)
    }

    /// Reads the next part of the body for the pending receivers.
    fn begin_to_read(self: &Rc<Self>) {
        if self.is_reading.replace(true) {
            return;
        }
        let exchange = self.clone();
        self.spawn(async move {
            // Waits until a part or the end is there. `read` takes it.
            let next = poll_fn(|cx| {
                let mut body = exchange.body.borrow_mut();
                let Some(body) = body.as_mut() else { return Poll::Ready(None) };
                Pin::new(body).poll_next(cx)
            })
            .await;
            exchange.is_reading.set(false);
            Python::attach(|py| {
                match next {
                    Some(Ok(part)) => *exchange.next.borrow_mut() = Some(part),
                    Some(Err(_)) => return exchange.leave(py),
                    None => *exchange.body.borrow_mut() = None,
                }
                exchange.receivers.wake(py, &exchange.shared);
            });
        });
    }

    fn watch_disconnect(self: &Rc<Self>) {
        self.awaits_disconnect.set(true);
        let Some(disconnect) = self.disconnect.borrow().clone() else { return };
        let exchange = Rc::downgrade(self);
        self.spawn(async move {
            let mut left = pin!(disconnect.disconnected());
            // The disconnect is not told any more when the response is complete.
            let has_left = poll_fn(|cx| {
                let Some(exchange) = exchange.upgrade().filter(|exchange| !exchange.answer.borrow().is_complete())
                else {
                    return Poll::Ready(false);
                };
                *exchange.watch.borrow_mut() = Some(cx.waker().clone());
                left.as_mut().poll(cx).map(|()| true)
            })
            .await;
            if has_left && let Some(exchange) = exchange.upgrade() {
                Python::attach(|py| exchange.disconnected(py));
            }
        });
    }

    /// Ends the task that waits for the disconnect.
    fn end_watch(&self) {
        self.watch.take().into_iter().for_each(Waker::wake);
    }

    /// Tells pending receivers that the client has left, or has its response.
    fn disconnected(&self, py: Python<'_>) {
        self.has_left.set(true);
        self.receivers.wake(py, &self.shared);
        self.watchers.wake(py, &self.shared);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        if let Some(spawner) = &*self.shared.spawner.borrow() {
            spawner.spawn(task);
        }
    }

    pub(super) fn resume_senders(&self, py: Python<'_>) {
        self.senders.wake(py, &self.shared);
    }

    fn request_event<'py>(&self, py: Python<'py>, body: &[u8], more: bool) -> PyResult<Bound<'py, PyAny>> {
        part(py, self.shared.words(), self.is_rsgi, body, more)
    }

    fn disconnect_event<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        disconnect(py, self.shared.words(), self.is_rsgi)
    }

    /// Returns a future that has a result when the client has left, or has its response.
    pub(crate) fn disconnected_future<'py>(self: &Rc<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let future = self.watchers.add(py, &self.shared)?;
        if self.has_left.get() || self.answer.borrow().is_complete() {
            self.watchers.wake(py, &self.shared);
        } else if !self.awaits_disconnect.get() {
            self.watch_disconnect();
        }
        Ok(future)
    }

    /// Returns true if the client has left.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.get()
    }

    /// Returns true if the response has begun.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(*self.answer.borrow(), Answer::Nothing)
    }

    /// Returns the whole body of the request, or a future of it.
    pub(crate) fn read_all<'py>(
        self: &Rc<Self>,
        py: Python<'py>,
    ) -> PyResult<Result<Bound<'py, PyAny>, Bound<'py, PyAny>>> {
        let Some(mut body) = self.body.borrow_mut().take() else {
            self.has_body.set(true);
            return Ok(Ok(PyBytes::new(py, b"").into_any()));
        };
        self.has_body.set(true);
        let mut parts: Vec<u8> = self.next.borrow_mut().take().map_or_else(Vec::new, Into::into);
        let as_result = |py: Python<'_>, parts: &[u8], error: Option<&'static str>| match error {
            None => Ok(PyBytes::new(py, parts).into_any().unbind()),
            Some(text) => Err(ProtocolClosed::new_err(text)),
        };
        if let Poll::Ready(error) = gather(&mut body, &mut parts, &mut Context::from_waker(Waker::noop())) {
            return as_result(py, &parts, error).map(|bytes| Ok(bytes.into_bound(py)));
        }
        let future = self.shared.event_loop.bind(py).call_method0(&self.shared.words().create_future)?;
        let pending = future.clone().unbind();
        let exchange = self.clone();
        self.spawn(async move {
            let error = poll_fn(|cx| gather(&mut body, &mut parts, cx)).await;
            Python::attach(|py| {
                let result = as_result(py, &parts, error).map(|bytes| bytes.into_bound(py));
                settle(py, &exchange.shared, &pending, result);
            });
        });
        Ok(Err(future))
    }

    /// Implements `send`: takes a message, and returns what the application awaits.
    pub(crate) fn send<'py>(self: &Rc<Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let (py, words) = (message.py(), self.shared.words());
        let kind = message.get_item(&words.kind)?.ok_or_else(|| PyValueError::new_err("the message has no 'type'"))?;
        if self.has_left.get() && !matches!(&*self.answer.borrow(), Answer::Over) {
            return Err(PyOSError::new_err("the client has left"));
        }
        if is(&kind, &words.response_body) {
            return self.send_body(message);
        }
        if is(&kind, &words.response_trailers) {
            return self.send_trailers(message);
        }
        if is(&kind, &words.response_pathsend) {
            return self.send_path(message);
        }
        if is(&kind, &words.response_early_hint) {
            return self.send_early_hint(message);
        }
        if !is(&kind, &words.start) {
            return Err(PyValueError::new_err(format!("{} is not a message of an HTTP response", kind.repr()?)));
        }
        // Reading the message may run Python, and with it another `send`.
        self.start(begun(message, words)?)?;
        Ok(self.shared.sent.bind(py).clone())
    }

    /// Begins the response.
    pub(crate) fn start(&self, begun: Begun) -> PyResult<()> {
        let mut answer = self.answer.borrow_mut();
        if !matches!(*answer, Answer::Nothing) {
            return Err(PyRuntimeError::new_err("'http.response.start' was sent before"));
        }
        *answer = Answer::Begun(Box::new(begun));
        Ok(())
    }

    fn send_body<'py>(self: &Rc<Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let (py, words) = (message.py(), self.shared.words());
        let bytes = message.get_item(&words.body)?.map_or_else(|| Ok(Bytes::new()), |body| bytes_of(&body))?;
        let more = message.get_item(&words.more_body)?.is_some_and(|more| more.is_truthy().unwrap_or(false));
        self.push(py, bytes, more)
    }

    /// Sends a part of the body. Returns what the application awaits.
    pub(crate) fn push<'py>(self: &Rc<Self>, py: Python<'py>, bytes: Bytes, more: bool) -> PyResult<Bound<'py, PyAny>> {
        let mut answer = self.answer.borrow_mut();
        match &mut *answer {
            Answer::Nothing => {
                return Err(PyRuntimeError::new_err("'http.response.body' was sent before 'http.response.start'"));
            }
            Answer::Ready(_) | Answer::Over => {
                return Err(PyRuntimeError::new_err("'http.response.body' was sent after the end of the response"));
            }
            Answer::Begun(_) => {
                let Some(begun) = answer.take_begun() else { return Ok(self.shared.sent.bind(py).clone()) };
                let more = more || begun.has_trailers;
                let has_no_body = self.is_head || begun.has_no_body();
                if more || (bytes.is_empty() && self.is_head && begun.length.is_some()) {
                    let (count, waiting) = (bytes.len(), VecDeque::from_iter((!bytes.is_empty()).then_some(bytes)));
                    let parts = Parts {
                        waiting,
                        bytes: count,
                        awaits_trailers: begun.has_trailers,
                        // It announces what a response with a body would have (RFC 9110 section 8.6).
                        end: (!more).then_some(Ok(())),
                        has_no_body,
                        begun: Some(begun),
                        ..Parts::default()
                    };
                    *answer = Answer::Streaming(parts);
                } else {
                    let mut response = Response::with_content(Content::Bytes(bytes));
                    begun.fill(&mut response);
                    *answer = Answer::Ready(Box::new(response));
                }
                drop(answer);
                self.wake();
                if !more {
                    self.answered(py);
                }
            }
            Answer::Streaming(parts) => {
                if parts.end.is_some() {
                    return Err(PyRuntimeError::new_err("'http.response.body' was sent after the end of the response"));
                }
                if !bytes.is_empty() && !parts.is_dropped {
                    parts.bytes += bytes.len();
                    parts.waiting.push_back(bytes);
                }
                if !more && !parts.awaits_trailers {
                    parts.end = Some(Ok(()));
                }
                let is_full = more && parts.bytes > MOST_WAITING;
                let waker = parts.waker.take();
                drop(answer);
                waker.into_iter().for_each(Waker::wake);
                if !more {
                    self.answered(py);
                }
                if is_full {
                    return waits(self.senders.add(py, &self.shared)?);
                }
            }
        }
        Ok(self.shared.sent.bind(py).clone())
    }

    /// Takes trailer fields, which end the response unless more follow.
    fn send_trailers<'py>(self: &Rc<Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let (py, words) = (message.py(), self.shared.words());
        let fields = message.get_item(&words.headers)?.map(|headers| header_fields(&headers)).transpose()?;
        let more = message.get_item(&words.more_trailers)?.is_some_and(|more| more.is_truthy().unwrap_or(false));
        let mut answer = self.answer.borrow_mut();
        let Answer::Streaming(parts) = &mut *answer else {
            return Err(PyRuntimeError::new_err("'http.response.trailers' was sent before the body"));
        };
        if !parts.awaits_trailers || parts.end.is_some() {
            return Err(PyRuntimeError::new_err("'http.response.trailers' was not announced, or sent after the end"));
        }
        self.trailers.borrow_mut().extend(fields.into_iter().flat_map(|(fields, _)| fields));
        if !more {
            parts.end = Some(Ok(()));
            let waker = parts.waker.take();
            drop(answer);
            waker.into_iter().for_each(Waker::wake);
            self.answered(py);
        }
        Ok(self.shared.sent.bind(py).clone())
    }

    /// Sends a file as the body (the extension `http.response.pathsend`).
    fn send_path<'py>(self: &Rc<Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let (py, words) = (message.py(), self.shared.words());
        let path = message.get_item(&words.path)?.ok_or_else(|| PyValueError::new_err("the message has no 'path'"))?;
        let path: std::path::PathBuf = path.extract()?;
        self.send_file(py, FilePart::open(py, &path, None)?)?;
        Ok(self.shared.sent.bind(py).clone())
    }

    /// Sends links before the response (the extension `http.response.early_hint`).
    fn send_early_hint<'py>(&self, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let (py, words) = (message.py(), self.shared.words());
        let links =
            message.get_item(&words.links)?.ok_or_else(|| PyValueError::new_err("the message has no 'links'"))?;
        // Reading the links may run Python, and with it another `send`.
        let links = link_fields(&links)?;
        if !matches!(&*self.answer.borrow(), Answer::Nothing) {
            let text = "'http.response.early_hint' was sent after 'http.response.start'";
            return Err(PyRuntimeError::new_err(text));
        }
        self.hints.borrow_mut().send(links);
        Ok(self.shared.sent.bind(py).clone())
    }

    /// Ends a response in parts, unless it has ended.
    pub(crate) fn end_parts(&self) {
        if let Answer::Streaming(parts) = &mut *self.answer.borrow_mut()
            && parts.end.is_none()
        {
            parts.end = Some(Ok(()));
            parts.waker.take().into_iter().for_each(Waker::wake);
        }
        Python::attach(|py| self.answered(py));
    }

    /// Sends a file, or a part of it, as the body.
    pub(crate) fn send_file(self: &Rc<Self>, py: Python<'_>, part: FilePart) -> PyResult<()> {
        let mut answer = self.answer.borrow_mut();
        let Some(begun) = answer.take_begun() else {
            return Err(PyRuntimeError::new_err("'http.response.pathsend' must follow 'http.response.start'"));
        };
        let mut response = Response::file_part(part.file, part.range);
        begun.fill(&mut response);
        *answer = Answer::Ready(Box::new(response));
        drop(answer);
        self.wake();
        self.answered(py);
        Ok(())
    }

    /// Tells pending receivers that the response is complete.
    fn answered(&self, py: Python<'_>) {
        self.end_watch();
        self.watchers.wake(py, &self.shared);
        if self.has_body.get() {
            self.receivers.wake(py, &self.shared);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end_watch();
    }
}
