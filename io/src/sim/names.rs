//! Host names in memory, with slow and failing lookups: the simulator's implementation of [`resolve`](crate::resolve).

use crate::random::Seeded;
use crate::resolve::{Answer, Resolve, with_port, without_lookup};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A table of host names. Clones share it.
///
/// Each lookup of a name waits until [`answer`](Self::answer) answers it, so that a test decides how long lookups take
/// in virtual time.
#[derive(Clone, Debug)]
pub struct SimulatedNames {
    state: Arc<Mutex<State>>,
}

struct State {
    names: BTreeMap<String, Vec<IpAddr>>,
    waiting: VecDeque<(String, u16, Answer)>,
    /// On average, one in this many lookups fails because no name server answers. If it is 0, no lookup fails in this
    /// way.
    lost: u32,
    random: Seeded,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("names", &self.names)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl SimulatedNames {
    /// Creates an empty table. On average, one in `lost` lookups fails with [`io::ErrorKind::TimedOut`]. If `lost` is
    /// 0, no lookup fails in this way.
    pub fn new(seed: u64, lost: u32) -> SimulatedNames {
        let random = Seeded::new(seed);
        SimulatedNames {
            state: Arc::new(Mutex::new(State { names: BTreeMap::new(), waiting: VecDeque::new(), lost, random })),
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the addresses of a name. A name without addresses counts as one that does not exist.
    pub fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.locked().names.insert(name.to_string(), addresses.to_vec());
    }

    /// Returns the number of waiting lookups.
    pub fn waiting(&self) -> usize {
        self.locked().waiting.len()
    }

    /// Answers the lookup that has waited longest. Returns false if none waits.
    pub fn answer(&self) -> bool {
        let (found, answer) = {
            let mut state = self.locked();
            let Some((host, port, answer)) = state.waiting.pop_front() else { return false };
            let lost = state.lost;
            let addresses: Vec<SocketAddr> =
                state.names.get(&host).into_iter().flatten().map(|&address| SocketAddr::new(address, 0)).collect();
            let found = if state.random.one_in(lost) {
                let text = format!("cannot resolve {host}: no name server has answered");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            } else if addresses.is_empty() {
                let text = format!("cannot resolve {host}: the name has no address");
                Err(io::Error::new(io::ErrorKind::NotFound, text))
            } else {
                Ok(with_port(&addresses, port))
            };
            (found, answer)
        };
        // Called without the lock, because the callback may start another lookup.
        answer(found);
        true
    }
}

impl Resolve for SimulatedNames {
    fn resolve(&self, host: &str, port: u16, answer: Answer) {
        match without_lookup(host, port) {
            Some(known) => answer(known),
            None => self.locked().waiting.push_back((host.to_string(), port, answer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn lookups_wait_until_they_are_answered_and_fail_as_the_seed_decides() {
        let run = |seed| {
            let names = SimulatedNames::new(seed, 3);
            names.set("a", &[IpAddr::V4(Ipv4Addr::LOCALHOST)]);
            let seen = Arc::new(Mutex::new(Vec::new()));
            for host in ["a", "b", "a", "a", "a", "127.0.0.2"] {
                let seen = seen.clone();
                let answer = Box::new(move |found: io::Result<Vec<SocketAddr>>| {
                    let text = found.map_or_else(|error| error.to_string(), |found| found[0].to_string());
                    seen.lock().expect("no panic").push(text);
                });
                names.resolve(host, 80, answer);
            }
            assert_eq!(names.waiting(), 5);
            assert_eq!(*seen.lock().expect("no panic"), ["127.0.0.2:80"]);
            while names.answer() {}
            let seen = seen.lock().expect("no panic").clone();
            assert_eq!(seen.len(), 6);
            seen
        };
        let all: Vec<Vec<String>> = (0..20).map(run).collect();
        assert_eq!(all, (0..20).map(run).collect::<Vec<_>>());
        let count = |text: &str| all.iter().flatten().filter(|seen| *seen == text).count();
        assert!(count("127.0.0.1:80") > 0 && count("cannot resolve b: the name has no address") > 0);
        assert!(count("cannot resolve a: no name server has answered") > 0);
    }
}
