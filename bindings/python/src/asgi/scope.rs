//! The scope of a request: the dictionary that ASGI gives to an application.

use super::tls::Sessions;
use super::words::Words;
use highwire::middleware::{Forwarded, TrustedProxies};
use highwire_engine::proto::{Head, Version};
use highwire_engine::request::Caller;
use highwire_engine::{Begin, Peer};
use percent_encoding::percent_decode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::cell::RefCell;
use std::collections::HashMap;

/// The most names of fields that are kept as Python objects.
const MOST_NAMES: usize = 1024;

/// The most addresses that are kept as Python objects. They lie among the other objects of their requests, whose memory the
/// interpreter cannot return as long as they live.
const MOST_CLIENTS: usize = 128;

/// The longest name of a field that is kept.
const LONGEST_KEPT: usize = 64;

/// What scopes share, and what is kept because the next one probably needs it.
pub(crate) struct Scopes {
    words: Words,
    no_bytes: Py<PyBytes>,
    /// `{"version": "3.0", "spec_version": "2.5"}`.
    asgi: Py<PyDict>,
    extensions: Py<PyDict>,
    websocket_extensions: Py<PyDict>,
    server: Py<PyAny>,
    root_path: Py<PyString>,
    sessions: Sessions,
    /// The proxies whose fields tell the client and the scheme.
    proxies: Option<TrustedProxies>,
    /// The state of the lifespan, of which each scope has a copy.
    state: Option<Py<PyDict>>,
    clients: RefCell<HashMap<Peer, Py<PyAny>>>,
    names: RefCell<HashMap<Box<[u8]>, Py<PyBytes>>>,
}

