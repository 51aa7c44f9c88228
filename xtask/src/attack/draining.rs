//! The attacks by clients whose request the server refuses, and that continue to send. The server must read some of these
//! bytes, because a client that is reset may lose the answer.
//!
//! Each client sends at most 4 MiB and then opens the next connection, so that every connection is in that phase.

use std::sync::OnceLock;

use super::frames::{self, DATA, END_STREAM, numbers, opening};
use super::http1::{announced, chunked, get};
use super::http2::block_naming;
use super::spec::{self, Attack, End, Payload, Protocol, WRITE_BYTES};
use super::websocket_frames::{CLOSE, FIN, TEXT, frame, upgrade};

/// The number of writes of 64 KiB that follow a request that is refused.
const WRITES: u32 = 64;

/// Sends 4 MiB, then closes.
const BASE: Attack = Attack { payload: Payload::Numbered(letters), end: End::Close, ..spec::BASE };

fn letters(round: u32, out: &mut Vec<u8>) {
    if round < WRITES {
        out.resize(WRITE_BYTES, b'x');
    }
}

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "draining-bad-request",
        what: "Malformed requests, each followed by 4 MiB on the same connection.",
        opening: || b"GET  /hello HTTP/1.1\r\nHost : localhost\r\n\r\n".to_vec(),
        ..BASE
    },
    Attack {
        name: "draining-too-large",
        what: "POSTs to /body that announce 10 GB, each followed by 4 MiB of it.",
        opening: || announced("/body", 10_000_000_000),
        ..BASE
    },
    Attack {
        name: "draining-no-such-path",
        what: "POSTs to a path that does not exist, each followed by 4 MiB in chunks of 10 bytes.",
        opening: || chunked("/no/such/path"),
        payload: Payload::Numbered(|round, out| {
            if round < WRITES {
                out.extend(b"a\r\n0123456789\r\n".repeat(WRITE_BYTES / 15));
            }
        }),
        ..BASE
    },
    Attack {
        name: "draining-last-request",
        what: "GETs with Connection: close, each followed by 4 MiB on the same connection.",
        opening: || b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(),
        ..BASE
    },
    Attack {
        name: "draining-after-get",
        what: "GETs, each followed by 4 MiB that are no request.",
        opening: || get("/hello"),
        ..BASE
    },
    Attack {
        name: "draining-http2-error",
        what: "HTTP/2 connections with DATA on stream 0, an error, each followed by 4 MiB of DATA.",
        protocol: Protocol::Http2,
        opening: || opening(None),
        payload: Payload::Numbered(|round, out| {
            if round < WRITES {
                (0..4).for_each(|_| frames::frame(out, DATA, 0, 0, &[b'x'; WRITE_BYTES / 4 - 9]));
            }
        }),
        ..BASE
    },
    Attack {
        name: "draining-http2-bombs",
        what: "HTTP/2 connections with 4 MiB of header blocks, each of which repeats a field of 4,000 bytes 56,000 times \
               with one byte each.",
        protocol: Protocol::Http2,
        opening: || opening(None),
        payload: Payload::Numbered(|round, out| {
            static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
            if round < WRITES {
                let block = BLOCK.get_or_init(|| block_naming(b"a", &[b'b'; 4000], b"\xbe"));
                numbers(round, 1).for_each(|stream| frames::headers(out, END_STREAM, stream, block));
            }
        }),
        ..BASE
    },
    Attack {
        name: "draining-tls-plain",
        what: "Cleartext HTTP/1 requests on the TLS port, each followed by 4 MiB.",
        protocol: Protocol::Tls,
        opening: || get("/hello"),
        ..BASE
    },
    Attack {
        name: "draining-websocket-error",
        what: "WebSockets with a frame that has reserved bits, an error, each followed by 4 MiB.",
        protocol: Protocol::WebSocket,
        opening: || [upgrade("/ws"), frame(FIN | 0x30 | TEXT, b"x")].concat(),
        ..BASE
    },
    Attack {
        name: "draining-websocket-closed",
        what: "WebSockets that the client closes, each followed by 4 MiB of messages.",
        protocol: Protocol::WebSocket,
        opening: || [upgrade("/ws"), frame(FIN | CLOSE, b"\x03\xe8")].concat(),
        payload: Payload::Numbered(|round, out| {
            if round < WRITES {
                out.extend(frame(FIN | TEXT, &[b'x'; 1000]).repeat(64));
            }
        }),
        ..BASE
    },
    Attack {
        name: "draining-refused-upgrade",
        what: "Requests for a WebSocket of a version that does not exist, each followed by 4 MiB of messages.",
        protocol: Protocol::WebSocket,
        opening: || {
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 99\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                .to_vec()
        },
        payload: Payload::Numbered(|round, out| {
            if round < WRITES {
                out.extend(frame(FIN | TEXT, &[b'x'; 1000]).repeat(64));
            }
        }),
        ..BASE
    },
];
