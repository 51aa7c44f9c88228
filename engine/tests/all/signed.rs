//! A self-signed certificate, and a client that trusts it.

use highwire_engine::tls::TlsConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Returns the settings of a server named `localhost`, and those of a client that trusts it and offers these protocols.
pub(crate) fn self_signed(protocols: &[&[u8]]) -> (TlsConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let server = TlsConfig::new().certificate_pem(made.cert.pem(), made.signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (server, client)
}
