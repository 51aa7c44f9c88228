//! What a server that stopped has to say.

use super::shared::Shared;
use std::fmt;
use std::sync::atomic::Ordering;

/// What became of a server's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were refused, because their peer had too many.
    pub refused: u64,
    /// Exchanges that were cut: by a deadline, or because the shutdown's time was up.
    pub cut: u64,
}

impl Report {
    pub(crate) fn of(shared: &Shared) -> Report {
        let counters = &shared.counters;
        Report {
            accepted: counters.accepted.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
            cut: counters.cut.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { accepted, refused, cut } = self;
        write!(f, "{accepted} connections accepted, {refused} refused, {cut} exchanges cut short")
    }
}
