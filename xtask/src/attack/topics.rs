//! The attacks on topics: members of the demo's chat that flood, do not read, or join and leave.

use super::frames::{self, DATA, numbers, opening};
use super::spec::{self, Attack, Data, End, MOST_STREAMS, Pace, Payload, Protocol, Reading, Then, filled};
use super::websocket_frames::{FIN, TEXT, chat, connect, connect_all, frame, join, upgrade};

/// The defaults: a member of one room.
pub(super) const BASE: Attack = Attack { protocol: Protocol::WebSocket, opening: || join("attack", "a"), ..spec::BASE };

/// The longest message that the chat takes.
fn long_message() -> Vec<u8> {
    frame(FIN | TEXT, &[b'x'; 2000])
}

/// A message of control characters, each of which takes six bytes in JSON.
pub(super) fn control_characters() -> Vec<u8> {
    frame(FIN | TEXT, &[1; 2000])
}

/// Joins of one room.
pub(super) const JOINS: Attack = Attack {
    what: "Joins of one room on many connections, each of which the client closes when the server has answered.",
    numbered_opening: |number| join("attack", &format!("n{number}")),
    opening: Vec::new,
    end: End::Answer,
    ..BASE
};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "topics-flood",
        what: "Messages of one byte to one room; every member reads every message.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b"x"))),
        ..BASE
    },
    Attack {
        name: "topics-flood-unread",
        what: "As topics-flood, but no member reads.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b"x"))),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "topics-slow-readers",
        what: "Messages of 2,000 bytes to one room, every 2 ms; every member reads 1 KiB every 100 ms.",
        payload: Payload::Same(long_message),
        pace: Pace::Every(2),
        reading: Reading::Slowly,
        ..BASE
    },
    Attack {
        name: "topics-long-messages",
        what: "Messages of 2,000 control characters to one room, which take six times as much in JSON.",
        payload: Payload::Same(|| filled(&control_characters())),
        ..BASE
    },
    Attack {
        name: "topics-flood-rooms",
        what: "As topics-flood, with a room for each connection.",
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        opening: Vec::new,
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b"x"))),
        ..BASE
    },
    // Histories.
    Attack {
        name: "topics-many-rooms",
        what: "A new room on each of many connections, with 100 messages of 2,000 control characters for its history, \
               which the client leaves after 50 ms.",
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        opening: || control_characters().repeat(100),
        end: End::CloseAfter(50),
        known: Some("the history of a room with members is kept, up to an eighth of the memory budget"),
        ..BASE
    },
    Attack {
        name: "topics-histories-unread",
        what: "Joins of one room on many connections, each with 100 messages of 2,000 bytes, so that each gets a long \
               history, which nobody reads.",
        opening: || [join("attack", "a"), long_message().repeat(100)].concat(),
        reading: Reading::Nothing,
        end: End::CloseAfter(20),
        ..BASE
    },
    Attack {
        name: "topics-resume",
        what: "As topics-histories-unread, but clients resume after a message that is no longer known, and read.",
        numbered_opening: |number| upgrade(&format!("{}&after={number}-{number}", chat("attack", "a"))),
        opening: || long_message().repeat(100),
        end: End::CloseAfter(20),
        ..BASE
    },
    // Members.
    Attack { name: "topics-joins", ..JOINS },
    Attack {
        name: "topics-joins-rooms",
        what: "As topics-joins, with a new room on each connection.",
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        ..JOINS
    },
    Attack {
        name: "topics-http2-members",
        what: "128 members of one room on each connection, with long names, so that each join is told to all others.",
        protocol: Protocol::Http2,
        numbered_opening: |number| {
            let mut out = opening(None);
            for stream in numbers(0, MOST_STREAMS) {
                connect(&mut out, stream, &chat("attack", &format!("{:a<30}{stream}", number)), false);
            }
            out
        },
        opening: Vec::new,
        ..BASE
    },
    Attack {
        name: "topics-http2-rooms",
        what: "128 members of 128 rooms on each connection, each of which publishes a message of 2,000 control \
               characters.",
        protocol: Protocol::Http2,
        numbered_opening: |number| {
            let mut out = opening(None);
            for stream in numbers(0, MOST_STREAMS) {
                connect(&mut out, stream, &chat(&format!("r{number}-{stream}"), "a"), false);
                frames::frame(&mut out, DATA, 0, stream, &control_characters());
            }
            out
        },
        opening: Vec::new,
        known: Some(
            "each of 2,560 members has a WebSocket with a room of its own, whose history is kept, and 4 MiB of the histories stay",
        ),
        ..BASE
    },
    Attack {
        name: "topics-http2-flood",
        what: "128 members of one room on each connection, each with endless messages of one byte; all is read.",
        protocol: Protocol::Http2,
        opening: || members(None),
        payload: Payload::Data(FLOOD),
        ..BASE
    },
    Attack {
        name: "topics-http2-stalled",
        what: "As topics-http2-flood, but the messages wait for a window of 0.",
        protocol: Protocol::Http2,
        opening: || members(Some(0)),
        payload: Payload::Data(FLOOD),
        ..BASE
    },
    // Refusals.
    Attack {
        name: "topics-invalid-rooms",
        what: "Rooms with characters that the chat refuses, each on its own connection.",
        opening: || join("a/b/%2b/%23", "a"),
        end: End::CloseAfter(5),
        ..BASE
    },
    Attack {
        name: "topics-too-long",
        what: "Messages that are longer than the chat takes, each on its own connection.",
        opening: || [join("attack", "a"), frame(FIN | TEXT, &[b'x'; 3000])].concat(),
        ..BASE
    },
];

/// Returns an opening with a member of one room on each stream.
fn members(window: Option<u32>) -> Vec<u8> {
    let mut out = opening(window);
    connect_all(&mut out, MOST_STREAMS, &chat("attack", "a"), false);
    out
}

/// Endless messages on every stream, four in each DATA frame.
const FLOOD: Data = Data {
    streams: MOST_STREAMS,
    content: || frame(FIN | TEXT, b"x").repeat(4),
    padding: None,
    most: u64::MAX,
    then: Then::Drip,
};
