//! The drivers' time, counted in nanoseconds from a clock's zero point, so that the simulator can use virtual time.

use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment of a driver's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// The number of nanoseconds since the clock's zero point.
    pub nanoseconds: u64,
}

impl Instant {
    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.nanoseconds.saturating_sub(earlier.nanoseconds))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        let more = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant { nanoseconds: self.nanoseconds.saturating_add(more) }
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// A clock that starts at one second and follows the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: std::time::Instant,
}

impl RealClock {
    /// Starts a clock at one second, so that zero can mean "never".
    pub fn start() -> RealClock {
        RealClock { start: std::time::Instant::now() }
    }

    /// Returns the current moment.
    pub fn now(&self) -> Instant {
        Instant { nanoseconds: self.start.elapsed().as_nanos() as u64 } + Duration::from_secs(1)
    }
}

/// Returns the number of nanoseconds since the first call, by the system's monotonic clock. Use it to measure
/// durations.
pub fn stopwatch() -> u64 {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Returns the number of nanoseconds since 1970 by the system's clock; 0 if the clock is set to an earlier time.
pub fn unix_nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the number of seconds since 1970 by the system's clock; 0 if the clock is set to an earlier time.
pub fn unix_seconds() -> u64 {
    unix_nanoseconds() / 1_000_000_000
}
