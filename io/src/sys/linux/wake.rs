//! A descriptor (eventfd(2)) that one thread makes readable for another.

use crate::sys::Waitable;
pub(crate) use crate::sys::unix::watch::Watch;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A descriptor that is readable from [`ring`](Self::ring) until [`silence`](Self::silence).
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        // SAFETY: eventfd takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has just created the descriptor, so it has no other owner.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Makes the descriptor readable and returns true. If the counter is full, the descriptor is readable already.
    pub(crate) fn ring(&self) -> bool {
        ring(self.0.as_raw_fd());
        true
    }

    pub(crate) fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the pointer and length describe the array.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub(crate) fn waitable(&self) -> Waitable {
        self.0.as_raw_fd()
    }

    /// Returns the descriptor that a signal handler passes to [`ring`].
    pub(crate) fn to_ring(&self) -> Waitable {
        self.0.as_raw_fd()
    }
}

/// Makes the descriptor of a [`Bell`] readable. A signal handler may call this.
pub(crate) fn ring(descriptor: Waitable) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: write is async-signal-safe, and the pointer and length describe the array. If the counter is full, the
    // descriptor is readable already.
    unsafe { libc::write(descriptor, one.as_ptr().cast(), one.len()) };
}
