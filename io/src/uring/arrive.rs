//! New connections, which peers or the loop have opened, and ends of streams that a multishot receive does not report.

use super::{Accepting, Entry, Uring, data, kind, numbered, ring};
use crate::{Address, Completion, ListenerId, Op, Peer, Queue, Sink, SocketId, limit, socket};
use io_uring::{cqueue, opcode, types};
use std::io;
use std::os::fd::AsRawFd;

impl Uring {
    /// Notes a socket that may have ended without a completion, for [`look_for_ends`](Self::look_for_ends).
    #[inline]
    pub(super) fn note_quiet(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.newly_armed || connection.resumed || connection.is_local {
            self.quiet.push(socket);
        }
    }

    /// Looks for ends of the noted sockets, behind all their data that the kernel has reported.
    pub(super) fn look_for_ends<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) {
        for socket in std::mem::take(&mut self.quiet) {
            let receive = data(kind::RECEIVE, socket);
            let is_behind = self.ring.has_completions() || self.entries.iter().any(|entry| entry.data == receive);
            // What is in the ring is handled in the next turn, which then looks again.
            if is_behind && self.quiet.len() < limit::RING_COMPLETIONS as usize {
                self.quiet.push(socket);
            } else if !is_behind {
                self.look_for_end(socket, queue, sink);
            }
        }
    }

    /// Checks for an end of the stream that the multishot receive does not report. On a unix socket, that is an end behind more
    /// data than the receive takes at once. On any socket, it is a reset that arrives while the kernel arms the receive and
    /// takes the bytes that were there (seen on Linux 6.18.44: one or two of 30,000 clients that sent a few bytes and reset at
    /// once stayed unnoticed, and none of 200,000 that were answered before). Kernels before Linux's commit a68ed2df7213 can
    /// lose a reset behind any receive; a send then finds it, or the next receive after a pause, or a deadline.
    fn look_for_end<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.is_closed() || connection.ended || connection.paused {
            return;
        }
        let is_unix = || socket2::SockRef::from(&connection.descriptor).domain().ok() == Some(socket2::Domain::UNIX);
        let is_unix = connection.is_local && is_unix();
        let mut byte = 0u8;
        // SAFETY: the pointer is to one byte, which outlives the call, and the length is 1.
        let count = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(connection.descriptor.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1, flags)
        };
        if count > 0 {
            // A completion follows, and the look behind it.
            return;
        }
        // On other sockets, a count of 0 may also be a reset that the multishot receive has taken and not reported yet.
        if count == 0 && is_unix {
            connection.ended = true;
            return sink.complete(Completion::Ended { socket }, queue);
        }
        let error = io::Error::last_os_error();
        let waits = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
        if count < 0 && waits {
            connection.newly_armed = false;
        } else if count < 0 {
            (connection.ended, connection.failed) = (true, true);
            sink.complete(Completion::Failed { socket, error }, queue);
        }
    }

    pub(super) fn arm_accept(&mut self, number: usize) {
        let Some(Some(accepting)) = self.listeners.get_mut(number) else { return };
        if accepting.armed || accepting.paused {
            return;
        }
        accepting.armed = true;
        if accepting.listener.is_shared() {
            // A multishot accept would take connections while this thread runs a handler, although others are idle, and the
            // kernel would always prefer the same ring.
            let descriptor = types::Fd(accepting.listener.waitable());
            let entry = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).build();
            return self.submit(entry.user_data(numbered(kind::ACCEPTABLE, number)));
        }
        // Accepted sockets are non-blocking, because `sendfile` has no flag for that. The ring's operations still wait.
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let entry = opcode::AcceptMulti::new(types::Fd(accepting.listener.waitable())).flags(flags).build();
        self.submit(entry.user_data(numbered(kind::ACCEPT, number)));
    }

    /// Ends the operation in flight that waits for connections.
    pub(super) fn disarm_accept(&mut self, number: usize) {
        if let Some(Some(Accepting { listener, armed: true, .. })) = self.listeners.get(number) {
            let kind = if listener.is_shared() { kind::ACCEPTABLE } else { kind::ACCEPT };
            self.cancel(numbered(kind, number));
        }
    }

    /// Accepts from a shared listener: one connection, and more if connections have waited since the last turn. The others who
    /// accept from it get the rest.
    pub(super) fn acceptable<S: Sink>(&mut self, number: usize, result: i32, queue: &mut Queue, sink: &mut S) {
        let turns = self.turns;
        let Some(Some(accepting)) = self.listeners.get_mut(number) else { return };
        accepting.armed = false;
        if accepting.paused {
            return;
        }
        if result < 0 && result != -libc::ECANCELED {
            self.accept_failed(number, io::Error::from_raw_os_error(-result), queue, sink);
            return self.arm_accept(number);
        }
        let is_crowded = accepting.accepted_in.wrapping_add(1) == turns;
        accepting.burst = if is_crowded { (accepting.burst * 2).min(limit::SHARED_ACCEPTS_A_TURN) } else { 1 };
        accepting.accepted_in = turns;
        let id = ListenerId(number as u32);
        for _ in 0..if result < 0 { 0 } else { accepting.burst } {
            let Some(Some(accepting)) = self.listeners.get_mut(number) else { return };
            // The loop may have had enough, and others may have room.
            let ends = |op: &Op| matches!(op, Op::PauseAccept { listener } | Op::CloseListener { listener } if *listener == id);
            if queue.ops.iter().any(ends) {
                break;
            }
            match socket::accept(accepting.listener.acceptor()) {
                Ok((stream, peer)) => {
                    let socket = self.insert(stream, peer);
                    sink.complete(Completion::Accepted { listener: id, socket, peer }, queue);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // There is no crowd: the others have taken what there was.
                    (accepting.burst, accepting.accepted_in) = (1, turns.wrapping_sub(1));
                    break;
                }
                Err(error) => {
                    self.accept_failed(number, error, queue, sink);
                    break;
                }
            }
        }
        self.arm_accept(number);
    }

    /// Pauses a listener and reports it, unless the error is one of a single connection.
    fn accept_failed<S: Sink>(&mut self, number: usize, error: io::Error, queue: &mut Queue, sink: &mut S) {
        if let Some(Some(accepting)) = self.listeners.get_mut(number)
            && !socket::is_transient(&error)
        {
            accepting.paused = true;
            sink.complete(Completion::AcceptFailed { listener: ListenerId(number as u32), error }, queue);
        }
    }

    pub(super) fn accepted<S: Sink>(&mut self, number: usize, entry: Entry, queue: &mut Queue, sink: &mut S) {
        let listener = ListenerId(number as u32);
        if entry.result >= 0 {
            let descriptor = ring::owned(entry.result);
            if self.listeners.get(number).is_some_and(Option::is_some) {
                let is_tcp = matches!(&self.listeners[number], Some(accepting) if accepting.listener.is_tcp());
                let peer = if is_tcp { socket::peer_of(&descriptor) } else { Some(Peer::Local) };
                // If the kernel has no address of the peer, the peer has probably reset the connection, so drop it.
                if let Some(peer) = peer {
                    let socket = self.insert(descriptor, peer);
                    sink.complete(Completion::Accepted { listener, socket, peer }, queue);
                }
            }
        }
        let Some(Some(accepting)) = self.listeners.get_mut(number) else { return };
        accepting.armed &= cqueue::more(entry.flags);
        if entry.result < 0 && entry.result != -libc::ECANCELED {
            self.accept_failed(number, io::Error::from_raw_os_error(-entry.result), queue, sink);
        }
        self.arm_accept(number);
    }

    pub(super) fn connect(&mut self, token: u64, address: &Address) {
        let connecting = self.connecting.check(token).and_then(|()| socket::connect(address));
        let attempt = connecting.and_then(|(descriptor, peer)| {
            let raw = types::Fd(descriptor.as_raw_fd());
            Ok((self.connecting.insert(token, (descriptor, peer))?, raw))
        });
        match attempt {
            // The ring only polls the socket, because a connect operation would need the address in memory until the
            // kernel has copied it.
            Ok((attempt, raw)) => {
                let entry = opcode::PollAdd::new(raw, libc::POLLOUT as u32).build();
                self.submit(entry.user_data(data(kind::CONNECT, attempt)));
            }
            Err(error) => self.refused.push((token, error)),
        }
    }

    pub(super) fn cancel_connect(&mut self, token: u64) {
        self.refused.retain(|(refused, _)| *refused != token);
        if let Some((attempt, (descriptor, _))) = self.connecting.cancel(token) {
            // Cancel the poll in flight, which would keep the socket open.
            self.cancel(data(kind::CONNECT, attempt));
            self.close_descriptor(descriptor);
        }
    }

    /// Reports the result of a connection attempt, unless the loop has cancelled it.
    pub(super) fn attempted<S: Sink>(&mut self, attempt: SocketId, result: i32, queue: &mut Queue, sink: &mut S) {
        let Some((token, (descriptor, peer))) = self.connecting.remove(attempt) else { return };
        // The sink may have cancelled the attempt in this round. Dropping the descriptor then closes the socket at
        // once, because no operation in flight uses it.
        if queue.cancels(token) {
            return;
        }
        let polled = if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
        let completion = match polled.and_then(|()| socket::finish_connect(&descriptor, peer)) {
            Ok(true) => Completion::Connected { token, socket: self.insert(descriptor, peer) },
            Ok(false) => Completion::ConnectFailed { token, error: io::ErrorKind::NotConnected.into() },
            Err(error) => Completion::ConnectFailed { token, error },
        };
        sink.complete(completion, queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver as _, Instant, Listener, Options};
    use std::net::TcpStream;

    #[derive(Default)]
    struct Accepted(usize);

    impl Sink for Accepted {
        fn begin(&mut self, _: Instant) {}
        fn complete(&mut self, completion: Completion<'_>, _: &mut Queue) {
            self.0 += usize::from(matches!(completion, Completion::Accepted { .. }));
        }
    }

    fn turn(driver: &mut Uring, queue: &mut Queue) -> usize {
        let mut accepted = Accepted::default();
        driver.turn(Some(Instant::default()), queue, &mut accepted).expect("a turn");
        accepted.0
    }

    fn sharing() -> Option<(Uring, Uring, std::net::SocketAddr)> {
        let (Ok(mut one), Ok(mut other)) = (Uring::new(), Uring::new()) else {
            eprintln!("not run: this system has no io_uring");
            return None;
        };
        let listener = Listener::bind(&Address::parse("127.0.0.1:0").expect("an address"), &Options::default());
        let listener = listener.expect("a port");
        let Address::Tcp(address) = listener.address().clone() else { panic!("an internet address") };
        other.listen(listener.duplicate().expect("a descriptor")).expect("room");
        one.listen(listener).expect("room");
        Some((one, other, address))
    }

    /// A regression test: a multishot accept took connections for a process that ran a long handler.
    #[test]
    fn a_driver_takes_nothing_from_a_shared_listener_until_its_turn() {
        let Some((mut busy, mut idle, address)) = sharing() else { return };
        let mut queue = Queue::new();
        assert_eq!((turn(&mut busy, &mut queue), turn(&mut idle, &mut queue)), (0, 0), "both wait");
        let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        let counts: Vec<_> = (0..7).map(|_| turn(&mut idle, &mut queue)).collect();
        assert_eq!(counts, [1, 2, 4, 8, 16, 9, 0], "those that wait are taken faster and faster");
        assert_eq!(turn(&mut busy, &mut queue), 0);
        let _last = TcpStream::connect(address).expect("a connection");
        assert_eq!(turn(&mut busy, &mut queue), 1);
        drop(clients);
    }

    #[test]
    fn a_driver_that_comes_too_late_takes_one_connection_first() {
        let Some((mut quick, mut late, address)) = sharing() else { return };
        let mut queue = Queue::new();
        assert_eq!((turn(&mut quick, &mut queue), turn(&mut late, &mut queue)), (0, 0));
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(TcpStream::connect(address).expect("a connection"));
            while turn(&mut quick, &mut queue) == 0 {}
            assert_eq!(turn(&mut late, &mut queue), 0);
        }
        clients.extend((0..3).map(|_| TcpStream::connect(address).expect("a connection")));
        assert_eq!(turn(&mut late, &mut queue), 1);
    }

    #[test]
    fn a_shared_listener_is_paused_and_closed() {
        let Some((mut one, mut other, address)) = sharing() else { return };
        let (mut queue, mut quiet) = (Queue::new(), Queue::new());
        assert_eq!((turn(&mut one, &mut queue), turn(&mut other, &mut quiet)), (0, 0));
        queue.push(Op::PauseAccept { listener: ListenerId(0) });
        assert_eq!(turn(&mut one, &mut queue), 0);
        let _first = TcpStream::connect(address).expect("a connection");
        assert_eq!((turn(&mut one, &mut queue), turn(&mut one, &mut queue)), (0, 0));
        queue.push(Op::ResumeAccept { listener: ListenerId(0) });
        assert_eq!((turn(&mut one, &mut queue), turn(&mut one, &mut queue)), (1, 0));
        queue.push(Op::CloseListener { listener: ListenerId(0) });
        assert_eq!(turn(&mut one, &mut queue), 0);
        let _second = TcpStream::connect(address).expect("a connection");
        assert_eq!((turn(&mut one, &mut queue), turn(&mut other, &mut quiet)), (0, 1), "the other handle stays open");
    }
}
