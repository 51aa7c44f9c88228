//! Drops values of the program, and catches panics of their destructors.

use crate::runtime::quiet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value of the program. Catches and logs a panic of its `Drop`, even while another panic unwinds.
pub fn let_go<T>(what: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(what))).is_err() {
        quiet::log!(Panic, error, "a value of the program panicked when it was dropped");
    }
}
