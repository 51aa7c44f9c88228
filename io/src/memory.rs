//! How much memory this process may use, and how many descriptors.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that this process may use: the least of its address space limit, its cgroup's and its ancestors' memory limits,
/// and the machine's memory.
pub fn available() -> usize {
    [limit_of(libc::RLIMIT_AS), cgroup(), machine()].into_iter().flatten().min().unwrap_or(usize::MAX)
}

/// How many descriptors this process may have open.
pub fn descriptors() -> usize {
    limit_of(libc::RLIMIT_NOFILE).unwrap_or(1 << 20)
}

/// Raises the soft limit of descriptors to the hard one. Where that is refused, the soft one stays.
pub fn raise_descriptors() {
    // SAFETY: an all-zero rlimit is valid, and the pointer describes it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            // More than the kernel's own bound is refused, so a large number stands for "no limit".
            limit.rlim_cur = limit.rlim_max.min(1 << 20);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Makes room in the process's table of descriptors for so many, at most [`limit::TABLE_DESCRIPTORS`](crate::limit::TABLE_DESCRIPTORS).
///
/// The kernel doubles the table when it is full, and in a process with threads it waits each time until every CPU has passed
/// through its scheduler: 10 to 100 ms in which the accepting thread stands (measured, on Linux 6.18). Once made large, it
/// stays so. Where that is refused, nothing is lost but the time.
pub fn reserve_descriptors(wanted: usize) {
    let most = wanted.min(descriptors()).min(crate::limit::TABLE_DESCRIPTORS);
    let Ok(last) = libc::c_int::try_from(most.saturating_sub(1)) else { return };
    let Ok(notifier) = crate::wake::Notifier::new() else { return };
    // SAFETY: the call takes no pointers; what it gives is a fresh descriptor, closed here and nobody else's.
    unsafe {
        let copy = libc::fcntl(notifier.descriptor(), libc::F_DUPFD_CLOEXEC, last);
        if copy >= 0 {
            libc::close(copy);
        }
    }
}

/// [`share_heap`] was called.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static SHARED: AtomicBool = AtomicBool::new(false);

/// Makes all threads share one heap where the address space is limited, since glibc reserves 64 MiB of it for each thread's own.
/// Elsewhere no more heaps than processors, so that threads that allocate at the same time do not wait for each other.
pub fn share_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// How many freed bytes glibc keeps at the end of a heap until [`trim`] returns them. With a smaller value, a program
        /// that soon needs the memory again makes the system take and give pages all the time.
        const KEPT_BYTES: libc::c_int = 1024 * 1024;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let heaps = if limit_of(libc::RLIMIT_AS).is_some() { 1 } else { processors };
        SHARED.store(true, Ordering::Relaxed);
        // SAFETY: mallopt takes two numbers and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, heaps.try_into().unwrap_or(libc::c_int::MAX));
            // Fixed, large blocks go back to the system when they are freed; left to itself glibc keeps ever larger ones.
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        }
    }
}

/// Gives memory that was freed back to the system, where the C library keeps it (glibc) and [`share_heap`] was called: a heap that
/// is a program's own. Threads that allocate wait meanwhile, some milliseconds for a hundred megabytes.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if SHARED.load(Ordering::Relaxed) {
        // SAFETY: malloc_trim takes a number and may be called at any time.
        unsafe { libc::malloc_trim(0) };
    }
}

fn limit_of(resource: libc::__rlimit_resource_t) -> Option<usize> {
    // SAFETY: an all-zero rlimit is valid, and the pointer describes it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource, &mut limit) != 0 {
            return None;
        }
        limit.rlim_cur
    };
    (limit != libc::RLIM_INFINITY).then(|| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The limit of the process's cgroup: version 2 looks at every ancestor, version 1 keeps its own hierarchy.
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

fn machine() -> Option<usize> {
    // SAFETY: sysconf takes no pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(size).ok()?)
}
