//! The certificates of authorities that the system trusts, for clients.

use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

static CONFIG: Mutex<Option<Arc<ClientConfig>>> = Mutex::new(None);

/// Returns a client's configuration that trusts the system's certificates of authorities: those of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` if these variables are set, and otherwise those of the usual places. They are read at the first call
/// that succeeds, which blocks; later calls return the same configuration.
///
/// # Errors
/// Returns an error if no certificate can be read.
pub fn system_client() -> io::Result<Arc<ClientConfig>> {
    let mut config = CONFIG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(config) = &*config {
        return Ok(config.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found.errors.first().map_or_else(|| "there are none".into(), ToString::to_string);
        return Err(io::Error::other(format!("no trusted certificate can be read: {reason}")));
    }
    for error in &found.errors {
        tracing::warn!(%error, "some trusted certificates cannot be read");
    }
    tracing::debug!(added, ignored, "the system's trusted certificates are read");
    let made = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    *config = Some(made.clone());
    Ok(made)
}
