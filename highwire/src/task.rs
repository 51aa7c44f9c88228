//! Tasks beside the requests.

use highwire_engine::context;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Runs a task on the current worker, beside its connections. The task need not be `Send`. It must not block. It goes on if the
/// handle is dropped.
///
/// A graceful shutdown waits for the task, until [`Timeouts::shutdown`](crate::server::Timeouts::shutdown) has passed. It then
/// drops the task, which [`Stats::tasks_cut`](crate::server::Stats::tasks_cut) counts. A task that would go on for ever waits for
/// [`shutdown`], too. On the engine `threads` a task ends with the connection whose handler has started it, and no shutdown waits for
/// it.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, StatusCode, time};
/// use std::time::Duration;
///
/// let app = App::new()
///     .post("/orders", || {
///         highwire::spawn(async {
///             time::sleep(Duration::from_secs(60)).await;
///             println!("a minute after the order");
///         });
///         StatusCode::ACCEPTED
///     })
///     .get("/sum", async || {
///         let (one, two) = (highwire::spawn(async { 1 }), highwire::spawn(async { 2 }));
///         Ok::<_, highwire::task::JoinError>((one.await? + two.await?).to_string())
///     });
/// let mut client = Client::new(app)?;
/// assert_eq!(client.post("/orders").send().status(), 202);
/// assert_eq!(client.get("/sum").send().text(), "3");
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// # Panics
/// Panics if no worker runs on this thread.
pub fn spawn<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let state = Rc::new(RefCell::new(State { result: None, joiner: None, task: None, is_aborted: false }));
    let (mut ending, mut held) = (Ending(Some(state.clone())), Some(context::hold_shutdown()));
    context::spawn(async move {
        let mut task = Some(Box::pin(task));
        let output = poll_fn(|cx| {
            if ending.is_aborted() {
                return Poll::Ready(None);
            }
            let Some(running) = &mut task else { return Poll::Ready(None) };
            match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
                Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
                Ok(Poll::Pending) => {
                    ending.keep(cx.waker());
                    // The task may have aborted itself.
                    if ending.is_aborted() { Poll::Ready(None) } else { Poll::Pending }
                }
                Err(panic) => {
                    // The worker logs the panic. Dropping the task may panic again, so it is leaked.
                    std::mem::forget(task.take());
                    ending.end(Err(Failure::Panicked));
                    drop(held.take());
                    resume_unwind(panic)
                }
            }
        })
        .await;
        ending.end(output.ok_or(Failure::Cancelled));
    });
    JoinHandle(state)
}

/// Waits until the server begins a graceful shutdown; at once if it has begun. A task or a stream that would go on for ever can
/// end then, so that the shutdown need not wait for it.
///
/// ```
/// use highwire::{task, time};
/// use std::time::Duration;
///
/// /// Waits, and returns false if the server shuts down meanwhile.
/// async fn goes_on(wait: Duration) -> bool {
///     time::timeout(wait, task::shutdown()).await.is_err()
/// }
///
/// async fn clean_up() {
///     while goes_on(Duration::from_secs(60)).await {
///         // Delete what is old.
///     }
/// }
/// # let _ = clean_up();
/// ```
///
/// # Panics
/// The future panics if it is polled and no worker runs on this thread.
pub async fn shutdown() {
    context::stopping().await;
}

/// A task that [`spawn`] has started. As a future, it returns the task's output.
pub struct JoinHandle<T>(Rc<RefCell<State<T>>>);

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> JoinHandle<T> {
    /// Drops the task before it runs again, unless it has ended.
    pub fn abort(&self) {
        let mut state = self.0.borrow_mut();
        state.is_aborted = true;
        let waker = state.task.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns true if the task has ended.
    pub fn is_finished(&self) -> bool {
        // The task has the other reference until it ends.
        self.0.borrow().result.is_some() || Rc::strong_count(&self.0) == 1
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let mut state = self.0.borrow_mut();
        match state.result.take() {
            Some(result) => Poll::Ready(result.map_err(JoinError)),
            None => {
                state.joiner = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The reason why a task has no output: it panicked, it was [aborted](JoinHandle::abort), or its worker has ended. As a response,
/// it is a 500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinError(Failure);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    Panicked,
    Cancelled,
}

impl JoinError {
    /// Returns true if the task panicked.
    pub fn is_panic(&self) -> bool {
        self.0 == Failure::Panicked
    }

    /// Returns true if the task was aborted, or if its worker has ended.
    pub fn is_cancelled(&self) -> bool {
        self.0 == Failure::Cancelled
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Failure::Panicked => "the task panicked",
            Failure::Cancelled => "the task was cancelled",
        })
    }
}

impl std::error::Error for JoinError {}

impl crate::IntoResponse for JoinError {
    fn into_response(self) -> crate::Response {
        highwire_engine::log!(Mistake, error, error = %self, "a handler has waited for a task without an output");
        crate::Response::error(crate::StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
    }
}

struct State<T> {
    result: Option<Result<T, Failure>>,
    /// Wakes the one who waits for the result.
    joiner: Option<Waker>,
    /// Wakes the task, which then sees that it was aborted.
    task: Option<Waker>,
    is_aborted: bool,
}

/// The task's side of its state. Dropping it is the end of the task.
struct Ending<T>(Option<Rc<RefCell<State<T>>>>);

impl<T> Ending<T> {
    fn is_aborted(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.borrow().is_aborted)
    }

    fn keep(&self, waker: &Waker) {
        if let Some(state) = &self.0 {
            let mut state = state.borrow_mut();
            if state.task.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                state.task = Some(waker.clone());
            }
        }
    }

    fn end(&mut self, result: Result<T, Failure>) {
        let Some(state) = self.0.take() else { return };
        let mut state = state.borrow_mut();
        state.result = Some(result);
        let joiner = state.joiner.take();
        drop(state);
        joiner.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        self.end(Err(Failure::Cancelled));
    }
}
