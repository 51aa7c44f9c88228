//! One connection: received bytes through the protocol to handlers, and what handlers answer back.
//!
//! Everything that can happen to a connection enters by one of the public functions here: bytes came, the peer ended its
//! direction, the socket took what waited, a task was woken, a deadline passed. Each of them does what it can, hands the
//! driver at most a few operations, and leaves the connection in one [`Phase`] that says what it waits for and how long.
//!
//! The window of unread bytes is the driver's receive buffer as long as nothing is left over: then nothing is copied, and a
//! connection that waits for its next request owns no memory but this struct.

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

/// Unread bytes that a connection keeps while it waits for its handler or its peer, before it stops receiving.
pub(super) const UNREAD_BYTES: usize = 64 * 1024;

/// Room that a new window of unread bytes gets.
const WINDOW_BYTES: usize = 4 * 1024;

/// A connection: what carries it, and the protocol that it speaks.
pub(crate) struct Connection {
    transport: Transport,
    http: h1::Connection,
    /// The present exchange over HTTP/1, if it is not over at once.
    exchange: Option<Box<Exchange>>,
    /// What was counted of its body.
    intake: Intake,
    /// No more of that body is read: it is too large, and its answer is still to come.
    body_refused: bool,
    /// What it has in place of one exchange, where it speaks HTTP/2.
    http2: Option<Box<Http2>>,
}

impl Connection {
    /// A connection that was just accepted. `proxied`: it begins with the PROXY protocol.
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

    /// Does something that may send.
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

    /// Bytes came.
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

    /// Bytes of HTTP came.
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
                // Its turn has not come again.
                return;
            }
            self.proceed(worker, head, out);
        }
        self.resume_if_wanted(out.queue);
        self.settle(worker, head, out);
    }

    /// The peer ended its direction.
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

    /// Nothing more comes. `is_said`: by the peer itself.
    pub(super) fn peer_is_done(
        &mut self,
        is_said: bool,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        self.transport.ended = true;
        // Behind its own word comes the end of what carried it, which says nothing more.
        self.transport.end_said |= is_said;
        // A handshake that waits for its turn, and what is behind it, came before the end.
        if self.transport.is_ending() || !self.transport.sealed.is_empty() {
            return;
        }
        if self.transport.phase == Phase::Proxy {
            // Nobody knows whose connection it was.
            return self.close(worker, out);
        }
        if let Some(tunnel) = self.tunnel() {
            // Under TLS the peer has to say so itself: whoever stands in between may have ended it (RFC 8446 section 6.1).
            tunnel.peer_ended(self.transport.end_said);
        }
        self.settle(worker, head, out);
    }

    /// The driver's bytes are with the kernel.
    pub(crate) fn drained(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.transport.blocked = false;
        self.transport.account.set_unsent(0);
        self.recharge(worker);
        self.with_out(worker, queue, |connection, worker, out| {
            if connection.transport.phase == Phase::Closing {
                connection.finish(worker, out);
            } else if !connection.transport.is_ending() && connection.transport.sealed.is_empty() {
                if connection.transport.phase == Phase::Write {
                    // It is taken: whatever has to be taken next has its whole time.
                    connection.transport.phase = Phase::Fresh;
                }
                connection.drive(worker, head, out);
                connection.settle(worker, head, out);
            }
        });
    }

    /// The driver holds bytes that the peer does not take, copies of so many.
    pub(crate) fn blocked(&mut self, held: usize, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        if self.transport.phase == Phase::Gone {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| connection.sent_away(held, worker, out));
        if self.transport.phase == Phase::Gone {
            return;
        }
        if self.transport.phase == Phase::Linger {
            // The last answer was not out yet: the peer has the time that it has for any other.
            return self.wait_for(Phase::Closing, worker);
        }
        // Whoever does not read answers may not send requests.
        self.transport.pause(queue);
        if self.transport.phase != Phase::Closing {
            self.wait_for(Phase::Write, worker);
        }
    }

    /// The peer took some of them.
    pub(crate) fn progressed(&mut self, worker: &mut WorkerContext<impl Service>) {
        if matches!(self.transport.phase, Phase::Write | Phase::Closing) {
            self.wait_to_write(worker);
        }
    }

    /// Works through the unread bytes that are kept.
    pub(super) fn proceed(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        // The end of a body has no bytes of its own, and may be all that is left.
        let end_is_due = || self.http2.as_ref().map_or(self.http.end_is_due(), |http2| http2.http.end_is_due());
        if self.transport.is_ending() || (self.transport.unread.is_empty() && !end_is_due()) {
            return;
        }
        let mut unread = std::mem::take(&mut self.transport.unread);
        let used = self.advance(&unread, worker, head, out);
        if self.transport.is_ending() {
            // It was given back with everything else.
            return;
        }
        if self.is_tunnel() {
            return self.received_raw(&unread[used.min(unread.len())..], worker, out);
        }
        unread.drain(..used.min(unread.len()));
        self.put_back_unread(unread);
        self.recharge(worker);
    }

    /// Keeps what is left unread: an idle connection owns no buffer, and one that had much to read gives back what it has no use for.
    pub(super) fn put_back_unread(&mut self, mut unread: Vec<u8>) {
        if unread.is_empty() {
            return;
        }
        if unread.capacity() > UNREAD_BYTES && unread.len() < unread.capacity() / 4 {
            unread.shrink_to_fit();
        }
        self.transport.unread = unread;
    }

    /// Whether another protocol owns the bytes.
    fn is_tunnel(&self) -> bool {
        self.tunnel().is_some()
    }

    pub(super) fn tunnel(&self) -> Option<&Tunnel> {
        self.exchange.as_ref()?.tunnel()
    }

    /// Whether requests may be read on: the peer takes its answers, and the present exchange is not in the way.
    fn may_read(&self) -> bool {
        !self.transport.blocked && !self.body_refused && !self.transport.is_ending()
    }

    /// Reads events from the window until it holds no more, or something has to be waited for: how many bytes were used.
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

    /// Keeps bytes that cannot be worked on now.
    pub(super) fn keep(&mut self, bytes: &[u8], worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.transport.is_ending() {
            return;
        }
        if self.transport.unread.capacity() == 0 {
            self.transport.unread.reserve_exact(bytes.len().max(WINDOW_BYTES));
        }
        let most = self.most_unread();
        if self.transport.unread.len() + bytes.len() > self.transport.unread.capacity().max(most) {
            // It was to stop here: room for as much again would only be held.
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

    /// Bytes that wait to be read from which on no more is received: fewer if there is work for many turns already.
    fn most_unread(&self) -> usize {
        if self.transport.work.is_unfinished() { UNREAD_BYTES / 4 } else { UNREAD_BYTES }
    }

    /// Receives again where nothing stands against it.
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
