//! Descriptors that the driver watches for its loop.

use super::{Uring, data, kind};
use crate::op::Interest;
use crate::watches::Watched;
use crate::{Completion, Queue, Sink, SocketId};
use io_uring::{opcode, types};

/// The events that every poll reports, whether asked for or not.
const BROKEN: i32 = (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as i32;

impl Uring {
    pub(super) fn watch(&mut self, watched: Watched) {
        self.unwatch(watched.token);
        let Interest { readable, writable } = watched.interest;
        let readable = if readable { libc::POLLIN | libc::POLLRDHUP } else { 0 };
        let events = readable | if writable { libc::POLLOUT } else { 0 };
        let descriptor = types::Fd(watched.descriptor);
        let id = self.watches.insert(watched);
        self.submit(opcode::PollAdd::new(descriptor, events as u32).build().user_data(data(kind::WATCHED, id)));
    }

    pub(super) fn unwatch(&mut self, token: u64) {
        if let Some((id, _)) = self.watches.cancel(token) {
            self.cancel(data(kind::WATCHED, id));
        }
    }

    pub(super) fn watched<S: Sink>(&mut self, id: SocketId, result: i32, queue: &mut Queue, sink: &mut S) {
        let Some(Watched { token, interest, .. }) = self.watches.remove(id) else { return };
        if queue.unwatches(token) {
            return;
        }
        let is_broken = result < 0 || result & BROKEN != 0;
        let ready = Interest {
            readable: interest.readable && (is_broken || result & i32::from(libc::POLLIN | libc::POLLRDHUP) != 0),
            writable: interest.writable && (is_broken || result & i32::from(libc::POLLOUT) != 0),
        };
        sink.complete(Completion::Watched { token, ready }, queue);
    }
}
