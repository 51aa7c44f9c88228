//! Who may connect: caps for all connections and for each peer, memory, and what happens when they are reached.

use super::date::CommonLines;
use super::shared::Shared;
use io::{Op, Peer, Queue, SocketId};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// What one connection costs the engine and its driver while it is idle, rounded up: it is charged to the budget when the
/// connection is accepted.
pub(super) const CONNECTION_BYTES: usize = 512;

/// What a connection that was not taken is told, before the common lines.
pub(super) const TOO_MANY: &str =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n";

/// Tells a connection that it is not taken, and closes it.
pub(super) fn refuse(socket: SocketId, lines: &CommonLines, queue: &mut Queue) {
    let start = queue.output.len() as u32;
    for part in [TOO_MANY.as_bytes(), lines.server(), lines.date(), b"\r\n"] {
        queue.output.extend_from_slice(part);
    }
    queue.push(Op::Send { socket, start, end: queue.output.len() as u32, more: false });
    queue.push(Op::Close { socket });
}

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
    fn enter(&self, peer: Peer, cap: u32) -> bool {
        let Some(key) = key(peer) else { return true };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        let admitted = *count < cap;
        *count += u32::from(admitted);
        admitted
    }

    fn leave(&self, peer: Peer) {
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

/// Whether a connection is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Taken,
    /// Its peer has too many already: it is told so and let go.
    TooManyOfPeer,
    /// There are too many in all: it is told so and let go.
    TooManyInAll,
}

impl Shared {
    /// Admits a connection, which the driver has accepted already. A proxy may have as many as it likes.
    pub(super) fn admit(&self, peer: Peer, is_proxy: bool) -> Admission {
        if !self.has_room() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Admission::TooManyInAll;
        }
        let cap = if is_proxy { u32::MAX } else { self.config().caps.connections_a_peer };
        if !self.peers.enter(peer, cap) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Admission::TooManyOfPeer;
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        Admission::Taken
    }

    /// A connection that was admitted as a proxy's turns out to be a peer's: returns true if that one may have another.
    pub(super) fn admit_for(&self, proxy: Peer, peer: Peer) -> bool {
        let admitted = self.peers.enter(peer, self.config().caps.connections_a_peer);
        if admitted {
            self.peers.leave(proxy);
        }
        self.counters.refused.fetch_add(u64::from(!admitted), Ordering::Relaxed);
        admitted
    }

    /// A connection that was admitted is over.
    pub(super) fn dismiss(&self, peer: Peer) {
        self.peers.leave(peer);
        self.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.counters.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there is room for another connection.
    pub(super) fn has_room(&self) -> bool {
        self.connection_count() < self.most_connections
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
