//! Sends responses and their bodies in parts over HTTP/1.

use super::{H1, Http1};
use crate::body::BodyStream;
use crate::connection::out::{AHEAD_BYTES, Out};
use crate::connection::transport::Transport;
use crate::exchange::abort::Abort;
use crate::exchange::carrier::Sent;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::date::HeadKey;
use crate::message::fields::is_framing;
use crate::message::file_part::Step;
use crate::message::response::{Content, Rendered, Response, Streamed};
use crate::runtime::rate_limited;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_io::Op;
use highwire_proto::h1::{self, FieldWriter};
use highwire_proto::{Length, Method};
use http::{HeaderName, HeaderValue, header};

/// The size in bytes up to which a body, a part of a body or a write of a tunnel is copied after the bytes written so
/// far, so that one send takes both. Without TLS, a longer one is sent without a copy. Copying 16 KiB costs less than
/// another send (measured: about 1 µs against 2 to 3 µs).
pub(in crate::connection) const INLINE_BYTES: usize = 16 * 1024;

/// The most parts of a body that are sent before other connections get their turn.
const PARTS_A_TURN: usize = 256;

impl Http1 {
    /// Sends a response, or its head if the body follows in parts. May take the content out of `response`.
    #[inline]
    pub(super) fn send(
        &mut self,
        transport: &mut Transport,
        response: &mut Response,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let status = response.status.as_u16();
        if let Content::Bytes(body) = &response.content
            && body.len() <= INLINE_BYTES
        {
            let plain = self.http.is_plain() && response.fields.is_empty() && response.reason.is_none();
            if plain && let Some(rendered) = &response.rendered {
                let rendered = rendered.clone();
                return self.respond_rendered(transport, response, &rendered, worker, out);
            }
            let key = HeadKey { status, content_type: response.content_type, length: body.len() };
            if plain && let Some(head) = worker.lines.head(&key) {
                if let Err(error) = self.http.send_rendered(head, body, &mut out.queue.output) {
                    self.broken_answer(transport, error, worker, out);
                }
                return;
            }
            let begin = out.queue.output.len();
            let sent = self.send_head(response, worker, out);
            if plain && sent.is_ok() && !matches!(status, 204 | 304) {
                worker.lines.keep_head(key, &out.queue.output[begin..]);
            }
            let sent = sent.and_then(|()| self.http.send_data(body, &mut out.queue.output));
            let sent = sent.and_then(|()| self.http.send_end(&mut out.queue.output, |_| {}));
            if let Err(error) = sent {
                self.broken_answer(transport, error, worker, out);
            }
            return;
        }
        self.respond_at_length(transport, response, worker, out);
    }

    /// Sends a small response whose shared header fields are already rendered to bytes.
    fn respond_rendered(
        &mut self,
        transport: &mut Transport,
        response: &Response,
        rendered: &Rendered,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Content::Bytes(body) = &response.content else { return };
        let status = response.status.as_u16();
        let key = (worker.lines.second(), status, body.len());
        let sent = match rendered.head(key) {
            Some(head) => self.http.send_rendered(&head, body, &mut out.queue.output),
            None => {
                let begin = out.queue.output.len();
                let sent = self.send_head(response, worker, out);
                if sent.is_ok() && !matches!(status, 204 | 304) {
                    rendered.keep_head(key, &out.queue.output[begin..]);
                }
                let sent = sent.and_then(|()| self.http.send_data(body, &mut out.queue.output));
                sent.and_then(|()| self.http.send_end(&mut out.queue.output, |_| {}))
            }
        };
        if let Err(error) = sent {
            self.broken_answer(transport, error, worker, out);
        }
    }

    /// Writes a response's head.
    fn send_head(
        &mut self,
        response: &Response,
        worker: &WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        let length = response.content.length();
        let head = h1::Response { status: response.status.as_u16(), reason: response.reason.as_deref(), length };
        self.http.send_response(head, &mut out.queue.output, |writer| {
            write_common_lines(writer, worker, &response.fields);
            if let Some(content_type) = response.content_type {
                writer.field(b"Content-Type", content_type.as_bytes());
            }
            if let Some(rendered) = &response.rendered {
                writer.trusted_lines(&rendered.lines);
            }
            write_fields(writer, &response.fields);
        })
    }

