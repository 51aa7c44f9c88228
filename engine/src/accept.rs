//! Who may connect: what happens when there are too many, in all or of a peer.

use super::date::CommonLines;
use super::shared::Shared;
use highwire_io::{Op, Peer, Queue, SocketId};
use std::sync::atomic::Ordering;

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
        let cap = if is_proxy { u32::MAX } else { self.config().limits.connections_a_peer };
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
        let admitted = self.peers.enter(peer, self.config().limits.connections_a_peer);
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
