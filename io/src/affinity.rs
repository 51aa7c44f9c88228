//! The CPUs that this process may use, and pinning a thread to one of them.

use crate::sys::affinity as system;
use std::io;

/// Returns the numbers of the CPUs that the current thread may run on, or `[0]` if the system does not report them. On
/// systems other than Linux, numbers the available processors from 0.
pub fn cpus() -> Vec<usize> {
    system::cpus()
}

/// Returns the number of CPUs that this process can keep busy: that of [`cpus`], or less if a cgroup's quota allows less.
pub fn parallelism() -> usize {
    // The standard library reads the quotas of cgroups, and rounds down.
    cpus().len().min(std::thread::available_parallelism().map_or(usize::MAX, std::num::NonZero::get))
}

/// Pins the current thread to one CPU.
///
/// # Errors
/// Returns an error if the number is too large or the system refuses, for example because this process may not use the
/// CPU. Returns [`io::ErrorKind::Unsupported`] on systems other than Linux.
pub fn pin(cpu: usize) -> io::Result<()> {
    system::pin(cpu)
}
