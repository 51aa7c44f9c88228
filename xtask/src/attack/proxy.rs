//! The attacks of clients on a proxy in front of the demo: clients that leave, stall or flood. `lying` has the attacks of
//! upstreams.

use super::frames::{
    END_STREAM, GET_HELLO, GET_STREAM, POST_UPLOAD, headers, numbers, opening, opening_with, reset, string,
};
use super::http1::{SMUGGLED, announced, chunked, get, get_with, post};
use super::http2;
use super::spec::{
    self, Attack, Data, End, MOST_STREAMS, Pace, Payload, Protocol, Reading, Target, Then, WRITE_BYTES, filled,
};
use super::upstream::{Finally, SILENT, Upstream};
use super::websocket_frames::{FIN, TEXT, connect_all, frame, upgrade, upgrade_compressed};

const BASE: Attack = Attack { target: Target::Proxy(None), ..spec::BASE };

/// An attack over HTTP/2.
const BASE2: Attack = Attack { protocol: Protocol::Http2, opening: || opening(None), ..BASE };

/// An attack on a WebSocket through the proxy.
const BASE_WEBSOCKET: Attack = Attack { protocol: Protocol::WebSocket, opening: || upgrade("/ws"), ..BASE };

/// An upstream that answers nothing.
const SLOW: Target = Target::Proxy(Some(&SILENT));

/// An upstream that reads no more than the head of a request.
const UNREAD: Target = Target::Proxy(Some(&Upstream { then: Finally::Unread, ..SILENT }));

/// An upstream that sends Server-Sent Events.
const EVENTS: Target = Target::Proxy(Some(&Upstream {
    answer: || b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n".to_vec(),
    repeated: || b"data: an event\n\n".to_vec(),
    pace: Pace::Every(100),
    then: Finally::Close,
}));

