//! Tests the client as handlers see it: the address of a client that has reset its connection before the server accepts
//! the connection, and the address and TLS properties that a `not_found` handler gets.
//!
//! Needs a real kernel, because only a real socket loses the address of its peer when the peer resets the connection.

use crate::engines;
use crate::tls_peer::{Authority, Client, simple};
use bytes::Bytes;
use highwire::middleware::around;
use highwire::server::{Engine, Handle};
use highwire::{App, HeaderMap, Peer, Request, Response, StatusCode};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use testkit::http1::{body, connect_within, exchange_text};
use testkit::http2::Http2;

/// The longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time for which the handler of a busy worker blocks.
const BUSY: Duration = Duration::from_millis(20);

/// The number of batches of connections that are reset. If the worker is busy, a batch usually arrives during one call
/// of the handler.
const BATCHES: usize = 40;
/// The number of connections in a batch.
const RESETS_IN_A_BATCH: usize = 25;

/// The paths of a handler that is called when the head has arrived, one that takes the whole body, and an async one.
const PATHS: [&str; 3] = ["/head", "/whole", "/later"];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of requests whose handler saw the right peer, which `X-From` names, and descriptions of the other
/// requests.
#[derive(Default)]
struct Seen {
    right: usize,
    wrong: Vec<String>,
}

fn note(seen: &Mutex<Seen>, peer: Peer, from: Option<&[u8]>) {
    let from = String::from_utf8_lossy(from.unwrap_or_default());
    let mut seen = lock(seen);
    match from == peer.to_string() {
        true => seen.right += 1,
        false => seen.wrong.push(format!("{from} as {peer:?}")),
    }
}

