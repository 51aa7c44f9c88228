//! The access log of the engine: a line for each response when it has ended, and one for what was refused.

mod folder;
#[cfg(feature = "tls")]
mod tls_peer;

use folder::{Place, bytes};
use highwire::{App, Response, StatusCode, body};
use std::io::{Read, Write};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use testkit::frames::{self, DATA};
use testkit::http1::connect;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Keeps the lines of the access log, without the peers and the times.
struct Lines(Mutex<Sender<String>>);

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if !matches!(field.name(), "peer" | "microseconds") {
            self.0.push_str(&format!("{}={value:?} ", field.name()));
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "highwire::access"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(line.0.trim_end().to_string()).expect("the test reads");
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// A body of 1,000 bytes that never ends.
fn endless() -> Response {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move {
        let _ = sender.send(vec![b'x'; 1000]).await;
        std::future::pending::<()>().await;
    });
    Response::stream(receiver)
}

fn short() -> Response {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move {
        let _ = sender.send(vec![b'x'; 10]).await;
        sender.finish();
    });
    Response::stream(receiver)
}

/// Reads the beginning of a long body of bytes under TLS, and leaves. Returns the reason in the line, which must not have all
/// bytes.
#[cfg(feature = "tls")]
fn cut_under_tls(address: &str, authority: &tls_peer::Authority, next: &dyn Fn() -> String) -> String {
    let name = rustls::pki_types::ServerName::try_from("a.example").expect("a name");
    let session = rustls::ClientConnection::new(tls_peer::Client::of(authority).config(), name).expect("a client");
    let mut stream = rustls::StreamOwned::new(session, connect(address));
    stream.write_all(b"GET /bytes HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("the server reads");
    stream.read_exact(&mut [0; 1000]).expect("a part of the answer");
    drop(stream);
    let line = next();
    let (_, sent) = line.split_once("bytes=").expect("a number");
    let (sent, reason) = sent.split_once(' ').unwrap_or((sent, ""));
    assert!((1000..39_000_000).contains(&sent.parse::<u64>().expect("a number")), "{line}");
    reason.split(" tls=").next().unwrap_or_default().to_string()
}

#[test]
fn a_line_says_how_much_was_sent_and_how_it_ended() {
    let (sender, lines) = channel();
    tracing::subscriber::set_global_default(Lines(Mutex::new(sender))).expect("no other subscriber is set");
    let place = Place::new("access-log");
    place.write("large", bytes(40_000_000));
    let app = App::new()
        .get("/hello", || "hello")
        .get("/short", short)
        .get("/endless", endless)
        .get("/interim", || StatusCode::PROCESSING)
        .get("/never", async || std::future::pending::<&str>().await)
        .post("/upload", |body: String| body)
        .get("/bytes", || vec![b'x'; 40_000_000])
        .files("/files", place.files())
        .configure(|config| (config.workers, config.access_log) = (1, true));
    let server = app.listen("127.0.0.1:0").expect("an address");
    #[cfg(feature = "tls")]
    let authority = tls_peer::Authority::new("test");
    #[cfg(feature = "tls")]
    let server = server.listen_tls("127.0.0.1:0", tls_peer::simple(&authority)).expect("another");
    let address = server.addresses()[0].clone();
    let handle = server.start().expect("cannot start");
    let next = || lines.recv_timeout(Duration::from_secs(20)).expect("a line");
    let none = || lines.try_recv().is_err();
    let ask = |request: &str| {
        let mut stream = connect(&address);
        stream.write_all(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("the server reads");
        stream
    };
    let of = |target: &str, rest: &str| format!("method=\"GET\" target=\"{target}\" protocol=\"HTTP/1.1\" {rest}");

    let stream = ask("GET /hello");
    assert_eq!(next(), of("/hello", "status=200 bytes=5"));
    drop(stream);
    let stream = ask("HEAD /hello");
    assert_eq!(next(), "method=\"HEAD\" target=\"/hello\" protocol=\"HTTP/1.1\" status=200 bytes=0");
    drop(stream);
    // A response that cannot be sent, for which the client gets another one.
    let stream = ask("GET /interim");
    assert_eq!(next(), of("/interim", "status=500 bytes=0"));
    drop(stream);
    let stream = ask("GET /short");
    assert_eq!(next(), of("/short", "status=200 bytes=10"));
    drop(stream);

    // The line comes when the answer ends, not when it begins.
    let mut stream = ask("GET /endless");
    let mut some = vec![0; 1000];
    stream.read_exact(&mut some).expect("a part of the answer");
    assert!(none());
    drop(stream);
    assert_eq!(next(), of("/endless", "status=200 bytes=1000 ended=\"the connection ended\""));

    let mut stream = ask("GET /files/large");
    stream.read_exact(&mut some).expect("a part of the answer");
    drop(stream);
    let line = next();
    let sent = line.split("bytes=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    assert!((1000..39_000_000).contains(&sent.parse::<u64>().expect("a number")), "{line}");
    assert!(line.ends_with("ended=\"the connection ended\""), "{line}");
    let mut stream = ask("GET /files/large");
    std::io::copy(&mut (&mut stream).take(40_000_100), &mut std::io::sink()).expect("the answer");
    assert_eq!(next(), of("/files/large", "status=200 bytes=40000000"));
    drop(stream);

    #[cfg(feature = "tls")]
    assert_eq!(cut_under_tls(&handle.addresses()[1], &authority, &next), "ended=\"the connection ended\"");

    // A client that leaves while it sends a body, over both protocols.
    let mut stream = connect(&address);
    stream.write_all(b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").expect("the server reads");
    drop(stream);
    let upload =
        |protocol: &str, rest: &str| format!("method=\"POST\" target=\"/upload\" protocol=\"{protocol}\" {rest}");
    let cut = "status=400 bytes=38 ended=\"the connection ended inside a message\"";
    assert_eq!(next(), upload("HTTP/1.1", cut));
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/upload"), (":authority", "a")];
    let part = frames::frame(DATA, 0, 1, b"abc");
    let mut stream = connect(&address);
    stream.write_all(&[frames::opening(), frames::headers(0, 1, &fields), part].concat()).expect("the server reads");
    drop(stream);
    let left = "status=499 bytes=0 ended=\"the request ended before it was complete\"";
    assert_eq!(next(), upload("HTTP/2", left));

    // What is no request has a line, too.
    let mut stream = connect(&address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n").expect("the server reads");
    assert_eq!(next(), "status=400 refused=\"the Host field is malformed\"");
    let mut stream = connect(&address);
    stream.write_all(b"\x16\x03\x01 not HTTP").expect("the server reads");
    assert_eq!(next(), "status=400 refused=\"the method is not a token followed by one space\"");
    assert!(none());

    // The server stops without waiting.
    let _never = ask("GET /never");
    let mut endless = ask("GET /endless");
    endless.read_exact(&mut some).expect("a part of the answer");
    handle.abort();
    let mut last = [next(), next()];
    last.sort_unstable();
    assert_eq!(last[0], of("/endless", "status=200 bytes=1000 ended=\"the server has stopped\""));
    assert_eq!(last[1], of("/never", "status=503 bytes=0 ended=\"the server has stopped before the answer\""));
    handle.join().expect("cannot stop");
}
