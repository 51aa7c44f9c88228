//! The limits of this process on memory and descriptors, and the behavior of its heap.

use crate::limit;
use crate::sys::memory as system;

/// The descriptors assumed for a process without a limit, and the most that [`raise_descriptors`] requests.
const DESCRIPTORS: usize = 1 << 20;

/// Returns the number of bytes that this process may use: the least of its address space limit, the memory limits of
/// its cgroup and the cgroup's ancestors, and the machine's memory.
pub fn available() -> usize {
    system::limits().into_iter().flatten().min().unwrap_or(usize::MAX)
}

/// Returns the number of descriptors that this process may have open; 1,048,576 if there is no limit.
pub fn descriptors() -> usize {
    system::descriptors().unwrap_or(DESCRIPTORS)
}

/// Raises the soft limit of descriptors to the hard limit, but at most to 1,048,576, because the kernel refuses more
/// than its own maximum. If the system refuses, the soft limit stays.
pub fn raise_descriptors() {
    system::raise_descriptors(DESCRIPTORS);
}

/// Makes room for `wanted` descriptors in the process's table, at most for [`limit::TABLE_DESCRIPTORS`]. Does nothing
/// on systems other than Linux.
///
/// Linux doubles the table when it is full. In a process with threads, it then waits until every CPU has passed through
/// its scheduler: 10 to 100 ms in which the accepting thread waits (measured on Linux 6.18). The table never shrinks.
/// Errors are ignored; the table then grows when it is full.
pub fn reserve_descriptors(wanted: usize) {
    system::reserve_descriptors(wanted.min(descriptors()).min(limit::TABLE_DESCRIPTORS));
}

/// Makes all threads share one heap if the address space is limited, because glibc reserves 64 MiB of address space for
/// each thread's own heap. Otherwise allows as many heaps as there are processors, so that threads that allocate at the
/// same time do not wait for each other. Does nothing without glibc.
pub fn share_heap() {
    system::share_heap();
}

/// Returns freed memory that glibc keeps to the system. Does nothing without glibc, or if [`share_heap`] was not
/// called, because the heap then belongs to a host program. Threads that allocate wait meanwhile, some milliseconds per
/// hundred megabytes.
pub fn trim() {
    system::trim();
}
