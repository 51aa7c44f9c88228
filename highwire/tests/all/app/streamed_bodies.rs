//! Tests request bodies that handlers read in parts, at their own pace. Every byte must arrive, and the connection must
//! serve the next request. Many sizes are around 64 KiB and 128 KiB, where the server stops receiving until the handler
//! has caught up.
//!
//! Needs a real kernel, because the outcome depends on how much of a body waits in socket buffers while the server does
//! not receive. The server once answered bodies of 64 KiB and more with 408, although every byte had arrived.

use crate::engines;
use crate::tls_peer::{Authority, Client, simple};
use aws_lc_rs::digest::{Context, SHA256};
use highwire::body::BodyError;
use highwire::form::MultipartError;
use highwire::server::Engine;
use highwire::{App, Body, Multipart};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use testkit::http1::Http1;
use testkit::http2::{Answer, Http2};

/// The longest time without progress in the client. It is less than the 10 seconds after which the server answers 408,
/// so that a stalled body fails the test.
const PATIENCE: Duration = Duration::from_secs(8);

/// The number of connections at once. The handlers mostly wait, so there may be more connections than cores.
const PARALLEL: usize = 8;

const SIZES: [usize; 14] =
    [0, 1, 60_000, 65_535, 65_536, 65_537, 70_000, 100_000, 131_071, 131_072, 131_073, 300_000, 1_000_000, 4_000_000];

/// The number of bytes in a chunk of a chunked body. It is less than a TLS record has, and divides no size above except
/// 0.
const CHUNK_BYTES: usize = 16_001;

/// The number of bytes in a part of a multipart form, which is more than are written to a spool file at once.
const PART_BYTES: usize = 300_001;

const MULTIPART: &str = "multipart/form-data; boundary=streamed-bodies";

static CONTENT: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..4_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect());

/// How a handler waits between the parts of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Never,
    EachPart,
    Bursts,
}

const PACES: [Pace; 3] = [Pace::Never, Pace::EachPart, Pace::Bursts];

impl Pace {
    fn pause_before(self, part: usize) -> Duration {
        match self {
            Pace::EachPart => Duration::from_millis(1),
            Pace::Bursts if part.is_multiple_of(8) => Duration::from_millis(20),
            Pace::Never | Pace::Bursts => Duration::ZERO,
        }
    }

    async fn wait(self, part: usize) {
        let pause = self.pause_before(part);
        if !pause.is_zero() {
            highwire::time::sleep(pause).await;
        }
    }
}

/// Counts bytes and computes their checksum.
struct Tally {
    bytes: usize,
    checksum: Context,
}

impl Tally {
    fn new() -> Tally {
        Tally { bytes: 0, checksum: Context::new(&SHA256) }
    }

    fn add(&mut self, part: &[u8]) {
        self.bytes += part.len();
        self.checksum.update(part);
    }

    fn text(self) -> String {
        let checksum = self.checksum.finish();
        format!("{} bytes, {:?}", self.bytes, &checksum.as_ref()[..8])
    }

    fn of(content: &[u8]) -> String {
        let mut tally = Tally::new();
        tally.add(content);
        tally.text()
    }
}

async fn read_body(pace: Pace, mut body: Body) -> Result<String, BodyError> {
    let (mut tally, mut count) = (Tally::new(), 0);
    loop {
        pace.wait(count).await;
        count += 1;
        match body.next().await {
            Some(part) => tally.add(&part?),
            None => return Ok(tally.text()),
        }
    }
}

async fn read_form(pace: Pace, mut form: Multipart) -> Result<String, MultipartError> {
    let (mut tally, mut count) = (Tally::new(), 0);
    while let Some(part) = form.next().await {
        let mut part = part?;
        loop {
            pace.wait(count).await;
            count += 1;
            match part.chunk().await? {
                Some(chunk) => tally.add(&chunk),
                None => break,
            }
        }
    }
    Ok(tally.text())
}

async fn spool_form(mut form: Multipart) -> Result<String, MultipartError> {
    let (mut tally, mut count) = (Tally::new(), 0);
    while let Some(part) = form.next().await {
        Pace::EachPart.wait(count).await;
        count += 1;
        let file = part?.spool(std::env::temp_dir()).await?;
        tally.add(&std::fs::read(file.path()).expect("the part's file exists until it is dropped"));
    }
    Ok(tally.text())
}

fn app() -> App {
    let mut app = App::new().get("/again", || "again").post("/spool", spool_form);
    for pace in PACES {
        app = app
            .post(&format!("/body/{pace:?}"), move |body: Body| read_body(pace, body))
            .post(&format!("/form/{pace:?}"), move |form: Multipart| read_form(pace, form));
    }
    with_axum(app)
}

