//! One descriptor for a foreign loop, which becomes readable when a turn has something to do.
//!
//! It is an epoll instance that contains the driver's own descriptor, the notifier and a timer. The driver's own
//! descriptor is an eventfd that the ring signals, or the readiness driver's epoll. The eventfd is needed because the
//! descriptor of a ring that defers its work does not wake an outer epoll.

use crate::Instant;
use crate::sys::Waitable;
use crate::wake::Notifier;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The epoll instance and the timer in it.
#[derive(Debug)]
pub(crate) struct Nest {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The moment for which the timer is set.
    due: Cell<Option<Instant>>,
}

fn owned(descriptor: libc::c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every caller passes a descriptor that a system call has just created, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Nest {
    pub(crate) fn new(driver: Waitable, notifier: &Notifier) -> io::Result<Nest> {
        // SAFETY: epoll_create1 takes no pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: timerfd_create takes no pointers.
        let timer =
            owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) })?;
        for descriptor in [driver, notifier.descriptor(), timer.as_raw_fd()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: descriptor as u64 };
            // SAFETY: the pointer describes one event.
            let added = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut event) };
            if added != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Nest { epoll, timer, due: Cell::default() })
    }

    /// Creates the descriptor for the foreign loop of a readiness driver.
    pub(crate) fn around(poll: &mio::Poll, notifier: &Notifier) -> io::Result<Nest> {
        Nest::new(poll.as_raw_fd(), notifier)
    }

    pub(crate) fn descriptor(&self) -> Waitable {
        self.epoll.as_raw_fd()
    }

    /// Makes the descriptor readable at `until`, or earlier if it was set to a moment before that has not passed. Deadlines mostly
    /// move into the future, so this saves a call for nearly every wait.
    pub(crate) fn wake_at(&self, until: Option<Instant>, now: Instant) -> io::Result<()> {
        let is_early = |due: Instant| due > now && until.is_none_or(|until| due <= until);
        if self.due.get().map_or(until.is_none(), is_early) {
            return Ok(());
        }
        self.due.set(until);
        // A timer of zero would be off, so a moment that has passed becomes one nanosecond.
        let wait = until.map_or(0, |until| (until.since(now).as_nanos() as u64).max(1));
        let value = libc::timespec {
            tv_sec: (wait / 1_000_000_000) as libc::time_t,
            tv_nsec: (wait % 1_000_000_000) as libc::c_long,
        };
        let setting = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the pointer is to the setting. The null pointer means that the old setting is not returned.
        match unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
