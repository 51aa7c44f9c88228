//! New connections, which peers or the loop have opened, and ends of streams that a multishot receive does not report.

use super::{Entry, Uring, data, kind, numbered, ring};
use crate::{Address, Completion, ListenerId, Peer, Queue, Sink, SocketId, socket};
use io_uring::{cqueue, opcode, types};
use std::io;
use std::os::fd::AsRawFd;

impl Uring {
    /// Notes a socket that may have ended without a completion, for [`look_for_ends`](Self::look_for_ends).
    #[inline]
    pub(super) fn note_quiet(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.resumed || connection.is_local {
            self.quiet.push(socket);
        }
    }

    /// Looks for ends of the noted sockets, behind all their data that the kernel has reported.
    pub(super) fn look_for_ends<S: Sink>(&mut self, queue: &mut Queue, sink: &mut S) {
        for socket in std::mem::take(&mut self.quiet) {
            let receive = data(kind::RECEIVE, socket);
            if !self.entries.iter().any(|entry| entry.data == receive) {
                self.look_for_end(socket, queue, sink);
            }
        }
    }

    /// Checks for an end of the stream that the multishot receive does not report (seen on Linux 6.18). On a unix
    /// socket, that is an end behind more data than the receive takes at once. On any socket, it is a reset that
    /// arrives with the last data after receiving was paused and resumed.
    fn look_for_end<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.is_closed() || connection.ended || connection.paused {
            return;
        }
        let is_unix = || socket2::SockRef::from(&connection.descriptor).domain().ok() == Some(socket2::Domain::UNIX);
        let is_unix = connection.is_local && is_unix();
        if !connection.resumed && !is_unix {
            return;
        }
        let mut byte = 0u8;
        // SAFETY: the pointer is to one byte, which outlives the call, and the length is 1.
        let count = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(connection.descriptor.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1, flags)
        };
        // On other sockets, a count of 0 may also be a reset that the multishot receive has taken and not reported yet.
        if count == 0 && is_unix {
            connection.ended = true;
            return sink.complete(Completion::Ended { socket }, queue);
        }
        let error = io::Error::last_os_error();
        let waits = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
        if count < 0 && !waits {
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
        // Accepted sockets are non-blocking, because `sendfile` has no flag for that. The ring's operations still wait.
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let entry = opcode::AcceptMulti::new(types::Fd(accepting.listener.waitable())).flags(flags).build();
        self.submit(entry.user_data(numbered(kind::ACCEPT, number)));
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
        if entry.result < 0 {
            let error = io::Error::from_raw_os_error(-entry.result);
            let cancelled = entry.result == -libc::ECANCELED;
            if !cancelled && !socket::is_transient(&error) {
                accepting.paused = true;
                sink.complete(Completion::AcceptFailed { listener, error }, queue);
            }
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
