//! The memory and descriptors that this process may use.

use crate::sys::unix::memory::{address_space, machine};
pub(crate) use crate::sys::unix::memory::{descriptors, raise_descriptors};

/// Returns the limits on the memory of this process, in bytes, and the machine's memory.
pub(crate) fn limits() -> [Option<usize>; 3] {
    [address_space(), None, machine()]
}

/// Does nothing, because delays by a growing descriptor table are known on Linux only.
pub(crate) fn reserve_descriptors(_: usize) {}

/// Does nothing, because the number of heaps is a setting of glibc.
pub(crate) fn share_heap() {}

/// Does nothing, because `malloc_trim` is a function of glibc.
pub(crate) fn trim() {}

/// Returns `None`, because [`trim`] does nothing.
pub(crate) fn resident() -> Option<usize> {
    None
}
