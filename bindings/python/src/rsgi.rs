//! The RSGI interface of granian, version 1.5: a scope with attributes, and a protocol object whose methods respond.

use crate::asgi::answer::Begun;
use crate::asgi::awaitable::{now, waits};
use crate::asgi::channel::{Target, received};
use crate::asgi::convert::{bytes_of, final_status, text_fields};
use crate::asgi::exchange::Exchange;
use crate::asgi::file_part::FilePart;
use crate::asgi::received::{ProtocolClosed, ProtocolError};
use crate::asgi::scope::{Scopes, is_secure};
use crate::asgi::websocket::Socket;
use crate::thread_bound::ThreadBound;
use bytes::Bytes;
use highwire::ws::Message;
use highwire_engine::proto::{Field, Span, Version};
use highwire_engine::{Begin, Peer};
use percent_encoding::percent_decode;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// The version of the interface.
const RSGI_VERSION: &str = "1.5";

/// A copy of a request's head.
struct Head {
    bytes: Box<[u8]>,
    fields: Vec<Field>,
    method: Span,
    path: Span,
    query: Option<Span>,
    authority: Span,
}

impl Head {
    fn new(request: &Begin<'_>) -> Head {
        let (head, window) = (request.head, request.window);
        let spans = head.fields.iter().flat_map(|field| [field.name, field.value]);
        let target = [head.target.whole, head.target.path, head.target.authority, head.method_span];
        let end = spans.chain(target).chain(head.target.query).map(|span| span.end as usize).max().unwrap_or(0);
        Head {
            bytes: window[..end].into(),
            fields: head.fields.clone(),
            method: head.method_span,
            path: head.target.path,
            query: head.target.query,
            authority: head.target.authority,
        }
    }

    fn of(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Returns the values of the fields with a name.
    fn values(&self, name: &str) -> impl Iterator<Item = String> {
        let fields = self.fields.iter().filter(move |field| self.of(field.name).eq_ignore_ascii_case(name.as_bytes()));
        fields.map(|field| text(self.of(field.value)))
    }
}

/// Returns bytes as text. Those that are not UTF-8 are Latin-1.
fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|&byte| char::from(byte)).collect(), str::to_owned)
}

/// The scope of a request. Its attributes are made when they are read.
#[pyclass(frozen, name = "RSGIScope", freelist = 256)]
pub(crate) struct Scope {
    head: Arc<Head>,
    is_websocket: bool,
    is_secure: bool,
    version: Version,
    client: Option<SocketAddr>,
    server: Py<PyAny>,
}

impl Scope {
    pub(crate) fn new(py: Python<'_>, request: &Begin<'_>, scopes: &Scopes, is_websocket: bool) -> Scope {
        let forwarded = scopes.forwarded(request);
        let client = match (forwarded.as_ref().and_then(|forwarded| forwarded.address), request.caller.peer()) {
            (Some(address), _) => Some(SocketAddr::new(address, 0)),
            (None, Peer::Internet(address, port)) => Some(SocketAddr::new(address, port)),
            (None, Peer::Local) => None,
        };
        Scope {
            head: Arc::new(Head::new(request)),
            is_websocket,
            is_secure: is_secure(request, &forwarded),
            version: request.head.version,
            client,
            server: scopes.server(py),
        }
    }
}

