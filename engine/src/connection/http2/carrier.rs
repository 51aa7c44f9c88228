//! Implements [`Carrier`] for HTTP/2, where each exchange has a stream of its own.

use super::streams::Http2;
use crate::body::Part;
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::carrier::{Carrier, Sent};
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Intake};
use crate::message::fields::is_sent_without_connection;
use crate::message::request::{BodyUse, Caller};
use crate::message::response::Content;
use crate::message::response::Response;
use crate::runtime::context::TaskKind;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::h2::{Code, FRAME_BYTES, StreamRef};
use highwire_proto::{Head, Length};
use http::StatusCode;
use http::{HeaderName, HeaderValue};

/// One stream of an HTTP/2 connection.
pub(in crate::connection) struct H2<'c, 'q> {
    pub(in crate::connection) transport: &'c mut Transport,
    pub(in crate::connection) http2: &'c mut Http2,
    pub(in crate::connection) stream: StreamRef,
    pub(in crate::connection) out: &'c mut Out<'q>,
}

impl H2<'_, '_> {
    /// Sends one frame with pending bytes of the response's body.
    pub(in crate::connection) fn send_pending(&mut self, worker: &WorkerContext<impl Service>) -> Result<Sent, Abort> {
        let Some(active) = self.http2.get(self.stream) else { return Ok(Sent::Over) };
        let is_streamed = active.exchange.outgoing.is_streaming();
        let part = active.pending.slice(..active.pending.len().min(FRAME_BYTES as usize));
        if part.is_empty() {
            return Ok(if is_streamed { Sent::More } else { Sent::Over });
        }
        let is_last = part.len() == active.pending.len() && !is_streamed;
        let sent = self.http2.http.send_data(self.stream, &part, is_last, &mut self.out.queue.output);
        let sent = sent.map_err(|error| Abort::BodyMisfit(Some(error)))?;
        self.http2.sent += sent as u64;
        let all = self.http2.sent;
        let Some(active) = self.http2.get(self.stream) else { return Ok(Sent::Over) };
        let _ = active.pending.split_to(sent);
        active.exchange.count_sent(sent);
        active.took(sent, all, worker);
        // If no byte was sent, the stream waits until the peer opens a window, at most until the stream's write
        // deadline.
        Ok(match sent {
            0 => Sent::Waits,
            _ if active.pending.is_empty() && !is_streamed => Sent::Over,
            _ => Sent::More,
        })
    }
}

impl Carrier for H2<'_, '_> {
    const CREDITS: bool = true;
    const SHARES_CONNECTION: bool = true;

    fn task(&self) -> TaskKind {
        self.transport.stream_task(self.stream)
    }

