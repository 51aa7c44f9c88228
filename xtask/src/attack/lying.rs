//! The attacks by upstreams on a proxy, which contains the client: upstreams that lie, stall or flood.

use super::deflate;
use super::frames::{END_STREAM, headers, opening};
use super::http1::get;
use super::proxy::get_evil;
use super::spec::{self, Attack, End, Pace, Payload, Protocol, Reading, Target, WRITE_BYTES, filled};
use super::upstream::{Finally, SILENT, Upstream};
use super::websocket_frames::upgrade;

/// Each connection sends one request after the other.
const BASE: Attack = Attack { opening: || get("/evil"), ..spec::BASE };

/// An upstream that closes the connection after its answer.
const CLOSING: Upstream = Upstream { then: Finally::Close, ..SILENT };

const fn target(upstream: &'static Upstream) -> Target {
    Target::Proxy(Some(upstream))
}

/// The start of a response whose body has chunks.
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Pipelined requests, for upstreams that answer quickly.
const REQUESTS: Payload = Payload::Same(|| filled(&get("/evil")));

/// Requests over HTTP/2, 100 at a time.
const STREAMS: Payload =
    Payload::Streams { open: 100, step: 1, request: |stream, out| headers(out, END_STREAM, stream, &get_evil()) };

pub(super) const ATTACKS: &[Attack] = &[
    // Heads.
    Attack {
        name: "upstream-endless-interims",
        what: "Endless responses 103 (Early Hints).",
        target: target(&Upstream { repeated: || filled(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), ..CLOSING }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-endless-fields",
        what: "A head with endless fields.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\n".to_vec(),
            repeated: || filled(b"a: b\r\n"),
            ..CLOSING
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-endless-value",
        what: "An endless field value.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\na: ".to_vec(),
            repeated: || filled(b"b"),
            ..CLOSING
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-many-fields",
        what: "Heads with 95 fields of 300 bytes, which the proxy passes on over HTTP/2.",
        target: target(&Upstream {
            answer: || {
                let fields: String = (0..95).map(|number| format!("x-{number}: {}\r\n", "v".repeat(300))).collect();
                format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nok").into_bytes()
            },
            then: Finally::Again,
            ..SILENT
        }),
        protocol: Protocol::Http2,
        opening: || opening(None),
        payload: STREAMS,
        ..BASE
    },
    Attack {
        name: "upstream-slow-head",
        what: "A head, one field every 200 ms.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\n".to_vec(),
            repeated: || b"a: b\r\n".to_vec(),
            pace: Pace::Every(200),
            ..CLOSING
        }),
        ..BASE
    },
    Attack {
        name: "upstream-half-head",
        what: "Half a head, and nothing after it; clients leave after 20 ms.",
        target: target(&Upstream { answer: || b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(), ..SILENT }),
        end: End::CloseAfter(20),
        ..BASE
    },
    Attack {
        name: "upstream-garbage",
        what: "Text that is no response.",
        target: target(&Upstream { answer: || b"garbage\r\n\r\n".repeat(100), ..CLOSING }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-two-lengths",
        what: "Responses with both Content-Length and Transfer-Encoding.",
        target: target(&Upstream {
            answer: || {
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
                    .to_vec()
            },
            then: Finally::Again,
            ..SILENT
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-switches",
        what: "Responses 101 (Switching Protocols) to requests that propose no protocol, then endless bytes.",
        target: target(&Upstream {
            answer: || {
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".to_vec()
            },
            repeated: || filled(b"x"),
            ..CLOSING
        }),
        payload: REQUESTS,
        ..BASE
    },
    // Bodies.
    Attack {
        name: "upstream-tiny-chunks",
        what: "A body of endless chunks of one byte; clients read it.",
        target: target(&Upstream { answer: || CHUNKED.to_vec(), repeated: || filled(b"1\r\nx\r\n"), ..CLOSING }),
        ..BASE
    },
    Attack {
        name: "upstream-chunk-extensions",
        what: "A body of endless chunks of one byte, each with an extension of 100 bytes.",
        target: target(&Upstream {
            answer: || CHUNKED.to_vec(),
            repeated: || filled(format!("1;{}\r\nx\r\n", "a".repeat(99)).as_bytes()),
            ..CLOSING
        }),
        ..BASE
    },
    Attack {
        name: "upstream-endless-extension",
        what: "An endless chunk extension.",
        target: target(&Upstream { answer: || [CHUNKED, b"1;"].concat(), repeated: || filled(b"a"), ..CLOSING }),
        ..BASE
    },
    Attack {
        name: "upstream-endless-trailers",
        what: "A last chunk with endless trailer fields.",
        target: target(&Upstream {
            answer: || [CHUNKED, b"0\r\n"].concat(),
            repeated: || filled(b"a: b\r\n"),
            ..CLOSING
        }),
        ..BASE
    },
    Attack {
        name: "upstream-extra-body",
        what: "Responses with 64 KB more than they announce.",
        target: target(&Upstream {
            answer: || [&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], &[b'x'; WRITE_BYTES]].concat(),
            then: Finally::Again,
            ..SILENT
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-extra-response",
        what: "Two responses to each request.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".repeat(2),
            then: Finally::Again,
            ..SILENT
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-body-of-304",
        what: "Responses 304 (Not Modified) that are followed by a body.",
        target: target(&Upstream {
            answer: || {
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n"
                    .iter()
                    .chain(&[b'x'; 1000])
                    .copied()
                    .collect()
            },
            then: Finally::Again,
            ..SILENT
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-short-body",
        what: "Responses that announce 1 MB, and end after 1 KB.",
        target: target(&Upstream {
            answer: || [&b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"[..], &[b'x'; 1000]].concat(),
            ..CLOSING
        }),
        ..BASE
    },
    Attack {
        name: "upstream-slow-body",
        what: "A body of 100 KB, one byte every 50 ms, of which a client takes 100 at once over HTTP/2.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec(),
            repeated: || b"x".to_vec(),
            pace: Pace::Every(50),
            ..CLOSING
        }),
        protocol: Protocol::Http2,
        opening: || opening(None),
        payload: STREAMS,
        ..BASE
    },
    Attack {
        name: "upstream-endless-body",
        what: "Endless bodies without a length, of which a client requests 100 at once over HTTP/2 and takes none.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            repeated: || vec![b'x'; WRITE_BYTES],
            ..CLOSING
        }),
        protocol: Protocol::Http2,
        opening: || opening(Some(0)),
        payload: STREAMS,
        ..BASE
    },
    Attack {
        name: "upstream-encoded-bomb",
        what: "A compressed body of 1 KB that inflates to 1 MiB, which the proxy should pass on as it is.",
        target: target(&Upstream {
            answer: || {
                let body = [&b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"[..], &deflate::zeros(1 << 20)].concat();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
                [head.as_bytes(), &body].concat()
            },
            then: Finally::Again,
            ..SILENT
        }),
        payload: REQUESTS,
        ..BASE
    },
    // Connections.
    Attack {
        name: "upstream-closes",
        what: "Connections that the upstream closes when a request has arrived.",
        target: target(&CLOSING),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-closes-http2",
        what: "As upstream-closes, but clients request 100 at once over HTTP/2.",
        target: target(&CLOSING),
        protocol: Protocol::Http2,
        opening: || opening(None),
        payload: STREAMS,
        ..BASE
    },
    Attack {
        name: "upstream-closes-idle",
        what: "Responses after which the upstream closes a connection that the proxy expects to use again.",
        target: target(&Upstream { answer: || b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec(), ..CLOSING }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-resets-head",
        what: "Connections that the upstream resets in the middle of the head.",
        target: target(&Upstream {
            answer: || b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(),
            then: Finally::Reset,
            ..SILENT
        }),
        payload: REQUESTS,
        ..BASE
    },
    Attack {
        name: "upstream-resets-body",
        what: "Connections that the upstream resets in the middle of the body.",
        target: target(&Upstream {
            answer: || [&b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"[..], &[b'x'; 1000]].concat(),
            then: Finally::Reset,
            ..SILENT
        }),
        ..BASE
    },
    Attack {
        name: "upstream-websocket-flood",
        what: "Endless messages after the upgrade to WebSocket; clients read nothing.",
        target: target(&Upstream {
            answer: || {
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                    .to_vec()
            },
            repeated: || filled(b"\x81\x02hi"),
            ..CLOSING
        }),
        protocol: Protocol::WebSocket,
        opening: || upgrade("/evil"),
        reading: Reading::Nothing,
        ..BASE
    },
];
