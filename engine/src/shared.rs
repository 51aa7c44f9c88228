//! What all workers of a server share: settings, the memory account, counters.

use super::budget::Budget;
use super::config::Config;
use super::peers::PeerCounts;
use super::pool::{Asked, Pool};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Counts of what happened, over all workers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) finished: AtomicU64,
    /// Requests, and those of them that came on streams of HTTP/2.
    pub(crate) requests: AtomicU64,
    pub(crate) streams: AtomicU64,
    /// TLS handshakes that were completed, and that failed.
    pub(crate) handshakes: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    /// HTTP/2 connections that ended because an allowance ran out, by its kind.
    pub(crate) http2_fired: [AtomicU64; highwire_proto::h2::budget::KINDS],
}

/// What all workers of a server share: settings, counters, the account of memory, the blocking pool.
pub struct Shared {
    config: Config,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counters: Counters,
    pub(crate) peers: PeerCounts,
    pub(crate) most_connections: usize,
    /// Set once: stop accepting, finish what is under way.
    pub(crate) draining: AtomicBool,
    /// Set once: end now.
    pub(crate) aborting: AtomicBool,
    /// Acceptors that may still hand connections to workers.
    pub(crate) acceptors: AtomicUsize,
    /// The second in which somebody has last looked at the files of the listeners' TLS.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS has files that are looked at"))]
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

/// Descriptors that are not for connections: listeners, rings, files, logs.
pub(crate) const RESERVED_DESCRIPTORS: usize = 32;

impl Shared {
    pub(crate) fn new(config: Config) -> Shared {
        let limit = config.memory.unwrap_or_else(Budget::default_limit);
        let descriptors = highwire_io::memory::descriptors();
        let most = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(1);
        let most_connections = config.limits.connections.map_or(most, |cap| (cap as usize).min(most));
        Shared {
            config,
            budget: Arc::new(Budget::new(limit)),
            counters: Counters::default(),
            peers: PeerCounts::default(),
            most_connections,
            draining: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            acceptors: AtomicUsize::new(0),
            looked: AtomicU64::new(0),
            pool: OnceLock::new(),
            #[cfg(feature = "tokio")]
            runtime: OnceLock::new(),
        }
    }

    /// The settings.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Gives the blocking pool a job on an argument, which comes back where the pool is full.
    ///
    /// # Errors
    /// The argument, where the pool is full.
    pub fn offer<T: Send + 'static>(&self, argument: T, job: Box<dyn FnOnce(T) + Send>) -> Result<(), T> {
        self.pool().offer(argument, job)
    }

    /// Runs a function on the blocking pool, for whoever waits for its result.
    pub fn ask<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
        self.pool().ask(function)
    }

    fn pool(&self) -> &Pool {
        let caps = &self.config().limits;
        self.pool.get_or_init(|| Pool::new("blocking", caps.blocking_threads, caps.blocking_queue))
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// Lets what runs on this thread find the background runtime of the feature `tokio`, until the guard is dropped.
    #[cfg(feature = "tokio")]
    pub(crate) fn enter_runtime(&self) -> impl Sized {
        let runtime = self.runtime.get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("highwire-tokio")
                .enable_all()
                .build()
                .expect("the system has a thread and an epoll for tokio")
        });
        runtime.enter()
    }

    /// There is none.
    #[cfg(not(feature = "tokio"))]
    pub(crate) fn enter_runtime(&self) -> impl Sized {
        std::marker::PhantomData::<&Shared>
    }
}

/// A host may let go of the server within a runtime of its own, where nothing may be waited for.
#[cfg(feature = "tokio")]
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
