//! How much memory this process may use, and how many descriptors.

use crate::limit;
use crate::sys::memory as system;

/// Descriptors of a process without a limit.
const DESCRIPTORS: usize = 1 << 20;

/// Returns the bytes that this process may use: the least of its address space limit, the memory limits of its cgroup and of the
/// cgroup's ancestors, and the machine's memory.
pub fn available() -> usize {
    system::limits().into_iter().flatten().min().unwrap_or(usize::MAX)
}

/// Returns how many descriptors this process may have open.
pub fn descriptors() -> usize {
    system::descriptors().unwrap_or(DESCRIPTORS)
}

/// Raises the soft limit of descriptors to the hard one, or to about a million if that is less: the kernel refuses more than its own
/// bound. If the system refuses, the soft limit stays.
pub fn raise_descriptors() {
    system::raise_descriptors(DESCRIPTORS);
}

/// Makes room for `wanted` descriptors in the process's table, at most for [`limit::TABLE_DESCRIPTORS`].
///
/// Linux doubles the table when it is full, and in a process with threads it waits each time until every CPU has passed through its
/// scheduler: 10 to 100 ms in which the accepting thread waits (measured on Linux 6.18). The table never shrinks. If the system
/// refuses, only that time is lost.
pub fn reserve_descriptors(wanted: usize) {
    system::reserve_descriptors(wanted.min(descriptors()).min(limit::TABLE_DESCRIPTORS));
}

/// Makes all threads share one heap if the address space is limited, because glibc reserves 64 MiB of it for each thread's own heap.
/// Otherwise allows as many heaps as there are processors, so that threads that allocate at the same time do not wait for each other.
/// Does nothing without glibc.
pub fn share_heap() {
    system::share_heap();
}

/// Returns freed memory to the system if the C library keeps it (glibc) and [`share_heap`] was called, so that a heap which belongs to
/// a host program is left alone. Threads that allocate wait meanwhile, some milliseconds per hundred megabytes.
pub fn trim() {
    system::trim();
}
