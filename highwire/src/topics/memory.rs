//! The memory of published messages: those that wait in a mailbox or for a subscriber, and those that a history keeps. Peers
//! choose how much is published and which topics there are, so the server's memory budget is charged for it.

use highwire_engine::memory::Budget;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Messages may hold 1/`PART` of the budget, and those of histories 1/`HISTORIES_PART`.
const PART: usize = 2;
const HISTORIES_PART: usize = 8;

/// The most bytes of all histories.
const HISTORIES_BYTES: usize = 256 * 1024 * 1024;

/// The number of bytes of waiting messages, without those of histories, above which slow readers have short queues
/// ([`QUEUE_BYTES_TIGHT`](super::settings::QUEUE_BYTES_TIGHT)).
const TIGHT_BYTES: usize = 4 * 1024 * 1024;

/// The bytes that all messages of a hub hold, and the budget that is charged for them.
#[derive(Default)]
pub(super) struct Memory {
    /// The budget of the first server whose worker has used the topics. Until then nothing is charged.
    budget: OnceLock<Budget>,
    held: AtomicUsize,
    /// The part of `held` that histories keep.
    pub(super) kept: AtomicUsize,
}

impl Memory {
    /// Charges the budget of the current worker's server from now on, unless there is one already.
    pub(super) fn use_budget_here(&self) {
        if self.budget.get().is_none()
            && let Some(budget) = Budget::here()
        {
            // Another worker may have set it meanwhile.
            let _ = self.budget.set(budget);
        }
    }

    fn limit(&self) -> usize {
        self.budget.get().map_or(usize::MAX, Budget::limit)
    }

    /// Returns the most bytes that histories may keep.
    pub(super) fn histories_limit(&self) -> usize {
        (self.limit() / HISTORIES_PART).min(HISTORIES_BYTES)
    }

    /// Charges the bytes of a message. Returns `None` if there is no room.
    pub(super) fn take(self: &Arc<Memory>, bytes: usize) -> Option<Held> {
        let most = self.limit() / PART;
        let fits = |held: usize| held.checked_add(bytes).filter(|&held| held <= most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        // Made before the budget is charged, so that its drop gives the bytes above back if the budget has no room.
        let mut held = Held { memory: self.clone(), bytes, is_charged: false };
        if let Some(budget) = self.budget.get() {
            held.is_charged = budget.take(bytes);
            if !held.is_charged {
                return None;
            }
        }
        Some(held)
    }

    /// Returns true if so much waits for slow readers that each of them may have only a little.
    pub(super) fn is_tight(&self) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held.saturating_sub(self.kept.load(Ordering::Relaxed)) > TIGHT_BYTES
    }
}

/// The charge for one message, which is given back when the message is dropped.
pub(super) struct Held {
    memory: Arc<Memory>,
    bytes: usize,
    is_charged: bool,
}

impl Held {
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.is_charged
            && let Some(budget) = self.memory.budget.get()
        {
            budget.give(self.bytes);
        }
    }
}
