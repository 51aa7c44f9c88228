//! Limits of the process (getrlimit) and the machine's memory (sysconf).

/// The type of the resources that [`limit_of`] takes, which differs between systems.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Resource = libc::c_int;

/// Returns the soft limit of a resource, if there is one.
fn limit_of(resource: Resource) -> Option<usize> {
    // SAFETY: an all-zero rlimit is valid, and the pointer is to it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource, &mut limit) != 0 {
            return None;
        }
        limit.rlim_cur
    };
    (limit != libc::RLIM_INFINITY).then(|| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Returns the number of bytes of address space that this process may use, if it is limited.
pub(crate) fn address_space() -> Option<usize> {
    limit_of(libc::RLIMIT_AS)
}

/// Returns the number of descriptors that this process may have open, if it is limited.
pub(crate) fn descriptors() -> Option<usize> {
    limit_of(libc::RLIMIT_NOFILE)
}

/// The number of descriptors that macOS always allows.
const OPEN_MAX: usize = 10_240;

/// Raises the soft limit of descriptors to the hard one, but at most to `most`. If the system refuses that, tries
/// [`OPEN_MAX`]; if it refuses both, changes nothing.
pub(crate) fn raise_descriptors(most: usize) {
    // SAFETY: an all-zero rlimit is valid, and the pointers are to it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            // macOS refuses more than a bound of its own, which is at least OPEN_MAX.
            for most in [most, OPEN_MAX] {
                let before = limit.rlim_cur;
                limit.rlim_cur = limit.rlim_max.min(most as libc::rlim_t).max(before);
                if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 {
                    return;
                }
                limit.rlim_cur = before;
            }
        }
    }
}

/// Returns the number of bytes of memory that the machine has, if the system reports it.
pub(crate) fn machine() -> Option<usize> {
    // SAFETY: sysconf takes no pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(size).ok()?)
}
