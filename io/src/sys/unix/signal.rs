//! Counts SIGTERM and SIGINT.

use crate::sys::wake::ring;
use crate::wake::Notifier;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_: libc::c_int) {
    COUNT.fetch_add(1, Ordering::Release);
    let descriptor = DESCRIPTOR.load(Ordering::Acquire);
    if descriptor >= 0 {
        ring(descriptor);
    }
}

pub(crate) fn install(notifier: Notifier) -> io::Result<()> {
    DESCRIPTOR.store(notifier.to_ring(), Ordering::Release);
    // The handler may run at any time from now on, so the descriptor must never be closed.
    std::mem::forget(notifier);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: an all-zero sigaction is valid. The handler only uses atomics and `write`, which are
        // async-signal-safe.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: SIG_IGN installs no function as a handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Ok(())
}

pub(crate) fn count() -> u32 {
    COUNT.load(Ordering::Acquire)
}
