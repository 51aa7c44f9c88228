//! Tables of states: each row has an old state, a step, and the new state.

/// Returns a table of states as an array by state and step, so that a step takes one load. Fails to compile if two rows
/// have the same state and step.
#[doc(hidden)]
#[macro_export]
macro_rules! next_states {
    ($table:expr, $states:expr, $steps:expr) => {{
        let mut next = [[None; $steps]; $states];
        let mut row = 0;
        while row < $table.len() {
            let (from, step, to) = $table[row];
            let cell = &mut next[from as usize][step as usize];
            assert!(cell.is_none(), "two rows have the same state and step");
            *cell = Some(to);
            row += 1;
        }
        next
    }};
}
