//! The CPUs that this process may use, and pinning a thread to one of them.

use crate::sys::affinity as system;
use std::io;

/// Returns the numbers of the CPUs that the current thread may run on, or `[0]` if the system does not report them. On
/// systems other than Linux, numbers the available processors from 0.
pub fn cpus() -> Vec<usize> {
    system::cpus()
}

/// Pins the current thread to one CPU.
///
/// # Errors
/// Returns an error if the number is too large or the system refuses, for example because this process may not use the
/// CPU. Returns [`io::ErrorKind::Unsupported`] on systems other than Linux.
pub fn pin(cpu: usize) -> io::Result<()> {
    system::pin(cpu)
}
