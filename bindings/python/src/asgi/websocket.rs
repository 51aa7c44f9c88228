//! A WebSocket that an application handles.

use super::awaitable::waits;
use super::convert::{Fields, as_bytes, header_fields, is};
use super::received::message_object;
use super::shared::{CountedTask, Futures, Shared};
use highwire::ws::{CloseFrame, Error, Message, WebSocket, WebSocketReceiver, WebSocketSender, WebSocketUpgrade};
use highwire_engine::Response;
use highwire_engine::http::{HeaderName, StatusCode};
use highwire_engine::response::Content;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The number of received messages that wait for the application at which no more are received.
const MOST_RECEIVED: usize = 16;

/// The number of bytes that wait to be sent at which `send` begins to wait.
const MOST_WAITING: usize = 64 * 1024;

/// The most messages that a connection sends and receives before others have their turn.
const MESSAGES_A_TURN: u32 = 64;

/// The code of a Close frame after an exception of the application.
const INTERNAL_ERROR: u16 = 1011;

/// The code that stands for a connection without a Close frame.
const ABNORMAL: u16 = 1006;

/// The code that stands for a Close frame without a code.
const NO_STATUS: u16 = 1005;

/// How far the opening handshake is.
enum Handshake {
    /// The application has not answered.
    Open(Box<WebSocketUpgrade>),
    /// The application refuses the handshake with a response of its own, whose body is not complete.
    Denying(Box<Response>),
    /// The response waits for the engine.
    Answered(Box<Response>),
    /// The engine has taken the response.
    Taken,
}

/// A WebSocket that an application handles.
pub(crate) struct Socket {
    shared: Rc<Shared>,
    handshake: RefCell<Handshake>,
    /// True if the application has accepted the connection.
    is_accepted: Cell<bool>,
    /// True if the application is one of RSGI.
    is_rsgi: bool,
    /// True if the application has received `websocket.connect`, which RSGI has not.
    has_connected: Cell<bool>,
    received: RefCell<VecDeque<Message>>,
    /// The code and the reason with which the connection has ended.
    ended: RefCell<Option<(u16, String)>>,
    /// True if the application has closed the connection.
    is_closed: Cell<bool>,
    outbox: RefCell<VecDeque<Message>>,
    outbox_bytes: Cell<usize>,
    receivers: Futures,
    senders: Futures,
    task: RefCell<Option<(Py<PyAny>, CountedTask)>>,
    /// Wakes the engine's task of the request, and later that of the connection.
    waker: RefCell<Option<Waker>>,
}

