//! Chooses the certificate for a client: one for the server name that it asks for (RFC 6066 section 3), or the default.
//!
//! The names are the DNS names in the certificates. A name is looked up whole, and then with its first label replaced
//! by `*`, because a wildcard stands for exactly one label (RFC 9525 section 6.3). If several certificates have the
//! name, the first one whose signature the client can verify is used, so that a server can have an ECDSA and an RSA
//! certificate; if the client can verify none, the first one is used.
//!
//! A client that asks for an unknown name gets the default certificate. The client usually refuses that certificate,
//! with a clearer message to the user than an alert would give. Clients that connect to an IP address send no name, and
//! get the default certificate, too.

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

thread_local! {
    /// The server name in the last client hello on this thread. rustls passes the name to the resolver while it
    /// processes a session's bytes, and its unbuffered connection does not return it later, so the session takes it
    /// from here. A session that fails may leave its name here; therefore each session clears this before it processes
    /// bytes.
    static ASKED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Takes the server name of the client hello that was just processed on this thread.
pub(super) fn take_asked() -> Option<Box<str>> {
    ASKED.with_borrow_mut(Option::take)
}

/// All certificates of a configuration.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    certificates: Vec<Arc<CertifiedKey>>,
    /// The indices of the certificates for each name, in the order in which they were added. Wildcards are stored as
    /// written.
    by_name: HashMap<String, Vec<usize>>,
    /// The indices of the certificates for clients that send no name or an unknown one: the first certificate, and the
    /// others that contain its first name.
    default: Vec<usize>,
    first_name: Option<String>,
}

impl Resolver {
    pub(super) fn add(&mut self, certificate: CertifiedKey, names: &[String]) {
        let index = self.certificates.len();
        self.certificates.push(Arc::new(certificate));
        for name in names {
            let list = self.by_name.entry(name.clone()).or_default();
            if !list.contains(&index) {
                list.push(index);
            }
        }
        if index == 0 {
            self.first_name = names.first().cloned();
        }
        if index == 0 || self.first_name.as_ref().is_some_and(|first| names.contains(first)) {
            self.default.push(index);
        }
    }

    /// Returns the indices of the certificates for a name, which must be in lower case.
    fn candidates(&self, name: Option<&str>) -> &[usize] {
        let Some(name) = name else { return &self.default };
        let name = name.strip_suffix('.').unwrap_or(name);
        self.by_name
            .get(name)
            .or_else(|| name.split_once('.').and_then(|(_, parent)| self.by_name.get(&format!("*.{parent}"))))
            .unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let candidates = self.candidates(name.as_deref());
        let verifiable =
            |index: &&usize| self.certificates[**index].key.choose_scheme(hello.signature_schemes()).is_some();
        let chosen = candidates.iter().find(verifiable).or(candidates.first());
        ASKED.set(name.map(String::into_boxed_str));
        chosen.map(|index| self.certificates[*index].clone())
    }
}
