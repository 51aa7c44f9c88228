//! What can go wrong: when files are loaded, and on a connection.

use std::fmt;
use std::path::Path;

/// Why TLS could not be set up: which file, and what is wrong with it. The fault lies with whoever wrote the file or the
/// setting; no peer can cause one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// What was loaded, and from where: `certificate /etc/tls/site.pem`.
    pub place: String,
    /// What is wrong with it.
    pub fault: LoadFault,
}

/// What is wrong with a file or a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadFault {
    /// It cannot be read; the text is the system's.
    Unreadable(String),
    /// It has more bytes than this.
    TooLarge(u64),
    /// It is not PEM, or its base64 is broken.
    NotPem(String),
    /// It is PEM and holds no certificate.
    NoCertificate,
    /// It is PEM and holds no private key.
    NoKey,
    /// Its private key is encrypted, which would need a passphrase.
    EncryptedKey,
    /// Its private key cannot be used; the text says why.
    BadKey(String),
    /// One of its certificates cannot be used; the text says why.
    BadCertificate(String),
    /// The private key belongs to another certificate than the one in this place.
    KeyMismatch(String),
    /// It is not an OCSP response in DER.
    NotOcsp,
    /// A line of a ticket key file is wrong: its number, counted from 1, and why.
    TicketLine(usize, String),
    /// A ticket key file without a key.
    NoTicketKey,
    /// Settings that cannot be used.
    Setting(String),
}

impl LoadError {
    pub(super) fn new(place: impl Into<String>, fault: LoadFault) -> LoadError {
        LoadError { place: place.into(), fault }
    }

    pub(super) fn setting(text: impl Into<String>) -> LoadError {
        LoadError::new("settings", LoadFault::Setting(text.into()))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}: ", self.place)?;
        match &self.fault {
            LoadFault::Unreadable(why) => write!(f, "cannot be read: {why}"),
            LoadFault::TooLarge(most) => write!(f, "has more than {most} bytes"),
            LoadFault::NotPem(why) => write!(f, "is not PEM: {why}"),
            LoadFault::NoCertificate => f.write_str("holds no certificate"),
            LoadFault::NoKey => f.write_str("holds no private key"),
            LoadFault::EncryptedKey => f.write_str("its private key is encrypted; store it without a passphrase"),
            LoadFault::BadKey(why) => write!(f, "its private key cannot be used: {why}"),
            LoadFault::BadCertificate(why) => write!(f, "its certificate cannot be used: {why}"),
            LoadFault::KeyMismatch(certificate) => write!(f, "the key does not match {certificate}"),
            LoadFault::NotOcsp => f.write_str("is not an OCSP response in DER"),
            LoadFault::TicketLine(line, why) => write!(f, "line {line}: {why}"),
            LoadFault::NoTicketKey => f.write_str("holds no ticket key"),
            LoadFault::Setting(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<LoadError> for crate::Error {
    fn from(error: LoadError) -> crate::Error {
        crate::Error::Setting(error.to_string())
    }
}

/// Why a connection's TLS has ended before its time. It stays ended: every later call returns the same error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The first byte is not the beginning of a TLS handshake. The peer's fault; nothing has been sent, so that one that
    /// speaks HTTP (see [`peek`](super::peek)) can be told so in plain text.
    NotTls {
        /// The byte that came.
        first: u8,
    },
    /// The peer has sent more than [`HANDSHAKE_BYTES`](super::HANDSHAKE_BYTES) and its handshake, or a message of it, is
    /// still not whole.
    TooMuchHandshake,
    /// The peer has sent a fatal alert: it does not want what it was sent. The text is the alert's name.
    Refused(String),
    /// The peer's bytes are not what TLS allows here, or there is nothing that both sides support.
    Peer(String),
    /// Something on our side failed: no randomness, no clock, keys used up.
    Local(String),
    /// Our caller sends while the handshake is not done or after it has closed; nothing is sent.
    NotOpen,
}

impl TlsError {
    /// Whether the peer is to blame, rather than us or our caller.
    pub fn is_peers_fault(&self) -> bool {
        !matches!(self, TlsError::Local(_) | TlsError::NotOpen)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::NotTls { first } => write!(f, "the peer does not speak TLS: its first byte is {first:#04x}"),
            TlsError::TooMuchHandshake => f.write_str("the peer's handshake is too long"),
            TlsError::Refused(alert) => write!(f, "the peer refused: {alert}"),
            TlsError::Peer(what) => write!(f, "the peer broke TLS: {what}"),
            TlsError::Local(what) => write!(f, "our TLS failed: {what}"),
            TlsError::NotOpen => f.write_str("sending on a TLS session that is not open"),
        }
    }
}

impl std::error::Error for TlsError {}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        use rustls::Error as E;
        match &error {
            E::AlertReceived(alert) => TlsError::Refused(format!("{alert:?}")),
            // `General` is what rustls says where a client can verify nothing that our key can sign.
            E::EncryptError
            | E::FailedToGetCurrentTime
            | E::FailedToGetRandomBytes
            | E::HandshakeNotComplete
            | E::BadMaxFragmentSize
            | E::InconsistentKeys(_)
            | E::Other(_) => TlsError::Local(error.to_string()),
            _ => TlsError::Peer(error.to_string()),
        }
    }
}

/// What an error says of a file.
pub(super) fn place(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}
