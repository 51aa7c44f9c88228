//! A bounded pool of threads for blocking work. Threads start when they are needed, and stay until the pool is dropped.

use crate::runtime::promise::{Asked, Promise, promise};
use crate::runtime::rate_limited;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The stack size of a pool thread in bytes. It is enough for handlers without deep recursion.
const STACK_BYTES: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// The number of threads that run a job. The other threads wait for a job or are starting.
    busy: usize,
    closed: bool,
}

struct Inner {
    state: Mutex<State>,
    more: Condvar,
    name: &'static str,
    most_threads: usize,
    most_jobs: usize,
}

/// A pool of threads. When it is dropped, its threads finish the jobs that they run, and the waiting jobs are dropped.
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    pub(crate) fn new(name: &'static str, most_threads: usize, most_jobs: usize) -> Pool {
        let (state, more) = (Mutex::new(State::default()), Condvar::new());
        Pool { inner: Arc::new(Inner { state, more, name, most_threads, most_jobs }) }
    }

    /// Queues a job with its argument. Returns the argument if the queue is full, or if the pool has no thread and
    /// cannot start one.
    pub(crate) fn offer<T: Send + 'static>(&self, argument: T, job: Box<dyn FnOnce(T) + Send>) -> Result<(), T> {
        let mut state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        let free = state.threads - state.busy;
        if free <= state.jobs.len() && state.threads < self.inner.most_threads && self.start_thread() {
            state.threads += 1;
        }
        let free = state.threads - state.busy;
        if state.threads == 0 || state.jobs.len() >= self.inner.most_jobs + free {
            return Err(argument);
        }
        state.jobs.push_back(Box::new(move || job(argument)));
        drop(state);
        self.inner.more.notify_one();
        Ok(())
    }

    /// Queues a job. The caller polls the returned [`Asked`] for the job's result.
    pub(crate) fn ask<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
        let (promise, asked) = promise();
        // If the pool refuses the job, the promise is dropped, which ends `asked` without a result.
        drop(self.offer(promise, Box::new(|promise: Promise<T>| promise.keep(job()))));
        asked
    }

    /// Returns true if a job runs or waits.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.busy > 0 || !state.jobs.is_empty()
    }

    fn start_thread(&self) -> bool {
        let inner = self.inner.clone();
        let builder = std::thread::Builder::new().name(format!("highwire-{}", inner.name)).stack_size(STACK_BYTES);
        let started = builder.spawn(move || work(&inner));
        if let Err(error) = &started {
            rate_limited::log!(Failure, warn, %error, "cannot start another thread for the {} pool", self.inner.name);
        }
        started.is_ok()
    }
}

fn work(inner: &Inner) {
    let mut state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            state.busy += 1;
            drop(state);
            // The thread survives a job that panics. If the job has a promise, the panic drops it, which wakes the
            // waiting task.
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err();
            if panicked && rate_limited::allows(rate_limited::Kind::Panic) {
                rate_limited::log!(Panic, error, "a job of the {} pool panicked", inner.name);
            }
            state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            continue;
        }
        if state.closed {
            return;
        }
        state = inner.more.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.inner.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_full_pool_refuses_and_one_that_was_full_goes_on() {
        let pool = Pool::new("test", 1, 1);
        let (release, gate) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let started = done.clone();
        let wait: Box<dyn FnOnce(u8) + Send> = Box::new(move |_| {
            started.send(0).expect("the test has ended");
            gate.recv().expect("the test has ended");
        });
        assert_eq!(pool.offer(0, wait), Ok(()));
        assert_eq!(results.recv(), Ok(0));
        let sender = done.clone();
        assert_eq!(pool.offer(1, Box::new(move |number| sender.send(number).expect("the test has ended"))), Ok(()));
        assert_eq!(pool.offer(2, Box::new(|_| ())), Err(2));
        release.send(()).expect("the job has ended");
        assert_eq!(results.recv(), Ok(1));
    }

    #[test]
    fn a_result_comes_to_whom_it_was_promised_and_so_does_its_absence() {
        struct Told(mpsc::SyncSender<()>);
        impl std::task::Wake for Told {
            fn wake(self: Arc<Self>) {
                self.0.send(()).expect("the test has ended");
            }
        }
        fn result<T>(mut asked: Asked<T>) -> Option<T> {
            let (told, wakes) = mpsc::sync_channel(1);
            let waker = Waker::from(Arc::new(Told(told)));
            loop {
                match asked.poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => return result,
                    Poll::Pending => wakes.recv().expect("the waker was dropped without a wake"),
                }
            }
        }
        let pool = Pool::new("test", 1, 4);
        assert_eq!(result(pool.ask(|| 7)), Some(7));
        assert_eq!(result(pool.ask(|| -> u8 { panic!("on purpose") })), None);
        assert_eq!(result(Pool::new("test", 0, 0).ask(|| 7)), None);
    }

    #[test]
    fn a_job_that_panics_costs_no_thread() {
        let pool = Pool::new("test", 1, 4);
        assert_eq!(pool.offer((), Box::new(|()| panic!("on purpose"))), Ok(()));
        let (done, results) = mpsc::channel();
        assert_eq!(pool.offer((), Box::new(move |()| done.send(1).expect("the test has ended"))), Ok(()));
        assert_eq!(results.recv(), Ok(1));
    }
}
