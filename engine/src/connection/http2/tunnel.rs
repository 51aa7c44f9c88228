//! Other protocols on a stream of HTTP/2: CONNECT (RFC 9113 section 8.5), and CONNECT with a protocol (RFC 8441).
//!
//! What the handler's task writes is the body of an answer without an end of its own, and what its peer sends is the body
//! of a request: windows, back-pressure and turns are those of any stream.

use super::H2;
use super::streams::{Active, Http2};
use crate::body::{BodyStream, PART_BYTES};
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::deadline::TICKS_A_SECOND;
use crate::exchange::Waits;
use crate::exchange::lifecycle::Lifecycle;
use crate::raw::{Ended, Raw};
use crate::response::{Content, Response, Streamed};
use crate::service::Service;
use crate::worker::WorkerContext;
use bytes::Bytes;
use futures_core::Stream;
use highwire_proto::h2::{Code, StreamRef};
use http::StatusCode;
use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

/// What the other protocol's task has written, as a body.
struct Written {
    raw: Rc<RefCell<Raw>>,
}

impl Stream for Written {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let mut raw = self.raw.borrow_mut();
        if let Some(bytes) = raw.outgoing.pop_front() {
            raw.outgoing_held -= bytes.len() + PART_BYTES;
            if !raw.wants_flush {
                raw.writer.take().into_iter().for_each(Waker::wake);
            }
            return Poll::Ready(Some(Ok(bytes)));
        }
        if raw.is_written() {
            return Poll::Ready(None);
        }
        raw.mark_flushed();
        // Its task puts the stream back into the schedule when it has written more.
        Poll::Pending
    }
}

impl Transport {
    /// A CONNECT came: what its stream brings is kept for the protocol that may be accepted.
    pub(in crate::connection) fn connect_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
    ) {
        let waker = worker.context.inbox.waker(self.stream_task(stream).number());
        http2.active(stream, worker).exchange.propose_tunnel(Raw::new(waker));
    }

    /// Makes of a handler's answer to a CONNECT what is sent: an accepted protocol becomes a body; any other success would
    /// say that there is a tunnel (RFC 9110 section 9.3.6), and is none.
    pub(in crate::connection) fn answer_connect(
        &mut self,
        active: &mut Active,
        response: &mut Response,
        worker: &WorkerContext<impl Service>,
    ) {
        let content = std::mem::replace(&mut response.content, Content::Bytes(Bytes::new()));
        let Content::Switch(switch) = content else {
            response.content = content;
            if response.status.is_success() {
                *response = Response::error(StatusCode::NOT_IMPLEMENTED, "there is no tunnel here\n");
            }
            return active.exchange.decline_tunnel();
        };
        match active.exchange.start_proposed(*switch, worker.draining) {
            Ok(raw) => {
                let body = BodyStream::new(Written { raw });
                response.content = Content::Stream(Box::new(Streamed { length: None, body, trailers: None }));
                // As 101 in HTTP/1 (RFC 8441 section 4).
                response.status = StatusCode::OK;
                worker.context.inbox.waker(self.stream_task(active.stream).number()).wake();
            }
            Err(_) => *response = Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"),
        }
    }

    /// Bytes of another protocol came.
    pub(in crate::connection) fn data_tunnel(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        data: &[u8],
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if let Some(active) = http2.get(stream)
            && let Some(tunnel) = active.exchange.tunnel()
        {
            let mut raw = tunnel.raw.borrow_mut();
            raw.push(data);
            // Whatever its task takes, the peer is credited for.
            raw.paused = true;
            drop(raw);
            active.given += data.len();
            active.tunnel_moved(worker);
        }
        if (H2 { transport: self, http2, stream, out }).charge_or_abort(worker) {
            self.poll_tunnel(http2, stream, worker, out);
            self.credit_http2(http2, stream, worker, out);
        }
    }

    /// The peer ended its direction.
    pub(in crate::connection) fn end_tunnel(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        if let Some(active) = http2.get(stream)
            && let Some(tunnel) = active.exchange.tunnel()
        {
            tunnel.peer_ended(true);
        }
        self.poll_tunnel(http2, stream, worker, out);
    }

    /// Runs the other protocol's task; what it wrote is sent when it is the stream's turn.
    pub(in crate::connection) fn poll_tunnel(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let number = self.stream_task(stream).number();
        let Some(active) = http2.get(stream) else { return };
        let Some(tunnel) = active.exchange.tunnel_mut() else { return };
        if let Err(abort) = tunnel.poll(&worker.context.inbox.waker(number)) {
            return H2 { transport: self, http2, stream, out }.abort(abort, worker);
        }
        let raw = tunnel.raw.borrow();
        let has_something = !raw.outgoing.is_empty() || raw.is_written() || !raw.flushed;
        let is_finished = raw.is_finished();
        drop(raw);
        if active.exchange.outgoing.is_streaming() && has_something {
            http2.schedule(stream);
        } else if active.is_answered() && !active.exchange.outgoing.is_streaming() {
            // Our direction had ended before.
            let is_open = http2.http.awaits_body(stream);
            if is_finished || !is_open {
                self.done_http2(http2, stream, worker, out);
            }
        }
    }
}

