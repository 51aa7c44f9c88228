//! Decides when freed heap memory is returned to the system.

use crate::server::budget::Budget;

/// The number of checks in a row with much unused memory after which it is returned to the system. They take a second (less
/// if `Timeouts::stall` is short), so that a fluctuating load does not cost a pass over the heap each time.
const LOOKS_A_TRIM: u32 = 20;

/// The least number of bytes that a pass over the heap must promise, and the part of what is left after a pass. (A program
/// may hold memory of its own, which is not charged and cannot be returned.)
const LEAST_FREED: usize = 4 * 1024 * 1024;
const LEAST_PART: usize = 8;

/// The number of checks that follow a pass which has returned little, until peers that have left cause another one.
const REST: u32 = 20;

/// The number of bytes, and at least half of the peak, by which the load must fall to show that peers have left.
const LEAST_LOAD: usize = 1024 * 1024;

/// About the number of bytes that a connection adds to the load besides what is charged for it.
const CONNECTION_LOAD: usize = 64 * 1024;

/// Returns a measure of how much peers occupy.
fn load(charged: usize, connections: usize) -> usize {
    charged + connections * CONNECTION_LOAD
}

/// What is known of the heap since the last pass over it.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    /// The least number of bytes that the process has held since the last pass, beyond what is charged; `None` before the
    /// first check.
    least: Option<usize>,
    /// The least number ever.
    floor: Option<usize>,
    /// The number of bytes that the process held after the last pass.
    after: usize,
    /// The highest [`load`] since the last pass.
    most_load: usize,
    /// The number of checks in a row at which there was something to return.
    looks: u32,
    /// The number of checks until a pass for peers that have left, because the last one has returned little.
    rest: u32,
}

impl Trimming {
    /// Returns freed heap memory to the system if there was much of it for a second.
    pub(crate) fn check(&mut self, budget: &Budget, connections: usize) {
        let Some(held) = highwire_io::memory::resident() else { return };
        let load = load(budget.used(), connections);
        if self.is_due(held, budget.used(), load) {
            highwire_io::memory::trim();
            self.trimmed(held, highwire_io::memory::resident().unwrap_or_default(), budget.used(), load);
        }
    }

    /// Returns true if the process has held much more than is charged to the budget for a second. What was charged once
    /// does not matter: much of the memory that peers cause is not charged, such as that of the gaps between used blocks.
    /// Also returns true if the process holds much less than after the last pass, or if the load has fallen and more is held
    /// than at the beginning: what was in use at the last pass, and kept the pages beside it, is free now.
    fn is_due(&mut self, held: usize, charged: usize, load: usize) -> bool {
        // The budget also counts memory that the program has not written to yet. The process does not hold it.
        let beyond = held.saturating_sub(charged);
        let lower = |known: Option<usize>| known.map_or(beyond, |known| known.min(beyond));
        let (least, floor) = (lower(self.least), lower(self.floor));
        (self.least, self.floor) = (Some(least), Some(floor));
        self.most_load = self.most_load.max(load);
        let is_above = |level: usize| beyond - level >= LEAST_FREED.max(level / LEAST_PART);
        let has_fallen = self.after.saturating_sub(held) >= LEAST_FREED;
        let have_left = self.most_load - load >= LEAST_LOAD.max(self.most_load / 2);
        self.rest = self.rest.saturating_sub(1);
        let is_due = is_above(least) || has_fallen || (have_left && self.rest == 0 && is_above(floor));
        self.looks = if is_due { self.looks + 1 } else { 0 };
        self.looks >= LOOKS_A_TRIM
    }

    /// Records what the process held before and after a pass.
    fn trimmed(&mut self, before: usize, held: usize, charged: usize, load: usize) {
        let least = held.saturating_sub(charged);
        let rest = if before.saturating_sub(held) < LEAST_FREED { REST } else { 0 };
        *self = Trimming { least: Some(least), floor: self.floor, after: held, most_load: load, looks: 0, rest };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    /// Returns true if a pass is due within so many checks.
    fn is_due_within(trimming: &mut Trimming, checks: u32, held: usize, charged: usize) -> bool {
        (0..checks).any(|_| trimming.is_due(held, charged, charged))
    }

    #[test]
    fn a_pass_follows_a_second_with_much_unused_memory() {
        let mut trimming = Trimming::default();
        assert!(!is_due_within(&mut trimming, 100, 5 * MIB, 0), "the program's own memory");
        assert!(!is_due_within(&mut trimming, 100, 60 * MIB, 55 * MIB), "in use");
        assert!(!is_due_within(&mut trimming, LOOKS_A_TRIM - 1, 60 * MIB, 0));
        assert!(!trimming.is_due(8 * MIB, 0, 0), "it was returned without a pass");
        assert!(is_due_within(&mut trimming, LOOKS_A_TRIM, 60 * MIB, 0));
        trimming.trimmed(60 * MIB, 6 * MIB, 0, 0);
        assert!(!is_due_within(&mut trimming, 100, 6 * MIB, 0));
    }

    #[test]
    fn memory_that_was_charged_and_never_written_to_hides_nothing() {
        let mut trimming = Trimming::default();
        assert!(!is_due_within(&mut trimming, 100, 5 * MIB, 0));
        assert!(!is_due_within(&mut trimming, 100, 300 * MIB, 1600 * MIB));
        assert!(is_due_within(&mut trimming, LOOKS_A_TRIM, 60 * MIB, 0));
    }

    #[test]
    fn another_pass_follows_when_peers_have_left() {
        let mut trimming = Trimming::default();
        assert!(!is_due_within(&mut trimming, 100, 5 * MIB, 0));
        assert!(is_due_within(&mut trimming, LOOKS_A_TRIM, 650 * MIB, 20 * MIB));
        // All of it is in use.
        trimming.trimmed(660 * MIB, 650 * MIB, 20 * MIB, 20 * MIB);
        assert!(!is_due_within(&mut trimming, 100, 650 * MIB, 20 * MIB));
        assert!(is_due_within(&mut trimming, LOOKS_A_TRIM, 650 * MIB, MIB));
        // The program has memory of its own, which is not charged.
        trimming.trimmed(201 * MIB, 200 * MIB, MIB, MIB);
        assert!(!is_due_within(&mut trimming, REST / 2, 203 * MIB, 20 * MIB));
        assert!(!is_due_within(&mut trimming, REST / 2, 200 * MIB, 0));
        assert!(is_due_within(&mut trimming, LOOKS_A_TRIM, 200 * MIB, 0));
    }

    #[test]
    fn another_pass_follows_when_what_was_in_use_is_freed() {
        let mut trimming = Trimming::default();
        assert!(!is_due_within(&mut trimming, 100, 5 * MIB, 0));
        trimming.trimmed(140 * MIB, 75 * MIB, 0, 0);
        assert!(is_due_within(&mut trimming, LOOKS_A_TRIM, 40 * MIB, 0));
        trimming.trimmed(75 * MIB, 40 * MIB, 0, 0);
        assert!(!is_due_within(&mut trimming, 100, 38 * MIB, 0));
    }
}
