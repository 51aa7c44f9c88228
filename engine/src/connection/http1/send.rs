//! Sends responses, their bodies in parts, and the bytes of tunnels over HTTP/1.

use super::H1;
use crate::body::BodyStream;
use crate::connection::Connection;
use crate::connection::out::{AHEAD_BYTES, Out};
use crate::connection::phase::Phase;
use crate::connection::work;
use crate::date::HeadKey;
use crate::deadline::TICKS_A_SECOND;
use crate::exchange::abort::Abort;
use crate::exchange::carrier::Sent;
use crate::exchange::lifecycle::Lifecycle;
use crate::fields::is_framing;
use crate::file_part::Step;
use crate::quiet;
use crate::raw::{RAW_BYTES, Raw, Switch};
use crate::response::{Content, Rendered, Response, Streamed};
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
const INLINE_BYTES: usize = 16 * 1024;

/// The least number of received bytes of a tunnel for which the time of its task is measured.
const TIMED_BYTES: usize = 512;

/// The most parts of a body that are sent before other connections get their turn.
const PARTS_A_TURN: usize = 256;

impl Connection {
    /// Sends a response, or its head if the body follows in parts. May take the content out of `response`.
    #[inline]
    pub(in crate::connection) fn send(
        &mut self,
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
                return self.respond_rendered(response, &rendered, worker, out);
            }
            let key = HeadKey { status, content_type: response.content_type, length: body.len() };
            if plain && let Some(head) = worker.lines.head(&key) {
                if let Err(error) = self.http.send_rendered(head, body, &mut out.queue.output) {
                    self.broken_answer(error, worker, out);
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
                self.broken_answer(error, worker, out);
            }
            return;
        }
        self.respond_at_length(response, worker, out);
    }

    /// Sends a small response whose shared header fields are already rendered to bytes.
    fn respond_rendered(
        &mut self,
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
            self.broken_answer(error, worker, out);
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
        response: &mut Response,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if let Content::Switch(_) = &response.content {
            if let Content::Switch(switch) = std::mem::replace(&mut response.content, Content::Bytes(Bytes::new())) {
                self.switch(response, *switch, worker, out);
            }
            return;
        }
        if let Err(error) = self.send_head(response, worker, out) {
            return self.broken_answer(error, worker, out);
        }
        let content = std::mem::replace(&mut response.content, Content::Bytes(Bytes::new()));
        self.send_content(content, worker, out);
    }

    /// Returns true if a body of bytes is sent in parts, because TLS encrypts it as the peer takes it and not all at once.
    pub(in crate::connection) fn sends_in_parts(&self, bytes: &Bytes, out: &Out<'_>) -> bool {
        bytes.len() > INLINE_BYTES && out.tls.is_some() && !self.http.withholds_body()
    }

    /// Sends what follows a head: the whole body, or its first parts.
    pub(in crate::connection) fn send_content(
        &mut self,
        content: Content,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        match content {
            Content::Bytes(bytes) if self.sends_in_parts(&bytes, out) => {
                let length = Some(bytes.len() as u64);
                let body = Streamed { length, body: BodyStream::of(bytes), trailers: None };
                self.exchange().outgoing.stream(Box::new(body));
                self.pump(worker, out);
            }
            Content::Bytes(bytes) => {
                let sent = match bytes.len() {
                    0..=INLINE_BYTES => self.http.send_data(&bytes, &mut out.queue.output),
                    _ => self.send_apart(bytes, worker, out),
                };
                let sent = sent.and_then(|()| self.http.send_end(&mut out.queue.output, |_| {}));
                if let Err(error) = sent {
                    self.broken_answer(error, worker, out);
                }
            }
            Content::Stream(_) if self.http.withholds_body() => {
                // The peer gets no body, so the parts of the body are not made.
                if let Err(error) = self.http.send_end(&mut out.queue.output, |_| {}) {
                    self.broken_answer(error, worker, out);
                }
            }
            Content::Stream(mut streamed) => {
                // A file can be sent without a copy, but not under TLS, which must read the bytes to encrypt them.
                let whole = if out.tls.is_none() { streamed.body.take_whole() } else { None };
                let Some(step) = whole else {
                    self.exchange().outgoing.stream(streamed);
                    return self.pump(worker, out);
                };
                let sent = self.send_step(step, worker, out).map_err(|error| Abort::BodyMisfit(Some(error)));
                let mut exchange = H1::new(self, out);
                let ended = sent.and_then(|()| exchange.end_body(streamed.into_trailers()));
                exchange.sent_or_abort(ended, worker);
            }
            Content::Switch(_) => {}
        }
    }

    /// Sends bytes without a copy, and blocks the connection until the driver reports that the kernel has them.
    fn send_apart(
        &mut self,
        bytes: Bytes,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        // The driver may also hold the bytes written before, so they are charged too. `bytes` are not charged if they
        // are shared, as those of a constant are.
        let waiting = out.waiting();
        let mut after = Vec::new();
        if self.http.send_data_apart(bytes.len() as u64, &mut out.queue.output, &mut after)? {
            out.flush_before(self.transport.id, true);
            let own = out.send_bytes(self.transport.id, bytes);
            out.queue.output.extend_from_slice(&after);
            self.sent_away(waiting + own, worker, out);
        }
        Ok(())
    }

    /// Sends further parts of the response's body, until the connection is blocked, no part is ready, or
    /// [`PARTS_A_TURN`] parts are sent.
    pub(in crate::connection) fn pump(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.http.ours() != h1::state::State::SendsBody {
            return self.exchange.iter_mut().for_each(|exchange| exchange.outgoing.cut());
        }
        for _ in 0..PARTS_A_TURN {
            if self.transport.blocked
                || self.transport.is_ending()
                || H1::new(self, out).send_next(worker) != Sent::More
            {
                return;
            }
        }
        // A body of many small parts that are always ready must not delay other connections.
        worker.context.inbox.waker(self.transport.task().number()).wake();
    }

    pub(in crate::connection) fn send_part(
        &mut self,
        bytes: Bytes,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        self.exchange.iter_mut().for_each(|exchange| exchange.count_sent(bytes.len()));
        if bytes.len() > INLINE_BYTES && out.tls.is_none() {
            return self.send_apart(bytes, worker, out);
        }
        // Copies a small part and, under TLS, any part, because encryption copies it anyway and the copied part shares
        // records with its framing.
        self.http.send_data(&bytes, &mut out.queue.output)?;
        if out.waiting() >= AHEAD_BYTES {
            self.send_and_hear(worker, out);
        }
        Ok(())
    }

    /// Queues a range of a file to be sent.
    pub(in crate::connection) fn send_step(
        &mut self,
        step: Step,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        let (waiting, length) = (out.waiting(), step.range.end - step.range.start);
        self.exchange.iter_mut().for_each(|exchange| exchange.count_sent(length as usize));
        let mut after = Vec::new();
        if self.http.send_data_apart(length, &mut out.queue.output, &mut after)? {
            out.flush_before(self.transport.id, true);
            let Step { file, range, more } = step;
            out.queue.push(Op::SendFile { socket: self.transport.id, file, offset: range.start, length, more });
            out.queue.output.extend_from_slice(&after);
            self.sent_away(waiting, worker, out);
        }
        Ok(())
    }

    /// Queues the written bytes and blocks the connection until the kernel has taken them.
    pub(in crate::connection) fn send_and_hear(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.count_exchanges();
        self.transport.send_and_hear(worker, out);
        self.release_if_ended(worker);
    }

    /// Blocks the connection and charges `length` bytes that the driver holds. If the memory budget has no room, cuts
    /// the connection.
    pub(in crate::connection) fn sent_away(
        &mut self,
        length: usize,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.count_exchanges();
        self.transport.sent_away(length, worker, out);
        self.release_if_ended(worker);
    }

    /// Ends a response after its body.
    pub(in crate::connection) fn send_end(
        &mut self,
        trailers: &[(HeaderName, HeaderValue)],
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        self.http.send_end(&mut out.queue.output, |writer| write_fields(writer, trailers))
    }

    /// Answers 500 in place of a response that cannot be sent, and makes it the last answer. If a part of the response
    /// was sent already, closes the connection. On a client, fails the request and ends the connection.
    fn broken_answer(
        &mut self,
        error: highwire_proto::Error,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if self.transport.link.is_some() {
            return self.end_with(Abort::BodyMisfit(Some(error)), worker, out);
        }
        quiet::log!(Mistake, error, %error, "a handler's answer cannot be sent");
        self.http.close_after();
        let head = h1::Response { status: 500, reason: None, length: Length::Empty };
        let sent = self.http.send_response(head, &mut out.queue.output, |_| {});
        if sent.is_ok() {
            self.exchange.iter_mut().for_each(|exchange| exchange.log_instead(500));
        }
        if sent.and_then(|()| self.http.send_end(&mut out.queue.output, |_| {})).is_err() {
            out.flush(self.transport.id);
            self.close(worker, out);
        }
    }

    /// Sends an interim response.
    pub(in crate::connection) fn send_interim(
        &mut self,
        status: u16,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut Out<'_>,
    ) -> Result<(), highwire_proto::Error> {
        self.http.send_interim(status, &mut out.queue.output, |writer| write_fields(writer, fields))
    }

    /// Sends the response that accepts another protocol, and starts that protocol's task.
    fn switch(
        &mut self,
        response: &mut Response,
        switch: Switch,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        response.own_headers();
        let accepted = self.http.accept(response.status.as_u16(), &mut out.queue.output, |writer| {
            write_common_lines(writer, worker, &response.fields);
            write_fields(writer, &response.fields);
        });
        if let Err(error) = accepted {
            return self.broken_answer(error, worker, out);
        }
        let raw = Raw::new(worker.context.inbox.waker(self.transport.task().number()));
        let is_draining = worker.draining;
        match self.exchange().start_tunnel(raw, switch, is_draining) {
            Ok(()) => {
                self.become_tunnel();
                self.drive_tunnel(worker, out);
            }
            Err(_) => {
                out.flush(self.transport.id);
                self.close(worker, out);
            }
        }
    }

    /// Lets a tunnel take the place of its exchange, which then usually ends. The deadline starts anew, because the tunnel keeps
    /// it.
    pub(in crate::connection) fn become_tunnel(&mut self) {
        self.transport.phase = Phase::Fresh;
        self.tunnel = self.exchange.as_mut().and_then(|exchange| exchange.take_tunnel());
    }

    /// Handles received bytes of a tunnel: keeps them for its task, and polls the task.
    pub(in crate::connection) fn received_raw(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(tunnel) = self.tunnel() else { return };
        if !bytes.is_empty() {
            let mut raw = tunnel.raw.borrow_mut();
            raw.push(bytes);
            raw.paused = raw.held() >= RAW_BYTES;
            let full = raw.paused;
            self.transport.tunnel_moved(&mut raw, worker);
            drop(raw);
            if full {
                self.transport.pause(out.queue);
            }
        }
        if !self.recharge(worker) {
            return self.abort(worker, out);
        }
        if self.transport.is_late(worker) {
            return;
        }
        self.transport.work.spend(work::POLL + work::bytes(bytes.len()));
        // A few bytes cause little work, so that reading the clock would be a large part of it.
        let begun = (bytes.len() >= TIMED_BYTES).then(worker.stopwatch);
        self.drive_tunnel(worker, out);
        if let Some(begun) = begun {
            self.transport.work.spend_since(begun, worker.stopwatch);
        }
    }

    /// Polls the tunnel's task and sends the bytes that the task has written. Ends the connection when the task has
    /// dropped both halves of its stream.
    pub(in crate::connection) fn drive_tunnel(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let number = self.transport.task().number();
        let Some(tunnel) = &self.tunnel else { return };
        if tunnel.raw.borrow().has_setup() {
            // The connection's task has been woken to become one to a server of HTTP.
            return;
        }
        let raw = tunnel.raw.clone();
        raw.borrow_mut().is_polled = true;
        let polled = tunnel.poll(&worker.context.inbox.waker(number));
        let mut raw = raw.borrow_mut();
        raw.is_polled = false;
        if polled.is_err() {
            drop(raw);
            return self.abort(worker, out);
        }
        if !self.transport.blocked {
            if raw.has_outgoing() {
                self.send_written(&mut raw, worker, out);
            } else if !raw.is_in_arena(worker.turn) {
                raw.mark_flushed();
            }
            if raw.wants_flush && !self.transport.blocked {
                // The driver does not report a complete send, so the connection's task is woken after the driver's turn
                // to check.
                worker.context.wake_at(worker.now, worker.context.inbox.waker(number));
            }
        }
        raw.paused = raw.held() >= RAW_BYTES;
        // The task may have set an alarm.
        self.transport.set_tunnel_due(raw.due, &mut raw, worker);
        let (is_written, is_finished) = (raw.is_written() && !raw.has_outgoing(), raw.is_finished());
        let (is_in_arena, is_cut) = (raw.is_in_arena(worker.turn), raw.is_cut(worker.turn));
        drop(raw);
        if !self.recharge(worker) {
            return self.abort(worker, out);
        }
        if is_cut && !self.transport.blocked {
            return self.abort(worker, out);
        }
        if is_written && is_finished {
            if self.transport.ended && !self.transport.blocked && is_in_arena && out.waiting() == 0 {
                // Queues an empty operation after the copied bytes. The connection closes when the driver reports
                // `Drained`.
                out.send_bytes(self.transport.id, Bytes::new());
                self.transport.blocked = true;
            }
            return self.finish(worker, out);
        }
        out.flush(self.transport.id);
        // A session of TLS 1.2 cannot receive after its own close_notify.
        let may_end = out.tls.is_none() || self.transport.ended;
        if is_written && !self.transport.blocked && may_end {
            self.transport.end_direction(out);
        }
        self.resume_if_wanted(out.queue);
    }

    /// Sends the bytes that a tunnel's task has written: copies small writes together, and sends each large one in a
    /// separate operation.
    fn send_written(&mut self, raw: &mut Raw, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let (mut unsent, mut copied) = (0, 0);
        while let Some(bytes) = raw.take_written() {
            if bytes.len() <= INLINE_BYTES {
                copied += bytes.len();
                unsent += if self.transport.blocked { bytes.len() } else { 0 };
                out.queue.output.extend_from_slice(&bytes);
            } else {
                out.flush_before(self.transport.id, true);
                unsent += out.send_bytes(self.transport.id, bytes);
                self.transport.blocked = true;
            }
        }
        if raw.count_copied(copied, worker.turn) > RAW_BYTES && !self.transport.blocked {
            // These are enough bytes for one turn. Later writes wait until the driver reports that the kernel has these
            // bytes.
            unsent += out.flush_and_hear(self.transport.id);
            self.transport.blocked = true;
        }
        if self.transport.blocked {
            self.transport.account.set_unsent(unsent);
        }
        raw.wake_writer();
        self.transport.tunnel_moved(raw, worker);
    }

    /// Ends an idle tunnel in two steps. The first call notifies the tunnel's task, which then has one second to send
    /// its last bytes. The second call ends the connection.
    pub(in crate::connection) fn end_idle_tunnel(
        &mut self,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(tunnel) = self.tunnel().filter(|tunnel| tunnel.tell_idle()) else {
            return self.finish(worker, out);
        };
        worker.count_cut();
        let due = worker.tick.saturating_add(TICKS_A_SECOND);
        self.transport.set_tunnel_due(due, &mut tunnel.raw.borrow_mut(), worker);
        self.transport.phase = Phase::Tunnel;
        self.drive_tunnel(worker, out);
    }
}

/// Writes the `Server` and `Date` fields that the handler has not set. A handler that acts as a proxy may set them.
fn write_common_lines(
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