impl Transport {
    /// No byte has passed on a stream for too long: its task hears of it, and what it says at once is the last.
    pub(in crate::connection) fn end_idle_tunnel(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(active) = http2.get(stream) else { return };
        let Some(tunnel) = active.exchange.tunnel() else { return };
        if tunnel.raw.borrow().is_idle() {
            http2.http.reset(stream, Code::Cancel, &mut out.queue.output);
            return http2.forget(stream, worker);
        }
        tunnel.end(Ended::Idle);
        active.due = worker.tick.saturating_add(TICKS_A_SECOND);
        worker.count_cut();
        self.poll_tunnel(http2, stream, worker, out);
        self.pump_http2(http2, worker, out);
    }
}

impl Http2 {
    /// The peer has ended the connection's direction, and none of its streams': other protocols there are cut.
    pub(in crate::connection) fn end_tunnels(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        for place in 0..self.active.len() {
            let Some(Some(active)) = self.active.get(place) else { continue };
            let stream = active.stream;
            if active.exchange.tunnel().is_some() && self.http.awaits_body(stream) {
                self.http.reset(stream, Code::Cancel, &mut out.queue.output);
                self.forget(stream, worker);
            }
        }
    }
}

impl Active {
    /// Until when a stream whose body has nothing to send may wait.
    pub(in crate::connection) fn body_due(&self, worker: &WorkerContext<impl Service>) -> u32 {
        let after = match self.exchange.tunnel() {
            Some(tunnel) if tunnel.raw.borrow().is_idle() => TICKS_A_SECOND,
            Some(_) => worker.timeouts.tunnel,
            None => worker.timeouts.handler,
        };
        worker.tick.saturating_add(after)
    }

    /// Bytes of another protocol came: its time begins anew.
    fn tunnel_moved(&mut self, worker: &WorkerContext<impl Service>) {
        if self.is_answered() && self.waits == Waits::Handler {
            self.due = self.body_due(worker);
        }
    }

    /// Returns true if another protocol still reads, or writes.
    pub(in crate::connection) fn has_living_tunnel(&self) -> bool {
        self.exchange.tunnel().is_some_and(|tunnel| !tunnel.is_finished())
    }

    /// Bytes that its handler, or its other protocol, has got and not taken; `None` where nothing is given to anybody.
    pub(in crate::connection) fn untaken(&self) -> Option<usize> {
        if let Some(tunnel) = self.exchange.tunnel() {
            return Some(tunnel.raw.borrow().bytes);
        }
        self.exchange.incoming.untaken()
    }

    /// The server stops: another protocol is told that nothing more comes.
    pub(in crate::connection) fn drain(&self) {
        if let Some(tunnel) = self.exchange.tunnel() {
            tunnel.drain();
        }
    }
}
