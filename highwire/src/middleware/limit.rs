//! Limits on concurrent requests and on the rate of requests.

use super::Middleware;
use crate::{HeaderName, HeaderValue, Peer, Request, Response, StatusCode, header};
use highwire_engine::context;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Limits how many requests are in their handlers at the same time, in all workers together. Responds with 503 to
/// further requests, which would only delay the others. A request counts until its handler has responded or is
/// cancelled; it no longer counts while the response's body is sent.
///
/// ```
/// use highwire::middleware::ConcurrencyLimit;
/// use highwire::testing::Client;
/// use highwire::{App, Handler, spawn_blocking};
///
/// let report = async || spawn_blocking(|| "the year in figures").await;
/// let app = App::new().get("/report", report.with(ConcurrencyLimit::new(4)));
/// assert_eq!(Client::new(app)?.get("/report").send().text(), "the year in figures");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ConcurrencyLimit {
    most: usize,
    present: Arc<AtomicUsize>,
}

impl ConcurrencyLimit {
    /// Creates a limit of `most` concurrent requests.
    pub fn new(most: usize) -> ConcurrencyLimit {
        ConcurrencyLimit { most, present: Arc::default() }
    }
}

/// A request's place in a [`ConcurrencyLimit`], which is released on drop.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Middleware for ConcurrencyLimit {
    type State = Permit;

    fn before(&self, _: &mut Request<'_>) -> Result<Permit, Response> {
        if self.present.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.present.fetch_sub(1, Ordering::Relaxed);
            let response = Response::error(StatusCode::SERVICE_UNAVAILABLE, "the server is overloaded\n");
            return Err(response.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        Ok(Permit(self.present.clone()))
    }

    fn after(&self, _: Permit, _: &mut Response) {}
}

/// How many callers a [`RateLimit`] remembers at most in each of its 16 parts. If a part is full, it first forgets the
/// callers whose whole burst is available again, and then those for whom it will be available soonest.
pub const RATE_LIMIT_CALLERS: usize = 8192;

/// The number of parts of a [`RateLimit`]'s table of callers. Each part has its own lock, so that workers seldom wait
/// for each other.
const PARTS: usize = 16;

/// The length in bytes of the longest key that is stored unchanged, such as an address, a number or most tokens. A
/// longer key is stored as a hash, because its length may be the client's choice.
const KEY_BYTES: usize = 64;

type Key = Box<[u8]>;
type KeyOf = Arc<dyn Fn(&mut Request<'_>) -> Option<Vec<u8>> + Send + Sync>;

/// Responds with 429 to callers that send requests too often. On average, a caller may send a given number of requests
/// per period, evenly spread or in bursts of limited size (the generic cell rate algorithm, ITU-T I.371). All workers
/// share the counts.
///
/// Responses to requests that are counted or refused have `RateLimit-Limit`, `RateLimit-Remaining` and
/// `RateLimit-Reset`; a 429 also has `Retry-After`.
///
/// ```
/// use highwire::App;
/// use highwire::middleware::RateLimit;
/// use std::time::Duration;
///
/// let app = App::new().get("/", || "hello").with(RateLimit::new(100, Duration::from_secs(60)));
/// # let _ = app;
/// ```
#[derive(Clone)]
#[must_use]
pub struct RateLimit {
    burst: u64,
    /// The number of nanoseconds between two evenly spread requests.
    gap: u64,
    key: KeyOf,
    parts: Arc<[Mutex<HashMap<Key, u64>>]>,
    /// Two hash functions with random seeds and 64-bit results. A long key is stored as both results, so that a client
    /// cannot find a key that collides with another caller's.
    hashers: [RandomState; 2],
}

impl std::fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimit").field("burst", &self.burst).field("gap", &self.gap).finish_non_exhaustive()
    }
}

impl RateLimit {
    /// Creates a limit of `requests` per `period` for each client address. All addresses of an IPv6 /64 count as one.
    /// If `requests` is 0, the limit is 1. Requests without a known address are not limited, such as those on unix
    /// sockets without a trusted proxy, and those to an app as a tower service that have no address in their
    /// extensions.
    pub fn new(requests: u32, period: Duration) -> RateLimit {
        let requests = u64::from(requests.max(1));
        let gap = (period.as_nanos() / u128::from(requests)).clamp(1, u128::from(u64::MAX >> 20)) as u64;
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        RateLimit { burst: requests, gap, key: Arc::new(address), parts, hashers: Default::default() }
    }

    /// Sets how many requests a caller may send at once, at least 1. The default is the number per period.
    pub fn burst(mut self, burst: u32) -> RateLimit {
        self.burst = u64::from(burst.max(1));
        self
    }

