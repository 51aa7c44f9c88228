//! A worker without a server, for futures that use clients.

use crate::App;
use crate::server::Worker;
use highwire_engine::{Config, Engine};
use highwire_io::{Readiness, Uring};
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
    Runtime::new(Engine::Auto)?.block_on(future)
}

/// A worker without a server, for futures that use clients.
pub(crate) struct Runtime {
    worker: AnyWorker,
}

/// Its service is an app without routes and listeners, so that a program has the code of workers once.
enum AnyWorker {
    Uring(Box<Worker<Uring>>),
    Readiness(Box<Worker<Readiness>>),
}

impl Runtime {
    pub(crate) fn new(engine: Engine) -> crate::Result<Runtime> {
        let is_needed = engine == Engine::Uring;
        let wants_uring = matches!(engine, Engine::Auto | Engine::Uring) && cfg!(target_os = "linux");
        let server = App::new().configure(|config| *config = Config { engine, ..Config::default() }).server()?;
        if wants_uring {
            match Uring::new() {
                Ok(driver) => return Ok(Runtime { worker: AnyWorker::Uring(Box::new(server.into_worker(driver)?)) }),
                Err(error) if is_needed => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(Runtime { worker: AnyWorker::Readiness(Box::new(server.into_worker(Readiness::new()?)?)) })
    }

    pub(crate) fn block_on<F: Future>(&mut self, future: F) -> crate::Result<F::Output> {
        match &mut self.worker {
            AnyWorker::Uring(worker) => worker.block_on(future),
            AnyWorker::Readiness(worker) => worker.block_on(future),
        }
    }
}