#[cfg(feature = "tower")]
fn with_axum(app: App) -> App {
    app.any("/axum/{*rest}", highwire::tower::service(axum_service::router()))
}

#[cfg(not(feature = "tower"))]
fn with_axum(app: App) -> App {
    app
}

/// The same handlers behind the tower adapter, and one that collects the body after a wait.
#[cfg(feature = "tower")]
mod axum_service {
    use super::{PACES, Pace, Tally};
    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;
    use highwire::StatusCode;
    use http_body::Body as _;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::time::Duration;

    type Refused = (StatusCode, String);

    fn refused(error: &axum::Error) -> Refused {
        (StatusCode::BAD_REQUEST, error.to_string())
    }

    async fn read(pace: Pace, mut body: Body) -> Result<String, Refused> {
        let (mut tally, mut count) = (Tally::new(), 0);
        loop {
            pace.wait(count).await;
            count += 1;
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        tally.add(&data);
                    }
                }
                Some(Err(error)) => return Err(refused(&error)),
                None => return Ok(tally.text()),
            }
        }
    }

    async fn collect(body: Body) -> Result<String, Refused> {
        highwire::time::sleep(Duration::from_millis(20)).await;
        let whole = axum::body::to_bytes(body, usize::MAX).await;
        whole.map(|whole| Tally::of(&whole)).map_err(|error| refused(&error))
    }

    pub(super) fn router() -> Router {
        PACES.into_iter().fold(Router::new().route("/axum/collected", post(collect)), |router, pace| {
            router.route(&format!("/axum/{pace:?}"), post(move |body: Body| read(pace, body)))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Clear,
    Tls,
}

/// How the client delimits a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    /// `Content-Length`, and the next request in the same write.
    Pipelined,
    Http2,
}

/// One connection, which sends a body of each of [`SIZES`].
#[derive(Clone, Debug)]
struct Row {
    path: String,
    layer: Layer,
    framing: Framing,
}

impl Row {
    fn is_form(&self) -> bool {
        self.path.starts_with("/form/") || self.path == "/spool"
    }
}

/// The framings of bodies that handlers read as a `Body`.
const FRAMINGS: &[Framing] = &[Framing::Length, Framing::Chunked, Framing::Pipelined, Framing::Http2];

/// The framings of bodies that are read through another type, such as a form.
const FEW_FRAMINGS: &[Framing] = &[Framing::Length, Framing::Http2];

fn rows(engine: Engine) -> Vec<Row> {
    let mut paths = vec![("/spool".to_string(), FEW_FRAMINGS)];
    for pace in PACES {
        paths.push((format!("/body/{pace:?}"), FRAMINGS));
        paths.push((format!("/form/{pace:?}"), FEW_FRAMINGS));
        if cfg!(feature = "tower") {
            paths.push((format!("/axum/{pace:?}"), FEW_FRAMINGS));
        }
    }
    if cfg!(feature = "tower") {
        paths.push(("/axum/collected".to_string(), FEW_FRAMINGS));
    }
    let mut rows = Vec::new();
    for (path, framings) in paths {
        for &framing in framings {
            for layer in [Layer::Clear, Layer::Tls] {
                // The engine `threads` has neither TLS nor HTTP/2.
                if engine != Engine::Threads || (layer == Layer::Clear && framing != Framing::Http2) {
                    rows.push(Row { path: path.clone(), layer, framing });
                }
            }
        }
    }
    rows
}

/// The addresses of the server, and the TLS settings of its clients.
struct Target {
    clear: String,
    secure: Option<String>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

trait Wire: Read + Write {}

impl<S: Read + Write> Wire for S {}

fn connect(row: &Row, target: &Target) -> Result<Peer, String> {
    let address = match row.layer {
        Layer::Clear => &target.clear,
        Layer::Tls => target.secure.as_ref().ok_or("this engine has no TLS")?,
    };
    let socket = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    let options = socket.set_nodelay(true);
    let options = options.and_then(|()| socket.set_read_timeout(Some(PATIENCE)));
    options.and_then(|()| socket.set_write_timeout(Some(PATIENCE))).map_err(|error| format!("an option: {error}"))?;
    let wire: Box<dyn Wire> = match row.layer {
        Layer::Clear => Box::new(socket),
        Layer::Tls => {
            let config = if row.framing == Framing::Http2 { &target.http2 } else { &target.http1 };
            let name = ServerName::try_from("a.example").expect("a name");
            let client = ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
            Box::new(StreamOwned::new(client, socket))
        }
    };
    let scheme = if row.layer == Layer::Tls { "https" } else { "http" };
    Ok(match row.framing {
        Framing::Http2 => Peer::Http2(Http2::new(wire, scheme)),
        _ => Peer::Http1(Http1::new(wire)),
    })
}

enum Peer {
    Http1(Http1<Box<dyn Wire>>),
    Http2(Http2<Box<dyn Wire>>),
}

/// Reads one response in HTTP/1.
fn answer(http: &mut Http1<Box<dyn Wire>>) -> Result<Answer, String> {
    http.response().map(|response| (response.status, response.body))
}

fn form(content: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(content.len() + 4096);
    // A form without content has one part, which is empty.
    let parts = if content.is_empty() { vec![content] } else { content.chunks(PART_BYTES).collect() };
    for part in parts {
        body.extend_from_slice(b"--streamed-bodies\r\nContent-Disposition: form-data; name=a; filename=a\r\n\r\n");
        body.extend_from_slice(part);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--streamed-bodies--\r\n");
    body
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 8192);
    for chunk in body.chunks(CHUNK_BYTES) {
        write!(bytes, "{:x}\r\n", chunk.len()).expect("writing to memory does not fail");
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

fn expect(answer: &Answer, expected: &str) -> Result<(), String> {
    let (status, body) = answer;
    match *status == 200 && body == expected.as_bytes() {
        true => Ok(()),
        false => Err(format!("status {status} with {:?}, expected {expected:?}", body.escape_ascii().to_string())),
    }
}

const AGAIN: &[u8] = b"GET /again HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Sends a body, and then another request on the same connection.
fn exchange(peer: &mut Peer, row: &Row, body: &[u8], expected: &str) -> Result<(), String> {
    let http = match peer {
        Peer::Http2(http) => {
            expect(&http.ask("POST", &row.path, &[("content-type", MULTIPART)], body)?, expected)?;
            return expect(&http.ask("GET", "/again", &[], b"")?, "again").map_err(|error| format!("then {error}"));
        }
        Peer::Http1(http) => http,
    };
    let (framing, sent): (String, Cow<'_, [u8]>) = match row.framing {
        Framing::Chunked => ("Transfer-Encoding: chunked".to_string(), Cow::Owned(chunked(body))),
        _ => (format!("Content-Length: {}", body.len()), Cow::Borrowed(body)),
    };
    let path = &row.path;
    let head = format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Type: {MULTIPART}\r\n{framing}\r\n\r\n");
    let pipelined = row.framing == Framing::Pipelined;
    let behind = if pipelined { AGAIN } else { b"" };
    http.send(&[head.as_bytes(), &*sent, behind].concat())?;
    expect(&answer(http)?, expected)?;
    let again = if pipelined { Ok(()) } else { http.send(AGAIN) };
    let again = again.and_then(|()| answer(http)).and_then(|answer| expect(&answer, "again"));
    again.map_err(|error| format!("then {error}"))
}

fn play(row: &Row, target: &Target) -> Result<(), String> {
    let mut peer = connect(row, target)?;
    for size in SIZES {
        let content = &CONTENT[..size];
        let body: Cow<'_, [u8]> = if row.is_form() { Cow::Owned(form(content)) } else { Cow::Borrowed(content) };
        exchange(&mut peer, row, &body, &Tally::of(content)).map_err(|error| format!("{size} bytes: {error}"))?;
    }
    Ok(())
}

fn check(engine: Engine) {
    let authority = Authority::new("test");
    let app = app().configure(|config| (config.engine, config.workers) = (engine, 2));
    let mut server = app.listen("127.0.0.1:0").expect("a free port");
    if engine != Engine::Threads {
        server = server.listen_tls("127.0.0.1:0", simple(&authority)).expect("a free port");
    }
    let handle = server.start().expect("a server that starts");
    let client = |protocol: &str| Client { alpn: &[protocol], ..Client::of(&authority) }.config();
    let target = Target {
        clear: handle.addresses()[0].clone(),
        secure: handle.addresses().get(1).cloned(),
        http1: client("http/1.1"),
        http2: client("h2"),
    };
    let (rows, next, wrong) = (rows(engine), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = play(row, &target) {
                        wrong.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{row:?}: {error}"));
                    }
                }
            });
        }
    });
    handle.shutdown();
    let report = handle.join().expect("a server that ends");
    let wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(wrong.is_empty(), "{engine:?}: {} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    assert_eq!(report.cut, 0, "{engine:?}");
}

#[test]
fn bodies_reach_slow_handlers_whole_on_uring() {
    if engines::has(Engine::Uring) {
        check(Engine::Uring);
    }
}

#[test]
fn bodies_reach_slow_handlers_whole_on_readiness() {
    check(Engine::Readiness);
}

#[test]
fn bodies_reach_slow_handlers_whole_on_threads() {
    check(Engine::Threads);
}
