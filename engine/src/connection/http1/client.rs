//! Requests of ours over HTTP/1, and their responses.

use super::send::write_fields;
use super::{H1, Http1, Parsed};
use crate::client::{Failure, Link, PendingRequest, Protocol, Stage};
use crate::connection::client::interim;
use crate::connection::out::Out;
use crate::connection::phase::Phase;
use crate::connection::transport::Transport;
use crate::exchange::abort::Abort;
use crate::exchange::carrier::Carrier;
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Tunnel};
use crate::message::fields::check;
use crate::raw::Raw;
use crate::runtime::deadline::{NEVER, TICKS_A_SECOND};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h1::state::State;
use highwire_proto::{Head, Version, h1};
use http::Method;
use std::rc::Rc;

/// The number of ticks in which some of the rest of a body must come whose reader has dropped it.
const REST_TICKS: u32 = TICKS_A_SECOND;

impl Http1 {
    /// Sends a request, or its head if the body follows in parts. If the request is invalid, fails it and sends nothing.
    fn begin_request(
        &mut self,
        transport: &mut Transport,
        pending_request: Rc<PendingRequest>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let version = match transport.link().map(|link| link.protocol) {
            Some(Protocol::Http10) => Version::Http10,
            _ => Version::Http11,
        };
        let request = pending_request.request();
        if let Err(error) = check(&request.fields) {
            drop(request);
            return pending_request.fail(Failure::Invalid(error));
        }
        let is_connect = request.method == Method::CONNECT;
        let sent = self.http.send_request(
            h1::Request {
                method: request.method.as_str(),
                target: &request.target,
                version,
                length: request.content.length(),
                keep_alive: !request.closes && !worker.draining(),
                upgrade: request.upgrade.is_some() || is_connect,
            },
            &mut out.queue.output,
            |writer| {
                writer.field(b"Host", request.authority.as_bytes());
                if let Some(protocol) = request.upgrade.as_ref().filter(|_| !is_connect) {
                    writer.field(b"Upgrade", protocol.as_bytes());
                }
                write_fields(writer, &request.fields);
            },
        );
        let is_sparing = request.is_sparing;
        drop(request);
        if let Err(error) = sent {
            return pending_request.fail(Failure::Invalid(error));
        }
        let content = pending_request.begin(worker.context.inbox.waker(transport.task().number()), worker.now());
        let mut exchange = Exchange::boxed();
        exchange.ask(pending_request);
        self.exchange = Some(exchange);
        self.receive_head_alone(transport, is_sparing, out.queue);
        self.intake = Default::default();
        transport.restart();
        self.send_content(transport, content, worker, out);
        if let Some(exchange) = H1::new(self, transport, out).exchange() {
            exchange.outgoing.end_unless_it_goes_on();
        }
    }

    /// Receives the rest of a body whose reader has dropped it, if it is short and comes soon. Otherwise ends the
    /// connection.
    fn finish_body(&mut self, transport: &mut Transport, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let rest = self.http.announced();
        if rest == 0 || worker.rules.unread_body_bytes.is_some_and(|most| rest > most) {
            return self.abort(transport, worker, out);
        }
        H1::new(self, transport, out).data(&[], worker);
        transport.wait_until(Phase::Body, worker.tick().saturating_add(REST_TICKS), worker);
    }

    /// Handles the head of a response. Returns how many bytes behind it were used as the body.
    pub(super) fn response(
        &mut self,
        transport: &mut Transport,
        length: highwire_proto::Length,
        parsed: Parsed<'_>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> usize {
        let Parsed { head, seen, behind } = parsed;
        transport.count_request();
        if let Some(link) = transport.link()
            && let Some(hint) = head.field(seen, b"keep-alive")
        {
            link.idle.set(link.rules.idle.min(idle_hint(hint).unwrap_or(NEVER)));
        }
        // The deadline for the body starts anew.
        transport.restart();
        if head.upgrade {
            let raw = Raw::new(worker.context.inbox.waker(transport.task().number()));
            self.exchange().accept_tunnel(Tunnel::new(raw), head, seen, worker.now());
            self.become_tunnel(transport);
            if let Some(link) = transport.link() {
                link.close();
            }
            return 0;
        }
        let pending_request = self.exchange.as_ref().and_then(|exchange| exchange.pending_request());
        if pending_request.is_some_and(|pending_request| pending_request.request().upgrade.is_some()) {
            // A server that has refused another protocol may expect it all the same.
            self.http.close_after();
        }
        let mut exchange = H1::new(self, transport, out).with_behind(behind);
        exchange.answered(length, head, seen, worker);
        let used = exchange.used();
        self.await_reader(transport);
        self.recycle_exchange();
        used
    }

