//! Termination signals as a count that a loop reads, and a wake.
//!
//! Only a program that asks for it gets handlers: an embedding host keeps its own.

use crate::wake::Notifier;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_: libc::c_int) {
    COUNT.fetch_add(1, Ordering::Release);
    let descriptor = DESCRIPTOR.load(Ordering::Acquire);
    if descriptor >= 0 {
        let one = 1u64.to_ne_bytes();
        // SAFETY: write is async-signal-safe, and the pointer and length describe the array.
        unsafe { libc::write(descriptor, one.as_ptr().cast(), one.len()) };
    }
}

/// Counts SIGTERM and SIGINT from now on, and notifies at each. SIGPIPE is ignored, which Rust programs do anyway and
/// C hosts need. The notifier is kept for the process's life.
///
/// # Errors
/// What the system says.
pub fn install(notifier: Notifier) -> io::Result<()> {
    DESCRIPTOR.store(notifier.descriptor(), Ordering::Release);
    // The handler may run at any time from now on, so the descriptor must never close.
    std::mem::forget(notifier);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: an all-zero sigaction is valid; the handler only does what is async-signal-safe.
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
    // SAFETY: SIG_IGN for SIGPIPE is always allowed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Ok(())
}

/// How many termination signals have come since [`install`].
pub fn count() -> u32 {
    COUNT.load(Ordering::Acquire)
}
