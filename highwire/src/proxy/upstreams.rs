//! The servers behind a proxy: which one gets a request, and which ones are healthy.

use super::head::Incoming;
use super::start::Starts;
use crate::Method;
use crate::client::url::{self, Url};
use crate::client::{Client, Error};
use highwire_engine::client::{Failure, Request, Stage};
use highwire_engine::context;
use highwire_engine::time::{sleep, timeout};
use highwire_io::{Instant, random};
use std::cell::Cell;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// The number of failures in a row after which an upstream gets no more requests for a time.
const FAILURES: u32 = 3;

/// The time for which an upstream gets no requests after [`FAILURES`] failures. Then one request at a time tries whether it
/// answers again. If it does not, the time doubles, up to [`LONGEST_EJECTION`]. It is short, because an upstream that is
/// restarted is back in a second, and the requests that try can usually be sent to another one.
const EJECTION: Duration = Duration::from_millis(250);

/// The longest time for which an upstream gets no requests.
const LONGEST_EJECTION: Duration = Duration::from_secs(10);

/// The time after which another request tries an upstream that was ejected, if the one before has no answer.
const TRIAL: Duration = Duration::from_secs(10);
const UPLOAD_TRIAL: Duration = Duration::from_secs(1);

/// The part of the requests that may be sent again, counted over one to two [`PERIOD`]s, and the number that always may. As
/// many as are in progress may, too: if an upstream dies, all of its requests fail at once.
const RETRY_SHARE: f32 = 0.2;
const RETRIES: usize = 100;
const PERIOD: Duration = Duration::from_secs(5);

/// The time between two health checks of an upstream that is not healthy, if the interval of the check is longer.
const IMPATIENCE: Duration = Duration::from_millis(500);

/// How an upstream is chosen among those that are healthy. Each worker chooses for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in progress.
    LeastPending,
    /// Of two at random, the one with fewer requests in progress.
    PowerOfTwo,
    /// By the client's address: the same client gets the same upstream. If an upstream fails, only its own clients get
    /// others.
    ClientAddress,
    /// By the value of this header field, as by [`ClientAddress`](Self::ClientAddress).
    Header(String),
}

/// The regular question whether an upstream is healthy: a GET request that must get a status of 2xx or 3xx.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path of the request.
    pub path: String,
    /// The time between two questions.
    pub interval: Duration,
    /// The time limit for an answer.
    pub timeout: Duration,
    /// The number of good answers in a row after which the upstream is healthy again.
    pub healthy_after: u32,
    /// The number of bad answers in a row after which the upstream gets no more requests.
    pub unhealthy_after: u32,
}

impl HealthCheck {
    /// Returns a check with this path, every 5 seconds, with a time limit of 2 seconds; 2 good or 3 bad answers in a row
    /// change the state.
    pub fn new(path: &str) -> HealthCheck {
        HealthCheck {
            path: path.to_string(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }

    /// Sets [`interval`](Self#structfield.interval).
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> HealthCheck {
        self.interval = interval;
        self
    }

    /// Sets [`timeout`](Self#structfield.timeout).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> HealthCheck {
        self.timeout = timeout;
        self
    }

    /// Sets [`healthy_after`](Self#structfield.healthy_after).
    #[must_use]
    pub fn healthy_after(mut self, healthy_after: u32) -> HealthCheck {
        self.healthy_after = healthy_after;
        self
    }

    /// Sets [`unhealthy_after`](Self#structfield.unhealthy_after).
    #[must_use]
    pub fn unhealthy_after(mut self, unhealthy_after: u32) -> HealthCheck {
        self.unhealthy_after = unhealthy_after;
        self
    }
}

/// The upstreams of a proxy, for all workers.
#[derive(Clone)]
pub(super) struct Upstreams {
    urls: Vec<Arc<Url>>,
    balance: Balance,
    check: Option<HealthCheck>,
    owner: Arc<()>,
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.urls).finish()
    }
}

impl Upstreams {
    pub(super) fn new<U: AsRef<str>>(upstreams: impl IntoIterator<Item = U>) -> Result<Upstreams, Error> {
        let mut urls = Vec::new();
        for upstream in upstreams {
            let (url, credentials) = url::parse(upstream.as_ref())?;
            if credentials.is_some() || url.target().contains('?') {
                return Err(Error::url(upstream.as_ref(), "an upstream has no credentials and no query"));
            }
            urls.push(Arc::new(url));
        }
        if urls.is_empty() {
            return Err(Error::builder("a proxy needs an upstream"));
        }
        Ok(Upstreams { urls, balance: Balance::default(), check: None, owner: Arc::default() })
    }

