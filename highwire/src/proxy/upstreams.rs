//! The servers behind a proxy: which one gets a request, and which ones are healthy.

use super::head::Incoming;
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

/// The time for which an upstream gets no requests after [`FAILURES`] failures. It doubles with each further time, up to
/// [`LONGEST_EJECTION`].
const EJECTION: Duration = Duration::from_secs(5);

/// The longest time for which an upstream gets no requests.
const LONGEST_EJECTION: Duration = Duration::from_secs(300);

/// The part of the requests that may be sent again, and the most that may be sent again in a row.
const RETRY_SHARE: f32 = 0.2;
const RETRIES_IN_A_ROW: f32 = 10.0;

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
                budget: Cell::new(RETRIES_IN_A_ROW),
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
    /// The number of requests that may be sent again.
    budget: Cell<f32>,
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
            is_unhealthy: Cell::default(),
            against: Cell::default(),
        }
    }

    /// Forgets the failures.
    fn absolve(&self) {
        self.failures.set(0);
        self.ejections.set(0);
        self.ejected_until.set(Instant::default());
    }

    fn is_usable(&self) -> bool {
        !self.is_unhealthy.get() && self.ejected_until.get() <= context::now()
    }

    /// Records the result of a health check.
    fn checked(&self, is_good: bool, check: &HealthCheck) {
        if is_good != self.is_unhealthy.get() {
            return self.against.set(0);
        }
        let against = self.against.get() + 1;
        let needed = if is_good { check.healthy_after } else { check.unhealthy_after };
        let changes = against >= needed;
        self.against.set(if changes { 0 } else { against });
        if changes {
            self.is_unhealthy.set(!is_good);
            self.absolve();
            tracing::warn!(upstream = ?self.url, healthy = is_good, "the health of an upstream has changed");
        }
    }
}

impl Here {
    /// Chooses an upstream for a request, if possible none of `tried`.
    pub(super) fn choose(&self, incoming: &Incoming, tried: &[usize]) -> Chosen {
        self.budget.set((self.budget.get() + if tried.is_empty() { RETRY_SHARE } else { 0.0 }).min(RETRIES_IN_A_ROW));
        let at = if self.upstreams.len() == 1 { 0 } else { self.candidate(incoming, tried) };
        let upstream = self.upstreams[at].clone();
        upstream.pending.set(upstream.pending.get() + 1);
        Chosen { upstream, at, begun: context::now() }
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
        let may = self.budget.get() >= 1.0;
        if may {
            self.budget.set(self.budget.get() - 1.0);
        }
        may
    }
}

/// An upstream that has a request in progress.
pub(super) struct Chosen {
    upstream: Rc<Upstream>,
    at: usize,
    begun: Instant,
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
    pub(super) fn answered(&self) {
        self.upstream.absolve();
    }

    /// Records that there was no answer.
    pub(super) fn failed(&self, failure: &Failure) {
        // The others are not the upstream's fault, or clients can cause them, as by a request that takes long.
        let is_theirs = matches!(
            failure,
            Failure::Resolve(_)
                | Failure::Connect(_)
                | Failure::Tls(_)
                | Failure::Proxy(_)
                | Failure::Malformed(_)
                | Failure::Http2(..)
                | Failure::Lost
                | Failure::TimedOut(Stage::Resolve | Stage::Connect | Stage::Handshake)
        );
        // Requests that began before the last ejection say nothing new.
        if is_theirs && self.begun >= self.upstream.ejected_at.get() {
            self.count();
        }
    }

    fn count(&self) {
        let upstream = &self.upstream;
        let failures = upstream.failures.get() + 1;
        if failures < FAILURES {
            return upstream.failures.set(failures);
        }
        let ejections = upstream.ejections.get();
        let time = EJECTION.saturating_mul(1 << ejections.min(10)).min(LONGEST_EJECTION);
        upstream.failures.set(0);
        upstream.ejections.set(ejections.saturating_add(1));
        upstream.ejected_at.set(context::now());
        upstream.ejected_until.set(context::now() + time);
        tracing::warn!(upstream = ?upstream.url, ?time, "an upstream gets no requests for a time");
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.upstream.pending.set(self.upstream.pending.get().saturating_sub(1));
    }
}

/// Asks an upstream regularly whether it is healthy.
async fn watch(upstream: Weak<Upstream>, client: Client, check: HealthCheck) {
    loop {
        let Some(url) = upstream.upgrade().map(|upstream| upstream.url.clone()) else { return };
        let scheme = if url.is_secure() { "https" } else { "http" };
        let request = Request::new(Method::GET, scheme, url.authority().into(), check.path.clone());
        let result = timeout(check.timeout, client.send_to(&url, request)).await;
        let is_good = match result {
            Ok(Ok(answer)) => (200..400).contains(&answer.head.status),
            Ok(Err(_)) | Err(_) => false,
        };
        match upstream.upgrade() {
            Some(upstream) => upstream.checked(is_good, &check),
            None => return,
        }
        sleep(check.interval).await;
    }
}
