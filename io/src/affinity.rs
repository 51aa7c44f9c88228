//! The CPUs that this process may use, and pinning a thread to one of them.

use crate::sys::affinity as system;
use std::io;

/// Returns the numbers of the CPUs that the current thread may run on; at least one.
pub fn cpus() -> Vec<usize> {
    system::cpus()
}

/// Pins the current thread to one CPU.
///
/// # Errors
/// Returns the system's error, for example if this process may not use the CPU; [`io::ErrorKind::Unsupported`] on
/// systems other than Linux.
pub fn pin(cpu: usize) -> io::Result<()> {
    system::pin(cpu)
}
