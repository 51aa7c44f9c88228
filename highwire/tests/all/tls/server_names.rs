//! Tests that server names (SNI) stay with their connections: a handler does not get the name from another handshake on
//! the same worker, whether that handshake failed, was cut short or is in progress.
//!
//! Needs a real kernel, because the handshakes of several sockets arrive in pieces and take turns on one worker.

use crate::engines;
use crate::tls_peer::{Authority, Client, TLS12, TLS13};
use highwire::server::{Engine, Handle};
use highwire::tls::TlsConfig;
use highwire::{App, Tls};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use testkit::http1::connect_within;

/// The longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of attacks, each with one or two connections of a victim. Every kind of attack meets every kind of victim
/// at least twelve times.
const ROUNDS: usize = 1000;

const ATTACKER: &str = "attacker.example";

/// The kinds of attacks. All attackers send a server name that no other client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Offers only a protocol (ALPN) that the server does not speak, so the handshake fails.
    Protocol,
    /// The same as `Protocol`, with a hello in two pieces and a victim's handshake between the pieces.
    ProtocolInPieces,
    /// Sends half of a hello, then closes its direction.
    HalfHello,
    /// Makes the server ask for another key share (HelloRetryRequest), then leaves.
    Retry,
    /// Answers the HelloRetryRequest, then fails because of its protocol.
    RetryThenProtocol,
}

const ATTACKS: [Attack; 5] =
    [Attack::Protocol, Attack::ProtocolInPieces, Attack::HalfHello, Attack::Retry, Attack::RetryThenProtocol];

impl Attack {
    fn retries(self) -> bool {
        matches!(self, Attack::Retry | Attack::RetryThenProtocol)
    }

    fn client(self) -> ClientConnection {
        let mut provider = default_provider();
        if self.retries() {
            // The hello has a share only for the first group, which the server does not support.
            provider.kx_groups = vec![kx_group::MLKEM768, kx_group::X25519];
        }
        let mut config = config_of(provider, TLS13);
        config.alpn_protocols = vec![b"bogus".to_vec()];
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(ATTACKER).expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("a client")
    }

    /// Runs the part of the attack before the victim's handshake.
    fn begin(self, address: &str) -> Attacker {
        let (mut client, mut stream) = (self.client(), connect(address));
        let hello = said(&mut client);
        let rest = match self {
            Attack::ProtocolInPieces | Attack::HalfHello => {
                let (half, rest) = hello.split_at(hello.len() / 2);
                stream.write_all(half).expect("the server reads");
                rest.to_vec()
            }
            Attack::Protocol | Attack::Retry | Attack::RetryThenProtocol => {
                stream.write_all(&hello).expect("the server reads");
                Vec::new()
            }
        };
        match self {
            Attack::Protocol => read_to_end(&mut stream),
            Attack::Retry | Attack::RetryThenProtocol => {
                while !client.wants_write() {
                    let count = client.read_tls(&mut stream).expect("the server answers in time");
                    assert!(count > 0, "{self:?}: the server closed without a HelloRetryRequest");
                    client.process_new_packets().expect("a HelloRetryRequest");
                }
            }
            Attack::ProtocolInPieces | Attack::HalfHello => {}
        }
        Attacker { attack: self, client, stream, rest }
    }
}

/// An attack that has begun.
struct Attacker {
    attack: Attack,
    client: ClientConnection,
    stream: TcpStream,
    /// The part of the hello that is not sent yet.
    rest: Vec<u8>,
}

impl Attacker {
    /// Runs the part of the attack after the victim's handshake.
    fn end(mut self) {
        match self.attack {
            Attack::Protocol | Attack::Retry => {}
            Attack::HalfHello => {
                self.stream.shutdown(Shutdown::Write).expect("a connected socket");
                read_to_end(&mut self.stream);
            }
            Attack::ProtocolInPieces => {
                self.stream.write_all(&self.rest).expect("the server reads");
                read_to_end(&mut self.stream);
            }
            Attack::RetryThenProtocol => {
                let second = said(&mut self.client);
                self.stream.write_all(&second).expect("the server reads");
                read_to_end(&mut self.stream);
            }
        }
    }
}

fn config_of(provider: CryptoProvider, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    // No handshake gets as far as the server's certificate.
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

fn connect(address: &str) -> TcpStream {
    connect_within(address, PATIENCE)
}

/// Returns the bytes that a client is ready to send.
fn said(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("writing to memory does not fail");
    }
    bytes
}

/// Waits until the server has closed or reset the connection.
fn read_to_end(stream: &mut TcpStream) {
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!late, "the server does not close a failed handshake: {error}");
    }
}

/// The names that victims connect to, and the server names that handlers must get. An address is not sent as a server
/// name (RFC 6066 section 3).
const NAMES: [(&str, Option<&str>); 2] = [("127.0.0.1", None), ("a.example", Some("a.example"))];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Whole,
    /// The hello in two pieces, which the server receives separately.
    Pieces,
}

