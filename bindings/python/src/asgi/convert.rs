//! Values of messages: header fields, bytes and words.

use bytes::Bytes;
use highwire_engine::http::header::CONTENT_LENGTH;
use highwire_engine::http::{HeaderName, HeaderValue, StatusCode};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

/// The number of bytes from which a body is not copied.
const LEAST_SHARED: usize = 16 * 1024;

/// Header or trailer fields.
pub(crate) type Fields = Vec<(HeaderName, HeaderValue)>;

/// Returns true if a string is a word. Usually it is the same object.
pub(super) fn is(text: &Bound<'_, PyAny>, word: &Py<PyString>) -> bool {
    text.as_ptr() == word.as_ptr() || text.eq(word).unwrap_or(false)
}

/// Returns a status that ends a request.
pub(crate) fn final_status(number: u16) -> PyResult<StatusCode> {
    let status = StatusCode::from_u16(number).ok().filter(|_| (200..600).contains(&number));
    status.ok_or_else(|| PyValueError::new_err(format!("{number} is not the status of a final response")))
}

/// Adds a field. The value of `Content-Length` becomes `length`.
fn push_field((fields, length): &mut (Fields, Option<u64>), name: &[u8], value: &[u8]) -> PyResult<()> {
    let wrong = |what: &str, bytes: &[u8]| {
        PyValueError::new_err(format!("{:?} is not the {what} of a header field", String::from_utf8_lossy(bytes)))
    };
    let parsed = HeaderName::from_bytes(name).map_err(|_| wrong("name", name))?;
    if parsed == CONTENT_LENGTH {
        *length = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
        return Ok(());
    }
    fields.push((parsed, HeaderValue::from_bytes(value).map_err(|_| wrong("value", value))?));
    Ok(())
}

/// Reads the header fields of a message. Returns the value of `Content-Length` apart.
pub(super) fn header_fields(headers: &Bound<'_, PyAny>) -> PyResult<(Fields, Option<u64>)> {
    let mut found = (Vec::new(), None);
    for header in headers.try_iter()? {
        let header = header?;
        let (name, value) = (header.get_item(0)?, header.get_item(1)?);
        push_field(&mut found, as_bytes(&name)?, as_bytes(&value)?)?;
    }
    Ok(found)
}

/// Reads header fields whose names and values are text of Latin-1, as those of WSGI and RSGI.
pub(crate) fn text_fields(headers: &Bound<'_, PyAny>) -> PyResult<(Fields, Option<u64>)> {
    let mut found = (Vec::new(), None);
    for header in headers.try_iter()? {
        let header = header?;
        let (name, value) = (header.get_item(0)?, header.get_item(1)?);
        let (name, value) = (as_text(&name)?, as_text(&value)?);
        if value.is_ascii() {
            push_field(&mut found, name.as_bytes(), value.as_bytes())?;
            continue;
        }
        let latin1: Option<Vec<u8>> = value.chars().map(|char| u8::try_from(char).ok()).collect();
        let latin1 =
            latin1.ok_or_else(|| PyValueError::new_err(format!("{value:?} has characters that are not of Latin-1")))?;
        push_field(&mut found, name.as_bytes(), &latin1)?;
    }
    Ok(found)
}

fn as_text<'t>(object: &'t Bound<'_, PyAny>) -> PyResult<&'t str> {
    let text = object.cast::<PyString>();
    text.map_err(|_| PyTypeError::new_err("names and values of header fields must be str"))?.to_str()
}

pub(super) fn as_bytes<'b>(object: &'b Bound<'_, PyAny>) -> PyResult<&'b [u8]> {
    object
        .cast::<PyBytes>()
        .map(|bytes| bytes.as_bytes())
        .map_err(|_| PyTypeError::new_err("names and values of header fields must be bytes"))
}

/// The owner of bytes of the interpreter that the engine sends without a copy.
struct Owned(#[expect(dead_code, reason = "it is held only to keep the bytes")] Py<PyBytes>, *const u8, usize);

// SAFETY: bytes objects are immutable, and dropping a `Py` needs no lock of the interpreter.
unsafe impl Send for Owned {}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pointer and the length are those of the bytes object, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.1, self.2) }
    }
}

pub(crate) fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        let slice = bytes.as_bytes();
        if slice.len() < LEAST_SHARED {
            return Ok(Bytes::copy_from_slice(slice));
        }
        return Ok(Bytes::from_owner(Owned(bytes.clone().unbind(), slice.as_ptr(), slice.len())));
    }
    if let Ok(buffer) = pyo3::buffer::PyBuffer::<u8>::get(object) {
        return buffer.to_vec(object.py()).map(Bytes::from);
    }
    Err(PyTypeError::new_err(format!("a body must be bytes, not {}", object.get_type().name()?)))
}

/// Returns an option that need not be given.
pub(crate) fn option<'py, T: FromPyObjectOwned<'py>>(options: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>> {
    let value = options.get_item(name)?.filter(|value| !value.is_none());
    value.map(|value| value.extract().map_err(Into::into)).transpose()
}
