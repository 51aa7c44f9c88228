//! Sends requests over HTTP/2, and handles what only a client receives.

use super::H2;
use super::streams::{Active, Http2};
use super::tunnel::written;
use crate::client::{Failure, Link, PendingRequest};
use crate::connection::client::interim;
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::connection::work;
use crate::exchange::Tunnel;
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::fields::{check, is_sent_without_connection};
use crate::raw::Raw;
use crate::runtime::deadline::{NEVER, TICKS_A_SECOND};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::h2::{Code, FieldWriter, Request, StreamRef};
use highwire_proto::{Error, Head, Length};
use http::Method;
use std::rc::Rc;

impl Transport {
    /// Begins the requests that wait, as far as the server allows.
    pub(in crate::connection) fn drive_http2_client(
        &mut self,
        http2: &mut Http2,
        link: &Rc<Link>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let begun = (worker.stopwatch())();
        while http2.room(usize::MAX) > 0 && !self.is_ending() {
            // A request for another protocol waits until the server's settings tell whether it takes any.
            let is_known = http2.http.knows_peer();
            let may_begin = |pending_request: &PendingRequest| is_known || pending_request.request().upgrade.is_none();
            let Some(pending_request) = link.next_if(may_begin) else { break };
            self.begin_request_http2(http2, pending_request, worker, out);
        }
        self.work.spend_since(begun, worker.stopwatch());
    }
}

impl Http2 {
    /// Fails all requests of ours, and records that as the reason why the connection ends.
    pub(in crate::connection) fn fail_client(&mut self, transport: &Transport, failure: Failure) {
        if let Some(link) = transport.link() {
            self.fail_pending(&failure);
            link.set_reason(failure);
        }
    }

    /// Fails all requests of ours.
    pub(in crate::connection) fn fail_pending(&mut self, failure: &Failure) {
        let active = self.active.iter_mut().flatten();
        for pending_request in active.filter_map(|active| active.exchange.take_pending()) {
            pending_request.fail(failure.copy());
        }
    }
}

impl Http2 {
    /// Takes a response's body for [`Carrier::whole_body`](crate::exchange::carrier::Carrier::whole_body), if all of it has
    /// been received with the head. A queue between the connection and the reader is then not needed. Returns the number
    /// of used bytes.
    fn take_whole_body(&mut self, stream: StreamRef, length: u64, behind: &[u8], out: &mut Out<'_>) -> usize {
        let Some((data, used)) = self.http.take_whole_body(stream, length, behind, &mut out.queue.output) else {
            return 0;
        };
        self.came = Some(Bytes::copy_from_slice(data));
        self.arrived += data.len() as u64;
        used
    }

    /// Returns the number of requests that a client could begin now, if it may have at most `most` at the same time.
    pub(in crate::connection) fn room(&self, most: usize) -> usize {
        self.http.most_requests().min(most).saturating_sub(self.http.open_streams())
    }
}

/// The time after which a server that has requests and sends nothing gets a PING, and the time in which it must answer.
/// (A stream's own deadline may be longer or shorter.) A server that hangs must not stay in the pool.
const SILENCE_TICKS: u32 = 10 * TICKS_A_SECOND;
const PING_TICKS: u32 = 2 * TICKS_A_SECOND;

/// The time of silence after which a request that is given up casts doubt on the server. A requester with a shorter limit
/// than [`SILENCE_TICKS`] would otherwise never learn that the server hangs.
const DOUBT_TICKS: u32 = TICKS_A_SECOND;

impl Http2 {
    /// Asks a server that has not sent what was due in time whether it lives. Until it answers, it gets no more requests.
    pub(in crate::connection) fn doubt(&mut self, worker: &WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.pinged.is_none() {
            self.http.send_ping(&mut out.queue.output);
            self.pinged = Some(worker.tick().saturating_add(PING_TICKS));
        }
    }

    /// Asks a server that has sent nothing for a time, because a request is given up. Others on the connection have the time
    /// that a silent server has otherwise.
    fn doubt_early(&mut self, worker: &WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.pinged.is_some() || worker.tick().saturating_sub(self.heard) < DOUBT_TICKS {
            return;
        }
        self.doubt(worker, out);
        if self.http.open_streams() > 1 {
            self.pinged = self.pinged.max(Some(self.heard.saturating_add(SILENCE_TICKS + PING_TICKS)));
        }
    }

    /// Returns the tick at which a silent server gets a PING, or by which it must have answered one.
    pub(in crate::connection) fn silence_due(&self) -> Option<u32> {
        let begins =
            (self.heard != NEVER && self.http.open_streams() > 0).then(|| self.heard.saturating_add(SILENCE_TICKS));
        self.pinged.or(begins)
    }
}

impl Active {
    /// Sets the deadline for what the server must send next: the response's head, or more of its body.
    pub(in crate::connection) fn wait_for_response(&mut self, worker: &WorkerContext<impl Service>, arrived: u64) {
        if self.exchange.pending_request().is_some() {
            (self.due, self.waits) = (worker.tick().saturating_add(worker.rules.head), Waits::Head);
        } else {
            self.waits = Waits::Body;
            self.judge_from_now(worker, arrived);
        }
    }
}

