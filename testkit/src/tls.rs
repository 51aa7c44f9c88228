//! A rustls client configuration that accepts every certificate.
//!
//! It is for tests of the traffic after the handshake, and for tests that inspect the server's handshake messages. The
//! client in `highwire/src/testing/wire.rs` has its own verifier, because published code cannot depend on this crate.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion};
use std::sync::{Arc, Mutex, PoisonError};

/// Accepts every certificate and every signature, and keeps the last OCSP staple.
#[derive(Debug)]
pub struct AcceptAny {
    schemes: Vec<SignatureScheme>,
    staple: Mutex<Vec<u8>>,
}

impl AcceptAny {
    /// Returns a verifier that offers these signature schemes to the server. A server with several certificates may
    /// choose one by them.
    pub fn new(schemes: &[SignatureScheme]) -> Arc<AcceptAny> {
        Arc::new(AcceptAny { schemes: schemes.to_vec(), staple: Mutex::default() })
    }

    /// Returns the OCSP response of the last full handshake, which is empty if the server sent none.
    pub fn staple(&self) -> Vec<u8> {
        self.staple.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.staple.lock().unwrap_or_else(PoisonError::into_inner) = staple.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// Returns a configuration without a client certificate and without ALPN, whose verifier is `verifier`. Two
/// configurations with the same session store can resume each other's sessions only if they share the verifier, too.
///
/// # Panics
/// Panics if the provider supports none of these versions.
pub fn client_config(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
    verifier: Arc<AcceptAny>,
) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .expect("the provider supports none of these versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}
