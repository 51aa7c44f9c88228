//! How many connections each address has.

use highwire_io::Peer;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// How many connections each address has, over all workers. Locked once when a connection comes and once when it goes.
#[derive(Debug, Default)]
pub(crate) struct PeerCounts {
    counts: Mutex<HashMap<IpAddr, u32>>,
}

/// The address that a peer is counted by: in IPv6 whoever has a /64 has all of its addresses.
fn key(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Local => None,
        Peer::Internet(IpAddr::V4(ip), _) => Some(IpAddr::V4(ip)),
        Peer::Internet(IpAddr::V6(ip), _) => Some(IpAddr::V6((ip.to_bits() >> 64 << 64).into())),
    }
}

impl PeerCounts {
    pub(super) fn enter(&self, peer: Peer, cap: u32) -> bool {
        let Some(key) = key(peer) else { return true };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        let admitted = *count < cap;
        *count += u32::from(admitted);
        admitted
    }

    pub(super) fn leave(&self, peer: Peer) {
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
        let peer = |text: &str| Peer::Internet(text.parse().expect("an address"), 1);
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
