//! Waits for one or two descriptors with poll(2).

use crate::sys::Waitable;
use std::time::Duration;

fn poll<const N: usize>(descriptors: &mut [libc::pollfd; N], patience: Option<Duration>) -> bool {
    let milliseconds = patience
        .map_or(-1, |patience| libc::c_int::try_from(patience.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX));
    // SAFETY: the pointer and length describe the array. If a signal interrupts the call, the wait only ends early.
    let ready = unsafe { libc::poll(descriptors.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    ready > 0 && descriptors[0].revents != 0
}

fn readable(fd: Waitable) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until a descriptor is readable, at most `patience`; without a limit if that is `None`. Returns true if it is
/// readable or has failed.
pub(crate) fn wait_readable(descriptor: Waitable, patience: Option<Duration>) -> bool {
    poll(&mut [readable(descriptor)], patience)
}

/// As [`wait_readable`], but also stops waiting when `other` is readable.
pub(crate) fn wait_readable_or(descriptor: Waitable, other: Waitable, patience: Option<Duration>) -> bool {
    poll(&mut [readable(descriptor), readable(other)], patience)
}

/// Waits until a descriptor is writable, at most `patience`. Returns true if it is writable or has failed.
pub(crate) fn wait_writable(descriptor: Waitable, patience: Duration) -> bool {
    poll(&mut [libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 }], Some(patience))
}
