//! A connection that carries the bytes of another protocol: after Upgrade or CONNECT over HTTP/1, in either role, or one
//! that a task of ours has opened.

use super::http1::INLINE_BYTES;
use super::out::Out;
use super::phase::Phase;
use super::transport::Transport;
use super::{Connection, Protocol, work};
use crate::exchange::Exchange;
use crate::raw::{Ended, RAW_BYTES, Raw};
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::runtime::panics::drop_safely;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_io::Queue;

/// The least number of received bytes of a tunnel for which the time of its task is measured.
const TIMED_BYTES: usize = 512;

/// The other protocol's bytes and task.
pub(super) struct Tunnel {
    stream: crate::exchange::Tunnel,
    /// The exchange in which HTTP/1 has accepted the protocol, while its handler may learn of the connection's end.
    exchange: Option<Box<Exchange>>,
}

impl Tunnel {
    pub(super) fn new(stream: crate::exchange::Tunnel, exchange: Option<Box<Exchange>>) -> Tunnel {
        Tunnel { stream, exchange }
    }

    /// Returns true if the connection's task has been woken to become one to a server of HTTP.
    pub(super) fn has_setup(&self) -> bool {
        self.stream.raw.borrow().has_setup()
    }

    /// Returns the state that the connection shares with the raw stream.
    pub(super) fn raw(&self) -> &std::cell::RefCell<Raw> {
        &self.stream.raw
    }

    /// Records that the peer has ended its direction. Under TLS only close_notify is a proper end, because an attacker can end
    /// the TCP stream (RFC 8446 section 6.1).
    pub(super) fn peer_ended(&self, transport: &Transport) {
        self.stream.peer_ended(transport.end_said());
    }

    /// Signals the task that the server is stopping.
    pub(super) fn drain(&self) {
        self.stream.drain();
    }

    /// Handles received bytes: keeps them for the task, and polls it.
    pub(super) fn received(
        &self,
        transport: &mut Transport,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if !bytes.is_empty() {
            let mut raw = self.stream.raw.borrow_mut();
            raw.push(bytes);
            raw.paused = raw.held() >= RAW_BYTES;
            let full = raw.paused;
            transport.tunnel_moved(&mut raw, worker);
            drop(raw);
            if full {
                transport.pause(out.queue);
            }
        }
        if !self.recharge(transport, worker) {
            return transport.abort(worker, out);
        }
        if transport.is_late(worker) {
            return;
        }
        transport.work.spend(work::POLL + work::bytes(bytes.len()));
        // A few bytes cause little work, so that reading the clock would be a large part of it.
        let begun = (bytes.len() >= TIMED_BYTES).then(worker.stopwatch());
        self.drive(transport, worker, out);
        if let Some(begun) = begun {
            transport.work.spend_since(begun, worker.stopwatch());
        }
    }

    /// Polls the tunnel's task and sends the bytes that the task has written. Ends the connection when the task has
    /// dropped both halves of its stream.
    pub(super) fn drive(&self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let number = transport.task().number();
        if self.has_setup() {
            return;
        }
        let raw = &self.stream.raw;
        raw.borrow_mut().is_polled = true;
        let polled = self.stream.poll(&worker.context.inbox.waker(number));
        let mut raw = raw.borrow_mut();
        raw.is_polled = false;
        if polled.is_err() {
            drop(raw);
            return transport.abort(worker, out);
        }
        if !transport.blocked() {
            if raw.has_outgoing() {
                transport.send_written(&mut raw, worker, out);
            } else if !raw.is_in_arena(worker.turn()) {
                raw.mark_flushed();
            }
            if raw.wants_flush() && !transport.blocked() {
                // The driver does not report a complete send, so the connection's task is woken after the driver's turn
                // to check.
                worker.context.wake_at(worker.now(), worker.context.inbox.waker(number));
            }
        }
        raw.paused = raw.held() >= RAW_BYTES;
        // The task may have set an alarm.
        transport.set_tunnel_due(raw.due, &mut raw, worker);
        let (is_written, is_finished) = (raw.is_written() && !raw.has_outgoing(), raw.is_finished());
        let (is_in_arena, is_cut) = (raw.is_in_arena(worker.turn()), raw.is_cut(worker.turn()));
        drop(raw);
        if !self.recharge(transport, worker) {
            return transport.abort(worker, out);
        }
        if is_cut && !transport.blocked() {
            return transport.abort(worker, out);
        }
        if is_written && is_finished {
            if transport.ended() && !transport.blocked() && is_in_arena && out.waiting() == 0 {
                // Queues an empty operation after the copied bytes. The connection closes when the driver reports
                // `Drained`.
                out.send_bytes(transport.id(), Bytes::new());
                transport.block();
            }
            transport.finish(true, worker, out);
            return self.look_for_end(transport, worker, out.queue);
        }
        out.flush(transport.id());
        // A session of TLS 1.2 cannot receive after its own close_notify.
        let may_end = out.tls.is_none() || transport.ended();
        if is_written && !transport.blocked() && may_end {
            transport.end_direction(out);
        }
        self.resume_if_wanted(transport, out.queue);
    }

