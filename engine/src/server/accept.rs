//! Admits connections up to a total limit and a limit per peer, and refuses further ones.

use crate::message::date::CommonLines;
use crate::server::shared::Shared;
use highwire_io::{Op, Peer, Queue, SocketId};
use std::sync::atomic::Ordering;

/// The number of bytes that the engine and its driver hold for an idle connection without TLS, rounded up. They are
/// charged to the memory budget when the connection is accepted.
pub(crate) const CONNECTION_BYTES: usize = 512;

/// The beginning of the answer to a refused connection. The `Server` and `Date` lines follow it.
pub(crate) const TOO_MANY: &str =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n";

/// Answers a connection with 503 and closes it.
pub(crate) fn refuse(socket: SocketId, lines: &CommonLines, queue: &mut Queue) {
    let start = queue.output.len() as u32;
    for part in [TOO_MANY.as_bytes(), lines.server(), lines.date(), b"\r\n"] {
        queue.output.extend_from_slice(part);
    }
    queue.push(Op::Send { socket, start, end: queue.output.len() as u32, more: false });
    queue.push(Op::Close { socket });
}

/// The result of [`Shared::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Taken,
    /// The peer has too many connections.
    TooManyOfPeer,
    /// There are too many connections in all.
    TooManyInAll,
}

impl Shared {
    /// Admits and counts a connection that has been accepted, or refuses it. The limit per peer does not apply to a
    /// proxy.
    pub(crate) fn admit(&self, peer: Peer, is_proxy: bool) -> Admission {
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

    /// Counts a connection that a task of ours opens. Returns false if there are too many connections. On a server, our
    /// connections may be half of all: clients who cause requests of ours must leave room for others.
    pub(crate) fn admit_opened(&self) -> bool {
        let outgoing = self.counters.outgoing.load(Ordering::Relaxed);
        let most = if self.serves.load(Ordering::Relaxed) { self.most_connections / 2 } else { self.most_connections };
        let has_room = self.has_room() && outgoing < most.max(1);
        self.counters.connections.fetch_add(usize::from(has_room), Ordering::Relaxed);
        self.counters.outgoing.fetch_add(usize::from(has_room), Ordering::Relaxed);
        has_room
    }

    /// Stops counting a connection that a task of ours could not open.
    pub(crate) fn dismiss_unopened(&self) {
        self.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.counters.outgoing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Stops counting a connection that a task of ours has opened and that has ended.
    pub(crate) fn dismiss_opened(&self) {
        self.counters.outgoing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection for the peer that the PROXY header names, and no longer for the proxy. Returns false and
    /// changes neither count if that peer has too many connections.
    pub(crate) fn admit_for(&self, proxy: Peer, peer: Peer) -> bool {
        let admitted = self.peers.enter(peer, self.config().limits.connections_a_peer);
        if admitted {
            self.peers.leave(proxy);
        }
        self.counters.refused.fetch_add(u64::from(!admitted), Ordering::Relaxed);
        admitted
    }

    /// Stops counting an admitted connection that has ended.
    pub(crate) fn dismiss(&self, peer: Peer) {
        self.peers.leave(peer);
        self.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.counters.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the server may have another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.connection_count() < self.most_connections
    }
}
