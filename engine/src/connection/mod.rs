//! A connection. It passes the received bytes to its protocol, HTTP/1, HTTP/2 or a tunnel, and queues the answers for
//! the driver.
//!
//! The worker reports each event of a connection by calling a function of [`Connection`], such as `received`,
//! `peer_ended`, `drained`, `woken` or `expired`. Such a function usually does as much work as is possible within the
//! connection's allowance ([`work`]), queues operations for the driver, and sets the [`Phase`] of the connection and
//! the deadline of that phase.
//!
//! Without TLS, the parser usually reads directly from the driver's receive buffer. The connection keeps a copy only of
//! bytes that cannot be parsed yet, so an idle HTTP/1 connection without TLS usually owns no heap memory.

mod account;
mod charge;
mod client;
mod close;
mod http1;
pub(super) mod http2;
mod out;
mod phase;
mod proxy;
mod settle;
mod tls;
mod transport;
mod tunnel;
mod turn;
mod unread;
pub(super) mod work;

use self::http1::Http1;
use self::http2::Http2;
use self::out::Out;
use self::phase::Phase;
use self::transport::Transport;
use self::tunnel::Tunnel;
use self::unread::UNREAD_BYTES;
use crate::raw::{Raw, RawStream};
use crate::server::shared::Shared;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::{Op, Peer, Queue, SocketId};
use highwire_proto::{Head, Role, h2};

/// A connection: its transport and its protocol.
pub(crate) struct Connection {
    transport: Transport,
    protocol: Protocol,
}

/// The state of a protocol, and its exchanges. An accepted connection begins with HTTP/1, and may change to HTTP/2 or become
/// a tunnel. A connection that a task of ours opens begins as a tunnel, and may change to HTTP.
enum Protocol {
    Http1(Http1),
    Http2(Box<Http2>),
    Tunnel(Tunnel),
}

impl Protocol {
    fn http1(&self) -> Option<&Http1> {
        if let Protocol::Http1(http1) = self { Some(http1) } else { None }
    }

    fn http2(&self) -> Option<&Http2> {
        if let Protocol::Http2(http2) = self { Some(http2) } else { None }
    }

    fn tunnel(&self) -> Option<&Tunnel> {
        if let Protocol::Tunnel(tunnel) = self { Some(tunnel) } else { None }
    }

    fn http2_mut(&mut self) -> Option<&mut Http2> {
        if let Protocol::Http2(http2) = self { Some(http2) } else { None }
    }
}

impl Connection {
    /// Creates the connection of an accepted socket, and starts the timeout for its first head. If `proxied` is true,
    /// the connection must begin with a header of the PROXY protocol.
    pub(crate) fn new(id: SocketId, peer: Peer, proxied: bool, worker: &mut WorkerContext<impl Service>) -> Connection {
        let transport = Transport::new(id, peer, proxied);
        transport.set_patience(worker.rules.head, worker);
        Connection { transport, protocol: Protocol::Http1(Http1::new(Role::Server)) }
    }

    /// Creates a connection that a task of ours has opened, and returns its raw stream for the task.
    pub(crate) fn opened(id: SocketId, worker: &mut WorkerContext<impl Service>) -> (Connection, RawStream) {
        let mut transport = Transport::new(id, Peer::Local, false);
        transport.set_outgoing();
        let raw = Raw::new(worker.context.inbox.waker(transport.task().number()));
        let tunnel = crate::exchange::Tunnel::new(raw);
        let stream = tunnel.stream();
        let tunnel = Tunnel::new(tunnel, None);
        tunnel.wait_for(&mut transport, Phase::Tunnel, worker);
        (Connection { transport, protocol: Protocol::Tunnel(tunnel) }, stream)
    }

    /// Switches a new connection to HTTP/2 at once and sends the server's SETTINGS. Used if HTTP/1 is turned off.
    pub(crate) fn speak_http2(&mut self, worker: &mut WorkerContext<impl Service>, queue: &mut highwire_io::Queue) {
        self.with_out(worker, queue, |connection, worker, out| {
            connection.begin_http2(worker, out);
            out.flush(connection.transport.id());
        });
    }

