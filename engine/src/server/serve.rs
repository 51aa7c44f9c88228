//! A server as a future, for programs that run on an executor such as tokio's.

use crate::runtime::promise::{Asked, promise};
use crate::server::run::{Handle, Server, Watch};
use crate::server::stats::Stats;
use crate::service::MakeService;
use crate::{Error, Result};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of a server, which [`Server::serve`] returns. The server starts when the future is first polled, and runs on
/// threads of its own, so the executor may have one thread. The future is ready when the server has stopped, with its final
/// counts. Dropping it begins a graceful shutdown, for which nobody waits then.
#[must_use = "the server starts when the future is polled"]
pub struct Serve<M> {
    state: State<M>,
    /// When this is ready, the server shuts down.
    signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum State<M> {
    Idle(Option<Server<M>>),
    Running { handle: Handle, end: Asked<Result<Stats>> },
}

impl<M> std::fmt::Debug for Serve<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Serve")
    }
}

// Nothing in it is pinned by reference.
impl<M> Unpin for Serve<M> {}

impl<M: MakeService> Serve<M> {
    pub(crate) fn new(server: Server<M>) -> Serve<M> {
        Serve { state: State::Idle(Some(server)), signal: None }
    }

    /// Shuts the server down gracefully when `signal` is ready. A later call replaces the signal of an earlier one.
    pub fn with_graceful_shutdown(
        mut self,
        signal: impl IntoFuture<Output = (), IntoFuture: Send + 'static>,
    ) -> Serve<M> {
        self.signal = Some(Box::pin(signal.into_future()));
        self
    }

    fn begin(&mut self) -> Result<()> {
        let State::Idle(server) = &mut self.state else { return Ok(()) };
        let problem = "the future of the server was polled after it had ended";
        let server = server.take().ok_or_else(|| Error::Setting(problem.to_string()))?;
        let running = server.start()?;
        let (handle, (promise, end)) = (running.without_threads(), promise());
        std::thread::Builder::new().name("highwire-serve".to_string()).spawn(move || {
            let mut watch = Watch::default();
            while !running.is_finished() {
                watch.look_and_sleep(&running);
            }
            promise.keep(running.join());
        })?;
        self.state = State::Running { handle, end };
        Ok(())
    }
}

impl<M: MakeService> Future for Serve<M> {
    type Output = Result<Stats>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Stats>> {
        if let Err(error) = self.begin() {
            return Poll::Ready(Err(error));
        }
        let Serve { state: State::Running { handle, end }, signal } = &mut *self else { return Poll::Pending };
        if signal.as_mut().is_some_and(|signal| signal.as_mut().poll(cx).is_ready()) {
            *signal = None;
            handle.shutdown();
        }
        let ended = std::task::ready!(end.poll(cx));
        self.state = State::Idle(None);
        let panicked = || Err(Error::Setting("the thread that waits for the server panicked".to_string()));
        Poll::Ready(ended.unwrap_or_else(panicked))
    }
}

impl<M> Drop for Serve<M> {
    fn drop(&mut self) {
        if let State::Running { handle, .. } = &self.state {
            handle.shutdown();
        }
    }
}
