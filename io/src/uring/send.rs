//! Sending and closing: what leaves at once, what has to wait, and what becomes of a connection then.

use super::{Connection, Uring, data, kind, number_of, numbered, socket_of};
use crate::outgoing::{FileRange, Next, Outgoing};
use crate::socket::{self, Lifted, is_passing};
use crate::{Completion, Queue, Sink, SocketId, limit};
use io_uring::{opcode, squeue, types};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

impl Uring {
    #[inline]
    pub(super) fn send(&mut self, id: SocketId, output: &[u8], (start, end): (u32, u32), more: bool) {
        let (round, number) = (self.round, self.batch.len());
        let Some(connection) = self.connections.get(id).filter(|connection| connection.may_send()) else { return };
        let bytes = &output[start as usize..end as usize];
        if connection.outgoing.is_some() || connection.round == round {
            connection.outgoing.get_or_insert_default().push_copy(bytes);
            if connection.round == round {
                self.deferred.push(id);
            }
            return;
        }
        connection.round = round;
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        let flags = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        let entry = opcode::Send::new(descriptor, bytes.as_ptr(), bytes.len() as u32).flags(flags).build();
        self.batch.push((id, start, end));
        self.submit(entry.user_data(numbered(kind::ARENA_SEND, number)).flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Sends what stands before a part of a file, which follows at once. By a call of its own: behind one of the ring's, the file
    /// would wait until that is submitted (measured: 3 of 17 µs for 100 KB).
    pub(super) fn send_before_file(&mut self, id: SocketId, output: &[u8], range: (u32, u32)) {
        let round = self.round;
        let Some(connection) = self.connections.get(id).filter(|connection| connection.may_send()) else { return };
        if connection.outgoing.is_some() || connection.round == round {
            return self.send(id, output, range, true);
        }
        let bytes = &output[range.0 as usize..range.1 as usize];
        match socket::send(&connection.descriptor, bytes, true) {
            Ok(sent) if sent == bytes.len() => {}
            Ok(sent) => connection.outgoing.get_or_insert_default().push_copy(&bytes[sent..]),
            Err(error) if is_passing(&error) => connection.outgoing.get_or_insert_default().push_copy(bytes),
            Err(error) => self.lose(id, error),
        }
    }

    /// Something that was to be sent cannot be: nothing behind it may leave.
    fn lose(&mut self, id: SocketId, error: io::Error) {
        let Some(connection) = self.connections.get(id) else { return };
        // What broke it may look like the peer's end to a receive.
        (connection.sending, connection.lost, connection.ended) = (false, true, true);
        connection.outgoing = None;
        if connection.closed {
            self.cut(id);
        } else {
            self.broken.push((id, error));
        }
    }

    /// Sends what is no part of the arena.
    pub(super) fn send_shared(&mut self, id: SocketId, push: impl FnOnce(&mut Outgoing)) {
        let round = self.round;
        let Some(connection) = self.connections.get(id).filter(|connection| connection.may_send()) else { return };
        connection.owed = true;
        connection.told = true;
        push(connection.outgoing.get_or_insert_default());
        if connection.round == round {
            self.deferred.push(id);
        } else {
            self.send_waiting(id);
        }
    }

    /// Sends a part of a file. What leaves at once is kept nowhere.
    pub(super) fn send_file(&mut self, id: SocketId, mut range: FileRange) {
        let round = self.round;
        let Some(connection) = self.connections.get(id).filter(|connection| connection.may_send()) else { return };
        if connection.outgoing.is_some() || connection.round == round || range.length == 0 {
            return self.send_shared(id, |outgoing| outgoing.push_file(range));
        }
        match send_range(&connection.descriptor, &range, &mut connection.lifted) {
            Ok(sent) => range.advance(sent),
            Err(error) => return self.lose(id, error),
        }
        connection.told = true;
        if range.length == 0 {
            return self.drained.push(id);
        }
        connection.outgoing.get_or_insert_default().push_file(range);
        connection.owed = true;
        self.wait_until_writable(id);
    }

    fn wait_until_writable(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        connection.sending = true;
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, libc::POLLOUT as u32).build();
        self.submit(entry.user_data(data(kind::WRITABLE, id)));
    }

    /// Sends the front of what waits, unless a send is in flight; where nothing waits, does what comes after.
    pub(super) fn send_waiting(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.sending {
            return;
        }
        if connection.aborted {
            return self.finish(id);
        }
        let Some(outgoing) = &connection.outgoing else {
            if connection.closed {
                self.finish(id);
            }
            return;
        };
        if outgoing.is_empty() {
            if outgoing.shutdown {
                socket::shutdown(&connection.descriptor, Shutdown::Write);
            }
            connection.outgoing = None;
            if connection.closed {
                self.finish(id);
            } else if std::mem::take(&mut connection.owed) {
                self.drained.push(id);
            }
            return;
        }
        if !connection.owed && !connection.closed {
            // Whatever is left of a round the peer has not taken: the loop is told, whichever operation it came by.
            connection.owed = true;
            self.blocked.push(id);
        }
        connection.sending = true;
        let bytes = match outgoing.next(limit::SEND_BYTES) {
            Next::Bytes(bytes) => bytes,
            Next::File(_) => return self.send_front_file(id),
        };
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        // Not MSG_WAITALL: a part that was taken shows that the peer is slow, not dead.
        let entry = opcode::Send::new(descriptor, bytes.as_ptr(), bytes.len() as u32).flags(libc::MSG_NOSIGNAL).build();
        self.submit(entry.user_data(data(kind::SEND, id)));
    }

    /// Sends of the file in front what the socket takes, and goes on when that is writable again, in the next turn at the
    /// earliest. (As an operation of the ring, a splice, it would be done by another thread.)
    fn send_front_file(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(outgoing) = &mut connection.outgoing else { return };
        let Next::File(range) = outgoing.next(0) else { return };
        let before = range.length;
        let sent = match send_range(&connection.descriptor, range, &mut connection.lifted) {
            Ok(sent) => sent,
            Err(error) => return self.lose(id, error),
        };
        outgoing.sent(sent);
        if sent as u64 == before {
            connection.sending = false;
            return self.send_waiting(id);
        }
        self.wait_until_writable(id);
    }

    /// A socket that a file waits for is writable, or broken: the next send says which.
    pub(super) fn writable<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        connection.sending = false;
        if connection.aborted {
            connection.outgoing = None;
            return self.finish(socket);
        }
        let left = |connection: &Connection| connection.outgoing.as_ref().map_or(0, |outgoing| outgoing.left());
        let before = left(connection);
        self.send_waiting(socket);
        if let Some(connection) = self.connections.get(socket)
            && !connection.closed
            && !connection.failed
            && (1..before).contains(&left(connection))
        {
            sink.complete(Completion::Progress { socket }, queue);
        }
    }

