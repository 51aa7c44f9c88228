//! A connection that speaks HTTP/2. It serves many requests at the same time, each on its own stream.
//!
//! It has the same [`Transport`] as an HTTP/1 connection, with the socket, the unread buffer and the memory account.
//! This folder adds an `Active` for each stream with a pending exchange, and a schedule that decides which stream sends
//! next. A stream whose request is answered at once usually needs no `Active`.

mod ahead;
mod carrier;
mod client;
mod grants;
mod send;
mod settle;
pub(crate) mod streams;
mod tunnel;

pub(super) use self::carrier::H2;
pub(super) use self::streams::Http2;

use crate::body::most_incoming;
use crate::connection::http1::trailer_fields;
use crate::connection::out::{BATCH_BYTES, Out};
use crate::connection::transport::Transport;
use crate::connection::work::{self, Timing};
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::request::BodyUse;
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::runtime::rate_limited;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h2::{Event, Lent, StreamRef};
use highwire_proto::{Head, Length, h2};

impl Transport {
    /// Parses as much of `window` as the work allowance permits, until the peer must take some answers first. Returns
    /// the number of bytes used.
    pub(in crate::connection) fn advance_http2(
        &mut self,
        http2: &mut Http2,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) -> usize {
        let mut fields = std::mem::take(&mut worker.fields);
        let rules = worker.rules.clone();
        let limits = &rules.parser;
        let (mut at, mut has_opened) = (0, false);
        http2.http.set_second(worker.tick() / TICKS_A_SECOND);
        if self.is_client() && !window.is_empty() {
            (http2.heard, http2.pinged) = (worker.tick(), None);
        }
        self.work.begin(worker.turn(), worker.allowance());
        let mut timing = Timing::new(window.len(), &self.work, worker.stopwatch());
        while !self.is_held_up() && !self.is_ending() {
            let is_due = at < window.len() || http2.http.end_is_due();
            let stopwatch = worker.stopwatch();
            if timing.event(&mut self.work, &mut worker.reserve, is_due, stopwatch) {
                self.leave_unread(worker);
                break;
            }
            let mut lent = Lent { head, fields: &mut fields, out: &mut out.queue.output, limits };
            let received = match http2.http.receive(&window[at..], &mut lent) {
                Ok(received) => received,
                Err(failure) => {
                    tracing::debug!(peer = %self.peer(), code = ?failure.code, text = failure.text, "an HTTP/2 connection failed");
                    self.count_failure(http2, worker);
                    self.log_refused(None, failure.text, worker);
                    http2.fail(failure);
                    at = window.len();
                    self.unread.clear();
                    // The peer needs the GOAWAY frame, which names its mistake.
                    self.finish(true, worker, out);
                    break;
                }
            };
            at += received.consumed;
            if let Event::Head(..) | Event::Refused(..) = received.event {
                http2.idle_since = None;
            }
            match received.event {
                Event::NeedMore => break,
                Event::Head(stream, length) if self.is_client() => {
                    self.work.spend(work::decoded_head(fields.len(), head.fields.len()));
                    let message = (&mut *head, &fields[..], &window[at..]);
                    at += self.response_http2(http2, stream, length, message, worker, out);
                }
                Event::Head(stream, length) => {
                    self.work.spend(work::decoded_head(fields.len(), head.fields.len()));
                    self.request_http2(http2, stream, length, (head, &fields), worker, out);
                }
                Event::Refused(stream, error) => {
                    self.work.spend(work::decoded_head(fields.len(), head.fields.len()));
                    self.log_refused(Some(error.status()), error.text(), worker);
                    let mut response = Abort::Malformed(error).response(worker);
                    H2 { transport: self, http2, stream, out }.respond(&mut response, worker);
                }
                Event::Data(stream, data) => {
                    self.work.spend(work::FRAME + work::bytes(data.len()));
                    self.data_http2(http2, stream, data, worker, out);
                }
                Event::End(stream, trailers) => {
                    self.work.spend(work::FRAME + work::POLL);
                    let trailers = if trailers { trailer_fields(head, &fields) } else { Vec::new() };
                    self.end_http2(http2, stream, trailers, worker, out);
                }
                Event::Reset(stream, code) => {
                    self.work.spend(work::FRAME + work::POLL);
                    self.reset_http2(http2, stream, code, worker);
                }
                Event::Opened(stream) => {
                    self.work.spend(work::FRAME);
                    has_opened |= http2.opened(stream);
                }
                Event::AllOpened => {
                    self.work.spend(work::FRAME);
                    has_opened |= http2.all_opened();
                    if self.link().is_some_and(|link| !link.is_quiet()) {
                        // A request may have waited for the server's settings.
                        worker.context.inbox.waker(self.task().number()).wake();
                    }
                }
                Event::Interim(stream) => {
                    self.work.spend(work::decoded_head(fields.len(), head.fields.len()));
                    self.interim_http2(http2, stream, (head, &fields), worker, out);
                }
                Event::GoingAway => {}
            }
            if out.waiting() > BATCH_BYTES && !self.is_ending() {
                self.send_and_hear(worker, out);
            }
        }
        timing.end(&mut self.work, worker.stopwatch());
        fields.clear();
        worker.fields = fields;
        self.tell_fed(http2, worker, out);
        if has_opened {
            // This follows the loop, because sending may block the connection, which then parses nothing more.
            self.pump_http2(http2, worker, out);
        }
        at
    }

