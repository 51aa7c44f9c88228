//! Looks up the addresses of host names.
//!
//! [`Resolve::resolve`] starts a lookup and passes the result to a callback, usually on another thread, so that no
//! event loop waits. [`SystemResolver`] uses the system's resolver (`getaddrinfo`), which usually reads the hosts file,
//! applies search domains and sorts the addresses as RFC 6724 describes. The simulator's implementation is
//! [`sim::names`](crate::sim::names).

use crate::limit;
use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The callback for the result of a lookup: at least one address, the best one first, or an error.
pub type Answer = Box<dyn FnOnce(io::Result<Vec<SocketAddr>>) + Send>;

/// Looks up host names.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// Starts a lookup. Calls `answer` exactly once, on any thread, possibly before this function returns.
    ///
    /// `host` is a name, or an IP address without brackets. The resulting addresses have the given port.
    ///
    /// # Errors
    /// Passes an error to `answer`: [`io::ErrorKind::NotFound`] if the name does not exist or has no address,
    /// [`io::ErrorKind::TimedOut`] if no name server answers, [`io::ErrorKind::InvalidInput`] if the text cannot be a
    /// host name, [`io::ErrorKind::QuotaExceeded`] if too many lookups are waiting, or the system's error.
    fn resolve(&self, host: &str, port: u16, answer: Answer);
}

/// The system's resolver, called on at most [`limit::RESOLVER_THREADS`] threads of its own. Clones share the threads.
///
/// Callers that resolve the same name at the same time share one lookup. The results are not cached, because the
/// system's resolver does not report how long they are valid.
#[derive(Clone)]
pub struct SystemResolver {
    shared: Arc<Shared>,
}

impl fmt::Debug for SystemResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemResolver").field(&*self.shared.locked()).finish()
    }
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver::with(look_up)
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    look_up: LookUp,
}

/// Looks a name up and waits for the result.
type LookUp = fn(&str) -> Result<Vec<SocketAddr>, Failure>;

#[derive(Default)]
struct State {
    /// The callers that wait for each name, with their ports.
    callers: HashMap<String, Vec<(u16, Answer)>>,
    /// The number of callers that wait, for all names together.
    waiting: usize,
    /// Names that no thread has taken yet.
    queue: VecDeque<String>,
    threads: usize,
    /// The number of threads that wait for a name.
    idle: usize,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("queue", &self.queue).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// An error in a form that can be copied for several callers.
type Failure = (io::ErrorKind, String);

impl SystemResolver {
    /// Creates a resolver without threads. The first lookup starts one.
    pub fn new() -> SystemResolver {
        SystemResolver::default()
    }

    fn with(look_up: LookUp) -> SystemResolver {
        SystemResolver { shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), look_up }) }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16, answer: Answer) {
        if let Some(known) = without_lookup(host, port) {
            return answer(known);
        }
        if let Err((answer, error)) = self.shared.enqueue(host, port, answer) {
            answer(Err(error));
        }
    }
}

