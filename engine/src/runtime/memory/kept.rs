//! The buffers that a worker keeps for the next long bodies and messages.

use highwire_io::Instant;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most bytes that a worker keeps, and the part of the memory budget that it keeps at most.
const KEPT_BYTES: usize = 64 * 1024 * 1024;
const KEPT_PART: usize = 16;

/// The time after which a worker frees what it keeps, if no body has used it.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The unused memory that a worker keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The most bytes.
    most: usize,
    /// Empty buffers.
    buffers: Vec<Vec<u8>>,
    /// The sum of their capacities.
    bytes: usize,
    /// The moment at which a buffer was last taken or kept.
    used: Instant,
}

impl Kept {
    /// Creates a list without buffers, for a worker whose part of the memory budget is `budget` bytes.
    pub(crate) fn new(budget: usize) -> Kept {
        Kept { most: KEPT_BYTES.min(budget / KEPT_PART), ..Kept::default() }
    }

    pub(super) fn take(&mut self, capacity: RangeInclusive<usize>, now: Instant) -> Option<Vec<u8>> {
        let at = self.buffers.iter().rposition(|buffer| capacity.contains(&buffer.capacity()))?;
        let buffer = self.buffers.swap_remove(at);
        (self.bytes, self.used) = (self.bytes - buffer.capacity(), now);
        Some(buffer)
    }

    /// Keeps the memory of a buffer, or frees it if there is no room.
    pub(super) fn keep(&mut self, mut buffer: Vec<u8>, now: Instant) {
        if self.bytes + buffer.capacity() <= self.most {
            buffer.clear();
            (self.bytes, self.used) = (self.bytes + buffer.capacity(), now);
            self.buffers.push(buffer);
        }
    }

    /// Returns the moment at which the buffers are freed if none is used before; `None` if there are none.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.buffers.is_empty()).then(|| self.used + KEPT_FOR)
    }

    /// Frees the buffers if they are [due](Self::due).
    pub(crate) fn drop_safely(&mut self, now: Instant) {
        if self.due().is_some_and(|due| now >= due) {
            (self.buffers, self.bytes) = (Vec::new(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_buffer_is_taken_that_fits() {
        let mut kept = Kept::new(usize::MAX);
        [MIB, 4 * MIB, 2 * MIB].into_iter().for_each(|size| kept.keep(Vec::with_capacity(size), at(1)));
        assert_eq!(kept.take(MIB + 1..=2 * MIB - 1, at(1)), None);
        assert_eq!(kept.take(4 * MIB + 1..=9 * MIB, at(1)), None);
        assert_eq!(kept.take(3 * MIB..=5 * MIB, at(1)).map(|buffer| buffer.capacity()), Some(4 * MIB));
        assert_eq!(kept.take(3 * MIB..=5 * MIB, at(1)), None);
        assert_eq!((kept.buffers.len(), kept.bytes), (2, 3 * MIB));
    }

    #[test]
    fn kept_memory_is_bounded_and_freed_when_unused() {
        let mut kept = Kept::new(usize::MAX);
        (0..100).for_each(|_| kept.keep(Vec::with_capacity(MIB), at(10)));
        assert_eq!(kept.bytes, KEPT_BYTES);
        assert_eq!(kept.due(), Some(at(11)));
        assert!(kept.take(MIB..=MIB, at(11)).is_some());
        kept.drop_safely(at(11));
        assert_eq!(kept.due(), Some(at(12)), "a buffer was used at 11");
        kept.drop_safely(at(12));
        assert_eq!(kept.due(), None);
        assert_eq!((kept.buffers.len(), kept.bytes), (0, 0));
    }
}
