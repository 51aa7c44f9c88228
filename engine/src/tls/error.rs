//! The errors of loading TLS files and of TLS connections.

use std::fmt;
use std::path::Path;

/// An error in the TLS settings or in one of the files that they name. The operator of the server must fix it; no peer
/// can cause one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadError {
    /// The item that was to be loaded and its source, such as `certificate /etc/tls/site.pem`.
    pub place: String,
    /// The fault of that item.
    pub fault: LoadFault,
}

/// The fault of a file or a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadFault {
    /// The file cannot be read. Contains the system's error text.
    Unreadable(String),
    /// The file has more than this number of bytes.
    TooLarge(u64),
    /// The file is not PEM, or its base64 is broken. Contains the reason.
    NotPem(String),
    /// The file is PEM and holds no certificate.
    NoCertificate,
    /// The file is PEM and holds no private key.
    NoKey,
    /// The private key is encrypted. The server cannot ask for a passphrase.
    EncryptedKey,
    /// The private key cannot be used. Contains the reason.
    BadKey(String),
    /// One of the certificates cannot be used. Contains the reason.
    BadCertificate(String),
    /// The private key does not match the certificate. Contains the certificate's source.
    KeyMismatch(String),
    /// The file is not an OCSP response in DER.
    NotOcsp,
    /// A line of a ticket key file is wrong. Contains the line's number, counted from 1, and the reason.
    TicketLine(usize, String),
    /// The ticket key file holds no key.
    NoTicketKey,
    /// The settings cannot be used. Contains the reason.
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
            LoadFault::EncryptedKey => f.write_str("its private key is encrypted, and the server cannot ask for the passphrase; write it without one: openssl pkey -in FILE -out NEW"),
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

/// The error of a TLS session. Every later call of `receive` or `send` returns the same error, except after
/// [`NotOpen`](Self::NotOpen), which does not end the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer's first byte does not begin TLS. A server has sent nothing yet, so it can answer a client that speaks
    /// HTTP (see [`peek`](super::peek)) in plain text.
    NotTls {
        /// The first byte received.
        first: u8,
    },
    /// The peer has sent more than [`HANDSHAKE_BYTES`](super::HANDSHAKE_BYTES) without completing its handshake or,
    /// after that, a record or message.
    TooMuchHandshake,
    /// The peer has ended the session with a fatal alert. Contains the alert's name.
    Refused(String),
    /// The peer has broken the rules of TLS, its certificate is refused, or both sides support nothing in common.
    /// Contains the reason.
    Peer(String),
    /// This side has failed, for example because it has no random bytes or no clock, or because the session's keys are
    /// used up. Contains the reason.
    Local(String),
    /// The caller tried to send before the end of the handshake or after it had closed the session. Nothing was sent.
    NotOpen,
}

impl TlsError {
    /// Returns true if the peer has caused the error, and not this side or its caller.
    pub fn is_peers_fault(&self) -> bool {
        !matches!(self, TlsError::Local(_) | TlsError::NotOpen)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::NotTls { first } => write!(f, "the peer does not speak TLS: its first byte is {first:#04x}"),
            TlsError::TooMuchHandshake => f.write_str("the peer's handshake or message is too long"),
            TlsError::Refused(alert) => write!(f, "the peer sent the fatal alert {alert}"),
            TlsError::Peer(what) => write!(f, "TLS failed because of the peer: {what}"),
            TlsError::Local(what) => write!(f, "TLS failed on this side: {what}"),
            TlsError::NotOpen => f.write_str("cannot send: the TLS session is not open"),
        }
    }
}

impl std::error::Error for TlsError {}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        use rustls::Error as E;
        match &error {
            E::AlertReceived(alert) => TlsError::Refused(format!("{alert:?}")),
            // `General` is not among these, because rustls returns it if the client cannot verify a signature of our
            // key, so it counts as the peer's fault.
            E::EncryptError
            | E::FailedToGetCurrentTime
            | E::FailedToGetRandomBytes
            | E::HandshakeNotComplete
            | E::BadMaxFragmentSize
            | E::InconsistentKeys(_)
            | E::Other(_) => TlsError::Local(error.to_string()),
            // rustls has no variant for this error of its verifier.
            E::InvalidCertificate(_) if error.to_string().contains("CaUsedAsEndEntity") => {
                TlsError::Peer(CA_AS_LEAF.to_owned())
            }
            _ => TlsError::Peer(error.to_string()),
        }
    }
}

/// The error for a certificate that `openssl req -x509` makes by default.
const CA_AS_LEAF: &str = "the peer's certificate is that of an authority (CA:TRUE), which must not be used by a server or a client \
    itself: issue one with it, or make it with `openssl req -x509 -addext basicConstraints=critical,CA:FALSE`";

/// Returns the place in a [`LoadError`]: the kind of the item and the path of its file.
pub(super) fn place(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}