    pub(super) fn shutdown(&mut self, id: SocketId) {
        let round = self.round;
        let Some(connection) = self.connections.get(id).filter(|connection| connection.may_send()) else { return };
        if connection.outgoing.is_none() && connection.round != round {
            socket::shutdown(&connection.descriptor, Shutdown::Write);
            return;
        }
        connection.outgoing.get_or_insert_default().shutdown = true;
        if connection.round == round {
            self.deferred.push(id);
        }
    }

    pub(super) fn close(&mut self, id: SocketId) {
        let (round, now) = (self.round, self.now);
        let Some(connection) = self.connections.get(id).filter(|connection| !connection.closed) else { return };
        if connection.lost {
            return self.cut(id);
        }
        connection.closed = true;
        if connection.round == round {
            self.deferred.push(id);
        } else if connection.outgoing.is_none() {
            return self.finish(id);
        }
        if connection_waits(self.connections.get(id)) {
            self.lingering.push((id, now));
        }
    }

    pub(super) fn abort(&mut self, id: SocketId) {
        if self.connections.get(id).is_some_and(|connection| !connection.closed) {
            self.cut(id);
        }
    }

    fn cut(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        (connection.closed, connection.aborted) = (true, true);
        socket::reset_on_close(&connection.descriptor);
        if connection.sending {
            let kind = if connection.lends_bytes() { kind::SEND } else { kind::WRITABLE };
            // The bytes in flight must outlive the send: it fails now, and its completion finishes the connection.
            connection.outgoing.as_mut().into_iter().for_each(|outgoing| outgoing.shutdown = false);
            socket::disconnect(&connection.descriptor);
            self.cancel(data(kind, id));
        } else {
            connection.outgoing = None;
            if connection.round == self.round { self.deferred.push(id) } else { self.finish(id) }
        }
    }

    /// Closes a connection. A receive in flight would keep it open, so it is cancelled first.
    pub(super) fn finish(&mut self, id: SocketId) {
        let Some(connection) = self.connections.remove(id) else { return };
        if connection.armed {
            self.cancel(data(kind::RECEIVE, id));
        }
        self.close_descriptor(connection.descriptor);
    }

