//! TLS: a server's settings ([`TlsConfig`]), the configuration that is loaded from files and reloaded when they change
//! ([`Reload`]), and one side of one connection ([`Session`], of a [`Server`] or a [`Client`]).
//!
//! ```
//! use highwire_engine::tls::{Session, TlsConfig};
//!
//! let reload = TlsConfig::new().self_signed(["localhost"]).build()?;
//! let mut session = Session::accept(reload.current())?;
//! let (mut plain, mut out) = (Vec::new(), Vec::new());
//! // Call this with all bytes from the socket. Then send `out` to the peer, and read the decrypted bytes from `plain`.
//! # let from_the_socket = &[0x16, 3, 1];
//! let progress = session.receive(from_the_socket, &mut plain, &mut out)?;
//! assert!(session.is_handshaking());
//! # let _ = progress;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol is implemented by rustls with the cryptography of aws-lc-rs. Files are read only when a configuration
//! is built and when [`Reload::look`] is called. The clock is read at these times and for the age of ticket keys;
//! rustls reads it for the age of tickets and the validity of the peer's certificates. docs/tls.md lists the supported
//! versions, algorithms and extensions.

mod client;
mod config;
mod der;
mod development;
mod error;
mod load;
mod pem;
mod reload;
mod resolve;
mod roots;
mod session;
mod side;
mod tickets;

pub use client::ClientTls;
pub use config::{ClientAuth, TICKETS_SENT, TICKETS_SENT_MAX, TlsConfig, Versions};
pub use development::SELF_SIGNED_DAYS;
pub use error::{LoadError, LoadFault, TlsError};
pub use load::{CertificateInfo, OCSP_BYTES};
pub use pem::FILE_BYTES;
pub use reload::{Looked, Reload};
pub use roots::{known_system_client, system_client};
pub use rustls::pki_types::ServerName;
pub use rustls::{ClientConfig, ServerConfig};
pub use session::{ClientCertificate, HANDSHAKE_BYTES, Progress, RECORD_BYTES, Session, Version};
pub use side::{Client, Server, Side};
pub use tickets::{TICKET_FILE_KEYS, TICKET_KEYS_KEPT, TICKET_LIFETIME, TICKET_ROTATION, Tickets};

/// The protocol that a connection's first byte indicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// A TLS handshake.
    Tls,
    /// HTTP without TLS. The byte is a character of a method, or a line end before one.
    Http,
    /// Neither TLS nor HTTP.
    Other,
}

/// Returns true if a connection's first byte may begin a hello of SSL 2.0, which starts with a length whose highest bit
/// is set (RFC 5246 appendix E.2). No message of HTTP begins with such a byte.
pub(crate) fn is_ssl2(first: u8) -> bool {
    first & 0x80 != 0
}

/// Returns the protocol that a connection's first byte indicates. Use it for a port that serves both TLS and plain
/// HTTP, or to explain a refusal. TLS begins with the byte 22, a handshake record, which no HTTP message can begin with
/// (RFC 8446 section 5.1, RFC 9112 section 3).
pub fn peek(first: u8) -> Speaks {
    match first {
        session::HANDSHAKE => Speaks::Tls,
        b'\r' | b'\n' => Speaks::Http,
        // The characters of a token, RFC 9110 section 5.6.2.
        b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~' => Speaks::Http,
        letter if letter.is_ascii_alphanumeric() => Speaks::Http,
        _ => Speaks::Other,
    }
}
