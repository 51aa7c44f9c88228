//! Limits the number of log lines that peers can cause.
//!
//! A peer that has found a request that makes a handler panic, or that exceeds a limit, can send it again and again. If
//! each request caused a line, the peer could fill the disk, or block the server on the log's pipe. Each kind of line
//! therefore has a budget per second and thread ([`LOG_LINES`]). Lines beyond the budget are only counted. When the
//! second is over, one line reports the number of lines left out. It is written before the next line of that kind or
//! when the worker calls `tell`, whichever is first.
//!
//! A worker is one thread, so the counts belong to the thread and take no lock. Each thread of the blocking pool has
//! counts of its own.

use highwire_io::Instant;
use std::cell::Cell;

/// The most lines of one kind that a thread logs per second.
pub const LOG_LINES: u32 = 10;

/// The kind of a log line, by its cause. Each kind has a budget of its own, so that lines of one kind do not hide lines
/// of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A peer exceeds a limit of the protocol, and its connection ends.
    Abuse,
    /// The memory budget has no room.
    Memory,
    /// Code of the program, or of the engine, panicked.
    Panic,
    /// A handler took longer than its deadline.
    Slow,
    /// The program has made a mistake, such as a response that cannot be sent.
    Mistake,
    /// An operation of the system failed, for example on a file, a thread or a socket.
    Failure,
    /// A bound leaves no room for another connection.
    Full,
    /// Another server has not answered, or not as it should.
    Upstream,
    /// A request for another protocol is refused.
    Refused,
    /// A file is not served, because it cannot be read or lies outside of its folder.
    Forbidden,
}

const KINDS: [Kind; 10] = [
    Kind::Abuse,
    Kind::Memory,
    Kind::Panic,
    Kind::Slow,
    Kind::Mistake,
    Kind::Failure,
    Kind::Full,
    Kind::Upstream,
    Kind::Refused,
    Kind::Forbidden,
];

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    second: u64,
    /// The number of lines that were logged in this second.
    logged: u32,
    /// The number of lines that were left out and not reported yet.
    left_out: u64,
}

/// The counts of a thread.
#[derive(Debug, Default)]
struct Counts {
    counts: [Cell<Count>; KINDS.len()],
    /// True if some lines were left out and not reported yet.
    owes: Cell<bool>,
}

impl Counts {
    /// Returns true if a line may be logged now, and counts it.
    fn allow(&self, kind: Kind, now: Instant) -> bool {
        let cell = &self.counts[kind as usize];
        let mut count = cell.get();
        let second = second(now);
        if count.second != second {
            (count.second, count.logged) = (second, 0);
        }
        let allowed = count.logged < LOG_LINES;
        if allowed {
            count.logged += 1;
        } else {
            count.left_out += 1;
            self.owes.set(true);
        }
        cell.set(count);
        allowed
    }

    /// Takes the number of lines of a kind that were left out, if the second in which they were left out is over.
    fn take_left_out(&self, kind: Kind, now: Instant) -> Option<u64> {
        let cell = &self.counts[kind as usize];
        let count = cell.get();
        if count.left_out == 0 || count.second == second(now) {
            return None;
        }
        cell.set(Count { left_out: 0, ..count });
        Some(count.left_out)
    }

    /// Takes the numbers of [`take_left_out`](Self::take_left_out) for all kinds, and passes each to `hand_on`.
    fn take_all(&self, now: Instant, mut hand_on: impl FnMut(Kind, u64)) {
        if !self.owes.get() {
            return;
        }
        for kind in KINDS {
            if let Some(lines) = self.take_left_out(kind, now) {
                hand_on(kind, lines);
            }
        }
        self.owes.set(self.counts.iter().any(|cell| cell.get().left_out > 0));
    }
}

/// Logs a line of a [`Kind`](crate::runtime::rate_limited::Kind) at a level (`warn` or `error`), with the arguments of a `tracing`
/// macro, unless the budget of its kind is used up.
#[macro_export]
macro_rules! log {
    ($kind:ident, $level:ident, $($line:tt)+) => {
        if $crate::rate_limited::allows($crate::rate_limited::Kind::$kind) {
            $crate::rate_limited::guarded(|| $crate::__tracing::$level!($($line)+));
        }
    };
}

