//! The steps of a connection that differ in the client's role: how it begins, how it begins requests, and what it
//! reports to the pool.

use super::Connection;
use super::http1::H1;
use super::out::Out;
use super::phase::Phase;
use crate::client::{Failure, Interim, Link, Protocol, SURPLUS_TICKS, Setup, Stage};
use crate::deadline::{NEVER, TICKS_A_SECOND};
use crate::exchange::Tunnel;
use crate::exchange::abort::Abort;
use crate::exchange::lifecycle::Lifecycle;
use crate::raw::Raw;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h1::state::State;
use highwire_proto::{Head, Role, h1};
use http::{HeaderName, HeaderValue, StatusCode};
use std::any::Any;
use std::rc::Rc;

/// The number of ticks in which some of the rest of a body must come whose reader has dropped it.
const REST_TICKS: u32 = TICKS_A_SECOND;

impl Connection {
    /// Returns the link to the pool, if this is a connection to a server.
    #[inline]
    pub(crate) fn link(&self) -> Option<&Rc<Link>> {
        self.transport.link.as_ref()
    }

    /// Makes an opened connection one to a server of HTTP, if its task has asked for that.
    pub(super) fn become_client(
        &mut self,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let Some(tunnel) = self.tunnel() else { return };
        let Some((setup, received)) = tunnel.raw.borrow_mut().take_setup() else { return };
        // Only the client gives a connection to another protocol.
        let Ok(setup) = (setup as Box<dyn Any>).downcast::<Setup>() else { return };
        let link = setup.link.clone();
        self.tunnel = None;
        if let Some(old) = self.transport.link.take() {
            // This connection was one to a proxy, whose pool no longer counts it.
            old.close();
        }
        worker.rules = link.rules.clone();
        link.attach(worker.context.inbox.waker(self.transport.task().number()));
        self.transport.link = Some(link);
        self.http = h1::Connection::new(Role::Client);
        self.transport.phase = Phase::Fresh;
        if !self.begin_tls(*setup, worker, out) {
            self.opened_to(worker, out);
        }
        if !received.is_empty() && !self.transport.is_ending() {
            match out.tls {
                None => self.received_plain(&received, worker, head, out),
                Some(_) => self.received_tls(&received, worker, head, out),
            }
        }
    }

    /// Sends the first records of the TLS session. Returns false if there is no session.
    #[cfg(feature = "tls")]
    fn begin_tls(&mut self, setup: Setup, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) -> bool {
        let Some((mut secure, hello)) = setup.tls else { return false };
        if out.tls.is_some() {
            let text = "TLS to a server through TLS to its proxy is not supported";
            self.fail_client(Failure::Unsupported(text));
            self.abort(worker, out);
            return true;
        }
        out.send_raw(self.transport.id, &hello);
        secure.scratch = std::mem::take(&mut worker.scratch);
        out.tls = Some(secure);
        self.transport.is_secure = true;
        self.transport.account.set_session(super::tls::SESSION_BYTES);
        worker.deadlines.set(self.transport.id.index, worker.tick, worker.rules.handshake);
        if !self.recharge(worker) {
            self.fail_client(Failure::NoMemory);
            self.abort(worker, out);
        }
        true
    }

    #[cfg(not(feature = "tls"))]
    fn begin_tls(&mut self, _: Setup, _: &mut WorkerContext<impl Service>, _: &mut Out<'_>) -> bool {
        false
    }

    /// Handles the end of the TLS handshake, or the beginning of a connection without TLS.
    pub(super) fn opened_to(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some(link) = self.transport.link.clone() else { return };
        let is_agreed = out.tls.as_ref().is_some_and(|tls| tls.speaks_http2());
        let is_http2 = match link.protocol {
            Protocol::Auto => is_agreed,
            Protocol::Http10 | Protocol::Http11 if is_agreed => {
                let text = "the TLS configuration offers HTTP/2, which the client does not speak here";
                self.fail_client(Failure::Unsupported(text));
                return self.finish(worker, out);
            }
            Protocol::Http10 | Protocol::Http11 => false,
            Protocol::Http2 if out.tls.is_some() && !is_agreed => {
                self.fail_client(Failure::Unsupported("the server does not offer HTTP/2"));
                return self.finish(worker, out);
            }
            Protocol::Http2 => true,
        };
        if is_http2 {
            self.begin_http2(worker, out);
            if self.transport.is_ending() {
                return self.fail_client(Failure::NoMemory);
            }
        }
        link.open(is_http2);
        self.transport.phase = Phase::Fresh;
        self.wait_for(Phase::Idle, worker);
    }

    /// Records the reason why a client's connection ends, and fails its requests with that reason.
    pub(super) fn fail_client(&mut self, failure: Failure) {
        let Some(link) = self.transport.link.clone() else { return };
        let mine = self.exchange.as_mut().and_then(|exchange| exchange.take_asking());
        let streams = self.http2.iter_mut().flat_map(|http2| http2.active.iter_mut().flatten());
        let theirs = streams.filter_map(|active| active.exchange.take_asking());
        for asking in mine.into_iter().chain(theirs) {
            asking.fail(failure.copy());
        }
        link.set_reason(failure);
    }

