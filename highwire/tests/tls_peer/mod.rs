//! Helpers for tests of TLS: an authority that issues certificates, a folder for files, and a rustls client whose bytes
//! the test carries to a session.

// Each test program uses a part of this module.
#![allow(dead_code)]

use highwire::tls::{Progress, Session, TlsConfig, TlsError};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub(crate) const TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// A certificate and its key, as PEM.
pub(crate) struct Pem {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let der = certificate.der().clone();
        Authority { pem: certificate.pem(), der, issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for these names. The first name is also the certificate's common name.
    pub(crate) fn issue(&self, names: &[&str]) -> Pem {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pem {
        self.issue_for(&KeyPair::generate().expect("a key"), names, change)
    }

    pub(crate) fn issue_for(&self, key: &KeyPair, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pem {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, names[0].clone());
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer).expect("a certificate");
        Pem { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

/// The settings of a client.
pub(crate) struct Client<'a> {
    pub(crate) trusts: &'a Authority,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    pub(crate) alpn: &'a [&'a str],
    pub(crate) certificate: Option<&'a Pem>,
}

impl<'a> Client<'a> {
    pub(crate) fn of(trusts: &'a Authority) -> Client<'a> {
        Client { trusts, versions: rustls::ALL_VERSIONS, alpn: &[], certificate: None }
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusts.der.clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_protocol_versions(self.versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match self.certificate {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let chain = CertificateDer::pem_slice_iter(pem.chain.as_bytes()).map(|der| der.expect("PEM")).collect();
                let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a client certificate")
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A client, a server's session, and the transport between them.
pub(crate) struct Pair {
    pub(crate) client: ClientConnection,
    pub(crate) session: Session,
    /// The plaintext that the session has received.
    pub(crate) plain: Vec<u8>,
    /// The largest number of bytes that the session gets at once. 0 stands for no limit.
    pub(crate) portion: usize,
    pub(crate) progress: Progress,
}

impl Pair {
    pub(crate) fn new(client: Arc<ClientConfig>, server: Arc<ServerConfig>, name: &str) -> Pair {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        Pair {
            client: ClientConnection::new(client, name).expect("a client"),
            session: Session::accept(server).expect("a session"),
            plain: Vec::new(),
            portion: 0,
            progress: Progress::Handshaking,
        }
    }

    /// Carries bytes in both directions until the client has no more to send. Returns an error of the session, but not
    /// of the client.
    pub(crate) fn carry(&mut self) -> Result<(), TlsError> {
        loop {
            let sent = self.client_bytes();
            if sent.is_empty() {
                return Ok(());
            }
            let mut out = Vec::new();
            let result = self.deliver(&sent, &mut out);
            self.give_client(&out);
            result?;
        }
    }

    pub(crate) fn deliver(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        let portion = if self.portion == 0 { bytes.len().max(1) } else { self.portion };
        for part in bytes.chunks(portion) {
            self.progress = self.session.receive(part, &mut self.plain, out)?;
        }
        Ok(())
    }

    pub(crate) fn client_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).expect("writing to memory does not fail");
        }
        bytes
    }

    pub(crate) fn give_client(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).expect("reading from memory does not fail");
            if self.client.process_new_packets().is_err() {
                return;
            }
        }
    }

    /// Gives the client plaintext to send. [`carry`](Self::carry) delivers it.
    pub(crate) fn say(&mut self, text: &[u8]) {
        self.client.set_buffer_limit(None);
        self.client.writer().write_all(text).expect("writing to memory does not fail");
    }

    /// Sends plaintext from the session. Returns the plaintext that the client reads.
    pub(crate) fn answer(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.send(text, &mut out).expect("an open session");
        let (mut rest, mut heard) = (&out[..], Vec::new());
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).expect("reading from memory does not fail");
            self.client.process_new_packets().expect("records that the client accepts");
            let _ = self.client.reader().read_to_end(&mut heard);
        }
        heard
    }
}

/// Completes a handshake, and returns both sides.
pub(crate) fn connect(client: Arc<ClientConfig>, server: Arc<ServerConfig>, name: &str) -> Pair {
    let mut pair = Pair::new(client, server, name);
    pair.carry().expect("a handshake");
    assert!(!pair.session.is_handshaking() && !pair.client.is_handshaking());
    pair
}

/// Returns settings with one certificate, for `a.example`.
pub(crate) fn simple(authority: &Authority) -> TlsConfig {
    let pem = authority.issue(&["a.example"]);
    TlsConfig::new().certificate_pem(pem.chain, pem.key)
}

/// A temporary folder. Dropping the value removes the folder.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("highwire-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder { path }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a new file and renames it to `name`, which replaces an old file atomically.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (path, beside) = (self.file(name), self.file(&format!("{name}.new")));
        std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, &path)).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
