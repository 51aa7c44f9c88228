//! What a server has to say of itself: what became of its connections.

use super::shared::Shared;
use highwire_proto::h2::budget;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a server's connections: when it has stopped, from [`Handle::stats`](super::Handle::stats) while it
/// runs. The counts of requests are as of a worker's last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "Report")]
pub struct Stats {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were refused, because their peer had too many.
    pub refused: u64,
    /// Exchanges that were cut: by a deadline, or because the shutdown's time was up.
    pub cut: u64,
    /// Requests, on all connections.
    pub requests: u64,
    /// Those of them that came on streams of HTTP/2.
    pub streams: u64,
    /// TLS handshakes that were completed.
    pub handshakes: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
    fired: [u64; budget::KINDS],
}

impl Stats {
    /// So far.
    pub fn of(shared: &Shared) -> Stats {
        let counters = &shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            accepted: read(&counters.accepted),
            refused: read(&counters.refused),
            cut: read(&counters.cut),
            requests: read(&counters.requests),
            streams: read(&counters.streams),
            handshakes: read(&counters.handshakes),
            handshakes_failed: read(&counters.handshakes_failed),
            fired: std::array::from_fn(|kind| read(&counters.http2_fired[kind])),
        }
    }

    /// How many HTTP/2 connections ended because their peer used up what it may repeat of a kind, by the kinds' names in
    /// docs/limits.md.
    pub fn fired(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        budget::NAMES.into_iter().zip(self.fired)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { accepted, refused, cut, requests, streams, handshakes, handshakes_failed, .. } = self;
        write!(
            f,
            "{accepted} connections accepted, {refused} refused, {requests} requests, {cut} exchanges cut short"
        )?;
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