    /// Sends a response with a long body, a body in parts, or a switch to another protocol.
    #[inline(never)]
    fn respond_at_length(
        &mut self,
        transport: &mut Transport,
        response: &mut Response,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if let Content::Switch(_) = &response.content {
            if let Content::Switch(switch) = std::mem::replace(&mut response.content, Content::Bytes(Bytes::new())) {
                self.switch(transport, response, *switch, worker, out);
            }
            return;
        }
        if let Err(error) = self.send_head(response, worker, out) {
            return self.broken_answer(transport, error, worker, out);
        }
        let content = std::mem::replace(&mut response.content, Content::Bytes(Bytes::new()));
        self.send_content(transport, content, worker, out);
    }

    /// Returns true if a body of bytes is sent in parts, because TLS encrypts it as the peer takes it and not all at once.
    pub(super) fn sends_in_parts(&self, bytes: &Bytes, out: &Out<'_>) -> bool {
        bytes.len() > INLINE_BYTES && out.tls.is_some() && !self.http.withholds_body()
    }

    /// Sends what follows a head: the whole body, or its first parts.
    pub(super) fn send_content(
        &mut self,
        transport: &mut Transport,
        content: Content,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        match content {
            Content::Bytes(bytes) if self.sends_in_parts(&bytes, out) => {
                let length = Some(bytes.len() as u64);
                let body = Streamed { length, body: BodyStream::of(bytes), trailers: None };
                self.exchange().outgoing.stream(Box::new(body));
                self.pump(transport, worker, out);
            }
            Content::Bytes(bytes) => {
                let sent = match bytes.len() {
                    0..=INLINE_BYTES => self.http.send_data(&bytes, &mut out.queue.output),
                    _ => self.send_apart(transport, bytes, worker, out),
                };
                let sent = sent.and_then(|()| self.http.send_end(&mut out.queue.output, |_| {}));
                if let Err(error) = sent {
                    self.broken_answer(transport, error, worker, out);
                }
            }
            Content::Stream(_) if self.http.withholds_body() => {
                // The peer gets no body, so the parts of the body are not made.
                if let Err(error) = self.http.send_end(&mut out.queue.output, |_| {}) {
                    self.broken_answer(transport, error, worker, out);
                }
            }
            Content::Stream(mut streamed) => {
                // A file can be sent without a copy, but not under TLS, which must read the bytes to encrypt them.
                let whole = if out.tls.is_none() { streamed.body.take_whole() } else { None };
                let Some(step) = whole else {
                    self.exchange().outgoing.stream(streamed);
                    return self.pump(transport, worker, out);
                };
                let sent = self.send_step(transport, step, worker, out).map_err(|error| Abort::BodyMisfit(Some(error)));
                let mut exchange = H1::new(self, transport, out);
                let ended = sent.and_then(|()| exchange.end_body(streamed.into_trailers()));
                exchange.sent_or_abort(ended, worker);
            }
            Content::Switch(_) => {}
        }
    }

    /// Sends bytes without a copy, and blocks the connection until the driver reports that the kernel has them.
    fn send_apart(
        &mut self,
        transport: &mut Transport,
        bytes: Bytes,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        // The driver may also hold the bytes written before, so they are charged too. `bytes` are not charged if they
        // are shared, as those of a constant are.
        let waiting = out.waiting();
        let mut after = Vec::new();
        if self.http.send_data_apart(bytes.len() as u64, &mut out.queue.output, &mut after)? {
            out.flush_before(transport.id(), true);
            let own = out.send_bytes(transport.id(), bytes);
            out.queue.output.extend_from_slice(&after);
            self.sent_away(transport, waiting + own, worker, out);
        }
        Ok(())
    }

    /// Sends further parts of the response's body, until the connection is blocked, no part is ready, or
    /// [`PARTS_A_TURN`] parts are sent.
    pub(super) fn pump(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if self.http.ours() != h1::state::State::SendsBody {
            return self.exchange.iter_mut().for_each(|exchange| exchange.outgoing.cut());
        }
        for _ in 0..PARTS_A_TURN {
            if transport.blocked()
                || transport.is_ending()
                || H1::new(self, transport, out).send_next(worker) != Sent::More
            {
                return;
            }
        }
        // A body of many small parts that are always ready must not delay other connections.
        worker.context.inbox.waker(transport.task().number()).wake();
    }

