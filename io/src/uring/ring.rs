//! The ring: its setup, submissions and completions.

use crate::limit;
use io_uring::{EnterFlags, IoUring, squeue, types};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The most attempts to submit entries that the kernel refuses, for example for lack of memory. After them, the turn
/// fails.
const SUBMISSIONS: usize = 10_000;

pub(super) struct Ring {
    ring: IoUring,
    enabled: bool,
    /// A lasting error with which the kernel has refused entries. The next `enter` returns it.
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
        Some(libc::ENOMEM) => "too little memory is free or may be locked for io_uring (RLIMIT_MEMLOCK)",
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
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_r_disabled();
            if no_array {
                builder.setup_no_sqarray();
            }
            builder.build(limit::RING_ENTRIES)
        };
        // NO_SQARRAY needs Linux 6.6. It only saves a little memory, so build the ring without it if that fails.
        let ring =
            build(true).or_else(|_| build(false)).map_err(|error| io::Error::new(error.kind(), explain(&error)))?;
        Ok(Ring { ring, enabled: false, refused: None })
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Enables the ring for the current thread, unless it is enabled already. Returns true if this call has enabled it.
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
            // SAFETY: callers ensure that the memory that the entry points to outlives the operation: see
            // `Uring::submit`.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full, so submit it. Before the first turn the ring is disabled and cannot submit, but then
            // far fewer entries are queued than fit.
            if let Err(error) = self.ring.submit()
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM))
            {
                // The entry is lost and the ring is unusable. The next `enter` returns the error.
                self.refused = Some(error);
                return;
            }
        }
    }

    /// Submits the queued entries.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // The next turn submits again.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lets the kernel signal the ring's eventfd from now on. Returns true if something has completed before, of which there may
    /// be no signal.
    pub(super) fn begin_signals(&mut self) -> bool {
        self.ring.completion().enable_eventfd();
        // The kernel sets its flag before it looks whether signals are wanted.
        fence(Ordering::SeqCst);
        self.has_completions() || self.ring.submission().taskrun()
    }

    /// Stops the signals, which a turn does not need.
    pub(super) fn end_signals(&mut self) {
        self.ring.completion().disable_eventfd();
    }

    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().cq_overflow()
    }

    /// Submits the queued entries and waits for a completion, at most `patience`; without a limit if that is `None`.
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
        // The caller may reuse the memory that its entries point to when this returns, so the kernel must have taken
        // all entries.
        for _ in 0..SUBMISSIONS {
            if self.ring.submission().is_empty() {
                break;
            }
            let _ = self.ring.submit();
        }
        if !self.ring.submission().is_empty() {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "the kernel keeps refusing io_uring submissions"));
        }
        // The kernel keeps completions that did not fit into the completion queue. Fetch them, because the caller
        // relies on seeing the completions of all failed arena sends.
        while self.ring.submission().cq_overflow() && self.ring.completion().is_empty() {
            self.ring.submitter().submit_and_wait(1)?;
        }
        Ok(())
    }

    /// Submits the queued entries and makes the kernel post ready completions, without waiting. A wait with a timeout
    /// of zero would set a timer and take the timer's interrupt each time, which took 20 µs on a virtual machine
    /// (measured).
    fn look(&mut self) -> io::Result<usize> {
        // The kernel posts ready completions only in calls with this flag (io_uring_setup(2),
        // IORING_SETUP_DEFER_TASKRUN).
        let flags = EnterFlags::GETEVENTS.bits();
        let queued = self.ring.submission().len() as u32;
        // SAFETY: the entries are those that `submit_and_wait` would submit, and the memory that they point to outlives
        // their operations: see `Uring::submit`. The call has no argument.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) }
    }

    /// Passes the user data, result and flags of each available completion to `take`.
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

/// Takes ownership of a descriptor that a completion of an accept passes.
pub(super) fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the only caller passes the result of a successful accept once. It is a new descriptor, so it has no other
    // owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
