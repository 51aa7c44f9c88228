//! Sends answers over HTTP/2 as far as the peer's windows allow, in the order of the streams' priorities.

use super::H2;
use super::streams::{Active, Http2};
use crate::body::BodyError;
use crate::connection::out::{AHEAD_BYTES, Out};
use crate::connection::transport::Transport;
use crate::connection::work::Timing;
use crate::exchange::carrier::Sent;
use crate::exchange::lifecycle::Lifecycle;
use crate::exchange::{Exchange, Waits};
use crate::message::fields::is_sent_without_connection;
use crate::message::request::BodyUse;
use crate::message::response::{Content, Response};
use crate::runtime::context::STREAM_TASKS;
use crate::runtime::memory;
use crate::runtime::rate_limited;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use highwire_proto::h2::{Code, FRAME_BYTES, FieldWriter, StreamRef};
use highwire_proto::{Head, Length};
use http::header;

/// The most frames of scheduled streams that a connection sends before other connections get their turn.
const FRAMES_A_TURN: usize = 64;

impl Transport {
    /// Sends a response. If the body cannot be sent at once, sends the head and as much of the body as possible.
    #[inline]
    pub(in crate::connection) fn send_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        response: &mut Response,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let status = response.status.as_u16();
        let length = response.content.length();
        let withheld = http2.http.withholds_body(stream, status);
        let sent = http2.http.send_response(stream, status, length, &mut out.queue.output, |writer| {
            write_fields(writer, worker, response, status, length);
        });
        if let Err(error) = sent {
            rate_limited::log!(Mistake, error, %error, "a handler's answer cannot be sent");
            http2.http.reset(stream, Code::Internal, &mut out.queue.output);
            return http2.forget(stream, worker);
        }
        if let Some(active) = http2.get(stream) {
            active.lent = 0;
            active.exchange.outgoing.begin();
        }
        match std::mem::replace(&mut response.content, Content::Bytes(Bytes::new())) {
            _ if withheld => self.done_http2(http2, stream, worker, out),
            content => self.send_content_http2(http2, stream, content, worker, out),
        }
    }

    /// Sends what follows a head: the whole body if that is possible at once, or its first parts.
    pub(in crate::connection) fn send_content_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        content: Content,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        match content {
            Content::Bytes(bytes) if bytes.is_empty() => {}
            Content::Bytes(bytes) => {
                // A small body is sent at once if no other stream is scheduled and the windows allow it, as they
                // usually do.
                let whole = bytes.len() <= FRAME_BYTES as usize && http2.schedule.is_empty();
                let sent = match whole {
                    true => http2.http.send_data(stream, &bytes, true, &mut out.queue.output).unwrap_or(0),
                    false => 0,
                };
                http2.sent += sent as u64;
                if let Some(active) = http2.get(stream) {
                    active.exchange.count_sent(sent);
                }
                if sent < bytes.len() {
                    let (write_due, all) = (worker.tick().saturating_add(worker.rules.write), http2.sent);
                    let active = http2.active(stream, worker);
                    (active.due, active.waits, active.sent_before) = (write_due, Waits::Write, all);
                    // The whole body stays in memory until its last byte is sent.
                    active.lent = if memory::is_own(&bytes, active.holder()) { bytes.len() } else { 0 };
                    active.pending = bytes.slice(sent..);
                    active.exchange.outgoing.begin();
                    http2.schedule(stream);
                    self.pump_http2(http2, worker, out);
                    H2 { transport: self, http2, stream, out }.charge_or_abort(worker);
                    return;
                }
            }
            Content::Stream(streamed) => {
                let write_due = worker.tick().saturating_add(worker.rules.write);
                let all = http2.sent;
                let active = http2.active(stream, worker);
                active.exchange.outgoing.stream(streamed);
                (active.due, active.waits, active.sent_before) = (write_due, Waits::Write, all);
                http2.schedule(stream);
                return self.pump_http2(http2, worker, out);
            }
            Content::Switch(_) => {}
        }
        self.done_http2(http2, stream, worker, out);
    }

    /// Ends the exchange of a stream whose answer is complete. If the request is not complete, the stream stays and
    /// drops the rest of the request.
    pub(in crate::connection) fn done_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let is_over = match http2.get(stream) {
            None => true,
            Some(active) => {
                active.is_answered() && active.pending.is_empty() && !active.exchange.outgoing.is_streaming()
            }
        };
        if !is_over {
            return;
        }
        let is_open = http2.http.awaits_body(stream);
        let arrived = http2.arrived;
        if let Some(active) = http2.get(stream).filter(|active| active.is_asked && active.exchange.tunnel().is_none()) {
            // The request is complete. The exchange ends with the response.
            return active.wait_for_response(worker, arrived);
        }
        if let Some(active) = http2.get(stream).filter(|active| active.has_living_tunnel()) {
            if is_open {
                // Our direction has ended; the peer's continues.
                (active.due, active.waits) = (active.body_due(worker), Waits::Handler);
                return;
            }
            // Both directions have ended, so another stream may reuse this index of `active`. If the tunnel's task has
            // not finished, the worker continues it as a spawned task.
            if let Some(task) = active.exchange.detach_tunnel() {
                worker.context.spawn(task);
            }
            return http2.forget(stream, worker);
        }
        if is_open {
            // The answer is complete before the request. The rest of the request is dropped, up to the same limit as in
            // HTTP/1.
            let most = worker.body_limit(u32::MAX, BodyUse::None);
            let active = http2.active(stream, worker);
            // After a tunnel the peer gets the linger timeout, as after the last answer of a connection.
            let is_tunnel = active.exchange.tunnel().is_some();
            let due = worker.tick().saturating_add(if is_tunnel { worker.rules.linger } else { worker.rules.body });
            if active.intake.bytes > most || (worker.draining() && !is_tunnel) {
                // More than the limit has been received already, or a shutdown waits for the connection.
                http2.http.reset(stream, Code::NoError, &mut out.queue.output);
                return http2.forget(stream, worker);
            }
            if !std::mem::replace(&mut active.drops, true) {
                (active.due, active.waits, active.lingers) = (due, Waits::Body, is_tunnel);
                let mut exchange = std::mem::replace(&mut active.exchange, Exchange::answered());
                let given = std::mem::take(&mut active.given);
                exchange.give_up(BodyError::CutShort, worker);
                http2.http.used(stream, given, &mut out.queue.output);
            }
            return;
        }
        http2.forget(stream, worker);
    }

    /// Sends frames of the scheduled streams, until the connection is blocked, no stream is scheduled, or
    /// [`FRAMES_A_TURN`] frames are sent.
    pub(in crate::connection) fn pump_http2(
        &mut self,
        http2: &mut Http2,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        for _ in 0..FRAMES_A_TURN {
            if self.blocked() || self.is_ending() {
                return;
            }
            let Some(stream) = http2.schedule.take_next() else { return };
            if let Some(active) = http2.get(stream) {
                active.scheduled = false;
            }
            match self.send_frame_http2(http2, stream, worker, out) {
                Sent::More => {
                    let priority = http2.http.priority(stream);
                    if let Some(active) = http2.get(stream) {
                        active.scheduled = true;
                        http2.schedule.put_back(stream, priority);
                    }
                }
                Sent::Waits => {}
                Sent::Over => self.done_http2(http2, stream, worker, out),
            }
            if out.waiting() >= AHEAD_BYTES {
                self.send_and_hear(worker, out);
            }
        }
        if !http2.schedule.is_empty() {
            worker.context.inbox.waker(self.task().number()).wake();
        }
    }

    /// Sends one frame of a stream's answer.
    fn send_frame_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Sent {
        let Some(active) = http2.get(stream) else { return Sent::Over };
        let is_pending = !active.pending.is_empty();
        if !is_pending && http2.http.waits_for_window(stream) {
            // The window is closed. A part made now would only occupy memory.
            let all = http2.sent;
            http2.get(stream).into_iter().for_each(|active| active.took(0, all, worker));
            return Sent::Waits;
        }
        let mut exchange = H2 { transport: self, http2, stream, out };
        if !is_pending {
            return exchange.send_next(worker);
        }
        let sent = exchange.send_pending(worker);
        exchange.sent_or_abort(sent, worker)
    }

    /// Drives the streams from a place on, at least one of them, as far as the allowance of this turn and its reserve suffice.
    /// A later turn drives the remaining streams. If any stream was woken meanwhile, it then drives every stream again.
    fn drive_streams(
        &mut self,
        http2: &mut Http2,
        first: usize,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        self.work.begin(worker.turn(), worker.allowance());
        let mut timing = Timing::of_tasks(&self.work, worker.stopwatch());
        let mut has_driven = false;
        for place in first..http2.active.len() {
            if http2.active.get(place).is_none_or(Option::is_none) {
                continue;
            }
            let stopwatch = worker.stopwatch();
            if timing.event(&mut self.work, &mut worker.reserve, has_driven, stopwatch) {
                http2.undriven = Some(place);
                break;
            }
            has_driven = true;
            self.drive_stream(http2, place, worker, out);
            if self.is_ending() {
                break;
            }
        }
        timing.end(&mut self.work, worker.stopwatch());
        if http2.undriven.is_some() || http2.has_late_wakes {
            self.leave_unread(worker);
            self.work.leave_woken();
        }
    }

    /// Advances everything that can make progress on one stream: handler, bodies, tunnel.
    pub(in crate::connection) fn drive_stream(
        &mut self,
        http2: &mut Http2,
        place: usize,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(Some(active)) = http2.active.get(place) else { return };
        let stream = active.stream;
        if self.give_up_http2(http2, stream, worker, out) {
            return;
        }
        let Some(Some(active)) = http2.active.get(place) else { return };
        let exchange = &active.exchange;
        if exchange.awaits_answer() {
            H2 { transport: self, http2, stream, out }.poll_answer(worker);
        } else if exchange.tunnel().is_some() {
            self.poll_tunnel(http2, stream, worker, out);
        } else if exchange.outgoing.is_streaming() && active.waits != Waits::Write {
            // A stream that waits for its window is scheduled when the window opens.
            http2.schedule(stream);
        }
        self.credit_http2(http2, stream, worker, out);
    }
}

