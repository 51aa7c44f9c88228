//! The TLS settings of a client.

use super::der;
use super::error::{LoadError, LoadFault};
use super::pem::{self, Source};
use super::roots::system_client;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

const AUTHORITY: &str = "trusted certificate";
const CERTIFICATE: &str = "client certificate";
const KEY: &str = "client key";

/// The TLS settings of a client: whom it trusts, and how it identifies itself.
///
/// The defaults are TLS 1.2 and 1.3 with the default cipher suites of rustls, the system's trusted certificates, and no
/// client certificate.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ClientTls {
    authorities: Vec<Source>,
    without_system: bool,
    identity: Option<(Source, Source)>,
    pins: Vec<[u8; 32]>,
    accepts_any: bool,
}

impl ClientTls {
    /// Returns the defaults.
    pub fn new() -> ClientTls {
        ClientTls::default()
    }

    /// Trusts the certificates of a PEM file, too.
    pub fn root_file(mut self, path: impl Into<PathBuf>) -> ClientTls {
        self.authorities.push(Source::File(path.into()));
        self
    }

    /// Trusts the certificates of a text in PEM, too.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> ClientTls {
        self.authorities.push(Source::Memory(pem.as_ref().into()));
        self
    }

    /// Does not trust the system's certificates.
    pub fn without_system_roots(mut self) -> ClientTls {
        self.without_system = true;
        self
    }

    /// Presents the certificates of a PEM file, the client's own first, with the private key of another one.
    pub fn identity_files(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> ClientTls {
        self.identity = Some((Source::File(certificates.into()), Source::File(key.into())));
        self
    }

    /// Presents certificates in PEM, the client's own first, with their private key in PEM.
    pub fn identity_pem(mut self, certificates: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> ClientTls {
        self.identity = Some((Source::Memory(certificates.as_ref().into()), Source::Memory(key.as_ref().into())));
        self
    }

    /// Accepts only servers with this key or another one that was added: the SHA-256 of the SubjectPublicKeyInfo (as in
    /// RFC 7469) of the server's own certificate. The certificate must be valid as well.
    pub fn pin_sha256(mut self, hash: [u8; 32]) -> ClientTls {
        self.pins.push(hash);
        self
    }

    /// Accepts any certificate for any name, valid or not. An attacker can then read and change everything. With
    /// [`pin_sha256`](Self::pin_sha256), accepts only servers with one of the keys.
    #[doc(alias = "danger_accept_invalid_certs")]
    pub fn accept_invalid_certificates(mut self) -> ClientTls {
        self.accepts_any = true;
        self
    }

    /// Reads the files and returns the configuration, without ALPN. It may block, because it reads files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or has no certificate or key.
    pub fn build(&self) -> Result<ClientConfig, LoadError> {
        let setting = |error: rustls::Error| LoadError::setting(error.to_string());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Arc::new(Verifier {
            inner: if self.accepts_any { None } else { Some(self.verifier(&provider)?) },
            pins: self.pins.clone(),
            provider: provider.clone(),
        });
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(setting)?.dangerous().with_custom_certificate_verifier(verifier);
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some((certificates, key)) => {
                let chain = pem::certificates(CERTIFICATE, certificates)?;
                let key = pem::private_key(KEY, key)?;
                builder.with_client_auth_cert(chain, key).map_err(setting)
            }
        }
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, LoadError> {
        let mut roots = RootCertStore::empty();
        if !self.without_system {
            let system = system_client();
            let system =
                system.map_err(|error| LoadError::new("the system", LoadFault::Unreadable(error.to_string())))?;
            roots.roots.extend_from_slice(&system.1.roots);
        }
        for source in &self.authorities {
            for authority in pem::certificates(AUTHORITY, source)? {
                let added = roots.add(authority);
                let fail = |error: Error| {
                    LoadError::new(source.place(AUTHORITY), LoadFault::BadCertificate(error.to_string()))
                };
                added.map_err(fail)?;
            }
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| LoadError::setting(error.to_string()))
    }
}

/// Verifies the server's certificates, and compares the key of its own with the pins.
#[derive(Debug)]
struct Verifier {
    /// The verifier of certificates; `None` if any is accepted.
    inner: Option<Arc<WebPkiServerVerifier>>,
    pins: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

/// The error of a server whose key is not among the pins.
#[derive(Debug)]
struct Unpinned;

impl fmt::Display for Unpinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key of the server's certificate is not pinned")
    }
}

impl std::error::Error for Unpinned {}

impl Verifier {
    fn is_pinned(&self, certificate: &CertificateDer<'_>) -> bool {
        let hash = der::public_key(certificate).map(|key| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key));
        hash.is_some_and(|hash| self.pins.iter().any(|pin| pin == hash.as_ref()))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(inner) = &self.inner {
            inner.verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        }
        // The handshake proves only this key. Anybody can present the other certificates.
        if self.pins.is_empty() || self.is_pinned(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::Other(OtherError(Arc::new(Unpinned))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
