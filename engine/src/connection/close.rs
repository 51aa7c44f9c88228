//! The end of a connection: errors, deadlines, closing.
//!
//! If a socket is closed while it has unread bytes, the kernel sends a reset, which can destroy the last answer on its
//! way (RFC 9112 section 9.6). A peer may continue to send after its last request. Therefore a connection usually ends
//! its own direction first, and then reads and drops bytes until the peer ends its direction or the linger deadline
//! passes. This protects the last answer, at the cost of one more wake and receive per connection (measured: 8 % of the
//! cost of a connection that is used once). After [`LINGER_BYTES`] the connection receives no more, and at the deadline
//! the kernel resets it. Without this bound, twenty peers sent two gigabytes per second.

use super::Connection;
use super::http1::H1;
use super::out::Out;
use super::phase::Phase;
use crate::deadline::{NEVER, TICKS_A_SECOND};
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::lifecycle::Lifecycle;
use crate::request::BodyUse;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Queue;
use highwire_proto::h2::Failure;
use highwire_proto::{Head, h1};

/// The number of ticks that a graceful shutdown waits for the next request of an idle connection.
pub(super) const DRAIN_TICKS: u32 = 2;

/// The number of ticks that a graceful shutdown waits for the rest of a head.
pub(super) const DRAIN_HEAD_TICKS: u32 = 2 * TICKS_A_SECOND;

/// The number of bytes that an ending connection drops. As many are on their way in an upload of 300 Mbit/s over 100 ms.
const LINGER_BYTES: u64 = 4 << 20;

impl Connection {
    /// Drops bytes that arrive behind the last answer, and stops receiving when they are too many.
    pub(super) fn received_late(&mut self, count: usize, queue: &mut Queue) {
        self.intake.count(count, false);
        if self.transport.phase == Phase::Linger && self.intake.has_received(LINGER_BYTES) {
            self.transport.pause(queue);
        }
    }

    /// Ends the connection because the parser has refused the peer's bytes. Answers with `error`, or cuts an answer
    /// that has begun.
    pub(super) fn refuse(
        &mut self,
        error: highwire_proto::Error,
        worker: &mut WorkerContext<impl Service>,
        head: &Head,
        window: &[u8],
        out: &mut Out<'_>,
    ) {
        let _ = (head, window);
        if self.transport.link.is_some() {
            tracing::debug!(%error, "a server's response is malformed or broken");
        } else {
            tracing::debug!(peer = %self.transport.peer, %error, "a request is refused");
        }
        self.recycle_exchange();
        if self.exchange.is_none() {
            self.transport.log_refused(Some(error.status()), error.text(), worker);
        }
        self.transport.unread.clear();
        self.end_with(Abort::Malformed(error), worker, out);
    }

    /// Answers the current exchange with an error, or ends the connection if an answer has begun.
    pub(super) fn end_with(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        // Removes the previous exchange if it is over, so that this error does not end it again.
        self.recycle_exchange();
        H1::new(self, out).abort(abort, worker);
        self.recharge(worker);
    }

    /// Returns true if an answer is being sent, so the peer may have received a part of it.
    pub(super) fn has_begun_to_answer(&self) -> bool {
        let has_body = self.exchange.as_ref().is_some_and(|exchange| exchange.outgoing.is_streaming());
        has_body || self.http.server() == h1::state::State::SendsBody
    }

