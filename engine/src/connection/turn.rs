//! Runs a connection within its work allowance per turn, and leaves the rest of its work for a later turn; see
//! [`work`](super::work).

use super::out::Out;
use super::transport::Transport;
use super::tunnel::Tunnel;
use super::work::{self, Left};
use super::{Connection, Protocol};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Queue;
use highwire_proto::Head;

impl Connection {
    /// Advances everything that can make progress: handler, response body, tunnel, unread requests.
    pub(super) fn drive(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        if self.protocol.tunnel().is_some_and(Tunnel::has_setup) {
            self.become_client(worker, head, out);
        }
        if self.transport.is_client() {
            self.drive_client(worker, out);
            if self.transport.is_ending() {
                return;
            }
        }
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.drive(&mut self.transport, worker, out),
            Protocol::Http2(http2) => {
                http2.drive(&mut self.transport, worker, head, out);
                return self.release_if_ended(worker);
            }
            Protocol::Tunnel(tunnel) => tunnel.drive(&mut self.transport, worker, out),
        }
        self.proceed(worker, head, out);
        self.resume_if_wanted(out.queue);
    }

    /// Handles a wake of this connection's task.
    pub(crate) fn woken(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        if self.transport.is_ending() {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| {
            if connection.transport.sealed.is_some() {
                return;
            }
            if connection.transport.is_late(worker) {
                if let Some(http2) = connection.protocol.http2_mut().filter(|http2| http2.undriven.is_some()) {
                    // The turn that drives the streams which are left would miss this wake for the other ones.
                    http2.has_late_wakes = true;
                }
                return;
            }
            connection.drive_timed(worker, head, out);
        });
    }

    /// Handles a wake of a stream's task. `place` is the stream's index in `active`.
    pub(crate) fn woken_stream(
        &mut self,
        place: usize,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        queue: &mut Queue,
    ) {
        if self.transport.is_ending() {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| {
            let Connection { transport, protocol: Protocol::Http2(http2) } = &mut *connection else { return };
            if transport.is_late(worker) {
                // The later turn drives the streams whose wakes it has missed.
                http2.has_late_wakes = true;
                return;
            }
            let begun = (worker.stopwatch())();
            transport.work.spend(work::POLL);
            transport.drive_stream(http2, place, worker, out);
            http2.driven(transport, worker, head, out);
            transport.work.spend_since(begun, worker.stopwatch());
        });
    }

    /// Calls [`drive`](Self::drive), and then settles the connection. In a tunnel, or if a handler takes a request body in
    /// parts, charges the time of `drive` as work of the connection. Over HTTP/2, `drive` itself does.
    fn drive_timed(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        let is_fed = match &self.protocol {
            Protocol::Http1(http1) => http1.has_reader(),
            Protocol::Http2(_) => false,
            Protocol::Tunnel(_) => true,
        };
        let begun = if is_fed { (worker.stopwatch())() } else { 0 };
        self.drive(worker, head, out);
        if is_fed {
            self.transport.work.spend_since(begun, worker.stopwatch());
        }
        self.settle(worker, head, out);
    }

    /// Continues with the work that an earlier turn has left.
    pub(crate) fn go_on(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        let was_woken = self.transport.work.take_left() == Left::Woken;
        if self.transport.is_ending() {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| {
            if was_woken {
                if connection.transport.is_late(worker) {
                    return;
                }
                return connection.drive_timed(worker, head, out);
            }
            connection.proceed(worker, head, out);
            connection.resume_if_wanted(out.queue);
            connection.settle(worker, head, out);
        });
    }
}

impl Transport {
    /// Returns true if a woken task must wait for a later turn, because the allowance is used up or an earlier turn has
    /// left work. If so, records that a task was woken.
    pub(super) fn is_late(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.work.begin(worker.turn(), worker.allowance());
        let is_late = self.work.is_unfinished() || self.work.is_spent();
        if is_late {
            self.leave_unread(worker);
            self.work.leave_woken();
        }
        is_late
    }

    /// Leaves unread bytes for a later turn, and queues the connection for one, unless it is queued already.
    pub(super) fn leave_unread(&mut self, worker: &mut WorkerContext<impl Service>) {
        if self.work.leave_unread() {
            worker.unfinished.push_back(self.id());
        }
    }
}
