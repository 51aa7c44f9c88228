//! Decides after an event which phase a connection enters next, and when the deadline of that phase is.

use super::Connection;
use super::close::{DRAIN_HEAD_TICKS, DRAIN_TICKS};
use super::http1::H1;
use super::out::Out;
use super::phase::Phase;
use super::transport::Transport;
use crate::deadline::NEVER;
use crate::disconnect::OnDisconnect;
use crate::exchange::Exchange;
use crate::exchange::abort::Abort;
use crate::exchange::lifecycle::Lifecycle;
use crate::raw::Raw;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::{Error, Event, Head, h1};

impl Connection {
    /// Runs after most events. Queues the written bytes, handles the peer's end, and sets the phase and its deadline.
    #[inline]
    pub(super) fn settle(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        if self.http2.is_none()
            && self.exchange.is_none()
            && self.transport.unread.is_empty()
            && !self.transport.blocked
            && !self.transport.ended
            && self.transport.account.lent() == 0
            && !self.http.must_close()
            && !self.is_opening()
            && !self.retires()
        {
            // In the usual case, all requests are answered, and the connection waits for the next one.
            if self.http.client() == h1::state::State::Idle && !self.transport.is_ending() {
                out.flush(self.transport.id);
                self.transport.phase = Phase::Idle;
                worker.deadlines.set(self.transport.id.index, worker.tick, self.transport.idle_ticks(worker));
                return;
            }
        }
        self.settle_slowly(worker, head, out);
        if self.transport.blocked && out.waiting() > 0 && !self.transport.is_ending() {
            // The driver queues these bytes behind the blocked ones, so the connection is charged for them, too.
            self.sent_away(out.waiting(), worker, out);
        }
        out.flush(self.transport.id);
    }

    pub(super) fn settle_slowly(
        &mut self,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        use h1::state::State;
        if self.http2.is_some() {
            return self.settle_http2(worker, out);
        }
        if self.transport.is_ending() {
            return;
        }
        if self.transport.ended && !self.transport.end_seen && !self.transport.is_held_up() {
            self.see_end(worker, head, out);
            if self.transport.is_ending() {
                return;
            }
        }
        if self.transport.link.is_some() {
            return self.settle_client(worker, out);
        }
        self.recycle_exchange();
        if self.transport.account.lent() != 0
            && !self.transport.blocked
            && !self.exchange.as_ref().is_some_and(|exchange| exchange.awaits_answer())
        {
            self.transport.account.set_lent(0);
            self.recharge(worker);
        }
        let exchange = self.exchange.as_deref();
        let answering = exchange.is_some_and(|exchange| exchange.awaits_answer() || exchange.outgoing.is_streaming());
        if !answering && (self.http.must_close() || self.is_finished_with_peer()) {
            return self.finish(worker, out);
        }
        let mut left = None;
        if answering && self.transport.ended {
            left = exchange.map(|exchange| exchange.client_left());
            let waits = !self.transport.blocked && !self.transport.work.is_unfinished();
            if left == Some(OnDisconnect::CancelAtOnce) && waits {
                self.end_with(Abort::ClientLeft, worker, out);
                if !self.transport.is_ending() {
                    self.finish(worker, out);
                }
                return;
            }
        }
        let phase = if self.transport.blocked
            || exchange.is_some_and(|exchange| exchange.outgoing.is_streaming() && !exchange.awaits_answer())
        {
            if self.transport.blocked { Phase::Write } else { Phase::Handler }
        } else if self.is_tunnel() {
            Phase::Tunnel
        } else if self.http.client() == State::SendsBody {
            if self.transport.body_refused || self.incoming_is_full() { Phase::Handler } else { Phase::Body }
        } else if exchange.is_some_and(Exchange::awaits_answer) {
            Phase::Handler
        } else if !self.transport.unread.is_empty() && !self.transport.work.is_unfinished() {
            Phase::Head
        } else if self.transport.served == 0 {
            Phase::Fresh
        } else {
            Phase::Idle
        };
        let is_given_up = left == Some(OnDisconnect::Cancel) && worker.rules.disconnect != NEVER;
        let phase = if phase == Phase::Handler && is_given_up { Phase::Disconnected } else { phase };
        self.wait_for(phase, worker);
    }