pub use crate::log;

/// Calls `write`, which writes a line. Catches a panic of the program's log subscriber, because the engine also logs at
/// places where no other code would catch the panic, and after other panics.
pub fn guarded(write: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)) {
        // Dropping the payload of the panic may panic again.
        std::mem::forget(panic);
    }
}

fn second(now: Instant) -> u64 {
    now.nanoseconds / 1_000_000_000
}

thread_local! {
    static COUNTS: Counts = Counts::default();
    /// The worker's clock, as of its last tick. Threads of the blocking pool have none.
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns true if a line of this kind may be logged now, and counts it. First logs the number of lines that were left
/// out in an earlier second, if there are any.
pub fn allows(kind: Kind) -> bool {
    // On a thread without a worker, any clock is sufficient, because seconds are only compared for equality.
    let now = NOW.get().unwrap_or_else(|| Instant { nanoseconds: highwire_io::clock::unix_nanoseconds() });
    // A thread that is ending may have lost its counts. It logs only a few more lines, so they are allowed.
    let asked = COUNTS.try_with(|counts| (counts.take_left_out(kind, now), counts.allow(kind, now)));
    let Ok((left_out, allowed)) = asked else { return true };
    if let Some(lines) = left_out {
        log_left_out(kind, lines);
    }
    allowed
}

/// Logs the number of lines that were left out, once the second in which they were left out is over. A worker calls it
/// up to ten times per second.
pub(crate) fn tell(now: Instant) {
    NOW.set(Some(now));
    // A thread that is ending may have lost its counts.
    let _ = COUNTS.try_with(|counts| counts.take_all(now, log_left_out));
}

/// Forgets the clock of this thread's worker, because the worker has ended.
pub(crate) fn forget_clock() {
    NOW.set(None);
}

fn log_left_out(kind: Kind, lines: u64) {
    guarded(|| tracing::warn!(?kind, lines, "more log lines of this kind were left out"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(milliseconds: u64) -> Instant {
        Instant::default() + Duration::from_millis(milliseconds)
    }

    fn told(counts: &Counts, now: Instant) -> Vec<(Kind, u64)> {
        let mut told = Vec::new();
        counts.take_all(now, |kind, lines| told.push((kind, lines)));
        told
    }

    #[test]
    fn each_kind_has_so_many_lines_per_second() {
        let counts = Counts::default();
        let logged =
            |kind, from: u64, lines: u64| (0..lines).filter(|line| counts.allow(kind, at(from + line % 1000))).count();
        assert_eq!(logged(Kind::Abuse, 5000, 10), 10);
        assert_eq!(logged(Kind::Abuse, 5000, 990), 0);
        // The other kind has a budget of its own.
        assert_eq!(logged(Kind::Panic, 5000, 3), 3);
        assert_eq!(logged(Kind::Abuse, 6000, 15), 10);
    }

    #[test]
    fn what_was_left_out_is_told_once_when_its_second_is_over() {
        let counts = Counts::default();
        (0..25).for_each(|_| _ = counts.allow(Kind::Abuse, at(5000)));
        (0..11).for_each(|_| _ = counts.allow(Kind::Memory, at(5100)));
        (0..10).for_each(|_| _ = counts.allow(Kind::Panic, at(5200)));
        assert!(told(&counts, at(5999)).is_empty());
        assert_eq!(told(&counts, at(6000)), [(Kind::Abuse, 15), (Kind::Memory, 1)]);
        assert!(told(&counts, at(7000)).is_empty());
    }

    #[test]
    fn what_was_left_out_is_not_lost_when_lines_go_on() {
        let counts = Counts::default();
        (0..12).for_each(|_| _ = counts.allow(Kind::Slow, at(5000)));
        assert_eq!(counts.take_left_out(Kind::Slow, at(5500)), None);
        assert_eq!(counts.take_left_out(Kind::Slow, at(6000)), Some(2));
        (0..13).for_each(|_| _ = counts.allow(Kind::Slow, at(6000)));
        assert!(told(&counts, at(6500)).is_empty());
        assert_eq!(told(&counts, at(7500)), [(Kind::Slow, 3)]);
    }

    #[test]
    fn kinds_stand_where_their_numbers_say() {
        for (at, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }
}
