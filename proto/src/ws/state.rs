//! The states of the two directions of a WebSocket connection, and the table of all permitted steps between them.
//!
//! Both directions follow the same table. [`Connection`](super::Connection) has one state for the received frames and
//! one for the sent frames. The diagram in docs/websocket-states.md is generated from [`TABLE`].

/// The state of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The next data frame begins a message.
    Between,
    /// The next data frame continues a message.
    InMessage,
    /// A Close frame has passed. No frame follows it.
    Closed,
    /// The frames are invalid or too large, and no more of them are read.
    Failed,
}

/// A frame, or the discovery of an invalid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// A text or binary frame that is a whole message.
    Whole,
    /// A text or binary frame that other frames continue.
    First,
    /// A continuation frame that others follow.
    Middle,
    /// The last continuation frame of a message.
    Last,
    /// A Ping or Pong frame.
    Control,
    /// A Close frame.
    Close,
    /// An invalid frame, or one that is too large.
    Fail,
}

/// One permitted step: the old state, the step, the new state.
pub type Row = (State, Step, State);

use State::*;
use Step::*;

/// All permitted steps. [`State::after`] returns `None` for any other step.
pub const TABLE: &[Row] = &[
    (Between, Whole, Between),
    (Between, First, InMessage),
    (InMessage, Middle, InMessage),
    (InMessage, Last, Between),
    (Between, Control, Between),
    (InMessage, Control, InMessage),
    (Between, Close, Closed),
    (InMessage, Close, Closed),
    (Between, Fail, Failed),
    (InMessage, Fail, Failed),
];

const STATES: usize = 4;
const STEPS: usize = 7;

/// [`TABLE`] as an array by state and step.
static NEXT: [[Option<State>; STEPS]; STATES] = crate::next_states!(TABLE, STATES, STEPS);

impl State {
    /// Returns the state after a step, or `None` if the table does not permit it.
    #[inline(always)]
    pub fn after(self, step: Step) -> Option<State> {
        NEXT[self as usize][step as usize]
    }
}

/// Returns the table as a diagram in the Mermaid language. docs/websocket-states.md contains the result.
pub fn diagram() -> alloc::string::String {
    use core::fmt::Write;
    let mut text = alloc::string::String::from("stateDiagram-v2\n    [*] --> Between\n");
    for (from, step, to) in TABLE {
        writeln!(text, "    {from:?} --> {to:?}: {step:?}").expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_in_the_documentation_is_the_table() {
        let page = include_str!("../../../docs/websocket-states.md");
        let (_, rest) = page.split_once("```mermaid\n").expect("a diagram");
        let (drawn, _) = rest.split_once("```").expect("the end of the diagram");
        assert_eq!(drawn, diagram());
    }

    #[test]
    fn what_the_table_does_not_name_is_forbidden() {
        assert_eq!(Between.after(Last), None);
        assert_eq!(InMessage.after(Whole), None);
        assert_eq!(Between.after(First), Some(InMessage));
        for step in [Whole, First, Middle, Last, Control, Close, Fail] {
            assert_eq!((Closed.after(step), Failed.after(step)), (None, None), "{step:?}");
        }
    }
}
