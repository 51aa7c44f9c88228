//! Tests servers under TLS, as programs use them: the TLS properties in handlers and in the access log, one port for
//! HTTP and HTTPS, redirects, HSTS, counts. The tests use real sockets and both drivers.
#![cfg(feature = "tls")]

mod engines;
mod tls_peer;

use highwire::server::{Engine, Handle, Listen, Stats};
use highwire::tls::ClientAuth;
use highwire::{App, Https, Request, Scheme, StatusCode, Tls};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use testkit::http1::{body, connect, exchange, exchange_text};
use tls_peer::{Authority, Client, Folder, TLS12, simple};
use tracing::field::{Field, Visit};
use tracing::span;

/// A number of bytes that is larger than one send and than a peer's buffers.
const LARGE: usize = 3_000_001;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

fn app(engine: Engine) -> App {
    App::new()
        .get("/", || "here")
        .get("/scheme", |Scheme(scheme): Scheme| scheme)
        .get("/tls", |tls: Tls| {
            let client = tls.client.unwrap_or_default();
            let subject = client.subject.unwrap_or_default();
            let facts = (tls.version, tls.cipher, tls.server_name, tls.alpn, tls.resumed);
            format!("{facts:?} {subject} {:?} {}", client.names, client.der.len() > 100)
        })
        .get("/large", || pattern(LARGE))
        .get("/report", |report: Stats| format!("{report}"))
        .configure(|config| {
            config.engine = engine;
            config.workers = 1;
        })
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example:1\r\nConnection: close\r\n\r\n")
}

fn plain(address: &str, path: &str) -> String {
    exchange_text(connect(address), request(path))
}

fn under_tls(address: &str, client: &Client<'_>, path: &str) -> String {
    String::from_utf8(bytes_under_tls(address, client, &request(path))).expect("text")
}

/// Sends a request under TLS and returns the response. Panics if the connection ends without `close_notify`.
fn bytes_under_tls(address: &str, client: &Client<'_>, request: &str) -> Vec<u8> {
    let name = ServerName::try_from("a.example").expect("a name");
    let client = ClientConnection::new(client.config(), name).expect("a client");
    exchange(StreamOwned::new(client, connect(address)), request)
}

fn end(handle: Handle) -> Stats {
    handle.shutdown();
    handle.join().expect("the server ends")
}

#[test]
fn handlers_are_told_about_the_connection() {
    let authority = Authority::new("servers");
    let clients = Authority::new("clients");
    let alice = clients.issue(&["alice.test"]);
    let folder = Folder::new();
    let trusted = folder.write("clients.pem", &clients.pem);
    for engine in engines::available(engines::EVENT_LOOPS) {
        let tls = simple(&authority).client_auth(ClientAuth::Optional(trusted.clone()));
        let server =
            app(engine).listen("127.0.0.1:0").expect("a port").listen_tls("127.0.0.1:0", tls).expect("another");
        let handle = server.start().expect("the server starts");
        let (clear, secure) = (&handle.addresses()[0], &handle.addresses()[1]);
        let client = Client { alpn: &["http/1.1"], ..Client::of(&authority) };
        assert_eq!(
            body(&under_tls(secure, &client, "/tls")),
            r#"("TLSv1.3", "TLS13_AES_256_GCM_SHA384", Some("a.example"), Some("http/1.1"), false)  [] false"#
        );
        let client = Client { versions: TLS12, certificate: Some(&alice), ..Client::of(&authority) };
        assert_eq!(
            body(&under_tls(secure, &client, "/tls")),
            concat!(
                r#"("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Some("a.example"), None, false) "#,
                r#"CN=alice.test,O=Example\, Inc. ["alice.test"] true"#
            )
        );
        assert!(plain(clear, "/tls").starts_with("HTTP/1.1 403 "));
        assert_eq!(body(&under_tls(secure, &client, "/scheme")), "https");
        assert_eq!(body(&plain(clear, "/scheme")), "http");
        assert!(body(&plain(clear, "/report")).ends_with("3 TLS handshakes, 0 failed"), "{}", plain(clear, "/report"));
        assert!(plain(secure, "/").starts_with("HTTP/1.1 400 "));
        let report = end(handle);
        assert_eq!((report.handshakes, report.handshakes_failed, report.requests, report.streams), (3, 1, 6, 0));
        assert!(report.fired().all(|(_, count)| count == 0));
    }
}

