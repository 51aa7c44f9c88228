//! The TLS session of a connection, which decrypts the bytes from the socket and encrypts the bytes of HTTP. Without
//! the feature `tls`, the type `Secure` has no values, so the compiler can remove the code that uses it.

use bytes::Bytes;

/// The TLS configuration of a listener.
#[cfg(feature = "tls")]
#[derive(Clone)]
pub(crate) struct ListenerTls {
    pub(crate) reload: std::sync::Arc<crate::tls::Reload>,
    /// True if connections without TLS are served too.
    pub(crate) plain_too: bool,
}

#[cfg(feature = "tls")]
impl ListenerTls {
    pub(crate) fn new(reload: crate::tls::Reload, plain_too: bool) -> ListenerTls {
        ListenerTls { reload: std::sync::Arc::new(reload), plain_too }
    }
}

/// The TLS configuration of a listener, of which there is none without the feature `tls`.
#[cfg(not(feature = "tls"))]
pub(crate) type ListenerTls = std::convert::Infallible;

/// The effects of received bytes on a session.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heard {
    /// True if the received bytes have completed the handshake.
    pub(crate) opened: bool,
    /// True if the peer has sent close_notify, or we have closed the session.
    pub(crate) ended: bool,
}

/// The reason why a session has failed.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS there are no sessions"))]
pub(crate) enum Fault {
    /// The peer does not speak TLS. It can get an answer without TLS.
    NotTls,
    /// Any other failure, as text. The alert for the peer, if there is one, has been appended to the records to send.
    Failed(String),
}

#[cfg(feature = "tls")]
pub(crate) use with_tls::Secure;

#[cfg(not(feature = "tls"))]
pub(crate) use without::Secure;

#[cfg(feature = "tls")]
mod with_tls {
    use super::{Bytes, Fault, Heard, ListenerTls};
    use crate::message::caller::{ClientCertificate, Tls as Facts};
    use crate::runtime::rate_limited;
    use crate::tls::{Client, Progress, Server, ServerName, Session, Speaks, TlsError, is_ssl2, peek};
    use std::sync::Arc;

