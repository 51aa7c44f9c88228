//! Runs an exchange from the head of its request to the end of its response, in the same way for every carrier.

use super::abort::Abort;
use super::carrier::{Carrier, Sent};
use super::incoming::Ended;
use super::outgoing::Next;
use super::record::{Observed, Record, writes_lines};
use super::{Collect, Waits};
use crate::client::{Answer, AnswerBody};
use crate::message::request::{BodyUse, Hooks, Ready};
use crate::message::response::{Content, Response};
use crate::runtime::rate_limited;
use crate::service::Outcome;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::{Head, Length, Method};
use http::{HeaderName, HeaderValue, StatusCode};
use std::task::Poll;

/// The events of an exchange, implemented once for every [`Carrier`].
pub(crate) trait Lifecycle: Carrier {
    /// Begins the exchange of a request: finds its route, and then calls the handler, waits for the body, or responds
    /// with an error.
    #[inline]
    fn begin(&mut self, length: Length, head: &mut Head, window: &[u8], worker: &mut WorkerContext<impl Service>) {
        worker.override_method(head, window);
        if worker.records() {
            return self.begin_recorded(length, head, window, worker);
        }
        self.begin_unrecorded(length, head, window, worker);
    }

    /// Begins an exchange that the access log or the service's observer will learn of.
    #[inline(never)]
    fn begin_recorded(
        &mut self,
        length: Length,
        head: &mut Head,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
    ) {
        self.begin_record(head, window, worker);
        self.begin_unrecorded(length, head, window, worker);
        self.keep_record(worker);
    }

    /// Begins to record an exchange for the access log or the service's observer.
    fn begin_record(&mut self, head: &Head, window: &[u8], worker: &mut WorkerContext<impl Service>) {
        let (method, version, is_secure) = (head.method, head.version, self.caller().is_secure());
        let request = Observed { since: worker.now(), method, version, is_secure, route: None };
        if writes_lines(worker) {
            let record = Record::new(request, worker.observer.clone()).with_line(head, window, self.caller().peer());
            self.make_exchange(worker).keep_record(record);
        } else if worker.observer.is_some() {
            // Most requests are answered at once and then need no exchange.
            worker.observed = Some(request);
        }
    }

    #[inline(never)]
    fn record_route(&mut self, route: u32, worker: &mut WorkerContext<impl Service>) {
        if let Some(request) = &mut worker.observed {
            request.route = Some(route);
        } else if let Some(record) = self.exchange().and_then(|exchange| exchange.record.as_mut()) {
            record.set_route(route);
        }
    }

    /// Keeps in the exchange what is recorded of a request that was not answered at once.
    fn keep_record(&mut self, worker: &mut WorkerContext<impl Service>) {
        if let Some(request) = worker.observed.take()
            && let Some(exchange) = self.exchange()
        {
            exchange.keep_record(Record::new(request, worker.observer.clone()));
        }
    }

    /// The rest of [`begin`](Self::begin).
    #[inline]
    fn begin_unrecorded(
        &mut self,
        length: Length,
        head: &mut Head,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
    ) {
        let route = match worker.route(head, window, self.caller()) {
            Ok(route) => route,
            Err(mut response) => {
                if length != Length::Empty {
                    self.leave_body(length, head, worker);
                }
                return self.respond(&mut response, worker);
            }
        };
        if worker.records() {
            self.record_route(route, worker);
        }
        if head.method == Method::Connect && self.connect(worker) {
            self.call(route, (head, window), Ready::Nothing, worker);
            return self.connected(length, worker);
        }
        if length == Length::Empty {
            return self.call(route, (head, window), Ready::Nothing, worker);
        }
        self.begin_with_body(route, length, head, window, worker);
    }

