//! A connection's TLS, between the bytes of its socket and those of HTTP. Without the feature `tls` there is none, and the
//! type has no values: whatever asks for one costs nothing.

use bytes::Bytes;

/// A listener's TLS.
#[cfg(feature = "tls")]
#[derive(Clone)]
pub(crate) struct ListenerTls {
    pub(crate) reload: std::sync::Arc<crate::tls::Reload>,
    /// Connections in the clear are served too.
    pub(crate) plain_too: bool,
}

#[cfg(feature = "tls")]
impl ListenerTls {
    pub(crate) fn new(reload: crate::tls::Reload, plain_too: bool) -> ListenerTls {
        ListenerTls { reload: std::sync::Arc::new(reload), plain_too }
    }
}

/// There is none.
#[cfg(not(feature = "tls"))]
pub(crate) type ListenerTls = std::convert::Infallible;

/// What came of received bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heard {
    /// The handshake has just been completed.
    pub(crate) opened: bool,
    /// The peer has said that it sends no more.
    pub(crate) ended: bool,
}

/// Why a session ended before its time.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS there are no sessions"))]
pub(crate) enum Fault {
    /// The peer does not speak TLS: it can be told so in the clear.
    NotTls,
    /// Anything else, in words. What the peer has to be told is in the output.
    Failed(String),
}

#[cfg(feature = "tls")]
pub(crate) use with_tls::Secure;

#[cfg(not(feature = "tls"))]
pub(crate) use without::Secure;

#[cfg(feature = "tls")]
mod with_tls {
    use super::{Bytes, Fault, Heard, ListenerTls};
    use crate::caller::{ClientCertificate, Tls as Facts};
    use crate::quiet;
    use crate::tls::{Progress, Session, Speaks, TlsError, is_ssl2, peek};

    /// A fatal `protocol_version` in the clear (RFC 5246 section 7.2.2), in a record of TLS 1.0: clients that begin as SSL 2.0
    /// did read it, and would take an answer of HTTP for a broken record.
    const PROTOCOL_VERSION: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 70];

    /// A session, with a buffer that is lent to it while it is used.
    pub(crate) struct Secure {
        session: Session,
        pub(crate) scratch: Vec<u8>,
        opened: bool,
        /// Something could not be encrypted: what was to be said is lost, and so is the connection.
        pub(crate) broken: bool,
        /// Nothing has come yet, and what comes may be in the clear.
        plain_too: bool,
    }

    impl Secure {
        /// A session for a connection that has come; `None`, with a word in the log, where the configuration cannot be used.
        pub(crate) fn accept(tls: &ListenerTls) -> Option<Box<Secure>> {
            let plain_too = tls.plain_too;
            match Session::accept(tls.reload.current()) {
                Ok(session) => {
                    Some(Box::new(Secure { session, scratch: Vec::new(), opened: false, broken: false, plain_too }))
                }
                Err(error) => {
                    quiet::log!(Failure, error, %error, "a TLS connection could not be begun");
                    None
                }
            }
        }

        /// Whether these first bytes show that the peer speaks in the clear, and may.
        pub(crate) fn is_declined(&mut self, first: &[u8]) -> bool {
            let is_plain = |&byte: &u8| peek(byte) != Speaks::Tls && !is_ssl2(byte);
            std::mem::take(&mut self.plain_too) && first.first().is_some_and(is_plain)
        }

        /// Takes what came; plaintext is appended to `plain`, what has to be sent as it is to `raw`.
        pub(crate) fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, raw: &mut Vec<u8>) -> Result<Heard, Fault> {
            let progress = self.session.receive(bytes, plain, raw).map_err(|error| match error {
                TlsError::NotTls { first } if is_ssl2(first) => {
                    raw.extend_from_slice(&PROTOCOL_VERSION);
                    Fault::Failed("the peer speaks SSL 2.0".to_string())
                }
                TlsError::NotTls { .. } => Fault::NotTls,
                error => Fault::Failed(error.to_string()),
            })?;
            let stands = !self.session.is_handshaking();
            Ok(Heard {
                opened: stands && !std::mem::replace(&mut self.opened, stands),
                ended: matches!(progress, Progress::PeerClosed | Progress::Closed),
            })
        }

        /// Whether these bytes make the first record that is not whole, so that there is something to work on.
        pub(crate) fn completes_record(&self, bytes: &[u8]) -> bool {
            self.session.completes_record(bytes)
        }

        /// Bytes that it holds of records that are not whole.
        pub(crate) fn held(&self) -> usize {
            self.session.held_bytes()
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
                self.broken = true;
            }
            output.truncate(start);
            output.extend_from_slice(&self.scratch);
        }

        /// The bytes, encrypted.
        pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Bytes {
            let mut sealed = Vec::with_capacity(bytes.len() + bytes.len() / 256 + 64);
            if let Err(error) = self.session.send(bytes, &mut sealed) {
                tracing::debug!(%error, "an answer could not be encrypted");
                self.broken = true;
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

        /// Returns true if no protocol was agreed on, because the client offered none.
        pub(crate) fn negotiated_nothing(&self) -> bool {
            self.session.alpn().is_none()
        }

        /// What logs and handlers are told.
        pub(crate) fn facts(&self) -> Facts {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let client = self.session.client_certificate();
            Facts {
                version: self.session.version().map_or("", |version| version.as_str()),
                cipher: self.session.cipher().unwrap_or(""),
                server_name: self.session.server_name().map(str::to_string),
                alpn: self.session.alpn().map(text),
                resumed: self.session.is_resumed(),
                client: client.map(|certificate| ClientCertificate {
                    subject: certificate.subject(),
                    names: certificate.names(),
                    der: certificate.der().to_vec(),
                }),
            }
        }
    }
}

#[cfg(not(feature = "tls"))]
mod without {
    use super::{Bytes, Fault, Heard};
    use crate::caller::Tls as Facts;

    /// There is none.
    pub(crate) struct Secure {
        pub(crate) scratch: Vec<u8>,
        pub(crate) broken: bool,
        never: std::convert::Infallible,
    }

    impl Secure {
        pub(crate) fn is_declined(&mut self, _: &[u8]) -> bool {
            match self.never {}
        }
        pub(crate) fn receive(&mut self, _: &[u8], _: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Heard, Fault> {
            match self.never {}
        }
        pub(crate) fn completes_record(&self, _: &[u8]) -> bool {
            match self.never {}
        }
        pub(crate) fn held(&self) -> usize {
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
        pub(crate) fn negotiated_nothing(&self) -> bool {
            match self.never {}
        }
        pub(crate) fn facts(&self) -> Facts {
            match self.never {}
        }
    }
}
