//! The events that the tasks of a test record, in order.

use std::cell::RefCell;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records an event.
pub(crate) fn see(what: impl Into<String>) {
    SEEN.with_borrow_mut(|seen| seen.push(what.into()));
}

/// Returns the events since the last call.
pub(crate) fn seen() -> Vec<String> {
    SEEN.with_borrow_mut(std::mem::take)
}
