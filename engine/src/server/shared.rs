//! The data that all workers of a server share: settings, the memory budget, counters.

use crate::runtime::pool::Pool;
use crate::runtime::promise::Asked;
use crate::server::budget::Budget;
use crate::server::config::Config;
use crate::server::peers::PeerCounts;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The counters of all workers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    /// The number of these that tasks of ours have opened, or are opening.
    pub(crate) outgoing: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) tasks_cut: AtomicU64,
    pub(crate) finished: AtomicU64,
    /// The number of requests of all protocols, including requests of this process.
    pub(crate) requests: AtomicU64,
    /// The number of requests on streams of HTTP/2.
    pub(crate) streams: AtomicU64,
    /// The number of TLS handshakes that were completed.
    pub(crate) handshakes: AtomicU64,
    /// The number of TLS handshakes that failed.
    pub(crate) handshakes_failed: AtomicU64,
    /// The number of HTTP/2 connections that ended because their peer used up an allowance, by the kind of the
    /// allowance.
    pub(crate) http2_fired: [AtomicU64; highwire_proto::h2::budget::KINDS],
}

/// The data that all workers of a server share: settings, counters, the memory budget, the blocking pool.
pub struct Shared {
    config: Config,
    workers: usize,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counters: Counters,
    pub(crate) peers: PeerCounts,
    pub(crate) most_connections: usize,
    /// True if a worker has listeners, so that some descriptors must be left for clients.
    pub(crate) serves: AtomicBool,
    /// True when the server must stop accepting and finish the requests in progress. Never reset.
    pub(crate) draining: AtomicBool,
    /// True when the server must end at once. Never reset.
    pub(crate) aborting: AtomicBool,
    /// The number of workers' threads that have not ended.
    pub(crate) running: AtomicUsize,
    /// The number of acceptors that may still hand connections to workers.
    pub(crate) acceptors: AtomicUsize,
    /// The second in which a worker last checked the files of the listeners' TLS configurations.
    pub(crate) looked: AtomicU64,
    pool: OnceLock<Pool>,
    #[cfg(feature = "tokio")]
    runtime: OnceLock<tokio::runtime::Runtime>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("connections", &self.connection_count()).finish_non_exhaustive()
    }
}

/// The number of descriptors that are reserved for other uses than connections: listeners, rings, files, logs.
pub(crate) const RESERVED_DESCRIPTORS: usize = 32;

impl Shared {
    pub(crate) fn new(config: Config) -> Shared {
        let limit = config.memory.unwrap_or_else(Budget::default_limit);
        let descriptors = highwire_io::memory::descriptors();
        let most = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(1);
        let most_connections = config.limits.connections.map_or(most, |cap| (cap as usize).min(most));
        let workers = match config.workers {
            0 => highwire_io::affinity::parallelism(),
            workers => workers,
        };
        Shared {
            workers,
            config,
            budget: Arc::new(Budget::new(limit)),
            counters: Counters::default(),
            peers: PeerCounts::default(),
            most_connections,
            serves: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            acceptors: AtomicUsize::new(0),
            looked: AtomicU64::new(0),
            pool: OnceLock::new(),
            #[cfg(feature = "tokio")]
            runtime: OnceLock::new(),
        }
    }

    /// Returns the number of workers, which is at least 1.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the settings.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Gives a job and its argument to the blocking pool.
    ///
    /// # Errors
    /// Returns the argument as the error if the pool is full or cannot start its first thread.
    pub fn offer<T: Send + 'static>(&self, argument: T, job: Box<dyn FnOnce(T) + Send>) -> Result<(), T> {
        self.pool().offer(argument, job)
    }

    /// Runs a function on the blocking pool. The caller polls the returned [`Asked`] for the function's result.
    pub fn ask<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
        self.pool().ask(function)
    }

    /// Returns true if the blocking pool has work.
    pub(crate) fn is_blocking(&self) -> bool {
        self.pool.get().is_some_and(Pool::is_busy)
    }

    fn pool(&self) -> &Pool {
        let caps = &self.config().limits;
        self.pool.get_or_init(|| Pool::new("blocking", caps.blocking_threads, caps.blocking_queue))
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// Enters the background runtime of the feature `tokio` on this thread, until the guard is dropped.
    #[cfg(feature = "tokio")]
    pub(crate) fn enter_runtime(&self) -> tokio::runtime::EnterGuard<'_> {
        let runtime = self.runtime.get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("highwire-tokio")
                .enable_all()
                .build()
                .expect("cannot start the tokio runtime")
        });
        runtime.enter()
    }

    /// Does nothing, because there is no runtime without the feature `tokio`.
    #[cfg(not(feature = "tokio"))]
    pub(crate) fn enter_runtime(&self) -> impl Sized {
        std::marker::PhantomData::<&Shared>
    }
}

/// Ends the runtime without waiting for it, because a host may drop the server inside a runtime of its own, where
/// waiting is not allowed.
#[cfg(feature = "tokio")]
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
