//! The states of an HTTP/2 stream, and the table of all permitted steps between them (RFC 9113 section 5.1).
//!
//! There are no reserved states, because server push is not supported. A closed stream is removed. The connection
//! remembers for a while how the last streams ended.

/// The state of a stream. `Local` and `Remote` name the direction that has ended: ours or the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The stream has not begun.
    Idle,
    /// Both sides may send.
    Open,
    /// We have ended our direction.
    HalfClosedLocal,
    /// The peer has ended its direction.
    HalfClosedRemote,
    /// Both directions have ended, or the stream was reset.
    Closed,
}

/// An event on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// A request's head begins the stream.
    Begin,
    /// The peer sends a head or body bytes.
    Receive,
    /// The peer ends its direction.
    ReceiveEnd,
    /// We send something.
    Send,
    /// We end our direction.
    SendEnd,
    /// Either side resets the stream.
    Reset,
}

/// One permitted step: the old state, the step, the new state.
pub type Row = (State, Step, State);

use State::*;
use Step::*;

/// All permitted steps. [`State::after`] returns `None` for any other step.
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

/// [`TABLE`] as an array by state and step.
const AFTER: [[Option<State>; STEPS]; STATES] = crate::next_states!(TABLE, STATES, STEPS);

impl State {
    /// Returns the state after a step, or `None` if the step is not permitted.
    #[inline]
    pub const fn after(self, step: Step) -> Option<State> {
        AFTER[self as usize][step as usize]
    }
}

/// Returns the table as a diagram in the Mermaid language. docs/http2-states.md contains the result.
#[cfg(any(test, feature = "std"))]
pub fn diagram() -> alloc::string::String {
    use core::fmt::Write;
    let mut text = alloc::string::String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for (from, step, to) in TABLE {
        // Writing to a string cannot fail.
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
