//! Implements [`Carrier`] for HTTP/1, where a connection has one exchange at a time.

use super::Http1;
use super::INLINE_BYTES;
use crate::body::Part;
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::exchange::abort::Abort;
use crate::exchange::carrier::{Carrier, Sent};
use crate::exchange::{Exchange, Intake};
use crate::message::request::{BodyUse, Caller};
use crate::message::response::Content;
use crate::message::response::Response;
use crate::runtime::context::TaskKind;
use crate::runtime::rate_limited;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::Event;
use highwire_proto::h1::state::State;
use highwire_proto::{Head, Length};
use http::StatusCode;
use http::{HeaderName, HeaderValue};

/// The current exchange of an HTTP/1 connection.
pub(in crate::connection) struct H1<'c, 'q> {
    http1: &'c mut Http1,
    transport: &'c mut Transport,
    out: &'c mut Out<'q>,
    /// The bytes received after the request's head, and how many of them were used as the request's body.
    behind: &'c [u8],
    used: usize,
}

impl<'c, 'q> H1<'c, 'q> {
    #[inline]
    pub(super) fn new(http1: &'c mut Http1, transport: &'c mut Transport, out: &'c mut Out<'q>) -> H1<'c, 'q> {
        H1 { http1, transport, out, behind: &[], used: 0 }
    }

    /// Adds the bytes received after the request's head.
    #[inline]
    pub(super) fn with_behind(self, behind: &'c [u8]) -> H1<'c, 'q> {
        H1 { behind, ..self }
    }

    /// Returns how many of the bytes after the head were used as the body.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

impl Carrier for H1<'_, '_> {
    const AT_ONCE: usize = INLINE_BYTES;
    const UPGRADES: bool = true;

    #[inline]
    fn task(&self) -> TaskKind {
        self.transport.task()
    }

    #[inline]
    fn caller(&self) -> Caller<'_> {
        self.transport.caller(self.out)
    }

    #[inline]
    fn exchange(&mut self) -> Option<&mut Exchange> {
        self.http1.exchange.as_deref_mut()
    }

    fn make_exchange(&mut self, _: &mut WorkerContext<impl Service>) -> &mut Exchange {
        self.http1.exchange()
    }

    fn intake(&mut self) -> Option<&mut Intake> {
        Some(&mut self.http1.intake)
    }

    fn charge(&mut self, worker: &mut WorkerContext<impl Service>) -> bool {
        self.http1.recharge(self.transport, worker)
    }

    fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.http1.no_memory(self.transport, worker, self.out);
    }

    fn lent(&mut self) -> usize {
        self.transport.account.lent()
    }

    fn lend(&mut self, bytes: usize) {
        self.transport.account.set_lent(bytes);
    }

    fn awaits_continue(&self) -> bool {
        self.behind.is_empty()
    }

    /// Lets the connection drop the body as it arrives. Makes this exchange the last one if the body is too long to
    /// drop or the peer may wait for 100 (Continue).
    fn leave_body(&mut self, length: Length, head: &Head, worker: &mut WorkerContext<impl Service>) {
        let limit = worker.shared.config().limits.unread_body_bytes;
        let too_large = matches!(length, Length::Exact(length) if length > limit);
        if too_large || head.expects_continue {
            self.http1.http.close_after();
        }
    }

    /// Returns a body of known length if all of it was received together with the head, so the connection need not
    /// store it.
    fn whole_body(
        &mut self,
        length: Length,
        head: &mut Head,
        worker: &mut WorkerContext<impl Service>,
    ) -> Option<Bytes> {
        let Length::Exact(length) = length else { return None };
        let body = self.behind.get(..usize::try_from(length).ok()?)?;
        let limits = &worker.rules.parser;
        // The parser returns such a body as one part, followed by the end.
        let data = self.http1.http.receive(body, head, limits).ok()?;
        let end = self.http1.http.receive(&[], head, limits).ok()?;
        debug_assert!(data.event == Event::Data(body) && end.event == Event::End { trailers: false });
        self.used = body.len();
        Some(Bytes::copy_from_slice(body))
    }

    /// Returns the number of bytes of the body, or of its current chunk, that the peer has announced and that have not
    /// been received yet.
    fn announced(&self) -> u64 {
        self.http1.http.announced()
    }

    fn took(&mut self, _: BodyUse, _: usize, _: &mut WorkerContext<impl Service>) {}

    fn over_limit(&mut self, body_use: BodyUse, _: usize, worker: &mut WorkerContext<impl Service>) {
        self.http1.body_too_large(self.transport, body_use, worker, self.out);
    }

    fn stop_body(&mut self, _: &mut WorkerContext<impl Service>) {
        self.http1.http.close_after();
    }

    fn request_ended(&mut self, worker: &mut WorkerContext<impl Service>) {
        self.http1.pump(self.transport, worker, self.out);
        self.http1.recharge(self.transport, worker);
        self.http1.recycle_exchange();
    }

    #[inline]
    fn admit(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        if response.close || self.http1.leaves_body(worker) {
            self.http1.http.close_after();
        }
        let is_tunnel = matches!(response.content, Content::Switch(_));
        if self.http1.http.awaits_tunnel() && !is_tunnel && response.status.is_success() {
            // A 2xx answer to a CONNECT would mean that a tunnel exists (RFC 9110 section 9.3.6).
            *response = Response::error(StatusCode::NOT_IMPLEMENTED, "there is no tunnel here\n");
        }
    }

    fn may_answer(&mut self) -> bool {
        if self.transport.is_client() {
            return false;
        }
        let has_begun = self.http1.has_begun_to_answer();
        !has_begun && !self.http1.http.must_close() && self.http1.http.server() != State::Done
    }

    fn interim(&mut self, status: u16, fields: &[(HeaderName, HeaderValue)]) -> Result<(), highwire_proto::Error> {
        self.http1.send_interim(status, fields, self.out)
    }

    #[inline]
    fn send(&mut self, response: &mut Response, worker: &mut WorkerContext<impl Service>) {
        if let Content::Bytes(bytes) = &response.content
            && !self.http1.sends_in_parts(bytes, self.out)
            && let Some(exchange) = &mut self.http1.exchange
        {
            exchange.count_whole(bytes.len());
        }
        self.http1.send(self.transport, response, worker, self.out);
    }

    /// Returns true without TLS. Under TLS the server must read a file to encrypt it.
    fn sends_files(&self) -> bool {
        self.out.tls.is_none()
    }

    fn send_part(&mut self, part: Part, worker: &mut WorkerContext<impl Service>) -> Result<Sent, Abort> {
        // The handler has made a part, so the deadline for the next one starts anew.
        self.transport.restart();
        let sent = match part {
            Part::Bytes(bytes) => self.http1.send_part(self.transport, bytes, worker, self.out),
            Part::File(step) => self.http1.send_step(self.transport, step, worker, self.out),
        };
        sent.map(|()| Sent::More).map_err(|error| Abort::BodyMisfit(Some(error)))
    }

    fn body_waits(&mut self, worker: &mut WorkerContext<impl Service>) {
        if !self.http1.recharge(self.transport, worker) {
            let text = "the buffered bytes of an answer do not fit the memory budget; the connection is cut";
            rate_limited::log!(Memory, warn, "{text}");
            self.http1.abort(self.transport, worker, self.out);
        }
    }

    fn send_end(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort> {
        let sent = self.http1.send_end(&trailers, self.out);
        sent.map_err(|error| Abort::BodyMisfit(Some(error)))
    }

    fn cut(&mut self, _: Abort, worker: &mut WorkerContext<impl Service>) {
        if self.http1.has_begun_to_answer() || self.transport.is_client() {
            return self.http1.abort(self.transport, worker, self.out);
        }
        // The answer is complete, so the peer still gets it.
        self.out.flush(self.transport.id());
        self.http1.finish(self.transport, worker, self.out);
    }
}
