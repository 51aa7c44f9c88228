//! The ring itself: set up, entered, drained.

use crate::limit;
use io_uring::{EnterFlags, IoUring, squeue, types};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How often entries are offered that the kernel did not take for want of memory, before the ring is given up.
const SUBMISSIONS: usize = 10_000;

pub(super) struct Ring {
    ring: IoUring,
    enabled: bool,
    /// Why the kernel took no entries, where that will not pass.
    refused: Option<io::Error>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

fn explain(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (seccomp, or the sysctl kernel.io_uring_disabled)"
        }
        Some(libc::EINVAL) => "this kernel's io_uring is older than Linux 6.1",
        Some(libc::ENOMEM) => "too little locked memory is allowed for io_uring (RLIMIT_MEMLOCK)",
        Some(libc::EMFILE | libc::ENFILE) => "no descriptor is left for io_uring",
        _ => "io_uring cannot be set up",
    };
    format!("{why}: {error}")
}

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        let build = |no_array: bool| {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(limit::RING_COMPLETIONS).setup_clamp().setup_submit_all();
            builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
            if no_array {
                builder.setup_no_sqarray();
            }
            builder.build(limit::RING_ENTRIES)
        };
        // NO_SQARRAY came with Linux 6.6; without it only a little memory is lost.
        let ring =
            build(true).or_else(|_| build(false)).map_err(|error| io::Error::new(error.kind(), explain(&error)))?;
        Ok(Ring { ring, enabled: false, refused: None })
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Gives the ring to the present thread at the first call: whether this was it.
    pub(super) fn enable(&mut self) -> io::Result<bool> {
        if self.enabled {
            return Ok(false);
        }
        self.ring.submitter().register_enable_rings()?;
        self.enabled = true;
        Ok(true)
    }

    pub(super) fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: `Uring::submit` says why what its entries point to lives long enough.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full: the kernel takes all of it in one call. Before the first turn the ring is disabled and
            // cannot; a driver has far fewer listeners than entries then.
            if let Err(error) = self.ring.submit()
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM))
            {
                // The entry is lost, and so is the ring: the next `enter` says so.
                self.refused = Some(error);
                return;
            }
        }
    }

    /// Submits what is queued.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // The next turn submits again.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().cq_overflow()
    }

    /// Submits what is queued and waits for a completion, at most `patience`; without end where there is none.
    pub(super) fn enter(&mut self, patience: Option<Duration>) -> io::Result<()> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let done = match patience {
            None => self.ring.submitter().submit_and_wait(1),
            Some(Duration::ZERO) => self.look(),
            Some(patience) => {
                let wait = types::Timespec::from(patience);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&wait))
            }
        };
        match done {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {}
                _ => return Err(error),
            },
        }
        // The caller frees what its entries point to when this returns: the kernel must have taken all of them.
        for _ in 0..SUBMISSIONS {
            if self.ring.submission().is_empty() {
                break;
            }
            let _ = self.ring.submit();
        }
        if !self.ring.submission().is_empty() {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "the kernel does not take the ring's submissions"));
        }
        // Completions that did not fit the queue are with the kernel: fetch them, since the caller relies on having
        // seen those of everything that it submitted.
        while self.ring.submission().cq_overflow() && self.ring.completion().is_empty() {
            self.ring.submitter().submit_and_wait(1)?;
        }
        Ok(())
    }

    /// Submits what is queued and lets the kernel post what is ready, without waiting. To wait for no time instead would set a
    /// timer each time and take its interrupt: 20 µs on a virtual machine (measured).
    fn look(&mut self) -> io::Result<usize> {
        // What has become ready is posted only by a call with this flag (io_uring_setup(2), IORING_SETUP_DEFER_TASKRUN).
        let flags = EnterFlags::GETEVENTS.bits();
        let queued = self.ring.submission().len() as u32;
        // SAFETY: the entries are those that `submit_and_wait` would submit; `Uring::submit` says why what they point to lives
        // long enough. There is no argument.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) }
    }

    /// Takes every completion.
    pub(super) fn completions(&mut self, mut take: impl FnMut(u64, i32, u32)) {
        loop {
            for entry in self.ring.completion() {
                take(entry.user_data(), entry.result(), entry.flags());
            }
            if !self.ring.submission().cq_overflow() {
                return;
            }
            if self.ring.submitter().submit_and_wait(1).is_err() {
                return;
            }
        }
    }
}

/// Takes over a descriptor that a completion delivered.
pub(super) fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: an accept's completion hands a fresh descriptor over, once.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
