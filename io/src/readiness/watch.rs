//! Descriptors that the driver watches for its loop. Each is registered until its first event.

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
        if watch::register(self.poll.registry(), watched.descriptor, token, watched.interest).is_err() {
            self.unwatchable.push(id);
        }
    }

    pub(super) fn unwatch(&mut self, token: u64) {
        if let Some((_, Watched { descriptor, .. })) = self.watches.cancel(token) {
            watch::deregister(self.poll.registry(), descriptor);
        }
    }

    pub(super) fn watched<S: Sink>(&mut self, id: SocketId, ready: Interest, queue: &mut Queue, sink: &mut S) {
        let Some(Watched { token, descriptor, interest }) = self.watches.remove(id) else { return };
        watch::deregister(self.poll.registry(), descriptor);
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
}