impl Socket {
    pub(crate) fn new(shared: Rc<Shared>, is_rsgi: bool, upgrade: WebSocketUpgrade) -> Rc<Socket> {
        Rc::new(Socket {
            shared,
            is_rsgi,
            handshake: RefCell::new(Handshake::Open(Box::new(upgrade))),
            is_accepted: Cell::new(false),
            has_connected: Cell::new(is_rsgi),
            received: RefCell::default(),
            ended: RefCell::default(),
            is_closed: Cell::new(false),
            outbox: RefCell::default(),
            outbox_bytes: Cell::new(0),
            receivers: Futures::default(),
            senders: Futures::default(),
            task: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    pub(crate) fn keep_task(&self, task: Py<PyAny>) {
        *self.task.borrow_mut() = Some((task, CountedTask::new(&self.shared.tasks)));
    }

    pub(crate) fn keep(&self, waker: Waker) {
        *self.waker.borrow_mut() = Some(waker);
    }

    fn wake(&self) {
        self.waker.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Takes the response of the opening handshake, if the application has answered.
    pub(crate) fn take_response(&self) -> Option<Response> {
        let mut handshake = self.handshake.borrow_mut();
        if !matches!(*handshake, Handshake::Answered(_)) {
            return None;
        }
        match std::mem::replace(&mut *handshake, Handshake::Taken) {
            Handshake::Answered(response) => Some(*response),
            _ => None,
        }
    }

    /// The task of the application has ended.
    pub(crate) fn finished(&self, py: Python<'_>, error: Option<Bound<'_, PyAny>>) {
        self.task.borrow_mut().take();
        let has_failed = error.is_some();
        let is_open = matches!(*self.handshake.borrow(), Handshake::Open(_) | Handshake::Denying(_));
        let is_over = self.is_closed.get() || self.ended.borrow().is_some();
        let text = match &error {
            Some(_) if !is_over => Some("the application raised an exception"),
            None if is_open && !is_over => Some("the application returned without an answer to a WebSocket"),
            _ => None,
        };
        if let Some(text) = text {
            self.shared.log(py, error, text);
        }
        if is_open {
            self.answer(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"));
            return self.note_close(py);
        }
        if !is_over {
            self.close(if has_failed { INTERNAL_ERROR } else { 1000 }, "");
        }
    }

    fn answer(&self, response: Response) {
        *self.handshake.borrow_mut() = Handshake::Answered(Box::new(response));
        self.wake();
    }

    fn close(&self, code: u16, reason: &str) {
        self.is_closed.set(true);
        self.push(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
    }

    fn push(&self, message: Message) {
        self.outbox_bytes.set(self.outbox_bytes.get() + length(&message));
        self.outbox.borrow_mut().push_back(message);
        self.wake();
    }

    /// The connection has ended, or the request was given up.
    pub(crate) fn end(&self, py: Python<'_>, code: u16, reason: String) {
        self.ended.borrow_mut().get_or_insert((code, reason));
        self.outbox.borrow_mut().clear();
        // A response that was not taken owns this socket.
        let handshake = std::mem::replace(&mut *self.handshake.borrow_mut(), Handshake::Taken);
        drop(handshake);
        self.receivers.wake(py, &self.shared);
        self.senders.wake(py, &self.shared);
    }

    /// Takes the next event for the application, if there is one.
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let words = self.shared.words();
        let event = PyDict::new(py);
        if !self.has_connected.replace(true) {
            event.set_item(&words.kind, &words.websocket_connect)?;
            return Ok(Some(event.into_any()));
        }
        let mut received = self.received.borrow_mut();
        if let Some(message) = received.pop_front() {
            // The connection stops receiving at the bound.
            let resumes = received.len() + 1 == MOST_RECEIVED;
            drop(received);
            if resumes {
                self.wake();
            }
            if self.is_rsgi {
                return message_object(py, Some(message)).map(Some);
            }
            event.set_item(&words.kind, &words.websocket_receive)?;
            match message {
                Message::Text(text) => event.set_item(&words.text, PyString::new(py, &text))?,
                Message::Binary(bytes) => event.set_item(&words.bytes, PyBytes::new(py, &bytes))?,
                _ => {}
            }
            return Ok(Some(event.into_any()));
        }
        let Some((code, reason)) = &*self.ended.borrow() else { return Ok(None) };
        if self.is_rsgi {
            return message_object(py, None).map(Some);
        }
        event.set_item(&words.kind, &words.websocket_disconnect)?;
        event.set_item(&words.code, *code)?;
        event.set_item(&words.reason, reason)?;
        Ok(Some(event.into_any()))
    }

    /// Returns a future that wakes a task when [`take`](Self::take) may have an event.
    pub(crate) fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.receivers.add(py, &self.shared)
    }

    /// Implements `send`.
    pub(crate) fn send<'py>(self: &Rc<Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let (py, words) = (message.py(), self.shared.words());
        let kind = message.get_item(&words.kind)?.ok_or_else(|| PyValueError::new_err("the message has no 'type'"))?;
        if is(&kind, &words.websocket_send) {
            return self.send_message(message);
        }
        if is(&kind, &words.websocket_accept) {
            self.accept(message)?;
        } else if is(&kind, &words.websocket_close) {
            self.send_close(message)?;
        } else if is(&kind, &words.denial_start) || is(&kind, &words.denial_body) {
            self.deny(message, is(&kind, &words.denial_start))?;
        } else {
            return Err(PyValueError::new_err(format!("{} is not a message of a WebSocket", kind.repr()?)));
        }
        Ok(self.shared.sent.bind(py).clone())
    }

    fn send_message<'py>(&self, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let words = self.shared.words();
        let bytes = message.get_item(&words.bytes)?.filter(|bytes| !bytes.is_none());
        let text = message.get_item(&words.text)?.filter(|text| !text.is_none());
        let own = match (bytes, text) {
            (Some(bytes), None) => Message::binary(super::convert::bytes_of(&bytes)?),
            (None, Some(text)) => Message::text(text.cast::<PyString>()?.to_str()?),
            _ => return Err(PyValueError::new_err("'websocket.send' must have either 'bytes' or 'text'")),
        };
        self.send_own(message.py(), own)
    }

    /// Returns true if the connection is closed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed.get() || self.ended.borrow().is_some()
    }

    /// Sends a message. Returns what the application awaits.
    pub(crate) fn send_own<'py>(&self, py: Python<'py>, message: Message) -> PyResult<Bound<'py, PyAny>> {
        if !self.is_accepted.get() {
            return Err(PyRuntimeError::new_err("'websocket.send' was sent before 'websocket.accept'"));
        }
        if self.is_closed.get() {
            return Err(PyRuntimeError::new_err("'websocket.send' was sent after 'websocket.close'"));
        }
        if self.ended.borrow().is_some() {
            return Err(PyOSError::new_err("the WebSocket is closed"));
        }
        self.push(message);
        if self.outbox_bytes.get() > MOST_WAITING {
            return waits(self.senders.add(py, &self.shared)?);
        }
        Ok(self.shared.sent.bind(py).clone())
    }

    fn accept(self: &Rc<Self>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let words = self.shared.words();
        let mut fields = Vec::new();
        if let Some(headers) = message.get_item(&words.headers)? {
            fields = header_fields(&headers)?.0;
        }
        let protocol = message.get_item(&words.subprotocol)?.filter(|name| !name.is_none());
        let protocol = protocol.map(|name| name.extract::<String>()).transpose()?;
        self.accept_with(fields, protocol)
    }

    /// Accepts the connection.
    pub(crate) fn accept_with(self: &Rc<Self>, fields: Fields, protocol: Option<String>) -> PyResult<()> {
        if self.ended.borrow().is_some() {
            return Err(PyOSError::new_err("the client has left"));
        }
        let taken = std::mem::replace(&mut *self.handshake.borrow_mut(), Handshake::Taken);
        let Handshake::Open(mut upgrade) = taken else {
            *self.handshake.borrow_mut() = taken;
            return Err(PyRuntimeError::new_err("'websocket.accept' was sent after the answer to the handshake"));
        };
        if let Some(protocol) = &protocol {
            *upgrade = upgrade.clone().protocols([protocol]);
            if upgrade.selected_protocol().is_none() {
                let text = format!("the client does not propose the subprotocol {protocol:?}");
                *self.handshake.borrow_mut() = Handshake::Open(upgrade);
                return Err(PyValueError::new_err(text));
            }
        }
        let socket = self.clone();
        let mut response = upgrade.any_origin().on_upgrade(move |websocket| Serving::new(websocket, socket));
        for (name, value) in fields {
            if !is_of_handshake(&name) {
                response.add_header(name, value);
            }
        }
        self.is_accepted.set(true);
        self.answer(response);
        Ok(())
    }

    fn send_close(&self, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let words = self.shared.words();
        let code = message.get_item(&words.code)?.filter(|code| !code.is_none());
        let code = code.map_or(Ok(1000), |code| code.extract::<u16>())?;
        let reason = message.get_item(&words.reason)?.filter(|reason| !reason.is_none());
        let reason = reason.map_or(Ok(String::new()), |reason| reason.extract())?;
        self.close_with(message.py(), code, &reason)
    }

    /// Closes the connection, or refuses it with 403.
    pub(crate) fn close_with(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        if self.is_closed.get() {
            return Err(PyRuntimeError::new_err("'websocket.close' was sent before"));
        }
        if !self.is_accepted.get() {
            self.is_closed.set(true);
            if matches!(*self.handshake.borrow(), Handshake::Open(_)) {
                self.answer(Response::error(StatusCode::FORBIDDEN, ""));
            }
            self.note_close(py);
            return Ok(());
        }
        if !highwire::ws::is_close_code(code) {
            return Err(PyValueError::new_err(format!("{code} is not a code that a Close frame may have")));
        }
        if reason.len() > 123 {
            return Err(PyValueError::new_err("the reason of a Close frame has at most 123 bytes"));
        }
        self.close(code, reason);
        Ok(())
    }

    /// Lets `receive` return `websocket.disconnect` after a connection was refused.
    fn note_close(&self, py: Python<'_>) {
        self.ended.borrow_mut().get_or_insert((ABNORMAL, String::new()));
        self.receivers.wake(py, &self.shared);
    }

    /// Refuses the handshake with a response of the application (the extension `websocket.http.response`).
    fn deny(&self, message: &Bound<'_, PyDict>, is_start: bool) -> PyResult<()> {
        let words = self.shared.words();
        // Reading the message may run Python, and with it another `send`.
        if is_start {
            let status =
                message.get_item(&words.status)?.ok_or_else(|| PyValueError::new_err("the message has no 'status'"))?;
            let status = StatusCode::from_u16(status.extract()?).ok().filter(|status| status.as_u16() >= 200);
            let mut response = Response::new(status.ok_or_else(|| PyValueError::new_err("the status is not final"))?);
            if let Some(headers) = message.get_item(&words.headers)? {
                *response.own_headers() = header_fields(&headers)?.0;
            }
            let mut handshake = self.handshake.borrow_mut();
            if !matches!(*handshake, Handshake::Open(_)) {
                return Err(PyRuntimeError::new_err("the handshake was answered before"));
            }
            self.is_closed.set(true);
            *handshake = Handshake::Denying(Box::new(response));
            return Ok(());
        }
        let part = message
            .get_item(&words.body)?
            .map_or_else(|| Ok(Vec::new()), |body| as_bytes(&body).map(<[u8]>::to_vec))?;
        let more = message.get_item(&words.more_body)?.is_some_and(|more| more.is_truthy().unwrap_or(false));
        let taken = std::mem::replace(&mut *self.handshake.borrow_mut(), Handshake::Taken);
        let Handshake::Denying(mut response) = taken else {
            *self.handshake.borrow_mut() = taken;
            return Err(PyRuntimeError::new_err("'websocket.http.response.body' was sent at the wrong time"));
        };
        if let Content::Bytes(before) = response.content_mut() {
            *before = [&before[..], &part].concat().into();
        }
        if more {
            *self.handshake.borrow_mut() = Handshake::Denying(response);
            return Ok(());
        }
        self.answer(*response);
        self.note_close(message.py());
        Ok(())
    }
}

