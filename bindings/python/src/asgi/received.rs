//! What applications receive: parts of bodies, messages of WebSockets, and that the client has left.

use super::words::Words;
use futures_core::Stream;
use highwire::ws::Message;
use highwire_engine::Body;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pyo3::create_exception!(highwire_server, ProtocolError, PyRuntimeError, "The application uses the protocol wrongly.");
pyo3::create_exception!(highwire_server, ProtocolClosed, PyRuntimeError, "The client has left.");

/// The kinds of messages of a WebSocket.
const KIND_CLOSE: u8 = 0;
const KIND_BYTES: u8 = 1;
const KIND_STRING: u8 = 2;

/// The most bytes of a body that is read whole.
const MOST_WHOLE: usize = 1 << 30;

/// Appends what comes of a body. Returns an error, if there is one, when it has ended.
pub(super) fn gather(body: &mut Body, parts: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<Option<&'static str>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_next(cx)) {
            None => return Poll::Ready(None),
            Some(Err(_)) => return Poll::Ready(Some("the client has left")),
            Some(Ok(part)) => parts.extend_from_slice(&part),
        }
        if parts.len() > MOST_WHOLE {
            return Poll::Ready(Some("the body is longer than 1 GiB; read it in parts"));
        }
    }
}

/// Returns a part of a body: an event of ASGI, or bytes of RSGI.
pub(super) fn part<'py>(
    py: Python<'py>,
    words: &Words,
    is_rsgi: bool,
    body: &[u8],
    more: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if is_rsgi {
        if body.is_empty() && !more {
            return Err(end_of_body());
        }
        return Ok(PyBytes::new(py, body).into_any());
    }
    let event = PyDict::new(py);
    event.set_item(&words.kind, &words.request)?;
    event.set_item(&words.body, PyBytes::new(py, body))?;
    event.set_item(&words.more_body, more)?;
    Ok(event.into_any())
}

/// Returns that the client has left, or has its response: an event of ASGI, or an exception of RSGI.
pub(super) fn disconnect<'py>(py: Python<'py>, words: &Words, is_rsgi: bool) -> PyResult<Bound<'py, PyAny>> {
    if is_rsgi {
        return Err(ProtocolClosed::new_err("the client has left"));
    }
    let event = PyDict::new(py);
    event.set_item(&words.kind, &words.disconnect)?;
    Ok(event.into_any())
}

/// A received message, or the end of the WebSocket.
#[pyclass(frozen, name = "WebsocketMessage", freelist = 256)]
pub(crate) struct WebSocketMessage {
    /// 0 for the end, 1 for bytes, 2 for text.
    #[pyo3(get)]
    kind: u8,
    #[pyo3(get)]
    data: Py<PyAny>,
}

/// Returns a message as an object; `None` is the end.
pub(super) fn message_object(py: Python<'_>, message: Option<Message>) -> PyResult<Bound<'_, PyAny>> {
    let (kind, data) = match message {
        Some(Message::Text(text)) => (KIND_STRING, PyString::new(py, &text).into_any().unbind()),
        Some(Message::Binary(bytes)) => (KIND_BYTES, PyBytes::new(py, &bytes).into_any().unbind()),
        _ => (KIND_CLOSE, py.None()),
    };
    Ok(Bound::new(py, WebSocketMessage { kind, data })?.into_any())
}

/// The end of a body.
pub(crate) fn end_of_body() -> PyErr {
    PyStopAsyncIteration::new_err(())
}
