//! Decides after an event which phase an HTTP/2 connection enters next, and ends streams that have waited too long.

use super::H2;
use super::streams::{Active, Http2};
use crate::client::{self, Stage};
use crate::connection::out::Out;
use crate::connection::phase::{DRAIN_TICKS, Phase};
use crate::connection::transport::Transport;
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::disconnect::OnDisconnect;
use crate::exchange::lifecycle::Lifecycle;
use crate::runtime::deadline::NEVER;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::Head;
use highwire_proto::h2::{Code, Failure, StreamRef};

impl Http2 {
    /// Runs after most events. Ends streams that can no longer complete, queues the written bytes, and sets the phase
    /// and its deadline.
    pub(in crate::connection) fn settle(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if transport.is_ending() {
            return out.flush(transport.id());
        }
        if !self.recharge(transport, worker) && !self.evict_streams(transport, worker, out) {
            return self.no_memory(transport, worker, out);
        }
        let has_left = transport.ended() && !transport.is_client();
        if has_left && transport.work.is_unfinished() {
            // The client has left, so the server drops the requests that are not parsed yet. Otherwise clients that send
            // much and leave would keep the worker busy.
            transport.unread.clear();
            transport.work.drop_unread();
        }
        let end_is_due = self.http.end_is_due();
        let waits_to_be_read = (transport.work.is_unfinished() && !has_left)
            || (transport.blocked() && (end_is_due || !transport.unread.is_empty()));
        if transport.ended() && !waits_to_be_read {
            self.end_tunnels(worker, out);
            self.end_hopeless(transport, worker, out);
        }
        self.grant_waiting(worker, out);
        self.note_blocked(transport.blocked(), worker);
        let owed = std::mem::take(&mut self.owed);
        self.http.dropped(owed, &mut out.queue.output);
        let is_quiet = self.http.open_streams() == 0;
        let is_done = transport.link().is_some_and(|link| {
            link.is_over(worker.draining()) || (link.is_quiet() && self.http.peer_goes_away().is_some())
        });
        if is_quiet && !waits_to_be_read && (transport.ended() || self.http.is_gone() || is_done) {
            return self.finish(transport, worker, out);
        }
        if is_quiet {
            self.http.shrink();
            self.end_connection_ahead();
            self.is_idle_from_now(worker);
        }
        // A request for another protocol waits for the server's settings.
        let awaits_settings = !self.http.knows_peer() && transport.link().is_some_and(|link| !link.is_quiet());
        let is_client = transport.is_client();
        let due = self.due().into_iter().chain(self.silence_due().filter(|_| is_client)).min();
        let idle_due = self.idle_since.unwrap_or(worker.tick()).saturating_add(worker.rules.idle);
        if transport.blocked() && out.waiting() > 0 {
            self.sent_away(transport, out.waiting(), worker, out);
        }
        out.flush(transport.id());
        if transport.phase() == Phase::Gone {
            return;
        }
        if transport.blocked() {
            self.wait_for(transport, Phase::Write, worker);
            let write_due = self.write_due;
            transport.set_due(due.map_or(write_due, |due| due.min(write_due)), worker);
        } else if let Some(due) = due {
            transport.wait_until(Phase::Streams, due, worker);
        } else if awaits_settings
            || (!transport.unread.is_empty()
                && !transport.work.is_unfinished()
                && (transport.phase() == Phase::Head || idle_due > worker.tick()))
        {
            self.wait_for(transport, Phase::Head, worker);
        } else {
            // Only requests restart the idle timeout; PINGs and other frames do not.
            transport.wait_until(Phase::Idle, idle_due, worker);
        }
    }

    /// Resets the streams that can no longer complete after the peer's end, because they wait for the rest of a request
    /// or for a window. Otherwise they would hold memory until their deadlines. Also resets the streams whose answer is not
    /// ready: a client of HTTP/2 that ends its direction has left.
    fn end_hopeless(&mut self, transport: &Transport, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        for place in 0..self.active.len() {
            // `forget` frees `active` with its last stream, so the place may no longer exist.
            let Some(Some(active)) = self.active.get(place) else { continue };
            let (stream, is_tunnel) = (active.stream, active.exchange.tunnel().is_some());
            let waits = active.waits == Waits::Write && !active.scheduled;
            let is_ready = active.scheduled || active.waits == Waits::Write;
            let has_left = !active.is_asked && !is_ready && active.exchange.client_left() != OnDisconnect::GoOn;
            if (self.http.awaits_body(stream) && !is_tunnel) || (waits && !transport.blocked()) || has_left {
                self.http.reset(stream, Code::Cancel, &mut out.queue.output);
                self.forget(stream, worker);
            }
        }
    }

