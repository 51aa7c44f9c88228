//! TLS for servers: settings ([`TlsConfig`]), what follows from files and follows their changes ([`Reload`]), and one
//! connection's bytes ([`Session`]).
//!
//! ```
//! use highwire_engine::tls::{Session, TlsConfig};
//!
//! let reload = TlsConfig::new().self_signed(["localhost"]).build()?;
//! let mut session = Session::accept(reload.current())?;
//! let (mut plain, mut out) = (Vec::new(), Vec::new());
//! // For all that comes from the socket; then `out` is sent, and `plain` is what the peer said.
//! # let from_the_socket = &[0x16, 3, 1];
//! let progress = session.receive(from_the_socket, &mut plain, &mut out)?;
//! assert!(session.is_handshaking());
//! # let _ = progress;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol itself is rustls with the cryptography of aws-lc-rs. Files and the clock are read when a configuration
//! is built and when [`Reload::look`] is called, and at no other time by us; rustls reads the clock for the age of
//! tickets and the validity of client certificates. docs/tls.md says what is offered.

mod config;
mod der;
mod development;
mod error;
mod load;
mod pem;
mod reload;
mod resolve;
mod session;
mod tickets;

pub use config::{ClientAuth, TICKETS_SENT, TICKETS_SENT_MAX, TlsConfig, Versions};
pub use development::SELF_SIGNED_DAYS;
pub use error::{LoadError, LoadFault, TlsError};
pub use load::{CertificateInfo, OCSP_BYTES};
pub use pem::FILE_BYTES;
pub use reload::{Looked, Reload};
pub use rustls::ServerConfig;
pub use session::{ClientCertificate, HANDSHAKE_BYTES, Progress, RECORD_BYTES, Session, Version};
pub use tickets::{TICKET_FILE_KEYS, TICKET_KEYS_KEPT, TICKET_LIFETIME, TICKET_ROTATION, Tickets};

/// What a connection's first byte says about its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// A TLS handshake.
    Tls,
    /// HTTP in the clear, or HTTP/2 with prior knowledge: a letter of a method, or an empty line before one.
    Http,
    /// Neither.
    Other,
}

/// Returns true if a connection's first byte begins a hello of SSL 2.0: a length whose highest bit is set (RFC 5246 appendix
/// E.2). No message of HTTP begins with such a byte.
pub(crate) fn is_ssl2(first: u8) -> bool {
    first & 0x80 != 0
}

/// Judges a connection by its first byte, for a port that serves both or that wants to say why it does not. TLS begins
/// with a handshake record, 22, which no HTTP message can (RFC 8446 section 5.1, RFC 9112 section 3).
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