/// An honest client.
struct Victim {
    config: Arc<ClientConfig>,
    resumes: bool,
    name: &'static str,
    expected: Option<&'static str>,
    delivery: Delivery,
}

fn victims(authority: &Authority) -> Vec<Victim> {
    let mut victims = Vec::new();
    for versions in [TLS12, TLS13] {
        for resumes in [false, true] {
            for (name, expected) in NAMES {
                for delivery in [Delivery::Whole, Delivery::Pieces] {
                    let config = Client { versions, alpn: &["http/1.1"], ..Client::of(authority) }.config();
                    let mut config = ClientConfig::clone(&config);
                    if !resumes {
                        config.resumption = Resumption::disabled();
                    }
                    victims.push(Victim { config: Arc::new(config), resumes, name, expected, delivery });
                }
            }
        }
    }
    victims
}

/// A connection for pings. When the worker has answered a ping, it has received all bytes that were sent earlier.
struct Pacer(TcpStream);

impl Pacer {
    fn turn(&mut self) {
        let pong = b"pong";
        self.0.write_all(b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
        let mut answer = Vec::new();
        while !answer.ends_with(pong) {
            let mut part = [0; 1024];
            let count = self.0.read(&mut part).expect("the server answers in time");
            assert!(count > 0, "the server closed a connection that is kept alive");
            answer.extend_from_slice(&part[..count]);
        }
    }
}

impl Victim {
    /// Connects and checks the server name that the handler gets. Returns true if the session was resumed.
    fn check(&self, address: &str, pacer: &mut Pacer, context: &str) -> bool {
        let name = ServerName::try_from(self.name).expect("a name");
        let mut client = ClientConnection::new(self.config.clone(), name).expect("a client");
        let mut stream = connect(address);
        let hello = said(&mut client);
        match self.delivery {
            Delivery::Whole => stream.write_all(&hello).expect("the server reads"),
            Delivery::Pieces => {
                let (half, rest) = hello.split_at(hello.len() / 2);
                stream.write_all(half).expect("the server reads");
                pacer.turn();
                stream.write_all(rest).expect("the server reads");
            }
        }
        let mut secure = StreamOwned::new(client, stream);
        let request = b"GET /name HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        secure.write_all(request).expect("the server finishes the handshake and reads");
        let mut answer = String::new();
        secure.read_to_string(&mut answer).expect("the server answers and closes");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let (found, resumed) = body.rsplit_once(' ').unwrap_or((body, ""));
        assert_eq!(found, format!("{:?}", self.expected), "{context}, resumed {resumed:?}: {answer}");
        resumed == "true"
    }
}

fn start(engine: Engine, authority: &Authority) -> Handle {
    let pem = authority.issue(&["a.example", "127.0.0.1"]);
    let app = App::new()
        .get("/ping", || "pong")
        .get("/name", |tls: Tls| format!("{:?} {}", tls.server_name, tls.resumed))
        .configure(|config| (config.engine, config.workers) = (engine, 1));
    let server = app.listen("127.0.0.1:0").expect("a free port");
    let tls = TlsConfig::new().certificate_pem(pem.chain, pem.key);
    server.listen_tls("127.0.0.1:0", tls).expect("a free port").start().expect("a server that starts")
}

fn check(engine: Engine) {
    let authority = Authority::new("test");
    let victims = victims(&authority);
    let handle = start(engine, &authority);
    let [clear, secure] = handle.addresses() else { panic!("two addresses") };
    let mut pacer = Pacer(connect(clear));
    let mut resumed = 0;
    for round in 0..ROUNDS {
        // Pairs every attack with every victim.
        let attack = ATTACKS[round % ATTACKS.len()];
        let victim = &victims[round / ATTACKS.len() % victims.len()];
        let context = format!(
            "{engine:?}, round {round}, {attack:?}, a victim for {} ({:?}, may resume: {})",
            victim.name, victim.delivery, victim.resumes
        );
        let attacker = attack.begin(secure);
        if attack != Attack::Protocol {
            // Waits until the worker has received the first part of the attack.
            pacer.turn();
            resumed += usize::from(victim.check(secure, &mut pacer, &format!("{context}, during the attack")));
        }
        attacker.end();
        resumed += usize::from(victim.check(secure, &mut pacer, &format!("{context}, after the attack")));
    }
    assert!(resumed > 0, "{engine:?}: no session was resumed");
    handle.abort();
    let report = handle.join().expect("a server that ends");
    // The handshakes of three of the five attacks fail because of their protocol. Handshakes that are cut short may
    // count too.
    let (least, failed) = (ROUNDS as u64 / 5 * 3, report.handshakes_failed);
    assert!(failed >= least, "{engine:?}: {failed} handshakes failed, expected {least} at least");
}

#[test]
fn names_stay_with_their_connections_on_uring() {
    if engines::has(Engine::Uring) {
        check(Engine::Uring);
    }
}

#[test]
fn names_stay_with_their_connections_on_readiness() {
    check(Engine::Readiness);
}