    /// Handles a memory budget without room. Ends the current exchange over HTTP/1, or the connection over HTTP/2.
    pub(super) fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.transport.unread.clear();
        if let Some(http2) = &mut self.http2 {
            http2.log_ends(Abort::NoMemory.text());
            let failure = Failure { code: Abort::NoMemory.code(), text: Abort::NoMemory.text() };
            http2.http.fail(failure, &mut out.queue.output);
            return self.finish(worker, out);
        }
        self.end_with(Abort::NoMemory, worker, out);
        out.flush(self.transport.id);
        if !matches!(self.transport.phase, Phase::Linger | Phase::Gone) && self.http.must_close() {
            self.finish(worker, out);
        }
    }

    /// Handles a request body that is too large. If a handler takes the body, answers 413 or cuts an answer that has
    /// begun. Otherwise stops reading the body and closes the connection after the answer.
    pub(super) fn body_too_large(
        &mut self,
        body_use: BodyUse,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if self.transport.link.is_some() {
            // The reader of a response has dropped its body, and the rest is too long to receive.
            return self.abort(worker, out);
        }
        if body_use == BodyUse::None {
            // No handler takes this body, so its size does not change the answer.
            self.http.close_after();
            if self.http.server() == h1::state::State::AwaitsResponse
                || self.http.server() == h1::state::State::SendsBody
            {
                self.transport.body_refused = true;
                return self.transport.pause(out.queue);
            }
            return self.finish(worker, out);
        }
        self.end_with(Abort::BodyTooLarge(self.intake.route, body_use), worker, out);
        out.flush(self.transport.id);
        if !matches!(self.transport.phase, Phase::Linger | Phase::Gone) && self.http.must_close() {
            self.finish(worker, out);
        }
    }

    /// Ends the exchanges and our direction; see [`Transport::finish`](super::transport::Transport::finish).
    pub(super) fn finish(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        // What a client has sent last is of no use to the server, except in a tunnel, or behind bytes that are unsent.
        let is_needed =
            self.transport.link.is_none() || self.tunnel().is_some() || self.transport.phase == Phase::Closing;
        self.release_protocol(worker);
        self.intake.arrived = 0;
        self.transport.finish(is_needed, worker, out);
    }

    /// Closes the connection without waiting for the peer. The driver still sends the queued bytes.
    pub(super) fn close(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.release_protocol(worker);
        self.transport.close(worker, out);
    }

    /// Resets the connection, so that the peer can detect that an answer is incomplete.
    pub(super) fn abort(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.release_protocol(worker);
        self.transport.abort(worker, out);
    }

    /// Ends the exchanges and the connection because the socket has failed.
    pub(crate) fn failed(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| connection.abort(worker, out));
    }

    /// Handles the passed deadline of the current phase.
    pub(crate) fn expired(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| connection.out_of_time(worker, head, out));
    }

    fn out_of_time(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        if self.http2.is_some() {
            return self.expired_http2(worker, head, out);
        }
        if self.ring(worker) {
            return;
        }
        if self.transport.link.is_some() {
            return self.client_out_of_time(worker, out);
        }
        if self.transport.work.is_unfinished() && matches!(self.transport.phase, Phase::Fresh | Phase::Idle) {
            // The peer has not caused the delay, because the worker has not parsed the received bytes yet.
            return self.wait_for(Phase::Idle, worker);
        }
        let phase = std::mem::replace(&mut self.transport.phase, Phase::Fresh);
        match phase {
            Phase::Gone => self.transport.phase = Phase::Gone,
            Phase::Linger => self.close(worker, out),
            Phase::Proxy | Phase::Fresh | Phase::Idle => self.finish(worker, out),
            Phase::Head => {
                self.transport.unread.clear();
                self.transport.log_refused(Some(408), Abort::HeadTooSlow.text(), worker);
                self.end_with(Abort::HeadTooSlow, worker, out);
            }
            Phase::Body if self.body_is_fast_enough(worker) => self.wait_for(Phase::Body, worker),
            Phase::Body => H1::new(self, out).expire(Waits::Body, worker),
            Phase::Handler => H1::new(self, out).expire(Waits::Handler, worker),
            Phase::Disconnected => self.end_with(Abort::ClientLeft, worker, out),
            Phase::Write | Phase::Closing => self.abort(worker, out),
            Phase::Tunnel => self.end_idle_tunnel(worker, out),
            Phase::Streams => self.transport.phase = phase,
        }
        out.flush(self.transport.id);
        if !self.transport.is_ending() && !matches!(self.transport.phase, Phase::Tunnel | Phase::Body) {
            if self.http.must_close() {
                self.finish(worker, out);
            } else {
                self.drive(worker, head, out);
                self.settle(worker, head, out);
            }
        }
        let gone_or_ending = matches!(self.transport.phase, Phase::Gone | Phase::Linger);
        if gone_or_ending && matches!(phase, Phase::Head | Phase::Write | Phase::Closing) {
            worker.count_cut();
        }
    }

    pub(super) fn body_is_fast_enough(&self, worker: &WorkerContext<impl Service>) -> bool {
        self.intake.has_received(worker.rules.least_body)
    }

    /// Begins a graceful shutdown. An idle HTTP/1 connection closes after [`DRAIN_TICKS`] if no request arrives, and a
    /// busy one after its answer; the task of a tunnel is notified. Over HTTP/2, see
    /// [`drain_http2`](Self::drain_http2).
    pub(crate) fn drain(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        if self.transport.is_ending() {
            return;
        }
        if self.transport.link.is_some() && self.tunnel().is_none() {
            return self.with_out(worker, queue, |connection, worker, out| connection.drain_client(worker, out));
        }
        if self.http2.is_some() {
            return self.with_out(worker, queue, |connection, worker, out| {
                connection.drain_http2(worker, out);
                connection.settle_http2(worker, out);
            });
        }
        self.http.close_after();
        if let Some(tunnel) = self.tunnel() {
            tunnel.drain();
        } else if matches!(self.transport.phase, Phase::Proxy | Phase::Fresh | Phase::Idle | Phase::Head) {
            // The next request may be on its way already, so the connection waits a moment, and longer if a part of it
            // has come.
            let is_quiet = self.transport.phase != Phase::Head && self.transport.unread.is_empty();
            let after = if is_quiet { DRAIN_TICKS } else { DRAIN_HEAD_TICKS };
            let due = worker.tick.saturating_add(after).min(worker.deadlines.get(self.transport.id.index));
            worker.deadlines.set_at(self.transport.id.index, due);
        }
    }

    /// Returns the tick since which a client has neither sent a request nor waited for an answer, if that is a second or
    /// more.
    pub(crate) fn idle_since(&self, worker: &WorkerContext<impl Service>) -> Option<u32> {
        let transport = &self.transport;
        let after = match transport.phase {
            Phase::Idle => worker.rules.idle,
            Phase::Fresh | Phase::Proxy => worker.rules.head,
            _ => return None,
        };
        if transport.is_outgoing || transport.blocked || self.exchange.is_some() || transport.work.is_unfinished() {
            return None;
        }
        // The deadline was set when the connection became idle. Without a deadline, it counts as the oldest.
        let since = worker.deadlines.get(transport.id.index).saturating_sub(after);
        let since = if after == NEVER { 0 } else { since };
        (worker.tick.saturating_sub(since) >= TICKS_A_SECOND).then_some(since)
    }

    /// Closes an idle connection at once, because another client needs its place.
    pub(crate) fn close_idle(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| {
            if let Some(http2) = &mut connection.http2 {
                http2.http.go_away(&mut out.queue.output);
                http2.http.go_away(&mut out.queue.output);
            }
            connection.close(worker, out);
        });
    }

    /// Resets the connection, because the shutdown or the worker must end now. Returns true if the connection was busy.
    pub(crate) fn cut(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) -> bool {
        let busy = match &self.http2 {
            Some(http2) => http2.http.open_streams() > 0 || self.transport.blocked,
            None => {
                !matches!(self.transport.phase, Phase::Linger | Phase::Gone | Phase::Idle | Phase::Fresh | Phase::Proxy)
            }
        };
        self.with_out(worker, queue, |connection, worker, out| connection.abort(worker, out));
        busy
    }
}