/// Returns true for fields that the handshake itself has.
fn is_of_handshake(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "sec-websocket-accept" | "sec-websocket-protocol" | "sec-websocket-extensions" | "upgrade" | "connection"
    )
}

fn length(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) => 0,
    }
}

/// The task of an open connection.
struct Serving {
    sender: WebSocketSender,
    receiver: WebSocketReceiver,
    socket: Rc<Socket>,
}

/// What [`Serving::send_next`] has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing waits.
    All,
    One,
    /// There is no room, because the peer does not read.
    Nothing,
}

impl Serving {
    fn new(websocket: WebSocket, socket: Rc<Socket>) -> Serving {
        let (sender, receiver) = websocket.split();
        Serving { sender, receiver, socket }
    }

    fn send_next(&mut self, cx: &mut Context<'_>) -> Result<Sent, Error> {
        if self.socket.outbox.borrow().is_empty() {
            return Ok(Sent::All);
        }
        match self.sender.poll_ready(cx) {
            Poll::Pending => return Ok(Sent::Nothing),
            Poll::Ready(ready) => ready?,
        }
        let message = self.socket.outbox.borrow_mut().pop_front();
        let Some(message) = message else { return Ok(Sent::All) };
        self.socket.outbox_bytes.set(self.socket.outbox_bytes.get().saturating_sub(length(&message)));
        match self.sender.try_send(message) {
            // The server has closed the connection, because it stops.
            Ok(()) | Err(Error::Unsendable(_)) => {}
            Err(error) => return Err(error),
        }
        if self.socket.outbox_bytes.get() <= MOST_WAITING / 2 && !self.socket.senders.is_empty() {
            Python::attach(|py| {
                self.socket.senders.wake(py, &self.socket.shared);
            });
        }
        Ok(Sent::One)
    }

