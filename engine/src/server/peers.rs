//! The number of connections of each address.

use highwire_io::Peer;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The number of connections of each address, over all workers. The lock is taken when a connection is admitted and
/// when it ends.
#[derive(Debug, Default)]
pub(crate) struct PeerCounts {
    counts: Mutex<HashMap<IpAddr, u32>>,
}

/// Returns the address by which a peer is counted, or `None` for a local one. In IPv6 it is the /64, because one user
/// usually has all addresses of a /64.
fn key(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Local => None,
        Peer::Internet(IpAddr::V4(ip), _) => Some(IpAddr::V4(ip)),
        Peer::Internet(IpAddr::V6(ip), _) => Some(IpAddr::V6((ip.to_bits() >> 64 << 64).into())),
    }
}

impl PeerCounts {
    pub(crate) fn enter(&self, peer: Peer, cap: u32) -> bool {
        let Some(key) = key(peer) else { return true };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        let admitted = *count < cap;
        *count += u32::from(admitted);
        admitted
    }

    pub(crate) fn leave(&self, peer: Peer) {
        let Some(key) = key(peer) else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_cap_and_a_slash_64_is_one() {
        let counts = PeerCounts::default();
        let peer = |text: &str| Peer::Internet(text.parse().expect("the address is valid"), 1);
        assert!(counts.enter(peer("::1"), 2));
        assert!(counts.enter(peer("::2"), 2));
        assert!(!counts.enter(peer("::3"), 2));
        assert!(counts.enter(peer("1::3"), 2));
        assert!(counts.enter(peer("127.0.0.1"), 1));
        assert!(!counts.enter(peer("127.0.0.1"), 1));
        assert!(counts.enter(Peer::Local, 0));
        counts.leave(peer("::2"));
        assert!(counts.enter(peer("::3"), 2));
    }
}
