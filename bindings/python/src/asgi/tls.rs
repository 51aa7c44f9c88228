//! The facts of a TLS session, as the extension `tls` of ASGI says them.

use highwire_engine::io::SocketId;
use highwire_engine::request::Caller;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::cell::RefCell;
use std::collections::HashMap;

/// The most connections whose facts are kept as Python objects.
const MOST_KEPT: usize = 128;

/// The numbers of the cipher suites that the engine offers (RFC 8446 appendix B.4, RFC 5289, RFC 7905).
const SUITES: [(&str, u16); 9] = [
    ("TLS13_AES_128_GCM_SHA256", 0x1301),
    ("TLS13_AES_256_GCM_SHA384", 0x1302),
    ("TLS13_CHACHA20_POLY1305_SHA256", 0x1303),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xC02B),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xC02C),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xC02F),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xC030),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xCCA8),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xCCA9),
];

/// The facts of the sessions, which the requests of a connection share.
#[derive(Default)]
pub(super) struct Sessions(RefCell<HashMap<SocketId, Py<PyDict>>>);

impl Sessions {
    /// Returns the facts of a request's session, or `None` without TLS.
    pub(super) fn of<'py>(&self, py: Python<'py>, caller: Caller<'_>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if !caller.is_secure() {
            return Ok(None);
        }
        let Some(connection) = caller.connection() else { return facts(py, caller) };
        if let Some(known) = self.0.borrow().get(&connection) {
            return known.bind(py).copy().map(Some);
        }
        let facts = facts(py, caller)?;
        let mut sessions = self.0.borrow_mut();
        if sessions.len() >= MOST_KEPT {
            sessions.clear();
        }
        if let Some(facts) = &facts {
            sessions.insert(connection, facts.clone().unbind());
        }
        facts.map(|facts| facts.copy()).transpose()
    }
}

fn facts<'py>(py: Python<'py>, caller: Caller<'_>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(tls) = caller.tls() else { return Ok(None) };
    let facts = PyDict::new(py);
    let version = match tls.version {
        "TLSv1.3" => Some(0x0304),
        "TLSv1.2" => Some(0x0303),
        _ => None,
    };
    facts.set_item("tls_version", version)?;
    facts.set_item("cipher_suite", SUITES.iter().find(|(name, _)| *name == tls.cipher).map(|(_, number)| *number))?;
    facts.set_item("server_cert", py.None())?;
    let chain = PyList::empty(py);
    if let Some(client) = &tls.client {
        let pem = py.import("ssl")?.getattr("DER_cert_to_PEM_cert")?;
        chain.append(pem.call1((PyBytes::new(py, &client.der),))?)?;
    }
    facts.set_item("client_cert_chain", chain)?;
    facts.set_item("client_cert_name", tls.client.and_then(|client| client.subject))?;
    facts.set_item("client_cert_error", py.None())?;
    Ok(Some(facts))
}
