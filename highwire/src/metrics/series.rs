//! The numbers of one worker, and their sums.

use super::Metrics;
use highwire_engine::proto::{Method, Version};
use highwire_engine::{Finished, Observer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The upper bounds of the buckets in microseconds: those of OpenTelemetry's `http.server.request.duration`, and finer ones below, because
/// most requests of this server take less than the first of those, 5 ms.
pub(super) const BOUNDS: [u64; 20] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000,
    1_000_000, 2_500_000, 5_000_000, 7_500_000, 10_000_000,
];

const BUCKETS: usize = BOUNDS.len() + 1;

/// The most series of one route in one worker: combinations of method, status, version and so on. Requests beyond count as those of
/// no route and no status, so that no client can add series without end.
const SERIES_OF_A_ROUTE: usize = 24;

/// What the requests of a series have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    /// The key of requests beyond [`SERIES_OF_A_ROUTE`].
    pub(super) const OTHER: Key = Key(u64::MAX);

    fn of(request: &Finished) -> Key {
        let method = match request.method {
            Method::Get => 0,
            Method::Head => 1,
            Method::Post => 2,
            Method::Put => 3,
            Method::Delete => 4,
            Method::Connect => 5,
            Method::Options => 6,
            Method::Trace => 7,
            Method::Patch => 8,
            _ => 9,
        };
        let version = match request.version {
            Version::Http10 => 0,
            Version::Http11 => 1,
            Version::Http2 => 2,
        };
        let flags = u64::from(request.is_secure) | u64::from(request.is_cut) << 1;
        Key(u64::from(request.status) | method << 16 | version << 24 | flags << 32)
    }

    pub(super) fn status(self) -> u16 {
        self.0 as u16
    }

    pub(super) fn method(self) -> &'static str {
        const NAMES: [&str; 10] =
            ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"];
        NAMES.get((self.0 >> 16 & 0xff) as usize).copied().unwrap_or("_OTHER")
    }

    pub(super) fn version(self) -> &'static str {
        ["1.0", "1.1", "2"].get((self.0 >> 24 & 0xff) as usize).copied().unwrap_or_default()
    }

    pub(super) fn is_secure(self) -> bool {
        self.0 >> 32 & 1 == 1
    }

    /// Returns true if the requests got no complete response.
    pub(super) fn is_cut(self) -> bool {
        self.0 >> 33 & 1 == 1
    }
}

/// The numbers of the requests of one key. Only the worker writes them.
struct Slot {
    key: Key,
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
}

/// Adds to a number that only this thread writes. Others may read it meanwhile.
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Slot {
    fn new(key: Key) -> Box<Slot> {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        Box::new(Slot { key, buckets, nanoseconds: AtomicU64::new(0), bytes: AtomicU64::new(0) })
    }

    fn count(&self, request: &Finished) {
        let nanoseconds = u64::try_from(request.duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| nanoseconds <= bound * 1000).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(bucket) {
            add(bucket, 1);
        }
        add(&self.nanoseconds, nanoseconds);
        add(&self.bytes, request.bytes);
    }
}

type Series = [OnceLock<Box<Slot>>; SERIES_OF_A_ROUTE];

/// The numbers of one worker. Memory for a route exists once the route was asked.
pub(super) struct WorkerSeries {
    /// By the number of the route; the last one is for requests without a route.
    routes: Box<[OnceLock<Box<Series>>]>,
    other: OnceLock<Box<Slot>>,
    /// The worker's number, if it has one.
    pub(super) number: Option<usize>,
}

impl WorkerSeries {
    pub(super) fn new(routes: usize, number: Option<usize>) -> WorkerSeries {
        WorkerSeries { routes: (0..=routes).map(|_| OnceLock::new()).collect(), other: OnceLock::new(), number }
    }

