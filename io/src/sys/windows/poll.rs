//! Waits for one or two sockets with WSAPoll.

use crate::sys::Waitable;
use std::time::Duration;
use windows_sys::Win32::Networking::WinSock::{POLLRDNORM, POLLWRNORM, SOCKET, WSAPOLLFD, WSAPoll};

fn poll<const N: usize>(sockets: &mut [WSAPOLLFD; N], patience: Option<Duration>) -> bool {
    let milliseconds =
        patience.map_or(-1, |patience| i32::try_from(patience.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: the pointer and length describe the array.
    let ready = unsafe { WSAPoll(sockets.as_mut_ptr(), N as u32, milliseconds) };
    ready > 0 && sockets[0].revents != 0
}

fn readable(socket: Waitable) -> WSAPOLLFD {
    WSAPOLLFD { fd: socket as SOCKET, events: POLLRDNORM, revents: 0 }
}

/// Waits until a socket is readable, at most `patience`; without a limit if that is `None`. Returns true if it is
/// readable or has failed.
pub(crate) fn wait_readable(socket: Waitable, patience: Option<Duration>) -> bool {
    poll(&mut [readable(socket)], patience)
}

/// As [`wait_readable`], but also stops waiting when `other` is readable.
pub(crate) fn wait_readable_or(socket: Waitable, other: Waitable, patience: Option<Duration>) -> bool {
    poll(&mut [readable(socket), readable(other)], patience)
}

/// Waits until a socket is writable, at most `patience`. Returns true if it is writable or has failed.
pub(crate) fn wait_writable(socket: Waitable, patience: Duration) -> bool {
    poll(&mut [WSAPOLLFD { fd: socket as SOCKET, events: POLLWRNORM, revents: 0 }], Some(patience))
}