    /// Handles an interim response.
    pub(super) fn interim_response(
        &mut self,
        transport: &mut Transport,
        head: &Head,
        seen: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let pending_request = self.exchange.as_ref().and_then(|exchange| exchange.pending_request());
        if pending_request.is_some_and(|pending_request| !pending_request.interim(|| interim(head, seen))) {
            self.end_with(transport, Abort::Malformed(highwire_proto::Error::TooManyInterims), worker, out);
        }
    }

    /// Handles the passed deadline of the current phase.
    pub(in crate::connection) fn client_out_of_time(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(link) = transport.link().cloned() else { return };
        if link.is_opening() {
            self.fail_client(transport, Failure::TimedOut(Stage::Handshake));
            return self.abort(transport, worker, out);
        }
        match transport.phase() {
            Phase::Head => self.end_with(transport, Abort::HeadTooSlow, worker, out),
            Phase::Body if !self.is_let_go() && self.body_is_fast_enough(worker) => {
                transport.restart();
                return self.wait_for(transport, Phase::Body, worker);
            }
            Phase::Body => self.end_with(transport, Abort::BodyTooSlow, worker, out),
            Phase::Write => self.end_with(transport, Abort::WriteTooSlow, worker, out),
            Phase::Closing => return self.abort(transport, worker, out),
            Phase::Linger => return self.close(transport, worker, out),
            _ => {}
        }
        if !transport.is_ending() {
            self.finish(transport, worker, out);
        }
    }

    /// Returns true if a response is being received whose reader has dropped its body.
    fn is_let_go(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.is_let_go())
    }

    /// Returns the phase of an HTTP/1 connection to a server.
    fn client_phase(&self, transport: &Transport) -> Phase {
        let Some(exchange) = &self.exchange else { return Phase::Idle };
        if transport.blocked() && !exchange.incoming.is_streaming() {
            Phase::Write
        } else if exchange.incoming.is_streaming() && !exchange.incoming.is_full() {
            Phase::Body
        } else if exchange.pending_request().is_some() && !exchange.outgoing.is_streaming() {
            Phase::Head
        } else {
            // The program has to make or to take a part of a body.
            Phase::Handler
        }
    }

    /// Settles an HTTP/1 connection to a server: ends it if it cannot be used again, and sets the phase.
    pub(in crate::connection) fn settle_client(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.recycle_exchange();
        let has_response = self
            .exchange
            .as_ref()
            .is_none_or(|exchange| exchange.pending_request().is_none() && !exchange.incoming.is_streaming());
        if transport.is_opening() {
            if transport.ended() {
                self.fail_client(
                    transport,
                    Failure::Tls("the server has ended the connection during the handshake".into()),
                );
                self.finish(transport, worker, out);
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
            if transport.blocked() && is_idle {
                return self.wait_for(transport, Phase::Write, worker);
            }
            let is_over = transport.link().is_some_and(|link| link.is_over(worker.draining()));
            if !is_idle || transport.ended() || is_over {
                return self.finish(transport, worker, out);
            }
        }
        self.wait_for(transport, self.client_phase(transport), worker);
    }

    /// Begins the next request if none is in progress. Ends the connection if the requester of the current one has given up.
    pub(in crate::connection) fn drive_client(
        &mut self,
        transport: &mut Transport,
        link: &Rc<Link>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.recycle_exchange();
        if let Some(exchange) = &self.exchange {
            if exchange.is_unwanted() {
                self.abort(transport, worker, out);
            } else if exchange.incoming.is_let_go() {
                self.finish_body(transport, worker, out);
            }
            return;
        }
        if transport.work.is_unfinished() {
            // What the server has sent already must not become the response to the next request.
            return;
        }
        while transport.unread.is_empty()
            && self.http.client() == State::Idle
            && self.http.server() == State::Idle
            && self.exchange.is_none()
            && !transport.is_ending()
        {
            let Some(pending_request) = link.next() else { return };
            self.begin_request(transport, pending_request, worker, out);
        }
    }

    /// Returns true if the connection to a server could begin a request.
    pub(in crate::connection) fn may_ask(&self, transport: &Transport) -> bool {
        self.exchange.is_none()
            && transport.unread.is_empty()
            && !transport.work.is_unfinished()
            && self.http.client() == State::Idle
            && !transport.blocked()
            && !transport.ended()
    }

    /// Fails the request of ours.
    pub(in crate::connection) fn fail_pending(&mut self, failure: &Failure) {
        if let Some(pending_request) = self.exchange.as_mut().and_then(|exchange| exchange.take_pending()) {
            pending_request.fail(failure.copy());
        }
    }

    /// Fails the request of ours, and records that as the reason why the connection ends.
    fn fail_client(&mut self, transport: &Transport, failure: Failure) {
        self.fail_pending(&failure);
        if let Some(link) = transport.link() {
            link.set_reason(failure);
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
