//! A pipe that one thread makes readable for another.

use crate::sys::Waitable;
pub(crate) use crate::sys::unix::watch::Watch;
use mio::unix::pipe::{self, Receiver, Sender};
use std::io::{self, Read};
use std::os::fd::AsRawFd;

/// A descriptor that is readable from [`ring`](Self::ring) until [`silence`](Self::silence).
#[derive(Debug)]
pub(crate) struct Bell {
    sender: Sender,
    receiver: Receiver,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let (sender, receiver) = pipe::new()?;
        Ok(Bell { sender, receiver })
    }

    /// Makes the descriptor readable and returns true. If the pipe is full, the descriptor is readable already.
    pub(crate) fn ring(&self) -> bool {
        ring(self.sender.as_raw_fd());
        true
    }

    pub(crate) fn silence(&self) {
        let mut bytes = [0u8; 64];
        while matches!((&self.receiver).read(&mut bytes), Ok(count) if count == bytes.len()) {}
    }

    pub(crate) fn waitable(&self) -> Waitable {
        self.receiver.as_raw_fd()
    }

    /// Returns the descriptor that a signal handler passes to [`ring`].
    pub(crate) fn to_ring(&self) -> Waitable {
        self.sender.as_raw_fd()
    }
}

/// Makes the descriptor of a [`Bell`] readable. A signal handler may call this.
pub(crate) fn ring(descriptor: Waitable) {
    let one = [1u8];
    // SAFETY: write is async-signal-safe, and the pointer and length describe the array. If the pipe is full, it is
    // readable already.
    unsafe { libc::write(descriptor, one.as_ptr().cast(), one.len()) };
}
