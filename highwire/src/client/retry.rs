//! Middleware of a client that sends requests again after some responses and failures.

use super::error::Error;
use super::middleware::{Middleware, Next, Sending};
use super::request::Request;
use super::response::Response;
use super::send::is_idempotent;
use crate::StatusCode;
use highwire_engine::context;
use highwire_engine::time::sleep;
use highwire_io::random;
use http::header;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a retry costs of the budget, in thousandths.
const COST: u32 = 1000;

/// What a request that is not a retry adds to the budget: one retry for each ten requests.
const EARNED: u32 = COST / 10;

/// The most that the budget holds: ten retries in a row.
const MOST_BUDGET: u32 = 10 * COST;

/// Sends a request again, after a wait, if its server answers with a status that means "later", or cannot be reached.
///
/// A request is sent at most four times, and again only after 429, 502, 503 or 504, or if there was no connection. The waits are random:
/// between half of 100 ms and 100 ms, then twice as long each time, up to 10 s. A `Retry-After` in seconds or as a date sets the wait
/// instead; if it is longer than the longest wait, or than the rest of the request's time limit, the caller gets the response
/// at once. Only requests that may be repeated without harm (RFC 9110 section 9.2.2) are sent again after a response,
/// and none whose body is made in parts.
///
/// All requests of a client share a budget, so that a server with trouble does not get several times its load: each request adds a
/// tenth of a retry, up to ten. Without budget, the caller gets the response or the error at once.
///
/// These retries are besides those of lost connections ([`ClientBuilder::retries`](super::ClientBuilder::retries)), which need no wait.
///
/// ```
/// use highwire::StatusCode;
/// use highwire::client::{Client, Retry};
/// use std::time::Duration;
///
/// let client = Client::builder()
///     .with(Retry::new().attempts(3).statuses([StatusCode::SERVICE_UNAVAILABLE]).waits(Duration::from_millis(50), Duration::from_secs(2)))
///     .build()?;
/// # let _ = client;
/// # Ok::<(), highwire::client::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Retry {
    attempts: u32,
    statuses: Vec<StatusCode>,
    is_for_every_method: bool,
    first: Duration,
    most: Duration,
    budget: AtomicU32,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry::new()
    }
}

impl Retry {
    /// Creates the middleware with the defaults above.
    pub fn new() -> Retry {
        Retry {
            attempts: 4,
            statuses: vec![
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::GATEWAY_TIMEOUT,
            ],
            is_for_every_method: false,
            first: Duration::from_millis(100),
            most: Duration::from_secs(10),
            budget: AtomicU32::new(MOST_BUDGET),
        }
    }

    /// Sets how often a request is sent at most; at least once.
    pub fn attempts(mut self, attempts: u32) -> Retry {
        self.attempts = attempts.max(1);
        self
    }

    /// Sets the statuses after which a request is sent again.
    pub fn statuses(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Retry {
        self.statuses = statuses.into_iter().collect();
        self
    }

    /// Sends requests of every method again, also POST and PATCH: for servers that recognize a repeated request, such as by an
    /// `Idempotency-Key`.
    pub fn every_method(mut self) -> Retry {
        self.is_for_every_method = true;
        self
    }

    /// Sets the first wait, and the longest.
    pub fn waits(mut self, first: Duration, most: Duration) -> Retry {
        (self.first, self.most) = (first, most);
        self
    }

    /// Takes the cost of a retry from the budget. Returns false if it does not have it.
    fn pays(&self) -> bool {
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |budget| budget.checked_sub(COST)).is_ok()
    }

    fn earn(&self) {
        let earned = |budget: u32| Some((budget + EARNED).min(MOST_BUDGET));
        // The function always returns a value.
        let _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earned);
    }

    /// Returns the wait before the attempt that follows `attempt`, which counts from 1.
    fn backoff(&self, attempt: u32) -> Duration {
        let whole = self.first.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX)).min(self.most);
        // Half of it is random, so that clients that have failed together do not return together.
        whole / 2 + (whole / 2).mul_f64((random::system() >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// Returns the wait before the next attempt; `None` if the result is final.
    fn wait(&self, result: &Result<Response, Error>, attempt: u32, is_repeatable: bool) -> Option<Duration> {
        match result {
            Ok(response) if is_repeatable && self.statuses.contains(&response.status()) => {
                let wait = retry_after(response).unwrap_or_else(|| self.backoff(attempt));
                (wait <= self.most).then_some(wait)
            }
            Ok(_) => None,
            // The server has not got the request.
            Err(error) => error.is_connect().then(|| self.backoff(attempt)),
        }
    }
}

/// Returns the wait that a server asks for: a number of seconds, or the time until a date (RFC 9110 section 10.2.3).
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.header(header::RETRY_AFTER.as_str())?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(context::time_of_day()).unwrap_or_default())
}

impl Middleware for Retry {
    fn handle<'r>(&'r self, request: Request, next: Next<'r>) -> Sending<'r> {
        Box::pin(async move {
            self.earn();
            let is_repeatable = self.is_for_every_method || is_idempotent(request.method());
            let (mut request, mut attempt) = (request, 0);
            loop {
                attempt += 1;
                let again = (attempt < self.attempts).then(|| request.try_clone()).flatten();
                let result = next.clone().run(request).await;
                let wait = self.wait(&result, attempt, is_repeatable);
                let (Some(again), Some(wait)) = (again, wait) else { return result };
                if next.time_left().is_some_and(|left| left <= wait) || !self.pays() {
                    return result;
                }
                tracing::debug!(uri = %again.uri(), attempt, ?wait, "a request is sent again");
                drop(result);
                sleep(wait).await;
                request = again;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_within_their_bounds() {
        let retry = Retry::new().waits(Duration::from_millis(100), Duration::from_secs(1));
        for (attempt, whole) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (40, 1000)] {
            for _ in 0..50 {
                let wait = retry.backoff(attempt).as_millis();
                assert!((whole / 2..=whole).contains(&wait), "{attempt}: {wait}");
            }
        }
    }

    #[test]
    fn the_budget_bounds_retries() {
        let retry = Retry::new();
        assert_eq!((0..100).filter(|_| retry.pays()).count(), 10);
        (0..9).for_each(|_| retry.earn());
        assert!(!retry.pays());
        retry.earn();
        assert!(retry.pays() && !retry.pays());
        (0..1000).for_each(|_| retry.earn());
        assert_eq!((0..100).filter(|_| retry.pays()).count(), 10);
    }
}
