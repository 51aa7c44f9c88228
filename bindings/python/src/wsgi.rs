//! WSGI applications (PEP 3333) that are called in the worker's own thread.

use crate::asgi::convert::{Fields, bytes_of, final_status, text_fields};
use crate::asgi::scope::is_secure;
use crate::asgi::shared::Shared;
use crate::thread_bound::ThreadBound;
use crate::vectorcall;
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::BodyStream;
use highwire_engine::http::StatusCode;
use highwire_engine::proto::Version;
use highwire_engine::request::Ready;
use highwire_engine::response::{Content, Streamed};
use highwire_engine::{Begin, Peer, Response};
use percent_encoding::percent_decode;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString, PyTuple};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The most names of fields and the most addresses that are kept as Python objects, and the longest length of a name.
const MOST_KEPT: usize = 1024;
const MOST_CLIENTS: usize = 128;
const LONGEST_KEPT: usize = 64;

crate::asgi::words::words! {
    request_method = "REQUEST_METHOD",
    path_info = "PATH_INFO",
    query_string = "QUERY_STRING",
    server_protocol = "SERVER_PROTOCOL",
    url_scheme = "wsgi.url_scheme",
    input = "wsgi.input",
    remote_addr = "REMOTE_ADDR",
    remote_port = "REMOTE_PORT",
    get = "GET",
    post = "POST",
    empty = "",
    http_10 = "HTTP/1.0",
    http_11 = "HTTP/1.1",
    http_2 = "HTTP/2",
    http = "http",
    https = "https",
}

/// The address and the port of a client.
type Client = (Py<PyString>, Py<PyString>);

/// What the requests of a WSGI application share.
pub(crate) struct Wsgi {
    /// The values that all environments have.
    base: Py<PyDict>,
    bytes_io: Py<PyAny>,
    words: Words,
    /// The address and the port of each client.
    clients: RefCell<HashMap<Peer, Client>>,
    /// The keys of header fields.
    keys: RefCell<HashMap<Box<[u8]>, Py<PyString>>>,
}

impl Wsgi {
    /// `base` has the values that all environments have.
    pub(crate) fn new(py: Python<'_>, base: &Bound<'_, PyDict>) -> PyResult<Wsgi> {
        let bytes_io = py.import("io")?.getattr("BytesIO")?.unbind();
        let (clients, keys) = (RefCell::default(), RefCell::default());
        Ok(Wsgi { base: base.clone().unbind(), bytes_io, words: Words::new(py), clients, keys })
    }

    /// Calls the application, and returns its response.
    pub(crate) fn call(
        &self,
        application: &Bound<'_, PyAny>,
        request: &mut Begin<'_>,
        shared: &Rc<Shared>,
    ) -> PyResult<Response> {
        let py = application.py();
        let environ = self.environ(py, request, shared)?;
        let state = Rc::new(Start::default());
        let start = Bound::new(py, StartResponse(ThreadBound::new(state.clone())))?;
        let result = vectorcall::call(application, &[environ.as_any(), start.as_any()], None)?;
        if let Some(whole) = whole(&result)? {
            let written = state.written.take();
            let body = if written.is_empty() { whole } else { Bytes::from([&written[..], &whole].concat()) };
            close(&result)?;
            let is_empty = body.is_empty();
            let mut response = Response::with_content(Content::Bytes(body));
            let length = state.fill(&mut response)?;
            if is_empty && length.is_some() && request.head.method_span.of(request.window) == b"HEAD" {
                // It announces what a response with a body would have (RFC 9110 section 8.6).
                let nothing = BodyStream::new(NoParts);
                *response.content_mut() = Content::Stream(Box::new(Streamed { length, body: nothing, trailers: None }));
            }
            return Ok(response);
        }
        let mut parts = Parts {
            iterator: result.try_iter()?.unbind(),
            result: result.unbind(),
            start: state.clone(),
            shared: shared.clone(),
            first: None,
            has_ended: false,
        };
        // The application may call `start_response` when its first part is made.
        parts.first = parts.next(py)?;
        let mut response = Response::new(StatusCode::OK);
        let length = state.fill(&mut response)?;
        let streamed = Streamed { length, body: BodyStream::new(parts), trailers: None };
        *response.content_mut() = Content::Stream(Box::new(streamed));
        Ok(response)
    }

