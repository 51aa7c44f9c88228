//! The part of a connection below its protocol: socket, TLS session, unread and unsent bytes, phase and deadline, and
//! the charge to the memory budget.

use super::account::Account;
use super::out::Out;
use super::phase::{DRAIN_HEAD_TICKS, DRAIN_TICKS, Phase};
use super::unread::{UNREAD_BYTES, Unread};
use super::work::Work;
use crate::client::Link;
use crate::exchange::log_refused;
use crate::message::request::Caller;
use crate::raw::Raw;
use crate::runtime::context::TaskKind;
use crate::runtime::deadline::TICKS_A_SECOND;
use crate::runtime::rate_limited;
use crate::secure::Secure;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::{Op, Peer, Queue, SocketId};
use std::rc::Rc;

/// The part of a connection that all its protocols share.
pub(super) struct Transport {
    id: SocketId,
    peer: Peer,
    /// Received bytes that could not be parsed yet.
    pub(super) unread: Unread,
    /// The TLS session; `None` without TLS. [`Out`] holds it while the connection handles an event.
    pub(super) tls: Option<Box<Secure>>,
    /// Received bytes of a TLS handshake that waits for its turn.
    #[expect(clippy::box_collection, reason = "it is rarely there, and each idle connection pays for its place")]
    pub(super) sealed: Option<Box<Vec<u8>>>,
    /// The number of requests on this connection so far.
    served: u32,
    /// The number of bytes that have come behind the last answer.
    late: u32,
    pub(super) account: Account,
    phase: Phase,
    /// True if the end of our direction has been queued.
    end_sent: bool,
    /// True if the connection waits for the kernel to take bytes that the driver holds.
    blocked: bool,
    /// True if receiving is paused.
    paused: bool,
    /// True if the peer has ended its direction.
    ended: bool,
    /// True if the peer itself has signaled the end of its direction: by FIN without TLS, by close_notify with TLS.
    end_said: bool,
    departure: Departure,
    /// True if the connection uses TLS.
    is_secure: bool,
    /// The rest of the connection's work allowance in the current turn.
    pub(super) work: Work,
    role: Role,
}

/// What is known of a peer for which the end of its direction means that it has probably left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Departure {
    Unknown,
    /// The driver has been asked to report the end.
    Watched,
    /// The peer has ended its direction. It must take what waits for it soon.
    Left,
}

/// Who has opened the connection, and what it is used for.
enum Role {
    /// A client has opened it, and we are its server.
    Server,
    /// A task of ours has opened it, and sends raw bytes.
    Opened,
    /// A task of ours has opened it to a server of HTTP. The link is that to the pool.
    Client(Rc<Link>),
}

impl Transport {
    /// Creates the transport of an accepted socket. If `proxied` is true, the connection must begin with a header of
    /// the PROXY protocol.
    pub(super) fn new(id: SocketId, peer: Peer, proxied: bool) -> Transport {
        Transport {
            id,
            peer,
            unread: Unread::default(),
            tls: None,
            sealed: None,
            served: 0,
            late: 0,
            account: Account::default(),
            phase: if proxied { Phase::Proxy } else { Phase::Fresh },
            end_sent: false,
            blocked: false,
            paused: false,
            ended: false,
            end_said: false,
            departure: Departure::Unknown,
            is_secure: false,
            work: Work::default(),
            role: Role::Server,
        }
    }

    /// Returns the number of the socket.
    #[inline]
    pub(super) fn id(&self) -> SocketId {
        self.id
    }

    /// Returns the address of the peer.
    #[inline]
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the number of requests on this connection so far.
    #[inline]
    pub(super) fn served(&self) -> u32 {
        self.served
    }

    /// Returns true if the connection waits for the kernel to take bytes that the driver holds.
    #[inline]
    pub(super) fn blocked(&self) -> bool {
        self.blocked
    }

    /// Returns true if receiving is paused.
    #[inline]
    pub(super) fn paused(&self) -> bool {
        self.paused
    }

