//! The states of an HTTP/1 exchange as a table: the only place that says what may follow what.
//!
//! Both sides of a connection have a state, ours and the peer's, and both of us keep both. An event of one side may
//! move the other too (a response frees a client that waits on a proposed switch), so a row names the side it moves.
//! `docs/` draws its diagram from [`TABLE`].

use crate::Role;

/// What a side of the connection may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// A client may send a request; a server waits for one.
    Idle,
    /// Server only: a request came; an interim or final response may be sent.
    AwaitsResponse,
    /// The head is sent, the body goes on.
    SendsBody,
    /// This side's message is complete.
    Done,
    /// Complete, and the connection cannot be used again: only closing is left.
    MustClose,
    /// Client only: the request is complete and proposed another protocol; the response decides.
    MaySwitch,
    /// Another protocol owns the bytes.
    Switched,
    /// This side has closed.
    Closed,
}

/// What a side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// A request's head.
    Request,
    /// An interim response.
    Interim,
    /// A final response's head.
    Response,
    /// A response that accepts another protocol.
    Accept,
    /// Bytes of a body.
    Data,
    /// The end of a message that leaves the connection usable.
    End,
    /// The end of a message after which the connection must close.
    EndLast,
    /// The end of a request that proposed another protocol.
    EndProposing,
    /// The response declined the proposed protocol.
    Decline,
    /// Both sides are done: the next exchange may begin.
    Restart,
    /// The end of this side's byte stream.
    Close,
    /// What this side sent is not HTTP, or is refused: nothing more is read from it.
    Fail,
}

/// One permitted step: whose state moves, from where, by what, to where.
pub type Row = (Role, State, Step, State);

use Role::{Client, Server};
use State::*;
use Step::*;

/// Every permitted step; all others are errors of who takes them.
pub const TABLE: &[Row] = &[
    (Client, Idle, Request, SendsBody),
    (Client, SendsBody, Data, SendsBody),
    (Client, SendsBody, End, Done),
    (Client, SendsBody, EndLast, MustClose),
    (Client, SendsBody, EndProposing, MaySwitch),
    (Client, MaySwitch, Accept, Switched),
    (Client, MaySwitch, Decline, Done),
    (Client, Done, Restart, Idle),
    (Client, Idle, Close, Closed),
    (Client, Done, Close, Closed),
    (Client, MustClose, Close, Closed),
    (Client, MaySwitch, Close, Closed),
    (Client, Closed, Close, Closed),
    (Client, Idle, Fail, MustClose),
    (Client, SendsBody, Fail, MustClose),
    (Client, MustClose, Fail, MustClose),
    (Server, Idle, Request, AwaitsResponse),
    // A request that cannot be read, or that comes too slowly, is answered before it is complete.
    (Server, Idle, Response, SendsBody),
    (Server, AwaitsResponse, Interim, AwaitsResponse),
    (Server, AwaitsResponse, Response, SendsBody),
    (Server, AwaitsResponse, Accept, Switched),
    (Server, SendsBody, Data, SendsBody),
    (Server, SendsBody, End, Done),
    (Server, SendsBody, EndLast, MustClose),
    (Server, Done, Restart, Idle),
    (Server, Idle, Close, Closed),
    (Server, Done, Close, Closed),
    (Server, MustClose, Close, Closed),
    (Server, Closed, Close, Closed),
    (Server, Idle, Fail, MustClose),
    (Server, AwaitsResponse, Fail, MustClose),
    (Server, SendsBody, Fail, MustClose),
    (Server, MustClose, Fail, MustClose),
];

const STATES: usize = 8;
const STEPS: usize = 12;
const FORBIDDEN: u8 = u8::MAX;
const ALL: [State; STATES] = [Idle, AwaitsResponse, SendsBody, Done, MustClose, MaySwitch, Switched, Closed];

/// [`TABLE`] as an array, so that a step is one load.
static NEXT: [[[u8; STEPS]; STATES]; 2] = {
    let mut next = [[[FORBIDDEN; STEPS]; STATES]; 2];
    let mut row = 0;
    while row < TABLE.len() {
        let (role, from, step, to) = TABLE[row];
        let cell = &mut next[role as usize][from as usize][step as usize];
        assert!(*cell == FORBIDDEN, "a step from a state leads to one state");
        *cell = to as u8;
        row += 1;
    }
    next
};

impl State {
    /// The state after a step of the given side, or `None` where the table has no such row.
    #[inline(always)]
    pub fn after(self, role: Role, step: Step) -> Option<State> {
        let next = NEXT[role as usize][self as usize][step as usize];
        if next == FORBIDDEN { None } else { Some(ALL[next as usize & (STATES - 1)]) }
    }
}

/// The table as a diagram in the Mermaid language, one for each role; `docs/` keeps what this gives.
pub fn diagram(role: Role) -> alloc::string::String {
    use core::fmt::Write;
    let mut text = alloc::string::String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for (side, from, step, to) in TABLE.iter().filter(|row| row.0 == role) {
        debug_assert_eq!(*side, role);
        writeln!(text, "    {from:?} --> {to:?}: {step:?}").expect("a String takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_numbered_as_listed() {
        for (number, state) in ALL.iter().enumerate() {
            assert_eq!(*state as usize, number);
        }
    }

    #[test]
    fn what_the_table_does_not_name_is_forbidden() {
        assert_eq!(Idle.after(Client, Data), None);
        assert_eq!(Switched.after(Server, Response), None);
        assert_eq!(Idle.after(Server, Request), Some(AwaitsResponse));
    }
}
