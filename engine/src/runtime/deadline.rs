//! Coarse deadlines, one for each connection or request of this process. They are numbers in a dense vector, so that no
//! request needs a timer operation.
//!
//! Setting a deadline is a store. The vector is searched only when its earliest deadline may have passed. Under load,
//! that is about once per shortest timeout.

use highwire_io::Instant;
use std::time::Duration;

/// The length of a tick. A tenth of a second is exact enough for timeouts of seconds; 2^32 ticks are 13 years.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The number of ticks in a second.
pub(crate) const TICKS_A_SECOND: u32 = (Duration::from_secs(1).as_nanos() / TICK.as_nanos()) as u32;

/// The tick that means no deadline.
pub(crate) const NEVER: u32 = u32::MAX;

/// Returns the tick that contains a moment.
pub(crate) fn tick(now: Instant) -> u32 {
    (now.nanoseconds / TICK.as_nanos() as u64) as u32
}

/// Returns a timeout in ticks, at least one; zero becomes [`NEVER`].
pub(crate) fn ticks(timeout: Duration) -> u32 {
    if timeout.is_zero() { NEVER } else { u32::try_from(timeout.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(NEVER) }
}

/// The deadlines of connections, or of requests of this process, by index.
#[derive(Debug)]
pub(crate) struct DeadlineTable {
    due: Vec<u32>,
    earliest: u32,
}

impl DeadlineTable {
    pub(crate) fn new() -> DeadlineTable {
        DeadlineTable { due: Vec::new(), earliest: NEVER }
    }

    /// Sets a deadline `after` ticks after `now`.
    #[inline]
    pub(crate) fn set(&mut self, index: u32, now: u32, after: u32) {
        let index = index as usize;
        if index >= self.due.len() {
            self.due.resize(index + 1, NEVER);
        }
        let due = now.saturating_add(after);
        self.due[index] = due;
        self.earliest = self.earliest.min(due);
    }

    /// Sets a deadline at the tick `due`.
    pub(crate) fn set_at(&mut self, index: u32, due: u32) {
        self.set(index, due, 0);
    }

    /// Returns the tick of a deadline.
    pub(crate) fn get(&self, index: u32) -> u32 {
        self.due.get(index as usize).copied().unwrap_or(NEVER)
    }

    pub(crate) fn clear(&mut self, index: u32) {
        if let Some(due) = self.due.get_mut(index as usize) {
            *due = NEVER;
        }
    }

    /// Returns the moment of the next search, or `None` if no deadline is set.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.earliest != NEVER).then(|| Instant { nanoseconds: u64::from(self.earliest) * TICK.as_nanos() as u64 })
    }

    /// Appends to `expired` the indexes whose deadlines have passed, and clears these deadlines.
    pub(crate) fn expired(&mut self, now: u32, expired: &mut Vec<u32>) {
        if self.earliest > now {
            return;
        }
        self.earliest = NEVER;
        for (index, due) in self.due.iter_mut().enumerate() {
            if *due <= now {
                *due = NEVER;
                expired.push(index as u32);
            }
            self.earliest = self.earliest.min(*due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_expire_once_and_the_earliest_is_known() {
        let mut table = DeadlineTable::new();
        table.set(0, 10, 5);
        table.set(3, 10, 2);
        table.set(1, 10, NEVER);
        let mut expired = Vec::new();
        table.expired(11, &mut expired);
        assert!(expired.is_empty());
        table.expired(12, &mut expired);
        assert_eq!(expired, [3]);
        assert_eq!(table.next(), Some(Instant { nanoseconds: 1_500_000_000 }));
        table.set(0, 14, 5);
        table.expired(15, &mut expired);
        assert_eq!(expired, [3]);
        table.expired(19, &mut expired);
        assert_eq!(expired, [3, 0]);
        assert_eq!(table.next(), None);
    }

    #[test]
    fn zero_is_never() {
        assert_eq!(ticks(Duration::ZERO), NEVER);
        assert_eq!(ticks(Duration::from_millis(1)), 1);
        assert_eq!(ticks(Duration::from_secs(1)), 10);
    }
}