impl Scopes {
    pub(crate) fn new(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Scopes> {
        let asgi = PyDict::new(py);
        asgi.set_item("version", "3.0")?;
        asgi.set_item("spec_version", "2.5")?;
        let get = |name: &str| options.get_item(name);
        let server = get("server")?.map_or_else(|| py.None(), Bound::unbind);
        let root_path = get("root_path")?.map_or_else(|| Ok(PyString::new(py, "")), |path| path.cast_into())?.unbind();
        let state = get("state")?.filter(|state| !state.is_none()).map(|state| state.cast_into()).transpose()?;
        Ok(Scopes {
            words: Words::new(py),
            no_bytes: PyBytes::new(py, b"").unbind(),
            asgi: asgi.unbind(),
            extensions: extensions(
                py,
                &["http.response.trailers", "http.response.pathsend", "http.response.early_hint"],
            )?,
            websocket_extensions: extensions(py, &["websocket.http.response"])?,
            server,
            root_path,
            sessions: Sessions::default(),
            proxies: proxies(options)?,
            state: state.map(Bound::unbind),
            clients: RefCell::default(),
            names: RefCell::default(),
        })
    }

    pub(crate) fn server(&self, py: Python<'_>) -> Py<PyAny> {
        self.server.clone_ref(py)
    }

    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// Returns the scope of a request.
    pub(crate) fn http<'py>(&self, py: Python<'py>, request: &Begin<'_>) -> PyResult<Bound<'py, PyDict>> {
        let words = &self.words;
        let scope = PyDict::new(py);
        scope.set_item(&words.kind, &words.http)?;
        let forwarded = self.forwarded(request);
        scope.set_item(&words.scheme, if is_secure(request, &forwarded) { &words.https } else { &words.http })?;
        scope.set_item(&words.method, self.method(py, request.head, request.window))?;
        self.fill(&scope, request, forwarded, &self.extensions)?;
        Ok(scope)
    }

    /// Returns the scope of a request that opens a WebSocket.
    pub(crate) fn websocket<'py>(
        &self,
        py: Python<'py>,
        request: &Begin<'_>,
        protocols: &[String],
    ) -> PyResult<Bound<'py, PyDict>> {
        let words = &self.words;
        let scope = PyDict::new(py);
        scope.set_item(&words.kind, &words.websocket)?;
        let forwarded = self.forwarded(request);
        scope.set_item(&words.scheme, if is_secure(request, &forwarded) { &words.wss } else { &words.ws })?;
        scope.set_item(&words.subprotocols, PyList::new(py, protocols)?)?;
        self.fill(&scope, request, forwarded, &self.websocket_extensions)?;
        Ok(scope)
    }

    /// Adds what all scopes have.
    fn fill(
        &self,
        scope: &Bound<'_, PyDict>,
        request: &Begin<'_>,
        forwarded: Option<Forwarded>,
        extensions: &Py<PyDict>,
    ) -> PyResult<()> {
        let (py, head, window, words) = (scope.py(), request.head, request.window, &self.words);
        let path = head.target.path.of(window);
        scope.set_item(&words.asgi, &self.asgi)?;
        scope.set_item(&words.http_version, self.version(head))?;
        scope.set_item(&words.server, &self.server)?;
        let client = match forwarded.and_then(|forwarded| forwarded.address) {
            // Its port is not known.
            Some(address) => (address.to_string(), 0).into_pyobject(py)?.into_any(),
            None => self.client(py, request.caller)?,
        };
        scope.set_item(&words.client, client)?;
        scope.set_item(&words.root_path, &self.root_path)?;
        scope.set_item(&words.path, self.path(py, path)?)?;
        scope.set_item(&words.raw_path, self.raw_path(py, path)?)?;
        let query = head.target.query.map_or(&b""[..], |query| query.of(window));
        if query.is_empty() {
            scope.set_item(&words.query_string, &self.no_bytes)?;
        } else {
            scope.set_item(&words.query_string, PyBytes::new(py, query))?;
        }
        scope.set_item(&words.headers, self.headers(py, head, window)?)?;
        if let Some(state) = &self.state {
            scope.set_item(&words.state, state.bind(py).copy()?)?;
        }
        let extensions = extensions.bind(py).copy()?;
        if let Some(facts) = self.sessions.of(py, request.caller)? {
            extensions.set_item(&words.tls, facts)?;
        }
        scope.set_item(&words.extensions, extensions)
    }

    /// Returns what a trusted proxy tells about the client, if it tells something.
    pub(crate) fn forwarded(&self, request: &Begin<'_>) -> Option<Forwarded> {
        let proxies = self.proxies.as_ref()?;
        let (head, window) = (request.head, request.window);
        let is_told = |name: &[u8]| name.len() > 12 && name[..12].eq_ignore_ascii_case(b"x-forwarded-");
        if !head.fields.iter().any(|field| is_told(field.name.of(window))) {
            return None;
        }
        let peer = request.caller.peer();
        let mut forwarded = proxies.client_of(head, window, peer);
        // The address of the peer itself comes with a port.
        forwarded.address = forwarded.address.filter(|known| !matches!(peer, Peer::Internet(ip, _) if ip == *known));
        Some(forwarded)
    }

    /// Returns the path of a scope, which begins with the root path.
    fn path<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyString>> {
        let root = self.root_path.bind(py);
        if root.is_empty()? {
            return Ok(decoded(py, path));
        }
        Ok(PyString::new(py, &format!("{}{}", root.to_str()?, decoded(py, path).to_str()?)))
    }

    /// Returns the path as it was received, behind the root path.
    fn raw_path<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let root = self.root_path.bind(py);
        if root.is_empty()? {
            return Ok(PyBytes::new(py, path));
        }
        Ok(PyBytes::new(py, &[root.to_str()?.as_bytes(), path].concat()))
    }

    fn version(&self, head: &Head) -> &Py<PyString> {
        match head.version {
            Version::Http10 => &self.words.version_10,
            Version::Http11 => &self.words.version_11,
            Version::Http2 => &self.words.version_2,
        }
    }

    fn method<'py>(&self, py: Python<'py>, head: &Head, window: &[u8]) -> Bound<'py, PyString> {
        let words = &self.words;
        let bytes = head.method_span.of(window);
        let known = match bytes {
            b"GET" => &words.get,
            b"HEAD" => &words.head,
            b"POST" => &words.post,
            b"PUT" => &words.put,
            b"DELETE" => &words.delete,
            b"PATCH" => &words.patch,
            b"OPTIONS" => &words.options,
            // A method is a token (RFC 9110 section 9.1). ASGI wants upper case.
            other => return PyString::new(py, &String::from_utf8_lossy(other).to_uppercase()),
        };
        known.bind(py).clone()
    }

    /// Returns `(host, port)`, or `None` for a client on a unix socket.
    fn client<'py>(&self, py: Python<'py>, caller: Caller<'_>) -> PyResult<Bound<'py, PyAny>> {
        let peer = caller.peer();
        if let Some(client) = self.clients.borrow().get(&peer) {
            return Ok(client.bind(py).clone());
        }
        let client = match peer {
            Peer::Local => py.None().into_bound(py),
            Peer::Internet(ip, port) => (ip.to_string(), port).into_pyobject(py)?.into_any(),
        };
        let mut clients = self.clients.borrow_mut();
        if clients.len() >= MOST_CLIENTS {
            clients.clear();
        }
        clients.insert(peer, client.clone().unbind());
        Ok(client)
    }

    fn headers<'py>(&self, py: Python<'py>, head: &Head, window: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let headers = PyList::empty(py);
        let authority = head.target.authority.of(window);
        if head.version == Version::Http2 && !authority.is_empty() && head.field(window, b"host").is_none() {
            // ASGI has no pseudo-fields: the authority is the value of `host`, and comes first.
            headers.append(PyTuple::new(py, [self.name(py, b"host"), PyBytes::new(py, authority)])?)?;
        }
        for field in &head.fields {
            let name = self.name(py, field.name.of(window));
            headers.append(PyTuple::new(py, [name, PyBytes::new(py, field.value.of(window))])?)?;
        }
        Ok(headers)
    }

    /// Returns the name of a field in lower case.
    fn name<'py>(&self, py: Python<'py>, name: &[u8]) -> Bound<'py, PyBytes> {
        if let Some(kept) = self.names.borrow().get(name) {
            return kept.bind(py).clone();
        }
        let lower = PyBytes::new(py, &name.to_ascii_lowercase());
        let mut names = self.names.borrow_mut();
        if name.len() <= LONGEST_KEPT && names.len() < MOST_NAMES {
            names.insert(name.into(), lower.clone().unbind());
        }
        lower
    }
}