    /// Parses the unread bytes and then reports the peer's end to the HTTP/1 state machine. Returns without the report
    /// if unread bytes must still wait, or if the connection is blocked or ending.
    fn see_end(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        use h1::state::State;
        // Unread bytes that had to wait may be parsed now.
        self.proceed(worker, head, out);
        if self.transport.is_ending() || self.transport.is_held_up() || self.transport.work.is_unfinished() {
            return;
        }
        // The unread bytes that are left either wait for a handler or belong to a message that will not be completed.
        let reads_on = match self.http.theirs() {
            State::Idle | State::AwaitsResponse => true,
            State::SendsBody => !self.incoming_is_full() && !self.transport.body_refused,
            _ => false,
        };
        if !reads_on && !self.transport.unread.is_empty() {
            return;
        }
        self.transport.end_seen = true;
        let unread = self.transport.unread.take();
        let is_cut = self.http.ends_with_connection() && !self.transport.end_said;
        let ended = if is_cut { Err(Error::Truncated) } else { self.http.receive_end(skip_line_ends(&unread)) };
        if let Err(error) = ended {
            self.refuse(error, worker, head, &unread, out);
        } else if let Ok(Event::End { .. }) = ended {
            H1::new(self, out).end(Vec::new(), worker);
        } else if let Some(tunnel) = self.tunnel() {
            // This is needed if the handler has accepted the tunnel after the peer's end. Otherwise the tunnel already
            // has the end.
            tunnel.peer_ended(self.transport.end_said);
        }
    }

    /// Returns true if the peer has ended its direction and all its requests are answered.
    pub(super) fn is_finished_with_peer(&self) -> bool {
        use h1::state::State;
        self.transport.end_seen
            && matches!(self.http.client(), State::Closed)
            && matches!(self.http.server(), State::Idle | State::MustClose | State::Closed | State::Done)
    }

    /// Sets the phase and its deadline; see [`Transport::wait_for`].
    pub(super) fn wait_for(&mut self, phase: Phase, worker: &mut WorkerContext<impl Service>) {
        let is_new = self.transport.phase != phase;
        if phase == Phase::Body && is_new {
            self.intake.arrived = 0;
        }
        self.transport.wait_for(phase, worker);
        if phase == Phase::Write && is_new {
            self.wait_to_write(worker);
        } else if is_new {
            self.keep_due(worker);
        }
    }

    /// Keeps the deadline that was just set, because an alarm of a tunnel's task may be earlier.
    fn keep_due(&self, worker: &mut WorkerContext<impl Service>) {
        if let Some(tunnel) = self.tunnel() {
            let due = worker.deadlines.get(self.transport.id.index);
            self.transport.set_tunnel_due(due, &mut tunnel.raw.borrow_mut(), worker);
        }
    }

    /// Wakes the task of a tunnel if its alarm is due. Returns true if the connection's own deadline has not passed.
    pub(super) fn ring(&self, worker: &mut WorkerContext<impl Service>) -> bool {
        let Some(tunnel) = self.tunnel() else { return false };
        let mut raw = tunnel.raw.borrow_mut();
        raw.ring(worker.tick);
        let is_early = raw.due > worker.tick;
        if is_early {
            self.transport.set_tunnel_due(raw.due, &mut raw, worker);
        }
        is_early
    }

    /// Sets the deadline by which the peer must take some of the waiting bytes.
    pub(super) fn wait_to_write(&mut self, worker: &mut WorkerContext<impl Service>) {
        let due = worker.tick.saturating_add(worker.rules.write);
        let due = self.http2.as_mut().map_or(due, |http2| http2.blocked_until(due, worker));
        worker.deadlines.set_at(self.transport.id.index, due);
        self.keep_due(worker);
    }
}

impl Transport {
    /// Sets the phase and its deadline. If the phase does not change, the deadline stays, except in [`Phase::Idle`] and
    /// [`Phase::Linger`], which restart it. For the deadline of [`Phase::Write`] over HTTP/2 see
    /// [`Connection::wait_for`].
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

/// Returns `bytes`, or an empty slice if they are only line ends. A client may send empty lines before a request, so
/// empty lines alone are not an incomplete message.
fn skip_line_ends(bytes: &[u8]) -> &[u8] {
    let only_line_ends = bytes.chunks(2).all(|pair| pair == b"\r\n");
    if only_line_ends { &[] } else { bytes }
}
