//! Drops values of the program, and catches panics of their destructors.

use crate::runtime::rate_limited;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value of the program. Catches and logs a panic of its `Drop`, even while another panic unwinds.
pub fn drop_safely<T>(what: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(what))).is_err() {
        rate_limited::log!(Panic, error, "a value of the program panicked when it was dropped");
    }
}
