//! A worker without a server, for futures that use clients.

use crate::App;
use crate::server::Worker;
use highwire_engine::{Engine, Runtime};
use std::future::Future;

/// Runs a future on this thread with a worker of its own, for programs without a server. Clients can send requests in the
/// future and in tasks of [`spawn`](crate::spawn). Tasks that have not finished when the future has are dropped.
///
/// ```no_run
/// use highwire::client::{Client, block_on};
///
/// let text = block_on(async {
///     let response = Client::new().get("https://www.example.com/").send().await?;
///     response.text().await
/// })??;
/// println!("{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns an error if the worker cannot start or its driver fails.
pub fn block_on<F: Future>(future: F) -> crate::Result<F::Output> {
    worker(Engine::Auto)?.block_on(future)
}

/// Creates a worker without a server on this thread. Its service is an app without routes and listeners, so that a program
/// has the code of workers once.
pub(crate) fn worker(engine: Engine) -> crate::Result<Worker<Runtime>> {
    App::new().server()?.into_worker(Runtime::new(engine)?)
}
