//! The memory of long bodies and messages. A worker keeps it for a time for the next ones: allocators return blocks of
//! this size to the system, and each page that the system gives again must be cleared and costs a page fault.
//!
//! [`Budget`] charges what a program holds for its peers, besides what their connections hold, to the server's budget.

pub(crate) mod kept;

use crate::runtime::context;
use crate::server::budget;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The least capacity of a buffer that is kept. Allocators keep smaller blocks themselves.
const LEAST_BYTES: usize = 64 * 1024;

/// The memory budget of a server. Any thread may charge it.
#[derive(Clone, Debug)]
pub struct Budget {
    budget: Arc<budget::Budget>,
}

impl Budget {
    /// Returns the budget of the current worker's server, or `None` if no worker runs on this thread.
    pub fn here() -> Option<Budget> {
        context::budget().map(|budget| Budget { budget })
    }

    /// Returns the most bytes that may be charged.
    pub fn limit(&self) -> usize {
        self.budget.limit()
    }

    /// Charges bytes. Returns false, and charges nothing, if the budget has no room.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        self.budget.take(bytes)
    }

    /// Gives charged bytes back.
    pub fn give(&self, bytes: usize) {
        self.budget.give(bytes);
    }
}

/// Takes an empty buffer with a capacity in this range, if the current worker keeps one.
pub fn take(capacity: RangeInclusive<usize>) -> Option<Vec<u8>> {
    if *capacity.end() < LEAST_BYTES {
        return None;
    }
    context::kept(|kept, now| kept.take(capacity, now)).flatten()
}

/// Lets the current worker keep the memory of a buffer.
pub fn keep(buffer: Vec<u8>) {
    if buffer.capacity() >= LEAST_BYTES && context::serves_many() {
        context::kept(|kept, now| kept.keep(buffer, now));
    }
}

/// Returns the bytes of a buffer. The worker that drops the last reference to them keeps the memory, if it is large and at
/// least half full.
pub fn share(buffer: Vec<u8>) -> Bytes {
    let is_full = buffer.capacity() / 2 <= buffer.len();
    if !is_full || buffer.capacity() < LEAST_BYTES {
        return buffer.into();
    }
    living().insert(buffer.as_ptr().addr(), (buffer.len(), None));
    Bytes::from_owner(Shared(buffer))
}

/// The buffers that are [shared](share), by their addresses: their lengths, and who is charged for each.
static LIVING: Mutex<BTreeMap<usize, (usize, Option<usize>)>> = Mutex::new(BTreeMap::new());

fn living() -> MutexGuard<'static, BTreeMap<usize, (usize, Option<usize>)>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if `holder` must be charged for bytes: only it holds them, or it is the first who asks for a buffer that was
/// [shared](share), of which `Bytes` cannot tell how many hold it. A holder is a number that others do not have.
pub(crate) fn is_own(bytes: &Bytes, holder: usize) -> bool {
    if bytes.is_unique() {
        return true;
    }
    if bytes.len() < LEAST_BYTES / 2 {
        return false;
    }
    let (mut living, at) = (living(), bytes.as_ptr().addr());
    match living.range_mut(..=at).next_back() {
        Some((begin, (length, charged))) if at < begin + *length => *charged.get_or_insert(holder) == holder,
        _ => false,
    }
}

/// Returns a number that no other holder has.
pub(crate) fn new_holder() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // It is odd, which neither the addresses of streams nor the numbers of sockets are.
    LAST.fetch_add(2, Ordering::Relaxed) | 1
}

/// A buffer that a worker keeps when it is dropped.
struct Shared(Vec<u8>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        living().remove(&self.0.as_ptr().addr());
        keep(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn one_holder_is_charged_for_a_shared_buffer() {
        let bytes = share(vec![1; MIB]);
        let part = bytes.slice(MIB / 2..);
        assert!(is_own(&bytes, 7) && is_own(&part, 7), "the first who asks");
        assert!(!is_own(&bytes, 8) && !is_own(&part, 8));
        drop((bytes, part));
        let (own, short) = (Bytes::from(vec![1; MIB]), Bytes::from_static(b"short"));
        assert!(is_own(&own, 8) && !is_own(&short, 8));
        let other = own.clone();
        assert!(!is_own(&own, 8) && !is_own(&other, 9), "nobody knows who holds the most of these");
    }
}
