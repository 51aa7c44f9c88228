//! Descriptors that the driver watches for its loop, each registered until its first event, and the ends of peers from which the
//! loop does not receive.

use super::{Readiness, WATCHED, token};
use crate::op::Interest;
use crate::sys::watch;
use crate::watches::Watched;
use crate::{Completion, Queue, Sink, SocketId};
use mio::Token;

impl Readiness {
    pub(super) fn watch(&mut self, watched: Watched) {
        self.unwatch(watched.token);
        let id = self.watches.insert(watched);
        let token = Token(WATCHED | token(id).0);
        match watch::register(self.poll.registry(), watched.descriptor, token, watched.interest) {
            Ok(()) => self.watches.mark_registered(id),
            Err(_) => self.unwatchable.push(id),
        }
    }

    pub(super) fn unwatch(&mut self, token: u64) {
        if let Some((_, watched)) = self.watches.cancel(token) {
            self.deregister(&watched);
        }
    }

    /// Removes the registration of a watch. A descriptor without one may have that of another owner.
    fn deregister(&self, watched: &Watched) {
        if watched.is_registered {
            watch::deregister(self.poll.registry(), watched.descriptor);
        }
    }

    pub(super) fn watched<S: Sink>(&mut self, id: SocketId, ready: Interest, queue: &mut Queue, sink: &mut S) {
        let Some(watched) = self.watches.remove(id) else { return };
        self.deregister(&watched);
        let Watched { token, interest, .. } = watched;
        if queue.unwatches(token) {
            return;
        }
        let ready =
            Interest { readable: interest.readable && ready.readable, writable: interest.writable && ready.writable };
        sink.complete(Completion::Watched { token, ready }, queue);
        self.start(queue);
    }

    /// Reports the watches for whose descriptors the system cannot wait.
    pub(super) fn report_unwatchable<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) {
        for id in std::mem::take(&mut self.unwatchable) {
            self.watched(id, Interest { readable: true, writable: true }, queue, sink);
        }
    }

    /// Waits for the end of a connection's peer.
    pub(super) fn watch_end(&mut self, socket: SocketId) {
        if let Some(connection) = self.connections.get(socket) {
            connection.watches_end = true;
            self.again(socket);
        }
    }

    /// Records with `has_come` that the peer's end has arrived, and reports the end once if it has arrived and the loop waits
    /// for it.
    pub(super) fn end_arrived<S: Sink>(&mut self, socket: SocketId, has_come: bool, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        connection.end_arrived |= has_come;
        let is_awaited = connection.watches_end && !connection.ended && !connection.failed;
        if connection.end_arrived && is_awaited {
            connection.watches_end = false;
            sink.complete(Completion::EndArrived { socket }, queue);
            self.start(queue);
        }
    }
}