    fn received(&mut self, message: Message) {
        if !matches!(message, Message::Text(_) | Message::Binary(_)) {
            return;
        }
        self.socket.received.borrow_mut().push_back(message);
        if !self.socket.receivers.is_empty() {
            Python::attach(|py| self.socket.receivers.wake(py, &self.socket.shared));
        }
    }

    fn end(&self, code: u16, reason: String) -> Poll<()> {
        Python::attach(|py| self.socket.end(py, code, reason));
        Poll::Ready(())
    }

    fn end_with(&self, error: &Error) -> Poll<()> {
        let code = if let Error::Refused(failure) = error { failure.code } else { ABNORMAL };
        self.end(code, error.to_string())
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let serving = &mut *self;
        let is_known = serving.socket.waker.borrow().as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if !is_known {
            *serving.socket.waker.borrow_mut() = Some(cx.waker().clone());
        }
        for _ in 0..MESSAGES_A_TURN {
            let sent = match serving.send_next(cx) {
                Ok(sent) => sent,
                Err(error) => return serving.end_with(&error),
            };
            let is_full = serving.socket.received.borrow().len() >= MOST_RECEIVED;
            if sent == Sent::Nothing || (is_full && sent == Sent::All) {
                // Nothing is received from a peer that does not read, or for an application that does not.
                return match serving.receiver.poll_without_messages(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(error) => serving.end_with(&error),
                };
            }
            if is_full {
                continue;
            }
            match serving.receiver.poll_recv(cx) {
                Poll::Pending if sent == Sent::All => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(None) => return serving.end(ABNORMAL, String::new()),
                Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                    let code = frame.as_ref().map_or(NO_STATUS, |frame| frame.code);
                    return serving.end(code, frame.map(|frame| frame.reason.to_string()).unwrap_or_default());
                }
                Poll::Ready(Some(Ok(message))) => serving.received(message),
                Poll::Ready(Some(Err(error))) => return serving.end_with(&error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        Python::attach(|py| self.socket.end(py, ABNORMAL, String::new()));
    }
}
