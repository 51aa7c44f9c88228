//! The states of an HTTP/1 exchange, and the table of all permitted steps between them.
//!
//! Each end of a connection tracks two states, the client's and the server's. A step of one side may change the other
//! side's state too (a response moves a client out of `MaySwitch`), so each row names the side whose state it changes.
//! The diagrams in docs/http1-states.md are generated from [`TABLE`].

use crate::Role;

/// The state of one side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// A client may send a request; a server waits for one.
    Idle,
    /// Server only: a request has arrived; an interim or final response may be sent.
    AwaitsResponse,
    /// The head has been sent, but not the end of the body.
    SendsBody,
    /// This side's message is complete.
    Done,
    /// The message is complete or was refused, and the connection cannot be used again: only closing is left.
    MustClose,
    /// Client only: the request is complete and proposed another protocol; the response accepts or declines it.
    MaySwitch,
    /// The bytes belong to another protocol.
    Switched,
    /// This side has closed.
    Closed,
}

/// An action or event that changes a side's state.
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
    /// This side's bytes are invalid or refused, and no more of them are read.
    Fail,
}

/// One permitted step: the side whose state changes, its old state, the step, its new state.
pub type Row = (Role, State, Step, State);

use Role::{Client, Server};
use State::*;
use Step::*;

/// All permitted steps. [`State::after`] returns `None` for any other step.
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
    // A server may respond before the request's head is complete, for example if the head is malformed or arrives too
    // slowly.
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

/// [`TABLE`] as an array, so that a step takes one load.
static NEXT: [[[u8; STEPS]; STATES]; 2] = {
    let mut next = [[[FORBIDDEN; STEPS]; STATES]; 2];
    let mut row = 0;
    while row < TABLE.len() {
        let (role, from, step, to) = TABLE[row];
        let cell = &mut next[role as usize][from as usize][step as usize];
        assert!(*cell == FORBIDDEN, "two rows have the same side, state and step");
        *cell = to as u8;
        row += 1;
    }
    next
};

impl State {
    /// Returns the state after a step of the given side, or `None` if the table does not permit it.
    #[inline(always)]
    pub fn after(self, role: Role, step: Step) -> Option<State> {
        let next = NEXT[role as usize][self as usize][step as usize];
        if next == FORBIDDEN { None } else { Some(ALL[next as usize & (STATES - 1)]) }
    }
}

/// Returns the rows of one role as a diagram in the Mermaid language. docs/http1-states.md contains the result.
pub fn diagram(role: Role) -> alloc::string::String {
    use core::fmt::Write;
    let mut text = alloc::string::String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for (side, from, step, to) in TABLE.iter().filter(|row| row.0 == role) {
        debug_assert_eq!(*side, role);
        writeln!(text, "    {from:?} --> {to:?}: {step:?}").expect("writing to a String cannot fail");
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