    /// Switches the connection to HTTP/2.
    #[cold]
    pub(super) fn begin_http2(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let role = if self.transport.is_client() { Role::Client } else { Role::Server };
        let rules = &worker.rules;
        let http = h2::Connection::new(role, rules.http2, &rules.parser, &mut out.queue.output);
        self.protocol = Protocol::Http2(Box::new(Http2::new(http, worker)));
        if !self.recharge(worker) {
            return self.abort(worker, out);
        }
        if worker.draining()
            && role == Role::Server
            && let Protocol::Http2(http2) = &mut self.protocol
        {
            http2.drain(worker, out);
        }
    }

    /// Calls `act` with an [`Out`] that holds the connection's TLS session, if it has one. Then cuts the connection if
    /// the session could not encrypt some bytes, and ends the exchanges if the connection is ending.
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
        self.transport.phase() == Phase::Gone
    }

    /// Stops counting the connection, because it has ended.
    pub(crate) fn dismiss(&self, shared: &Shared) {
        shared.dismiss(self.peer());
        if self.transport.is_outgoing() {
            shared.dismiss_opened();
        }
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.transport.is_secure()
    }

    pub(crate) fn id(&self) -> SocketId {
        self.transport.id()
    }

    pub(crate) fn peer(&self) -> Peer {
        self.transport.peer()
    }

    /// Handles received bytes: a PROXY header, TLS records, HTTP without TLS, or the bytes of a tunnel.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        queue: &mut Queue,
    ) {
        if self.transport.is_ending() {
            return self.received_late(bytes.len(), queue);
        }
        if self.transport.phase() == Phase::Proxy {
            return self.received_proxied(bytes, worker, head, queue);
        }
        self.with_out(worker, queue, |connection, worker, out| match out.tls {
            None => connection.received_plain(bytes, worker, head, out),
            Some(_) => connection.received_tls(bytes, worker, head, out),
        });
    }

    /// Handles received plaintext: HTTP, or the bytes of a tunnel.
    #[inline]
    pub(super) fn received_plain(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        match &mut self.protocol {
            Protocol::Http1(http1) => {
                if http1.has_lent_buffer() && !http1.take_back_unused(&mut self.transport, out.queue) {
                    return self.abort(worker, out);
                }
            }
            Protocol::Http2(_) => {}
            Protocol::Tunnel(tunnel) => {
                tunnel.received(&mut self.transport, bytes, worker, out);
                self.resume_if_wanted(out.queue);
                return self.settle(worker, head, out);
            }
        }
        if self.transport.unread.is_empty() {
            let used = self.advance(bytes, worker, head, out);
            if used < bytes.len() {
                self.keep(&bytes[used..], worker, out);
            }
        } else {
            self.keep(bytes, worker, out);
            if self.transport.work.is_unfinished() {
                // An earlier turn has left work. `go_on` parses these bytes in a later turn.
                return;
            }
            self.proceed(worker, head, out);
        }
        self.resume_if_wanted(out.queue);
        self.settle(worker, head, out);
    }

    /// Handles the driver's report that the peer has ended its direction.
    pub(crate) fn peer_ended(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.with_out(worker, queue, |connection, worker, out| {
            if connection.transport.phase() == Phase::Linger && !connection.transport.blocked() {
                connection.transport.peer_ended(false);
                return connection.close(worker, out);
            }
            let is_said = out.tls.is_none();
            connection.peer_is_done(is_said, worker, head, out);
        });
    }

    /// Handles the end of the peer's direction. `is_said` is true if the peer itself has signaled the end: by FIN
    /// without TLS, by close_notify with TLS. It is false if only the TCP stream under TLS has ended.
    pub(super) fn peer_is_done(
        &mut self,
        is_said: bool,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) {
        self.transport.peer_ended(is_said);
        if let Protocol::Http1(http1) = &mut self.protocol {
            http1.forget_lent_buffer();
        }
        // Any bytes in `sealed` arrived before the end. `proceed_tls` decrypts them first and then calls this function
        // again.
        if self.transport.is_ending() || self.transport.sealed.is_some() {
            return;
        }
        if self.transport.phase() == Phase::Proxy {
            // The PROXY header is incomplete, so the client's address is unknown.
            return self.close(worker, out);
        }
        if let Protocol::Tunnel(tunnel) = &self.protocol {
            tunnel.peer_ended(&self.transport);
        }
        self.settle(worker, head, out);
    }

    /// Handles the driver's report that the kernel has taken all waiting bytes of this connection.
    pub(crate) fn drained(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, queue: &mut Queue) {
        self.transport.unblock();
        self.recharge(worker);
        self.with_out(worker, queue, |connection, worker, out| {
            if connection.transport.phase() == Phase::Closing {
                connection.finish(worker, out);
            } else if !connection.transport.is_ending() && connection.transport.sealed.is_none() {
                if connection.transport.phase() == Phase::Write {
                    // The phase changes, so that the next blocked bytes get a full write timeout.
                    connection.transport.restart();
                }
                connection.drive(worker, head, out);
                connection.settle(worker, head, out);
            }
        });
    }

    /// Handles the driver's report that the socket takes no more bytes now. The driver has copied `held` of the unsent
    /// bytes.
    pub(crate) fn blocked(&mut self, held: usize, worker: &mut WorkerContext<impl Service>, queue: &mut Queue) {
        if self.transport.phase() == Phase::Gone {
            return;
        }
        self.with_out(worker, queue, |connection, worker, out| connection.sent_away(held, worker, out));
        if self.transport.phase() == Phase::Gone {
            return;
        }
        if self.transport.phase() == Phase::Linger {
            // Some of the last bytes are still unsent. The peer gets the usual write timeout to take them.
            if !self.transport.is_client() {
                self.transport.pause(queue);
            }
            return self.wait_for(Phase::Closing, worker);
        }
        // Receiving pauses while the peer does not take the answers.
        if self.transport.is_held_up() {
            self.transport.pause(queue);
        }
        if self.transport.phase() != Phase::Closing {
            self.wait_for(Phase::Write, worker);
        }
        if let Protocol::Tunnel(tunnel) = &self.protocol {
            tunnel.look_for_end(&mut self.transport, worker, queue);
        }
    }

    /// Handles the driver's report that the peer has ended its direction, although not all bytes before the end are received.
    pub(crate) fn end_arrived(&mut self, worker: &mut WorkerContext<impl Service>) {
        match &self.protocol {
            Protocol::Tunnel(tunnel) => tunnel.peer_left(&mut self.transport, worker),
            // The tunnel has ended, and its last bytes wait.
            Protocol::Http1(_) | Protocol::Http2(_) => {
                if let Some(ticks) = self.transport.peer_left(worker) {
                    self.transport.hurry(ticks, worker);
                }
            }
        }
    }

    /// Handles the driver's report that the peer has taken some of the waiting bytes. Restarts the write timeout if the
    /// connection waits for the peer to take bytes.
    pub(crate) fn progressed(&mut self, worker: &mut WorkerContext<impl Service>) {
        if matches!(self.transport.phase(), Phase::Write | Phase::Closing) {
            self.wait_to_write(worker);
        }
    }

    /// Parses as many of the kept unread bytes as possible.
    pub(super) fn proceed(&mut self, worker: &mut WorkerContext<impl Service>, head: &mut Head, out: &mut Out<'_>) {
        if self.begin_tunnel(&[], worker, out) {
            return;
        }
        let http1 = match &mut self.protocol {
            Protocol::Http1(http1) => http1,
            Protocol::Http2(http2) => {
                http2.proceed(&mut self.transport, worker, head, out);
                return self.release_if_ended(worker);
            }
            // A tunnel has no unread bytes.
            Protocol::Tunnel(_) => return,
        };
        // Even if no bytes are unread, the parser may still have to report the end of a body.
        if self.transport.is_ending() || (self.transport.unread.is_empty() && !http1.end_is_due()) {
            return;
        }
        let unread = self.transport.unread.take();
        let used = self.advance(&unread, worker, head, out);
        if self.transport.is_ending() {
            // A connection that is ending keeps no unread bytes.
            return;
        }
        self.transport.put_back_unread(unread, used);
        self.recharge(worker);
    }

    /// Parses as much of `window` as possible. Returns the number of bytes used.
    #[inline]
    fn advance(
        &mut self,
        window: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        out: &mut Out<'_>,
    ) -> usize {
        let mut used = 0;
        if let Protocol::Http1(http1) = &mut self.protocol {
            used = http1.advance(&mut self.transport, window, worker, head, out);
            if http1.becomes_tunnel() && self.begin_tunnel(&window[used..], worker, out) {
                return window.len();
            }
            let Protocol::Http1(http1) = &self.protocol else { return used };
            if !http1.is_http2() {
                return used;
            }
            self.begin_http2(worker, out);
        }
        let Protocol::Http2(http2) = &mut self.protocol else { return window.len() };
        used += self.transport.advance_http2(http2, &window[used..], worker, head, out);
        self.release_if_ended(worker);
        used
    }

    /// Appends bytes that cannot be parsed now to the unread bytes, and pauses receiving if these are too many. Calls
    /// [`no_memory`](Self::no_memory) if the memory budget has no room for them.
    pub(super) fn keep(&mut self, bytes: &[u8], worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if self.transport.is_ending() {
            return;
        }
        let most = match &self.protocol {
            Protocol::Http1(http1) => http1.most_unread(&self.transport),
            Protocol::Http2(_) | Protocol::Tunnel(_) => self.transport.most_unread(UNREAD_BYTES),
        };
        self.transport.unread.append(bytes, most, self.transport.is_client());
        if self.transport.unread.len() >= most {
            self.transport.pause(out.queue);
        }
        if !self.recharge(worker) {
            self.no_memory(worker, out);
        }
    }

    /// Resumes receiving if it is paused and no reason for the pause is left, or receives the next bytes into the memory
    /// of a body's reader.
    pub(super) fn resume_if_wanted(&mut self, queue: &mut Queue) {
        match &mut self.protocol {
            Protocol::Http1(http1) => http1.resume_if_wanted(&mut self.transport, queue),
            Protocol::Http2(_) => self.transport.resume_if_wanted(queue),
            Protocol::Tunnel(tunnel) => tunnel.resume_if_wanted(&mut self.transport, queue),
        }
    }

    /// Takes back the buffer of a receive that the driver has not started.
    pub(crate) fn take_back(&mut self, buffer: Vec<u8>) {
        if let Protocol::Http1(http1) = &mut self.protocol {
            http1.take_back(&mut self.transport, buffer);
        }
    }

    /// Handles the driver's report that it has received `count` bytes into a buffer that was lent to it.
    pub(crate) fn received_into(
        &mut self,
        buffer: Vec<u8>,
        count: usize,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        queue: &mut Queue,
    ) {
        if self.transport.is_ending() {
            // The driver has paused receiving. The connection waits for the peer's end, or is gone.
            return queue.push(Op::ResumeRecv { socket: self.transport.id() });
        }
        self.with_out(worker, queue, |connection, worker, out| {
            let Connection { transport, protocol: Protocol::Http1(http1) } = &mut *connection else { return };
            if let Some(buffer) = http1.received_into(transport, buffer, count, worker, out) {
                return connection.received_plain(&buffer[buffer.len() - count..], worker, head, out);
            }
            connection.proceed(worker, head, out);
            connection.resume_if_wanted(out.queue);
            connection.settle(worker, head, out);
        });
    }
}
