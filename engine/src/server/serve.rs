//! A server as a future, for programs that run on an executor such as tokio's.

use crate::runtime::promise::{Asked, promise};
use crate::server::run::{Handle, Server, Watch};
use crate::server::shared::Shared;
use crate::server::stats::Stats;
use crate::service::MakeService;
use crate::{Error, Result};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

/// The future of a server, which [`Server::serve`] returns. The server starts when the future is first polled, and runs on
/// threads of its own, so the executor may have one thread. The future is ready when the server has stopped, with its final
/// counts. Dropping it begins a graceful shutdown; the drop does not wait for it. For the addresses, ask the server before
/// ([`Server::addresses`]).
#[must_use = "the server starts when the future is polled"]
pub struct Serve<M> {
    state: State<M>,
    shared: Arc<Shared>,
    /// When this is ready, the server shuts down.
    signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum State<M> {
    Idle(Option<Server<M>>),
    /// A thread starts the server, which may take as long as the program's functions for the start, and waits for its end.
    Begun {
        started: Asked<Result<Handle>>,
        handle: Option<Handle>,
        ended: Asked<Result<Stats>>,
    },
}

impl<M> std::fmt::Debug for Serve<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Serve")
    }
}

// Nothing in it is pinned by reference.
impl<M> Unpin for Serve<M> {}

impl<M> Serve<M> {
    fn shutdown(&self) {
        match &self.state {
            State::Idle(_) => {}
            State::Begun { handle: Some(handle), .. } => handle.shutdown(),
            // The workers see it in their first turn.
            State::Begun { handle: None, .. } => self.shared.draining.store(true, Ordering::Release),
        }
    }
}

impl<M: MakeService> Serve<M> {
    pub(crate) fn new(server: Server<M>, shared: Arc<Shared>) -> Serve<M> {
        Serve { state: State::Idle(Some(server)), shared, signal: None }
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
        let ((starts, started), (ends, ended)) = (promise(), promise());
        std::thread::Builder::new().name("highwire-serve".to_string()).spawn(move || {
            let running = match server.start() {
                Ok(running) => running,
                Err(error) => return starts.keep(Err(error)),
            };
            starts.keep(Ok(running.without_threads()));
            let mut watch = Watch::default();
            while !running.is_finished() {
                watch.look_and_sleep(&running);
            }
            ends.keep(running.join());
        })?;
        self.state = State::Begun { started, handle: None, ended };
        Ok(())
    }

    /// Waits until the server has started, and then until it has ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Stats>> {
        let State::Begun { started, handle, ended } = &mut self.state else { return Poll::Pending };
        if handle.is_none() {
            let started = ready!(started.poll(cx)).unwrap_or_else(panicked)?;
            if self.shared.draining.load(Ordering::Acquire) {
                // The signal to stop came while the server started. Its workers could not be woken then.
                started.shutdown();
            }
            *handle = Some(started);
        }
        Poll::Ready(ready!(ended.poll(cx)).unwrap_or_else(panicked))
    }
}

fn panicked<T>() -> Result<T> {
    Err(Error::Setting("the thread that waits for the server panicked".to_string()))
}

impl<M: MakeService> Future for Serve<M> {
    type Output = Result<Stats>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Stats>> {
        if let Err(error) = self.begin() {
            return Poll::Ready(Err(error));
        }
        if self.signal.as_mut().is_some_and(|signal| signal.as_mut().poll(cx).is_ready()) {
            self.signal = None;
            self.shutdown();
        }
        let ended = ready!(self.poll_end(cx));
        self.state = State::Idle(None);
        Poll::Ready(ended)
    }
}

impl<M> Drop for Serve<M> {
    fn drop(&mut self) {
        self.shutdown();
    }
}
