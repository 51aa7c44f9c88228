//! The states of one half of an exchange, and the table of the permitted transitions between them.
//!
//! An exchange has two halves, [`Incoming`](super::Incoming) and [`Outgoing`](super::Outgoing): the peer's message and
//! ours. Both have the same states, on a server and on a client. On a server, the incoming half receives a request's
//! head while the outgoing half is [`Awaited`](State::Awaited); on a client, the outgoing half sends one while the
//! incoming half is `Awaited`. `docs/exchange-states.md` shows the diagram of [`TABLE`].

/// The progress of one half's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The message's head has not been received, or not been made.
    Awaited,
    /// The message's head has been received, or handed to the carrier. Incoming: body bytes that arrive now are
    /// dropped. Outgoing: the carrier has the whole body as well, unless the body follows in parts.
    Begun,
    /// The message's body is being collected; the handler is called when the body is complete.
    Whole,
    /// The message's body is being passed on in parts.
    Parts,
    /// The bytes belong to a tunnel, which the handler may not have accepted yet.
    Tunnel,
    /// Incoming: the whole message has been received. Outgoing: the carrier has the whole message.
    Complete,
    /// The message has ended early.
    Cut,
}

/// An event of one half's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The message's head is received, or handed to the carrier.
    Head,
    /// The exchange begins to collect the message's body.
    Collect,
    /// The exchange begins to pass the message's body on in parts.
    Stream,
    /// Another protocol replaces the message, by Upgrade or by CONNECT.
    Switch,
    /// The reader has dropped the message's body, or the handler has declined the tunnel.
    LetGo,
    /// The message ends.
    End,
    /// The message ends early.
    Cut,
}

use State::*;

/// Every permitted transition: the state before, the step, the state after.
#[rustfmt::skip]
pub(crate) const TABLE: &[(State, Step, State)] = &[
    (Awaited,  Step::Head,    Begun),
    (Begun,    Step::Collect, Whole),
    (Begun,    Step::Stream,  Parts),
    (Begun,    Step::Switch,  Tunnel),
    // The peer's bytes after a complete request belong to the protocol that the request has proposed.
    (Complete, Step::Switch,  Tunnel),
    (Parts,    Step::LetGo,   Begun),
    // If the handler declines the tunnel, the peer's bytes are dropped.
    (Tunnel,   Step::LetGo,   Begun),
    (Begun,    Step::End,     Complete),
    (Whole,    Step::End,     Complete),
    (Parts,    Step::End,     Complete),
    (Awaited,  Step::Cut,     Cut),
    (Begun,    Step::Cut,     Cut),
    (Whole,    Step::Cut,     Cut),
    (Parts,    Step::Cut,     Cut),
    (Tunnel,   Step::Cut,     Cut),
    // An exchange may be given up when one of its halves is complete or cut already.
    (Complete, Step::Cut,     Complete),
    (Cut,      Step::Cut,     Cut),
];

const STATES: usize = Cut as usize + 1;
const STEPS: usize = Step::Cut as usize + 1;

/// [`TABLE`] as an array by state and step.
static NEXT: [[Option<State>; STEPS]; STATES] = highwire_proto::next_states!(TABLE, STATES, STEPS);

impl State {
    /// Returns the state after a step, or `None` if [`TABLE`] has no such row.
    #[inline]
    fn after(self, step: Step) -> Option<State> {
        NEXT[self as usize][step as usize]
    }

    /// Takes a step. If the table does not permit the step, which is a bug of the engine, a debug build panics and a
    /// release build keeps the state.
    #[inline]
    pub(super) fn take(&mut self, step: Step) {
        let after = self.after(step);
        debug_assert!(after.is_some(), "the step {step:?} is not permitted in the state {self:?}");
        *self = after.unwrap_or(*self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Returns the table as a Mermaid diagram.
    fn diagram() -> String {
        let mut text = String::from("stateDiagram-v2\n    [*] --> Awaited\n");
        for (from, step, to) in TABLE {
            writeln!(text, "    {from:?} --> {to:?}: {step:?}").expect("writing to a String cannot fail");
        }
        text
    }

    #[test]
    fn the_diagram_in_the_documentation_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/exchange-states.md");
        let page = std::fs::read_to_string(path).expect("cannot read docs/exchange-states.md");
        let diagram = diagram();
        assert!(
            page.contains(&format!("```mermaid\n{diagram}```")),
            "docs/exchange-states.md must contain:\n{diagram}"
        );
    }

    #[test]
    fn what_the_table_does_not_name_is_forbidden() {
        assert_eq!(Awaited.after(Step::End), None);
        assert_eq!(Complete.after(Step::Head), None);
        assert_eq!(Cut.after(Step::End), None);
    }
}