impl Transport {
    /// Sends a request, or its head if the body follows. If the request is invalid, fails it and sends nothing.
    fn begin_request_http2(
        &mut self,
        http2: &mut Http2,
        pending_request: Rc<PendingRequest>,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let request = pending_request.request();
        let is_connect = request.method == Method::CONNECT || request.upgrade.is_some();
        let protocol = match request.upgrade.as_ref().map(|protocol| protocol.to_str()) {
            None => None,
            Some(Ok(protocol)) => Some(protocol),
            Some(Err(_)) => {
                drop(request);
                return pending_request.fail(Failure::Invalid(Error::InvalidField));
            }
        };
        if let Err(error) = check(&request.fields) {
            drop(request);
            return pending_request.fail(Failure::Invalid(error));
        }
        if protocol.is_some() && !http2.http.takes_protocols() {
            drop(request);
            return pending_request.fail(Failure::Unsupported(
                "the server does not support CONNECT with a protocol over HTTP/2 (RFC 8441)",
            ));
        }
        let length = request.content.length();
        let head = Request {
            method: if is_connect { "CONNECT" } else { request.method.as_str() },
            scheme: request.scheme,
            authority: &request.authority,
            path: if is_connect && protocol.is_none() { "" } else { &request.target },
            protocol,
            ends: length == Length::Empty && !is_connect,
        };
        let sent = http2.http.send_request(head, &mut out.queue.output, |writer| {
            write_fields(writer, &request.fields);
            if let Length::Exact(length) = length {
                writer.number(b"content-length", length);
            }
        });
        drop(request);
        let stream = match sent {
            Ok(stream) => stream,
            Err(Error::NotNow) => return pending_request.fail(Failure::Unsent),
            Err(error) => return pending_request.fail(Failure::Invalid(error)),
        };
        http2.idle_since = None;
        if http2.http.open_streams() == 1 {
            // The silence before this request does not count.
            http2.heard = worker.tick();
        }
        let content =
            pending_request.begin(worker.context.inbox.waker(self.stream_task(stream).number()), worker.now());
        let arrived = http2.arrived;
        let active = http2.active(stream, worker);
        active.is_asked = true;
        active.exchange.ask(pending_request);
        active.wait_for_response(worker, arrived);
        if is_connect {
            // The tunnel's bytes follow when the server has accepted it.
            return;
        }
        if http2.is_far || self.link().is_some_and(|link| link.is_far()) {
            http2.begin_ahead(stream, worker, out);
        }
        self.send_content_http2(http2, stream, content, worker, out);
        if let Some(active) = http2.get(stream).filter(|active| active.pending.is_empty()) {
            active.exchange.outgoing.end_unless_it_goes_on();
        }
    }

    /// Handles the head of a response. `behind` has the bytes after the head. Returns how many of them were used as the
    /// whole body, or 0.
    pub(in crate::connection) fn response_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        length: Length,
        (head, window, behind): (&mut Head, &[u8], &[u8]),
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> usize {
        self.count_request();
        if head.upgrade && length != Length::Empty {
            self.accepted_http2(http2, stream, head, window, worker, out);
            return 0;
        }
        let used = match length {
            Length::Exact(length) => http2.take_whole_body(stream, length, behind, out),
            Length::Empty | Length::Unknown => 0,
        };
        self.work.spend(if used > 0 { work::FRAME + work::bytes(used) } else { 0 });
        H2 { transport: self, http2, stream, out }.answered(length, head, window, worker);
        if length == Length::Empty || used > 0 {
            self.answered_http2(http2, stream, worker, out);
        }
        used
    }

    /// Makes the stream of a CONNECT a tunnel, because the server has accepted it.
    fn accepted_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        head: &Head,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(active) = http2.get(stream) else { return };
        let tunnel = Tunnel::new(Raw::new(worker.context.inbox.waker(self.stream_task(stream).number())));
        active.exchange.outgoing.stream(written(tunnel.raw.clone()));
        active.exchange.accept_tunnel(tunnel, head, window, worker.now());
        (active.due, active.waits) = (active.body_due(worker), Waits::Handler);
        http2.schedule(stream);
        self.pump_http2(http2, worker, out);
    }

    /// Ends the exchange of a response that is complete. If the request is not, the server did not need all of it.
    pub(in crate::connection) fn answered_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if http2.http.is_open(stream) {
            http2.http.reset(stream, Code::Cancel, &mut out.queue.output);
        }
        http2.forget(stream, worker);
    }

    /// Handles an interim response.
    pub(in crate::connection) fn interim_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        (head, window): (&Head, &[u8]),
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let pending_request = http2.get(stream).and_then(|active| active.exchange.pending_request().cloned());
        if pending_request.is_some_and(|pending_request| !pending_request.interim(|| interim(head, window))) {
            H2 { transport: self, http2, stream, out }.abort(Abort::Malformed(Error::TooManyInterims), worker);
        }
    }

    /// Handles a reset stream: by the server, or by our side because the response is wrong.
    pub(in crate::connection) fn reset_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        code: Code,
        worker: &mut WorkerContext<impl Service>,
    ) {
        let is_own = code != Code::Refused && http2.http.has_reset(stream);
        if let Some(pending_request) = http2.get(stream).and_then(|active| active.exchange.take_pending()) {
            pending_request.fail(match is_own {
                true => Failure::Http2(code, "the response is malformed".to_string()),
                false => Failure::Reset(code),
            });
        }
        http2.forget(stream, worker);
    }

    /// Resets a stream if the requester has dropped the request or the body of its response. Returns true if it has.
    pub(in crate::connection) fn give_up_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> bool {
        let is_unwanted = http2.get(stream).is_some_and(|active| {
            active.is_asked && (active.exchange.is_unwanted() || active.exchange.incoming.is_let_go())
        });
        if is_unwanted {
            if self.is_client() {
                http2.doubt_early(worker, out);
            }
            http2.http.reset(stream, Code::Cancel, &mut out.queue.output);
            http2.forget(stream, worker);
        }
        is_unwanted
    }
}

fn write_fields(writer: &mut FieldWriter<'_>, fields: &[(http::HeaderName, http::HeaderValue)]) {
    for (name, value) in fields.iter().filter(|(name, _)| is_sent_without_connection(name)) {
        writer.field(name.as_str().as_bytes(), value.as_bytes());
    }
}
