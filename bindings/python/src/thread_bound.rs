//! Values of a worker's thread in Python objects, which any thread may drop.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// A value that only the thread which made it uses and drops. A Python object with it may be dropped by another thread, as
/// Django does, which calls parts of an application in a pool. The value then waits for its own thread.
pub(crate) struct ThreadBound<T: 'static> {
    value: ManuallyDrop<T>,
    owner: ThreadId,
}

/// A value that another thread has dropped.
struct Orphan {
    owner: ThreadId,
    value: Box<dyn std::any::Any>,
}

// SAFETY: only `drop_orphans` takes a value out, on the thread that owns it.
unsafe impl Send for Orphan {}

static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());

/// True if there may be orphans, so that most turns need no lock.
static HAS_ORPHANS: AtomicBool = AtomicBool::new(false);

// SAFETY: the value is used by `get` and dropped only on the thread that owns it. Another thread only moves it, without
// looking at it.
unsafe impl<T> Send for ThreadBound<T> {}
// SAFETY: as above. `get` refuses other threads.
unsafe impl<T> Sync for ThreadBound<T> {}

impl<T> ThreadBound<T> {
    pub(crate) fn new(value: T) -> ThreadBound<T> {
        ThreadBound { value: ManuallyDrop::new(value), owner: thread::current().id() }
    }

    /// Returns the value, on its own thread.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if thread::current().id() == self.owner {
            return Ok(&self.value);
        }
        Err(PyRuntimeError::new_err("receive and send can be called only in the thread of their event loop"))
    }
}

impl<T> Drop for ThreadBound<T> {
    fn drop(&mut self) {
        // SAFETY: the value is not used after this.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        if thread::current().id() == self.owner {
            return drop(value);
        }
        let orphan = Orphan { owner: self.owner, value: Box::new(value) };
        ORPHANS.lock().unwrap_or_else(PoisonError::into_inner).push(orphan);
        HAS_ORPHANS.store(true, Ordering::Release);
    }
}

/// Drops the values of this thread that other threads have dropped. Returns true if there were some: their destructors may
/// have given the event loop work.
pub(crate) fn drop_orphans() -> bool {
    if !HAS_ORPHANS.load(Ordering::Acquire) {
        return false;
    }
    let this = thread::current().id();
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    let own: Vec<Orphan> = orphans.extract_if(.., |orphan| orphan.owner == this).collect();
    HAS_ORPHANS.store(!orphans.is_empty(), Ordering::Release);
    drop(orphans);
    // Without the lock, because their destructors may drop other ones.
    let has_dropped = !own.is_empty();
    own.into_iter().for_each(|orphan| drop(orphan.value));
    has_dropped
}
