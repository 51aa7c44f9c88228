//! Decides after an event which phase an HTTP/2 connection enters next, and ends streams that have waited too long.

use super::H2;
use super::streams::{Active, Http2};
use crate::client::{Failure, Stage};
use crate::connection::out::Out;
use crate::connection::phase::Phase;
use crate::connection::transport::Transport;
use crate::connection::{Connection, Protocol};
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::disconnect::OnDisconnect;
use crate::exchange::lifecycle::Lifecycle;
use crate::runtime::deadline::NEVER;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::Head;
use highwire_proto::h2::{Code, StreamRef};

impl Connection {
    /// Runs after most events. Ends streams that can no longer complete, queues the written bytes, and sets the phase
    /// and its deadline.
    pub(in crate::connection) fn settle_http2(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.transport.is_ending() {
            return out.flush(self.transport.id());
        }
        if !self.recharge(worker) && !self.evict_streams(worker, out) {
            return self.no_memory(worker, out);
        }
        let has_left = self.transport.ended() && self.transport.link.is_none();
        if has_left && self.transport.work.is_unfinished() {
            // The client has left, so the server drops the requests that are not parsed yet. Otherwise clients that send
            // much and leave would keep the worker busy.
            self.transport.unread.clear();
            self.transport.work.drop_unread();
        }
        let end_is_due = self.protocol.http2().is_some_and(|http2| http2.http.end_is_due());
        let waits_to_be_read = (self.transport.work.is_unfinished() && !has_left)
            || (self.transport.blocked() && (end_is_due || !self.transport.unread.is_empty()));
        if self.transport.ended() && !waits_to_be_read {
            if let Some(http2) = self.protocol.http2_mut() {
                http2.end_tunnels(worker, out);
            }
            self.end_hopeless(worker, out);
        }
        let Protocol::Http2(http2) = &mut self.protocol else { return out.flush(self.transport.id()) };
        http2.grant_waiting(worker, out);
        http2.note_blocked(self.transport.blocked(), worker);
        let owed = std::mem::take(&mut http2.owed);
        http2.http.dropped(owed, &mut out.queue.output);
        let is_quiet = http2.http.open_streams() == 0;
        let is_done = self.transport.link.as_ref().is_some_and(|link| {
            link.is_over(worker.draining()) || (link.is_quiet() && http2.http.peer_goes_away().is_some())
        });
        if is_quiet && !waits_to_be_read && (self.transport.ended() || http2.http.is_gone() || is_done) {
            return self.finish(worker, out);
        }
        if is_quiet {
            http2.http.shrink();
            http2.end_connection_ahead();
            http2.is_idle_from_now(worker);
        }
        // A request for another protocol waits for the server's settings.
        let awaits_settings =
            !http2.http.knows_peer() && self.transport.link.as_ref().is_some_and(|link| !link.is_quiet());
        let is_client = self.transport.link.is_some();
        let due = http2.due().into_iter().chain(http2.silence_due().filter(|_| is_client)).min();
        let idle_due = http2.idle_since.unwrap_or(worker.tick()).saturating_add(worker.rules.idle);
        if self.transport.blocked() && out.waiting() > 0 {
            self.sent_away(out.waiting(), worker, out);
        }
        out.flush(self.transport.id());
        if self.transport.phase() == Phase::Gone {
            return;
        }
        if self.transport.blocked() {
            self.wait_for(Phase::Write, worker);
            let write_due = self.protocol.http2().map_or(NEVER, |http2| http2.write_due);
            self.transport.set_due(due.map_or(write_due, |due| due.min(write_due)), worker);
        } else if let Some(due) = due {
            self.transport.wait_until(Phase::Streams, due, worker);
        } else if awaits_settings
            || (!self.transport.unread.is_empty()
                && !self.transport.work.is_unfinished()
                && (self.transport.phase() == Phase::Head || idle_due > worker.tick()))
        {
            self.wait_for(Phase::Head, worker);
        } else {
            // Only requests restart the idle timeout; PINGs and other frames do not.
            self.transport.wait_until(Phase::Idle, idle_due, worker);
        }
    }