    #[cold]
    fn count_failure(&self, http2: &Http2, worker: &WorkerContext<impl Service>) {
        if let Some(kind) = http2.http.fired().filter(|_| !self.is_client()) {
            worker.shared.counters.http2_fired[kind as usize].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            rate_limited::log!(Abuse, warn, peer = %self.peer(), ?kind, "an HTTP/2 peer exceeds a limit against abuse; its connection ends");
        }
    }

    fn request_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        length: Length,
        request: (&mut Head, &[u8]),
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let (head, window) = request;
        if http2.stalls_too_much() {
            // The request was not processed, so the client may send it again (RFC 9113 section 8.7).
            rate_limited::log!(
                Memory,
                warn,
                "a client requests more without taking its answers; the stream is refused"
            );
            return http2.http.reset(stream, h2::Code::Refused, &mut out.queue.output);
        }
        self.count_request();
        worker.count_request(true);
        let config = worker.shared.config();
        let last = config.limits.requests_a_connection;
        if last != 0 && self.served() >= last {
            http2.http.go_away(&mut out.queue.output);
            http2.http.go_away(&mut out.queue.output);
        }
        H2 { transport: self, http2, stream, out }.begin(length, head, window, worker);
    }

    /// Handles received bytes of a request body or of a tunnel.
    fn data_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        data: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let arrived = http2.arrived + data.len() as u64;
        http2.note_burst(stream, data.len(), worker);
        let Some(active) = http2.get(stream) else {
            return http2.http.used(stream, data.len(), &mut out.queue.output);
        };
        if active.exchange.tunnel().is_some() {
            let begun = (worker.stopwatch())();
            self.data_tunnel(http2, stream, data, worker, out);
            return self.work.spend_since(begun, worker.stopwatch());
        }
        let body_use = active.exchange.incoming.body_use();
        active.given += if body_use == BodyUse::None { 0 } else { data.len() };
        let was_fed = std::mem::replace(&mut active.fed, body_use != BodyUse::None);
        http2.arrived = arrived;
        if body_use != BodyUse::None && !was_fed {
            http2.fed.push(stream);
        }
        H2 { transport: self, http2, stream, out }.data(data, worker);
    }

    /// Charges the body bytes that [`advance_http2`](Self::advance_http2) has just received, and polls the handler of
    /// each stream with such bytes once.
    fn tell_fed(&mut self, http2: &mut Http2, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if http2.fed.is_empty() {
            return;
        }
        let begun = (worker.stopwatch())();
        for stream in std::mem::take(&mut http2.fed) {
            if self.is_ending() {
                return;
            }
            let is_fed = http2.get(stream).is_some_and(|active| std::mem::take(&mut active.fed));
            let mut exchange = H2 { transport: self, http2, stream, out };
            if is_fed && exchange.charge_or_abort(worker) {
                exchange.transport.work.spend(work::POLL);
                exchange.poll_answer(worker);
            }
        }
        self.work.spend_since(begun, worker.stopwatch());
    }

    /// Lets the peer send as many more bytes as the handler or the tunnel's task has taken, if fewer than
    /// [`most_incoming`] still wait to be taken.
    pub(in crate::connection) fn credit_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let awaits_body = http2.http.awaits_body(stream);
        let (was_closed, arrived) = (!http2.http.may_receive_on(stream), http2.arrived);
        let Some(active) = http2.get(stream) else { return };
        let Some(waiting) = active.untaken() else { return };
        let taken = active.given.saturating_sub(waiting);
        if taken > 0 && waiting < most_incoming() {
            active.given -= taken;
            let waits = active.waits == Waits::Handler || (active.waits == Waits::Body && was_closed);
            let is_incoming = active.is_asked || !active.is_answered();
            if waits && awaits_body && is_incoming && active.exchange.tunnel().is_none() {
                // The handler has taken bytes, so a new period for the peer's rate begins.
                active.waits = Waits::Body;
                active.judge_from_now(worker, arrived);
            }
            let kept = http2.give_back_ahead(stream, taken, worker);
            http2.http.used(stream, taken - kept, &mut out.queue.output);
            if waiting == 0 {
                http2.look_ahead(stream, worker, out);
            }
        }
    }

    /// Handles the end of a request body, or of the peer's direction of a tunnel.
    fn end_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        trailers: Vec<(http::HeaderName, http::HeaderValue)>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let handler_due = worker.tick().saturating_add(worker.rules.handler);
        http2.end_ahead(stream);
        let Some(active) = http2.get(stream) else { return };
        if active.drops {
            return http2.forget(stream, worker);
        }
        if active.exchange.tunnel().is_some() {
            return self.end_tunnel(http2, stream, worker, out);
        }
        (active.due, active.waits) = (handler_due, Waits::Handler);
        let is_fed = std::mem::take(&mut active.fed);
        let mut exchange = H2 { transport: self, http2, stream, out };
        if !is_fed || exchange.charge_or_abort(worker) {
            exchange.end(trailers, worker);
        }
        if http2.get(stream).is_some_and(|active| active.is_asked) {
            self.answered_http2(http2, stream, worker, out);
        }
    }
}
