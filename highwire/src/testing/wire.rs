//! What carries a request under test: the link as it is, or TLS upon it.

#[cfg(feature = "tls")]
pub(super) use tls::{Wire, Wires};

#[cfg(not(feature = "tls"))]
pub(super) use clear::{Wire, Wires};

#[cfg(not(feature = "tls"))]
mod clear {
    /// Makes wires.
    pub(in crate::testing) struct Wires;

    /// The link itself.
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

#[cfg(feature = "tls")]
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

    /// The name of the server, where a request names no other.
    const NAME: &str = "test";

    impl Client {
        /// Starts the app under TLS, with a certificate that is made for it: requests come by `https`, and
        /// [`Tls`](crate::Tls) is that of a client without a certificate. What those in the clear are answered, such as
        /// redirects, is seen by [`new`](Self::new).
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
        /// A mistake in its routes or settings, or that no certificate can be made.
        pub fn https(app: App) -> Result<Client> {
            let listen = Listen::new().tls(TlsConfig::new().self_signed([NAME]));
            Client::start(app.server()?, listen, Wires(Some(config())))
        }
    }

    /// Makes wires: in the clear, or under TLS.
    pub(in crate::testing) struct Wires(Option<Arc<ClientConfig>>);

    /// A session on the link, or the link itself.
    pub(in crate::testing) struct Wire {
        session: Option<ClientConnection>,
        /// The server has said that it sends no more.
        closed: bool,
    }

    impl Wires {
        pub(in crate::testing) fn clear() -> Wires {
            Wires(None)
        }

        /// A wire to a host: its name is what the server is asked for.
        pub(in crate::testing) fn wire(&self, host: &[u8]) -> Wire {
            let begin = |config: &Arc<ClientConfig>| {
                let host = std::str::from_utf8(host).unwrap_or_default();
                let named = ServerName::try_from(host.split(':').next().unwrap_or_default().to_string());
                let name = named.or_else(|_| ServerName::try_from(NAME)).expect("the usual name is one");
                let mut session = ClientConnection::new(config.clone(), name).expect("a client of TLS");
                session.set_buffer_limit(None);
                session
            };
            Wire { session: self.0.as_ref().map(begin), closed: false }
        }
    }

    impl Wire {
        /// Says something; `out` is what goes over the link.
        pub(in crate::testing) fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
            match &mut self.session {
                None => out.extend_from_slice(plain),
                Some(session) => {
                    session.writer().write_all(plain).expect("its buffer has no limit");
                    flush(session, out);
                }
            }
        }

        /// Hears what came over the link; `out` is what the session itself says to that.
        pub(in crate::testing) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) {
            let Some(session) = &mut self.session else { return plain.extend_from_slice(bytes) };
            while !bytes.is_empty() {
                session.read_tls(&mut bytes).expect("bytes in memory");
                let state = session.process_new_packets().expect("a server that speaks TLS");
                let read = session.reader().take(state.plaintext_bytes_to_read() as u64).read_to_end(plain);
                read.expect("what the session has");
                self.closed = state.peer_has_closed();
            }
            flush(session, out);
        }

        /// Whether an end of the link means that the server has said all: under TLS it says so itself.
        pub(in crate::testing) fn may_end(&self) -> bool {
            self.session.is_none() || self.closed
        }
    }

    fn flush(session: &mut ClientConnection, out: &mut Vec<u8>) {
        while session.wants_write() {
            session.write_tls(out).expect("memory");
        }
    }

    /// Every request begins a session of its own, as it has a connection of its own.
    fn config() -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions that the provider has");
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(TakesAll));
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    /// Takes every certificate: nobody else can be at the other end of a link in memory.
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