    /// The rest of [`begin`](Self::begin) for a request that has a body.
    fn begin_with_body(
        &mut self,
        route: u32,
        length: Length,
        head: &mut Head,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
    ) {
        let body_use = match worker.body_use(route) {
            // The other protocol's bytes follow the body, so the body is read first (RFC 9110 section 7.8).
            BodyUse::None if head.upgrade && Self::UPGRADES => BodyUse::Whole,
            body_use => body_use,
        };
        let announced = if let Length::Exact(length) = length { length } else { 0 };
        if let Some(mut response) = worker.announces_too_much(route, body_use, announced) {
            self.stop_body(worker);
            return self.respond(&mut response, worker);
        }
        if body_use != BodyUse::None && head.expects_continue && self.awaits_continue() {
            // This cannot fail, because no response has begun and there are no fields that could be refused.
            let _ = self.interim(100, &[]);
        }
        if body_use == BodyUse::Whole
            && let Some(body) = self.whole_body(length, head, worker)
        {
            let bytes = body.len();
            self.call(route, (head, window), Ready::Whole(body), worker);
            if self.exchange().is_some_and(|exchange| exchange.awaits_answer()) {
                self.lend(bytes);
                self.charge_or_abort(worker);
            }
            return;
        }
        let task = self.task();
        match body_use {
            BodyUse::None => {
                self.body_begins(body_use, worker);
                self.count_from(route);
                self.leave_body(length, head, worker);
                self.call(route, (head, window), Ready::Nothing, worker);
            }
            BodyUse::Whole => {
                self.make_exchange(worker).incoming.collect(head, window);
                self.body_begins(body_use, worker);
                self.count_from(route);
            }
            BodyUse::Parts => {
                let waker = worker.context.inbox.waker(task.number());
                let body = self.make_exchange(worker).incoming.stream(waker);
                self.body_begins(body_use, worker);
                self.count_from(route);
                self.call(route, (head, window), Ready::Parts(body), worker);
            }
        }
        // If the handler has answered already, the carrier charges the exchange later.
        if self.may_answer() {
            self.charge_or_abort(worker);
        }
    }

    /// Starts to count the body's bytes against the route's limit. The caller must call
    /// [`body_begins`](Carrier::body_begins) first.
    fn count_from(&mut self, route: u32) {
        if let Some(intake) = self.intake() {
            (intake.route, intake.bytes) = (route, 0);
        }
    }