/// Returns the answer for a host that needs no lookup: an IP address, or a text that cannot be a host name.
pub(crate) fn without_lookup(host: &str, port: u16) -> Option<io::Result<Vec<SocketAddr>>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(Ok(vec![SocketAddr::new(address, port)]));
    }
    let why = match host.len() {
        0 => "it is empty",
        length if length > limit::HOST_NAME_BYTES => "it is longer than 254 bytes",
        _ if host.bytes().any(|byte| byte <= b' ' || byte == 0x7f) => "it contains a space or a control character",
        _ => return None,
    };
    let shown: String = host.chars().take(64).collect();
    Some(Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{shown:?} is not a host name: {why}"))))
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a caller, and queues the name unless a lookup of it is already waiting or in progress. Returns the callback
    /// with an error if too many callers or names are waiting, or if there is no thread and none can be started.
    fn enqueue(self: &Arc<Self>, host: &str, port: u16, answer: Answer) -> Result<(), (Answer, io::Error)> {
        let full =
            || io::Error::new(io::ErrorKind::QuotaExceeded, format!("cannot resolve {host}: too many lookups wait"));
        let mut state = self.locked();
        if state.waiting == limit::RESOLVER_CALLERS {
            return Err((answer, full()));
        }
        if let Some(callers) = state.callers.get_mut(host) {
            callers.push((port, answer));
            state.waiting += 1;
            return Ok(());
        }
        if state.queue.len() == limit::RESOLVER_QUEUE {
            return Err((answer, full()));
        }
        if state.idle <= state.queue.len() && state.threads < limit::RESOLVER_THREADS {
            let shared = self.clone();
            let started = std::thread::Builder::new().name("highwire-resolve".into()).spawn(move || shared.work());
            match started {
                Ok(_) => state.threads += 1,
                // The existing threads will do the lookup.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err((answer, error)),
            }
        }
        state.callers.insert(host.to_string(), vec![(port, answer)]);
        state.queue.push_back(host.to_string());
        state.waiting += 1;
        self.changed.notify_one();
        Ok(())
    }

    /// Looks up queued names until the queue has been empty for [`limit::RESOLVER_IDLE`].
    fn work(&self) {
        while let Some(host) = self.next() {
            // If the lookup panics, this thread continues and the callers get an error.
            let found = caught(|| (self.look_up)(&host));
            let found = found
                .unwrap_or_else(|| Err((io::ErrorKind::Other, format!("cannot resolve {host}: the lookup panicked"))));
            let callers = {
                let mut state = self.locked();
                let callers = state.callers.remove(&host).unwrap_or_default();
                state.waiting -= callers.len();
                callers
            };
            for (port, answer) in callers {
                let found = match &found {
                    Ok(addresses) => Ok(with_port(addresses, port)),
                    Err((kind, text)) => Err(io::Error::new(*kind, text.clone())),
                };
                // If a callback panics, the other callers still get their results.
                caught(|| answer(found));
            }
        }
    }

    fn next(&self) -> Option<String> {
        let mut state = self.locked();
        loop {
            if let Some(host) = state.queue.pop_front() {
                return Some(host);
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, limit::RESOLVER_IDLE);
            let (mut woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            woken.idle -= 1;
            if timeout.timed_out() && woken.queue.is_empty() {
                woken.threads -= 1;
                return None;
            }
            state = woken;
        }
    }
}

/// Calls a function. Returns `None` if it panics.
fn caught<R>(function: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // Dropping the payload could panic again, so leak it.
            std::mem::forget(payload);
            None
        }
    }
}

pub(crate) fn with_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    let mut addresses = addresses.to_vec();
    addresses.iter_mut().for_each(|address| address.set_port(port));
    addresses
}

