//! Counts termination signals, and wakes a loop at each.
//!
//! Only [`install`] installs handlers, so that a host program which embeds the server can keep its own.

use crate::sys::signal as system;
use crate::wake::Notifier;
use std::io;

/// From now on counts SIGTERM and SIGINT (on Windows, console events such as Ctrl-C), and notifies `notifier` at each.
/// On unix, also ignores SIGPIPE, as Rust programs already do and C programs may not. Keeps the notifier until the
/// process ends.
///
/// # Errors
/// Returns the system's error if a handler cannot be installed. On Windows, also returns an error if `install` was
/// called before.
pub fn install(notifier: Notifier) -> io::Result<()> {
    system::install(notifier)
}

/// Returns how many termination signals have been counted since [`install`].
pub fn count() -> u32 {
    system::count()
}
