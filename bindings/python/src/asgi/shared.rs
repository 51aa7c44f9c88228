//! What the requests of a worker share, and the futures that applications await.

use super::scope::Scopes;
use super::words::Words;
use highwire_engine::context::Spawner;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};

thread_local! {
    /// True if the event loop has got work since the turn began.
    static HAS_WORK: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// The number of tasks of applications that have not ended.
    static TASKS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a task of an application, until it is dropped.
pub(crate) struct CountedTask(());

impl CountedTask {
    pub(crate) fn new() -> CountedTask {
        TASKS.set(TASKS.get() + 1);
        CountedTask(())
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        TASKS.set(TASKS.get() - 1);
    }
}

/// Returns the number of tasks of applications that have not ended.
pub(crate) fn tasks() -> usize {
    TASKS.get()
}

/// Notes whether the event loop has got work since the turn began.
pub(crate) fn set_work(has_work: bool) {
    HAS_WORK.set(has_work);
}

/// Returns true if the event loop has got work since the turn began.
pub(crate) fn has_work() -> bool {
    HAS_WORK.get()
}

/// The pending futures that `receive` or `send` of one request have returned.
#[derive(Default)]
pub(crate) struct Futures(RefCell<Vec<Py<PyAny>>>);

impl Futures {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns true if a future waits for a result. Forgets those that were cancelled.
    pub(crate) fn wait(&self, py: Python<'_>, shared: &Shared) -> bool {
        let mut futures = self.0.take();
        let is_done = |future: &Py<PyAny>| future.call_method0(py, &shared.words().done)?.is_truthy(py);
        futures.retain(|future| !is_done(future).unwrap_or(true));
        futures.append(&mut self.0.borrow_mut());
        let waits = !futures.is_empty();
        *self.0.borrow_mut() = futures;
        waits
    }

    /// Makes a future.
    pub(crate) fn add<'py>(&self, py: Python<'py>, shared: &Shared) -> PyResult<Bound<'py, PyAny>> {
        let future = shared.event_loop.bind(py).call_method0(&shared.words().create_future)?;
        self.0.borrow_mut().push(future.clone().unbind());
        Ok(future)
    }

    /// Gives the first future a result, if it is not cancelled.
    pub(crate) fn resolve(&self, py: Python<'_>, shared: &Shared, result: PyResult<Option<Bound<'_, PyAny>>>) {
        loop {
            let future = {
                let mut futures = self.0.borrow_mut();
                if futures.is_empty() {
                    return;
                }
                futures.remove(0)
            };
            let words = shared.words();
            let set = || -> PyResult<bool> {
                if future.call_method0(py, &words.done)?.is_truthy(py)? {
                    return Ok(false);
                }
                set_work(true);
                match &result {
                    Ok(result) => future.call_method1(py, &words.set_result, (result.as_ref(),))?,
                    Err(error) => future.call_method1(py, &words.set_exception, (error.clone_ref(py),))?,
                };
                Ok(true)
            };
            match set() {
                // It was cancelled. The next one gets the result.
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => return error.write_unraisable(py, None),
            }
        }
    }
}

impl Futures {
    /// Gives each future the result that `make` returns for it.
    pub(crate) fn resolve_all<'py>(
        &self,
        py: Python<'py>,
        shared: &Shared,
        make: impl Fn() -> PyResult<Option<Bound<'py, PyAny>>>,
    ) {
        while !self.is_empty() {
            self.resolve(py, shared, make());
        }
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
