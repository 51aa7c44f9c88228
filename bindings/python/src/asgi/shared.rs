//! What the requests of a worker share, and the futures that applications await.

use super::scope::Scopes;
use super::words::Words;
use highwire_engine::context::Spawner;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// True if the event loop has got work since the turn began.
    static HAS_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Counts a task of an application, until it is dropped.
pub(crate) struct CountedTask(Arc<AtomicUsize>);

impl CountedTask {
    pub(crate) fn new(tasks: &Arc<AtomicUsize>) -> CountedTask {
        tasks.fetch_add(1, Ordering::Relaxed);
        CountedTask(tasks.clone())
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes whether the event loop has got work since the turn began.
pub(crate) fn set_work(has_work: bool) {
    HAS_WORK.set(has_work);
}

/// Returns true if the event loop has got work since the turn began.
pub(crate) fn has_work() -> bool {
    HAS_WORK.get()
}

/// The number of futures at which those that are done are forgotten for the first time.
const FIRST_PRUNED: usize = 8;

/// The futures of one request that wait for something. What they wait for is taken by the task that they wake, so that nothing
/// is lost with a task that is cancelled.
pub(crate) struct Futures {
    pending: RefCell<Vec<Py<PyAny>>>,
    /// The number of futures at which those that are done are forgotten.
    prune_at: Cell<usize>,
}

impl Default for Futures {
    fn default() -> Futures {
        Futures { pending: RefCell::default(), prune_at: Cell::new(FIRST_PRUNED) }
    }
}

impl Futures {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.borrow().is_empty()
    }

    /// Makes a future.
    pub(crate) fn add<'py>(&self, py: Python<'py>, shared: &Shared) -> PyResult<Bound<'py, PyAny>> {
        if self.pending.borrow().len() >= self.prune_at.get() {
            let mut pending = self.pending.take();
            pending.retain(|future| !is_done(py, shared, future).unwrap_or(true));
            self.prune_at.set(FIRST_PRUNED.max(2 * pending.len()));
            pending.append(&mut self.pending.borrow_mut());
            *self.pending.borrow_mut() = pending;
        }
        let future = shared.event_loop.bind(py).call_method0(&shared.words().create_future)?;
        self.pending.borrow_mut().push(future.clone().unbind());
        Ok(future)
    }

    /// Wakes the tasks that wait.
    pub(crate) fn wake(&self, py: Python<'_>, shared: &Shared) {
        for future in self.pending.take() {
            settle(py, shared, &future, Ok(py.None().into_bound(py)));
        }
    }
}

fn is_done(py: Python<'_>, shared: &Shared, future: &Py<PyAny>) -> PyResult<bool> {
    future.call_method0(py, &shared.words().done)?.is_truthy(py)
}

/// Gives a future its result, unless it is cancelled.
pub(crate) fn settle(py: Python<'_>, shared: &Shared, future: &Py<PyAny>, result: PyResult<Bound<'_, PyAny>>) {
    let words = shared.words();
    let set = || -> PyResult<()> {
        if is_done(py, shared, future)? {
            return Ok(());
        }
        set_work(true);
        match result {
            Ok(result) => future.call_method1(py, &words.set_result, (result,))?,
            Err(error) => future.call_method1(py, &words.set_exception, (error,))?,
        };
        Ok(())
    };
    if let Err(error) = set() {
        error.write_unraisable(py, None);
    }
}

/// What the exchanges of a worker share.
pub(crate) struct Shared {
    pub(crate) scopes: Scopes,
    pub(crate) event_loop: Py<PyAny>,
    /// The awaitable of a `send` that need not wait.
    pub(crate) sent: Py<PyAny>,
    /// Logs an exception of the application. Its arguments are the exception, or `None`, and a text.
    pub(crate) log: Py<PyAny>,
    pub(crate) spawner: RefCell<Option<Spawner>>,
    /// The number of tasks of the application that have not ended.
    pub(crate) tasks: Arc<AtomicUsize>,
}

impl Shared {
    pub(crate) fn words(&self) -> &Words {
        self.scopes.words()
    }

    /// Logs what an application has done wrong.
    pub(crate) fn log(&self, py: Python<'_>, error: Option<Bound<'_, PyAny>>, text: &str) {
        let error = error.unwrap_or_else(|| py.None().into_bound(py));
        if let Err(error) = self.log.call1(py, (error, text)) {
            error.write_unraisable(py, None);
        }
    }
}
