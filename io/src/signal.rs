//! Termination signals as a count that a loop reads, and a wake.
//!
//! Handlers are installed only if the program asks for them: an embedding host keeps its own.

use crate::sys::signal as system;
use crate::wake::Notifier;
use std::io;

/// Counts SIGTERM and SIGINT from now on (on Windows, Ctrl-C and the closing of the console), and notifies at each. Ignores SIGPIPE,
/// which Rust programs do anyway and C hosts need. The notifier stays open as long as the process.
///
/// # Errors
/// Returns the system's error if a handler cannot be installed.
pub fn install(notifier: Notifier) -> io::Result<()> {
    system::install(notifier)
}

/// Returns how many termination signals have arrived since [`install`].
pub fn count() -> u32 {
    system::count()
}
