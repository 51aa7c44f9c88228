//! What `receive` and `send` of an application return.

use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// What `receive` and `send` return are coroutines, as applications expect that make tasks of them. The methods of one are those of
/// `collections.abc.Coroutine`.
pub(super) fn throw(exception: Bound<'_, PyAny>) -> PyErr {
    // Before Python 3.12, the type may come without the exception.
    if let Ok(class) = exception.cast::<PyType>() {
        return class.call0().map_or_else(|error| error, PyErr::from_value);
    }
    PyErr::from_value(exception)
}

/// Waits for a future.
#[pyclass(freelist = 256)]
pub(crate) struct Waits {
    future: Py<PyAny>,
    /// The iterator of the future, if a task has this as its coroutine.
    iterator: Option<Py<PyAny>>,
}

pub(crate) fn waits(future: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = future.py();
    Ok(Bound::new(py, Waits { future: future.unbind(), iterator: None })?.into_any())
}

/// Returns an awaitable whose result is known.
pub(crate) fn now(result: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = result.py();
    Ok(Bound::new(py, Now(Some(result.unbind())))?.into_any())
}

impl Waits {
    fn iterator<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(iterator) = &self.iterator {
            return Ok(iterator.bind(py).clone());
        }
        let iterator = self.future.bind(py).call_method0(intern!(py, "__await__"))?;
        self.iterator = Some(iterator.clone().unbind());
        Ok(iterator)
    }
}

#[pymethods]
impl Waits {
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.future.bind(py).call_method0(intern!(py, "__await__"))
    }

    /// Generators that await use `yield from`.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__await__(py)
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterator(py)?.call_method0(intern!(py, "__next__"))
    }

    fn send<'py>(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        self.iterator(py)?.call_method1(intern!(py, "send"), (value,))
    }

    #[pyo3(signature = (exception, value=None, traceback=None))]
    fn throw<'py>(
        &mut self,
        exception: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = traceback;
        let py = exception.py();
        let error = throw(value.unwrap_or(exception)).into_value(py);
        self.iterator(py)?.call_method1(intern!(py, "throw"), (error,))
    }

    fn close(&mut self) {
        self.iterator = None;
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

    fn send(&mut self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.0.take(),)))
    }

    #[pyo3(signature = (exception, value=None, traceback=None))]
    fn throw(
        &mut self,
        exception: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = traceback;
        Err(throw(value.unwrap_or(exception)))
    }

    fn close(&mut self) {
        self.0 = None;
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

    fn send(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (exception, value=None, traceback=None))]
    fn throw(
        &self,
        exception: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = traceback;
        Err(throw(value.unwrap_or(exception)))
    }

    fn close(&self) {}
}
