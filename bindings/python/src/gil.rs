//! Gives the interpreter's lock back around a wait.

use pyo3::ffi;
use std::cell::Cell;

/// The state of this thread while it does not hold the interpreter's lock.
#[derive(Debug, Default)]
pub(crate) struct Released(Cell<Option<*mut ffi::PyThreadState>>);

impl Released {
    /// Gives the lock back. Nothing of the interpreter may be used until [`take`](Self::take).
    pub(crate) fn give(&self) {
        // SAFETY: the worker's turns run in `Worker::turn`, which holds the lock, and the engine pairs each call of this with one
        // of `take`, before it calls anything else.
        self.0.set(Some(unsafe { ffi::PyEval_SaveThread() }));
    }

    /// Takes the lock again, and waits for it.
    pub(crate) fn take(&self) {
        if let Some(state) = self.0.take() {
            // SAFETY: `state` is what `give` has saved on this thread.
            unsafe { ffi::PyEval_RestoreThread(state) };
        }
    }
}
