//! A connection of HTTP/1 that has become a tunnel: another protocol, or bytes after CONNECT.

use super::Http1;
use super::send::{INLINE_BYTES, write_common_lines, write_fields};
use crate::connection::out::Out;
use crate::connection::phase::Phase;
use crate::connection::transport::Transport;
use crate::connection::work;
use crate::message::response::Response;
use crate::raw::{RAW_BYTES, Raw, Switch};
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;

/// The least number of received bytes of a tunnel for which the time of its task is measured.
const TIMED_BYTES: usize = 512;

impl Http1 {
    /// Sends the response that accepts another protocol, and starts that protocol's task.
    pub(super) fn switch(
        &mut self,
        transport: &mut Transport,
        response: &mut Response,
        switch: Switch,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        response.own_headers();
        let accepted = self.http.accept(response.status.as_u16(), &mut out.queue.output, |writer| {
            write_common_lines(writer, worker, &response.fields);
            write_fields(writer, &response.fields);
        });
        if let Err(error) = accepted {
            return self.broken_answer(transport, error, worker, out);
        }
        let raw = Raw::new(worker.context.inbox.waker(transport.task().number()));
        let is_draining = worker.draining();
        match self.exchange().start_tunnel(raw, switch, is_draining) {
            Ok(()) => {
                self.become_tunnel(transport);
                self.drive_tunnel(transport, worker, out);
            }
            Err(_) => {
                out.flush(transport.id());
                self.close(transport, worker, out);
            }
        }
    }

    /// Lets a tunnel take the place of its exchange, which then usually ends. The deadline starts anew, because the tunnel keeps
    /// it.
    pub(super) fn become_tunnel(&mut self, transport: &mut Transport) {
        transport.restart();
        self.tunnel = self.exchange.as_mut().and_then(|exchange| exchange.take_tunnel());
    }

    /// Handles received bytes of a tunnel: keeps them for its task, and polls the task.
    pub(in crate::connection) fn received_raw(
        &mut self,
        transport: &mut Transport,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(tunnel) = &self.tunnel else { return };
        if !bytes.is_empty() {
            let mut raw = tunnel.raw.borrow_mut();
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
            return self.abort(transport, worker, out);
        }
        if transport.is_late(worker) {
            return;
        }
        transport.work.spend(work::POLL + work::bytes(bytes.len()));
        // A few bytes cause little work, so that reading the clock would be a large part of it.
        let begun = (bytes.len() >= TIMED_BYTES).then(worker.stopwatch());
        self.drive_tunnel(transport, worker, out);
        if let Some(begun) = begun {
            transport.work.spend_since(begun, worker.stopwatch());
        }
    }

    /// Polls the tunnel's task and sends the bytes that the task has written. Ends the connection when the task has
    /// dropped both halves of its stream.
    pub(super) fn drive_tunnel(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let number = transport.task().number();
        let Some(tunnel) = &self.tunnel else { return };
        if tunnel.raw.borrow().has_setup() {
            // The connection's task has been woken to become one to a server of HTTP.
            return;
        }
        let raw = tunnel.raw.clone();
        raw.borrow_mut().is_polled = true;
        let polled = tunnel.poll(&worker.context.inbox.waker(number));
        let mut raw = raw.borrow_mut();
        raw.is_polled = false;
        if polled.is_err() {
            drop(raw);
            return self.abort(transport, worker, out);
        }
        if !transport.blocked() {
            if raw.has_outgoing() {
                transport.send_written(&mut raw, worker, out);
            } else if !raw.is_in_arena(worker.turn()) {
                raw.mark_flushed();
            }
            if raw.wants_flush && !transport.blocked() {
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
            return self.abort(transport, worker, out);
        }
        if is_cut && !transport.blocked() {
            return self.abort(transport, worker, out);
        }
        if is_written && is_finished {
            if transport.ended() && !transport.blocked() && is_in_arena && out.waiting() == 0 {
                // Queues an empty operation after the copied bytes. The connection closes when the driver reports
                // `Drained`.
                out.send_bytes(transport.id(), Bytes::new());
                transport.block();
            }
            return self.finish(transport, worker, out);
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
    pub(super) fn end_idle_tunnel(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(tunnel) = self.tunnel().filter(|tunnel| tunnel.tell_idle()) else {
            return self.finish(transport, worker, out);
        };
        worker.count_cut();
        let due = worker.tick().saturating_add(TICKS_A_SECOND);
        transport.keep(Phase::Tunnel);
        transport.set_tunnel_due(due, &mut tunnel.raw.borrow_mut(), worker);
        self.drive_tunnel(transport, worker, out);
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
