//! One connection: it passes received bytes to its protocol and the protocol's answers to the driver.
//!
//! Every event of a connection enters by one of the public functions here: bytes were received, the peer ended its direction, the
//! socket took waiting bytes, a task was woken, a deadline passed. Each function does all that is possible, queues at most a few
//! operations, and leaves the connection in one [`Phase`], which says what it waits for and how long.
//!
//! The parser reads from the driver's receive buffer. Only bytes that it cannot use yet are copied, so that a connection that waits
//! for its next request owns no memory but this struct.

mod account;
mod charge;
mod close;
mod http1;
pub(super) mod http2;
mod out;
mod phase;
mod proxy;
mod settle;
mod tls;
mod transport;
mod turn;
pub(super) mod work;

use self::http2::streams::Http2;
use self::out::Out;
use self::phase::Phase;
use self::transport::Transport;
use crate::exchange::{Exchange, Intake, Tunnel};
use crate::service::Service;
use crate::worker::WorkerContext;
use highwire_io::{Op, Peer, Queue, SocketId};
use highwire_proto::{Head, Role, h1};

/// A connection that waits for its handler or its peer stops receiving when it keeps so many unread bytes.
pub(super) const UNREAD_BYTES: usize = 64 * 1024;

/// The capacity of a new buffer of unread bytes.
const WINDOW_BYTES: usize = 4 * 1024;

/// A connection: its transport and its protocol.
pub(crate) struct Connection {
    transport: Transport,
    http: h1::Connection,
    /// The pending exchange over HTTP/1.
    exchange: Option<Box<Exchange>>,
    /// The counts of its request's body.
    intake: Intake,
    /// The body is too large and no more of it is read; the request has not been answered yet.
    body_refused: bool,
    /// The exchanges over HTTP/2.
    http2: Option<Box<Http2>>,
}

impl Connection {
    /// Makes the connection of an accepted socket. `proxied`: it begins with the PROXY protocol.
    pub(crate) fn new(id: SocketId, peer: Peer, proxied: bool, worker: &mut WorkerContext<impl Service>) -> Connection {
        worker.deadlines.set(id.index, worker.tick, worker.timeouts.head);
        Connection {
            transport: Transport::new(id, peer, proxied),
            http: h1::Connection::new(Role::Server),
            exchange: None,
            intake: Intake::default(),
            body_refused: false,
            http2: None,
        }
    }

    /// Calls `act`, which may send.
    #[inline(always)]
    pub(super) fn with_out<S: Service>(
        &mut self,
        worker: &mut WorkerContext<S>,
        queue: &mut Queue,
        act: impl FnOnce(&mut Connection, &mut WorkerContext<S>, &mut Out<'_>),
    ) {
        let mut out = Out::new(queue);
        if let Some(mut tls) = self.transport.tls.take() {
            tls.scratch = std::mem::take(&mut worker.scratch);
            out.tls = Some(tls);
        }
        act(self, worker, &mut out);
        if out.tls.as_ref().is_some_and(|tls| tls.broken) {
            self.abort(worker, &mut out);
        }
        self.release_if_ended(worker);
        if let Some(mut tls) = out.tls.take() {
            worker.scratch = std::mem::take(&mut tls.scratch);
            self.transport.tls = Some(tls);
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.transport.phase == Phase::Gone
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.transport.is_secure
    }

    pub(crate) fn id(&self) -> SocketId {
        self.transport.id
    }

    pub(crate) fn peer(&self) -> Peer {
        self.transport.peer
    }

    /// Receives bytes.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        queue: &mut Queue,
    ) {
        if self.transport.is_ending() {
            return;
        }
        if self.transport.phase == Phase::Proxy {
            return self.received_proxied(bytes, worker, head, queue);
        }
        self.with_out(worker, queue, |connection, worker, out| match out.tls {
            None => connection.received_plain(bytes, worker, head, out),
            Some(_) => connection.received_tls(bytes, worker, head, out),
        });
    }

    /// Receives bytes of HTTP.
    #[inline]
    pub(super) fn received_plain(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        if self.is_tunnel() {
            self.received_raw(bytes, worker, out);
        } else if self.transport.unread.is_empty() {
            let used = self.advance(bytes, worker, head, out);
            if used < bytes.len() {
                self.keep(&bytes[used..], worker, out);
            }
        } else {
            self.keep(bytes, worker, out);
            if self.transport.work.is_unfinished() {
                // It waits for its next turn.
                return;
            }
            self.proceed(worker, head, out);
        }
        self.resume_if_wanted(out.queue);
        self.settle(worker, head, out);
    }

    /// The driver reports that the peer has ended its direction.
    pub(crate) fn peer_ended(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| {
            if connection.transport.phase == Phase::Linger && !connection.transport.blocked {
                connection.transport.ended = true;
                return connection.close(worker, out);
            }
            let is_said = out.tls.is_none();
            connection.peer_is_done(is_said, worker, head, out);
        });
    }

    /// The peer has ended its direction. `is_said`: the peer itself said so, and not only the transport.
    pub(super) fn peer_is_done(
        &mut self,
        is_said: bool,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        self.transport.ended = true;
        // The end of the TCP stream follows the peer's close_notify and changes nothing.
        self.transport.end_said |= is_said;
        // The handshake bytes in `sealed` arrived before the end. `proceed_tls` decrypts them first and then calls this again.
        if self.transport.is_ending() || !self.transport.sealed.is_empty() {
            return;
        }
        if self.transport.phase == Phase::Proxy {
            // The header is incomplete: the peer is unknown.
            return self.close(worker, out);
        }
        if let Some(tunnel) = self.tunnel() {
            // Under TLS only close_notify ends a stream; an attacker can end the TCP stream (RFC 8446 section 6.1).
            tunnel.peer_ended(self.transport.end_said);
        }
        self.settle(worker, head, out);
    }