#[pymethods]
impl Scope {
    #[getter]
    fn proto(&self) -> &'static str {
        if self.is_websocket { "ws" } else { "http" }
    }

    #[getter]
    fn rsgi_version(&self) -> &'static str {
        RSGI_VERSION
    }

    #[getter]
    fn http_version(&self) -> &'static str {
        match self.version {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2",
        }
    }

    #[getter]
    fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }

    /// The address and the port, or the path of a unix socket.
    #[getter]
    fn server(&self, py: Python<'_>) -> PyResult<String> {
        let server = self.server.bind(py);
        if server.is_none() {
            return Ok(String::new());
        }
        let (host, port): (String, Option<u16>) = server.extract()?;
        Ok(match port {
            Some(port) if host.contains(':') => format!("[{host}]:{port}"),
            Some(port) => format!("{host}:{port}"),
            None => host,
        })
    }

    #[getter]
    fn client(&self) -> String {
        self.client.map_or_else(String::new, |client| client.to_string())
    }

    #[getter]
    fn method(&self) -> String {
        text(self.head.of(self.head.method))
    }

    /// The decoded path. Bytes that are not UTF-8 become U+FFFD.
    #[getter]
    fn path(&self) -> String {
        percent_decode(self.head.of(self.head.path)).decode_utf8_lossy().into_owned()
    }

    #[getter]
    fn query_string(&self) -> String {
        self.head.query.map_or_else(String::new, |query| text(self.head.of(query)))
    }

    #[getter]
    fn authority(&self) -> Option<String> {
        let authority = self.head.of(self.head.authority);
        (!authority.is_empty()).then(|| text(authority))
    }

    #[getter]
    fn headers(&self) -> Headers {
        Headers(self.head.clone())
    }
}

/// The header fields of a request. Names are in lower case.
#[pyclass(frozen, name = "RSGIHeaders")]
pub(crate) struct Headers(Arc<Head>);

#[pymethods]
impl Headers {
    fn __contains__(&self, key: &str) -> bool {
        self.0.values(key).next().is_some()
    }

    fn __len__(&self) -> usize {
        self.0.fields.len()
    }

    fn __getitem__(&self, key: &str) -> PyResult<String> {
        self.0.values(key).next().ok_or_else(|| PyKeyError::new_err(key.to_owned()))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys())?.try_iter()
    }

    fn keys(&self) -> Vec<String> {
        self.0.fields.iter().map(|field| text(self.0.of(field.name)).to_ascii_lowercase()).collect()
    }

    fn values(&self) -> Vec<String> {
        self.0.fields.iter().map(|field| text(self.0.of(field.value))).collect()
    }

    fn items(&self) -> Vec<(String, String)> {
        self.keys().into_iter().zip(self.values()).collect()
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.0.values(key).next() {
            Some(value) => value.into_bound_py_any(py).map(Some),
            None => Ok(default),
        }
    }

    fn get_all(&self, key: &str) -> Vec<String> {
        self.0.values(key).collect()
    }
}

/// What an application responds to a request with.
#[pyclass(frozen, name = "RSGIHTTPProtocol", freelist = 256)]
pub(crate) struct HttpProtocol(pub(crate) ThreadBound<Rc<Exchange>>);

impl HttpProtocol {
    /// Begins the response, unless it has begun or the client has left.
    fn start(&self, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<&Rc<Exchange>> {
        let exchange = self.0.get()?;
        let (fields, length) = text_fields(headers)?;
        let status = final_status(status)?;
        if exchange.has_begun() {
            return Err(ProtocolError::new_err("the application has responded before"));
        }
        exchange.start(Begun { status, fields, length, has_trailers: false })?;
        Ok(exchange)
    }

    fn respond_file(
        &self,
        py: Python<'_>,
        status: u16,
        headers: &Bound<'_, PyAny>,
        file: PathBuf,
        range: Option<Range<u64>>,
    ) -> PyResult<()> {
        // If the file is missing, the application may respond otherwise.
        let part = FilePart::open(py, &std::path::absolute(file)?, range)?;
        self.start(status, headers)?.send_file(py, part)
    }

    fn respond(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyAny>, body: Bytes) -> PyResult<()> {
        self.start(status, headers)?.push(py, body, false).map(drop)
    }
}

#[pymethods]
impl HttpProtocol {
    /// Reads the whole body.
    fn __call__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0.get()?.read_all(py)? {
            Ok(body) => now(body),
            Err(future) => waits(future),
        }
    }