    /// Resets the streams that can no longer complete after the peer's end, because they wait for the rest of a request
    /// or for a window. Otherwise they would hold memory until their deadlines. Also resets the streams whose answer is not
    /// ready: a client of HTTP/2 that ends its direction has left.
    fn end_hopeless(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Protocol::Http2(http2) = &mut self.protocol else { return };
        for place in 0..http2.active.len() {
            // `forget` frees `active` with its last stream, so the place may no longer exist.
            let Some(Some(active)) = http2.active.get(place) else { continue };
            let (stream, is_tunnel) = (active.stream, active.exchange.tunnel().is_some());
            let waits = active.waits == Waits::Write && !active.scheduled;
            let is_ready = active.scheduled || active.waits == Waits::Write;
            let has_left = !active.is_asked && !is_ready && active.exchange.client_left() != OnDisconnect::GoOn;
            if (http2.http.awaits_body(stream) && !is_tunnel) || (waits && !self.transport.blocked()) || has_left {
                http2.http.reset(stream, Code::Cancel, &mut out.queue.output);
                http2.forget(stream, worker);
            }
        }
    }

    /// Resets streams, the largest first, until the memory budget has room. Returns false if it has no room even
    /// without them.
    #[cold]
    fn evict_streams(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) -> bool {
        let Connection { transport, protocol: Protocol::Http2(http2) } = self else { return false };
        let mut fits = false;
        while let (false, Some(stream)) = (fits, http2.largest()) {
            http2.http.reset(stream, Abort::NoMemory.code(), &mut out.queue.output);
            if let Some(active) = http2.get(stream) {
                active.exchange.log_ends(Abort::NoMemory.text());
            }
            http2.forget(stream, worker);
            transport.account.set_exchanges(http2.held());
            fits = transport.charge(worker);
        }
        fits
    }

    /// Handles the passed deadline of the current phase.
    pub(in crate::connection) fn expired_http2(
        &mut self,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let phase = self.transport.expire();
        let may_write = self.protocol.http2().is_some_and(|http2| http2.write_due > worker.tick());
        match phase {
            Phase::Write if !may_write => {
                worker.count_cut();
                self.fail_client(Failure::TimedOut(Stage::Write));
                self.abort(worker, out);
            }
            Phase::Streams | Phase::Write => {
                let Connection { transport, protocol: Protocol::Http2(http2) } = &mut *self else { return };
                // The write deadline stays.
                transport.keep(phase);
                if http2.goes_at.take_if(|at| *at <= worker.tick()).is_some() {
                    // The second GOAWAY names the last stream that is served.
                    http2.http.go_away(&mut out.queue.output);
                }
                if transport.link.is_some() && http2.silence_due().is_some_and(|due| due <= worker.tick()) {
                    if http2.pinged.is_some() {
                        tracing::debug!(peer = %transport.peer(), "a server does not answer PING; its connection ends");
                        self.fail_client(Failure::Lost);
                        return self.abort(worker, out);
                    }
                    http2.doubt(worker, out);
                }
                transport.streams_expired(http2, worker, out);
                http2.look();
                self.release_if_ended(worker);
                self.drive_http2(worker, head, out);
            }
            Phase::Idle if self.protocol.http2_mut().is_some_and(|http2| http2.still_takes(worker)) => {
                self.settle_http2(worker, out);
            }
            _ => {
                if phase == Phase::Head
                    && let Some(link) = &self.transport.link
                {
                    // These have waited for the server's settings.
                    while let Some(pending_request) = link.next() {
                        pending_request.fail(Failure::TimedOut(Stage::Head));
                    }
                }
                if let Some(http2) = self.protocol.http2_mut() {
                    http2.http.go_away(&mut out.queue.output);
                    http2.http.go_away(&mut out.queue.output);
                }
                self.finish(worker, out);
            }
        }
        out.flush(self.transport.id());
    }

    /// Begins a graceful shutdown: sends the first GOAWAY, sets the time of the second one, and notifies the tunnels.
    pub(in crate::connection) fn drain_http2(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some(http2) = self.protocol.http2_mut().filter(|http2| http2.goes_at.is_none()) else { return };
        http2.http.go_away(&mut out.queue.output);
        http2.goes_at = Some(worker.tick().saturating_add(crate::connection::phase::DRAIN_TICKS));
        http2.active.iter().flatten().for_each(|active| active.drain());
    }
}

