//! Where workers wait for each other before a run.

use std::sync::{Condvar, Mutex, PoisonError};

/// Opens when all workers have come or have given up.
#[derive(Debug)]
pub(super) struct Gate {
    missing: Mutex<usize>,
    opens: Condvar,
}

/// A worker's place at the gate. When the worker fails and drops its place, the gate no longer waits for this worker.
#[derive(Debug)]
pub(super) struct Arrival<'a>(Option<&'a Gate>);

impl Gate {
    pub(super) fn new(workers: usize) -> Gate {
        Gate { missing: Mutex::new(workers), opens: Condvar::new() }
    }

    pub(super) fn place(&self) -> Arrival<'_> {
        Arrival(Some(self))
    }

    fn come(&self) -> std::sync::MutexGuard<'_, usize> {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing -= 1;
        self.opens.notify_all();
        missing
    }
}

impl Arrival<'_> {
    /// Waits for all others.
    pub(super) fn wait(mut self) {
        let Some(gate) = self.0.take() else { return };
        let missing = gate.come();
        drop(gate.opens.wait_while(missing, |missing| *missing > 0).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            drop(gate.come());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_does_not_wait_for_a_worker_that_gives_up() {
        let gate = Gate::new(3);
        std::thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| gate.place().wait()));
            drop(gate.place());
            waiting.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
}
