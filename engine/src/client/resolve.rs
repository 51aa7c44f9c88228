//! Name lookups for clients, with a cache.

use crate::runtime::context;
use crate::runtime::promise::promise;
use highwire_io::Instant;
use highwire_io::resolve::{Resolve, SystemResolver};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The time for which the addresses of a name are kept. The system's resolver does not report how long they are valid,
/// and services that move rely on a few seconds.
pub const ADDRESSES_KEPT: Duration = Duration::from_secs(10);

/// The most names whose addresses are kept.
pub const NAMES_KEPT: usize = 1024;

/// Looks up names with a resolver, and keeps the addresses for [`ADDRESSES_KEPT`]. Clones share them. Errors are not kept.
#[derive(Clone)]
pub struct Names {
    resolver: Arc<dyn Resolve>,
    known: Arc<Mutex<HashMap<String, Known>>>,
}

/// The addresses of a name, and the moment until which they are kept.
struct Known {
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

impl Default for Names {
    /// Returns the names of the system's resolver. All values that this function returns share their addresses.
    fn default() -> Names {
        static SYSTEM: OnceLock<Names> = OnceLock::new();
        SYSTEM.get_or_init(|| Names::new(Arc::new(SystemResolver::new()))).clone()
    }
}

impl Names {
    /// Creates an empty cache for a resolver.
    pub fn new(resolver: Arc<dyn Resolve>) -> Names {
        Names { resolver, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the addresses of a name, or of an IP address without brackets, with this port: those that are kept, or
    /// else those that the resolver finds.
    ///
    /// # Errors
    /// Returns the resolver's error.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let now = context::now();
        if let Some(known) = self.known().get(host).filter(|known| known.until > now) {
            return Ok(known.addresses.iter().map(|&ip| SocketAddr::new(ip, port)).collect());
        }
        let (promise, mut asked) = promise();
        self.resolver.resolve(host, port, Box::new(|answer| promise.keep(answer)));
        let found = poll_fn(|cx| asked.poll(cx)).await;
        let found = found.unwrap_or_else(|| Err(io::Error::other("the lookup has failed")))?;
        let (addresses, now) = (found.iter().map(SocketAddr::ip).collect(), context::now());
        let mut known = self.known();
        if known.len() >= NAMES_KEPT {
            known.retain(|_, known| known.until > now);
        }
        if known.len() < NAMES_KEPT {
            known.insert(host.to_string(), Known { addresses, until: now + ADDRESSES_KEPT });
        }
        Ok(found)
    }
}