    /// Closes a descriptor behind the operations that were submitted before and name it.
    pub(super) fn close_descriptor(&mut self, descriptor: OwnedFd) {
        let entry = opcode::Close::new(types::Fd(descriptor.into_raw_fd())).build();
        self.submit(entry.user_data(numbered(kind::IGNORED, 0)).flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// After a submission: what arena sends left over is copied, the arena is freed, and what waited behind them goes on.
    pub(super) fn settle(&mut self, queue: &mut Queue) {
        if !self.batch.is_empty() {
            for at in 0..self.entries.len() {
                let entry = self.entries[at];
                if entry.data >> 56 == kind::ARENA_SEND {
                    // Its number means another send from now on.
                    self.entries[at].data = numbered(kind::IGNORED, 0);
                    self.arena_send_failed(number_of(entry.data), entry.result, &queue.output);
                }
            }
            self.batch.clear();
        }
        queue.output.clear();
        if queue.output.capacity() > limit::OUTPUT_BYTES {
            queue.output.shrink_to(limit::OUTPUT_BYTES);
        }
        self.round = self.round.wrapping_add(1).max(1);
        while let Some(id) = self.deferred.pop() {
            self.send_waiting(id);
        }
    }

    pub(super) fn arena_send_failed(&mut self, number: usize, result: i32, output: &[u8]) {
        let (id, start, end) = self.batch[number];
        let Some(connection) = self.connections.get(id) else { return };
        let sent = match result {
            count @ 0.. => count as u32,
            error if is_passing(&io::Error::from_raw_os_error(-error)) => 0,
            error => {
                connection.outgoing = None;
                connection.ended = true;
                if connection.closed {
                    self.deferred.push(id);
                } else {
                    self.broken.push((id, io::Error::from_raw_os_error(-error)));
                }
                return;
            }
        };
        if connection.aborted {
            return self.deferred.push(id);
        }
        let rest = &output[(start + sent).min(end) as usize..end as usize];
        let closed = connection.closed;
        // With something behind it, closing has seen that it waits.
        let lingers = connection.outgoing.is_some() || connection.sending;
        connection.outgoing.get_or_insert_default().push_copy_front(rest);
        self.deferred.push(id);
        if closed {
            if !lingers {
                self.lingering.push((id, self.now));
            }
        } else {
            connection.owed = true;
            self.blocked.push(id);
        }
    }

    pub(super) fn linger(&mut self) {
        let now = self.now;
        let mut late = Vec::new();
        let Uring { lingering, connections, .. } = self;
        let mut held: usize = lingering.iter().map(|&(id, _)| held_by(connections.get(id))).sum();
        lingering.retain(|&(id, since)| {
            let waits = connection_waits(connections.get(id));
            let is_late = waits && (now.since(since) >= limit::LINGER || held > limit::LINGER_BYTES);
            if is_late {
                held -= held_by(connections.get(id));
                late.push(id);
            }
            waits && !is_late
        });
        for id in late {
            self.cut(id);
        }
    }
}

impl Connection {
    /// Whether more may be sent.
    pub(super) fn may_send(&self) -> bool {
        !self.closed && !self.lost
    }

    /// Whether a send in flight points into its bytes.
    pub(super) fn lends_bytes(&mut self) -> bool {
        let waits_for = |outgoing: &Outgoing| matches!(outgoing.next(1), Next::Bytes(_));
        self.sending && self.outgoing.as_deref().is_some_and(waits_for)
    }
}

/// How often a driver that is dropped waits for the sends that it has cut short, 10 ms each.
const LAST_WAITS: usize = 20;

impl Drop for Uring {
    fn drop(&mut self) {
        // Closes that wait for their submission keep descriptors open. Where the last submission failed, sends wait with them whose
        // bytes the loop may have freed: then descriptors are lost rather than such bytes sent.
        let may_submit = self.batch.is_empty() && self.failed.is_none();
        if may_submit {
            let _ = self.ring.submit();
        }
        // Sends in flight point into bytes that this driver owns: they end before their bytes are freed.
        let mut sending: Vec<SocketId> = self.connections.ids().collect();
        sending.retain(|&id| self.connections.get(id).is_some_and(Connection::lends_bytes));
        for &id in &sending {
            if let Some(connection) = self.connections.get(id) {
                socket::shutdown(&connection.descriptor, Shutdown::Both);
            }
        }
        for _ in 0..LAST_WAITS {
            if sending.is_empty() || !may_submit || self.ring.enter(Some(Duration::from_millis(10))).is_err() {
                break;
            }
            self.ring.completions(|data, _, _| {
                if data >> 56 == kind::SEND {
                    sending.retain(|&id| id != socket_of(data));
                }
            });
        }
        for id in sending {
            // The kernel may still read them: better lost than freed.
            std::mem::forget(self.connections.get(id).and_then(|connection| connection.outgoing.take()));
        }
    }
}

/// Sends of a range what the socket takes now, which may be nothing.
fn send_range(stream: &OwnedFd, range: &FileRange, lifted: &mut Lifted) -> io::Result<usize> {
    match socket::send_range(stream, range, lifted) {
        Err(error) if is_passing(&error) => Ok(0),
        sent => sent,
    }
}

/// Bytes that a connection has still to send.
fn held_by(connection: Option<&mut Connection>) -> usize {
    connection.and_then(|connection| connection.outgoing.as_ref()).map_or(0, |outgoing| outgoing.held())
}

/// Whether a closed connection still has bytes to send.
fn connection_waits(connection: Option<&mut Connection>) -> bool {
    connection.is_some_and(|connection| connection.outgoing.is_some() || connection.sending)
}
