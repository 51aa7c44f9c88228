//! The callables `receive` and `send` of an application, and what they return.

use super::exchange::Exchange;
use super::websocket::Socket;
use crate::thread_bound::ThreadBound;
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::rc::Rc;

/// What an application handles.
#[derive(Clone)]
pub(super) enum Target {
    Http(Rc<Exchange>),
    WebSocket(Rc<Socket>),
}

impl Target {
    pub(super) fn keep_task(&self, task: Py<PyAny>) {
        match self {
            Target::Http(exchange) => exchange.keep_task(task),
            Target::WebSocket(socket) => socket.keep_task(task),
        }
    }

    /// Handles the end of the application's task.
    pub(super) fn finished(&self, py: Python<'_>, error: Option<Bound<'_, PyAny>>) {
        match self {
            Target::Http(exchange) => exchange.finished(py, error),
            Target::WebSocket(socket) => socket.finished(py, error),
        }
    }
}

/// The `receive` of a request.
#[pyclass(frozen, freelist = 256)]
pub(crate) struct Receive(pub(super) ThreadBound<Target>);

#[pymethods]
impl Receive {
    fn __call__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let received = match self.0.get()? {
            Target::Http(exchange) => exchange.receive(py)?,
            Target::WebSocket(socket) => socket.receive(py)?,
        };
        match received {
            Ok(event) => Ok(Bound::new(py, Now(Some(event.into_any().unbind())))?.into_any()),
            Err(future) => Ok(future),
        }
    }
}

/// The `send` of a request.
#[pyclass(frozen, freelist = 256)]
pub(crate) struct Send(pub(super) ThreadBound<Target>);

#[pymethods]
impl Send {
    fn __call__<'py>(&self, message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let message = message.cast::<PyDict>().map_err(|_| PyTypeError::new_err("a message must be a dictionary"))?;
        match self.0.get()? {
            Target::Http(exchange) => exchange.send(message),
            Target::WebSocket(socket) => socket.send(message),
        }
    }
}

/// An awaitable with a result that is known.
#[pyclass(freelist = 256)]
pub(crate) struct Now(Option<Py<PyAny>>);

#[pymethods]
impl Now {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Generators that await use `yield from`.
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&mut self) -> PyResult<Option<()>> {
        match self.0.take() {
            Some(result) => Err(PyStopIteration::new_err((result,))),
            None => Ok(None),
        }
    }
}

/// The awaitable of all messages that need not wait. Its result is `None`.
#[pyclass(frozen)]
pub(crate) struct Sent;

#[pymethods]
impl Sent {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Generators that await use `yield from`.
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self) -> Option<()> {
        None
    }
}

/// Called when the task of an application has ended.
#[pyclass(frozen)]
pub(crate) struct Finished(pub(super) ThreadBound<Target>);

#[pymethods]
impl Finished {
    fn __call__(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        super::service::finish(self.0.get()?, task)
    }
}
