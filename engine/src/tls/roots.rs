//! The certificates of authorities that the system trusts, for clients.

use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::{Arc, OnceLock};

static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// Returns the configuration of [`system_client`] if the certificates were read before.
pub fn known_system_client() -> Option<Arc<ClientConfig>> {
    CONFIG.get().cloned()
}

/// Returns a client's configuration that trusts the system's certificates of authorities: those of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` if these variables are set, and otherwise those of the usual places. They are read at the first call
/// that succeeds, which blocks; later calls return the same configuration.
///
/// # Errors
/// Returns an error if no certificate can be read.
pub fn system_client() -> io::Result<Arc<ClientConfig>> {
    if let Some(config) = known_system_client() {
        return Ok(config);
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
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}
