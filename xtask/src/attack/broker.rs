//! The attacks on a chat that shares its rooms through a broker.

use super::spec::{self, Attack, End, Payload, Protocol, Reading, Target, filled};
use super::websocket_frames::{FIN, TEXT, frame, join};

const BASE: Attack =
    Attack { target: Target::Broker, protocol: Protocol::WebSocket, opening: || join("attack", "a"), ..spec::BASE };

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "broker-flood",
        what: "Messages of one byte to one room; every member reads every message.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, b"x"))),
        ..BASE
    },
    Attack {
        name: "broker-long-messages",
        what: "Messages of 2,000 control characters to one room, which fill the queue to the broker; nothing is read.",
        payload: Payload::Same(|| filled(&frame(FIN | TEXT, &[1; 2000]))),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "broker-many-rooms",
        what: "A new room on each of many connections, with 100 messages of 2,000 control characters, which the client \
               leaves after 50 ms.",
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        opening: || frame(FIN | TEXT, &[1; 2000]).repeat(100),
        end: End::CloseAfter(50),
        ..BASE
    },
    Attack {
        name: "broker-joins",
        what: "Joins of one room on many connections, each of which the client closes when the server has answered.",
        numbered_opening: |number| join("attack", &format!("n{number}")),
        opening: Vec::new,
        end: End::Answer,
        ..BASE
    },
    Attack {
        name: "broker-joins-rooms",
        what: "As broker-joins, with a new room on each connection, to which the server subscribes at the broker.",
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        opening: Vec::new,
        end: End::Answer,
        ..BASE
    },
];
