//! The client's side of TLS for tests: rustls without I/O, and a certificate for the server.
//!
//! The random bytes of TLS differ from run to run, but the lengths of records do not, because the certificate has a
//! fixed serial number and an Ed25519 key, whose signatures have 64 bytes each. Runs under TLS are therefore
//! deterministic, too.

use highwire::tls::TlsConfig;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
pub use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, SignatureScheme};
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};
use testkit::tls::{AcceptAny, client_config};

/// The TLS version of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// The protocol over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

/// Returns the server's settings with a certificate that is made once per process.
///
/// # Panics
/// Panics if the certificate cannot be made.
pub fn server_config() -> TlsConfig {
    static PEM: OnceLock<(String, String)> = OnceLock::new();
    let (chain, key) = PEM.get_or_init(|| {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let mut params = CertificateParams::new(vec!["sim".to_string()]).expect("a name");
        params.serial_number = Some(SerialNumber::from(1));
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    });
    TlsConfig::new().certificate_pem(chain, key)
}

/// The client configurations for one server.
#[derive(Debug)]
pub struct Clients {
    /// Configurations by version, then by protocol.
    configs: [[Arc<ClientConfig>; 2]; 2],
}

impl Clients {
    /// Creates the configurations. Resumption saves time, because a full handshake costs more than the rest of a case.
    /// Runs that must not depend on earlier runs disable resumption.
    ///
    /// # Panics
    /// Panics if rustls refuses the configuration.
    pub fn new(resumption: Resumption) -> Clients {
        let config = |version, protocol: &[u8]| {
            // X25519 is the cheapest key exchange.
            let provider =
                CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() };
            // Other tests check that certificates are verified.
            let verifier = AcceptAny::new(&[SignatureScheme::ED25519]);
            let mut config = client_config(provider, &[version], verifier);
            config.alpn_protocols = vec![protocol.to_vec()];
            config.resumption = resumption.clone();
            Arc::new(config)
        };
        let of = |version| [config(version, b"http/1.1"), config(version, b"h2")];
        Clients { configs: [of(&rustls::version::TLS12), of(&rustls::version::TLS13)] }
    }

    /// Returns the configuration for a version and a protocol.
    pub fn config(&self, version: Version, http: Http) -> Arc<ClientConfig> {
        self.configs[version as usize][http as usize].clone()
    }

    /// Creates a session that has not begun its handshake.
    ///
    /// # Panics
    /// Panics if rustls cannot create the session.
    pub fn session(&self, version: Version, http: Http) -> Session {
        let name = ServerName::try_from("sim").expect("a name");
        let config = self.config(version, http);
        let mut connection = ClientConnection::new(config, name).expect("a client");
        connection.set_buffer_limit(None);
        Session { connection, closed: false }
    }
}

/// A client's session.
#[derive(Debug)]
pub struct Session {
    connection: ClientConnection,
    closed: bool,
}

impl Session {
    /// Returns true if the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns true if the server has sent close_notify.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Encrypts `plain` and appends the records to `sealed`. Before the end of the handshake rustls buffers `plain`.
    ///
    /// # Panics
    /// Panics if rustls cannot buffer the bytes.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        self.connection.writer().write_all(plain).expect("memory");
        self.flush(sealed);
    }

    /// Decrypts received records into `plain`, and appends the session's own records (handshake, alerts) to `out`.
    ///
    /// # Errors
    /// Returns an error if a server must not send these records.
    pub fn open(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), String> {
        while !sealed.is_empty() {
            if self.closed {
                return Err(format!("{} bytes after close_notify", sealed.len()));
            }
            self.connection.read_tls(&mut sealed).map_err(|error| error.to_string())?;
            let state = self.connection.process_new_packets().map_err(|error| format!("TLS: {error}"))?;
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            self.connection.reader().read_exact(&mut part).map_err(|error| error.to_string())?;
            plain.extend(part);
            self.closed = state.peer_has_closed();
        }
        self.flush(out);
        Ok(())
    }

    /// Sends close_notify.
    pub fn close(&mut self, sealed: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.flush(sealed);
    }

    fn flush(&mut self, sealed: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection.write_tls(sealed).expect("memory");
        }
    }
}
