//! Calls of Python objects without a tuple or a dictionary of arguments.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Py, ffi};

/// The most arguments of a call.
const MOST: usize = 8;

/// Calls `callable` with arguments, of which the last ones are those named by `names`.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: &[&Bound<'py, PyAny>],
    names: Option<&Py<PyTuple>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let named = names.map_or(0, |names| names.bind(py).len());
    assert!(arguments.len() < MOST && named <= arguments.len());
    // The first place is for the callee, which may put a `self` there.
    let mut places = [std::ptr::null_mut(); MOST];
    for (place, argument) in places[1..].iter_mut().zip(arguments) {
        *place = argument.as_ptr();
    }
    let count = (arguments.len() - named) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
    let names = names.map_or(std::ptr::null_mut(), Py::as_ptr);
    // SAFETY: `places[1..]` has as many borrowed references as `count` and `names` say, which live until the call has returned.
    // The flag lets the callee use the place before them. The result is a new reference, or NULL with an exception.
    unsafe {
        let result = ffi::PyObject_Vectorcall(callable.as_ptr(), places[1..].as_ptr(), count, names);
        Bound::from_owned_ptr_or_err(py, result)
    }
}