/// An upstream that refuses an upload before its body has arrived.
const EARLY: Upstream =
    Upstream { answer: || b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno".to_vec(), ..SILENT };

/// Returns the block of a GET request for a path of the scripted upstream.
pub(super) fn get_evil() -> Vec<u8> {
    let mut block = b"\x82\x86\x04".to_vec();
    string(&mut block, b"/evil");
    block.push(0x01);
    string(&mut block, b"localhost");
    block
}

pub(super) const ATTACKS: &[Attack] = &[
    // Requests.
    Attack {
        name: "proxy-http1-pipelined",
        what: "Pipelined GETs of /hello; every answer is read.",
        payload: Payload::Same(|| filled(&get("/hello"))),
        ..BASE
    },
    Attack {
        name: "proxy-http1-many-fields",
        what: "Pipelined GETs with 90 fields each, which the proxy passes on.",
        payload: Payload::Same(|| filled(&get_with("/hello", &"a: b\r\n".repeat(90)))),
        ..BASE
    },
    Attack {
        name: "proxy-http2-requests",
        what: "GETs of /hello, 100 at a time; every answer is read.",
        payload: Payload::Streams { open: 100, step: 1, request: http2::get },
        ..BASE2
    },
    Attack {
        name: "proxy-http2-rapid-reset",
        what: "GETs of /hello, each followed by RST_STREAM.",
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, 500) {
                http2::get(stream, out);
                reset(out, stream);
            }
        }),
        ..BASE2
    },
    Attack {
        name: "proxy-http2-paced-reset",
        what: "Pairs of GETs, 60 at a time; the first is answered and the second reset, so that no allowance for \
               resets runs out.",
        payload: http2::PACED_RESETS,
        ..BASE2
    },
    // Clients that leave.
    Attack {
        name: "proxy-http1-leave",
        what: "A GET of /hello on each of many connections, which the client closes before the answer.",
        opening: || get("/hello"),
        end: End::Close,
        ..BASE
    },
    Attack {
        name: "proxy-http1-abandoned",
        what: "A GET that the upstream never answers on each of many connections, which the client closes after 20 ms.",
        target: SLOW,
        opening: || get("/evil"),
        end: End::CloseAfter(20),
        ..BASE
    },
    Attack {
        name: "proxy-http2-leave",
        what: "100 GETs of /hello on each of many connections, which the client closes before the answers.",
        opening: || opening_with(None, 100, END_STREAM, GET_HELLO),
        end: End::Close,
        ..BASE2
    },
    Attack {
        name: "proxy-http2-leave-answered",
        what: "As proxy-http2-leave, but the client waits for the first bytes of the server.",
        opening: || opening_with(None, 100, END_STREAM, GET_HELLO),
        end: End::Answer,
        ..BASE2
    },
    Attack {
        name: "proxy-http2-abandoned",
        what: "100 GETs that the upstream never answers on each of many connections, which the client closes after \
               50 ms.",
        target: SLOW,
        opening: || opening_with(None, 100, END_STREAM, &get_evil()),
        end: End::CloseAfter(50),
        ..BASE2
    },
    Attack {
        name: "proxy-http2-abandoned-reset",
        what: "GETs that the upstream never answers, 100 in every 20 ms, all of which are then reset.",
        target: SLOW,
        payload: Payload::Numbered(|round, out| {
            if round > 0 {
                numbers(round - 1, 100).for_each(|stream| reset(out, stream));
            }
            numbers(round, 100).for_each(|stream| headers(out, END_STREAM, stream, &get_evil()));
        }),
        pace: Pace::Every(20),
        ..BASE2
    },
    Attack {
        name: "proxy-http2-pending",
        what: "100 GETs on each connection that the upstream never answers, and nothing after them.",
        target: SLOW,
        opening: || opening_with(None, 100, END_STREAM, &get_evil()),
        ..BASE2
    },
    // Clients that do not read.
    Attack {
        name: "proxy-http1-unread",
        what: "A GET of /stream?bytes=1000000000; nothing is read.",
        opening: || get("/stream?bytes=1000000000"),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "proxy-http1-slow-read",
        what: "A GET of /stream?bytes=1000000000, of which 1 KiB is read every 100 ms.",
        opening: || get("/stream?bytes=1000000000"),
        reading: Reading::Slowly,
        ..BASE
    },
    Attack {
        name: "proxy-http2-stalled",
        what: "128 GETs of /stream?bytes=1000000000 with a window of 0.",
        opening: || opening_with(Some(0), MOST_STREAMS, END_STREAM, GET_STREAM),
        ..BASE2
    },
    Attack {
        name: "proxy-http2-unread",
        what: "128 GETs of /stream?bytes=1000000000 with wide windows; nothing is read.",
        opening: || opening_with(Some(1 << 30), MOST_STREAMS, END_STREAM, GET_STREAM),
        reading: Reading::Nothing,
        ..BASE2
    },
    // Event streams.
    Attack {
        name: "proxy-event-streams",
        what: "100 requests for event streams on each connection, which are read; each sends an event every 100 ms.",
        target: EVENTS,
        opening: || opening_with(None, 100, END_STREAM, &get_evil()),
        ..BASE2
    },
    Attack {
        name: "proxy-event-streams-leave",
        what: "As proxy-event-streams, but the client closes each connection after 50 ms and opens the next.",
        target: EVENTS,
        opening: || opening_with(None, 100, END_STREAM, &get_evil()),
        end: End::CloseAfter(50),
        ..BASE2
    },
    // Uploads.
    Attack {
        name: "proxy-cut-upload",
        what: "POSTs that announce 1 MB to /upload and close after 64 KiB, each on its own connection.",
        opening: || [announced("/upload", 1_000_000), vec![b'x'; 64 * 1024]].concat(),
        end: End::Close,
        ..BASE
    },
    Attack {
        name: "proxy-stalled-upload",
        what: "A POST of 1 MB to /upload: the first half at once, then one byte every 100 ms.",
        opening: || [announced("/upload", 1_000_000), vec![b'x'; 500_000]].concat(),
        payload: Payload::Same(|| b"x".to_vec()),
        pace: Pace::Every(100),
        ..BASE
    },
    Attack {
        name: "proxy-unread-upload",
        // The proxy does not see that the client has left, because it receives nothing while the upstream takes nothing.
        what: "POSTs of 1 GB to an upstream that neither reads them nor answers. The proxy's write deadline of 30 seconds \
               ends them.",
        seconds_back: 40.0,
        target: UNREAD,
        opening: || announced("/evil", 1_000_000_000),
        payload: Payload::Same(|| vec![b'x'; WRITE_BYTES]),
        ..BASE
    },
    Attack {
        name: "proxy-tiny-chunks",
        what: "POST to /upload in chunks of one byte, which the proxy passes on.",
        opening: || chunked("/upload"),
        payload: Payload::Same(|| filled(b"1\r\nx\r\n")),
        ..BASE
    },
    Attack {
        name: "proxy-refused-upload",
        what: "POSTs of 10 MB, of which the upstream refuses each at once, and the client continues to send.",
        target: Target::Proxy(Some(&EARLY)),
        opening: || announced("/evil", 10_000_000),
        payload: Payload::Numbered(|round, out| {
            if round < 10_000_000 / WRITE_BYTES as u32 {
                out.resize(WRITE_BYTES, b'x');
            }
        }),
        end: End::Close,
        ..BASE
    },
    Attack {
        name: "proxy-expect",
        what: "POSTs to /upload that expect 100 (Continue) and never send their bodies, each of which closes after 20 ms.",
        opening: || post("/upload", "Content-Length: 1000000\r\nExpect: 100-continue\r\n"),
        end: End::CloseAfter(20),
        ..BASE
    },
    Attack {
        name: "proxy-http2-tiny-data",
        what: "128 POSTs to /upload, with DATA frames of 20 bytes on each in turn, which the proxy passes on.",
        opening: || opening_with(None, MOST_STREAMS, 0, POST_UPLOAD),
        payload: Payload::Data(Data {
            streams: MOST_STREAMS,
            content: || vec![b'x'; 20],
            padding: None,
            most: u64::MAX,
            then: Then::Drip,
        }),
        ..BASE2
    },
    // Framing.
    Attack {
        name: "proxy-smuggling",
        what: "Requests with both Content-Length and Transfer-Encoding and another request in the body, each on its own \
               connection.",
        opening: || SMUGGLED.into(),
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "proxy-smuggled-names",
        what: "Requests whose field names only some parsers take for Transfer-Encoding, each on its own connection.",
        opening: || {
            let fields =
                "Content-Length: 5\r\nTransfer_Encoding: chunked\r\nX:\tchunked\r\nConnection: Content-Length\r\n";
            [post("/upload", fields), b"0\r\n\r\n".to_vec()].concat()
        },
        end: End::Answer,
        ..BASE
    },
    // WebSockets.
    Attack {
        name: "proxy-websocket-reconnect",
        what: "An upgrade on each of many connections, each of which the client closes when the server has answered.",
        opening: || upgrade_compressed("/ws"),
        end: End::Answer,
        ..BASE_WEBSOCKET
    },
    Attack {
        name: "proxy-websocket-tiny-frames",
        what: "Empty messages; every answer is read.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b""))),
        ..BASE_WEBSOCKET
    },
    Attack {
        name: "proxy-websocket-unread",
        what: "Messages of 64 KiB; no answer is read.",
        payload: Payload::Same(|| frame(FIN | TEXT, &[b'x'; 64 * 1024])),
        reading: Reading::Nothing,
        ..BASE_WEBSOCKET
    },
    Attack {
        name: "proxy-websocket-slow-read",
        what: "Messages of 64 KiB, of whose answers 1 KiB is read every 100 ms.",
        payload: Payload::Same(|| frame(FIN | TEXT, &[b'x'; 64 * 1024])),
        reading: Reading::Slowly,
        ..BASE_WEBSOCKET
    },
    Attack {
        name: "proxy-websocket-abandoned",
        what: "An upgrade that the upstream never answers on each of many connections, which the client closes after \
               20 ms.",
        target: SLOW,
        opening: || upgrade("/evil"),
        end: End::CloseAfter(20),
        ..BASE_WEBSOCKET
    },
    Attack {
        name: "proxy-websocket-http2",
        what: "128 WebSockets on each connection, which the client closes after 50 ms.",
        opening: || {
            let mut out = opening(None);
            connect_all(&mut out, MOST_STREAMS, "/ws", false);
            out
        },
        end: End::CloseAfter(50),
        ..BASE2
    },
];
