//! Panics of the program's own code that must cost nothing else.

use crate::quiet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops what the program has made. A panic of that costs nothing else: it ends here, also in the middle of another one.
pub fn let_go<T>(what: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(what))).is_err() {
        quiet::log!(Panic, error, "something of the program's panicked when it was dropped");
    }
}