    pub(super) fn set_balance(&mut self, balance: Balance) {
        // A clone with other settings has a state of its own.
        (self.balance, self.owner) = (balance, Arc::default());
    }

    pub(super) fn set_check(&mut self, check: HealthCheck) {
        (self.check, self.owner) = (Some(check), Arc::default());
    }

    /// Returns the state of the upstreams on the current worker.
    pub(super) fn here(&self, client: &Client) -> Rc<Here> {
        let mut is_new = false;
        let here = context::local(&self.owner, || {
            is_new = true;
            Here {
                upstreams: self.urls.iter().map(|url| Rc::new(Upstream::new(url))).collect(),
                balance: self.balance.clone(),
                next: Cell::default(),
                budget: Budget::default(),
                starts: Starts::default(),
            }
        });
        if is_new && let Some(check) = &self.check {
            for upstream in &here.upstreams {
                context::spawn(watch(Rc::downgrade(upstream), client.clone(), check.clone()));
            }
        }
        here
    }
}

/// The upstreams on one worker.
pub(super) struct Here {
    upstreams: Vec<Rc<Upstream>>,
    balance: Balance,
    next: Cell<usize>,
    budget: Budget,
    /// The clients' connections that have requests here.
    pub(super) starts: Starts,
}

/// The numbers of requests and of further attempts in the current period and in the one before.
#[derive(Default)]
struct Budget {
    begun: Cell<Instant>,
    requests: [Cell<usize>; 2],
    retries: [Cell<usize>; 2],
}

impl Budget {
    /// Begins another period if the current one is over.
    fn look(&self) {
        let periods = context::now().since(self.begun.get()).as_nanos() / PERIOD.as_nanos();
        if periods > 0 {
            for counts in [&self.requests, &self.retries] {
                counts[1].set(if periods == 1 { counts[0].get() } else { 0 });
                counts[0].set(0);
            }
            self.begun.set(context::now());
        }
    }

    fn count_request(&self) {
        self.look();
        self.requests[0].set(self.requests[0].get() + 1);
    }

    /// Returns true if another request may be sent again, and counts it. `pending` requests are in progress.
    fn may_retry(&self, pending: usize) -> bool {
        self.look();
        let sum = |counts: &[Cell<usize>; 2]| counts[0].get() + counts[1].get();
        let most = RETRIES.max(pending) + (sum(&self.requests) as f32 * RETRY_SHARE) as usize;
        let may = sum(&self.retries) < most;
        if may {
            self.retries[0].set(self.retries[0].get() + 1);
        }
        may
    }
}

/// An upstream on one worker.
struct Upstream {
    url: Rc<Url>,
    /// The value of Host, unless the client's is passed on.
    host: Rc<str>,
    /// The number of requests in progress.
    pending: Cell<usize>,
    /// The number of failures in a row, and how often in a row the upstream was ejected because of them.
    failures: Cell<u32>,
    ejections: Cell<u32>,
    /// The moment of the last ejection, and the moment until which the upstream gets no requests.
    ejected_at: Cell<Instant>,
    ejected_until: Cell<Instant>,
    /// The moment until which no other request tries whether an upstream answers again that was ejected.
    tried_until: Cell<Instant>,
    /// The moment of the last answer.
    answered_at: Cell<Instant>,
    /// True if the health checks have found the upstream unhealthy, and the number of answers in a row that say the
    /// opposite of that.
    is_unhealthy: Cell<bool>,
    against: Cell<u32>,
}

impl Upstream {
    fn new(url: &Url) -> Upstream {
        Upstream {
            url: Rc::new(url.clone()),
            host: url.authority().into(),
            pending: Cell::default(),
            failures: Cell::default(),
            ejections: Cell::default(),
            ejected_at: Cell::default(),
            ejected_until: Cell::default(),
            tried_until: Cell::default(),
            answered_at: Cell::default(),
            is_unhealthy: Cell::default(),
            against: Cell::default(),
        }
    }

    /// Forgets the failures, because the upstream answers.
    fn absolve(&self) {
        if self.ejections.get() > 0 {
            highwire_engine::log!(Upstream, info, upstream = ?self.url, "an upstream answers again");
        }
        self.forget_failures();
    }

    fn forget_failures(&self) {
        self.ejections.set(0);
        self.failures.set(0);
        self.ejected_until.set(Instant::default());
    }

    fn is_ejected(&self) -> bool {
        self.ejected_until.get() > context::now()
    }

    fn is_usable(&self) -> bool {
        let is_on_trial = self.ejections.get() > 0 && self.tried_until.get() > context::now();
        !self.is_unhealthy.get() && !self.is_ejected() && !is_on_trial
    }