    /// Returns true if the peer has ended its direction.
    #[inline]
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns true if the peer itself has signaled the end of its direction: by FIN without TLS, by close_notify with TLS.
    #[inline]
    pub(super) fn end_said(&self) -> bool {
        self.end_said
    }

    /// Returns true if the connection uses TLS.
    #[inline]
    pub(super) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns true if a task of ours has opened the connection.
    #[inline]
    pub(super) fn is_outgoing(&self) -> bool {
        !matches!(self.role, Role::Server)
    }

    /// Returns true if this is a connection to a server of HTTP.
    #[inline]
    pub(super) fn is_client(&self) -> bool {
        matches!(self.role, Role::Client(_))
    }

    /// Returns the link to the pool, if this is a connection to a server of HTTP.
    #[inline]
    pub(super) fn link(&self) -> Option<&Rc<Link>> {
        if let Role::Client(link) = &self.role { Some(link) } else { None }
    }

    /// Makes an opened connection one to a server of HTTP. Returns its link to another pool, if it was one to a proxy before.
    pub(super) fn become_client(&mut self, link: Rc<Link>) -> Option<Rc<Link>> {
        match std::mem::replace(&mut self.role, Role::Client(link)) {
            Role::Client(old) => Some(old),
            Role::Server | Role::Opened => None,
        }
    }

    /// Takes over the address that a PROXY header has named.
    pub(super) fn set_peer(&mut self, peer: Peer) {
        self.peer = peer;
    }

    /// Counts a request.
    #[inline]
    pub(super) fn count_request(&mut self) {
        self.served = self.served.saturating_add(1);
    }

    /// Blocks the connection until the driver reports that the kernel has taken the bytes that it holds.
    pub(super) fn block(&mut self) {
        self.blocked = true;
    }