/// Returns true if the client has used TLS, to this server or to the proxy before it.
pub(crate) fn is_secure(request: &Begin<'_>, forwarded: &Option<Forwarded>) -> bool {
    let told = forwarded.as_ref().and_then(|forwarded| forwarded.https);
    told.unwrap_or_else(|| request.caller.is_secure())
}

/// Returns the trusted proxies of the option `forwarded_allow_ips`: networks and addresses, separated by commas; `*` for all.
fn proxies(options: &Bound<'_, PyDict>) -> PyResult<Option<TrustedProxies>> {
    let Some(text) = super::convert::option::<String>(options, "forwarded_allow_ips")? else { return Ok(None) };
    let entries: Vec<&str> = match text.trim() {
        "" => return Ok(None),
        "*" => vec!["0.0.0.0/0", "::/0"],
        list => list.split(',').map(str::trim).collect(),
    };
    let proxies = TrustedProxies::new(entries).map_err(|error| PyValueError::new_err(error.to_string()))?;
    // A client on a unix socket is a process of this machine.
    Ok(Some(proxies.and_local()))
}

fn extensions(py: Python<'_>, names: &[&str]) -> PyResult<Py<PyDict>> {
    let extensions = PyDict::new(py);
    for name in names {
        extensions.set_item(name, PyDict::new(py))?;
    }
    Ok(extensions.unbind())
}

/// Returns a path with its percent-encoded bytes decoded. Bytes that are not UTF-8 become U+FFFD.
fn decoded<'py>(py: Python<'py>, path: &[u8]) -> Bound<'py, PyString> {
    if path.contains(&b'%') || !path.is_ascii() {
        return PyString::new(py, &percent_decode(path).decode_utf8_lossy());
    }
    PyString::new(py, &String::from_utf8_lossy(path))
}
