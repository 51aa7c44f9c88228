//! The counts of a server: connections, requests, TLS handshakes.

use crate::server::shared::Shared;
use highwire_proto::h2::budget;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a server since its start, and what it holds now, from [`Handle::stats`](crate::Handle::stats) while it runs or when it has
/// stopped. Each worker adds its requests once per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "Report")]
pub struct Stats {
    /// The number of connections that are open now.
    pub connections: u64,
    /// The number of bytes of the memory budget that connections hold now.
    pub memory: u64,
    /// The memory budget in bytes.
    pub memory_limit: u64,
    /// The number of connections that were accepted.
    pub accepted: u64,
    /// The number of connections that were refused, because their peer or the server had too many.
    pub refused: u64,
    /// The number of exchanges and connections that a deadline or the end of a shutdown has cut.
    pub cut: u64,
    /// The number of tasks that the end of a shutdown has cut.
    pub tasks_cut: u64,
    /// The number of requests on all connections, and of this process.
    pub requests: u64,
    /// The number of those requests that arrived on streams of HTTP/2.
    pub streams: u64,
    /// The number of TLS handshakes that were completed.
    pub handshakes: u64,
    /// The number of TLS handshakes that failed.
    pub handshakes_failed: u64,
    fired: [u64; budget::KINDS],
}

impl Stats {
    /// Returns the counts so far.
    pub fn of(shared: &Shared) -> Stats {
        let counters = &shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            connections: shared.connection_count() as u64,
            memory: shared.budget.used() as u64,
            memory_limit: shared.budget.limit() as u64,
            accepted: read(&counters.accepted),
            refused: read(&counters.refused),
            cut: read(&counters.cut),
            tasks_cut: read(&counters.tasks_cut),
            requests: read(&counters.requests),
            streams: read(&counters.streams),
            handshakes: read(&counters.handshakes),
            handshakes_failed: read(&counters.handshakes_failed),
            fired: std::array::from_fn(|kind| read(&counters.http2_fired[kind])),
        }
    }

    /// Returns the number of HTTP/2 connections that ended because their peer used up an allowance, for each kind of
    /// allowance, with its name in docs/limits.md.
    pub fn fired(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        budget::NAMES.into_iter().zip(self.fired)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { accepted, refused, cut, tasks_cut, requests, streams, handshakes, handshakes_failed, .. } = self;
        write!(
            f,
            "{accepted} connections accepted, {refused} refused, {requests} requests, {cut} exchanges cut short"
        )?;
        if *tasks_cut > 0 {
            write!(f, ", {tasks_cut} tasks")?;
        }
        if *streams > 0 {
            write!(f, ", {streams} on streams of HTTP/2")?;
        }
        if handshakes + handshakes_failed > 0 {
            write!(f, ", {handshakes} TLS handshakes, {handshakes_failed} failed")?;
        }
        for (name, count) in self.fired().filter(|(_, count)| *count > 0) {
            write!(f, ", {count} ended for too many {name}")?;
        }
        Ok(())
    }
}
