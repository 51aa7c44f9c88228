//! Tests that a TLS connection uses the HTTP version on which client and server agreed by ALPN, independent of the
//! client's first bytes. For example, a client that agreed on HTTP/1.1 and then sends the HTTP/2 preface gets 400 over
//! HTTP/1, and no SETTINGS.
//!
//! Needs a real kernel, because the first bytes arrive in pieces, and the end of a refused connection may be a reset.

use crate::engines;
use crate::tls_peer::{Authority, Client, simple};
use highwire::server::{Config, Engine, Handle};
use highwire::{App, Version};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;
use testkit::frames::{self, ACK, GOAWAY, SETTINGS};
use testkit::http1::connect_within;
use testkit::http2::Http2;

/// The longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(8);

const REQUEST: &[u8] = b"GET /version HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// The length of a frame's head.
const FRAME_HEAD_BYTES: usize = 9;

/// The error code of a GOAWAY to a client that does not speak HTTP/2, or must not (RFC 9113 section 7).
const PROTOCOL_ERROR: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Clear,
    /// TLS, with the protocols that the client offers by ALPN.
    Tls(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Preface,
    Request,
}

/// The protocol that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    /// HTTP/1. The server sends one response with this status, and then ends the connection.
    Http1(u16),
    /// HTTP/2. The server sends SETTINGS and acknowledges the client's SETTINGS.
    Http2,
    /// HTTP/2, but only for an error. The server sends SETTINGS, and then a GOAWAY with this code.
    GoesAway(u32),
    /// None. The server closes without a byte, or refuses the handshake.
    Nothing,
}

/// Changes the settings of the server for a table.
type Settings = fn(&mut Config);

type Row = (Layer, First, Spoken);

const BY_DEFAULT: &[Row] = &[
    (Layer::Tls(&["http/1.1"]), First::Request, Spoken::Http1(200)),
    (Layer::Tls(&["http/1.1"]), First::Preface, Spoken::Http1(400)),
    (Layer::Tls(&["http/1.0"]), First::Preface, Spoken::Http1(400)),
    (Layer::Tls(&["h2"]), First::Preface, Spoken::Http2),
    (Layer::Tls(&["h2"]), First::Request, Spoken::GoesAway(PROTOCOL_ERROR)),
    (Layer::Tls(&["h2", "http/1.1"]), First::Preface, Spoken::Http2),
    (Layer::Tls(&["http/1.1", "h2"]), First::Preface, Spoken::Http2),
    (Layer::Tls(&[]), First::Request, Spoken::Http1(200)),
    (Layer::Tls(&[]), First::Preface, Spoken::Http1(400)),
    (Layer::Clear, First::Request, Spoken::Http1(200)),
    (Layer::Clear, First::Preface, Spoken::Http2),
];

const WITHOUT_ALPN: &[Row] = &[
    (Layer::Tls(&[]), First::Request, Spoken::Http1(200)),
    (Layer::Tls(&[]), First::Preface, Spoken::Http2),
    (Layer::Tls(&["http/1.1"]), First::Preface, Spoken::Http1(400)),
    (Layer::Tls(&["h2"]), First::Preface, Spoken::Http2),
];

const NO_HTTP1: &[Row] = &[
    (Layer::Tls(&["http/1.1"]), First::Request, Spoken::Nothing),
    (Layer::Tls(&["h2", "http/1.1"]), First::Preface, Spoken::Http2),
    (Layer::Tls(&[]), First::Request, Spoken::GoesAway(PROTOCOL_ERROR)),
    (Layer::Tls(&[]), First::Preface, Spoken::GoesAway(PROTOCOL_ERROR)),
    (Layer::Clear, First::Request, Spoken::GoesAway(PROTOCOL_ERROR)),
    (Layer::Clear, First::Preface, Spoken::Http2),
];

const NO_HTTP1_WITHOUT_ALPN: &[Row] = &[
    (Layer::Tls(&[]), First::Request, Spoken::GoesAway(PROTOCOL_ERROR)),
    (Layer::Tls(&[]), First::Preface, Spoken::Http2),
];

const NO_HTTP2_UNDER_TLS: &[Row] = &[
    (Layer::Tls(&["h2"]), First::Preface, Spoken::Nothing),
    (Layer::Tls(&["h2", "http/1.1"]), First::Request, Spoken::Http1(200)),
    (Layer::Tls(&["h2", "http/1.1"]), First::Preface, Spoken::Http1(400)),
    (Layer::Tls(&[]), First::Preface, Spoken::Http1(400)),
    (Layer::Clear, First::Preface, Spoken::Http2),
];

const NO_HTTP2_IN_THE_CLEAR: &[Row] = &[
    (Layer::Clear, First::Request, Spoken::Http1(200)),
    (Layer::Clear, First::Preface, Spoken::Http1(400)),
    (Layer::Tls(&["h2"]), First::Preface, Spoken::Http2),
];

/// The tables, each with its name and the settings of its server.
const TABLES: &[(&str, Settings, &[Row])] = &[
    ("by default", |_| {}, BY_DEFAULT),
    ("http2_without_alpn", |config| config.http2_without_alpn = true, WITHOUT_ALPN),
    ("no http1", |config| config.http1 = false, NO_HTTP1),
    (
        "no http1, http2_without_alpn",
        |config| (config.http1, config.http2_without_alpn) = (false, true),
        NO_HTTP1_WITHOUT_ALPN,
    ),
    ("no http2_tls", |config| config.http2_tls = false, NO_HTTP2_UNDER_TLS),
    ("no http2_cleartext", |config| config.http2_cleartext = false, NO_HTTP2_IN_THE_CLEAR),
];

