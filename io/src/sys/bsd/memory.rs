//! How much memory and how many descriptors this process may use.

use crate::sys::unix::memory::{address_space, machine};
pub(crate) use crate::sys::unix::memory::{descriptors, raise_descriptors};

/// Returns the limits on the memory of this process, in bytes, and the machine's memory.
pub(crate) fn limits() -> [Option<usize>; 3] {
    [address_space(), None, machine()]
}

/// Does nothing, because only Linux waits when its table of descriptors grows.
pub(crate) fn reserve_descriptors(_: usize) {}

/// Does nothing, because only glibc has several heaps.
pub(crate) fn share_heap() {}

/// Does nothing, because only glibc keeps freed memory in this way.
pub(crate) fn trim() {}
