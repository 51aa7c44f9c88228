//! CPU affinity, by sched_getaffinity(2) and sched_setaffinity(2).

use std::io;

pub(crate) fn cpus() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and size describe the set.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0;
    let most = libc::CPU_SETSIZE as usize;
    // SAFETY: every index is below CPU_SETSIZE.
    let allowed: Vec<usize> = (0..most).filter(|&cpu| !failed && unsafe { libc::CPU_ISSET(cpu, &set) }).collect();
    if allowed.is_empty() { vec![0] } else { allowed }
}

pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the CPU number {cpu} is too large")));
    }
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and size describe the set.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
