//! Decides after an event what a connection of HTTP/1 waits for.

use super::{H1, Http1};
use crate::body::most_incoming;
use crate::connection::out::Out;
use crate::connection::phase::Phase;
use crate::connection::transport::Transport;
use crate::connection::unread::UNREAD_BYTES;
use crate::exchange::Exchange;
use crate::exchange::abort::Abort;
use crate::exchange::disconnect::OnDisconnect;
use crate::exchange::lifecycle::Lifecycle;
use crate::runtime::deadline::NEVER;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Queue;
use highwire_proto::h1::state::State;
use highwire_proto::{Error, Event};

impl Http1 {
    /// Handles the usual case after an event: all requests are answered, and the connection waits for the next one. Returns false
    /// if it is another case.
    #[inline]
    pub(in crate::connection) fn settle_idle(
        &self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> bool {
        let is_idle = self.exchange.is_none()
            && transport.unread.is_empty()
            && !transport.blocked()
            && !transport.ended()
            && transport.account.lent() == 0
            && !self.http.must_close()
            && !transport.is_opening()
            && !transport.retires()
            && self.http.client() == State::Idle
            && !transport.is_ending();
        if is_idle {
            out.flush(transport.id());
            transport.wait_for(Phase::Idle, worker);
        }
        is_idle
    }

    /// Ends the connection if it cannot be used again, or sets its phase and the deadline.
    pub(in crate::connection) fn settle(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if transport.is_ending() {
            return;
        }
        if transport.is_client() {
            return self.settle_client(transport, worker, out);
        }
        self.recycle_exchange();
        if transport.account.lent() != 0
            && !transport.blocked()
            && !self.exchange.as_ref().is_some_and(|exchange| exchange.awaits_answer())
        {
            transport.account.set_lent(0);
            self.recharge(transport, worker);
        }
        let exchange = self.exchange.as_deref();
        let answering = exchange.is_some_and(|exchange| exchange.awaits_answer() || exchange.outgoing.is_streaming());
        if !answering && (self.http.must_close() || self.is_finished_with_peer()) {
            return self.finish(transport, worker, out);
        }
        let mut left = None;
        if answering && transport.ended() {
            left = exchange.map(|exchange| exchange.client_left());
            let waits = !transport.blocked() && !transport.work.is_unfinished();
            if left == Some(OnDisconnect::CancelAtOnce) && waits {
                self.end_with(transport, Abort::ClientLeft, worker, out);
                if !transport.is_ending() {
                    self.finish(transport, worker, out);
                }
                return;
            }
        }
        let phase = if transport.blocked()
            || exchange.is_some_and(|exchange| exchange.outgoing.is_streaming() && !exchange.awaits_answer())
        {
            if transport.blocked() { Phase::Write } else { Phase::Handler }
        } else if self.http.client() == State::SendsBody {
            if self.body_refused || self.incoming_is_full() { Phase::Handler } else { Phase::Body }
        } else if exchange.is_some_and(Exchange::awaits_answer) {
            Phase::Handler
        } else if !transport.unread.is_empty() && !transport.work.is_unfinished() {
            Phase::Head
        } else if transport.served() == 0 {
            Phase::Fresh
        } else {
            Phase::Idle
        };
        let is_given_up = left == Some(OnDisconnect::Cancel) && worker.rules.disconnect != NEVER;
        let phase = if phase == Phase::Handler && is_given_up { Phase::Disconnected } else { phase };
        self.wait_for(transport, phase, worker);
    }

    /// Returns true if the peer's end must be reported to the state machine.
    pub(in crate::connection) fn end_is_unseen(&self, transport: &Transport) -> bool {
        transport.ended() && !self.end_seen && !transport.is_held_up()
    }

    /// Reports the peer's end to the state machine, after the unread bytes were parsed. Returns without the report
    /// if unread bytes must still wait, or if the connection is blocked or ending.
    pub(in crate::connection) fn see_end(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if transport.is_ending() || transport.is_held_up() || transport.work.is_unfinished() {
            return;
        }
        // The unread bytes that are left either wait for a handler or belong to a message that will not be completed.
        let reads_on = match self.http.theirs() {
            State::Idle | State::AwaitsResponse => true,
            State::SendsBody => !self.incoming_is_full() && !self.body_refused,
            _ => false,
        };
        if !reads_on && !transport.unread.is_empty() {
            return;
        }
        self.end_seen = true;
        let unread = transport.unread.take();
        let is_cut = self.http.ends_with_connection() && !transport.end_said();
        let ended = if is_cut { Err(Error::Truncated) } else { self.http.receive_end(skip_line_ends(&unread)) };
        if let Err(error) = ended {
            self.refuse(transport, error, worker, out);
        } else if let Ok(Event::End { .. }) = ended {
            H1::new(self, transport, out).end(Vec::new(), worker);
        }
    }

    /// Returns true if the peer has ended its direction and all its requests are answered.
    fn is_finished_with_peer(&self) -> bool {
        self.end_seen
            && matches!(self.http.client(), State::Closed)
            && matches!(self.http.server(), State::Idle | State::MustClose | State::Closed | State::Done)
    }

    /// Sets the phase and its deadline; see [`Transport::wait_for`].
    pub(in crate::connection) fn wait_for(
        &mut self,
        transport: &mut Transport,
        phase: Phase,
        worker: &mut WorkerContext<impl Service>,
    ) {
        if phase == Phase::Body && transport.phase() != phase {
            self.intake.arrived = 0;
        }
        transport.wait_for(phase, worker);
    }

    /// Counts and charges the bytes that this connection holds now. Returns false if the memory budget has no room.
    pub(super) fn recharge(&self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>) -> bool {
        self.count_exchanges(transport);
        transport.charge(worker)
    }

    /// Counts the bytes that the exchange holds now, for the next [`Transport::charge`].
    pub(in crate::connection) fn count_exchanges(&self, transport: &mut Transport) {
        let lent = transport.account.lent();
        let exchange = self.exchange.as_ref().map_or(lent, |exchange| exchange.lent(lent) + exchange.held());
        transport.account.set_exchanges(exchange);
    }

    /// Ends the exchange of a connection that is ending, and gives back its charge.
    #[inline]
    pub(in crate::connection) fn release_if_ended(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
    ) {
        if transport.is_ending() && (self.exchange.is_some() || self.becomes_tunnel()) {
            self.release(worker);
            transport.give_back_exchanges(worker);
        }
    }

    /// Returns the number of unread bytes at which receiving stops; see [`Transport::most_unread`].
    pub(in crate::connection) fn most_unread(&self, transport: &Transport) -> usize {
        // While the reader of a response takes nothing, its connection keeps no more than the queue of the body does.
        let is_full = transport.is_client() && self.incoming_is_full();
        transport.most_unread(if is_full { most_incoming() } else { UNREAD_BYTES })
    }

    /// Resumes receiving if it is paused and no reason for the pause is left, or receives the next bytes into the memory
    /// of a body's reader.
    pub(in crate::connection) fn resume_if_wanted(&mut self, transport: &mut Transport, queue: &mut Queue) {
        if self.lend_buffer(transport, queue) || !transport.paused() {
            return;
        }
        let full = transport.is_held_up()
            || self.body_refused
            || transport.unread.len() >= self.most_unread(transport)
            || self.incoming_is_full();
        if !full && transport.phase() != Phase::Gone {
            self.receive_on(transport, queue);
        }
    }
}

/// Returns `bytes`, or an empty slice if they are only line ends. A client may send empty lines before a request, so
/// empty lines alone are not an incomplete message.
fn skip_line_ends(bytes: &[u8]) -> &[u8] {
    let only_line_ends = bytes.chunks(2).all(|pair| pair == b"\r\n");
    if only_line_ends { &[] } else { bytes }
}