    /// Sets the function that identifies the caller, such as by address, user or token. Requests for which it returns
    /// `None` are not limited. If a key is longer than 64 bytes, only its hash is stored.
    pub fn by(mut self, key: impl Fn(&mut Request<'_>) -> Option<Vec<u8>> + Send + Sync + 'static) -> RateLimit {
        self.key = Arc::new(key);
        self
    }

    fn bounded(&self, key: Vec<u8>) -> Key {
        if key.len() <= KEY_BYTES {
            return key.into();
        }
        self.hashers.iter().flat_map(|hasher| hasher.hash_one(&key).to_be_bytes()).collect()
    }

    /// Counts a request of a caller, if it is allowed. Returns the number of further requests that are allowed now, or
    /// as an error the time to wait. The second result is the time until the caller's whole burst is available again.
    /// Times are in nanoseconds.
    fn take(&self, key: Vec<u8>, now: u64) -> (Result<u64, u64>, u64) {
        let key = self.bounded(key);
        let mut part = self.parts[part_of(&key)].lock().unwrap_or_else(PoisonError::into_inner);
        // The time at which the caller's whole burst would be available again if this request did not count.
        let even = part.get(&key).copied().unwrap_or(0).max(now);
        let most = self.gap.saturating_mul(self.burst);
        let next = even.saturating_add(self.gap);
        if next > now.saturating_add(most) {
            return (Err(next - most - now), even - now);
        }
        if part.len() >= RATE_LIMIT_CALLERS && !part.contains_key(&key) {
            make_room(&mut part, now);
        }
        part.insert(key, next);
        (Ok((now.saturating_add(most) - next) / self.gap), next - now)
    }
}

/// Forgets the callers whose whole burst is available again. If that leaves the part half full or more, also forgets at
/// least half of the remaining callers, namely those whose whole burst will be available soonest.
fn make_room(part: &mut HashMap<Key, u64>, now: u64) {
    part.retain(|_, even| *even > now);
    if part.len() < RATE_LIMIT_CALLERS / 2 {
        return;
    }
    let mut all: Vec<u64> = part.values().copied().collect();
    let middle = all.len() / 2;
    let (_, &mut median, _) = all.select_nth_unstable(middle);
    part.retain(|_, even| *even > median);
}

fn part_of(key: &[u8]) -> usize {
    // FNV-1a only spreads the keys over the parts; the map in each part uses a seeded hash function.
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash >> 32) as usize % PARTS
}

fn address(request: &mut Request<'_>) -> Option<Vec<u8>> {
    // Requests to a tower service without an address have the unspecified one, which would count them all as one
    // caller.
    match super::client_address(request).filter(|address| !address.is_unspecified())? {
        IpAddr::V4(address) => Some(address.octets().to_vec()),
        IpAddr::V6(address) => Some(address.octets()[..8].to_vec()),
    }
}

/// The number of requests that a caller has left, and the nanoseconds until its whole burst is available again.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    left: u64,
    reset: u64,
}

const NANOSECONDS: u64 = 1_000_000_000;

impl RateLimit {
    fn write(&self, left: u64, reset: u64, response: &mut Response) {
        for (name, value) in [
            (HeaderName::from_static("ratelimit-limit"), self.burst),
            (HeaderName::from_static("ratelimit-remaining"), left),
            (HeaderName::from_static("ratelimit-reset"), reset.div_ceil(NANOSECONDS)),
        ] {
            response.add_header(name, HeaderValue::from(value));
        }
    }
}

impl Middleware for RateLimit {
    type State = Option<Left>;

    fn before(&self, request: &mut Request<'_>) -> Result<Option<Left>, Response> {
        let Some(key) = (self.key)(request) else { return Ok(None) };
        match self.take(key, context::now().nanoseconds) {
            (Ok(left), reset) => Ok(Some(Left { left, reset })),
            (Err(wait), reset) => {
                let mut response = Response::error(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
                self.write(0, reset, &mut response);
                Err(response.with_header(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(NANOSECONDS))))
            }
        }
    }

    fn after(&self, left: Option<Left>, response: &mut Response) {
        if let Some(Left { left, reset }) = left {
            self.write(left, reset, response);
        }
    }
}

/// Returns the address of the request's peer, or `None` on a unix socket.
pub(super) fn peer_address(request: &Request<'_>) -> Option<IpAddr> {
    address_of(request.peer())
}

/// Returns the address of a peer, or `None` on a unix socket.
pub(super) fn address_of(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Internet(address, _) => Some(address),
        Peer::Local => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = NANOSECONDS;

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let limit = RateLimit::new(10, Duration::from_secs(10));
        let take = |now| limit.take(b"a".to_vec(), now).0;
        for left in (0..10).rev() {
            assert_eq!(take(100 * SECOND), Ok(left));
        }
        assert_eq!(take(100 * SECOND), Err(SECOND));
        assert_eq!(take(100 * SECOND + SECOND / 4), Err(SECOND * 3 / 4));
        assert_eq!((take(101 * SECOND), take(101 * SECOND)), (Ok(0), Err(SECOND)));
        assert_eq!(take(1000 * SECOND), Ok(9), "unused requests add up to one burst at most");
        assert_eq!(limit.take(b"b".to_vec(), 1000 * SECOND), (Ok(9), SECOND), "each caller has its own limit");
    }

    #[test]
    fn keys_of_any_length_count_and_take_no_more_room() {
        let limit = RateLimit::new(1, Duration::from_secs(1));
        for length in [0, 1, KEY_BYTES, KEY_BYTES + 1, 30_000] {
            for last in [1, 2] {
                let key = [vec![0; length], vec![last]].concat();
                assert_eq!(limit.take(key.clone(), SECOND).0, Ok(0), "{length}, {last}");
                assert_eq!(limit.take(key, SECOND).0, Err(SECOND), "{length}, {last}");
            }
        }
        for part in limit.parts.iter() {
            assert!(part.lock().expect("no thread has panicked").keys().all(|key| key.len() <= KEY_BYTES));
        }
    }

    #[test]
    fn callers_without_end_are_forgotten_in_good_order() {
        let limit = RateLimit::new(100, Duration::from_secs(100));
        for _ in 0..100 {
            limit.take(b"greedy".to_vec(), SECOND).0.expect("a request within the burst");
        }
        for number in 0..400_000_u32 {
            limit.take(number.to_be_bytes().to_vec(), SECOND).0.expect("the first request of a caller");
        }
        let held: usize = limit.parts.iter().map(|part| part.lock().expect("no thread has panicked").len()).sum();
        assert!(held <= RATE_LIMIT_CALLERS * PARTS, "{held}");
        assert_eq!(limit.take(b"greedy".to_vec(), SECOND).0, Err(SECOND), "the busiest caller is remembered longest");
    }
}