    pub(super) fn send_part(
        &mut self,
        transport: &mut Transport,
        bytes: Bytes,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        self.exchange.iter_mut().for_each(|exchange| exchange.count_sent(bytes.len()));
        if bytes.len() > INLINE_BYTES && out.tls.is_none() {
            return self.send_apart(transport, bytes, worker, out);
        }
        // Copies a small part and, under TLS, any part, because encryption copies it anyway and the copied part shares
        // records with its framing.
        self.http.send_data(&bytes, &mut out.queue.output)?;
        if out.waiting() >= AHEAD_BYTES {
            self.send_and_hear(transport, worker, out);
        }
        Ok(())
    }

    /// Queues a range of a file to be sent.
    pub(super) fn send_step(
        &mut self,
        transport: &mut Transport,
        step: Step,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        let (waiting, length) = (out.waiting(), step.range.end - step.range.start);
        self.exchange.iter_mut().for_each(|exchange| exchange.count_sent(length as usize));
        let mut after = Vec::new();
        if self.http.send_data_apart(length, &mut out.queue.output, &mut after)? {
            out.flush_before(transport.id(), true);
            let Step { file, range, more } = step;
            out.queue.push(Op::SendFile { socket: transport.id(), file, offset: range.start, length, more });
            out.queue.output.extend_from_slice(&after);
            self.sent_away(transport, waiting, worker, out);
        }
        Ok(())
    }

    /// Queues the written bytes and blocks the connection until the kernel has taken them.
    pub(super) fn send_and_hear(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.count_exchanges(transport);
        transport.send_and_hear(worker, out);
        self.release_if_ended(transport, worker);
    }

    /// Blocks the connection and charges `length` bytes that the driver holds. If the memory budget has no room, cuts
    /// the connection.
    pub(super) fn sent_away(
        &mut self,
        transport: &mut Transport,
        length: usize,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.count_exchanges(transport);
        transport.sent_away(length, worker, out);
        self.release_if_ended(transport, worker);
    }

    /// Ends a response after its body.
    pub(super) fn send_end(
        &mut self,
        trailers: &[(HeaderName, HeaderValue)],
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        self.http.send_end(&mut out.queue.output, |writer| write_fields(writer, trailers))
    }

    /// Answers 500 in place of a response that cannot be sent, and makes it the last answer. If a part of the response
    /// was sent already, closes the connection. On a client, fails the request and ends the connection.
    pub(super) fn broken_answer(
        &mut self,
        transport: &mut Transport,
        error: highwire_proto::Error,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if transport.is_client() {
            return self.end_with(transport, Abort::BodyMisfit(Some(error)), worker, out);
        }
        rate_limited::log!(Mistake, error, %error, "a handler's answer cannot be sent");
        self.http.close_after();
        let head = h1::Response { status: 500, reason: None, length: Length::Empty };
        let sent = self.http.send_response(head, &mut out.queue.output, |_| {});
        if sent.is_ok() {
            self.exchange.iter_mut().for_each(|exchange| exchange.record_instead(500));
        }
        if sent.and_then(|()| self.http.send_end(&mut out.queue.output, |_| {})).is_err() {
            out.flush(transport.id());
            self.close(transport, worker, out);
        }
    }

    /// Sends an interim response.
    pub(super) fn send_interim(
        &mut self,
        status: u16,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        self.http.send_interim(status, &mut out.queue.output, |writer| write_fields(writer, fields))
    }
}

/// Writes the `Server` and `Date` fields that the handler has not set. A handler that acts as a proxy may set them.
pub(super) fn write_common_lines(
    writer: &mut FieldWriter<'_>,
    worker: &WorkerContext<impl Service>,
    fields: &[(HeaderName, HeaderValue)],
) {
    let has = |wanted: HeaderName| fields.iter().any(|(name, _)| *name == wanted);
    if !has(header::SERVER) {
        writer.trusted_lines(worker.lines.server());
    }
    if !has(header::DATE) {
        writer.trusted_lines(worker.lines.date());
    }
}

pub(super) fn write_fields(writer: &mut FieldWriter<'_>, fields: &[(HeaderName, HeaderValue)]) {
    for (name, value) in fields {
        if !is_framing(name) {
            writer.trusted_field(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

const _: () = assert!(Method::Get as u8 == 0, "the router's table begins with GET");
