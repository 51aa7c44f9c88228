//! The states of one half of an exchange as a table: the only place that says what may follow what.
//!
//! An exchange has two halves, [`Incoming`](super::Incoming) and [`Outgoing`](super::Outgoing): the peer's message and ours. Both
//! go through the same states, at a server and at a client. A server's exchange begins with a request's head in its incoming
//! half, a client's with one in its outgoing half; the other half of each is then [`Awaited`](State::Awaited).
//! `docs/exchange-states.md` shows the diagram of [`TABLE`].

/// How far the message of a half has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its head has not come, or is not made.
    Awaited,
    /// Its head is through. What comes of its body is dropped, or is with the carrier.
    Begun,
    /// Its body is collected whole before anybody is called with it.
    Whole,
    /// Its body goes on part by part.
    Parts,
    /// What comes, or is sent, belongs to a tunnel, which may still have to be accepted.
    Tunnel,
    /// Incoming: all of it has come. Outgoing: the carrier has taken all of it.
    Complete,
    /// It has ended before its time.
    Cut,
}

/// What happens to the message of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its head comes, or is handed to the carrier.
    Head,
    /// Its body is to be collected.
    Collect,
    /// Its body is to go on part by part.
    Stream,
    /// Another protocol takes its place: by Upgrade, or by CONNECT.
    Switch,
    /// Whoever read its body, or was to accept the tunnel, does so no more.
    LetGo,
    /// It ends.
    End,
    /// It ends before its time.
    Cut,
}

use State::*;

/// Every permitted step: from where, by what, to where.
#[rustfmt::skip]
pub(crate) const TABLE: &[(State, Step, State)] = &[
    (Awaited,  Step::Head,    Begun),
    (Begun,    Step::Collect, Whole),
    (Begun,    Step::Stream,  Parts),
    (Begun,    Step::Switch,  Tunnel),
    // What comes behind a complete request belongs to the protocol that it asked for.
    (Complete, Step::Switch,  Tunnel),
    (Parts,    Step::LetGo,   Begun),
    // A tunnel that the program does not accept leaves what comes unread.
    (Tunnel,   Step::LetGo,   Begun),
    (Begun,    Step::End,     Complete),
    (Whole,    Step::End,     Complete),
    (Parts,    Step::End,     Complete),
    (Awaited,  Step::Cut,     Cut),
    (Begun,    Step::Cut,     Cut),
    (Whole,    Step::Cut,     Cut),
    (Parts,    Step::Cut,     Cut),
    (Tunnel,   Step::Cut,     Cut),
    // The exchange is given up after one half of it was complete, or was cut.
    (Complete, Step::Cut,     Complete),
    (Cut,      Step::Cut,     Cut),
];

const STATES: usize = Cut as usize + 1;
const STEPS: usize = Step::Cut as usize + 1;

/// [`TABLE`] as an array, so that a step is one load.
static NEXT: [[Option<State>; STEPS]; STATES] = {
    let mut next = [[None; STEPS]; STATES];
    let mut row = 0;
    while row < TABLE.len() {
        let (from, step, to) = TABLE[row];
        let cell = &mut next[from as usize][step as usize];
        assert!(cell.is_none(), "a step from a state leads to one state");
        *cell = Some(to);
        row += 1;
    }
    next
};

impl State {
    /// Returns the state after a step, or `None` if [`TABLE`] has no such row.
    #[inline]
    fn after(self, step: Step) -> Option<State> {
        NEXT[self as usize][step as usize]
    }

    /// Takes a step. One that the table does not permit is a mistake of the engine's: tests fail, and a server stays where it is.
    #[inline]
    pub(super) fn take(&mut self, step: Step) {
        let after = self.after(step);
        debug_assert!(after.is_some(), "{step:?} is not permitted in {self:?}");
        *self = after.unwrap_or(*self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// The table as a diagram in the Mermaid language.
    fn diagram() -> String {
        let mut text = String::from("stateDiagram-v2\n    [*] --> Awaited\n");
        for (from, step, to) in TABLE {
            writeln!(text, "    {from:?} --> {to:?}: {step:?}").expect("a String takes any text");
        }
        text
    }

    #[test]
    fn the_diagram_in_the_documentation_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/exchange-states.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let diagram = diagram();
        assert!(page.contains(&format!("```mermaid\n{diagram}```")), "docs/exchange-states.md has to show:\n{diagram}");
    }

    #[test]
    fn what_the_table_does_not_name_is_forbidden() {
        assert_eq!(Awaited.after(Step::End), None);
        assert_eq!(Complete.after(Step::Head), None);
        assert_eq!(Cut.after(Step::End), None);
    }
}
