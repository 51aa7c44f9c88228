//! The memory budget: an account of the bytes that the engine holds for peers, with one limit for all workers of a
//! server.
//!
//! Workers take bytes from the shared account in portions, so that most charges need no atomic operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The account that all workers share.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// The number of bytes that an HTTP/2 connection may hold while the budget has room, even if it leaves less for others.
/// It is enough for the largest head that the default limits allow and for bodies of usual size.
const SMALL_BYTES: usize = 64 * 1024;

/// The number of bytes that a worker takes from the budget in advance, if the budget has them. A worker returns bytes
/// when it has more than twice as many in hand.
const PORTION: usize = 64 * 1024;

impl Budget {
    pub(crate) fn new(limit: usize) -> Budget {
        Budget { limit, used: AtomicUsize::new(0) }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that workers have taken.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that workers have not taken.
    fn free(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// Returns half of the memory that this process may use (the least of its address space limit, its cgroup's and the
    /// machine's memory), or a quarter if half would leave less than 64 MiB for uncounted memory.
    pub(crate) fn default_limit() -> usize {
        Budget::limit_of(highwire_io::memory::available())
    }

    fn limit_of(available: usize) -> usize {
        const LEAST_REST: usize = 64 * 1024 * 1024;
        if available / 2 < LEAST_REST { available / 4 } else { available / 2 }
    }
}

/// A worker's share of the budget.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    in_hand: usize,
    charged: usize,
}

impl Share {
    pub(crate) fn new(budget: Arc<Budget>) -> Share {
        Share { budget, in_hand: 0, charged: 0 }
    }

    /// Returns the number of bytes that are charged and not given back.
    pub(crate) fn charged(&self) -> usize {
        self.charged
    }

    /// Returns true if a connection that holds `held` bytes may hold `wanted` bytes. The connection may hold
    /// [`SMALL_BYTES`], or as many bytes as it leaves for others. Thus, one connection cannot have much more than half
    /// of the budget, and less if others use the budget as well.
    pub(crate) fn allows(&self, held: usize, wanted: usize) -> bool {
        wanted <= SMALL_BYTES || wanted <= (self.budget.free() + self.in_hand + held) / 2
    }

    /// Charges bytes. Returns false if the budget does not have enough.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        if self.in_hand >= bytes {
            self.in_hand -= bytes;
        } else {
            let wanted = bytes - self.in_hand;
            if self.budget.take(wanted + PORTION) {
                self.in_hand = PORTION;
            } else if self.budget.take(wanted) {
                self.in_hand = 0;
            } else {
                return false;
            }
        }
        self.charged += bytes;
        true
    }

    /// Gives charged bytes back.
    pub(crate) fn give(&mut self, bytes: usize) {
        debug_assert!(self.charged >= bytes, "more bytes are given back than were charged");
        self.charged = self.charged.saturating_sub(bytes);
        self.in_hand += bytes;
        if self.in_hand > 2 * PORTION {
            self.budget.give(self.in_hand - PORTION);
            self.in_hand = PORTION;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give(self.in_hand + self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_process_keeps_more_for_what_is_not_counted() {
        for (available, limit) in
            [(0, 0), (60 << 20, 15 << 20), (127 << 20, 127 << 18), (128 << 20, 64 << 20), (1 << 30, 1 << 29)]
        {
            assert_eq!(Budget::limit_of(available), limit, "{available}");
        }
    }

    #[test]
    fn shares_never_pass_the_limit_and_give_all_back() {
        let budget = Arc::new(Budget::new(200_000));
        let mut first = Share::new(budget.clone());
        let mut second = Share::new(budget.clone());
        assert!(first.take(100_000));
        assert!(second.take(30_000));
        assert!(!second.take(100_000));
        first.give(100_000);
        assert!(second.take(100_000));
        second.give(30_000);
        drop((first, second));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
