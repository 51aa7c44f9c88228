//! Sending: immediate sends, sends of waiting bytes, and closed connections with bytes to send.

use super::{BOTH, Connection, Readiness, token};
use crate::outgoing::{FileRange, Next, Outgoing};
use crate::socket::{Lifted, Stream, is_passing};
use crate::{Completion, Queue, Sink, SocketId, limit, socket};
use std::io;
use std::net::Shutdown;

impl Readiness {
    #[inline]
    pub(super) fn send(&mut self, id: SocketId, bytes: &[u8], more: bool) {
        let Some(connection) = self.connections.get(id).filter(|connection| !connection.failed) else { return };
        if let Some(outgoing) = &mut connection.outgoing {
            return outgoing.push_copy(bytes);
        }
        let (rest, full) = match socket::send(&connection.stream, bytes, more) {
            Ok(sent) if sent == bytes.len() => return,
            Ok(sent) => (&bytes[sent..], true),
            // If the cause is not a full socket but, for example, a lack of kernel memory, the socket may be writable
            // already, and no event would report that again.
            Err(error) if is_passing(&error) => (bytes, error.kind() == io::ErrorKind::WouldBlock),
            Err(error) => return self.fail(id, error),
        };
        let mut outgoing = Box::new(Outgoing::default());
        outgoing.push_copy(rest);
        connection.outgoing = Some(outgoing);
        self.blocked.push_back(id);
        if full {
            self.watch_writable(id);
        } else {
            self.again(id);
        }
    }

    /// Registers a socket for both directions, unless it already is. If the socket is writable now, the registration
    /// causes an event.
    fn watch_writable(&mut self, id: SocketId) {
        let watched = |connection: &&mut Connection| connection.both && socket::KEEPS_EVENTS;
        let Some(connection) = self.connections.get(id).filter(|connection| !watched(connection)) else { return };
        connection.both = true;
        if let Err(error) = socket::reregister(self.poll.registry(), &mut connection.stream, token(id), BOTH) {
            self.fail(id, error);
        }
    }

    /// Queues shared bytes or a part of a file with `push`, and starts to send unless other bytes are waiting.
    pub(super) fn send_shared(&mut self, id: SocketId, push: impl FnOnce(&mut Outgoing)) {
        let Some(connection) = self.connections.get(id).filter(|connection| !connection.failed) else { return };
        let fresh = connection.outgoing.is_none();
        push(connection.outgoing.get_or_insert_default());
        if fresh {
            match connection.flush() {
                Ok(_) if connection.outgoing.as_ref().is_some_and(|outgoing| outgoing.is_empty()) => {
                    connection.outgoing = None;
                    self.has_drained(id);
                }
                Ok(flushed) if !flushed.full => self.again(id),
                Ok(_) => self.watch_writable(id),
                Err(error) => self.fail(id, error),
            }
        }
    }

    /// Sends a part of a file. Queues the bytes that the socket does not take immediately, or the whole part if other
    /// bytes are waiting.
    pub(super) fn send_file(&mut self, id: SocketId, mut range: FileRange) {
        let Some(connection) = self.connections.get(id).filter(|connection| !connection.failed) else { return };
        if connection.outgoing.is_none() && range.length > 0 {
            match socket::send_range(&connection.stream, &range, &mut connection.lifted) {
                Ok(sent) if sent as u64 == range.length => return self.has_drained(id),
                Ok(sent) => range.advance(sent),
                Err(error) if is_passing(&error) => {}
                Err(error) => return self.fail(id, error),
            }
        }
        self.send_shared(id, |outgoing| outgoing.push_file(range));
    }

    fn has_drained(&mut self, id: SocketId) {
        if self.drained.back() != Some(&id) {
            self.drained.push_back(id);
        }
    }

    pub(super) fn writable<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        let flushed = connection.flush();
        let Some(outgoing) = &mut connection.outgoing else { return };
        match flushed {
            Ok(_) if outgoing.is_empty() => {
                if outgoing.shutdown {
                    socket::shutdown(&connection.stream, Shutdown::Write);
                }
                connection.outgoing = None;
                self.drained.push_back(socket);
            }
            Ok(flushed) => {
                if flushed.full {
                    self.watch_writable(socket);
                } else {
                    self.again(socket);
                }
                if flushed.any {
                    self.tell(socket, Completion::Progress { socket }, queue, sink);
                }
            }
            Err(error) => self.fail(socket, error),
        }
    }

    /// Continues to send for closed connections. Resets a connection if sending fails or takes longer than
    /// [`limit::LINGER`], or while all of them together hold more than [`limit::LINGER_BYTES`].
    pub(super) fn linger(&mut self) {
        let now = self.now;
        let mut held: usize = self.lingering.iter().map(|lingering| lingering.outgoing.held()).sum();
        self.lingering.retain_mut(|lingering| {
            let before = lingering.outgoing.held();
            let flushed = flush(&lingering.stream, &mut lingering.outgoing, &mut Lifted::default());
            if flushed.is_ok() && lingering.outgoing.is_empty() {
                held -= before;
                return false;
            }
            let waits = flushed.is_ok() && now.since(lingering.since) < limit::LINGER && held <= limit::LINGER_BYTES;
            if !waits {
                held -= before;
                socket::reset_on_close(&lingering.stream);
            }
            waits
        });
    }
}

impl Connection {
    /// Sends waiting bytes, as [`flush`] does.
    fn flush(&mut self) -> io::Result<Flushed> {
        match &mut self.outgoing {
            Some(outgoing) => flush(&self.stream, outgoing, &mut self.lifted),
            None => Ok(Flushed { any: false, full: true }),
        }
    }
}

/// The result of [`flush`].
struct Flushed {
    /// True if the kernel took some bytes.
    any: bool,
    /// True if the kernel takes no more bytes now, or none are left. Otherwise the next turn continues.
    full: bool,
}

/// Sends waiting bytes until none are left or the kernel takes no more, in at most [`limit::SENDS_A_TURN`] calls.
fn flush(stream: &Stream, outgoing: &mut Outgoing, lifted: &mut Lifted) -> io::Result<Flushed> {
    let mut any = false;
    for _ in 0..limit::SENDS_A_TURN {
        if outgoing.is_empty() {
            return Ok(Flushed { any, full: true });
        }
        let sent = match outgoing.next(limit::SEND_BYTES) {
            Next::Bytes(bytes) => socket::send(stream, bytes, false),
            Next::File(range) => socket::send_range(stream, range, lifted),
        };
        match sent {
            Ok(sent) => {
                outgoing.sent(sent);
                any = true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed { any, full: true }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel lacks memory. No event reports when memory is available again, so the next turn retries.
            Err(error) if is_passing(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Flushed { any, full: false })
}