    /// The driver reports that the kernel has all its bytes.
    pub(crate) fn drained(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.transport.blocked = false;
        self.transport.account.set_unsent(0);
        self.recharge(worker);
        self.with_out(worker, queue, |connection, worker, out| {
            if connection.transport.phase == Phase::Closing {
                connection.finish(worker, out);
            } else if !connection.transport.is_ending() && connection.transport.sealed.is_empty() {
                if connection.transport.phase == Phase::Write {
                    // The peer has taken them; what is sent next has its whole time.
                    connection.transport.phase = Phase::Fresh;
                }
                connection.drive(worker, head, out);
                connection.settle(worker, head, out);
            }
        });
    }

    /// The driver reports that the peer does not take its bytes, and that it has copied `held` of them.
    pub(crate) fn blocked(&mut self, held: usize, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        if self.transport.phase == Phase::Gone {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| connection.sent_away(held, worker, out));
        if self.transport.phase == Phase::Gone {
            return;
        }
        if self.transport.phase == Phase::Linger {
            // The last answer is not sent yet; the peer has the time of any answer to take it.
            return self.wait_for(Phase::Closing, worker);
        }
        // A peer that does not read answers may not send requests.
        self.transport.pause(queue);
        if self.transport.phase != Phase::Closing {
            self.wait_for(Phase::Write, worker);
        }
    }

    /// The driver reports that the peer has taken some bytes.
    pub(crate) fn progressed(&mut self, worker: &mut WorkerContext<impl Service>) {
        if matches!(self.transport.phase, Phase::Write | Phase::Closing) {
            self.wait_to_write(worker);
        }
    }

    /// Parses the kept unread bytes.
    pub(super) fn proceed(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        // Even if no bytes are unread, the parser may still have to report the end of a body.
        let end_is_due = || self.http2.as_ref().map_or(self.http.end_is_due(), |http2| http2.http.end_is_due());
        if self.transport.is_ending() || (self.transport.unread.is_empty() && !end_is_due()) {
            return;
        }
        let mut unread = std::mem::take(&mut self.transport.unread);
        let used = self.advance(&unread, worker, head, out);
        if self.transport.is_ending() {
            // `unread` was released with the connection.
            return;
        }
        if self.is_tunnel() {
            return self.received_raw(&unread[used.min(unread.len())..], worker, out);
        }
        unread.drain(..used.min(unread.len()));
        self.put_back_unread(unread);
        self.recharge(worker);
    }

    /// Keeps the unread rest. An idle connection keeps no buffer, and a large buffer shrinks.
    pub(super) fn put_back_unread(&mut self, mut unread: Vec<u8>) {
        if unread.is_empty() {
            return;
        }
        if unread.capacity() > UNREAD_BYTES && unread.len() < unread.capacity() / 4 {
            unread.shrink_to_fit();
        }
        self.transport.unread = unread;
    }

    /// Returns true if another protocol owns the bytes.
    fn is_tunnel(&self) -> bool {
        self.tunnel().is_some()
    }

    pub(super) fn tunnel(&self) -> Option<&Tunnel> {
        self.exchange.as_ref()?.tunnel()
    }

    /// Returns true if the parser may read on: the peer takes our bytes, no body was refused, and the connection is not ending.
    fn may_read(&self) -> bool {
        !self.transport.blocked && !self.body_refused && !self.transport.is_ending()
    }

    /// Parses the window until it is used up or something has to be waited for. Returns the number of bytes used.
    #[inline]
    fn advance(
        &mut self,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) -> usize {
        match self.http2 {
            None => self.advance_http1(window, worker, head, out),
            Some(_) => self.advance_http2(window, worker, head, out),
        }
    }

    /// Keeps bytes that cannot be parsed now.
    pub(super) fn keep(&mut self, bytes: &[u8], worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.transport.is_ending() {
            return;
        }
        if self.transport.unread.capacity() == 0 {
            self.transport.unread.reserve_exact(bytes.len().max(WINDOW_BYTES));
        }
        let most = self.most_unread();
        if self.transport.unread.len() + bytes.len() > self.transport.unread.capacity().max(most) {
            // Receiving stops here, so the buffer needs no more room than this.
            self.transport.unread.reserve_exact(bytes.len().max(WINDOW_BYTES * 8));
        }
        self.transport.unread.extend_from_slice(bytes);
        if self.transport.unread.len() >= most {
            self.transport.pause(out.queue);
        }
        if !self.recharge(worker) {
            self.no_memory(worker, out);
        }
    }

    /// Returns the number of unread bytes at which receiving stops. It is smaller if the unread bytes are work for many turns.
    fn most_unread(&self) -> usize {
        if self.transport.work.is_unfinished() { UNREAD_BYTES / 4 } else { UNREAD_BYTES }
    }

    /// Resumes receiving if nothing forbids it.
    pub(super) fn resume_if_wanted(&mut self, queue: &mut Queue) {
        if !self.transport.paused {
            return;
        }
        let raw_is_full = self.tunnel().is_some_and(|tunnel| tunnel.raw.borrow().paused);
        let full = self.transport.blocked
            || self.body_refused
            || self.transport.unread.len() >= self.most_unread()
            || raw_is_full
            || self.incoming_is_full();
        if !full && self.transport.phase != Phase::Gone {
            self.transport.paused = false;
            queue.push(Op::ResumeRecv { socket: self.transport.id });
        }
    }
}
