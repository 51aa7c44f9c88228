//! Incomplete TLS handshakes, in virtual time: their memory is charged, and other connections are still served.

use highwire::App;
use highwire::server::Worker;
use highwire_io::sim::{Arrived, Client, Faults, Network, Simulated};
use sim::tls::{Clients, Http, Resumption, Version, server_config};
use std::time::Duration;

fn worker(memory: usize) -> (Network, Worker<Simulated>) {
    let network = Network::new(7, Faults::default());
    let driver = Simulated::new(network.clone()).expect("a driver");
    let app = App::new().get("/", || "here").get("/large", || vec![b'x'; LARGE]).configure(|config| {
        config.memory = Some(memory);
        config.limits.connections = Some(10_000);
    });
    let server = app.server().expect("an app").listen_tls("127.0.0.1:0", server_config()).expect("a port");
    (network, server.into_worker(driver).expect("a worker"))
}

/// The size of a large answer in bytes.
const LARGE: usize = 4 << 20;

/// Returns the first `bytes` bytes of a ClientHello of 60,000 bytes, in records of at most 16,000 bytes.
fn half_a_hello(bytes: usize) -> Vec<u8> {
    let mut message = vec![1, 0, 0xea, 0x60];
    message.resize(bytes, 0);
    let mut records = Vec::new();
    for part in message.chunks(16_000) {
        records.extend_from_slice(&[0x16, 3, 1]);
        records.extend_from_slice(&(part.len() as u16).to_be_bytes());
        records.extend_from_slice(part);
    }
    records
}

/// Sends the bytes on each client and runs 100 turns without advancing the clock.
fn send_all(network: &Network, worker: &mut Worker<Simulated>, clients: &[Client], bytes: &[u8]) {
    let mut sent = vec![0; clients.len()];
    for _ in 0..100 {
        for (client, sent) in clients.iter().zip(&mut sent) {
            *sent += client.send(&bytes[*sent..]);
        }
        worker.turn(Some(network.now())).expect("a turn");
    }
}

#[test]
fn half_a_hello_is_charged_and_its_time_runs_out() {
    let (network, mut worker) = worker(64 << 20);
    let before = worker.account();
    let clients: Vec<Client> = (0..4).map(|_| network.connect()).collect();
    send_all(&network, &mut worker, &clients, &half_a_hello(55_000));
    assert_eq!(worker.connections(), 4);
    assert!(worker.account() - before >= 4 * 55_000, "{} bytes are charged", worker.account() - before);
    network.advance(Duration::from_secs(11));
    send_all(&network, &mut worker, &clients, &[]);
    drop(clients);
    network.advance(Duration::from_secs(11));
    send_all(&network, &mut worker, &[], &[]);
    assert_eq!((worker.connections(), worker.account()), (0, before));
}

#[test]
fn where_there_is_no_memory_for_them_they_are_cut() {
    let (network, mut worker) = worker(2 << 20);
    let clients: Vec<Client> = (0..100).map(|_| network.connect()).collect();
    send_all(&network, &mut worker, &clients, &half_a_hello(55_000));
    assert!(worker.account() <= 2 << 20, "{} bytes are charged", worker.account());
    let cut = clients.iter().filter(|client| client.receive(usize::MAX) == Some(Arrived::Reset)).count();
    assert!((50..100).contains(&cut), "{cut} connections were cut");
}

#[test]
fn an_honest_handshake_passes_a_thousand_that_drip() {
    let (network, mut worker) = worker(256 << 20);
    let hello = half_a_hello(1000);
    let drips: Vec<Client> = (0..1000).map(|_| network.connect()).collect();
    send_all(&network, &mut worker, &drips, &hello[..1]);
    let mut session = Clients::new(Resumption::default()).session(Version::Tls13, Http::One);
    let client = network.connect();
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    session.open(&[], &mut plain, &mut out).expect("a hello");
    session.seal(b"GET / HTTP/1.1\r\nHost: sim\r\n\r\n", &mut out);
    for turn in 0..200 {
        // Each of these clients sends another byte per turn.
        for drip in &drips {
            drip.send(&hello[turn + 1..turn + 2]);
        }
        let sent = client.send(&out);
        out.drain(..sent);
        worker.turn(Some(network.now())).expect("a turn");
        while let Some(Arrived::Bytes(bytes)) = client.receive(usize::MAX) {
            session.open(&bytes, &mut plain, &mut out).expect("TLS");
        }
        if plain.ends_with(b"here") {
            return;
        }
    }
    panic!("there is no answer: {}", String::from_utf8_lossy(&plain));
}

#[test]
fn a_large_answer_that_the_client_does_not_read_is_charged() {
    let (network, mut worker) = worker(256 << 20);
    let mut session = Clients::new(Resumption::default()).session(Version::Tls13, Http::One);
    let client = network.connect();
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    session.open(&[], &mut plain, &mut out).expect("a hello");
    while session.is_handshaking() || !out.is_empty() {
        let sent = client.send(&out);
        out.drain(..sent);
        worker.turn(Some(network.now())).expect("a turn");
        while let Some(Arrived::Bytes(bytes)) = client.receive(usize::MAX) {
            session.open(&bytes, &mut plain, &mut out).expect("TLS");
        }
    }
    network.hold(1024);
    session.seal(b"GET /large HTTP/1.1\r\nHost: sim\r\n\r\n", &mut out);
    client.send(&out);
    for _ in 0..10 {
        worker.turn(Some(network.now())).expect("a turn");
    }
    assert!(worker.account() >= LARGE, "{} bytes are charged", worker.account());
}
