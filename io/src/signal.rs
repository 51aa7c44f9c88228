//! Counts the signals that concern a server, and wakes a loop at each.
//!
//! Only [`install`] installs handlers, so that a host program which embeds the server can keep its own.

use crate::sys::signal as system;
use crate::wake::Notifier;
use std::io;

/// What a signal asks of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Signal {
    /// To stop: SIGTERM, SIGINT, SIGQUIT; on Windows, console events such as Ctrl-C.
    Stop,
    /// To read what has changed: SIGHUP.
    Reload,
    /// Nothing: SIGUSR1 and SIGUSR2, whose default would end the process.
    User,
}

/// From now on counts the signals of [`Signal`], and notifies `notifier` at each. Takes SIGTERM and SIGINT in any
/// case, and each of the others unless the program has a handler for it. On unix, this function also ignores SIGPIPE; Rust
/// programs do that already, and C programs may not. Keeps the notifier until the process ends.
///
/// # Errors
/// Returns the system's error if a handler cannot be installed. On Windows, also returns an error if `install` was
/// called before.
pub fn install(notifier: Notifier) -> io::Result<()> {
    system::install(notifier)
}

/// Returns how many signals of a kind have been counted since [`install`].
pub fn count(signal: Signal) -> u32 {
    system::count(signal)
}
