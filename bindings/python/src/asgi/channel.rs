//! The callables `receive` and `send` of an application, and what they return.

use super::awaitable::throw;
use super::exchange::Exchange;
use super::websocket::Socket;
use crate::thread_bound::ThreadBound;
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};
use std::rc::Rc;

/// What an application handles.
#[derive(Clone)]
pub(crate) enum Target {
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

    /// Takes the next event, if there is one.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Target::Http(exchange) => exchange.take(py),
            Target::WebSocket(socket) => socket.take(py),
        }
    }

    /// Returns a future that wakes a task when there may be an event.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Target::Http(exchange) => exchange.wait(py),
            Target::WebSocket(socket) => socket.wait(py),
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
        received(py, self.0.get()?.clone())
    }
}

/// The coroutine of `receive`. It takes what has come when a task runs it, and not before, so that nothing is lost with a task
/// that is cancelled.
#[pyclass(freelist = 256)]
pub(crate) struct Received {
    target: ThreadBound<Target>,
    /// The iterator of the future that the task waits for.
    iterator: Option<Py<PyIterator>>,
}

/// Returns the coroutine that receives the next event.
pub(crate) fn received(py: Python<'_>, target: Target) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, Received { target: ThreadBound::new(target), iterator: None })?.into_any())
}

impl Received {
    fn step<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loop {
            if let Some(iterator) = self.iterator.take()
                && let Some(yielded) = iterator.bind(py).clone().next()
            {
                self.iterator = Some(iterator);
                return yielded;
            }
            let target = self.target.get()?;
            if let Some(event) = target.take(py)? {
                return Err(PyStopIteration::new_err((event.unbind(),)));
            }
            let future = target.wait(py)?;
            let iterator = future.call_method0(intern!(py, "__await__"))?.cast_into::<PyIterator>()?;
            self.iterator = Some(iterator.unbind());
        }
    }
}

#[pymethods]
impl Received {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Generators that await use `yield from`.
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py)
    }

    fn send<'py>(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(value.py())
    }

    #[pyo3(signature = (exception, value=None, traceback=None))]
    fn throw(
        &mut self,
        exception: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = traceback;
        // The future that it waits for is forgotten when others are woken.
        self.iterator = None;
        Err(throw(value.unwrap_or(exception)))
    }

    fn close(&mut self) {
        self.iterator = None;
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
