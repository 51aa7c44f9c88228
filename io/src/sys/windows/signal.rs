//! Counts console events, such as Ctrl-C and the closing of the console.

use crate::signal::Signal;
use crate::wake::Notifier;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};

static COUNT: AtomicU32 = AtomicU32::new(0);
static NOTIFIER: OnceLock<Notifier> = OnceLock::new();

/// Counts an event and notifies the notifier. Windows calls this on a new thread.
///
/// # Safety
/// Every call is sound. The function is unsafe only because the type of handlers requires it.
unsafe extern "system" fn on_event(event: u32) -> i32 {
    COUNT.fetch_add(1, Ordering::Release);
    if let Some(notifier) = NOTIFIER.get() {
        notifier.notify();
    }
    // The other events announce that the console closes, the user logs off or the system shuts down. The process ends
    // when this function returns, or after some seconds, so do not return.
    while event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT {
        std::thread::park();
    }
    1
}

pub(crate) fn install(notifier: Notifier) -> io::Result<()> {
    if NOTIFIER.set(notifier).is_err() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "this process already has a handler for Ctrl-C"));
    }
    // SAFETY: the handler is a function, which exists as long as the process.
    match unsafe { SetConsoleCtrlHandler(Some(on_event), 1) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) fn count(signal: Signal) -> u32 {
    if signal == Signal::Stop { COUNT.load(Ordering::Acquire) } else { 0 }
}
