//! Tests of a client's and a server's TLS session that exchange bytes in memory.

use crate::signed::self_signed;
use highwire_engine::tls::{Client, Progress, Server, Session, TlsError, Version, Versions};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Returns a server's and a client's configuration, with a certificate for `localhost` that the client trusts.
fn configs(versions: Versions) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let (server, client) = self_signed(&[b"h2", b"http/1.1"]);
    let server = server.versions(versions).build().expect("a configuration").current();
    (server, Arc::new(client))
}

/// A server's and a client's session, the bytes on their way to each of them, and the bytes that each has decrypted.
struct Pair {
    server: Session<Server>,
    client: Session<Client>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    at_server: Vec<u8>,
    at_client: Vec<u8>,
}

impl Pair {
    fn new((server, client): (Arc<ServerConfig>, Arc<ClientConfig>), name: &'static str) -> Pair {
        let mut to_server = Vec::new();
        let name = ServerName::try_from(name).expect("a name");
        Pair {
            client: Session::connect(client, name, &mut to_server).expect("a session"),
            server: Session::accept(server).expect("a session"),
            to_server,
            to_client: Vec::new(),
            at_server: Vec::new(),
            at_client: Vec::new(),
        }
    }

    /// Passes the bytes of both sides on in pieces of at most `size` bytes, until neither side has any to send. Returns
    /// the first error and the side that it occurred on.
    fn pass(&mut self, size: usize) -> Result<(), (&'static str, TlsError)> {
        while !self.to_server.is_empty() || !self.to_client.is_empty() {
            for piece in std::mem::take(&mut self.to_server).chunks(size) {
                let received = self.server.receive(piece, &mut self.at_server, &mut self.to_client);
                let _ = received.map_err(|error| ("server", error))?;
            }
            for piece in std::mem::take(&mut self.to_client).chunks(size) {
                let received = self.client.receive(piece, &mut self.at_client, &mut self.to_server);
                let _ = received.map_err(|error| ("client", error))?;
            }
        }
        Ok(())
    }
}

#[test]
fn a_client_and_a_server_agree_send_both_ways_and_close() {
    for (versions, version) in [(Versions::Tls13, Version::Tls13), (Versions::Tls12, Version::Tls12)] {
        for size in [1, 7, 100_000] {
            let mut pair = Pair::new(configs(versions), "localhost");
            assert_eq!(pair.client.send(b"early", &mut pair.to_server), Err(TlsError::NotOpen));
            pair.pass(size).expect("a handshake");
            assert_eq!((pair.client.progress(), pair.server.progress()), (Progress::Open, Progress::Open));
            assert_eq!((pair.client.version(), pair.server.version()), (Some(version), Some(version)));
            assert_eq!((pair.client.alpn(), pair.server.alpn()), (Some(&b"h2"[..]), Some(&b"h2"[..])));
            assert_eq!((pair.client.server_name(), pair.server.server_name()), (Some("localhost"), Some("localhost")));
            assert_eq!(pair.client.server_certificates().expect("a chain").count(), 1);
            assert!(pair.server.client_certificate().is_none());
            let (question, answer) = (vec![b'q'; 20_000], vec![b'a'; 40_000]);
            pair.client.send(&question, &mut pair.to_server).expect("it is open");
            pair.server.send(&answer, &mut pair.to_client).expect("it is open");
            pair.pass(size).expect("both ways");
            assert!(pair.at_server == question && pair.at_client == answer);
            pair.client.close(&mut pair.to_server);
            pair.pass(size).expect("the end");
            assert_eq!((pair.client.progress(), pair.server.progress()), (Progress::Closed, Progress::PeerClosed));
        }
    }
}

#[test]
fn a_client_refuses_a_certificate_for_another_name_and_the_server_learns_it() {
    let mut pair = Pair::new(configs(Versions::Tls13), "other.example");
    let (side, error) = pair.pass(100_000).expect_err("the certificate is for localhost");
    assert_eq!(side, "client");
    assert!(matches!(&error, TlsError::Peer(why) if why.contains("certificate")), "{error}");
    let (side, error) = pair.pass(100_000).expect_err("the alert");
    assert_eq!((side, error), ("server", TlsError::Refused("BadCertificate".to_string())));
}

#[test]
fn a_client_tells_a_refusal_from_a_server_without_tls() {
    let (_, client) = configs(Versions::Tls13);
    for (answer, expected) in [
        (&[0x15, 3, 3, 0, 2, 2, 40][..], TlsError::Refused("HandshakeFailure".to_string())),
        (b"HTTP/1.1 400 Bad Request\r\n", TlsError::NotTls { first: b'H' }),
    ] {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = Session::connect(client.clone(), name, &mut Vec::new()).expect("a session");
        let received = session.receive(answer, &mut Vec::new(), &mut Vec::new());
        assert_eq!(received, Err(expected));
    }
}