    /// Calls the handler of `route`, which must be the result of the last look-up, and handles the handler's result.
    #[inline]
    fn call(&mut self, route: u32, request: (&Head, &[u8]), body: Ready, worker: &mut WorkerContext<impl Service>) {
        let mut hooks = Hooks::default();
        if let Some(extensions) = self.take_extensions() {
            *hooks.extensions() = extensions;
        }
        let mut answer = None;
        let outcome = worker.call(route, request, self.caller(), self.task(), body, &mut hooks, &mut answer);
        if hooks.may_be_kept()
            && let Some(kept) = hooks.take_kept()
        {
            self.make_exchange(worker).keep_hooks(kept);
        }
        match outcome {
            // If the handler took a `Replier`, the handler's own result is ignored.
            Outcome::Ready if self.exchange().is_some_and(|exchange| exchange.has_reply()) => self.poll_answer(worker),
            Outcome::Ready => match &mut answer {
                Some(response) => self.answer(response, worker),
                None => {
                    rate_limited::log!(Mistake, error, "a service returned `Outcome::Ready` without an answer");
                    self.answer(&mut worker.error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error"), worker);
                }
            },
            Outcome::Pending(place) => {
                self.make_exchange(worker).keep_future((route, place));
                self.send_interims();
                if Self::SHARES_CONNECTION {
                    self.charge_or_abort(worker);
                } else {
                    self.charge_decoded(worker);
                }
            }
        }
    }

    /// Sends the queued interim responses, and then a handler's answer, or the answer's head if the body follows in
    /// parts.
    #[inline]
    fn answer(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        if self.exchange().is_none() {
            return self.respond(response, worker);
        }
        self.send_interims();
        self.respond(response, worker);
        if let Some(exchange) = self.exchange() {
            exchange.drop_hooks();
        }
    }

    /// Sends a final response of a handler or of the lifecycle, and records the exchange's end if that is wanted.
    #[inline]
    fn respond(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        self.admit(response, worker);
        worker.prepare(response, self.caller().is_secure());
        if worker.records() && self.record_response(response, worker) {
            return self.send(response, worker);
        }
        let Some(exchange) = self.exchange() else { return self.send(response, worker) };
        exchange.outgoing.begin();
        if let Some(mut record) = exchange.take_record() {
            let has_tunnel = exchange.tunnel().is_some();
            record.begins(self.caller(), response, has_tunnel);
            let exchange = self.make_exchange(worker);
            exchange.record = Some(record);
        }
        self.send(response, worker);
        if let Some(exchange) = self.exchange() {
            exchange.end_record();
            exchange.outgoing.end_unless_it_goes_on();
        }
    }

    /// Records the end of a request that is answered at once and needs no exchange, before the client can see it, and returns true.
    #[inline(never)]
    fn record_response(&mut self, response: &Response, worker: &mut WorkerContext<impl Service>) -> bool {
        let Some(request) = worker.observed.take() else { return false };
        if let (Content::Bytes(bytes), None) = (&response.content, self.exchange())
            && bytes.len() <= Self::AT_ONCE
        {
            let bytes = if request.method == Method::Head { 0 } else { bytes.len() as u64 };
            worker.observe(request, response.status.as_u16(), bytes);
            return true;
        }
        self.make_exchange(worker).keep_record(Record::new(request, worker.observer.clone()));
        false
    }

    /// Checks the reply slot, polls the handler, and sends the answer if there is one.
    fn poll_answer(&mut self, worker: &mut WorkerContext<impl Service>) {
        let task = self.task();
        self.send_interims();
        let Some(exchange) = self.exchange() else { return };
        if let Some(mut response) = exchange.take_answer(worker, task, Self::CREDITS) {
            self.answer(&mut response, worker);
        } else {
            self.send_interims();
            self.charge_decoded(worker);
        }
        self.polled(worker);
    }

    /// Sends the interim responses that the handler has queued.
    #[inline]
    fn send_interims(&mut self) {
        let waiting = self.exchange().map_or_else(Vec::new, |exchange| exchange.take_interims());
        for (status, fields) in waiting {
            if let Err(error) = self.interim(status.as_u16(), &fields) {
                rate_limited::log!(Mistake, error, %error, "cannot send a handler's interim response");
            }
        }
    }

    /// Handles the head of the response on a client, and gives the response to the requester.
    fn answered(&mut self, length: Length, head: &mut Head, window: &[u8], worker: &mut WorkerContext<impl Service>) {
        let kept = (head.to_kept(), Bytes::copy_from_slice(window));
        let whole = if length == Length::Empty { None } else { self.whole_body(length, head, worker) };
        let waker = worker.context.inbox.waker(self.task().number());
        let Some(exchange) = self.exchange() else { return };
        exchange.incoming.begin();
        let body = match whole {
            Some(body) => AnswerBody::Whole(body),
            None if length == Length::Empty => AnswerBody::Empty,
            None => AnswerBody::Parts(exchange.incoming.stream(waker)),
        };
        if let AnswerBody::Parts(_) = body {
            self.body_begins(BodyUse::Parts, worker);
        } else {
            exchange.incoming.end(Vec::new());
        }
        let Some(pending_request) = self.exchange().and_then(|exchange| exchange.take_pending()) else { return };
        let (head, window) = kept;
        pending_request.answer(Box::new(Answer { head, window, body }), worker.now());
    }

    /// Receives bytes of the request's body for the handler, or drops them, and checks the body's limit. Returns how
    /// the body is used.
    fn data(&mut self, data: &[u8], worker: &mut WorkerContext<impl Service>) -> BodyUse {
        let received = self.exchange().map_or((BodyUse::None, false), |exchange| exchange.incoming.receive(data));
        self.count_data(received, data.len(), worker)
    }

    /// Does what [`data`](Self::data) does for `count` bytes that were received into the lent buffer of the body's
    /// reader.
    fn received_into(&mut self, buffer: Vec<u8>, count: usize, worker: &mut WorkerContext<impl Service>) -> BodyUse {
        let Some(exchange) = self.exchange() else { return BodyUse::None };
        exchange.incoming.take_back(buffer);
        let received = exchange.incoming.receive(&[]);
        self.count_data(received, count, worker)
    }

    /// Counts received bytes of the body, and checks the body's limit. `received` is the result of
    /// [`Incoming::receive`](super::Incoming::receive).
    fn count_data(
        &mut self,
        (body_use, has_let_go): (BodyUse, bool),
        count: usize,
        worker: &mut WorkerContext<impl Service>,
    ) -> BodyUse {
        let announced = self.announced();
        let Some(intake) = self.intake() else { return body_use };
        intake.count(count, has_let_go);
        if intake.bytes.saturating_add(announced) > worker.body_limit(intake.route, body_use) {
            self.over_limit(body_use, count, worker);
        } else {
            self.took(body_use, count, worker);
        }
        body_use
    }

    /// Handles the end of the request: calls the handler if the body was collected, or polls the handler if it takes
    /// the body in parts.
    fn end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>, worker: &mut WorkerContext<impl Service>) {
        let Some(exchange) = self.exchange() else { return };
        match exchange.incoming.end(trailers) {
            Ended::Collected(Collect { head, window, body, .. }) => {
                self.collected();
                self.lend(body.capacity());
                // The service may remember only its last look-up, and may have routed other requests since.
                match worker.route(&head, &window, self.caller()) {
                    Ok(route) => self.call(route, (&head, &window), Ready::Whole(body.into()), worker),
                    Err(mut response) => self.respond(&mut response, worker),
                }
            }
            Ended::Told => self.poll_answer(worker),
            Ended::Unread => {}
        }
        self.request_ended(worker);
    }

