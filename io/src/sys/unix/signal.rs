//! Counts signals.

use crate::signal::Signal;
use crate::sys::wake::ring;
use crate::wake::Notifier;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

static COUNTS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
static KEPT: Mutex<Vec<Notifier>> = Mutex::new(Vec::new());
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// The signals, what each asks, and true if a handler of others is replaced.
const SIGNALS: [(libc::c_int, Signal, bool); 6] = [
    (libc::SIGTERM, Signal::Stop, true),
    (libc::SIGINT, Signal::Stop, true),
    (libc::SIGQUIT, Signal::Stop, false),
    (libc::SIGHUP, Signal::Reload, false),
    (libc::SIGUSR1, Signal::User, false),
    (libc::SIGUSR2, Signal::User, false),
];

extern "C" fn on_signal(number: libc::c_int) {
    for (known, signal, _) in SIGNALS {
        if known == number {
            COUNTS[signal as usize].fetch_add(1, Ordering::Release);
        }
    }
    let descriptor = DESCRIPTOR.load(Ordering::Acquire);
    if descriptor >= 0 {
        ring(descriptor);
    }
}

pub(crate) fn install(notifier: Notifier) -> io::Result<()> {
    DESCRIPTOR.store(notifier.to_ring(), Ordering::Release);
    // The handler may run at any time from now on, so the descriptor is never closed.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(notifier);
    for (number, _, replaces) in SIGNALS {
        // SAFETY: all-zero sigactions are valid. The handler only uses atomics and `write`, which are async-signal-safe.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut known: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(number, std::ptr::null(), &mut known) == 0;
            let is_ours = known.sa_sigaction == on_signal as *const () as usize;
            // `nohup` and shells start a process in the background with some signals ignored, which harm no server.
            let is_none = matches!(known.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
            if !replaces && is_known && !is_none && !is_ours {
                continue;
            }
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(number, &action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: SIG_IGN installs no function as a handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Ok(())
}

pub(crate) fn count(signal: Signal) -> u32 {
    COUNTS[signal as usize].load(Ordering::Acquire)
}
