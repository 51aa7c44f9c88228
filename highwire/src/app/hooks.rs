//! What an app does when its server starts and stops.

use crate::App;
use highwire_engine::Hook;
use highwire_engine::body::BoxError;
use std::future::Future;
use std::sync::Arc;

/// Makes the future of a hook, on the worker that polls it.
type MakeHook = Box<dyn Fn() -> Hook + Send + Sync>;

/// The hooks of an app, and of the apps in it.
#[derive(Default)]
pub(crate) struct Hooks {
    start: Vec<MakeHook>,
    stop: Vec<MakeHook>,
}

impl Hooks {
    /// Takes over the hooks of a nested app.
    pub(crate) fn append(&mut self, other: &mut Hooks) {
        self.start.append(&mut other.start);
        self.stop.append(&mut other.stop);
    }

    /// Returns a future of all hooks for the start, one after the other, until one fails.
    pub(crate) fn start(&self) -> Option<Hook> {
        chain(&self.start)
    }

    pub(crate) fn stop(&self) -> Option<Hook> {
        chain(&self.stop)
    }
}

fn chain(hooks: &[MakeHook]) -> Option<Hook> {
    let futures: Vec<Hook> = hooks.iter().map(|make| make()).collect();
    (!futures.is_empty()).then(|| {
        Box::pin(async move {
            for future in futures {
                future.await?;
            }
            Ok(())
        }) as Hook
    })
}

fn boxed<Fut, E>(hook: impl Fn() -> Fut + Send + Sync + 'static) -> MakeHook
where
    Fut: Future<Output = Result<(), E>> + 'static,
    E: Into<BoxError>,
{
    let hook = Arc::new(hook);
    Box::new(move || {
        let hook = hook.clone();
        // The function is called when its turn has come.
        Box::pin(async move { hook().await.map_err(Into::into) })
    })
}

impl App {
    /// Adds an async function that runs before the server accepts connections: migrations of a database, a cache to fill. If it
    /// returns an error, the server does not start, and its caller gets the error. Several run one after the other, in the order of the
    /// calls of `on_start` and [`nest`](App::nest). A client that connects meanwhile waits.
    ///
    /// It runs once, on the first worker, where clients, tasks and, with the feature `tokio`, tokio's sockets work. It cannot add
    /// state: make what the handlers share, such as a pool, before the app, and clone it into the function. There is no time limit;
    /// [`timeout`](crate::time::timeout) sets one. The engine `threads` refuses such an app. Workers in a program's own
    /// loop do not run it; `testing::Client` does, in real time.
    ///
    /// ```
    /// use highwire::{App, State};
    /// use std::sync::{Arc, OnceLock};
    ///
    /// /// Words that are read before the first request.
    /// type Words = Arc<OnceLock<Vec<&'static str>>>;
    ///
    /// async fn read(words: Words) -> Result<(), std::io::Error> {
    ///     let _ = words.set(vec!["hello"]);
    ///     Ok(())
    /// }
    ///
    /// let words = Words::default();
    /// let app = App::new()
    ///     .state(words.clone())
    ///     .get("/", |State(words): State<Words>| words.get().map(|words| words[0]))
    ///     .on_start(move || read(words.clone()));
    /// let handle = app.listen("127.0.0.1:0")?.start()?;
    /// handle.shutdown();
    /// handle.join()?;
    /// # Ok::<(), highwire::Error>(())
    /// ```
    pub fn on_start<Fut, E>(mut self, hook: impl Fn() -> Fut + Send + Sync + 'static) -> App
    where
        Fut: Future<Output = Result<(), E>> + 'static,
        E: Into<BoxError>,
    {
        self.hooks.start.push(boxed(hook));
        self
    }

    /// Adds an async function that runs when all connections have ended, before the server's threads end: to write what is left, to
    /// close a pool. It runs once, on the first worker. Together with the wait for the other workers, it may take as long as
    /// [`Timeouts::shutdown`](crate::server::Timeouts::shutdown), and at least a second; then it is dropped. An error is logged. It
    /// does not run if the server has failed. `testing::Client` does not run it. Otherwise it is as [`on_start`](Self::on_start).
    pub fn on_stop<Fut, E>(mut self, hook: impl Fn() -> Fut + Send + Sync + 'static) -> App
    where
        Fut: Future<Output = Result<(), E>> + 'static,
        E: Into<BoxError>,
    {
        self.hooks.stop.push(boxed(hook));
        self
    }
}