/// The engine `threads` has no TLS.
const ON_THREADS: &[Row] =
    &[(Layer::Clear, First::Request, Spoken::Http1(200)), (Layer::Clear, First::Preface, Spoken::Http2)];

trait Wire: Read + Write {}

impl<S: Read + Write> Wire for S {}

fn connect(handle: &Handle, authority: &Authority, layer: Layer) -> Box<dyn Wire> {
    let address = &handle.addresses()[usize::from(layer != Layer::Clear)];
    let socket = connect_within(address, PATIENCE);
    match layer {
        Layer::Clear => Box::new(socket),
        Layer::Tls(alpn) => {
            let config = Client { alpn, ..Client::of(authority) }.config();
            let name = ServerName::try_from("a.example").expect("a name");
            Box::new(StreamOwned::new(ClientConnection::new(config, name).expect("a client"), socket))
        }
    }
}

/// Returns the protocol that a server's frames show, or `None` if more bytes are needed.
fn judge_frames(mut bytes: &[u8]) -> Result<Option<Spoken>, String> {
    let mut is_first = true;
    while let Some(&[a, b, c, kind, flags, ..]) = bytes.first_chunk::<FRAME_HEAD_BYTES>() {
        let end = FRAME_HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
        let Some(payload) = bytes.get(FRAME_HEAD_BYTES..end) else { return Ok(None) };
        match (kind, payload) {
            (SETTINGS, _) if is_first && flags & ACK == 0 => {}
            _ if is_first => return Err(format!("the first frame is not SETTINGS: {}", bytes.escape_ascii())),
            (SETTINGS, _) if flags & ACK != 0 => return Ok(Some(Spoken::Http2)),
            // The payload is the last stream, the code, and optional debug data.
            (GOAWAY, &[_, _, _, _, d, e, f, g, ..]) => {
                return Ok(Some(Spoken::GoesAway(u32::from_be_bytes([d, e, f, g]))));
            }
            _ => {}
        }
        is_first = false;
        bytes = &bytes[end..];
    }
    Ok(None)
}

/// Sends the first bytes in pieces, and reads until the server's protocol is clear.
fn meet(wire: &mut dyn Wire, first: &[u8], piece: usize) -> Result<Spoken, String> {
    for part in first.chunks(piece) {
        // The server may refuse the first pieces before the last ones are sent.
        if wire.write_all(part).and_then(|()| wire.flush()).is_err() {
            break;
        }
    }
    let mut heard = Vec::new();
    loop {
        if heard.len() >= FRAME_HEAD_BYTES
            && !heard.starts_with(b"HTTP/")
            && let Some(spoken) = judge_frames(&heard)?
        {
            return Ok(spoken);
        }
        let mut part = [0; 1024];
        match wire.read(&mut part) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(format!("the server goes silent after {:?}", heard.escape_ascii().to_string()));
            }
            // A reset, a refused handshake, or an end without `close_notify`.
            Err(_) => break,
        }
    }
    if heard.is_empty() {
        return Ok(Spoken::Nothing);
    }
    let text = heard.escape_ascii().to_string();
    // The bytes must be one response, without a second one or frames (whose heads contain zeros) after it.
    if heard.contains(&0) || text.matches("HTTP/1.1 ").count() != 1 || !heard.starts_with(b"HTTP/1.1 ") {
        return Err(format!("not exactly one HTTP/1 response: {text}"));
    }
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.map(Spoken::Http1).ok_or_else(|| format!("no status: {text}"))
}

fn check(handle: &Handle, authority: &Authority, &(layer, first, expected): &Row, context: &str) {
    let opening = frames::opening();
    let bytes = if first == First::Preface { &opening[..] } else { REQUEST };
    for piece in [bytes.len(), 1, 20] {
        let spoken = meet(&mut *connect(handle, authority, layer), bytes, piece);
        assert_eq!(spoken, Ok(expected), "{context}, {layer:?}, {first:?} in pieces of {piece} bytes");
    }
    if (first, expected) == (First::Preface, Spoken::Http2) {
        let scheme = if layer == Layer::Clear { "http" } else { "https" };
        let answer = Http2::new(connect(handle, authority, layer), scheme).ask("GET", "/version", &[], b"");
        assert_eq!(answer, Ok((200, b"HTTP/2.0".to_vec())), "{context}, {layer:?}");
    }
}

fn app(engine: Engine) -> App {
    let app = App::new().get("/version", |version: Version| format!("{:?}", version.0));
    app.configure(|config| (config.engine, config.workers) = (engine, 1))
}

#[test]
fn connections_speak_what_alpn_chose() {
    let authority = Authority::new("test");
    for engine in engines::available(engines::EVENT_LOOPS) {
        for (about, settings, rows) in TABLES {
            let server = app(engine).configure(*settings).listen("127.0.0.1:0").expect("a free port");
            let server = server.listen_tls("127.0.0.1:0", simple(&authority)).expect("a free port");
            let handle = server.start().expect("a server that starts");
            for row in *rows {
                check(&handle, &authority, row, &format!("{engine:?}, {about}"));
            }
            handle.abort();
            handle.join().expect("a server that ends");
        }
    }
}

#[test]
fn the_engine_threads_speaks_both_in_the_clear() {
    let authority = Authority::new("test");
    let handle =
        app(Engine::Threads).listen("127.0.0.1:0").expect("a free port").start().expect("a server that starts");
    for row in ON_THREADS {
        check(&handle, &authority, row, "threads");
    }
    handle.abort();
    handle.join().expect("a server that ends");
}