fn noting_app(seen: &Arc<Mutex<Seen>>, entered: mpsc::Sender<()>) -> App {
    let (head, whole, later) = (seen.clone(), seen.clone(), seen.clone());
    let entered = Mutex::new(entered);
    let from = |fields: &HeaderMap| fields.get("x-from").map(|value| value.as_bytes().to_vec());
    App::new()
        .post("/head", move |request: &Request<'_>| note(&head, request.peer(), request.header("x-from")))
        .post("/whole", move |peer: Peer, fields: HeaderMap, _body: Bytes| note(&whole, peer, from(&fields).as_deref()))
        .post("/later", move |peer: Peer, fields: HeaderMap| {
            let seen = later.clone();
            async move {
                note(&seen, peer, from(&fields).as_deref());
                highwire::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .get("/busy", move || {
            // Fails if the test has ended.
            let _ = lock(&entered).send(());
            let begun = std::time::Instant::now();
            while begun.elapsed() < BUSY {
                std::hint::spin_loop();
            }
        })
        .get("/peer", |peer: Peer| peer.to_string())
}

fn connect(address: &str) -> (TcpStream, SocketAddr) {
    let stream = connect_within(address, PATIENCE);
    let local = stream.local_addr().expect("a connected socket");
    (stream, local)
}

fn post(path: &str, from: SocketAddr) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-From: {from}\r\nContent-Length: 5\r\n\r\nhello")
}

/// Sends a request and resets the connection.
fn reset(address: &str, path: &str) {
    let (mut stream, local) = connect(address);
    stream.write_all(post(path, local).as_bytes()).expect("the kernel takes the request");
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an option");
}

/// Keeps the server's only worker in a handler most of the time, until `over` is true or [`PATIENCE`] has passed.
fn keep_busy(address: &str, over: &AtomicBool) {
    let begun = Instant::now();
    while !over.load(Ordering::Acquire) && begun.elapsed() < PATIENCE {
        let (stream, _) = connect(address);
        exchange_text(stream, "GET /busy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    Idle,
    Busy,
}

fn check_resets(engine: Engine, worker: Worker) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (enter, entered) = mpsc::channel();
    let app = noting_app(&seen, enter).configure(|config| (config.engine, config.workers) = (engine, 1));
    let handle = app.listen("127.0.0.1:0").expect("a free port").start().expect("a server that starts");
    let address = &handle.addresses()[0];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if worker == Worker::Busy {
            scope.spawn(|| keep_busy(address, &over));
        }
        for batch in 0..BATCHES {
            if worker == Worker::Busy {
                // Skips the reports of earlier calls of the handler, and waits for a new call.
                entered.try_iter().for_each(drop);
                entered.recv_timeout(PATIENCE).expect("the busy handler is called");
            }
            for number in 0..RESETS_IN_A_BATCH {
                reset(address, PATHS[(batch + number) % PATHS.len()]);
            }
            // After these resets, another client waits for its response.
            let (stream, local) = connect(address);
            let answer = exchange_text(stream, post(PATHS[batch % PATHS.len()], local));
            assert!(answer.starts_with("HTTP/1.1 20"), "{engine:?}, {worker:?}: {answer}");
        }
        over.store(true, Ordering::Release);
    });
    let (stream, local) = connect(address);
    let answer = exchange_text(stream, "GET /peer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(body(&answer), local.to_string(), "{engine:?}, {worker:?}");
    handle.shutdown();
    handle.join().expect("a server that ends");
    let seen = lock(&seen);
    assert!(
        seen.wrong.is_empty(),
        "{engine:?}, {worker:?}: {} of {} handlers saw another peer: {:?}",
        seen.wrong.len(),
        seen.wrong.len() + seen.right,
        &seen.wrong[..seen.wrong.len().min(5)]
    );
    assert!(seen.right >= BATCHES, "{engine:?}, {worker:?}: {} requests were handled", seen.right);
}

#[test]
fn a_client_that_resets_its_connection_keeps_its_address() {
    for engine in engines::available(engines::ALL) {
        for worker in [Worker::Idle, Worker::Busy] {
            check_resets(engine, worker);
        }
    }
}

/// The steps of a request, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Returns an app whose only path is `/`, with or without middleware.
fn missing_app(log: &Log, has_middleware: bool) -> App {
    let its = log.clone();
    let app = App::new().get("/", || "here").not_found(move |request: &Request<'_>| {
        lock(&its).push("not_found".to_string());
        let tls = request.tls().map(|tls| (tls.version, tls.server_name, tls.alpn));
        (StatusCode::NOT_FOUND, format!("{} {} {tls:?}", request.peer(), request.is_secure()))
    });
    if !has_middleware {
        return app;
    }
    let log = log.clone();
    app.with(around(move |request: &mut Request<'_>| {
        lock(&log).push("before".to_string());
        if request.path() == "/refused" {
            return Err(StatusCode::FORBIDDEN);
        }
        let log = log.clone();
        Ok(move |response: &mut Response| lock(&log).push(format!("after {}", response.status().as_u16())))
    }))
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Clear,
    ClearHttp2,
    Tls,
    TlsHttp2,
}

/// GETs a path. Returns the status, the body, and the client's address.
fn ask(handle: &Handle, authority: &Authority, way: Way, path: &str) -> (u16, String, SocketAddr) {
    let is_secure = matches!(way, Way::Tls | Way::TlsHttp2);
    let (stream, local) = connect(&handle.addresses()[usize::from(is_secure)]);
    let secure = |stream: TcpStream, protocol: &str| {
        let config = Client { alpn: &[protocol], ..Client::of(authority) }.config();
        let name = ServerName::try_from("a.example").expect("a name");
        StreamOwned::new(ClientConnection::new(config, name).expect("a client"), stream)
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let (status, body) = match way {
        Way::Clear => text(&exchange_text(stream, request)),
        Way::Tls => text(&exchange_text(secure(stream, "http/1.1"), request)),
        Way::ClearHttp2 => streamed(Http2::new(stream, "http"), path),
        Way::TlsHttp2 => streamed(Http2::new(secure(stream, "h2"), "https"), path),
    };
    (status, body, local)
}

fn text(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body(answer).to_string())
}

fn streamed<S: Read + Write>(mut http: Http2<S>, path: &str) -> (u16, String) {
    let (status, body) = http.ask("GET", path, &[], b"").expect("an answer");
    (status, String::from_utf8(body).expect("text"))
}

#[test]
fn the_not_found_handler_sees_the_client_inside_the_middleware() {
    let authority = Authority::new("test");
    let tls = |alpn: &str| Some(("TLSv1.3", Some("a.example".to_string()), Some(alpn.to_string())));
    let ways = [(Way::Clear, None), (Way::ClearHttp2, None), (Way::Tls, tls("http/1.1")), (Way::TlsHttp2, tls("h2"))];
    for engine in engines::available(engines::ALL) {
        for has_middleware in [false, true] {
            let log = Log::default();
            let app = missing_app(&log, has_middleware);
            let app = app.configure(|config| (config.engine, config.workers) = (engine, 1));
            let mut server = app.listen("127.0.0.1:0").expect("a free port");
            if engine != Engine::Threads {
                server = server.listen_tls("127.0.0.1:0", simple(&authority)).expect("a free port");
            }
            let handle = server.start().expect("a server that starts");
            // The engine `threads` has neither TLS nor HTTP/2.
            let count = if engine == Engine::Threads { 1 } else { ways.len() };
            for (way, tls) in &ways[..count] {
                let context = format!("{engine:?}, {way:?}, middleware {has_middleware}");
                let check = |path: &str, expected: (u16, &str), expected_log: &[&str]| {
                    let (status, body, local) = ask(&handle, &authority, *way, path);
                    let expected_body = expected.1.replace("{peer}", &local.to_string());
                    assert_eq!((status, body), (expected.0, expected_body), "{context}, {path}");
                    assert_eq!(std::mem::take(&mut *lock(&log)), expected_log, "{context}, {path}");
                };
                let facts = format!("{{peer}} {} {tls:?}", tls.is_some());
                if has_middleware {
                    check("/", (200, "here"), &["before", "after 200"]);
                    check("/nowhere", (404, facts.as_str()), &["before", "not_found", "after 404"]);
                    check("/refused", (403, ""), &["before"]);
                } else {
                    check("/", (200, "here"), &[]);
                    check("/nowhere", (404, facts.as_str()), &["not_found"]);
                }
            }
            handle.shutdown();
            handle.join().expect("a server that ends");
        }
    }
}