    /// Gives the upstream no more requests for a time.
    fn eject(&self, failure: &Failure) {
        let ejections = self.ejections.get();
        let time = EJECTION.saturating_mul(1 << ejections.min(10)).min(LONGEST_EJECTION);
        self.failures.set(0);
        self.ejections.set(ejections.saturating_add(1));
        self.ejected_at.set(context::now());
        self.ejected_until.set(context::now() + time);
        let text = "an upstream gets no requests for a time";
        highwire_engine::log!(Upstream, warn, upstream = ?self.url, ?time, %failure, "{text}");
    }

    /// Records the result of a health check. A good one ends an ejection.
    fn checked(&self, result: Result<(), String>, check: &HealthCheck) {
        let is_good = result.is_ok();
        if is_good {
            self.absolve();
        }
        if is_good != self.is_unhealthy.get() {
            return self.against.set(0);
        }
        let against = self.against.get() + 1;
        let needed = if is_good { check.healthy_after } else { check.unhealthy_after };
        let changes = against >= needed;
        self.against.set(if changes { 0 } else { against });
        if changes {
            self.is_unhealthy.set(!is_good);
            self.forget_failures();
            let (upstream, path) = (&self.url, &check.path);
            match result {
                Ok(()) => tracing::info!(?upstream, path, "an upstream is healthy again"),
                Err(why) => tracing::warn!(?upstream, path, why, "an upstream is unhealthy and gets no requests"),
            }
        }
    }
}

impl Here {
    /// Chooses an upstream for a request, if possible none of `tried`. `is_upload` is true if its body is passed on in parts.
    pub(super) fn choose(&self, incoming: &Incoming, tried: &[usize], is_upload: bool) -> Chosen {
        let at = if self.upstreams.len() == 1 { 0 } else { self.candidate(incoming, tried) };
        let upstream = self.upstreams[at].clone();
        upstream.pending.set(upstream.pending.get() + 1);
        let tries = (upstream.ejections.get() > 0 && upstream.is_usable()).then(|| {
            // An upstream answers an upload at its end.
            context::now() + if is_upload { UPLOAD_TRIAL } else { TRIAL }
        });
        tries.into_iter().for_each(|until| upstream.tried_until.set(until));
        Chosen { upstream, at, begun: context::now(), tries }
    }

    /// Counts a request, of which the retries are a part.
    pub(super) fn count_request(&self) {
        self.budget.count_request();
    }

    /// Returns true if there is only one upstream.
    pub(super) fn is_single(&self) -> bool {
        self.upstreams.len() == 1
    }

    /// Returns true if a request could be sent to an upstream that is none of `tried`.
    pub(super) fn has_another(&self, tried: &[usize]) -> bool {
        let is_another = |(at, upstream): (usize, &Rc<Upstream>)| !tried.contains(&at) && upstream.is_usable();
        !self.is_single() && self.upstreams.iter().enumerate().any(is_another)
    }

    /// Chooses among several upstreams, and returns the index.
    fn candidate(&self, incoming: &Incoming, tried: &[usize]) -> usize {
        let usable = |at: &usize| !tried.contains(at) && self.upstreams[*at].is_usable();
        let mut candidates: Vec<usize> = (0..self.upstreams.len()).filter(usable).collect();
        if candidates.is_empty() {
            // A wrong guess is better than a certain refusal.
            candidates = (0..self.upstreams.len()).filter(|at| !tried.contains(at)).collect();
        }
        if candidates.is_empty() {
            candidates = (0..self.upstreams.len()).collect();
        }
        let pending = |at: usize| self.upstreams[at].pending.get();
        let turn = self.next.get();
        self.next.set(turn.wrapping_add(1));
        match &self.balance {
            _ if candidates.len() == 1 => candidates[0],
            Balance::RoundRobin => candidates[turn % candidates.len()],
            Balance::LeastPending => {
                // Equal ones take turns.
                let begin = turn % candidates.len();
                let in_turn = candidates[begin..].iter().chain(&candidates[..begin]);
                in_turn.copied().min_by_key(|&at| pending(at)).unwrap_or(candidates[0])
            }
            Balance::PowerOfTwo => {
                let random = random::system();
                let (one, other) = (random as u32 as usize, (random >> 32) as usize);
                let (one, other) = (candidates[one % candidates.len()], candidates[other % candidates.len()]);
                if pending(other) < pending(one) { other } else { one }
            }
            Balance::ClientAddress => self.by_key(&candidates, &incoming.peer()),
            Balance::Header(name) => self.by_key(&candidates, &incoming.header(name)),
        }
    }

