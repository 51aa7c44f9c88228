//! Clients of WebSockets.

use super::SECOND;
use super::tunnel::Peer;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use highwire::App;
use highwire::ws::{Deflate, WebSocket, WebSocketUpgrade};
use highwire_proto::ws::deflate::TAIL;
use highwire_proto::ws::{self, Bounds, Connection, Event};
use std::future::Future;

/// A client of a WebSocket: our protocol code in the client's role, over a tunnel.
pub(crate) struct Client {
    pub(crate) tunnel: Peer,
    pub(crate) ws: Connection,
    /// The number of received bytes that were parsed.
    parsed: usize,
    window: Vec<u8>,
}

pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

pub(crate) fn request(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: sim\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\r\n")
}

impl Client {
    /// Opens a WebSocket over each version of HTTP.
    pub(crate) fn all<F, Fut>(handler: F) -> [(&'static str, Client); 2]
    where
        F: Fn(WebSocket) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Client::with(handler, None)
    }

    /// Opens a WebSocket over each version of HTTP. If the server has settings for permessage-deflate, the client offers
    /// it.
    pub(crate) fn with<F, Fut>(handler: F, deflate: Option<Deflate>) -> [(&'static str, Client); 2]
    where
        F: Fn(WebSocket) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let app = move || {
            let accept = move |upgrade: WebSocketUpgrade| {
                let upgrade = upgrade.max_message_size(100_000);
                let Some(deflate) = deflate else { return upgrade.on_upgrade(handler) };
                upgrade.deflate(deflate).on_upgrade(handler)
            };
            App::new().configure(|config| config.timeouts.tunnel = 1000 * SECOND).get("/", accept)
        };
        Client::of(app, deflate.is_some())
    }

    /// Opens a WebSocket of an app's route `/` over each version of HTTP. If `deflate` is true, the client offers
    /// permessage-deflate, and expects it to be accepted.
    pub(crate) fn of(app: impl Fn() -> App, deflate: bool) -> [(&'static str, Client); 2] {
        let offer = if deflate { "permessage-deflate" } else { "x-unknown" };
        let fields =
            format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Extensions: {offer}\r\n");
        let (http1, head) = Peer::http1(app(), &request(&fields), "101");
        assert_eq!(head.to_lowercase().contains("extensions: permessage-deflate"), deflate, "{head}");
        assert!(head.to_lowercase().contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-extensions", offer)];
        let http2 = Peer::http2(app(), Some("websocket"), "/", &fields);
        [("HTTP/1", http1), ("HTTP/2", http2)].map(|(name, tunnel)| {
            let ws = Connection::client(Bounds::default(), deflate, || [1, 2, 3, 4]);
            (name, Client { tunnel, ws, parsed: 0, window: Vec::new() })
        })
    }

    /// Sends the frames that `write` appends.
    pub(crate) fn say(&mut self, write: impl FnOnce(&mut Connection, &mut Vec<u8>) -> Result<(), ws::Misuse>) {
        let mut out = Vec::new();
        write(&mut self.ws, &mut out).expect("the client may send this");
        self.tunnel.say(&out);
    }

    /// Returns the events that were received since the last call, and the end of the server's direction.
    pub(crate) fn hear(&mut self) -> Vec<String> {
        let (received, end) = self.tunnel.heard();
        self.window.extend_from_slice(&received[self.parsed..]);
        self.parsed = received.len();
        let mut events = Vec::new();
        let mut text = Vec::new();
        loop {
            let received = self.ws.receive(&mut self.window).expect("the server's frames are valid");
            let mut is_over = false;
            match received.event {
                Event::NeedMore => is_over = true,
                Event::Data { bytes, is_last, compressed, .. } => {
                    text.extend_from_slice(bytes);
                    if is_last {
                        let mut text = std::mem::take(&mut text);
                        if compressed {
                            text.extend_from_slice(&TAIL);
                            text = flated(|out| {
                                Decompress::new(false)
                                    .decompress_vec(&text, out, FlushDecompress::Sync)
                                    .expect("valid");
                            });
                            events.push("deflated".into());
                        }
                        let long = format!("{} bytes", text.len());
                        events.push(String::from_utf8(text).ok().filter(|text| text.len() < 100).unwrap_or(long));
                    }
                }
                Event::Ping(bytes) => events.push(format!("ping {}", String::from_utf8_lossy(bytes))),
                Event::Pong(bytes) => events.push(format!("pong {}", String::from_utf8_lossy(bytes))),
                Event::Close { code, reason } => events.push(format!("close {} {reason}", code.unwrap_or(0))),
            }
            let consumed = received.consumed;
            self.window.drain(..consumed);
            if is_over {
                break;
            }
        }
        events.extend(end.map(str::to_owned));
        events
    }
}

/// Returns the bytes that `write` appends to an empty vector, into which all of them fit.
fn flated(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_000_000);
    write(&mut out);
    out
}

/// Deflates a message, without context takeover.
pub(crate) fn deflated(message: &[u8]) -> Vec<u8> {
    let mut out = flated(|out| {
        let mut compress = Compress::new(Compression::default(), false);
        compress.compress_vec(message, out, FlushCompress::Sync).expect("the vector has room");
    });
    out.truncate(out.len() - TAIL.len());
    out
}
