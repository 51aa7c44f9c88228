//! The state of a connection.

use crate::Peer;
use crate::lent_buffer::LentBuffer;
use crate::outgoing::Outgoing;
use crate::socket::Lifted;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) descriptor: OwnedFd,
    /// True if the peer is [`Peer::Local`]. The peer's address is not kept, because it would take memory of each connection.
    pub(super) is_local: bool,
    /// The last round with an arena send of this socket, or 0 if there was none. Rounds begin at 1.
    pub(super) round: u32,
    pub(super) receive: Receive,
    pub(super) paused: bool,
    /// True from the arming of a multishot receive until it has taken what was there: see `look_for_end`.
    pub(super) newly_armed: bool,
    /// True if the loop has resumed receiving at some time: see `look_for_end`.
    pub(super) resumed: bool,
    pub(super) ended: bool,
    /// True if a poll for the peer's end is in flight.
    pub(super) watches_end: bool,
    /// True if an asynchronous send of the bytes at the front of `outgoing` is in flight. If a file is at the front,
    /// true if a poll for writability is in flight.
    pub(super) sending: bool,
    pub(super) closing: Closing,
    /// True if `Failed` was reported.
    pub(super) failed: bool,
    /// True if the peer has reset the connection, as a send has found. What arrived before is received, and then `Failed` is
    /// reported.
    pub(super) is_reset: bool,
    /// The number of turns since then.
    pub(super) turns_since_reset: u8,
    /// True if some bytes to send were lost, for example because a file is too short. Nothing queued behind them may
    /// leave.
    pub(super) lost: bool,
    /// True if `Drained` must be reported once `outgoing` is empty.
    pub(super) owed: bool,
    /// True from `Blocked`, `SendBytes` or `SendFile` until `Drained` is reported.
    pub(super) told: bool,
    pub(super) lifted: Lifted,
    /// The loop's buffer for the next bytes. The kernel gets it when no other receive is in flight.
    pub(super) lent_buffer: Option<Box<LentBuffer>>,
    pub(super) outgoing: Option<Box<Outgoing>>,
}

/// The receive of a connection that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    None,
    /// A multishot receive, into buffers of the ring.
    Armed,
    /// A receive into the loop's buffer, `lent_buffer`.
    IntoLentBuffer,
}

/// Whether a connection is closed for the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// The driver removes the connection when its bytes are sent or dropped.
    Closed,
    /// The connection is being reset, because the loop has aborted it or its bytes cannot be sent, at least not in time. Its
    /// unsent bytes are dropped.
    Aborted,
}

impl Connection {
    pub(super) fn new(descriptor: OwnedFd, peer: Peer) -> Connection {
        Connection {
            descriptor,
            is_local: peer == Peer::Local,
            round: 0,
            receive: Receive::None,
            paused: false,
            newly_armed: false,
            resumed: false,
            ended: false,
            watches_end: false,
            sending: false,
            closing: Closing::Open,
            failed: false,
            is_reset: false,
            turns_since_reset: 0,
            lost: false,
            owed: false,
            told: false,
            lifted: Lifted::default(),
            lent_buffer: None,
            outgoing: None,
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.receive == Receive::Armed
    }

    pub(super) fn fills_lent_buffer(&self) -> bool {
        self.receive == Receive::IntoLentBuffer
    }

    /// Records that the multishot receive has ended.
    pub(super) fn disarm(&mut self) {
        if self.receive == Receive::Armed {
            self.receive = Receive::None;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing != Closing::Open
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.closing == Closing::Aborted
    }
}