    /// Resets streams, the largest first, until the memory budget has room. Returns false if it has no room even
    /// without them.
    #[cold]
    fn evict_streams(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> bool {
        let mut fits = false;
        while let (false, Some(stream)) = (fits, self.largest()) {
            self.http.reset(stream, Abort::NoMemory.code(), &mut out.queue.output);
            if let Some(active) = self.get(stream) {
                active.exchange.record_reason(Abort::NoMemory.text());
            }
            self.forget(stream, worker);
            fits = self.recharge(transport, worker);
        }
        fits
    }

    /// Handles the passed deadline of the current phase.
    pub(in crate::connection) fn expired(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let phase = transport.expire();
        let may_write = self.write_due > worker.tick();
        match phase {
            Phase::Write if !may_write => {
                worker.count_cut();
                self.fail_client(transport, client::Failure::TimedOut(Stage::Write));
                transport.abort(worker, out);
            }
            Phase::Streams | Phase::Write => {
                // The write deadline stays.
                transport.keep(phase);
                if self.goes_at.take_if(|at| *at <= worker.tick()).is_some() {
                    // The second GOAWAY names the last stream that is served.
                    self.http.go_away(&mut out.queue.output);
                }
                if transport.is_client() && self.silence_due().is_some_and(|due| due <= worker.tick()) {
                    if self.pinged.is_some() {
                        tracing::debug!(peer = %transport.peer(), "a server does not answer PING; its connection ends");
                        self.fail_client(transport, client::Failure::Lost);
                        return transport.abort(worker, out);
                    }
                    self.doubt(worker, out);
                }
                transport.streams_expired(self, worker, out);
                self.look();
                self.drive(transport, worker, head, out);
            }
            Phase::Idle if self.still_takes(worker) => {
                self.settle(transport, worker, out);
            }
            _ => {
                if phase == Phase::Head
                    && let Some(link) = transport.link()
                {
                    // These have waited for the server's settings.
                    while let Some(pending_request) = link.next() {
                        pending_request.fail(client::Failure::TimedOut(Stage::Head));
                    }
                }
                self.http.go_away(&mut out.queue.output);
                self.http.go_away(&mut out.queue.output);
                self.finish(transport, worker, out);
            }
        }
        out.flush(transport.id());
    }

    /// Begins a graceful shutdown: sends the first GOAWAY, sets the time of the second one, and notifies the tunnels. Resets the
    /// streams whose answers are complete, because their handlers read no more of the requests that are still arriving.
    pub(in crate::connection) fn drain(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.goes_at.is_some() {
            return;
        }
        self.http.go_away(&mut out.queue.output);
        self.goes_at = Some(worker.tick().saturating_add(DRAIN_TICKS));
        self.active.iter().flatten().for_each(|active| active.drain());
        let unread: Vec<StreamRef> = self
            .active
            .iter()
            .flatten()
            .filter(|active| active.drops && !active.lingers)
            .map(|active| active.stream)
            .collect();
        for stream in unread {
            self.http.reset(stream, Code::NoError, &mut out.queue.output);
            self.forget(stream, worker);
        }
    }

    /// Parses as many of the kept unread bytes as possible.
    pub(in crate::connection) fn proceed(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        // Even if no bytes are unread, the parser may still have to report the end of a body.
        if transport.is_ending() || (transport.unread.is_empty() && !self.http.end_is_due()) {
            return;
        }
        let unread = transport.unread.take();
        let used = transport.advance_http2(self, &unread, worker, head, out);
        if transport.is_ending() {
            // A connection that is ending keeps no unread bytes.
            return;
        }
        transport.put_back_unread(unread, used);
        self.recharge(transport, worker);
    }

    /// Counts and charges the bytes that this connection holds now. Returns false if the memory budget has no room.
    pub(in crate::connection) fn recharge(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
    ) -> bool {
        self.count_exchanges(transport);
        transport.charge(worker)
    }

    /// Counts the bytes that the streams hold now, for the next [`Transport::charge`].
    pub(in crate::connection) fn count_exchanges(&mut self, transport: &mut Transport) {
        transport.account.set_exchanges(self.held());
    }

    /// Ends the connection, because the memory budget has no room.
    pub(in crate::connection) fn no_memory(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        transport.unread.clear();
        self.record_reason(Abort::NoMemory.text());
        let failure = Failure { code: Abort::NoMemory.code(), text: Abort::NoMemory.text() };
        self.http.fail(failure, &mut out.queue.output);
        self.finish(transport, worker, out);
    }

    /// Ends our direction; see [`Transport::finish`]. The streams end when the event has been handled.
    pub(in crate::connection) fn finish(
        &self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        // What a client has sent last is of no use to the server, except behind bytes that are unsent.
        let is_needed = !transport.is_client() || transport.phase() == Phase::Closing;
        transport.finish(is_needed, worker, out);
    }

    /// Blocks the connection and charges `length` bytes that the driver holds. If the memory budget has no room, cuts
    /// the connection.
    fn sent_away(
        &mut self,
        transport: &mut Transport,
        length: usize,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.count_exchanges(transport);
        transport.sent_away(length, worker, out);
    }

    /// Sets the phase and its deadline; see [`Transport::wait_for`].
    pub(in crate::connection) fn wait_for(
        &mut self,
        transport: &mut Transport,
        phase: Phase,
        worker: &mut WorkerContext<impl Service>,
    ) {
        let is_new = transport.phase() != phase;
        transport.wait_for(phase, worker);
        if phase == Phase::Write && is_new {
            self.wait_to_write(transport, worker);
        }
    }

    /// Sets the deadline by which the peer must take some of the waiting bytes.
    pub(in crate::connection) fn wait_to_write(
        &mut self,
        transport: &Transport,
        worker: &mut WorkerContext<impl Service>,
    ) {
        let due = worker.tick().saturating_add(worker.rules.write);
        let due = self.blocked_until(due, worker);
        transport.set_due(due, worker);
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
            if self.is_client() && matches!(waits, Waits::Head | Waits::Body) {
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
