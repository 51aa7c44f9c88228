//! The certificates of authorities that the system trusts, for clients.

use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::{Arc, OnceLock};

/// A client's configuration, and the certificates that it trusts.
type Trusting = (Arc<ClientConfig>, Arc<RootCertStore>);

static SYSTEM: OnceLock<Trusting> = OnceLock::new();

/// Returns the configuration of [`system_client`] if the certificates were read before.
pub fn known_system_client() -> Option<Arc<ClientConfig>> {
    SYSTEM.get().map(|(config, _)| config.clone())
}

/// Returns a client's configuration that trusts the system's certificates of authorities, and these certificates: those of
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` if these variables are set, and otherwise those of the usual places. They are read
/// at the first call that succeeds, which blocks; later calls return the same values.
///
/// # Errors
/// Returns an error if no certificate can be read.
pub fn system_client() -> io::Result<Trusting> {
    if let Some(known) = SYSTEM.get() {
        return Ok(known.clone());
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
    let roots = Arc::new(roots);
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(io::Error::other)?.with_root_certificates(roots.clone()).with_no_client_auth();
    Ok(SYSTEM.get_or_init(|| (Arc::new(config), roots)).clone())
}