    fn environ<'py>(&self, py: Python<'py>, request: &mut Begin<'_>, shared: &Shared) -> PyResult<Bound<'py, PyDict>> {
        let (head, window) = (request.head, request.window);
        let environ = self.base.bind(py).copy()?;
        let words = &self.words;
        let method = head.method_span.of(window);
        match method {
            b"GET" => environ.set_item(&words.request_method, &words.get)?,
            b"POST" => environ.set_item(&words.request_method, &words.post)?,
            other => environ.set_item(&words.request_method, latin1(py, other))?,
        }
        let path = head.target.path.of(window);
        let path = if path.contains(&b'%') { Cow::Owned(percent_decode(path).collect()) } else { Cow::Borrowed(path) };
        environ.set_item(&words.path_info, latin1(py, &path))?;
        match head.target.query {
            None => environ.set_item(&words.query_string, &words.empty)?,
            Some(query) => environ.set_item(&words.query_string, latin1(py, query.of(window)))?,
        }
        let version = match head.version {
            Version::Http10 => &words.http_10,
            Version::Http11 => &words.http_11,
            Version::Http2 => &words.http_2,
        };
        environ.set_item(&words.server_protocol, version)?;
        let forwarded = shared.scopes.forwarded(request);
        environ.set_item(&words.url_scheme, if is_secure(request, &forwarded) { &words.https } else { &words.http })?;
        match forwarded.and_then(|forwarded| forwarded.address) {
            Some(address) => environ.set_item(&words.remote_addr, address.to_string())?,
            None => self.set_client(&environ, request.caller.peer())?,
        }
        let body = match std::mem::take(request.body) {
            Ready::Whole(body) => vectorcall::call(self.bytes_io.bind(py), &[PyBytes::new(py, &body).as_any()], None)?,
            _ => self.bytes_io.bind(py).call0()?,
        };
        environ.set_item(&words.input, body)?;
        for field in &head.fields {
            let name = field.name.of(window);
            // A field name with an underscore could pretend to be another one.
            if name.contains(&b'_') {
                continue;
            }
            let (key, value) = (self.key(py, name), latin1(py, field.value.of(window)));
            match environ.get_item(&key)? {
                None => environ.set_item(key, value)?,
                Some(before) => {
                    let joiner = if name.eq_ignore_ascii_case(b"cookie") { "; " } else { "," };
                    environ.set_item(key, format!("{}{joiner}{}", before.str()?.to_str()?, value.to_str()?))?;
                }
            }
        }
        if head.version == Version::Http2 && !environ.contains("HTTP_HOST")? {
            environ.set_item("HTTP_HOST", latin1(py, head.target.authority.of(window)))?;
        }
        Ok(environ)
    }

    /// Sets the address and the port of the client, if it has one.
    fn set_client(&self, environ: &Bound<'_, PyDict>, peer: Peer) -> PyResult<()> {
        let (py, words) = (environ.py(), &self.words);
        let Peer::Internet(ip, port) = peer else { return Ok(()) };
        let mut clients = self.clients.borrow_mut();
        if clients.len() >= MOST_CLIENTS && !clients.contains_key(&peer) {
            clients.clear();
        }
        let (address, port) = clients.entry(peer).or_insert_with(|| {
            let text = |text: String| PyString::new(py, &text).unbind();
            (text(ip.to_string()), text(port.to_string()))
        });
        environ.set_item(&words.remote_addr, &*address)?;
        environ.set_item(&words.remote_port, &*port)
    }

    /// Returns the key of a header field.
    fn key<'py>(&self, py: Python<'py>, name: &[u8]) -> Bound<'py, PyString> {
        if let Some(kept) = self.keys.borrow().get(name) {
            return kept.bind(py).clone();
        }
        let upper = String::from_utf8_lossy(name).to_ascii_uppercase().replace('-', "_");
        let key = match &*upper {
            "CONTENT_TYPE" | "CONTENT_LENGTH" => PyString::new(py, &upper),
            _ => PyString::new(py, &format!("HTTP_{upper}")),
        };
        let mut keys = self.keys.borrow_mut();
        if name.len() <= LONGEST_KEPT && keys.len() < MOST_KEPT {
            keys.insert(name.into(), key.clone().unbind());
        }
        key
    }
}

/// Returns bytes as the text of Latin-1 that PEP 3333 wants.
fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => PyString::new(py, text),
        _ => PyString::new(py, &bytes.iter().map(|&byte| char::from(byte)).collect::<String>()),
    }
}

/// Returns the whole body, if the application has returned a list or a tuple of its parts.
fn whole(result: &Bound<'_, PyAny>) -> PyResult<Option<Bytes>> {
    let parts: Vec<_> = if let Ok(list) = result.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = result.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        return Ok(None);
    };
    match &parts[..] {
        [] => Ok(Some(Bytes::new())),
        [part] => bytes_of(part).map(Some),
        parts => {
            let parts = parts.iter().map(bytes_of).collect::<PyResult<Vec<_>>>()?;
            Ok(Some(parts.concat().into()))
        }
    }
}