    /// Polls for the next part of the response's body and sends it, or ends the response if no part is left.
    fn send_next(&mut self, worker: &mut WorkerContext<impl Service>) -> Sent {
        let waker = worker.context.inbox.waker(self.task().number());
        let sends_files = self.sends_files();
        let Some(exchange) = self.exchange() else { return Sent::Over };
        let Some(next) = exchange.outgoing.next(sends_files, &waker) else { return Sent::Over };
        let sent = match next {
            Poll::Pending => {
                self.body_waits(worker);
                return Sent::Waits;
            }
            Poll::Ready(Next::Part(part)) => self.send_part(part, worker),
            Poll::Ready(Next::End) => {
                let trailers = exchange.outgoing.end();
                self.end_body(trailers)
            }
            Poll::Ready(Next::Failed(abort, error)) => {
                error.into_iter().for_each(|error| self.keep_error(error));
                Err(abort)
            }
        };
        self.sent_or_abort(sent, worker)
    }

    /// Ends a response after its body, with these trailers. If the function that makes the trailers has panicked,
    /// returns the reason to cut the response.
    fn end_body(&mut self, trailers: Result<Vec<(HeaderName, HeaderValue)>, Abort>) -> Result<Sent, Abort> {
        let trailers = trailers?;
        if let Some(exchange) = self.exchange() {
            exchange.record_over();
        }
        self.send_end(trailers).map(|()| Sent::Over)
    }

    /// Returns the result of a send. If the send, the response's body or its trailers failed, aborts the exchange and
    /// returns [`Sent::Waits`].
    fn sent_or_abort(&mut self, sent: Result<Sent, Abort>, worker: &mut WorkerContext<impl Service>) -> Sent {
        sent.unwrap_or_else(|abort| {
            if let Abort::BodyMisfit(_) = abort {
                abort.logged();
            }
            self.abort(abort, worker);
            Sent::Waits
        })
    }

    /// Ends the exchange early: sends an error response if the carrier can still send one, otherwise cuts the response.
    fn abort(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>) {
        self.stop_body(worker);
        if let Some(exchange) = self.exchange() {
            if let Some(pending_request) = exchange.take_pending() {
                pending_request.fail(abort.into());
            }
            exchange.record_reason(abort.text());
            exchange.give_up(abort.body_error(), worker);
        }
        if self.may_answer() {
            self.respond(&mut abort.response(worker), worker);
        } else {
            // The end is recorded before the client sees it.
            drop(self.exchange().and_then(|exchange| exchange.take_record()));
            self.cut(abort, worker);
        }
    }

    /// Ends an exchange whose deadline has passed.
    fn expire(&mut self, waits: Waits, worker: &mut WorkerContext<impl Service>) {
        worker.count_cut();
        let abort = match waits {
            Waits::Head => Abort::HeadTooSlow,
            Waits::Body => Abort::BodyTooSlow,
            Waits::Write => Abort::WriteTooSlow,
            Waits::Handler | Waits::Nothing => Abort::HandlerTooSlow,
        };
        self.abort(abort.logged(), worker);
    }

    /// Charges the memory budget for the exchange. If the budget has no room, ends the exchange and returns false.
    fn charge_or_abort(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        let has_room = self.charge(worker);
        if !has_room {
            self.no_memory(worker);
        }
        has_room
    }

    /// Charges the exchange again if middleware has decoded the request's whole body to more bytes than were received.
    fn charge_decoded(&mut self, worker: &mut WorkerContext<impl Service>) {
        let lent = self.lent();
        if self.exchange().is_some_and(|exchange| exchange.lent(lent) > lent) {
            self.charge_or_abort(worker);
        }
    }
}

impl<C: Carrier> Lifecycle for C {}
