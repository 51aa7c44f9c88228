//! Decides after an event which phase a connection enters next, and when the deadline of that phase is.

use super::http1::Http1;
use super::out::Out;
use super::phase::Phase;
use super::{Connection, Protocol};
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
        if self.transport.blocked() && out.waiting() > 0 && !self.transport.is_ending() {
            // The driver queues these bytes behind the blocked ones, so the connection is charged for them, too.
            self.sent_away(out.waiting(), worker, out);
        }
        out.flush(self.transport.id());
    }

    fn settle_slowly(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        let is_unseen = |http1: &Http1| http1.end_is_unseen(&self.transport);
        if !self.transport.is_ending() && self.protocol.http1().is_some_and(is_unseen) {
            // Unread bytes that had to wait may be parsed now.
            self.proceed(worker, head, out);
            if let Protocol::Http1(http1) = &mut self.protocol {
                http1.see_end(&mut self.transport, worker, out);
            }
            self.begin_tunnel(&[], worker, out);
        }
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.settle(&mut self.transport, worker, out),
            Protocol::Http2(http2) => http2.settle(&mut self.transport, worker, out),
            Protocol::Tunnel(tunnel) => tunnel.settle(&mut self.transport, worker, out.queue),
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
            Protocol::Http2(http2) => http2.wait_for(&mut self.transport, phase, worker),
            Protocol::Tunnel(tunnel) => tunnel.wait_for(&mut self.transport, phase, worker),
        }
    }

    /// Sets the deadline by which the peer must take some of the waiting bytes.
    pub(super) fn wait_to_write(&mut self, worker: &mut WorkerContext<impl Service>) {
        match &mut self.protocol {
            Protocol::Http1(_) => self.transport.wait_to_write(worker),
            Protocol::Tunnel(tunnel) => {
                self.transport.wait_to_write(worker);
                tunnel.keep_due(&self.transport, worker);
            }
            Protocol::Http2(http2) => http2.wait_to_write(&self.transport, worker),
        }
    }
}
