//! New connections, those that others make and those that we make; and ends of streams that the kernel keeps to itself.

use super::{Entry, Uring, ring};
use crate::{Completion, ListenerId, Peer, Queue, Sink, SocketId, socket};
use io_uring::cqueue;
use std::io;
use std::os::fd::AsRawFd;

impl Uring {
    /// Looks for the end of a unix socket's stream: the kernel does not tell it where it came behind more data than a multishot
    /// receive takes in one go (seen on Linux 6.18).
    pub(super) fn look_for_end<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.peer != Peer::Local || connection.closed || connection.ended || connection.paused {
            return;
        }
        let domain = socket2::SockRef::from(&connection.descriptor).domain().ok();
        if domain != Some(socket2::Domain::UNIX) {
            return;
        }
        let mut byte = 0u8;
        // SAFETY: the pointer describes one byte.
        let count = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(connection.descriptor.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1, flags)
        };
        if count == 0 {
            connection.ended = true;
            sink.complete(Completion::Ended { socket }, queue);
        }
    }

    pub(super) fn accepted<S: Sink>(&mut self, number: usize, entry: Entry, queue: &mut Queue, sink: &mut S) {
        let listener = ListenerId(number as u32);
        if entry.result >= 0 {
            let descriptor = ring::owned(entry.result);
            if self.listeners.get(number).is_some_and(Option::is_some) {
                let is_tcp = matches!(&self.listeners[number], Some(accepting) if accepting.listener.is_tcp());
                let peer = if is_tcp { socket::peer_of(descriptor.as_raw_fd()) } else { Peer::Local };
                let socket = self.insert(descriptor, peer, false);
                sink.complete(Completion::Accepted { listener, socket, peer }, queue);
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

    pub(super) fn connected<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        connection.connecting = false;
        if connection.closed {
            return;
        }
        match socket::pending_error(connection.descriptor.as_raw_fd()) {
            Some(error) => {
                connection.ended = true;
                sink.complete(Completion::Failed { socket, error }, queue);
            }
            None => {
                self.arm(socket);
                sink.complete(Completion::Connected { socket }, queue);
            }
        }
    }
}