impl Transport {
    /// Ends the streams that have waited too long, and wakes the tasks of tunnels whose alarms are due.
    fn streams_expired(&mut self, http2: &mut Http2, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let arrived = http2.arrived;
        let bodies = http2.active.iter().flatten().filter(|active| active.waits == Waits::Body).count() as u64;
        for place in 0..http2.active.len() {
            let Some(Some(active)) = http2.active.get_mut(place) else { continue };
            if let Some(tunnel) = active.exchange.tunnel() {
                tunnel.raw.borrow_mut().ring(worker.tick());
            }
            if active.due > worker.tick() || !active.is_judged(self.blocked()) {
                continue;
            }
            let (stream, waits) = (active.stream, active.waits);
            let answered = active.is_answered() && !active.is_asked;
            if waits == Waits::Body && active.body_is_fast_enough(worker, arrived, bodies) {
                continue;
            }
            let (is_collected, is_tunnel) = (active.granted > 0, active.exchange.tunnel().is_some());
            if waits == Waits::Body && !answered && is_collected && !http2.http.may_receive_on(stream) {
                // The body waits behind an older one, whose rate is judged instead.
                if let Some(active) = http2.get(stream) {
                    active.judge_from_now(worker, arrived);
                }
                continue;
            }
            if waits == Waits::Body && !answered && !http2.http.may_receive_on(stream) {
                // The stream's window is closed until the handler reads or answers, so the handler's timeout applies. The period
                // that has passed counts.
                let left = match worker.rules.handler {
                    NEVER => NEVER,
                    handler => handler.saturating_sub(worker.rules.body),
                };
                if let Some(active) = http2.get(stream) {
                    (active.due, active.waits) = (worker.tick().saturating_add(left), Waits::Handler);
                }
                continue;
            }
            if waits == Waits::Body && !answered && !http2.http.may_receive() {
                // The connection's window is closed until the handlers of other streams read. Those handlers have
                // deadlines of their own.
                if let Some(active) = http2.get(stream) {
                    active.judge_from_now(worker, arrived);
                }
                continue;
            }
            if http2.waits_for_its_turn(stream, worker) {
                continue;
            }
            if waits == Waits::Handler && answered && is_tunnel {
                self.end_idle_tunnel(http2, stream, worker, out);
                continue;
            }
            if self.link.is_some() && matches!(waits, Waits::Head | Waits::Body) {
                http2.doubt(worker, out);
            }
            H2 { transport: self, http2, stream, out }.expire(waits, worker);
        }
    }
}

impl Http2 {
    /// Returns true if a stream waits only because other streams use the connection's window, and the peer takes the
    /// bytes of all streams at the least rate for one stream. If so, the stream's deadline starts anew.
    fn waits_for_its_turn(&mut self, stream: StreamRef, worker: &WorkerContext<impl Service>) -> bool {
        let (is_open, all) = (self.http.is_open_by_itself(stream), self.sent);
        let Some(active) = self.get(stream) else { return false };
        let waits = active.is_answered() && (active.scheduled || active.waits == Waits::Write);
        if !waits || !is_open || all - active.sent_before < worker.rules.least_taken {
            return false;
        }
        (active.due, active.sent_before) = (worker.tick().saturating_add(worker.rules.write), all);
        true
    }
}

impl Active {
    /// Records that `bytes` more bytes of the answer were sent. `all` is the number of body bytes sent on all streams
    /// so far. The write deadline starts with the first call, and anew only after `Timeouts::least_taken` bytes were
    /// sent, so that the peer cannot keep an answer in memory by taking single bytes.
    pub(in crate::connection) fn took(&mut self, bytes: usize, all: u64, worker: &WorkerContext<impl Service>) {
        self.taken += bytes as u64;
        if self.waits != Waits::Write || self.taken >= worker.rules.least_taken {
            (self.taken, self.sent_before) = (0, all);
            (self.due, self.waits) = (worker.tick().saturating_add(worker.rules.write), Waits::Write);
        }
    }

    /// Starts a new period in which the rate of the request's body is measured. `all` is the value of
    /// [`Http2::arrived`].
    pub(in crate::connection) fn judge_from_now(&mut self, worker: &WorkerContext<impl Service>, all: u64) {
        (self.intake.arrived, self.arrived_before) = (0, all);
        self.due = worker.tick().saturating_add(worker.rules.body);
    }

    /// Returns true if the body had at least the least rate in the last period, and starts a new period. Because the
    /// streams share a connection, it is also enough if all bodies together, `bodies` in number, had at least the sum
    /// of their least rates.
    fn body_is_fast_enough(&mut self, worker: &WorkerContext<impl Service>, all: u64, bodies: u64) -> bool {
        let wanted = worker.rules.least_body;
        let is_fast =
            self.intake.has_received(wanted) || all - self.arrived_before >= wanted.saturating_mul(bodies.max(1));
        self.judge_from_now(worker, all);
        is_fast
    }
}
