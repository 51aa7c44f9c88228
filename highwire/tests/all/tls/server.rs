//! Tests servers under TLS. Needs a real kernel, because a turn must find many connections ready at once.

use crate::engines;
use crate::tls_peer::{Authority, Client, simple};
use highwire::{App, RawStream, Upgrade};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Much longer than the handshake timeout of the test, and much shorter than its other timeouts.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of handshakes at once, which is more than a worker processes per turn.
const PEERS: usize = 32;

#[test]
fn a_handshake_that_waited_for_its_turn_keeps_its_deadline() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let (authority, (entered, inside), (release, gate)) =
            (Authority::new("test"), mpsc::channel(), mpsc::channel::<()>());
        let gate = Mutex::new(gate);
        // Blocks the only worker until the test releases it.
        let hold = move || {
            entered.send(()).expect("the test listens");
            gate.lock().expect("no panic while it is held").recv().expect("the test releases it");
            "held"
        };
        let app = App::new().get("/hold", hold).configure(|config| {
            (config.engine, config.workers) = (engine, 1);
            config.timeouts.handshake = Duration::from_secs(1);
            config.timeouts.head = Duration::from_secs(60);
            config.timeouts.idle = Duration::from_secs(60);
        });
        let server = app.listen("127.0.0.1:0").expect("a port");
        let server = server.listen_tls("127.0.0.1:0", simple(&authority)).expect("another");
        let handle = server.start().expect("the server starts");
        let [plain, secure] = handle.addresses() else { panic!("two addresses") };
        let mut holder = TcpStream::connect(plain).expect("a connection");
        let request = b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n";
        holder.write_all(request).expect("the server reads");
        inside.recv().expect("the handler runs");
        let mut peers: Vec<TcpStream> = (0..PEERS)
            .map(|_| {
                let mut socket = TcpStream::connect(secure).expect("a connection");
                socket.set_read_timeout(Some(PATIENCE)).expect("an option");
                let name = ServerName::try_from("a.example").expect("a name");
                let mut client = ClientConnection::new(Client::of(&authority).config(), name).expect("a client");
                client.write_tls(&mut socket).expect("the server reads");
                socket
            })
            .collect();
        release.send(()).expect("the handler waits");
        // No client continues its handshake, so the server closes each connection at the handshake timeout.
        for (number, peer) in peers.iter_mut().enumerate() {
            let end = peer.read_to_end(&mut Vec::new());
            assert!(end.is_ok(), "{engine:?}, peer {number}: {end:?}");
        }
        handle.abort();
        handle.join().expect("the server ends");
    }
}

/// Sends back the received bytes, and then `end`, or `broken` after an error.
async fn echo(mut stream: RawStream) {
    let end: &[u8] = loop {
        match stream.read().await {
            Ok(Some(bytes)) => stream.write(bytes).await.expect("the peer reads"),
            Ok(None) => break b"end",
            Err(_) => break b"broken",
        }
    };
    let _ = stream.write(end).await;
}

#[test]
fn an_end_that_the_peer_has_said_stays_said_when_its_connection_ends_behind_it() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let authority = Authority::new("test");
        let late = async |upgrade: Upgrade| {
            // After this time, all bytes of the peer and the end of its direction have arrived.
            highwire::time::sleep(Duration::from_millis(100)).await;
            upgrade.accept("echo", echo)
        };
        let app = App::new().get("/late", late).configure(|config| (config.engine, config.workers) = (engine, 1));
        let server = app.server().expect("an app").listen_tls("127.0.0.1:0", simple(&authority)).expect("a port");
        let handle = server.start().expect("the server starts");
        let mut socket = TcpStream::connect(&handle.addresses()[0]).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("an option");
        let name = ServerName::try_from("a.example").expect("a name");
        let mut client = ClientConnection::new(Client::of(&authority).config(), name).expect("a client");
        while client.is_handshaking() {
            client.complete_io(&mut socket).expect("a handshake");
        }
        let request = b"GET /late HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello, ";
        client.writer().write_all(request).expect("room");
        client.send_close_notify();
        while client.wants_write() {
            client.write_tls(&mut socket).expect("the server reads");
        }
        socket.shutdown(Shutdown::Write).expect("a connection");
        let mut answer = Vec::new();
        while client.read_tls(&mut socket).expect("an answer") > 0 {
            client.process_new_packets().expect("records");
            let mut part = [0; 1024];
            while let Ok(count @ 1..) = client.reader().read(&mut part) {
                answer.extend_from_slice(&part[..count]);
            }
        }
        assert!(answer.ends_with(b"\r\n\r\nhello, end"), "{engine:?}: {}", answer.escape_ascii());
        handle.abort();
        handle.join().expect("the server ends");
    }
}