    /// Begins the next request of an HTTP/1 connection, and ends the current one if nobody waits for it any more.
    pub(super) fn drive_client(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some(link) = self.transport.link.clone().filter(|link| !link.is_opening()) else { return };
        if self.http2.is_some() {
            return self.drive_http2_client(&link, worker, out);
        }
        self.recycle_exchange();
        if self.is_tunnel() {
            return;
        }
        if let Some(exchange) = &self.exchange {
            if exchange.is_unwanted() {
                self.abort(worker, out);
            } else if exchange.incoming.is_let_go() {
                self.finish_body(worker, out);
            }
            return;
        }
        if self.transport.work.is_unfinished() {
            // What the server has sent already must not become the response to the next request.
            return;
        }
        while self.transport.unread.is_empty()
            && self.http.client() == State::Idle
            && self.http.server() == State::Idle
            && self.exchange.is_none()
            && !self.transport.is_ending()
        {
            let Some(asking) = link.next() else { return };
            self.begin_request(asking, worker, out);
        }
    }

    /// Receives the rest of a body whose reader has dropped it, if it is short and comes soon. Otherwise ends the
    /// connection.
    fn finish_body(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let rest = self.http.announced();
        if rest == 0 || worker.rules.unread_body_bytes.is_some_and(|most| rest > most) {
            return self.abort(worker, out);
        }
        H1::new(self, out).data(&[], worker);
        self.transport.phase = Phase::Body;
        worker.deadlines.set(self.transport.id.index, worker.tick, REST_TICKS);
    }

    /// Handles the head of a response. `seen` has its bytes, and `behind` the bytes after it. Returns how many bytes of
    /// `behind` were used as the body.
    pub(super) fn response(
        &mut self,
        length: highwire_proto::Length,
        head: &mut Head,
        seen: &[u8],
        behind: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> usize {
        self.transport.served = self.transport.served.saturating_add(1);
        if let Some(link) = &self.transport.link
            && let Some(hint) = head.field(seen, b"keep-alive")
        {
            link.idle.set(link.rules.idle.min(idle_hint(hint).unwrap_or(NEVER)));
        }
        // The deadline for the body starts anew.
        self.transport.phase = Phase::Fresh;
        if head.upgrade {
            let raw = Raw::new(worker.context.inbox.waker(self.transport.task().number()));
            self.exchange().accept_tunnel(Tunnel::new(raw), head, seen, worker.now);
            self.become_tunnel();
            if let Some(link) = &self.transport.link {
                link.close();
            }
            return 0;
        }
        let asking = self.exchange.as_ref().and_then(|exchange| exchange.asking());
        if asking.is_some_and(|asking| asking.request().upgrade.is_some()) {
            // A server that has refused another protocol may expect it all the same.
            self.http.close_after();
        }
        let mut exchange = H1::new(self, out).with_behind(behind);
        exchange.answered(length, head, seen, worker);
        let used = exchange.used();
        self.await_reader();
        self.recycle_exchange();
        used
    }

    /// Handles an interim response.
    pub(super) fn interim_response(
        &mut self,
        head: &Head,
        seen: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let asking = self.exchange.as_ref().and_then(|exchange| exchange.asking());
        if asking.is_some_and(|asking| !asking.interim(|| interim(head, seen))) {
            self.end_with(Abort::Malformed(highwire_proto::Error::TooManyInterims), worker, out);
        }
    }

    /// Handles the passed deadline of the current phase.
    pub(super) fn client_out_of_time(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let Some(link) = self.transport.link.clone() else { return };
        if link.is_opening() {
            self.fail_client(Failure::TimedOut(Stage::Handshake));
            return self.abort(worker, out);
        }
        match self.transport.phase {
            Phase::Head => self.end_with(Abort::HeadTooSlow, worker, out),
            Phase::Body if !self.is_let_go() && self.body_is_fast_enough(worker) => {
                self.transport.phase = Phase::Fresh;
                return self.wait_for(Phase::Body, worker);
            }
            Phase::Body => self.end_with(Abort::BodyTooSlow, worker, out),
            Phase::Tunnel => return self.end_idle_tunnel(worker, out),
            Phase::Write => self.end_with(Abort::WriteTooSlow, worker, out),
            Phase::Closing => return self.abort(worker, out),
            Phase::Linger => return self.close(worker, out),
            _ => {}
        }
        if !self.transport.is_ending() {
            self.finish(worker, out);
        }
    }

    /// Returns true if a response is being received whose reader has dropped its body.
    fn is_let_go(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.is_let_go())
    }

    /// Returns the phase of an HTTP/1 connection to a server.
    pub(super) fn client_phase(&self) -> Phase {
        if self.is_tunnel() {
            return if self.transport.blocked { Phase::Write } else { Phase::Tunnel };
        }
        let Some(exchange) = &self.exchange else { return Phase::Idle };
        if self.transport.blocked && !exchange.incoming.is_streaming() {
            Phase::Write
        } else if exchange.incoming.is_streaming() && !exchange.incoming.is_full() {
            Phase::Body
        } else if exchange.asking().is_some() && !exchange.outgoing.is_streaming() {
            Phase::Head
        } else {
            // The program has to make or to take a part of a body.
            Phase::Handler
        }
    }