    /// An unencrypted fatal alert `protocol_version` (RFC 5246 section 7.2.2) in a record of TLS 1.0. Clients that
    /// begin with an SSL 2.0 hello understand it, and would take an HTTP response for a broken record.
    const PROTOCOL_VERSION: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 70];

    /// A session of either side.
    enum Either {
        Server(Session<Server>),
        Client(Session<Client>),
    }

    /// Evaluates an expression with the session of either side.
    macro_rules! session {
        ($self:ident, $session:ident => $value:expr) => {
            match &$self.session {
                Either::Server($session) => $value,
                Either::Client($session) => $value,
            }
        };
        (mut $self:ident, $session:ident => $value:expr) => {
            match &mut $self.session {
                Either::Server($session) => $value,
                Either::Client($session) => $value,
            }
        };
    }

    /// A TLS session, with a scratch buffer that the worker lends to it while it is used.
    pub(crate) struct Secure {
        session: Either,
        pub(crate) scratch: Vec<u8>,
        opened: bool,
        /// True if bytes could not be encrypted. They are lost, and the connection must be cut.
        pub(crate) broken: bool,
        /// True if no bytes have been received yet, and the connection may be one without TLS.
        plain_too: bool,
    }

    impl Secure {
        /// Creates a session for an accepted connection. Logs an error and returns `None` if the configuration cannot
        /// be used.
        pub(crate) fn accept(tls: &ListenerTls) -> Option<Box<Secure>> {
            let plain_too = tls.plain_too;
            match Session::accept(tls.reload.current()) {
                Ok(session) => Some(Box::new(Secure::new(Either::Server(session), plain_too))),
                Err(error) => {
                    rate_limited::log!(Failure, error, %error, "cannot begin a TLS session");
                    None
                }
            }
        }

        /// Creates a session with the server that has `name`. Appends the records to send first to `raw`.
        pub(crate) fn connect(
            config: Arc<crate::tls::ClientConfig>,
            name: ServerName<'static>,
            raw: &mut Vec<u8>,
        ) -> Result<Box<Secure>, TlsError> {
            let session = Session::connect(config, name, raw)?;
            Ok(Box::new(Secure::new(Either::Client(session), false)))
        }

        fn new(session: Either, plain_too: bool) -> Secure {
            Secure { session, scratch: Vec::new(), opened: false, broken: false, plain_too }
        }

        /// Returns true if these first bytes are not TLS, and connections without TLS are served. Later calls return
        /// false.
        pub(crate) fn is_declined(&mut self, first: &[u8]) -> bool {
            let is_plain = |&byte: &u8| peek(byte) != Speaks::Tls && !is_ssl2(byte);
            std::mem::take(&mut self.plain_too) && first.first().is_some_and(is_plain)
        }

        /// Decrypts received bytes. Appends the plaintext to `plain`, and the records to send to the peer to `raw`.
        pub(crate) fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, raw: &mut Vec<u8>) -> Result<Heard, Fault> {
            let progress =
                session!(mut self, session => session.receive(bytes, plain, raw)).map_err(|error| match error {
                    TlsError::NotTls { first } if is_ssl2(first) => {
                        raw.extend_from_slice(&PROTOCOL_VERSION);
                        Fault::Failed("the peer speaks SSL 2.0".to_string())
                    }
                    TlsError::NotTls { .. } => Fault::NotTls,
                    error => Fault::Failed(error.to_string()),
                })?;
            let stands = !self.is_handshaking();
            Ok(Heard {
                opened: stands && !std::mem::replace(&mut self.opened, stands),
                ended: matches!(progress, Progress::PeerClosed | Progress::Closed),
            })
        }

        /// Returns true if these bytes complete the first incomplete record, so that it can be processed.
        pub(crate) fn completes_record(&self, bytes: &[u8]) -> bool {
            session!(self, session => session.completes_record(bytes))
        }

        /// Returns the number of bytes that the session holds for incomplete records.
        pub(crate) fn held(&self) -> usize {
            session!(self, session => session.held_bytes())
        }

        /// Returns true if the handshake is not complete.
        pub(crate) fn is_handshaking(&self) -> bool {
            session!(self, session => session.is_handshaking())
        }

        /// Encrypts the output from `start` on, in place. If that fails, sets `broken` and drops the bytes that are not
        /// encrypted.
        pub(crate) fn seal(&mut self, output: &mut Vec<u8>, start: usize) {
            self.scratch.clear();
            if let Err(error) = session!(mut self, session => session.send(&output[start..], &mut self.scratch)) {
                tracing::debug!(%error, "cannot encrypt a response");
                self.broken = true;
            }
            output.truncate(start);
            output.extend_from_slice(&self.scratch);
        }

        /// Encrypts `bytes` and returns the records. If that fails, sets `broken`, because some of the bytes are lost.
        pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Bytes {
            let mut sealed = Vec::with_capacity(bytes.len() + bytes.len() / 256 + 64);
            if let Err(error) = session!(mut self, session => session.send(bytes, &mut sealed)) {
                tracing::debug!(%error, "cannot encrypt a response");
                self.broken = true;
            }
            sealed.into()
        }

        /// Appends a close_notify to the output, if the session can still send one.
        pub(crate) fn close(&mut self, output: &mut Vec<u8>) {
            session!(mut self, session => session.close(output));
        }

        /// Returns true if both sides agreed on HTTP/2.
        pub(crate) fn speaks_http2(&self) -> bool {
            session!(self, session => session.alpn()) == Some(b"h2")
        }

        /// Returns true if no protocol was agreed on, usually because the client offered none.
        pub(crate) fn negotiated_nothing(&self) -> bool {
            session!(self, session => session.alpn()).is_none()
        }

        /// Returns the facts of the session for logs and handlers.
        pub(crate) fn facts(&self) -> Facts {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let client = match &self.session {
                Either::Server(session) => session.client_certificate(),
                Either::Client(_) => None,
            };
            let version = session!(self, session => session.version());
            Facts {
                version: version.map_or("", |version| version.as_str()),
                cipher: session!(self, session => session.cipher()).unwrap_or(""),
                server_name: session!(self, session => session.server_name()).map(str::to_string),
                alpn: session!(self, session => session.alpn()).map(text),
                resumed: session!(self, session => session.is_resumed()),
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
    use crate::message::caller::Tls as Facts;

    /// A TLS session, of which there is none without the feature `tls`.
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
