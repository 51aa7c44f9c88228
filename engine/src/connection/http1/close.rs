//! The end of a connection of HTTP/1, and of its exchange.

use super::{H1, Http1};
use crate::connection::out::Out;
use crate::connection::phase::{DRAIN_HEAD_TICKS, DRAIN_TICKS, Phase};
use crate::connection::transport::Transport;
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::request::BodyUse;
use crate::raw::Ended;
use crate::runtime::panics::drop_safely;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h1::state::State;

impl Http1 {
    /// Ends the connection because the parser has refused the peer's bytes. Answers with `error`, or cuts an answer
    /// that has begun.
    pub(super) fn refuse(
        &mut self,
        transport: &mut Transport,
        error: highwire_proto::Error,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if transport.is_client() {
            tracing::debug!(%error, "a server's response is malformed or broken");
        } else {
            tracing::debug!(peer = %transport.peer(), %error, "a request is refused");
        }
        self.recycle_exchange();
        if self.exchange.is_none() {
            transport.log_refused(Some(error.status()), error.text(), worker);
        }
        transport.unread.clear();
        self.end_with(transport, Abort::Malformed(error), worker, out);
    }

    /// Answers the current exchange with an error, or ends the connection if an answer has begun.
    pub(in crate::connection) fn end_with(
        &mut self,
        transport: &mut Transport,
        abort: Abort,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        // Removes the previous exchange if it is over, so that this error does not end it again.
        self.recycle_exchange();
        H1::new(self, transport, out).abort(abort, worker);
        self.recharge(transport, worker);
    }

    /// Returns true if an answer is being sent, so the peer may have received a part of it.
    pub(super) fn has_begun_to_answer(&self) -> bool {
        let has_body = self.exchange.as_ref().is_some_and(|exchange| exchange.outgoing.is_streaming());
        has_body || self.http.server() == State::SendsBody
    }

    /// Ends the current exchange, because the memory budget has no room.
    pub(in crate::connection) fn no_memory(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        transport.unread.clear();
        self.end_with(transport, Abort::NoMemory, worker, out);
        self.finish_if_over(transport, worker, out);
    }

    /// Handles a request body that is too large. If a handler takes the body, answers 413 or cuts an answer that has
    /// begun. Otherwise stops reading the body and closes the connection after the answer.
    pub(super) fn body_too_large(
        &mut self,
        transport: &mut Transport,
        body_use: BodyUse,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if transport.is_client() {
            // The reader of a response has dropped its body, and the rest is too long to receive.
            return self.abort(transport, worker, out);
        }
        if body_use == BodyUse::None {
            // No handler takes this body, so its size does not change the answer.
            self.http.close_after();
            if matches!(self.http.server(), State::AwaitsResponse | State::SendsBody) {
                self.body_refused = true;
                return transport.pause(out.queue);
            }
            return self.finish(transport, worker, out);
        }
        self.end_with(transport, Abort::BodyTooLarge(self.intake.route, body_use), worker, out);
        self.finish_if_over(transport, worker, out);
    }

    /// Sends the answer to an error, and ends the connection if it cannot carry another request.
    fn finish_if_over(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        out.flush(transport.id());
        if !matches!(transport.phase(), Phase::Linger | Phase::Gone) && self.http.must_close() {
            self.finish(transport, worker, out);
        }
    }

    /// Ends the exchange and our direction; see [`Transport::finish`].
    pub(in crate::connection) fn finish(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        // What a client has sent last is of no use to the server, except behind bytes that are unsent.
        let is_needed = !transport.is_client() || transport.phase() == Phase::Closing;
        self.release(worker);
        transport.finish(is_needed, worker, out);
    }

    /// Closes the connection without waiting for the peer. The driver still sends the queued bytes.
    pub(super) fn close(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.release(worker);
        transport.close(worker, out);
    }

    /// Resets the connection, so that the peer can detect that an answer is incomplete.
    pub(super) fn abort(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.release(worker);
        transport.abort(worker, out);
    }

    /// Ends the exchange, and cancels its handler or the tunnel that it has accepted.
    pub(in crate::connection) fn release(&mut self, worker: &mut WorkerContext<impl Service>) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.lose(worker);
            exchange.recycle();
        }
        if let Some(tunnel) = self.accepted.take() {
            tunnel.end(Ended::Broken);
            drop_safely(tunnel);
        }
    }

    /// Handles the passed deadline of a server's connection in this phase. Returns true if the connection goes on.
    pub(in crate::connection) fn expired(
        &mut self,
        transport: &mut Transport,
        phase: Phase,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> bool {
        match phase {
            Phase::Linger => self.close(transport, worker, out),
            Phase::Proxy | Phase::Fresh | Phase::Idle => self.finish(transport, worker, out),
            Phase::Head => {
                transport.unread.clear();
                transport.log_refused(Some(408), Abort::HeadTooSlow.text(), worker);
                self.end_with(transport, Abort::HeadTooSlow, worker, out);
            }
            Phase::Body if self.body_is_fast_enough(worker) => self.wait_for(transport, Phase::Body, worker),
            Phase::Body => H1::new(self, transport, out).expire(Waits::Body, worker),
            Phase::Handler => H1::new(self, transport, out).expire(Waits::Handler, worker),
            Phase::Disconnected => self.end_with(transport, Abort::ClientLeft, worker, out),
            Phase::Write | Phase::Closing => self.abort(transport, worker, out),
            Phase::Tunnel | Phase::Streams | Phase::Gone => {}
        }
        out.flush(transport.id());
        if transport.is_ending() || transport.phase() == Phase::Body {
            return false;
        }
        if self.http.must_close() {
            self.finish(transport, worker, out);
            return false;
        }
        true
    }

    pub(super) fn body_is_fast_enough(&self, worker: &WorkerContext<impl Service>) -> bool {
        self.intake.has_received(worker.rules.least_body)
    }

    /// Begins a graceful shutdown of a client's connection. An idle one closes after [`DRAIN_TICKS`] if no request arrives, and a
    /// busy one after its answer.
    pub(in crate::connection) fn drain(&mut self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>) {
        self.http.close_after();
        if matches!(transport.phase(), Phase::Proxy | Phase::Fresh | Phase::Idle | Phase::Head) {
            // The next request may be on its way already, so the connection waits a moment, and longer if a part of it
            // has come.
            let is_quiet = transport.phase() != Phase::Head && transport.unread.is_empty();
            let after = if is_quiet { DRAIN_TICKS } else { DRAIN_HEAD_TICKS };
            transport.hurry(after, worker);
        }
    }
}
