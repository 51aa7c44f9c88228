//! The transport of the test client: the simulated link itself, or TLS over it.

#[cfg(feature = "self-signed")]
pub(super) use tls::{Wire, Wires};

#[cfg(not(feature = "self-signed"))]
pub(super) use clear::{Wire, Wires};

#[cfg(not(feature = "self-signed"))]
mod clear {
    /// Makes the [`Wire`] of each connection.
    pub(in crate::testing) struct Wires;

    /// The link without TLS, which passes bytes on unchanged.
    pub(in crate::testing) struct Wire;

    impl Wires {
        pub(in crate::testing) fn clear() -> Wires {
            Wires
        }

        pub(in crate::testing) fn wire(&self, _host: &[u8]) -> Wire {
            Wire
        }
    }

    impl Wire {
        pub(in crate::testing) fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(plain);
        }

        pub(in crate::testing) fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, _out: &mut Vec<u8>) {
            plain.extend_from_slice(bytes);
        }

        pub(in crate::testing) fn may_end(&self) -> bool {
            true
        }
    }
}

#[cfg(feature = "self-signed")]
mod tls {
    use crate::server::Listen;
    use crate::testing::Client;
    use crate::tls::TlsConfig;
    use crate::{App, Result};
    use rustls::client::Resumption;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
    use std::io::{Read, Write};
    use std::sync::Arc;

    /// The name in the server's certificate. The client also asks for it if a request's `Host` is not a valid name.
    const NAME: &str = "test";

    impl Client {
        /// Starts the app under TLS, with a self-signed certificate. Requests use `https` and have no client
        /// certificate. To test responses to plain HTTP, such as redirects to HTTPS, use [`new`](Self::new).
        ///
        /// ```
        /// use highwire::testing::Client;
        /// use highwire::{App, Scheme, Tls};
        ///
        /// let app = App::new().get("/", |Scheme(scheme): Scheme, tls: Tls| format!("{scheme}, {}", tls.version));
        /// assert_eq!(Client::https(app)?.get("/").send().text(), "https, TLSv1.3");
        /// # Ok::<(), highwire::Error>(())
        /// ```
        ///
        /// # Errors
        /// Returns an error if the app's routes or settings are wrong, or if the certificate cannot be made.
        pub fn https(app: App) -> Result<Client> {
            let listen = Listen::new().tls(TlsConfig::new().self_signed([NAME]));
            Client::start(app, listen, Wires(Some(config())))
        }
    }

    /// Makes the [`Wire`] of each connection, with TLS if there is a configuration for it.
    pub(in crate::testing) struct Wires(Option<Arc<ClientConfig>>);

    /// The link, with or without a TLS session over it.
    pub(in crate::testing) struct Wire {
        session: Option<ClientConnection>,
        /// True if the server has sent `close_notify`, the end of its TLS data.
        closed: bool,
    }

    impl Wires {
        pub(in crate::testing) fn clear() -> Wires {
            Wires(None)
        }

        /// Makes a wire for one connection. Under TLS, the client asks for the name in `host` (SNI), or for [`NAME`] if
        /// that is not valid.
        pub(in crate::testing) fn wire(&self, host: &[u8]) -> Wire {
            let begin = |config: &Arc<ClientConfig>| {
                let host = std::str::from_utf8(host).unwrap_or_default();
                let named = ServerName::try_from(host.split(':').next().unwrap_or_default().to_string());
                let name = named.or_else(|_| ServerName::try_from(NAME)).expect("the default name is valid");
                let mut session = ClientConnection::new(config.clone(), name).expect("a TLS client");
                session.set_buffer_limit(None);
                session
            };
            Wire { session: self.0.as_ref().map(begin), closed: false }
        }
    }

    impl Wire {
        /// Sends plaintext by appending the bytes for the link to `out`.
        pub(in crate::testing) fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
            match &mut self.session {
                None => out.extend_from_slice(plain),
                Some(session) => {
                    session.writer().write_all(plain).expect("the session's buffer has no limit");
                    flush(session, out);
                }
            }
        }

        /// Takes bytes from the link. Appends their plaintext to `plain`, and the session's replies to `out`.
        pub(in crate::testing) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) {
            let Some(session) = &mut self.session else { return plain.extend_from_slice(bytes) };
            while !bytes.is_empty() {
                session.read_tls(&mut bytes).expect("reading from memory does not fail");
                let state = session.process_new_packets().expect("the server speaks TLS");
                let read = session.reader().take(state.plaintext_bytes_to_read() as u64).read_to_end(plain);
                read.expect("the session has this plaintext");
                self.closed = state.peer_has_closed();
            }
            flush(session, out);
        }

        /// Returns true if the link may end now: always without TLS; with TLS after `close_notify`, because an end
        /// before it is a truncation.
        pub(in crate::testing) fn may_end(&self) -> bool {
            self.session.is_none() || self.closed
        }
    }

    fn flush(session: &mut ClientConnection, out: &mut Vec<u8>) {
        while session.wants_write() {
            session.write_tls(out).expect("writing to memory does not fail");
        }
    }

    /// Returns the client's TLS settings. Sessions are not resumed, so each request has a full handshake.
    fn config() -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("the provider has the default versions");
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(TakesAll));
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    /// Accepts every certificate, because only the server under test can be at the other end of a link in memory.
    #[derive(Debug)]
    struct TakesAll;

    impl ServerCertVerifier for TakesAll {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> std::result::Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
}
