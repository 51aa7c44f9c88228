//! The callables `receive` and `send` of an application, and what they return.

use super::awaitable::{now, waits};
use super::exchange::Exchange;
use super::websocket::Socket;
use crate::thread_bound::ThreadBound;
use pyo3::exceptions::PyTypeError;
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
            Ok(event) => now(event),
            Err(future) => waits(future),
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

/// Called when the task of an application has ended.
#[pyclass(frozen)]
pub(crate) struct Finished(pub(super) ThreadBound<Target>);

#[pymethods]
impl Finished {
    fn __call__(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        finish(self.0.get()?, task)
    }
}

/// Handles the end of an application's task.
pub(super) fn finish(target: &Target, task: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = task.py();
    if task.call_method0("cancelled")?.is_truthy()? {
        target.finished(py, None);
        return Ok(());
    }
    let error = task.call_method0("exception")?;
    target.finished(py, (!error.is_none()).then_some(error));
    Ok(())
}
