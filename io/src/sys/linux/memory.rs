//! The memory and descriptors that this process may use (rlimits, cgroups), and glibc's heaps.

use super::wake::Bell;
use crate::sys::unix::memory::{address_space, machine};
pub(crate) use crate::sys::unix::memory::{descriptors, raise_descriptors};
#[cfg(target_env = "gnu")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns the limits on the memory of this process, in bytes, and the machine's memory.
pub(crate) fn limits() -> [Option<usize>; 3] {
    [address_space(), cgroup(), machine()]
}

/// Makes room for `wanted` descriptors in the process's table: duplicates a descriptor to the last of these numbers and
/// closes the copy.
pub(crate) fn reserve_descriptors(wanted: usize) {
    let Ok(last) = libc::c_int::try_from(wanted.saturating_sub(1)) else { return };
    let Ok(bell) = Bell::new() else { return };
    // SAFETY: the call takes no pointers; the descriptor that it returns is closed here and has no other owner.
    unsafe {
        let copy = libc::fcntl(bell.waitable(), libc::F_DUPFD_CLOEXEC, last);
        if copy >= 0 {
            libc::close(copy);
        }
    }
}

/// True if [`share_heap`] was called.
#[cfg(target_env = "gnu")]
static SHARED: AtomicBool = AtomicBool::new(false);

/// Makes all threads share one heap if the address space is limited, because glibc reserves 64 MiB of it for each
/// thread's own heap. Otherwise allows as many heaps as there are processors, so that threads that allocate at the same
/// time seldom wait for each other. Also limits how much freed memory glibc keeps.
pub(crate) fn share_heap() {
    #[cfg(target_env = "gnu")]
    {
        /// The most freed bytes that glibc keeps at the end of a heap. If it kept fewer, a program that soon needs the
        /// memory again would often return pages to the system and get new ones.
        const KEPT_BYTES: libc::c_int = 1024 * 1024;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let heaps = if address_space().is_some() { 1 } else { processors };
        SHARED.store(true, Ordering::Relaxed);
        // SAFETY: mallopt takes two numbers and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, heaps.try_into().unwrap_or(libc::c_int::MAX));
            // With a fixed threshold, freed blocks of at least this size go back to the system. By default, glibc
            // raises the threshold when such a block is freed, and then keeps larger blocks.
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        }
    }
}

/// Returns freed memory to the system if [`share_heap`] was called, so that a heap which belongs to a host program is
/// left alone. Threads that allocate may wait meanwhile, some milliseconds per hundred megabytes.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    if SHARED.load(Ordering::Relaxed) {
        // SAFETY: malloc_trim takes a number and may be called at any time.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Returns the number of bytes of the process's own memory, or `None` if [`share_heap`] was not called.
pub(crate) fn resident() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    if SHARED.load(Ordering::Relaxed) {
        let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = pages.split(' ').skip(1).map_while(|pages| pages.trim().parse::<usize>().ok());
        let (all, of_files) = (pages.next()?, pages.next()?);
        // SAFETY: the call takes a number and has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        return Some(all.saturating_sub(of_files) * page);
    }
    None
}

/// Returns the smallest memory limit of the process's cgroups and their ancestors (cgroup versions 1 and 2), or `None`
/// if no limit is found.
fn cgroup() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut group = group.trim_end_matches('/');
        loop {
            if let Some(limit) = number(&format!("{root}{group}/{file}")) {
                least = Some(least.map_or(limit, |least: usize| least.min(limit)));
            }
            match group.rfind('/') {
                Some(parent) => group = &group[..parent],
                None => break,
            }
        }
    }
    least
}
