//! tokio for the code that runs on workers: each thread of a server runs its worker inside a tokio runtime of its own, so a
//! socket that tokio has made ready wakes a handler on the handler's own thread. Workers in a loop of the program, and the
//! threads of the engine `threads`, enter a runtime in the background instead.

use crate::Result;
use crate::server::shared::Shared;
use crate::service::Service;
use crate::worker::{Turned, Worker};
use highwire_io::{Driver, Waitable};
use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::runtime::{Builder, EnterGuard, LocalOptions, LocalRuntime};
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

/// The most turns of a busy worker before tokio's own tasks and sockets have theirs.
const TURNS: usize = 4;

/// How many times tokio's own tasks that are woken may still run when the worker has ended.
const LAST_TICKS: usize = 64;

/// The tokio runtime of a worker.
#[derive(Clone)]
pub(crate) enum Tokio {
    /// The server's runtime in the background.
    Background(Arc<Shared>),
    /// The runtime of the worker's thread.
    Own(Rc<Own>),
}

/// A runtime that ends without waiting for its blocking jobs.
pub(crate) struct Own(Option<LocalRuntime>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Own {
    fn runtime(&self) -> &LocalRuntime {
        self.0.as_ref().expect("the runtime ends when it is dropped")
    }
}

/// A worker's descriptor, which belongs to its driver.
struct Descriptor(Waitable);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Tokio {
    /// Returns the runtime for a worker in the program's own loop.
    pub(crate) fn background(shared: &Arc<Shared>) -> Tokio {
        Tokio::Background(shared.clone())
    }

    /// Creates the runtime of a thread for one worker.
    ///
    /// # Errors
    /// Returns the system's error, for example for lack of descriptors.
    pub(crate) fn own(shared: &Arc<Shared>) -> Result<Tokio> {
        if !cfg!(target_os = "linux") {
            // Only there a driver has a descriptor for the wait of another loop.
            return Ok(Tokio::background(shared));
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("highwire-tokio")
            .max_blocking_threads(shared.config().limits.blocking_threads.max(1))
            .build_local(LocalOptions::default())?;
        Ok(Tokio::Own(Rc::new(Own(Some(runtime)))))
    }

    /// Enters the runtime on this thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        match self {
            Tokio::Background(shared) => shared.enter_runtime(),
            Tokio::Own(own) => own.runtime().enter(),
        }
    }

    /// Runs a worker until it has stopped.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub(crate) fn run<D: Driver, S: Service>(&self, worker: &mut Worker<D, S>) -> Result<()> {
        match self {
            Tokio::Background(_) => {
                let _entered = self.enter();
                worker.run_alone()
            }
            Tokio::Own(own) => own.runtime().block_on(run_inside(worker, |worker, has_stopped| {
                worker.forget_root();
                has_stopped.then_some(())
            })),
        }
    }

    /// Runs a worker until `future` is ready.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub(crate) fn block_on<D: Driver, S: Service, F: Future>(
        &self,
        worker: &mut Worker<D, S>,
        future: F,
    ) -> Result<F::Output> {
        let mut future = pin!(future);
        worker.wake_root();
        match self {
            Tokio::Background(_) => {
                let _entered = self.enter();
                worker.block_on_alone(future)
            }
            Tokio::Own(own) => {
                own.runtime().block_on(run_inside(worker, |worker, _| worker.poll_root(future.as_mut())))
            }
        }
    }
}

impl Tokio {
    /// Lets tokio's own tasks on this thread see that the worker has ended. They are dropped after that.
    pub(crate) fn finish(&self) {
        let Tokio::Own(own) = self else { return };
        own.runtime().block_on(async {
            for _ in 0..LAST_TICKS {
                if own.runtime().metrics().num_alive_tasks() == 0 {
                    return;
                }
                yield_now().await;
            }
        });
    }
}

/// Runs a worker as a future of its thread's runtime, until `end` returns a value after one of its turns. `end` learns whether the
/// worker has stopped. While the worker has nothing to do, tokio waits for both.
async fn run_inside<D: Driver, S: Service, T>(
    worker: &mut Worker<D, S>,
    mut end: impl FnMut(&mut Worker<D, S>, bool) -> Option<T>,
) -> Result<T> {
    let descriptor = Descriptor(worker.descriptor()?);
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, which this crate is not; the driver keeps the descriptor open"
    )]
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
    // tokio's own tasks may use the worker, too, and wake its tasks without a lock.
    let _entered = worker.enter();
    // tokio would let sockets wait after a number of operations in one poll, which all handlers share here.
    unconstrained(poll_fn(|cx| poll(worker, &descriptor, &mut end, cx))).await
}

fn poll<D: Driver, S: Service, T>(
    worker: &mut Worker<D, S>,
    descriptor: &AsyncFd<Descriptor>,
    end: &mut impl FnMut(&mut Worker<D, S>, bool) -> Option<T>,
    cx: &mut Context<'_>,
) -> Poll<Result<T>> {
    worker.leave_wait();
    if let Poll::Ready(ready) = descriptor.poll_read_ready(cx) {
        // The turns see everything that has happened until now.
        ready?.clear_ready_matching(Ready::READABLE);
    }
    for _ in 0..TURNS {
        let turned = worker.turn_once()?;
        if let Some(output) = end(worker, matches!(turned, Turned::Stopped)) {
            return Poll::Ready(Ok(output));
        }
        if matches!(turned, Turned::Busy) || worker.is_busy() || worker.is_root_woken() || worker.host_has_work() {
            continue;
        }
        worker.arm()?;
        return match descriptor.poll_read_ready(cx) {
            Poll::Pending => {
                worker.begin_wait(cx.waker());
                Poll::Pending
            }
            Poll::Ready(_) => yields(cx),
        };
    }
    yields(cx)
}

/// Lets tokio's own tasks and sockets have their turn.
fn yields<T>(cx: &mut Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}
