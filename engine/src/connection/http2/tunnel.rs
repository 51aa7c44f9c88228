//! Tunnels on a stream of HTTP/2: CONNECT (RFC 9113 section 8.5), and CONNECT with a protocol (RFC 8441).
//!
//! The bytes that the tunnel's task writes are the body of the response, and the peer's bytes are the body of the
//! request. Flow control and scheduling therefore work as for any stream.

use super::H2;
use super::streams::{Active, Http2};
use crate::body::BodyStream;
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::exchange::Waits;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::response::{Content, Response, Streamed};
use crate::raw::Raw;
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use futures_core::Stream;
use highwire_proto::h2::{Code, StreamRef};
use http::StatusCode;
use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

/// The bytes written by a tunnel's task, as the body of a response.
struct Written {
    raw: Rc<RefCell<Raw>>,
}

impl Stream for Written {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let mut raw = self.raw.borrow_mut();
        if let Some(bytes) = raw.take_written() {
            raw.wake_writer();
            return Poll::Ready(Some(Ok(bytes)));
        }
        if raw.is_written() {
            return Poll::Ready(None);
        }
        raw.mark_flushed();
        // The stream is scheduled again when the task has written more.
        Poll::Pending
    }
}

/// Returns the bytes that a tunnel's task writes as the body of a message.
pub(super) fn written(raw: Rc<RefCell<Raw>>) -> Box<Streamed> {
    Box::new(Streamed { length: None, body: BodyStream::new(Written { raw }), trailers: None })
}

impl Transport {
    /// Prepares for a CONNECT: keeps the peer's bytes for a tunnel that the handler may accept.
    pub(in crate::connection) fn connect_http2(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &WorkerContext<impl Service>,
    ) {
        let waker = worker.context.inbox.waker(self.stream_task(stream).number());
        let neighbours = u32::try_from(http2.http.open_streams()).unwrap_or(u32::MAX).saturating_sub(1);
        http2.active(stream, worker).exchange.propose_tunnel(Raw::beside(neighbours, waker));
    }

    /// Adapts a handler's answer to a CONNECT. If the handler accepts the tunnel, the bytes that its task writes become
    /// the body of the response. Any other 2xx answer is replaced with 501, because it would mean that a tunnel exists
    /// (RFC 9110 section 9.3.6).
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
        match active.exchange.start_proposed(*switch, worker.draining()) {
            Ok(raw) => {
                response.content = Content::Stream(written(raw));
                // HTTP/2 uses 200 in place of HTTP/1's 101 (RFC 8441 section 4).
                response.status = StatusCode::OK;
                worker.context.inbox.waker(self.stream_task(active.stream).number()).wake();
            }
            Err(_) => *response = Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"),
        }
    }

    /// Handles received bytes of a tunnel: keeps them for its task, and polls the task.
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
            // The reader now wakes the stream when it takes bytes, and the stream then credits the peer.
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

    /// Handles the end of the peer's direction of a tunnel.
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

    /// Polls a tunnel's task, and schedules the stream if it has something to send. Ends the exchange if our direction
    /// has ended, and the peer's direction has ended or the task no longer reads it.
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
        let has_something = raw.has_outgoing() || raw.is_written() || !raw.is_flushed();
        let (is_finished, is_cut) = (raw.is_finished(), raw.is_cut(worker.turn()));
        drop(raw);
        if is_cut && active.pending.is_empty() && active.is_answered() {
            http2.http.reset(stream, Code::Cancel, &mut out.queue.output);
            return http2.forget(stream, worker);
        }
        if active.exchange.outgoing.is_streaming() && has_something {
            // A stream that waits for its window is scheduled when the window opens.
            let waits = !active.pending.is_empty();
            if !waits || http2.http.capacity(stream) > 0 {
                http2.schedule(stream);
            }
        } else if active.is_answered() && !active.exchange.outgoing.is_streaming() {
            // Our direction has ended already.
            let is_open = http2.http.awaits_body(stream);
            if is_finished || !is_open {
                self.done_http2(http2, stream, worker, out);
            }
        }
    }
}

impl Transport {
    /// Ends an idle tunnel in two steps. The first call notifies the tunnel's task, which then has one second to send
    /// its last bytes. The second call resets the stream.
    pub(in crate::connection) fn end_idle_tunnel(
        &mut self,
        http2: &mut Http2,
        stream: StreamRef,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) {
        let Some(active) = http2.get(stream) else { return };
        let Some(tunnel) = active.exchange.tunnel() else { return };
        if !tunnel.tell_idle() {
            http2.http.reset(stream, Code::Cancel, &mut out.queue.output);
            return http2.forget(stream, worker);
        }
        active.due = worker.tick().saturating_add(TICKS_A_SECOND);
        worker.count_cut();
        self.poll_tunnel(http2, stream, worker, out);
        self.pump_http2(http2, worker, out);
    }
}

impl Http2 {
    /// Resets the streams of the tunnels that the peer has not ended, because the peer has ended the whole connection.
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
    /// Returns the tick of the deadline of a stream that has nothing to send now.
    pub(in crate::connection) fn body_due(&self, worker: &WorkerContext<impl Service>) -> u32 {
        let after = match self.exchange.tunnel() {
            Some(tunnel) if tunnel.raw.borrow().is_idle() => TICKS_A_SECOND,
            Some(_) => worker.rules.tunnel,
            None => worker.rules.handler,
        };
        worker.tick().saturating_add(after)
    }

    /// Restarts the timeout of a tunnel after bytes were received, unless the stream waits for the peer to take bytes.
    fn tunnel_moved(&mut self, worker: &WorkerContext<impl Service>) {
        if self.is_answered() && self.waits == Waits::Handler {
            self.due = self.body_due(worker);
        }
    }

    /// Returns true if the stream is a tunnel whose reader or writer still exists.
    pub(in crate::connection) fn has_living_tunnel(&self) -> bool {
        self.exchange.tunnel().is_some_and(|tunnel| !tunnel.is_finished())
    }

    /// Returns the number of received bytes that the handler or the tunnel's task has not taken; `None` if there is no
    /// tunnel and no handler takes the body in parts.
    pub(in crate::connection) fn untaken(&self) -> Option<usize> {
        if let Some(tunnel) = self.exchange.tunnel() {
            return Some(tunnel.raw.borrow().bytes());
        }
        self.exchange.incoming.untaken()
    }

    /// Notifies the task of a tunnel that the server is shutting down.
    pub(in crate::connection) fn drain(&self) {
        if let Some(tunnel) = self.exchange.tunnel() {
            tunnel.drain();
        }
    }
}
