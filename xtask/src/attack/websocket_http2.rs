//! The attacks by many WebSockets on one HTTP/2 connection (RFC 8441).

use super::frames::{self, DATA, END_STREAM, numbers, opening, reset};
use super::spec::{self, Attack, Data, End, MOST_STREAMS, Payload, Protocol, Reading, Then};
use super::websocket_frames::{FIN, PING, TEXT, bomb, connect, connect_all, frame, half_bomb, words};
use super::{deflate, websocket_frames};

const BASE: Attack = Attack { protocol: Protocol::Http2, ..spec::BASE };

const MIB: u64 = 1 << 20;

/// Returns an opening with a WebSocket on each stream, each of which sends these bytes.
fn sockets(window: Option<u32>, is_compressed: bool, bytes: &[u8]) -> Vec<u8> {
    let mut out = opening(window);
    connect_all(&mut out, MOST_STREAMS, "/ws", is_compressed);
    if !bytes.is_empty() {
        numbers(0, MOST_STREAMS).for_each(|stream| frames::frame(&mut out, DATA, 0, stream, bytes));
    }
    out
}

/// Returns a compressed message of 400 bytes. It makes the server keep a decompressor and a compressor.
fn compressed_message() -> Vec<u8> {
    frame(FIN | websocket_frames::COMPRESSED | TEXT, &deflate::literals(&words(400)))
}

/// Endless DATA frames with a few WebSocket frames each on every stream.
const TINY: Data = Data {
    streams: MOST_STREAMS,
    content: || frame(FIN | TEXT, b"").repeat(4),
    padding: None,
    most: u64::MAX,
    then: Then::Drip,
};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "websocket-http2-silent",
        what: "128 WebSockets on each connection, which send nothing.",
        opening: || sockets(None, true, b""),
        ..BASE
    },
    Attack {
        name: "websocket-http2-takeover",
        what: "128 WebSockets on each connection with a compressed message each, after which both sides keep the state \
               of their compression.",
        opening: || sockets(None, true, &compressed_message()),
        ..BASE
    },
    Attack {
        name: "websocket-http2-half-bombs",
        what: "128 WebSockets on each connection, each with the first fragment of a message, 1 KB that inflate to 1 MiB.",
        opening: || sockets(None, true, &half_bomb((1 << 20) - 1000)),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-http2-bombs-stalled",
        what: "128 WebSockets on each connection, each with a message of 1 KB that inflates to 1 MiB; the answers wait \
               for a window of 0.",
        opening: || sockets(Some(0), true, &bomb(1 << 20)),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-http2-answers-stalled",
        what: "128 WebSockets on each connection without compression, each with messages of 3 KB as the windows allow; \
               the answers wait for a window of 0.",
        opening: || sockets(Some(0), false, b""),
        payload: Payload::Data(Data { content: || frame(FIN | TEXT, &words(3000)), ..TINY }),
        ..BASE
    },
    Attack {
        name: "websocket-http2-tiny-frames",
        what: "Empty messages on 128 WebSockets of each connection in turn, four in each DATA frame.",
        opening: || sockets(None, false, b""),
        payload: Payload::Data(TINY),
        ..BASE
    },
    Attack {
        name: "websocket-http2-pings",
        what: "Pings on 128 WebSockets of each connection in turn, 100 in each DATA frame.",
        opening: || sockets(None, false, b""),
        payload: Payload::Data(Data { content: || frame(FIN | PING, b"").repeat(100), ..TINY }),
        ..BASE
    },
    Attack {
        name: "websocket-http2-unread",
        what: "128 WebSockets on each connection with 600 Pings each; nothing is read.",
        opening: || sockets(None, false, &frame(FIN | PING, b"").repeat(600)),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "websocket-http2-resets",
        what: "CONNECT requests for WebSockets, each followed by RST_STREAM.",
        opening: || opening(None),
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, 500) {
                connect(out, stream, "/ws", true);
                reset(out, stream);
            }
        }),
        ..BASE
    },
    Attack {
        name: "websocket-http2-short",
        what: "WebSockets on streams of one connection, 100 at a time, each of which sends a message and ends.",
        opening: || opening(None),
        payload: Payload::Streams {
            open: 100,
            step: 1,
            request: |stream, out| {
                connect(out, stream, "/ws", true);
                frames::frame(out, DATA, END_STREAM, stream, &frame(FIN | TEXT, b"hello"));
            },
        },
        ..BASE
    },
    Attack {
        name: "websocket-http2-leave",
        what: "128 WebSockets with a compressed message each on a connection, which the client closes after 50 ms; then \
               the next connection does the same.",
        opening: || sockets(None, true, &compressed_message()),
        end: End::CloseAfter(50),
        ..BASE
    },
];