    /// Ends an idle tunnel in two steps. The first call notifies the tunnel's task, which then has one second to send
    /// its last bytes. The second call ends the connection.
    fn end_idle(&self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if !self.stream.tell_idle() {
            return transport.finish(true, worker, out);
        }
        worker.count_cut();
        let due = worker.tick().saturating_add(TICKS_A_SECOND);
        transport.keep(Phase::Tunnel);
        transport.set_tunnel_due(due, &mut self.stream.raw.borrow_mut(), worker);
        self.drive(transport, worker, out);
    }

    /// Sets the phase and its deadline.
    pub(super) fn settle(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        queue: &mut Queue,
    ) {
        if transport.is_ending() {
            return;
        }
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.is_over()) {
            exchange.recycle();
        }
        if transport.account.lent() != 0 && !transport.blocked() {
            // The body of the request that has begun the tunnel.
            transport.account.set_lent(0);
            self.recharge(transport, worker);
        }
        self.wait_for(transport, if transport.blocked() { Phase::Write } else { Phase::Tunnel }, worker);
        self.look_for_end(transport, worker, queue);
    }

    /// If the peer must take the waiting bytes soon when it has ended its direction, sees whether it has: see
    /// [`RawWriter::cut_with_peer`](crate::raw::RawWriter::cut_with_peer). If receiving is paused, asks the driver.
    pub(super) fn look_for_end(
        &self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        queue: &mut Queue,
    ) {
        if !transport.blocked() || !self.stream.raw.borrow().is_cut_with_peer() {
            return;
        }
        if transport.ended() {
            self.peer_left(transport, worker);
        } else if transport.paused() {
            transport.watch_end(queue);
        }
    }

    /// Records that the peer has probably left. An earlier alarm of the task stays an alarm.
    pub(super) fn peer_left(&self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>) {
        if let Some(ticks) = transport.peer_left(worker) {
            let mut raw = self.stream.raw.borrow_mut();
            let due = worker.tick().saturating_add(ticks).min(raw.due);
            transport.set_tunnel_due(due, &mut raw, worker);
        }
    }

    /// Sets the phase and its deadline; see [`Transport::wait_for`].
    pub(super) fn wait_for(&self, transport: &mut Transport, phase: Phase, worker: &mut WorkerContext<impl Service>) {
        let is_new = transport.phase() != phase;
        transport.wait_for(phase, worker);
        if is_new {
            self.keep_due(transport, worker);
        }
    }

    /// Keeps the deadline that was just set, because an alarm of the task may be earlier.
    pub(super) fn keep_due(&self, transport: &Transport, worker: &mut WorkerContext<impl Service>) {
        transport.set_tunnel_due(transport.due(worker), &mut self.stream.raw.borrow_mut(), worker);
    }

    /// Wakes the task if its alarm is due. Returns true if the connection's own deadline has not passed.
    fn ring(&self, transport: &Transport, worker: &mut WorkerContext<impl Service>) -> bool {
        let mut raw = self.stream.raw.borrow_mut();
        raw.ring(worker.tick());
        let is_early = raw.due > worker.tick();
        if is_early {
            transport.set_tunnel_due(raw.due, &mut raw, worker);
        }
        is_early
    }

    /// Handles the passed deadline of the current phase, or of the task's alarm.
    pub(super) fn expired(
        &self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if self.ring(transport, worker) {
            return;
        }
        let phase = transport.expire();
        match phase {
            Phase::Tunnel => self.end_idle(transport, worker, out),
            Phase::Write | Phase::Closing => {
                worker.count_cut();
                transport.abort(worker, out);
            }
            _ => transport.close(worker, out),
        }
        out.flush(transport.id());
    }

    /// Counts and charges the bytes that this connection holds now. Returns false if the memory budget has no room.
    fn recharge(&self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>) -> bool {
        self.count_exchanges(transport);
        transport.charge(worker)
    }

    /// Counts the bytes that the tunnel and its exchange hold now, for the next [`Transport::charge`].
    pub(super) fn count_exchanges(&self, transport: &mut Transport) {
        let lent = transport.account.lent();
        let exchange = self.exchange.as_ref().map_or(lent, |exchange| exchange.lent(lent) + exchange.held());
        transport.account.set_exchanges(exchange + self.stream.held());
    }

    /// Resumes receiving if it is paused and no reason for the pause is left.
    pub(super) fn resume_if_wanted(&self, transport: &mut Transport, queue: &mut Queue) {
        if !self.stream.raw.borrow().paused {
            transport.resume_if_wanted(queue);
        }
    }

    /// Ends the bytes for the task, and drops the task.
    pub(super) fn release(self, worker: &mut WorkerContext<impl Service>) {
        if let Some(mut exchange) = self.exchange {
            exchange.lose(worker);
            exchange.recycle();
        }
        self.stream.end(Ended::Broken);
        drop_safely(self.stream);
    }
}

