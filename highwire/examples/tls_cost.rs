//! Measures the server's side of a TLS session: handshakes, small requests and large data. The time of the client is
//! not counted. The rows `buffered` measure the buffered interface of rustls, for comparison with the unbuffered one,
//! which `tls/session.rs` uses.
//!
//!     cargo run --release -p highwire --example tls_cost

use highwire::tls::{Session, TlsConfig};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SignatureScheme};
use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::tls::{AcceptAny, client_config};

/// One of the two interfaces of rustls: turns ciphertext into plaintext, and plaintext into ciphertext.
trait Engine {
    fn new(config: Arc<ServerConfig>) -> Self;
    fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>);
    fn send(&mut self, plain: &[u8], out: &mut Vec<u8>);
}

impl Engine for Session {
    fn new(config: Arc<ServerConfig>) -> Session {
        Session::accept(config).expect("a session")
    }
    fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) {
        let _ = Session::receive(self, bytes, plain, out).expect("valid records");
    }
    fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        Session::send(self, plain, out).expect("an open session");
    }
}

impl Engine for ServerConnection {
    fn new(config: Arc<ServerConfig>) -> ServerConnection {
        let mut connection = ServerConnection::new(config).expect("a connection");
        connection.set_buffer_limit(None);
        connection
    }
    fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            self.read_tls(&mut bytes).expect("reading from memory does not fail");
            self.process_new_packets().expect("valid records");
            while let Ok(chunk @ [_, ..]) = self.reader().fill_buf() {
                let length = chunk.len();
                plain.extend_from_slice(chunk);
                self.reader().consume(length);
            }
        }
        while self.wants_write() {
            self.write_tls(out).expect("writing to memory does not fail");
        }
    }
    fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        self.writer().write_all(plain).expect("writing to memory does not fail");
        while self.wants_write() {
            self.write_tls(out).expect("writing to memory does not fail");
        }
    }
}

fn main() {
    let reload = TlsConfig::new().self_signed(["localhost"]).build().expect("settings");
    for _ in 0..2 {
        measure::<Session>("session ", &reload.current());
        measure::<ServerConnection>("buffered", &reload.current());
    }
}

const HANDSHAKES: u32 = 1_000;
const REQUESTS: u32 = 100_000;
const MEGABYTES: u32 = 300;

fn measure<E: Engine>(name: &str, server: &Arc<ServerConfig>) {
    let trusting = client();
    let full: Duration = (0..HANDSHAKES).map(|_| connect::<E>(&client(), server).2).sum();
    connect::<E>(&trusting, server);
    let resumed: Duration = (0..HANDSHAKES).map(|_| connect::<E>(&trusting, server).2).sum();
    let (mut engine, mut peer, _) = connect::<E>(&trusting, server);
    let small = talk(&mut engine, &mut peer, &[b'q'; 200], &[b'a'; 300], REQUESTS) / REQUESTS;
    let data = vec![b'd'; 1 << 20];
    let up = talk(&mut engine, &mut peer, &data, b"", MEGABYTES);
    let down = talk(&mut engine, &mut peer, b"", &data, MEGABYTES);
    let rate = |time: Duration| f64::from(MEGABYTES) / time.as_secs_f64();
    println!(
        "{name}: handshake {:?}, resumed {:?}, small request {small:?}, in {:.0} MiB/s, out {:.0} MiB/s",
        full / HANDSHAKES,
        resumed / HANDSHAKES,
        rate(up),
        rate(down)
    );
}

/// Completes a handshake. Returns both sides, and the time that the server's side took.
fn connect<E: Engine>(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (E, ClientConnection, Duration) {
    let name = "localhost".try_into().expect("a name");
    let mut peer = ClientConnection::new(client.clone(), name).expect("a client");
    peer.set_buffer_limit(None);
    let start = Instant::now();
    let mut engine = E::new(server.clone());
    let mut time = start.elapsed();
    while peer.wants_write() {
        time += round(&mut engine, &mut peer, b"");
    }
    (engine, peer, time)
}

fn talk<E: Engine>(engine: &mut E, peer: &mut ClientConnection, ask: &[u8], answer: &[u8], times: u32) -> Duration {
    let one = |_| {
        peer.writer().write_all(ask).expect("writing to memory does not fail");
        round(engine, peer, answer)
    };
    (0..times).map(one).sum()
}

/// Passes the client's bytes to the server in portions of 64 KiB, and the server's bytes back. Returns the time that
/// the server's side took.
fn round<E: Engine>(engine: &mut E, peer: &mut ClientConnection, answer: &[u8]) -> Duration {
    let (mut bytes, mut plain, mut out) = (Vec::new(), Vec::with_capacity(1 << 21), Vec::with_capacity(1 << 21));
    while peer.wants_write() {
        peer.write_tls(&mut bytes).expect("writing to memory does not fail");
    }
    let start = Instant::now();
    bytes.chunks(64 * 1024).for_each(|portion| engine.receive(portion, &mut plain, &mut out));
    if !answer.is_empty() {
        engine.send(answer, &mut out);
    }
    let time = start.elapsed();
    let mut rest = &out[..];
    while !rest.is_empty() {
        peer.read_tls(&mut rest).expect("reading from memory does not fail");
        peer.process_new_packets().expect("valid records");
        let _ = peer.reader().read_to_end(&mut plain);
    }
    time
}

/// Returns the settings of the client. It accepts every certificate, which does not change the server's times.
fn client() -> Arc<ClientConfig> {
    let verifier = AcceptAny::new(&[SignatureScheme::ECDSA_NISTP256_SHA256]);
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Arc::new(client_config(provider, rustls::DEFAULT_VERSIONS, verifier))
}