#[test]
fn one_port_serves_both_where_the_program_says_so() {
    let authority = Authority::new("servers");
    for engine in engines::available(engines::EVENT_LOOPS) {
        for workers in [1, 2] {
            let app = app(engine).configure(|config| config.workers = workers);
            let server = app
                .server()
                .expect("an app")
                .listen_with("127.0.0.1:0", Listen::new().tls(simple(&authority)).and_plain());
            let handle = server.expect("a port").start().expect("the server starts");
            let address = &handle.addresses()[0];
            for _ in 0..10 {
                assert_eq!(body(&plain(address, "/scheme")), "http");
                assert_eq!(body(&under_tls(address, &Client::of(&authority), "/scheme")), "https");
            }
            // A connection without a byte is neither HTTP nor TLS.
            drop(connect(address));
            // A first byte of neither protocol is answered as malformed HTTP.
            let answer = exchange_text(connect(address), [0_u8; 40]);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            // A hello of SSL 2.0 is answered with a TLS alert.
            let answer = exchange(connect(address), b"\x80\x2e\x01\0\x02\0\x15\0\0\0\x10\x01\0\x80");
            assert_eq!(answer, [0x15, 3, 1, 0, 2, 2, 70]);
            end(handle);
        }
    }
}

#[test]
fn requests_in_the_clear_are_redirected_and_browsers_told_to_stay() {
    let authority = Authority::new("servers");
    let rules = Https::new().redirect(8443).hsts(Duration::from_secs(60));
    for engine in engines::available(engines::EVENT_LOOPS) {
        let app = app(engine).https(rules.clone());
        let app = app.get("/own", || (StatusCode::OK, "x")).not_found(|_: &Request<'_>| "nothing");
        let server =
            app.server().expect("an app").listen_with("127.0.0.1:0", Listen::new().tls(simple(&authority)).and_plain());
        let handle = server.expect("a port").start().expect("the server starts");
        let address = &handle.addresses()[0];
        let answer = plain(address, "/own?a=b");
        assert!(
            answer.starts_with("HTTP/1.1 308 ") && answer.contains("\r\nlocation: https://a.example:8443/own?a=b\r\n")
        );
        assert!(!answer.contains("strict-transport-security"), "{answer}");
        assert!(plain(address, "/nowhere").starts_with("HTTP/1.1 308 "));
        for path in ["/", "/own", "/nowhere"] {
            let answer = under_tls(address, &Client::of(&authority), path);
            assert_eq!(answer.matches("\r\nstrict-transport-security: max-age=60\r\n").count(), 1, "{answer}");
        }
        end(handle);
    }
}

#[test]
fn a_large_answer_arrives_whole() {
    let authority = Authority::new("servers");
    for engine in engines::available(engines::EVENT_LOOPS) {
        let server = app(engine).server().expect("an app").listen_tls("127.0.0.1:0", simple(&authority));
        let handle = server.expect("a port").start().expect("the server starts");
        for (method, length) in [("GET", LARGE), ("HEAD", 0)] {
            let request = request("/large").replace("GET", method);
            let answer = bytes_under_tls(&handle.addresses()[0], &Client::of(&authority), &request);
            let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
            let announced = format!("Content-Length: {LARGE}\r\n");
            assert!(String::from_utf8_lossy(&answer[..head]).contains(&announced), "{method}");
            assert!(answer[head..] == pattern(length), "{method}: {} bytes", answer.len() - head);
        }
        end(handle);
    }
}

/// Collects the access log.
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "highwire::access"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if !matches!(field.name(), "peer" | "microseconds") {
                    write!(self.0, "{}={value:?} ", field.name()).expect("writing to memory does not fail");
                }
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0.trim_end().to_string());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn the_access_log_says_what_the_connection_is() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::set_global_default(Lines(lines.clone())).expect("no other subscriber is set");
    let authority = Authority::new("servers");
    let app = app(Engine::Readiness).configure(|config| config.access_log = true);
    let server =
        app.server().expect("an app").listen_with("127.0.0.1:0", Listen::new().tls(simple(&authority)).and_plain());
    let handle = server.expect("a port").start().expect("the server starts");
    let address = &handle.addresses()[0];
    let client = Client { versions: TLS12, alpn: &["http/1.1"], ..Client::of(&authority) };
    under_tls(address, &client, "/?secure");
    plain(address, "/?clear");
    end(handle);
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |part: &str| lines.iter().find(|line| line.contains(part)).cloned().unwrap_or_default();
    assert_eq!(
        of("?secure"),
        concat!(
            r#"method="GET" target="/?secure" protocol="HTTP/1.1" status=200 bytes=4 tls="TLSv1.2" "#,
            r#"cipher="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" server_name="a.example" alpn="http/1.1""#
        )
    );
    assert_eq!(of("?clear"), r#"method="GET" target="/?clear" protocol="HTTP/1.1" status=200 bytes=4"#);
}

#[test]
fn an_engine_without_tls_is_told_before_a_port_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("an address").to_string();
    for listen in [Listen::new().tls(simple(&Authority::new("root"))), Listen::new().proxy_protocol()] {
        let server = app(Engine::Threads).server().expect("an app");
        let error = server.listen_with(&taken, listen).expect_err("this engine has neither").to_string();
        assert_eq!(
            error,
            format!(
                "cannot listen on {taken}: the engine `threads` supports neither TLS nor the PROXY protocol; choose another engine"
            )
        );
    }
}
