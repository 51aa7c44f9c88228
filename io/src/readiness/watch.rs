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
}
