//! Decides after an event which phase a connection enters next, and when the deadline of that phase is.

use super::close::{DRAIN_HEAD_TICKS, DRAIN_TICKS};
use super::http1::Http1;
use super::out::Out;
use super::phase::Phase;
use super::transport::Transport;
use super::{Connection, Protocol};
use crate::raw::Raw;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::Head;

impl Connection {
    /// Runs after most events. Queues the written bytes, handles the peer's end, and sets the phase and its deadline.
    #[inline]
    pub(super) fn settle(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        if let Protocol::Http1(http1) = &self.protocol
            && http1.settle_idle(&mut self.transport, worker, out)
        {
            return;
        }
        self.settle_slowly(worker, head, out);
        if self.transport.blocked && out.waiting() > 0 && !self.transport.is_ending() {
            // The driver queues these bytes behind the blocked ones, so the connection is charged for them, too.
            self.sent_away(out.waiting(), worker, out);
        }
        out.flush(self.transport.id);
    }

    fn settle_slowly(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        let is_unseen = |http1: &Http1| http1.end_is_unseen(&self.transport);
        if !self.transport.is_ending() && self.protocol.http1().is_some_and(is_unseen) {
            // Unread bytes that had to wait may be parsed now.
            self.proceed(worker, head, out);
            if let Protocol::Http1(http1) = &mut self.protocol {
                http1.see_end(&mut self.transport, worker, out);
            }
        }
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.settle(&mut self.transport, worker, out),
            Protocol::Http2(_) => self.settle_http2(worker, out),
        }
    }

    /// Blocks the connection and charges `length` bytes that the driver holds. If the memory budget has no room, cuts
    /// the connection.
    pub(super) fn sent_away(&mut self, length: usize, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.count_exchanges();
        self.transport.sent_away(length, worker, out);
        self.release_if_ended(worker);
    }

    /// Sets the phase and its deadline; see [`Transport::wait_for`].
    pub(super) fn wait_for(&mut self, phase: Phase, worker: &mut WorkerContext<impl Service>) {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.wait_for(&mut self.transport, phase, worker),
            Protocol::Http2(_) => {
                let is_new = self.transport.phase != phase;
                self.transport.wait_for(phase, worker);
                if phase == Phase::Write && is_new {
                    self.wait_to_write(worker);
                }
            }
        }
    }

    /// Sets the deadline by which the peer must take some of the waiting bytes.
    pub(super) fn wait_to_write(&mut self, worker: &mut WorkerContext<impl Service>) {
        let due = worker.tick.saturating_add(worker.rules.write);
        let index = self.transport.id.index;
        match &mut self.protocol {
            Protocol::Http1(http1) => {
                worker.deadlines.set_at(index, due);
                http1.keep_due(&self.transport, worker);
            }
            Protocol::Http2(http2) => {
                let due = http2.blocked_until(due, worker);
                worker.deadlines.set_at(index, due);
            }
        }
    }
}

impl Transport {
    /// Sets the phase and its deadline. If the phase does not change, the deadline stays, except in [`Phase::Idle`] and
    /// [`Phase::Linger`], which restart it. For the deadline of [`Phase::Write`] over HTTP/2 see
    /// [`Connection::wait_to_write`].
    pub(super) fn wait_for(&mut self, phase: Phase, worker: &mut WorkerContext<impl Service>) {
        if self.phase == phase && !matches!(phase, Phase::Idle | Phase::Linger) {
            return;
        }
        self.phase = phase;
        let rules = &worker.rules;
        let after = match phase {
            Phase::Head if worker.draining => rules.head.min(DRAIN_HEAD_TICKS),
            Phase::Proxy | Phase::Fresh | Phase::Head => rules.head,
            Phase::Idle => self.idle_ticks(worker),
            Phase::Body => rules.body,
            Phase::Handler => rules.handler,
            Phase::Disconnected => rules.disconnect,
            Phase::Write | Phase::Closing => rules.write,
            Phase::Linger => rules.linger,
            Phase::Tunnel => rules.tunnel,
            Phase::Streams | Phase::Gone => return worker.deadlines.clear(self.id.index),
        };
        worker.deadlines.set(self.id.index, worker.tick, after);
    }
}

impl Transport {
    /// Returns the number of ticks to wait for the next request. During a shutdown it is small, because only a request that
    /// is already on its way is still served.
    #[inline]
    fn idle_ticks(&self, worker: &WorkerContext<impl Service>) -> u32 {
        match &self.link {
            _ if worker.draining => DRAIN_TICKS,
            None => worker.rules.idle,
            Some(link) => link.idle.get(),
        }
    }

    /// Restarts the timeout of a tunnel after bytes have passed, unless the tunnel is already ending because it was
    /// idle.
    pub(super) fn tunnel_moved(&self, raw: &mut Raw, worker: &mut WorkerContext<impl Service>) {
        if self.phase == Phase::Tunnel && !raw.is_idle() {
            self.set_tunnel_due(worker.tick.saturating_add(worker.rules.tunnel), raw, worker);
        }
    }

    /// Sets the deadline of a connection that is a tunnel. The connection's event comes earlier if the tunnel's task
    /// has an earlier alarm.
    pub(super) fn set_tunnel_due(&self, due: u32, raw: &mut Raw, worker: &mut WorkerContext<impl Service>) {
        raw.due = due;
        worker.deadlines.set_at(self.id.index, due.min(raw.alarm));
    }
}