impl Http2 {
    /// Adds a stream that has something to send to the schedule, unless it is there already.
    pub(in crate::connection) fn schedule(&mut self, stream: StreamRef) {
        let priority = self.http.priority(stream);
        let Some(active) = self.get(stream) else { return };
        if !std::mem::replace(&mut active.scheduled, true) {
            self.schedule.add(stream, priority);
        }
    }

    /// Handles a wider window of one stream: schedules the stream if it can send. Returns true if it can.
    pub(in crate::connection) fn opened(&mut self, stream: StreamRef) -> bool {
        let capacity = self.http.capacity(stream);
        let has_something = self.get(stream).is_some_and(|active| can_send(active, capacity));
        if has_something {
            self.schedule(stream);
        }
        has_something
    }

    /// Handles a wider window of the connection, or changed settings of the peer: schedules the streams that can send.
    /// Returns true if any stream is scheduled.
    pub(in crate::connection) fn all_opened(&mut self) -> bool {
        for place in 0..self.active.len() {
            let Some(active) = &self.active[place] else { continue };
            let stream = active.stream;
            if can_send(active, self.http.capacity(stream)) {
                self.schedule(stream);
            }
        }
        !self.schedule.is_empty()
    }
}

impl Http2 {
    /// Advances everything that can make progress: handlers, bodies, unread frames.
    pub(in crate::connection) fn drive(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        if transport.is_ending() {
            return;
        }
        self.drive_due_streams(transport, worker, head, out);
        let begun = (worker.stopwatch())();
        self.driven(transport, worker, head, out);
        transport.work.spend_since(begun, worker.stopwatch());
    }

