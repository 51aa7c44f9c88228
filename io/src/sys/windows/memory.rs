//! The machine's memory. Windows has no descriptor limit that a process could read or raise.

use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

/// Returns the machine's memory in bytes, the only limit that is checked on Windows.
pub(crate) fn limits() -> [Option<usize>; 1] {
    let mut status = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..MEMORYSTATUSEX::default() };
    // SAFETY: the pointer is to a struct that contains its own size.
    let done = unsafe { GlobalMemoryStatusEx(&mut status) };
    [(done != 0).then(|| usize::try_from(status.ullTotalPhys).unwrap_or(usize::MAX))]
}

pub(crate) fn descriptors() -> Option<usize> {
    None
}

pub(crate) fn raise_descriptors(_: usize) {}

pub(crate) fn reserve_descriptors(_: usize) {}

pub(crate) fn share_heap() {}

pub(crate) fn trim() {}

pub(crate) fn resident() -> Option<usize> {
    None
}