/// Calls `close` of the application's result, if there is one.
fn close(result: &Bound<'_, PyAny>) -> PyResult<()> {
    if result.is_exact_instance_of::<PyList>() || result.is_exact_instance_of::<PyTuple>() {
        return Ok(());
    }
    if let Some(close) = result.getattr_opt("close")? {
        close.call0()?;
    }
    Ok(())
}

/// A body without parts.
struct NoParts;

impl Stream for NoParts {
    type Item = Result<Bytes, &'static str>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(None)
    }
}

/// What the application has passed to `start_response` and `write`.
#[derive(Default)]
struct Start {
    head: RefCell<Option<(StatusCode, Fields, Option<u64>)>>,
    /// What the application has passed to `write`.
    written: RefCell<Vec<u8>>,
    is_sent: Cell<bool>,
}

impl Start {
    /// Sets status and header fields of the response. Returns the announced length of the body.
    fn fill(&self, response: &mut Response) -> PyResult<Option<u64>> {
        let head = self.head.borrow_mut().take();
        let missing = || PyRuntimeError::new_err("the application has not called start_response");
        let (status, fields, length) = head.ok_or_else(missing)?;
        self.is_sent.set(true);
        response.set_status(status);
        *response.own_headers() = fields;
        Ok(length)
    }
}

/// The `start_response` of a request.
#[pyclass(frozen, freelist = 64)]
pub(crate) struct StartResponse(ThreadBound<Rc<Start>>);

#[pymethods]
impl StartResponse {
    #[pyo3(signature = (status, headers, exc_info=None))]
    fn __call__(
        &self,
        status: &str,
        headers: &Bound<'_, PyList>,
        exc_info: Option<&Bound<'_, PyTuple>>,
    ) -> PyResult<Write> {
        let state = self.0.get()?;
        if let Some(exc_info) = exc_info {
            if state.is_sent.get() {
                return Err(PyErr::from_value(exc_info.get_item(1)?));
            }
        } else if state.is_sent.get() || state.head.borrow().is_some() {
            return Err(PyRuntimeError::new_err("start_response was called before"));
        }
        let number = status.get(..3).and_then(|digits| digits.parse::<u16>().ok());
        let number = number.and_then(|number| final_status(number).ok());
        let number =
            number.ok_or_else(|| PyValueError::new_err(format!("{status:?} is not the status of a response")))?;
        let (fields, length) = text_fields(headers)?;
        *state.head.borrow_mut() = Some((number, fields, length));
        Ok(Write(ThreadBound::new(state.clone())))
    }
}

/// The `write` that `start_response` returns.
#[pyclass(frozen, freelist = 64)]
pub(crate) struct Write(ThreadBound<Rc<Start>>);

#[pymethods]
impl Write {
    fn __call__(&self, part: &Bound<'_, PyBytes>) -> PyResult<()> {
        self.0.get()?.written.borrow_mut().extend_from_slice(part.as_bytes());
        Ok(())
    }
}

/// The parts of a body that the application makes while it is sent.
struct Parts {
    iterator: Py<PyIterator>,
    result: Py<PyAny>,
    start: Rc<Start>,
    shared: Rc<Shared>,
    first: Option<Bytes>,
    has_ended: bool,
}

impl Parts {
    /// Returns the next part that is not empty, with what was written before it.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Bytes>> {
        while !self.has_ended {
            let part = match self.iterator.bind(py).clone().next() {
                Some(part) => bytes_of(&part?)?,
                None => {
                    self.has_ended = true;
                    Bytes::new()
                }
            };
            let written = self.start.written.take();
            let part = if written.is_empty() { part } else { Bytes::from([&written[..], &part].concat()) };
            if !part.is_empty() {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

impl Stream for Parts {
    type Item = Result<Bytes, &'static str>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        Python::attach(|py| match self.next(py) {
            Ok(part) => Poll::Ready(part.map(Ok)),
            Err(error) => {
                self.has_ended = true;
                let error = error.into_value(py).into_bound(py).into_any();
                self.shared.log(py, Some(error), "a WSGI application raised an exception");
                Poll::Ready(Some(Err("the application has not completed its response")))
            }
        })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        Python::attach(|py| {
            if let Err(error) = close(self.result.bind(py)) {
                error.write_unraisable(py, None);
            }
        });
    }
}