impl Connection {
    /// Lets the tunnel that HTTP/1 has accepted in this event take the place of HTTP/1. `rest` is what has been received behind
    /// the message, before the bytes that are unread. Returns false if there is no tunnel.
    pub(super) fn begin_tunnel(
        &mut self,
        rest: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> bool {
        let Protocol::Http1(http1) = &mut self.protocol else { return false };
        if self.transport.is_ending() {
            return false;
        }
        let Some(tunnel) = http1.take_tunnel() else { return false };
        self.protocol = Protocol::Tunnel(tunnel);
        let Connection { transport, protocol: Protocol::Tunnel(tunnel) } = self else { return false };
        tunnel.received(transport, rest, worker, out);
        let unread = transport.unread.take();
        if !unread.is_empty() && !transport.is_ending() {
            tunnel.received(transport, &unread, worker, out);
        }
        if transport.ended() && !transport.is_ending() {
            tunnel.peer_ended(transport);
            tunnel.drive(transport, worker, out);
        }
        true
    }
}

impl Transport {
    /// Sends the bytes that a tunnel's task has written: copies small writes together, and sends each large one in a
    /// separate operation.
    fn send_written(&mut self, raw: &mut Raw, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let (mut unsent, mut copied) = (0, 0);
        while let Some(bytes) = raw.take_written() {
            if bytes.len() <= INLINE_BYTES {
                copied += bytes.len();
                unsent += if self.blocked() { bytes.len() } else { 0 };
                out.queue.output.extend_from_slice(&bytes);
            } else {
                out.flush_before(self.id(), true);
                unsent += out.send_bytes(self.id(), bytes);
                self.block();
            }
        }
        if raw.count_copied(copied, worker.turn()) > RAW_BYTES && !self.blocked() {
            // These are enough bytes for one turn. Later writes wait until the driver reports that the kernel has these
            // bytes.
            unsent += out.flush_and_hear(self.id());
            self.block();
        }
        if self.blocked() {
            self.account.set_unsent(unsent);
        }
        raw.wake_writer();
        self.tunnel_moved(raw, worker);
    }
}
