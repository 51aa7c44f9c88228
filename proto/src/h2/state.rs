//! The states of an HTTP/2 stream as a table (RFC 9113 section 5.1): the only place that says what may follow what.
//!
//! There is no push, so no state is reserved. A stream that is closed is forgotten: the connection remembers for a while
//! how the last ones ended.

/// Where a stream is. `Local` and `Remote` say whose direction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing has been said of it.
    Idle,
    /// Both may send.
    Open,
    /// We have ended our direction.
    HalfClosedLocal,
    /// The peer has ended its direction.
    HalfClosedRemote,
    /// It is over.
    Closed,
}

/// What happens to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// A head begins it.
    Begin,
    /// The peer sends something: a head, or bytes of a body.
    Receive,
    /// The peer ends its direction.
    ReceiveEnd,
    /// We send something.
    Send,
    /// We end our direction.
    SendEnd,
    /// Either side resets it.
    Reset,
}

/// One permitted step: from where, by what, to where.
pub type Row = (State, Step, State);

use State::*;
use Step::*;

/// Every permitted step; all others are errors of who takes them.
pub const TABLE: &[Row] = &[
    (Idle, Begin, Open),
    (Open, Receive, Open),
    (Open, Send, Open),
    (Open, ReceiveEnd, HalfClosedRemote),
    (Open, SendEnd, HalfClosedLocal),
    (Open, Reset, Closed),
    (HalfClosedLocal, Receive, HalfClosedLocal),
    (HalfClosedLocal, ReceiveEnd, Closed),
    (HalfClosedLocal, Reset, Closed),
    (HalfClosedRemote, Send, HalfClosedRemote),
    (HalfClosedRemote, SendEnd, Closed),
    (HalfClosedRemote, Reset, Closed),
];

const STATES: usize = 5;
const STEPS: usize = 6;

/// The table by state and step, so that a step is a look-up.
const AFTER: [[Option<State>; STEPS]; STATES] = {
    let mut after = [[None; STEPS]; STATES];
    let mut row = 0;
    while row < TABLE.len() {
        let (from, step, to) = TABLE[row];
        assert!(after[from as usize][step as usize].is_none(), "two rows for one step");
        after[from as usize][step as usize] = Some(to);
        row += 1;
    }
    after
};

impl State {
    /// The state after a step; `None` where the step is not permitted.
    #[inline]
    pub const fn after(self, step: Step) -> Option<State> {
        AFTER[self as usize][step as usize]
    }
}

/// The table as a diagram in Mermaid's language.
#[cfg(any(test, feature = "std"))]
pub fn diagram() -> alloc::string::String {
    use core::fmt::Write;
    let mut text = alloc::string::String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for (from, step, to) in TABLE {
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {from:?} --> {to:?}: {step:?}");
    }
    text.push_str("    Closed --> [*]\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_does_not_name_is_forbidden() {
        for state in [Idle, Open, HalfClosedLocal, HalfClosedRemote, Closed] {
            for step in [Begin, Receive, ReceiveEnd, Send, SendEnd, Reset] {
                let row = TABLE.iter().find(|row| (row.0, row.1) == (state, step));
                assert_eq!(state.after(step), row.map(|row| row.2), "{state:?} {step:?}");
            }
        }
    }

    #[test]
    fn nobody_sends_on_a_stream_that_is_closed_or_idle() {
        for step in [Receive, ReceiveEnd, Send, SendEnd, Reset] {
            assert_eq!(Idle.after(step), None);
            assert_eq!(Closed.after(step), None);
        }
    }
}