    /// Returns the candidate whose hash with the key is the largest (rendezvous hashing).
    fn by_key(&self, candidates: &[usize], key: &impl Hash) -> usize {
        let weight = |&at: &usize| {
            let mut hasher = DefaultHasher::new();
            (self.upstreams[at].url.origin(), self.upstreams[at].url.target(), key).hash(&mut hasher);
            hasher.finish()
        };
        candidates.iter().copied().max_by_key(weight).unwrap_or_default()
    }

    /// Returns true if another request may be sent again, and counts it.
    pub(super) fn may_retry(&self) -> bool {
        self.budget.may_retry(self.upstreams.iter().map(|upstream| upstream.pending.get()).sum())
    }
}

/// An upstream that has a request in progress.
pub(super) struct Chosen {
    upstream: Rc<Upstream>,
    at: usize,
    begun: Instant,
    /// The end of the time in which only this request tries whether an upstream answers again that was ejected, if it does.
    tries: Option<Instant>,
}

impl Chosen {
    pub(super) fn url(&self) -> &Rc<Url> {
        &self.upstream.url
    }

    /// Returns the upstream's own value of Host.
    pub(super) fn host(&self) -> Rc<str> {
        self.upstream.host.clone()
    }

    pub(super) fn index(&self) -> usize {
        self.at
    }

    /// Records an answer. Its status does not matter, because clients can cause most statuses.
    pub(super) fn answered(&mut self) {
        self.upstream.answered_at.set(context::now());
        self.upstream.absolve();
        self.end_try();
    }

    fn end_try(&mut self) {
        // Another one may try since, because this one has taken too long.
        if self.tries.take().is_some_and(|until| until == self.upstream.tried_until.get()) {
            self.upstream.tried_until.set(Instant::default());
        }
    }

    /// Returns true if the upstream has answered no request since this one began: it hangs, and this request is not slow by
    /// itself.
    pub(super) fn is_silent(&self) -> bool {
        self.upstream.answered_at.get() < self.begun
    }

    /// Returns the time since this request began, or since the upstream's last answer to another one.
    pub(super) fn silence(&self) -> Duration {
        context::now().since(self.begun.max(self.upstream.answered_at.get()))
    }

    /// Records that there was no answer.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.end_try();
        // The others are not the upstream's fault.
        let is_theirs = matches!(
            failure,
            Failure::Resolve(_)
                | Failure::Connect(_)
                | Failure::Tls(_)
                | Failure::Proxy(_)
                | Failure::Malformed(_)
                | Failure::Http2(..)
                | Failure::Lost
                | Failure::TimedOut(Stage::Resolve | Stage::Connect | Stage::Handshake | Stage::Head)
        );
        // A client can cause that a request fails, as by one that takes long, but not that no other is answered. Requests
        // that began before the last ejection, and those that were sent in spite of it, say nothing new.
        let is_new = self.begun >= self.upstream.ejected_at.get() && !self.upstream.is_ejected();
        if !is_theirs || !is_new || !self.is_silent() {
            return;
        }
        let failures = self.upstream.failures.get() + 1;
        let hangs = matches!(failure, Failure::TimedOut(Stage::Head));
        if failures >= FAILURES || hangs || self.upstream.ejections.get() > 0 {
            return self.upstream.eject(failure);
        }
        self.upstream.failures.set(failures);
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.end_try();
        self.upstream.pending.set(self.upstream.pending.get().saturating_sub(1));
    }
}

/// Asks an upstream regularly whether it is healthy.
async fn watch(upstream: Weak<Upstream>, client: Client, check: HealthCheck) {
    loop {
        let Some(url) = upstream.upgrade().map(|upstream| upstream.url.clone()) else { return };
        let scheme = if url.is_secure() { "https" } else { "http" };
        let request = Request::new(Method::GET, scheme, url.authority().into(), check.path.clone());
        let result = timeout(check.timeout, client.send_to(&url, request, None)).await;
        let result = match result {
            Ok(Ok(answer)) if (200..400).contains(&answer.head.status) => Ok(()),
            Ok(Ok(answer)) => Err(format!("it answers with {}", answer.head.status)),
            Ok(Err((failure, _))) => Err(failure.to_string()),
            Err(_) => Err(format!("it has not answered within {:?}", check.timeout)),
        };
        let Some(upstream) = upstream.upgrade() else { return };
        upstream.checked(result, &check);
        let is_urgent = upstream.is_unhealthy.get() || upstream.ejections.get() > 0;
        drop(upstream);
        sleep(if is_urgent { check.interval.min(IMPATIENCE) } else { check.interval }).await;
    }
}
