//! A connection's turns: the work of one turn, and the work that it leaves for the next; see [`work`](super::work).

use super::Connection;
use super::http1::H1;
use super::out::Out;
use super::transport::Transport;
use super::work::Left;
use crate::exchange::lifecycle::Lifecycle;
use crate::service::Service;
use crate::worker::WorkerContext;
use highwire_io::Queue;
use highwire_proto::Head;

impl Connection {
    /// Drives everything that can go on: handler, response body, tunnel, unread requests.
    pub(super) fn drive(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        if self.http2.is_some() {
            return self.drive_http2(worker, head, out);
        }
        if self.exchange.is_some() {
            H1::new(self, out).poll_answer(worker);
            self.pump(worker, out);
            self.drive_tunnel(worker, out);
        }
        self.proceed(worker, head, out);
        self.resume_if_wanted(out.queue);
    }

    /// Runs the woken task of this connection.
    pub(crate) fn woken(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        if self.transport.is_ending() {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| {
            if !connection.transport.sealed.is_empty() || connection.transport.is_late(worker) {
                return;
            }
            connection.drive_timed(worker, head, out);
        });
    }

    /// Drives everything that can go on. Time that a handler spends on a body counts as the connection's work.
    fn drive_timed(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        let is_fed =
            self.http2.is_some() || self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.has_reader());
        let begun = if is_fed { (worker.stopwatch)() } else { 0 };
        self.drive(worker, head, out);
        if is_fed {
            self.transport.work.spend_since(begun, worker.stopwatch);
        }
        self.settle(worker, head, out);
    }

    /// Goes on with the work that an earlier turn left.
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
    /// Returns true if the allowance of this turn is used up or the connection waits for its turn; the woken task then runs later.
    pub(super) fn is_late(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.work.begin(worker.turn, worker.allowance);
        let is_late = self.work.is_unfinished() || self.is_spent(worker);
        if is_late {
            self.work.leave_woken();
        }
        is_late
    }

    /// Returns true if the allowance of this turn is used up; the next turn goes on with the rest.
    #[inline]
    pub(super) fn is_spent(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        let is_spent = self.work.is_spent();
        if is_spent && self.work.leave_unread() {
            worker.unfinished.push_back(self.id);
        }
        is_spent
    }
}
