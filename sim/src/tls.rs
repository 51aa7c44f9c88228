//! The client's side of TLS for tests: rustls without I/O, and a certificate for the server.
//!
//! What TLS draws at random differs from run to run, but no length does: the certificate is Ed25519, whose signatures have
//! 64 bytes each, and has a serial number of its own. So a seed decides what happens under TLS too.

use highwire::tls::TlsConfig;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
pub use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, SignatureScheme};
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};
use testkit::tls::{AcceptAny, client_config};

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// What is spoken under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

/// The server's settings: one certificate, the same for the whole process.
///
/// # Panics
/// Where no certificate can be made.
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

/// Clients of one server.
#[derive(Debug)]
pub struct Clients {
    /// By version, then by protocol.
    configs: [[Arc<ClientConfig>; 2]; 2],
}

impl Clients {
    /// Clients that resume sessions, since a whole handshake costs more than the rest of a case; or that begin each time
    /// anew, for runs in which nothing may depend on what was before.
    ///
    /// # Panics
    /// Where rustls does not have what is asked of it.
    pub fn new(resumption: Resumption) -> Clients {
        let config = |version, protocol: &[u8]| {
            // The cheapest key exchange.
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

    /// A session that has not begun; it speaks HTTP/2 or HTTP/1.
    ///
    /// # Panics
    /// Where rustls cannot make one.
    pub fn session(&self, version: Version, http: Http) -> Session {
        let name = ServerName::try_from("sim").expect("a name");
        let config = self.configs[version as usize][http as usize].clone();
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
    /// Whether the handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the server has said that it sends no more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Encrypts; what cannot be sent yet is sent when the handshake allows it.
    ///
    /// # Panics
    /// Where rustls has no memory.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        self.connection.writer().write_all(plain).expect("memory");
        self.flush(sealed);
    }

    /// Decrypts what came, and says what the session itself has to say to that.
    ///
    /// # Errors
    /// What the server may not send.
    pub fn open(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), String> {
        while !sealed.is_empty() {
            if self.closed {
                return Err(format!("{} bytes behind the end of TLS", sealed.len()));
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

    /// Says that the client sends no more.
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