    /// Reads the parts of the body.
    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        received(py, Target::Http(self.0.get()?.clone()))
    }

    /// Waits until the client has left, or has its response.
    fn client_disconnect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        waits(self.0.get()?.disconnected_future(py)?)
    }

    fn response_empty(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        self.respond(py, status, headers, Bytes::new())
    }

    fn response_str(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyAny>, body: &str) -> PyResult<()> {
        self.respond(py, status, headers, Bytes::copy_from_slice(body.as_bytes()))
    }

    fn response_bytes(
        &self,
        py: Python<'_>,
        status: u16,
        headers: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.respond(py, status, headers, bytes_of(body)?)
    }

    fn response_file(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyAny>, file: PathBuf) -> PyResult<()> {
        self.respond_file(py, status, headers, file, None)
    }

    fn response_file_range(
        &self,
        py: Python<'_>,
        status: u16,
        headers: &Bound<'_, PyAny>,
        file: PathBuf,
        start: u64,
        end: u64,
    ) -> PyResult<()> {
        if start > end {
            return Err(PyValueError::new_err(format!("the range begins at {start} and ends at {end}")));
        }
        self.respond_file(py, status, headers, file, Some(start..end))
    }

    /// Begins a response whose parts are sent with the returned object.
    fn response_stream(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<StreamTransport> {
        let exchange = self.start(status, headers)?;
        exchange.push(py, Bytes::new(), true)?;
        Ok(StreamTransport(ThreadBound::new(OpenStream(exchange.clone()))))
    }
}

/// A response in parts, which ends when this is dropped.
struct OpenStream(Rc<Exchange>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.end_parts();
    }
}

/// Sends the parts of a response. It ends when the application has dropped this object, usually by returning.
#[pyclass(frozen, name = "RSGIHTTPStreamTransport")]
pub(crate) struct StreamTransport(ThreadBound<OpenStream>);

impl StreamTransport {
    fn send<'py>(&self, py: Python<'py>, bytes: Bytes) -> PyResult<Bound<'py, PyAny>> {
        let exchange = &self.0.get()?.0;
        if exchange.has_left() {
            return Err(ProtocolClosed::new_err("the client has left"));
        }
        exchange.push(py, bytes, true)
    }
}

#[pymethods]
impl StreamTransport {
    fn send_bytes<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.send(data.py(), bytes_of(data)?)
    }

    fn send_str<'py>(&self, py: Python<'py>, data: &str) -> PyResult<Bound<'py, PyAny>> {
        self.send(py, Bytes::copy_from_slice(data.as_bytes()))
    }
}

/// Accepts or refuses a WebSocket.
#[pyclass(frozen, name = "RSGIWebsocketProtocol")]
pub(crate) struct WebSocketProtocol(pub(crate) ThreadBound<Rc<Socket>>);

#[pymethods]
impl WebSocketProtocol {
    fn accept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let socket = self.0.get()?;
        if socket.is_over() {
            return Err(ProtocolClosed::new_err("the client has left"));
        }
        socket.accept_with(Vec::new(), None)?;
        now(Bound::new(py, WebSocketTransport(ThreadBound::new(socket.clone())))?.into_any())
    }

    /// Closes the WebSocket with a code, or refuses it with 403 before it is accepted. Does nothing if it is closed.
    #[pyo3(signature = (status=None))]
    fn close(&self, py: Python<'_>, status: Option<u16>) -> PyResult<(u16, bool)> {
        let socket = self.0.get()?;
        if !socket.is_over() {
            socket.close_with(py, status.unwrap_or(1000), "")?;
        }
        Ok((status.unwrap_or(1000), true))
    }
}

/// Receives and sends the messages of a WebSocket.
#[pyclass(frozen, name = "RSGIWebsocketTransport")]
pub(crate) struct WebSocketTransport(ThreadBound<Rc<Socket>>);

impl WebSocketTransport {
    fn send<'py>(&self, py: Python<'py>, message: Message) -> PyResult<Bound<'py, PyAny>> {
        let socket = self.0.get()?;
        if socket.is_over() {
            return Err(ProtocolClosed::new_err("the WebSocket is closed"));
        }
        socket.send_own(py, message)
    }
}

#[pymethods]
impl WebSocketTransport {
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        received(py, Target::WebSocket(self.0.get()?.clone()))
    }

    fn send_bytes<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.send(data.py(), Message::binary(bytes_of(data)?))
    }

    fn send_str<'py>(&self, py: Python<'py>, data: &str) -> PyResult<Bound<'py, PyAny>> {
        self.send(py, Message::text(data))
    }
}
