//! How much work a connection may cause in one turn of its worker, so that every connection has its turn.
//!
//! The drivers bound a turn in bytes, but a byte costs from a tenth of a nanosecond (a large body) to 40 ns (chunks of one byte).
//! So each thing that a peer can ask for has a price here, in about the nanoseconds that it takes, and each connection has the
//! same allowance for each turn, whichever version of HTTP it speaks. A connection that has used it up keeps what it has
//! received, goes on in the next turn, and stops receiving meanwhile if that is much. With `n` such connections on a worker
//! everybody else waits for `n` allowances at most.

/// What one connection may cause in one turn, in nanoseconds: 60 small requests, or 64 KiB of a body in parts of usual size.
/// A hundred connections that use it up make a turn of some milliseconds on each of two workers.
pub(crate) const WORK_A_TURN: u32 = 60_000;

/// A request: its head parsed, its route found, its handler called, its response written.
pub(super) const REQUEST: u32 = 600;

/// A field of a head: validated, kept, perhaps decompressed.
pub(super) const FIELD: u32 = 25;

/// Any other event of a protocol: a chunk or a frame.
pub(super) const EVENT: u32 = 50;

/// A handler's future polled.
pub(super) const POLL: u32 = 150;

/// Bytes of a body that are copied to its handler in a nanosecond.
const BYTES: u32 = 4;

/// The price of so many bytes of a body, with the event that brings them.
#[inline]
pub(super) fn data(bytes: usize) -> u32 {
    EVENT + bytes as u32 / BYTES
}

/// What a connection has left of its allowance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    turn: u32,
    left: u32,
}

impl Work {
    /// Begins with a turn; a connection may do so several times in the same one.
    #[inline]
    pub(super) fn begin(&mut self, turn: u32, allowance: u32) {
        if self.turn != turn {
            *self = Work { turn, left: allowance };
        }
    }

    /// Uses up a part of the allowance.
    #[inline]
    pub(super) fn spend(&mut self, price: u32) {
        self.left = self.left.saturating_sub(price);
    }

    /// Returns true if nothing is left for this turn.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_its_own_allowance() {
        let mut work = Work::default();
        work.begin(1, 100);
        work.spend(99);
        work.begin(1, 100);
        assert!(!work.is_spent());
        work.spend(1000);
        assert!(work.is_spent());
        work.begin(1, 100);
        assert!(work.is_spent());
        work.begin(2, 100);
        assert!(!work.is_spent());
    }
}