    fn caller(&self) -> Caller<'_> {
        self.transport.caller(self.out)
    }

    #[inline]
    fn exchange(&mut self) -> Option<&mut Exchange> {
        self.http2.get(self.stream).map(|active| &mut active.exchange)
    }

    fn make_exchange(&mut self, worker: &mut WorkerContext<impl Service>) -> &mut Exchange {
        &mut self.http2.active(self.stream, worker).exchange
    }

    fn intake(&mut self) -> Option<&mut Intake> {
        self.http2.get(self.stream).map(|active| &mut active.intake)
    }

    fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.transport.charge_streams(self.http2.held(), worker)
    }

    /// Answers this stream with 503, or resets it if its answer has begun. The other streams continue.
    fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.abort(Abort::NoMemory, worker);
    }

    fn lent(&mut self) -> usize {
        self.http2.get(self.stream).map_or(0, |active| active.lent)
    }

    fn lend(&mut self, bytes: usize) {
        if let Some(active) = self.http2.get(self.stream) {
            active.lent = bytes;
        }
    }

    /// Keeps the stream's bytes for a tunnel that the handler may accept.
    fn connect(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.transport.connect_http2(self.http2, self.stream, worker);
        self.http2.http.widen_to(self.stream, worker.rules.stream_window, &mut self.out.queue.output);
        true
    }

    fn connected(&mut self, length: Length, worker: &mut WorkerContext<impl Service>) {
        if length == Length::Empty {
            self.transport.end_tunnel(self.http2, self.stream, worker, self.out);
        }
    }

    fn awaits_continue(&self) -> bool {
        true
    }

    fn whole_body(&mut self, _: Length, _: &mut Head, _: &mut WorkerContext<impl Service>) -> Option<Bytes> {
        self.http2.came.take()
    }

    fn body_begins(&mut self, body_use: BodyUse, worker: &mut WorkerContext<impl Service>) {
        let arrived = self.http2.arrived;
        let active = self.http2.active(self.stream, worker);
        active.waits = Waits::Body;
        active.judge_from_now(worker, arrived);
        match body_use {
            BodyUse::None => {}
            BodyUse::Whole => self.http2.begin_to_collect(self.stream, worker, self.out),
            BodyUse::Parts => {
                // A handler that takes a part wakes the stream's task, which then credits the peer.
                active.exchange.incoming.wake_for_taken(true);
                // The connection's window limits the number of bytes that wait for all handlers together.
                self.http2.http.widen_to(self.stream, worker.rules.stream_window, &mut self.out.queue.output);
            }
        }
    }

    fn took(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>) {
        let output = &mut self.out.queue.output;
        match body_use {
            BodyUse::None => self.http2.http.used(self.stream, bytes, output),
            BodyUse::Whole => {
                self.http2.http.dropped(bytes, output);
                self.http2.grant(self.stream, worker, self.out);
            }
            BodyUse::Parts => {}
        }
    }

    fn over_limit(&mut self, body_use: BodyUse, bytes: usize, worker: &mut WorkerContext<impl Service>) {
        if body_use != BodyUse::Parts {
            self.http2.http.dropped(bytes, &mut self.out.queue.output);
        }
        let Some(active) = self.http2.get(self.stream) else { return };
        if body_use != BodyUse::None {
            let abort = Abort::BodyTooLarge(active.intake.route, body_use);
            return self.abort(abort, worker);
        }
        // No handler reads the body. The peer gets no more credit, and a reset when the answer is complete (RFC 9113
        // section 8.1).
        if active.drops {
            self.http2.http.reset(self.stream, Code::NoError, &mut self.out.queue.output);
            self.http2.forget(self.stream, worker);
        }
    }

    fn collected(&mut self) {
        self.http2.end_collecting(self.stream);
    }

    fn stop_body(&mut self, _: &mut WorkerContext<impl Service>) {
        self.http2.end_collecting(self.stream);
    }

    fn polled(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.transport.credit_http2(self.http2, self.stream, worker, self.out);
    }

    fn request_ended(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.transport.done_http2(self.http2, self.stream, worker, self.out);
    }

    fn admit(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        if let Some(active) = self.http2.get(self.stream).filter(|active| active.exchange.tunnel().is_some()) {
            self.transport.answer_connect(active, response, worker);
        }
        if let Content::Switch(_) = &response.content {
            *response = Response::error(StatusCode::NOT_IMPLEMENTED, "there is no other protocol on HTTP/2 here\n");
        }
        if response.close {
            self.http2.http.go_away(&mut self.out.queue.output);
            self.http2.http.go_away(&mut self.out.queue.output);
        }
    }

    fn may_answer(&mut self) -> bool {
        self.http2.get(self.stream).is_some_and(|active| !active.is_answered())
    }

    fn interim(&mut self, status: u16, fields: &[(HeaderName, HeaderValue)]) -> Result<(), highwire_proto::Error> {
        self.http2.http.send_interim(self.stream, status, &mut self.out.queue.output, |writer| {
            let fields = fields.iter().filter(|(name, _)| is_sent_without_connection(name));
            fields.for_each(|(name, value)| writer.field(name.as_str().as_bytes(), value.as_bytes()));
        })
    }

    #[inline]
    fn send(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        self.transport.send_http2(self.http2, self.stream, response, worker, self.out);
    }

    /// Stores the part and sends its first frame. The stream's later turns send the rest.
    fn send_part(&mut self, part: Part, worker: &mut WorkerContext<impl Service>) -> Result<Sent, Abort> {
        if let (Part::Bytes(bytes), Some(active)) = (part, self.http2.get(self.stream)) {
            active.pending = bytes;
        }
        self.send_pending(worker)
    }

    fn body_waits(&mut self, worker: &mut WorkerContext<impl Service>) {
        // Another poll without a result must not extend the deadline.
        if let Some(active) = self.http2.get(self.stream).filter(|active| active.waits != Waits::Handler) {
            (active.due, active.waits) = (active.body_due(worker), Waits::Handler);
        }
    }

    fn send_end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort> {
        let output = &mut self.out.queue.output;
        let sent = if trailers.is_empty() {
            self.http2.http.send_data(self.stream, &[], true, output).map(drop)
        } else {
            self.http2.http.send_trailers(self.stream, output, |writer| {
                trailers.iter().for_each(|(name, value)| writer.field(name.as_str().as_bytes(), value.as_bytes()));
            })
        };
        sent.map_err(|error| Abort::BodyMisfit(Some(error)))
    }

    fn cut(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>) {
        let code = match abort.code() {
            // NO_ERROR is only for a stream whose answer is complete (RFC 9113 section 8.1).
            Code::NoError
                if self.http2.get(self.stream).is_some_and(|active| active.is_answered() && !active.drops) =>
            {
                Code::Cancel
            }
            code => code,
        };
        self.http2.http.reset(self.stream, code, &mut self.out.queue.output);
        self.http2.forget(self.stream, worker);
    }
}