    /// Settles an HTTP/1 connection to a server: ends it if it cannot be used again, and sets the phase.
    pub(super) fn settle_client(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.recycle_exchange();
        let has_response = !self.is_tunnel()
            && self
                .exchange
                .as_ref()
                .is_none_or(|exchange| exchange.asking().is_none() && !exchange.incoming.is_streaming());
        if self.is_opening() {
            if self.transport.ended {
                self.fail_client(Failure::Tls("the server has ended the connection during the handshake".into()));
                self.finish(worker, out);
            }
            return;
        }
        if has_response {
            if let Some(exchange) = &mut self.exchange {
                // The server has responded before it has received the whole request. The rest is of no use, and the
                // connection cannot carry another request.
                exchange.outgoing.cut();
            }
            let is_idle = self.exchange.as_ref().is_none_or(|exchange| exchange.is_over())
                && self.http.client() == State::Idle
                && self.http.server() == State::Idle;
            if self.transport.blocked && is_idle {
                return self.wait_for(Phase::Write, worker);
            }
            let is_over = self.transport.link.as_ref().is_some_and(|link| link.is_over(worker.draining));
            if !is_idle || self.transport.ended || is_over {
                return self.finish(worker, out);
            }
        }
        self.wait_for(self.client_phase(), worker);
    }

    /// Returns true if this is a connection to a server that shall close when it has no request.
    #[inline]
    pub(super) fn retires(&self) -> bool {
        self.transport.link.as_ref().is_some_and(|link| link.retires())
    }

    /// Begins a shutdown: the connection closes when it has no request.
    pub(super) fn drain_client(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        // Requests of handlers that are still running may wait for a connection that is being opened.
        self.transport.link.iter().filter(|link| !link.is_opening()).for_each(|link| link.retire());
        match self.http2 {
            Some(_) => self.settle_http2(worker, out),
            None => self.settle_client(worker, out),
        }
        // Less may wait for readers now than when receiving paused.
        self.resume_if_wanted(out.queue);
    }

    /// Returns true if this is a connection to a server whose TLS handshake is not complete.
    pub(super) fn is_opening(&self) -> bool {
        self.transport.link.as_ref().is_some_and(|link| link.is_opening())
    }

    /// Reports to the pool how many requests the connection could begin. Called after each event.
    pub(crate) fn report(&mut self, worker: &mut WorkerContext<impl Service>) {
        let Some(link) = &self.transport.link else { return };
        if self.transport.is_ending() {
            return link.close();
        }
        if link.is_opening() || self.is_tunnel() {
            return;
        }
        if self.http2.as_ref().is_some_and(|http2| http2.http.peer_goes_away().is_some()) {
            // The requests in progress go on. Those that are not begun can be sent on another connection.
            return link.close();
        }
        let (is_idle, most) = match &self.http2 {
            None => {
                let is_idle = self.exchange.is_none()
                    && self.transport.unread.is_empty()
                    && !self.transport.work.is_unfinished()
                    && self.http.client() == State::Idle
                    && !self.transport.blocked
                    && !self.transport.ended;
                (is_idle, usize::from(is_idle))
            }
            // It takes no more requests while it is not known to live.
            Some(http2) if http2.pinged.is_some() => (false, 0),
            Some(http2) => (http2.http.open_streams() == 0, http2.room(worker.rules.streams)),
        };
        link.update(is_idle, most);
        if self.transport.phase == Phase::Idle && link.is_surplus() {
            let due = worker.tick.saturating_add(SURPLUS_TICKS);
            let index = self.transport.id.index;
            worker.deadlines.set_at(index, due.min(worker.deadlines.get(index)));
        }
    }
}

/// Returns the number of ticks for which a connection may be idle whose server closes it after the seconds in
/// `Keep-Alive: timeout=…` (RFC 2068 section 19.7.1.1). It is less, because a request that crosses the server's end on the
/// way is lost.
fn idle_hint(hint: &[u8]) -> Option<u32> {
    let mut parameters = std::str::from_utf8(hint).ok()?.split(',').filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    let ticks = seconds.trim().trim_matches('"').parse::<u32>().ok()?.saturating_mul(TICKS_A_SECOND);
    let margin = (ticks / 5).clamp(TICKS_A_SECOND / 2, 5 * TICKS_A_SECOND);
    Some(ticks.saturating_sub(margin).max(1))
}

/// Returns an interim response for the requester.
pub(super) fn interim(head: &Head, window: &[u8]) -> Interim {
    let fields = head.fields.iter().filter_map(|field| {
        let name = HeaderName::from_bytes(field.name.of(window)).ok()?;
        Some((name, HeaderValue::from_bytes(field.value.of(window)).ok()?))
    });
    Interim { status: StatusCode::from_u16(head.status).unwrap_or(StatusCode::CONTINUE), fields: fields.collect() }
}
