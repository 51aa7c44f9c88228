//! The attacks on WebSockets over HTTP/1: floods of frames, messages that expand, and clients that do not read.

use super::deflate;
use super::spec::{self, Attack, End, Pace, Payload, Protocol, Reading, filled};
use super::websocket_frames::{
    BINARY, CLOSE, COMPRESSED, CONTINUATION, FIN, PING, PONG, TEXT, bomb, frame, frame_head, half_bomb, upgrade,
    upgrade_compressed, words,
};

const BASE: Attack = Attack { protocol: Protocol::WebSocket, opening: || upgrade("/ws"), ..spec::BASE };

const MIB: u64 = 1 << 20;

/// The size of long messages, in bytes.
const MESSAGE: usize = 1 << 20;

/// One byte more than the demo takes of a message.
const TOO_LONG: usize = 16 * MESSAGE + 1;

fn compressed() -> Vec<u8> {
    upgrade_compressed("/ws")
}

pub(super) const ATTACKS: &[Attack] = &[
    // Floods of frames.
    Attack {
        name: "websocket-tiny-frames",
        what: "Empty messages; every answer is read.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b""))),
        ..BASE
    },
    Attack {
        name: "websocket-tiny-frames-unread",
        what: "As websocket-tiny-frames, but nothing is read.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b""))),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "websocket-small-messages",
        what: "Messages of one byte; every answer is read.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b"x"))),
        ..BASE
    },
    Attack {
        name: "websocket-bytewise",
        what: "Messages of one byte, each byte of a frame in a separate write and packet.",
        payload: Payload::Numbered(|round, out| out.push(frame(FIN | TEXT, b"x")[round as usize % 7])),
        ..BASE
    },
    Attack {
        name: "websocket-empty-fragments",
        what: "A message of endless empty fragments.",
        opening: || [upgrade("/ws"), frame(TEXT, b"")].concat(),
        payload: Payload::Same(|| filled(&frame(CONTINUATION, b""))),
        ..BASE
    },
    Attack {
        name: "websocket-small-fragments",
        what: "A message of endless fragments of 16 bytes, the smallest that have no limit of their own.",
        opening: || [upgrade("/ws"), frame(BINARY, b"")].concat(),
        payload: Payload::Same(|| filled(&frame(CONTINUATION, &[b'x'; 16]))),
        body_bytes: 16 * MIB,
        ..BASE
    },
    Attack {
        name: "websocket-pings",
        what: "Empty Pings, each of which the server answers.",
        payload: Payload::Same(|| filled(&frame(FIN | PING, b""))),
        ..BASE
    },
    Attack {
        name: "websocket-pings-unread",
        what: "Pings of 125 bytes; nothing is read.",
        payload: Payload::Same(|| filled(&frame(FIN | PING, &[b'x'; 125]))),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "websocket-pongs",
        what: "Empty Pongs that nobody has requested.",
        payload: Payload::Same(|| filled(&frame(FIN | PONG, b""))),
        ..BASE
    },
    Attack {
        name: "websocket-pings-in-message",
        what: "A message that does not end, with endless Pings between its fragments.",
        opening: || [upgrade("/ws"), frame(TEXT, &[b'x'; 16])].concat(),
        payload: Payload::Same(|| filled(&[frame(FIN | PING, b"x"), frame(CONTINUATION, &[b'x'; 16])].concat())),
        body_bytes: 16 * MIB,
        ..BASE
    },
    // Compression.
    Attack {
        name: "websocket-bomb",
        what: "Compressed messages of 1 KB that inflate to 1 MiB of zeros; every answer is read.",
        opening: compressed,
        payload: Payload::Same(|| bomb(MESSAGE)),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-bomb-unread",
        what: "As websocket-bomb, but nothing is read.",
        opening: compressed,
        payload: Payload::Same(|| bomb(MESSAGE)),
        reading: Reading::Nothing,
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-bomb-too-long",
        what: "A compressed message that inflates to one byte more than the limit of 16 MiB, on each of many \
               connections.",
        opening: || [compressed(), bomb(TOO_LONG)].concat(),
        body_bytes: 16 * MIB,
        ..BASE
    },
    Attack {
        name: "websocket-half-bomb",
        what: "The first fragment of a compressed message, 1 KB that inflate to 1 MiB, and nothing after it.",
        opening: || [compressed(), half_bomb(MESSAGE - 1000)].concat(),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-bomb-answers",
        what: "Messages of 1 MiB of random words, which the server compresses for its answers; every answer is read.",
        opening: compressed,
        payload: Payload::Same(|| frame(FIN | TEXT, &words(MESSAGE))),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-literals",
        what: "Compressed messages of 1 MiB of random words, of which each byte is a Huffman code of its own.",
        opening: compressed,
        payload: Payload::Same(|| frame(FIN | COMPRESSED | TEXT, &deflate::literals(&words(MESSAGE)))),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-small-compressed",
        what: "Compressed messages of 40 bytes, whose answers are compressed, too.",
        opening: compressed,
        payload: Payload::Same(|| filled(&frame(FIN | COMPRESSED | TEXT, &deflate::literals(&words(40))))),
        ..BASE
    },
    Attack {
        name: "websocket-empty-blocks",
        what: "Compressed messages of 128 bytes that contain only the ends of compressed data.",
        opening: compressed,
        // Each pair is an empty block with the fixed code that is marked as the last one.
        payload: Payload::Same(|| filled(&frame(FIN | COMPRESSED | BINARY, &b"\x03\x00".repeat(64)))),
        ..BASE
    },
    Attack {
        name: "websocket-stored-blocks",
        what: "A compressed message of endless empty blocks, which never inflate to a byte.",
        opening: || [compressed(), frame(COMPRESSED | BINARY, &deflate::EMPTY_BLOCK)].concat(),
        payload: Payload::Same(|| filled(&frame(CONTINUATION, &deflate::EMPTY_BLOCK.repeat(800)))),
        ..BASE
    },
    Attack {
        name: "websocket-garbage-compressed",
        what: "A compressed message that cannot be inflated, on each of many connections.",
        opening: || [compressed(), frame(FIN | COMPRESSED | TEXT, &[0xff; 100])].concat(),
        ..BASE
    },
    // Messages.
    Attack {
        name: "websocket-half-message",
        what: "All but 1 KB of a message of 1 MiB at once, then one byte every 100 ms.",
        opening: || [upgrade("/ws"), frame_head(FIN | BINARY, MESSAGE as u64), vec![b'x'; MESSAGE - 1000]].concat(),
        payload: Payload::Same(|| b"x".to_vec()),
        pace: Pace::Every(100),
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-messages-unread",
        what: "Messages of 1 MiB, which the server sends back; nothing is read.",
        payload: Payload::Same(|| frame(FIN | BINARY, &vec![b'x'; MESSAGE])),
        reading: Reading::Nothing,
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-slow-read",
        what: "Messages of 64 KiB, of whose answers 1 KiB is read every 100 ms.",
        payload: Payload::Same(|| frame(FIN | BINARY, &[b'x'; 64 * 1024])),
        reading: Reading::Slowly,
        ..BASE
    },
    Attack {
        name: "websocket-too-long",
        what: "Frames that announce 2^62 bytes, followed by endless content.",
        opening: || [upgrade("/ws"), frame_head(FIN | BINARY, 1 << 62)].concat(),
        payload: Payload::Same(|| filled(b"x")),
        ..BASE
    },
    Attack {
        name: "websocket-invalid-text",
        what: "Messages of 1 MiB of text whose last byte is not UTF-8, each on its own connection.",
        opening: || {
            let text = ["é".repeat(MESSAGE / 2 - 1).as_bytes(), b"\xff\xff"].concat();
            [upgrade("/ws"), frame(FIN | TEXT, &text)].concat()
        },
        body_bytes: MIB,
        ..BASE
    },
    Attack {
        name: "websocket-slow-frame",
        what: "The head of a frame, one byte every 100 ms.",
        payload: Payload::Numbered(|round, out| out.extend(frame_head(FIN | BINARY, 1 << 20).get(round as usize))),
        pace: Pace::Every(100),
        ..BASE
    },
    // Connections.
    Attack { name: "websocket-silent", what: "An upgrade, and nothing after it.", opening: compressed, ..BASE },
    Attack {
        name: "websocket-reconnect",
        what: "An upgrade on each of many connections, each of which the client closes when the server has answered.",
        opening: compressed,
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "websocket-reset",
        what: "As websocket-reconnect, with a message, and the client resets the connections.",
        opening: || [compressed(), frame(FIN | TEXT, b"hello")].concat(),
        reading: Reading::Nothing,
        end: End::Reset,
        ..BASE
    },
    Attack {
        name: "websocket-close",
        what: "An upgrade and a Close frame on each of many connections.",
        opening: || [upgrade("/ws"), frame(FIN | CLOSE, b"\x03\xe8")].concat(),
        ..BASE
    },
    Attack {
        name: "websocket-unmasked",
        what: "A frame without a mask, which clients must not send, on each of many connections.",
        opening: || [upgrade("/ws"), b"\x81\x02hi".to_vec()].concat(),
        ..BASE
    },
];
