//! The end of a connection: errors, deadlines, closing.
//!
//! If a socket is closed while it has unread bytes, the kernel sends a reset, which can destroy the last answer on its
//! way (RFC 9112 section 9.6). A peer may continue to send after its last request. Therefore a connection usually ends
//! its own direction first, and then reads and drops bytes until the peer ends its direction or the linger deadline
//! passes. This protects the last answer, at the cost of one more wake and receive per connection (measured: 8 % of the
//! cost of a connection that is used once). After [`LINGER_BYTES`] the connection receives no more, and at the deadline
//! the kernel resets it. Without this bound, twenty peers sent two gigabytes per second.

use super::http1::Http1;
use super::out::Out;
use super::phase::Phase;
use super::{Connection, Protocol};
use crate::exchange::abort::Abort;
use crate::runtime::deadline::{NEVER, TICKS_A_SECOND};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Queue;
use highwire_proto::Head;

/// The number of bytes that an ending connection drops. As many are on their way in an upload of 300 Mbit/s over 100 ms.
const LINGER_BYTES: u32 = 4 << 20;

impl Connection {
    /// Drops bytes that arrive behind the last answer, and stops receiving when they are too many.
    pub(super) fn received_late(&mut self, count: usize, queue: &mut Queue) {
        if self.transport.count_late(count) >= LINGER_BYTES && self.transport.phase() == Phase::Linger {
            self.transport.pause(queue);
        }
    }

    /// Answers the current exchange of HTTP/1 with an error, or ends the connection if an answer has begun. The callers have
    /// not begun HTTP/2.
    pub(super) fn end_with(&mut self, abort: Abort, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if let Protocol::Http1(http1) = &mut self.protocol {
            http1.end_with(&mut self.transport, abort, worker, out);
        }
    }

    /// Handles a memory budget without room. Ends the current exchange over HTTP/1, or the connection over HTTP/2.
    pub(super) fn no_memory(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.no_memory(&mut self.transport, worker, out),
            Protocol::Http2(http2) => http2.no_memory(&mut self.transport, worker, out),
            Protocol::Tunnel(_) => self.abort(worker, out),
        }
    }

    /// Ends the exchanges and our direction; see [`Transport::finish`](super::transport::Transport::finish).
    pub(super) fn finish(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.finish(&mut self.transport, worker, out),
            Protocol::Http2(http2) => {
                http2.finish(&mut self.transport, worker, out);
                self.release_if_ended(worker);
            }
            Protocol::Tunnel(_) => {
                self.transport.finish(true, worker, out);
                self.release_if_ended(worker);
            }
        }
    }

    /// Closes the connection without waiting for the peer. The driver still sends the queued bytes.
    pub(super) fn close(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.release_protocol(worker);
        self.transport.close(worker, out);
    }

    /// Resets the connection, so that the peer can detect that an answer is incomplete.
    pub(super) fn abort(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.release_protocol(worker);
        self.transport.abort(worker, out);
    }

    /// Ends the exchanges and the connection because the socket has failed.
    pub(crate) fn failed(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| connection.abort(worker, out));
    }

    /// Handles the passed deadline of the current phase.
    pub(crate) fn expired(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| connection.out_of_time(worker, head, out));
    }

    fn out_of_time(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        let (transport, http1) = match &mut self.protocol {
            Protocol::Http1(http1) => (&mut self.transport, http1),
            Protocol::Http2(http2) => return http2.expired(&mut self.transport, worker, head, out),
            Protocol::Tunnel(tunnel) => return tunnel.expired(&mut self.transport, worker, out),
        };
        if transport.is_client() {
            return http1.client_out_of_time(transport, worker, out);
        }
        if transport.work.is_unfinished() && matches!(transport.phase(), Phase::Fresh | Phase::Idle) {
            // The peer has not caused the delay, because the worker has not parsed the received bytes yet.
            return http1.wait_for(transport, Phase::Idle, worker);
        }
        let phase = transport.expire();
        if http1.expired(transport, phase, worker, out) {
            self.drive(worker, head, out);
            self.settle(worker, head, out);
        }
        let gone_or_ending = matches!(self.transport.phase(), Phase::Gone | Phase::Linger);
        if gone_or_ending && matches!(phase, Phase::Head | Phase::Write | Phase::Closing) {
            worker.count_cut();
        }
    }

    /// Begins a graceful shutdown; see [`Http1::drain`] and [`Http2::drain`](super::http2::Http2::drain).
    pub(crate) fn drain(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        if self.transport.is_ending() {
            return;
        }
        if let Protocol::Tunnel(tunnel) = &self.protocol {
            return tunnel.drain();
        }
        if self.transport.is_client() {
            return self.with_out(worker, queue, |connection, worker, out| connection.drain_client(worker, out));
        }
        match &mut self.protocol {
            Protocol::Tunnel(_) => {}
            Protocol::Http1(http1) => http1.drain(&mut self.transport, worker),
            Protocol::Http2(_) => self.with_out(worker, queue, |connection, worker, out| {
                let Connection { transport, protocol: Protocol::Http2(http2) } = connection else { return };
                http2.drain(worker, out);
                http2.settle(transport, worker, out);
            }),
        }
    }

    /// Returns the tick since which a client has neither sent a request nor waited for an answer, if that is a second or
    /// more.
    pub(crate) fn idle_since(&self, worker: &WorkerContext<impl Service>) -> Option<u32> {
        let transport = &self.transport;
        let after = match transport.phase() {
            Phase::Idle => worker.rules.idle,
            Phase::Fresh | Phase::Proxy => worker.rules.head,
            _ => return None,
        };
        let has_exchange = self.protocol.http1().is_some_and(Http1::has_exchange);
        if transport.is_outgoing() || transport.blocked() || has_exchange || transport.work.is_unfinished() {
            return None;
        }
        // The deadline was set when the connection became idle. Without a deadline, it counts as the oldest.
        let since = transport.due(worker).saturating_sub(after);
        let since = if after == NEVER { 0 } else { since };
        (worker.tick().saturating_sub(since) >= TICKS_A_SECOND).then_some(since)
    }

    /// Closes an idle connection at once, because another client needs its place.
    pub(crate) fn close_idle(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| {
            if let Protocol::Http2(http2) = &mut connection.protocol {
                http2.http.go_away(&mut out.queue.output);
                http2.http.go_away(&mut out.queue.output);
            }
            connection.close(worker, out);
        });
    }

    /// Resets the connection, because the shutdown or the worker must end now. Returns true if the connection was busy.
    pub(crate) fn cut(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) -> bool {
        let busy = match &self.protocol {
            Protocol::Http2(http2) => http2.http.open_streams() > 0 || self.transport.blocked(),
            Protocol::Http1(_) | Protocol::Tunnel(_) => !matches!(
                self.transport.phase(),
                Phase::Linger | Phase::Gone | Phase::Idle | Phase::Fresh | Phase::Proxy
            ),
        };
        self.with_out(worker, queue, |connection, worker, out| connection.abort(worker, out));
        busy
    }
}