    fn drive_due_streams(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        let is_unfinished = transport.work.is_unfinished();
        if self.undriven.is_some() && is_unfinished {
            // A later turn drives the streams that are left, and then all of them once more.
            self.has_late_wakes = true;
        } else if let Some(first) = self.undriven.take() {
            // What is received meanwhile waits, because it could use up the allowance in each turn.
            return transport.drive_streams(self, first, worker, out);
        }
        // Unread frames are parsed before a new round, because a connection that always has something to send would
        // otherwise never parse them.
        self.proceed(transport, worker, head, out);
        transport.resume_if_wanted(out.queue);
        if transport.is_ending() || self.undriven.is_some() {
            return;
        }
        let has_late_wakes = std::mem::take(&mut self.has_late_wakes);
        // What happens to a request of ours wakes its stream.
        if !transport.is_client() || has_late_wakes || has_unnumbered(self) {
            transport.drive_streams(self, 0, worker, out);
        }
    }

    /// Sends the bytes of the streams that were driven, and then continues to parse.
    pub(in crate::connection) fn driven(
        &mut self,
        transport: &mut Transport,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        transport.pump_http2(self, worker, out);
        self.proceed(transport, worker, head, out);
        transport.resume_if_wanted(out.queue);
        self.settle(transport, worker, out);
    }
}

/// Returns true if some streams have no tasks of their own, because their places have too many bits.
fn has_unnumbered(http2: &Http2) -> bool {
    http2.active.len() > STREAM_TASKS
}

/// Returns true if a stream should be scheduled, because it has something to send, and either may send (`capacity` is
/// not 0) or does not wait for a window yet. A stream that still waits for the connection's window is not scheduled, so
/// its answer counts as stalled.
fn can_send(active: &Active, capacity: usize) -> bool {
    let has_something = active.is_answered() && (!active.pending.is_empty() || active.exchange.outgoing.is_streaming());
    has_something && (capacity > 0 || active.waits != Waits::Write)
}

/// Writes the header fields of an answer.
fn write_fields(
    writer: &mut FieldWriter<'_>,
    worker: &WorkerContext<impl Service>,
    response: &Response,
    status: u16,
    length: Length,
) {
    let has = |wanted: &http::HeaderName| response.fields.iter().any(|(name, _)| name == wanted);
    if let Some(name) = worker.lines.server_value().filter(|_| !has(&header::SERVER)) {
        writer.field(b"server", name);
    }
    if !has(&header::DATE) {
        writer.field(b"date", worker.lines.date_value());
    }
    if let Some(content_type) = response.content_type {
        writer.field(b"content-type", content_type.as_bytes());
    }
    let shared = response.rendered.iter().flat_map(|rendered| &rendered.fields);
    for (name, value) in shared.chain(&response.fields) {
        if is_sent_without_connection(name) {
            writer.field(name.as_str().as_bytes(), value.as_bytes());
        }
    }
    let length = match length {
        // As in HTTP/1, 204 and 304 announce no length.
        _ if matches!(status, 204 | 304) => None,
        Length::Empty => Some(0),
        Length::Exact(length) => Some(length),
        Length::Unknown => None,
    };
    if let Some(length) = length {
        writer.number(b"content-length", length);
    }
}