/// Looks up a name and waits for the result.
fn look_up(host: &str) -> Result<Vec<SocketAddr>, Failure> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(host), None, Some(hints)).map_err(|error| {
        let (kind, why) = match error.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => {
                (io::ErrorKind::NotFound, "the name has no address".into())
            }
            LookupErrorKind::Again => (io::ErrorKind::TimedOut, "no name server has answered".into()),
            _ => (io::ErrorKind::Other, io::Error::from(error).to_string()),
        };
        (kind, format!("cannot resolve {host}: {why}"))
    })?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    // Entries that are not internet addresses are left out.
    for address in found.filter_map(Result::ok).map(|entry| entry.sockaddr) {
        if addresses.len() < limit::RESOLVED_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err((io::ErrorKind::NotFound, format!("cannot resolve {host}: the name has no address")));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// The longest wait for an expected event.
    const STUCK: Duration = Duration::from_secs(60);

    fn answer(resolver: &SystemResolver, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (sender, receiver) = mpsc::channel();
        resolver.resolve(host, port, Box::new(move |found| sender.send(found).expect("the test is waiting")));
        receiver.recv_timeout(STUCK).expect("an answer")
    }

    #[test]
    fn names_and_addresses_are_resolved_with_their_port() {
        let resolver = SystemResolver::new();
        for (host, expected) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("fe80::1", "[fe80::1]:80")] {
            let found = answer(&resolver, host, 80).expect("an address");
            assert_eq!(found, [expected.parse().expect("an address")], "{host}");
        }
        // Systems resolve this name without a name server, by the hosts file or by a rule in the resolver.
        let found = answer(&resolver, "localhost", 81).expect("the name exists");
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback() && address.port() == 81));
    }

    #[test]
    fn a_text_that_cannot_be_a_name_is_refused_without_a_lookup() {
        let resolver = SystemResolver::new();
        for host in ["", "a b", "a\0b", "a\nb", &"a".repeat(255)] {
            let error = answer(&resolver, host, 80).expect_err("the text is not a host name");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{host:?}: {error}");
        }
        assert_eq!(resolver.shared.locked().threads, 0);
    }

    #[test]
    fn a_name_that_cannot_be_resolved_is_named() {
        // RFC 6761, section 6.4: this name never exists. If no name server answers, the error has another kind.
        let error = answer(&SystemResolver::new(), "highwire.invalid", 80).expect_err("there is no such name");
        assert!(error.to_string().starts_with("cannot resolve highwire.invalid: "), "{error}");
    }

    #[test]
    fn a_lookup_that_panics_is_answered_and_costs_no_thread() {
        let resolver = SystemResolver::with(|_| panic!("on purpose"));
        for _ in 0..2 * limit::RESOLVER_THREADS {
            let error = answer(&resolver, "name", 80).expect_err("it panicked");
            assert_eq!(error.to_string(), "cannot resolve name: the lookup panicked");
        }
        let state = resolver.shared.locked();
        assert!((1..=limit::RESOLVER_THREADS).contains(&state.threads), "{state:?}");
        assert_eq!((state.waiting, state.callers.len()), (0, 0));
    }

    #[test]
    fn more_names_than_threads_wait_and_are_all_answered() {
        let resolver = SystemResolver::with(|host| {
            std::thread::yield_now();
            if host.ends_with('7') {
                Err((io::ErrorKind::NotFound, "no".into()))
            } else {
                Ok(vec![([127, 0, 0, 1], 0).into()])
            }
        });
        let (sender, receiver) = mpsc::channel();
        for number in 0..100_u16 {
            let sender = sender.clone();
            let answer = Box::new(move |found: io::Result<Vec<SocketAddr>>| {
                let port = found.map_or(0, |found| found[0].port());
                sender.send((number, port)).expect("the test waits");
            });
            resolver.resolve(&format!("name-{number}"), 1000 + number, answer);
        }
        let mut answers: Vec<_> = (0..100).map(|_| receiver.recv_timeout(STUCK).expect("an answer")).collect();
        answers.sort_unstable();
        let expected = |number: u16| (number, if number % 10 == 7 { 0 } else { 1000 + number });
        assert_eq!(answers, (0..100).map(expected).collect::<Vec<_>>());
    }

    #[test]
    fn more_callers_than_allowed_are_refused() {
        let resolver = SystemResolver::new();
        resolver.shared.locked().waiting = limit::RESOLVER_CALLERS;
        let error = answer(&resolver, "one-more", 80).expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }

    #[test]
    fn callers_of_one_name_share_a_lookup_and_one_that_panics_takes_nothing_from_the_others() {
        let resolver = SystemResolver::new();
        let (sender, receiver) = mpsc::channel();
        let callers: Vec<(u16, Answer)> = (0..10)
            .map(|port| {
                let sender = sender.clone();
                let answer: Answer = Box::new(move |found: io::Result<Vec<SocketAddr>>| {
                    assert!(port != 3, "this caller panics");
                    sender.send(found.expect("the name exists")[0].port()).expect("the test is waiting");
                });
                (port, answer)
            })
            .collect();
        // Adds the callers as if a lookup of the name were in progress.
        {
            let mut state = resolver.shared.locked();
            state.waiting = callers.len();
            state.callers.insert("localhost".into(), callers);
        }
        resolver.resolve(
            "localhost",
            10,
            Box::new(move |found| sender.send(found.expect("the name exists")[0].port()).expect("the test is waiting")),
        );
        assert!(resolver.shared.locked().queue.is_empty(), "the lookup is in progress already");
        resolver.shared.locked().queue.push_back("localhost".into());
        let worker = {
            let shared = resolver.shared.clone();
            std::thread::spawn(move || {
                shared.locked().threads += 1;
                shared.work()
            })
        };
        let ports: Vec<u16> = (0..10).map(|_| receiver.recv_timeout(STUCK).expect("an answer")).collect();
        assert_eq!(ports, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
        drop(worker);
    }

    #[test]
    fn more_names_than_the_queue_holds_are_refused() {
        let resolver = SystemResolver::new();
        {
            let mut state = resolver.shared.locked();
            state.threads = limit::RESOLVER_THREADS;
            state.queue.extend((0..limit::RESOLVER_QUEUE).map(|number| format!("name-{number}")));
        }
        let error = answer(&resolver, "one-more", 80).expect_err("the queue is full");
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }
}