    /// Records that the kernel has taken all bytes.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
        self.account.set_unsent(0);
    }

    /// Receives the next bytes into this buffer. The driver pauses receiving when it gives the buffer back.
    pub(super) fn receive_into(&mut self, buffer: Vec<u8>, room: usize, queue: &mut Queue) {
        self.paused = true;
        queue.push(Op::ReceiveInto { socket: self.id, buffer, room });
    }

    /// Receives again after a pause.
    pub(super) fn resume(&mut self, queue: &mut Queue) {
        self.paused = false;
        queue.push(Op::ResumeRecv { socket: self.id });
    }

    /// Records that the driver was not paused, because it has not begun to receive into a buffer.
    pub(super) fn forget_pause(&mut self) {
        self.paused = false;
    }

    /// Records that the peer has ended its direction. `is_said` is true if the peer itself has signaled that. It is never forgotten,
    /// because the end of the TCP stream usually follows the peer's close_notify.
    pub(super) fn peer_ended(&mut self, is_said: bool) {
        self.ended = true;
        self.end_said |= is_said;
    }

    /// Asks the driver for the peer's end, unless that was done before.
    pub(super) fn watch_end(&mut self, queue: &mut Queue) {
        if self.departure == Departure::Unknown {
            self.departure = Departure::Watched;
            queue.push(Op::WatchEnd { socket: self.id });
        }
    }

    /// Records that the peer has probably left, so that it must take the waiting bytes soon. Returns the number of ticks in which it
    /// must, if the connection waits for that and this is news.
    pub(super) fn peer_left(&mut self, worker: &WorkerContext<impl Service>) -> Option<u32> {
        let is_new = std::mem::replace(&mut self.departure, Departure::Left) != Departure::Left;
        let waits = matches!(self.phase, Phase::Write | Phase::Closing);
        (is_new && waits).then(|| self.write_ticks(worker))
    }

    /// Sets whether the connection uses TLS.
    pub(super) fn set_secure(&mut self, is_secure: bool) {
        self.is_secure = is_secure;
    }

    /// Marks the connection as one that a task of ours has opened.
    pub(super) fn set_outgoing(&mut self) {
        self.role = Role::Opened;
    }

    /// Writes a line in the access log for bytes of a client that were refused before they were a request; see
    /// [`log_refused`].
    #[cold]
    pub(super) fn log_refused(&self, status: Option<u16>, why: &str, worker: &WorkerContext<impl Service>) {
        if !self.is_client() {
            log_refused(self.peer, status, why, worker);
        }
    }

    /// Returns true if the connection is closing or closed, so no more bytes are parsed.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Linger | Phase::Gone)
    }

    /// Counts bytes that come behind the last answer, and returns their number.
    pub(super) fn count_late(&mut self, count: usize) -> u32 {
        self.late = self.late.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        self.late
    }

    /// Returns true if this is a connection to a server whose TLS handshake is not complete.
    pub(super) fn is_opening(&self) -> bool {
        self.link().is_some_and(|link| link.is_opening())
    }

    /// Returns true if this is a connection to a server that shall close when it has no request.
    pub(super) fn retires(&self) -> bool {
        self.link().is_some_and(|link| link.retires())
    }

    /// Returns the number of unread bytes at which receiving stops, at most `most`. It is a quarter of [`UNREAD_BYTES`] if an
    /// earlier turn has left work, because the unread bytes may then keep the worker busy for many turns.
    pub(super) fn most_unread(&self, most: usize) -> usize {
        if self.work.is_unfinished() { most.min(UNREAD_BYTES / 4) } else { most }
    }

    /// Keeps the bytes that could not be parsed, which are those behind the first `used`. Frees an empty buffer, and shrinks a buffer with a capacity of more
    /// than [`UNREAD_BYTES`] if it is less than a quarter full.
    pub(super) fn put_back_unread(&mut self, mut unread: Vec<u8>, used: usize) {
        unread.drain(..used.min(unread.len()));
        if unread.is_empty() {
            return;
        }
        if unread.capacity() > UNREAD_BYTES && unread.len() < unread.capacity() / 4 {
            unread.shrink_to_fit();
        }
        self.unread.put(unread, self.is_client());
    }

    /// Resumes receiving if it is paused and no reason for the pause is left.
    pub(super) fn resume_if_wanted(&mut self, queue: &mut Queue) {
        let is_full = self.is_held_up() || self.unread.len() >= self.most_unread(UNREAD_BYTES);
        if self.paused && !is_full && self.phase != Phase::Gone {
            self.resume(queue);
        }
    }

    /// Returns the client's address and TLS session, if there is one, for handlers.
    pub(super) fn caller<'o>(&self, out: &'o Out<'_>) -> Caller<'o> {
        Caller { peer: self.peer, session: out.tls.as_deref(), kept: None, connection: Some(self.id) }
    }

    pub(super) fn task(&self) -> TaskKind {
        TaskKind::Connection { index: self.id.index, generation: self.id.generation }
    }

    pub(super) fn stream_task(&self, stream: highwire_proto::h2::StreamRef) -> TaskKind {
        TaskKind::stream(self.id, stream.place)
    }

    /// Returns true if the connection receives nothing because the peer does not take the sent bytes. A client must
    /// receive, because the server may take the request only while its response is taken.
    pub(super) fn is_held_up(&self) -> bool {
        self.blocked && !self.is_client()
    }

    pub(super) fn pause(&mut self, queue: &mut Queue) {
        if !std::mem::replace(&mut self.paused, true) {
            queue.push(Op::PauseRecv { socket: self.id });
        }
    }

    /// Queues the written bytes and blocks the connection until the kernel has taken them.
    pub(super) fn send_and_hear(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        let length = out.flush_and_hear(self.id);
        self.sent_away(length, worker, out);
    }

    /// Blocks the connection and charges `length` bytes that the driver holds until the kernel takes them. If the
    /// memory budget has no room, cuts the connection, because its peer has requested these bytes.
    pub(super) fn sent_away(&mut self, length: usize, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.blocked = true;
        self.account.add_unsent(length);
        if !self.charge(worker) {
            rate_limited::log!(Memory, warn, "an answer does not fit the memory budget; the connection is cut");
            self.abort(worker, out);
        }
    }

    /// Ends our direction after the last bytes. If the peer does not need them or has ended its direction, or if the
    /// linger timeout is zero, the connection then closes as soon as they are sent. Otherwise it closes when the peer
    /// ends its direction or the linger deadline passes.
    pub(super) fn finish(&mut self, is_needed: bool, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        self.late = 0;
        let unsent = self.close_account(worker);
        self.charge(worker);
        if self.ended && !self.blocked && out.waiting() > 0 {
            // The socket closes as soon as the bytes are sent. The peer gets the usual write timeout to take them.
            self.send_and_hear(worker, out);
        }
        if self.phase == Phase::Gone {
            return;
        }
        if self.blocked {
            // The driver sends our end after the bytes that it still holds. The peer gets the usual write timeout to
            // take them.
            self.account.add_unsent(unsent);
            if !self.charge(worker) {
                return self.abort(worker, out);
            }
            if self.phase != Phase::Closing {
                self.end_direction(out);
            }
            if !self.is_client() {
                self.pause(out.queue);
            }
            self.restart();
            return self.wait_for(Phase::Closing, worker);
        }
        let lingers = is_needed && worker.rules.linger != 0;
        if !self.ended && lingers {
            // The last bytes and the end can leave in one packet.
            if self.phase == Phase::Closing {
                out.close_tls(self.id);
                out.flush_before(self.id, true);
            } else {
                self.end_direction(out);
            }
            if self.paused {
                // This also frees a buffer that was lent for the body.
                self.resume(out.queue);
            }
            self.restart();
            self.wait_for(Phase::Linger, worker);
        } else {
            self.close(worker, out);
        }
    }

    /// Ends our direction after the written bytes, unless it has ended before.
    pub(super) fn end_direction(&mut self, out: &mut Out<'_>) {
        if !std::mem::replace(&mut self.end_sent, true) {
            // The last bytes and the end can leave in one packet.
            out.close_tls(self.id);
            out.flush_before(self.id, true);
            out.queue.push(Op::Shutdown { socket: self.id });
        }
    }

    /// Closes the connection without waiting for the peer. The driver still sends the queued bytes.
    pub(super) fn close(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        // The last bytes and the end can leave in one packet.
        if !self.end_sent {
            out.close_tls(self.id);
        }
        out.flush_before(self.id, self.phase != Phase::Gone);
        self.release(worker);
        if self.phase != Phase::Gone {
            self.phase = Phase::Gone;
            out.queue.push(Op::Close { socket: self.id });
        }
    }

    /// Resets the connection, so that the peer can detect that an answer is incomplete.
    pub(super) fn abort(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        out.flush(self.id);
        self.release(worker);
        if self.phase != Phase::Gone {
            self.phase = Phase::Gone;
            out.queue.push(Op::Abort { socket: self.id });
        }
    }

    /// Returns what the connection waits for.
    #[inline]
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Makes the next phase get a new deadline, even if it is the same phase as now.
    #[inline]
    pub(super) fn restart(&mut self) {
        self.phase = Phase::Fresh;
    }

    /// Returns the phase whose deadline has passed. The next phase gets a new deadline.
    pub(super) fn expire(&mut self) -> Phase {
        let phase = self.phase;
        if !matches!(phase, Phase::Streams | Phase::Gone) {
            self.restart();
        }
        phase
    }

    /// Sets the phase, and leaves the deadline as it is.
    pub(super) fn keep(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Sets the phase, and a deadline of its own.
    #[inline]
    pub(super) fn wait_until(&mut self, phase: Phase, due: u32, worker: &mut WorkerContext<impl Service>) {
        self.phase = phase;
        self.set_due(due, worker);
    }

    /// Sets the deadline of the present phase.
    #[inline]
    pub(super) fn set_due(&self, due: u32, worker: &mut WorkerContext<impl Service>) {
        worker.deadlines.set_at(self.id.index, due);
    }

    /// Sets the deadline of the present phase to this number of ticks from now.
    pub(super) fn set_patience(&self, ticks: u32, worker: &mut WorkerContext<impl Service>) {
        worker.deadlines.set(self.id.index, worker.tick(), ticks);
    }

    /// Brings the deadline forward to this number of ticks from now, if it is later.
    pub(super) fn hurry(&self, ticks: u32, worker: &mut WorkerContext<impl Service>) {
        self.set_due(worker.tick().saturating_add(ticks).min(self.due(worker)), worker);
    }

    /// Returns the deadline of the present phase.
    pub(super) fn due(&self, worker: &WorkerContext<impl Service>) -> u32 {
        worker.deadlines.get(self.id.index)
    }

    /// Sets the phase and its deadline. If the phase does not change, the deadline stays, except in [`Phase::Idle`] and
    /// [`Phase::Linger`], which restart it. For the deadline of [`Phase::Write`] over HTTP/2 see
    /// [`Connection::wait_to_write`].
    pub(super) fn wait_for(&mut self, phase: Phase, worker: &mut WorkerContext<impl Service>) {
        if self.phase == phase && !matches!(phase, Phase::Idle | Phase::Linger) {
            return;
        }
        self.phase = phase;
        let rules = &worker.rules;
        let after = match phase {
            Phase::Head if worker.draining() => rules.head.min(DRAIN_HEAD_TICKS),
            Phase::Proxy | Phase::Fresh | Phase::Head => rules.head,
            Phase::Idle => self.idle_ticks(worker),
            Phase::Body => rules.body,
            Phase::Handler => rules.handler,
            Phase::Disconnected => rules.disconnect,
            Phase::Write | Phase::Closing => self.write_ticks(worker),
            Phase::Linger => rules.linger,
            Phase::Tunnel => rules.tunnel,
            Phase::Streams | Phase::Gone => return worker.deadlines.clear(self.id.index),
        };
        worker.deadlines.set(self.id.index, worker.tick(), after);
    }

    /// Sets the deadline by which the peer must take some of the waiting bytes.
    pub(super) fn wait_to_write(&self, worker: &mut WorkerContext<impl Service>) {
        self.set_patience(self.write_ticks(worker), worker);
    }

    /// Returns the number of ticks in which the peer must take some of the waiting bytes. It is small if the peer has probably
    /// left.
    fn write_ticks(&self, worker: &WorkerContext<impl Service>) -> u32 {
        match self.departure {
            Departure::Left => worker.rules.write.min(worker.rules.linger.max(TICKS_A_SECOND)),
            Departure::Unknown | Departure::Watched => worker.rules.write,
        }
    }

    /// Returns the number of ticks to wait for the next request. During a shutdown it is small, because only a request that
    /// is already on its way is still served.
    #[inline]
    fn idle_ticks(&self, worker: &WorkerContext<impl Service>) -> u32 {
        match self.link() {
            _ if worker.draining() => DRAIN_TICKS,
            None => worker.rules.idle,
            Some(link) => link.idle.get(),
        }
    }

    /// Restarts the timeout of a tunnel after bytes have passed, unless the tunnel is already ending because it was
    /// idle.
    pub(super) fn tunnel_moved(&self, raw: &mut Raw, worker: &mut WorkerContext<impl Service>) {
        if self.phase == Phase::Tunnel && !raw.is_idle() {
            self.set_tunnel_due(worker.tick().saturating_add(worker.rules.tunnel), raw, worker);
        }
    }

    /// Sets the deadline of a connection that is a tunnel. The connection's event comes earlier if the tunnel's task
    /// has an earlier alarm.
    pub(super) fn set_tunnel_due(&self, due: u32, raw: &mut Raw, worker: &mut WorkerContext<impl Service>) {
        raw.due = due;
        worker.deadlines.set_at(self.id.index, due.min(raw.alarm));
    }
}
