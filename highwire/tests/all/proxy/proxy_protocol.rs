//! Tests servers behind a proxy that forwards connections: the PROXY protocol before HTTP and before TLS. The tests use
//! real sockets and both drivers.

use crate::engines;
use crate::tls_peer::{Authority, Client, simple};
use highwire::server::{Engine, Handle, Listen};
use highwire::{App, Peer};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use testkit::http1::{self, body};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn start(engine: Engine, listen: Listen) -> Handle {
    let app = App::new().get("/", |peer: Peer| peer.to_string()).configure(|config| {
        config.engine = engine;
        config.workers = 1;
        config.limits.connections_a_peer = 2;
    });
    let server = app.server().expect("an app").listen_with("127.0.0.1:0", listen).expect("a port");
    server.start().expect("the server starts")
}

fn connect(handle: &Handle) -> TcpStream {
    http1::connect(&handle.addresses()[0])
}

fn read(stream: &mut impl Read) -> String {
    let mut answer = Vec::new();
    // A connection that is cut may end with a reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn the_proxy_says_whose_connection_it_is() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let handle = start(engine, Listen::new().proxy_protocol());
        let two = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\x12\x67\x01\xbb";
        for (header, expected) in [
            (&b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n"[..], "192.0.2.1:4711"),
            (b"PROXY TCP6 2001:db8::1 ::1 4711 443\r\n", "[2001:db8::1]:4711"),
            // The proxy does not name the client, so the peer is the proxy's address, and not `Peer::Local`.
            (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
            (two, "192.0.2.7:4711"),
        ] {
            for at_once in [true, false] {
                let mut stream = connect(&handle);
                if at_once {
                    stream.write_all(&[header, REQUEST].concat()).expect("the server reads");
                } else {
                    stream.set_nodelay(true).expect("a socket");
                    for byte in header {
                        stream.write_all(&[*byte]).expect("the server reads");
                    }
                    stream.write_all(REQUEST).expect("the server reads");
                }
                let answer = read(&mut stream);
                let is_port_known = expected != "127.0.0.1";
                let said =
                    if is_port_known { body(&answer) } else { body(&answer).split(':').next().unwrap_or_default() };
                assert_eq!(said, expected);
            }
        }
        for wrong in [REQUEST, b"PROXY TCP4 x\r\n", b"\x16\x03\x01\0\0"] {
            let mut stream = connect(&handle);
            stream.write_all(wrong).expect("the server reads");
            assert_eq!(read(&mut stream), "", "a connection without the header is cut");
        }
        let mut stream = connect(&handle);
        stream.write_all(b"PROXY TCP4 192.0.2.1").expect("the server reads");
        stream.shutdown(Shutdown::Write).expect("a socket");
        assert_eq!(read(&mut stream), "", "an incomplete header gets no response");
        handle.shutdown();
        assert_eq!(handle.join().expect("the server ends").accepted, 12);
    }
}

#[test]
fn caps_are_those_of_the_real_peer() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let handle = start(engine, Listen::new().proxy_protocol());
        let header = b"PROXY TCP4 192.0.2.1 198.51.100.1 1 443\r\n";
        let hold = |header: &[u8]| {
            let mut stream = connect(&handle);
            stream.write_all(&[header, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).expect("the server reads");
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).expect("an answer");
            (stream, answer)
        };
        let held = [hold(header), hold(header)];
        assert!(held.iter().all(|(_, answer)| answer == b"HTTP/1.1 200"));
        assert_eq!(&hold(header).1, b"HTTP/1.1 503");
        let others: Vec<_> = (0..5)
            .map(|number| hold(format!("PROXY TCP4 192.0.2.{} 1.1.1.1 1 2\r\n", number + 2).as_bytes()))
            .collect();
        assert!(others.iter().all(|(_, answer)| answer == b"HTTP/1.1 200"), "the cap does not count for the proxy");
        drop(held);
        let begun = std::time::Instant::now();
        while handle.connections() > others.len() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the server does not notice that they are gone");
            std::thread::yield_now();
        }
        assert_eq!(&hold(header).1, b"HTTP/1.1 200", "its connections are free again");
        handle.abort();
        handle.join().expect("the server ends");
    }
}

#[test]
fn the_header_comes_before_tls() {
    let authority = Authority::new("servers");
    for engine in engines::available(engines::EVENT_LOOPS) {
        let handle = start(engine, Listen::new().tls(simple(&authority)).proxy_protocol());
        let mut stream = connect(&handle);
        stream.write_all(b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n").expect("the server reads");
        let name = ServerName::try_from("a.example").expect("a name");
        let client = ClientConnection::new(Client::of(&authority).config(), name).expect("a client");
        let mut secure = StreamOwned::new(client, stream);
        secure.write_all(REQUEST).expect("the server reads");
        assert_eq!(body(&read(&mut secure)), "192.0.2.1:4711");
        handle.shutdown();
        handle.join().expect("the server ends");
    }
}
