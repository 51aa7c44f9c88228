//! A connection's TLS, between the bytes of its socket and those of HTTP. Without the feature `tls` there is none, and the
//! type has no values: whatever asks for one costs nothing.

use bytes::Bytes;

/// What came of received bytes.
pub(crate) enum Heard {
    /// The handshake goes on.
    Handshaking,
    /// The handshake has just been completed.
    Opened,
    /// It was complete before.
    Open,
    /// The peer has said that it sends no more.
    PeerClosed,
}

/// Why a session ended before its time.
pub(crate) enum Fault {
    /// The peer does not speak TLS: it can be told so in the clear.
    NotTls,
    /// Anything else, in words. What the peer has to be told is in the output.
    Failed(String),
}

/// What is said of a session in logs and to handlers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) version: &'static str,
    pub(crate) cipher: &'static str,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) subject: Option<String>,
}

#[cfg(feature = "tls")]
pub(crate) use with_tls::Secure;

#[cfg(not(feature = "tls"))]
pub(crate) use without::Secure;

#[cfg(feature = "tls")]
mod with_tls {
    use super::{Bytes, Facts, Fault, Heard};
    use crate::tls::{Progress, Reload, Session, TlsError};

    /// A session, with a buffer that is lent to it while it is used.
    pub(crate) struct Secure {
        session: Session,
        pub(crate) scratch: Vec<u8>,
        opened: bool,
    }

    impl Secure {
        /// A session for a connection that has come; `None`, with a word in the log, where the configuration cannot be used.
        pub(crate) fn accept(reload: &Reload) -> Option<Box<Secure>> {
            match Session::accept(reload.current()) {
                Ok(session) => Some(Box::new(Secure { session, scratch: Vec::new(), opened: false })),
                Err(error) => {
                    tracing::error!(%error, "a TLS connection could not be begun");
                    None
                }
            }
        }

        /// Takes what came; plaintext is appended to `plain`, what has to be sent as it is to `raw`.
        pub(crate) fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, raw: &mut Vec<u8>) -> Result<Heard, Fault> {
            let progress = self.session.receive(bytes, plain, raw).map_err(|error| match error {
                TlsError::NotTls { .. } => Fault::NotTls,
                error => Fault::Failed(error.to_string()),
            })?;
            Ok(match progress {
                Progress::Handshaking => Heard::Handshaking,
                Progress::PeerClosed | Progress::Closed => Heard::PeerClosed,
                Progress::Open if std::mem::replace(&mut self.opened, true) => Heard::Open,
                Progress::Open => Heard::Opened,
            })
        }

        /// Whether the handshake is not complete.
        pub(crate) fn is_handshaking(&self) -> bool {
            self.session.is_handshaking()
        }

        /// Encrypts the end of the output, from `start` on, in place. A session that cannot (it has ended) sends nothing.
        pub(crate) fn seal(&mut self, output: &mut Vec<u8>, start: usize) {
            self.scratch.clear();
            if let Err(error) = self.session.send(&output[start..], &mut self.scratch) {
                tracing::debug!(%error, "an answer could not be encrypted");
            }
            output.truncate(start);
            output.extend_from_slice(&self.scratch);
        }

        /// The bytes, encrypted.
        pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Bytes {
            let mut sealed = Vec::with_capacity(bytes.len() + bytes.len() / 256 + 64);
            if let Err(error) = self.session.send(bytes, &mut sealed) {
                tracing::debug!(%error, "an answer could not be encrypted");
            }
            sealed.into()
        }

        /// Says that nothing more is sent, at the end of the output.
        pub(crate) fn close(&mut self, output: &mut Vec<u8>) {
            self.session.close(output);
        }

        /// Whether both sides agreed on HTTP/2.
        pub(crate) fn speaks_http2(&self) -> bool {
            self.session.alpn() == Some(b"h2")
        }

        /// What logs and handlers are told.
        pub(crate) fn facts(&self) -> Facts {
            Facts {
                version: self.session.version().map_or("", |version| version.as_str()),
                cipher: self.session.cipher().unwrap_or(""),
                server_name: self.session.server_name().map(Box::from),
                subject: self.session.client_certificate().and_then(|certificate| certificate.subject()),
            }
        }
    }
}

#[cfg(not(feature = "tls"))]
mod without {
    use super::{Bytes, Facts, Fault, Heard};

    /// There is none.
    pub(crate) struct Secure {
        pub(crate) scratch: Vec<u8>,
        never: std::convert::Infallible,
    }

    impl Secure {
        pub(crate) fn receive(&mut self, _: &[u8], _: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Heard, Fault> {
            match self.never {}
        }
        pub(crate) fn is_handshaking(&self) -> bool {
            match self.never {}
        }
        pub(crate) fn seal(&mut self, _: &mut Vec<u8>, _: usize) {
            match self.never {}
        }
        pub(crate) fn sealed(&mut self, _: &[u8]) -> Bytes {
            match self.never {}
        }
        pub(crate) fn close(&mut self, _: &mut Vec<u8>) {
            match self.never {}
        }
        pub(crate) fn speaks_http2(&self) -> bool {
            match self.never {}
        }
        pub(crate) fn facts(&self) -> Facts {
            match self.never {}
        }
    }
}