    fn count(&self, request: &Finished) {
        let key = Key::of(request);
        let without = self.routes.len() - 1;
        let route = request.route.map_or(without, |route| (route as usize).min(without));
        let slot = self.routes.get(route).and_then(|route| {
            let series = route.get_or_init(|| Box::new([const { OnceLock::new() }; SERIES_OF_A_ROUTE]));
            series.iter().map(|slot| slot.get_or_init(|| Slot::new(key))).find(|slot| slot.key == key)
        });
        slot.unwrap_or_else(|| self.other.get_or_init(|| Slot::new(Key::OTHER))).count(request);
    }
}

/// Counts the requests of one worker.
pub(crate) struct Counting {
    series: Arc<WorkerSeries>,
    metrics: Arc<Metrics>,
}

impl Counting {
    pub(super) fn new(series: Arc<WorkerSeries>, metrics: Arc<Metrics>) -> Counting {
        Counting { series, metrics }
    }
}

impl Observer for Counting {
    fn finished(&self, request: &Finished) {
        self.series.count(request);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.metrics.end_worker(&self.series);
    }
}

/// The sums of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) nanoseconds: u64,
    pub(super) bytes: u64,
}

impl Sums {
    pub(super) fn requests(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(super) fn add(&mut self, other: &Sums) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| *bucket += more);
        self.nanoseconds += other.nanoseconds;
        self.bytes += other.bytes;
    }
}

/// Sums over workers, by route and key.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals(pub(super) BTreeMap<(usize, Key), Sums>);

impl Totals {
    /// Adds the numbers of a worker. Returns the number of its requests.
    pub(super) fn add(&mut self, series: &WorkerSeries) -> u64 {
        let without = series.routes.len() - 1;
        let slots = series.routes.iter().enumerate().filter_map(|(at, route)| Some((at, route.get()?)));
        let slots = slots.flat_map(|(at, route)| route.iter().filter_map(OnceLock::get).map(move |slot| (at, slot)));
        let mut requests = 0;
        for (at, slot) in slots.chain(series.other.get().map(|slot| (without, slot))) {
            let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
            let sums = Sums {
                buckets: std::array::from_fn(|bucket| read(&slot.buckets[bucket])),
                nanoseconds: read(&slot.nanoseconds),
                bytes: read(&slot.bytes),
            };
            requests += sums.requests();
            self.0.entry((at, slot.key)).or_default().add(&sums);
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn request(route: Option<u32>, status: u16, microseconds: u64) -> Finished {
        let mut request = Finished::default();
        (request.route, request.status, request.bytes) = (route, status, 3);
        request.duration = Duration::from_micros(microseconds);
        request
    }

    #[test]
    fn requests_fall_into_buckets_with_their_bounds() {
        let series = WorkerSeries::new(1, None);
        for bound in BOUNDS {
            series.count(&request(Some(0), 200, bound));
        }
        series.count(&request(Some(0), 200, 10_000_001));
        let mut totals = Totals::default();
        assert_eq!(totals.add(&series), 21);
        let sums: Vec<&Sums> = totals.0.values().collect();
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[0].buckets, [1; 21]);
        assert_eq!(sums[0].nanoseconds, 1000 * (BOUNDS.iter().sum::<u64>() + 10_000_001));
        assert_eq!(sums[0].bytes, 63);
    }

    #[test]
    fn series_are_bounded_and_no_request_is_lost() {
        let series = WorkerSeries::new(2, None);
        for status in 200..300 {
            series.count(&request(Some(1), status, 1));
            series.count(&request(None, status, 1));
            // A route that the app does not have.
            series.count(&request(Some(7), status, 1));
        }
        let mut totals = Totals::default();
        assert_eq!(totals.add(&series), 300);
        assert_eq!(totals.0.len(), 2 * SERIES_OF_A_ROUTE + 1);
        let other = &totals.0[&(2, Key::OTHER)];
        assert_eq!(other.requests(), 300 - 3 * SERIES_OF_A_ROUTE as u64);
    }
}
