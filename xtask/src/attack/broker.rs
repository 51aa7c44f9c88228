//! The attacks on a chat that shares its rooms through a broker.

use super::spec::{Attack, End, Payload, Reading, Target, filled};
use super::topics::{self, JOINS, control_characters};
use super::websocket_frames::{FIN, TEXT, frame, join};

const BASE: Attack = Attack { target: Target::Broker, ..topics::BASE };

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
        payload: Payload::Same(|| filled(&control_characters())),
        reading: Reading::Nothing,
        ..BASE
    },
    Attack {
        name: "broker-many-rooms",
        what: "A new room on each of many connections, with 100 messages of 2,000 control characters, which the client \
               leaves after 50 ms.",
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        opening: || control_characters().repeat(100),
        end: End::CloseAfter(50),
        ..BASE
    },
    Attack { name: "broker-joins", target: Target::Broker, ..JOINS },
    Attack {
        name: "broker-joins-rooms",
        what: "As broker-joins, with a new room on each connection, to which the server subscribes at the broker.",
        target: Target::Broker,
        numbered_opening: |number| join(&format!("r{number}"), "a"),
        ..JOINS
    },
];
