//! Which certificate a client gets: the one for the name that it asks for (RFC 6066 section 3), else the default.
//!
//! Names come from the certificates themselves. A name is looked up whole, then with its first label replaced by `*`,
//! since a wildcard stands for exactly one label (RFC 9525 section 6.3). Where several certificates have the name, the
//! first whose key the client can verify wins, so that an ECDSA and an RSA certificate can stand side by side.
//!
//! A client that names a host nobody has a certificate for gets the default: it will refuse that one by itself, and says
//! so more helpfully than an alert would. Connections by address carry no name at all.

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

thread_local! {
    /// The name that the last client hello on this thread asked for. rustls calls the resolver while it processes a
    /// session's bytes, and its unbuffered connection does not tell the name afterwards; a session asks here instead. A
    /// session that fails leaves its name here: each session empties this before it processes anything.
    static ASKED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The name of the client hello that has just been processed on this thread, once.
pub(super) fn take_asked() -> Option<Box<str>> {
    ASKED.with_borrow_mut(Option::take)
}

/// All certificates of a configuration.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    certificates: Vec<Arc<CertifiedKey>>,
    /// Indices of the certificates of each name, wildcards as they are written, in the order in which they were added.
    by_name: HashMap<String, Vec<usize>>,
    /// Indices of those that serve where no name fits: the first certificate, and others for its first name.
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

    /// The certificates for a name in lower case.
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
