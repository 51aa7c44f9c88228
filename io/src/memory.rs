//! The limits of this process on memory and descriptors, and the behavior of its heap.

use crate::limit;
use crate::sys::memory as system;

/// The number of descriptors assumed for a process without a limit, and the highest limit that [`raise_descriptors`]
/// requests.
const DESCRIPTORS: usize = 1 << 20;

/// Returns the number of bytes that this process may use: the least of its address space limit, the memory limits of
/// its cgroup and the cgroup's ancestors (on Linux), and the machine's memory. Returns [`usize::MAX`] if none of these
/// is known.
pub fn available() -> usize {
    system::limits().into_iter().flatten().min().unwrap_or(usize::MAX)
}

/// Returns the number of descriptors that this process may have open; 1,048,576 if no limit is known.
pub fn descriptors() -> usize {
    system::descriptors().unwrap_or(DESCRIPTORS)
}

/// Raises the soft limit of descriptors to the hard limit, but at most to 1,048,576, the default maximum of Linux. If
/// the system refuses that, tries 10,240, which macOS always allows. If the system refuses both, the soft limit stays.
/// Does nothing on Windows.
pub fn raise_descriptors() {
    system::raise_descriptors(DESCRIPTORS);
}

/// Makes room for `wanted` descriptors in the process's table, at most for [`limit::TABLE_DESCRIPTORS`]. Does nothing
/// on systems other than Linux.
///
/// Linux enlarges the table when it is full. In a process with threads, it then waits until every CPU has passed
/// through the scheduler, which delays the accepting thread by 10 to 100 ms (measured on Linux 6.18). The table never
/// shrinks. Errors are ignored; the table then grows when it is full.
pub fn reserve_descriptors(wanted: usize) {
    system::reserve_descriptors(wanted.min(descriptors()).min(limit::TABLE_DESCRIPTORS));
}

/// Makes all threads share one heap if the address space is limited, because glibc reserves 64 MiB of address space for
/// each thread's own heap. Otherwise allows as many heaps as there are processors, so that threads that allocate at the
/// same time seldom wait for each other. Also limits how much freed memory glibc keeps. Does nothing without glibc.
pub fn share_heap() {
    system::share_heap();
}

/// Makes glibc return freed memory to the system. Does nothing without glibc, or if [`share_heap`] was not called,
/// because the heap then belongs to a host program. Threads that allocate may wait meanwhile, some milliseconds per
/// hundred megabytes.
pub fn trim() {
    system::trim();
}

/// Returns the number of bytes of memory that the process itself holds, without files, or `None` if [`trim`] could not
/// return any, or if the system does not tell.
pub fn resident() -> Option<usize> {
    system::resident()
}
