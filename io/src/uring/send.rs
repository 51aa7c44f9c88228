//! Sending and closing: arena sends, asynchronous sends, files, and the end of a connection.

use super::{Closing, Connection, Uring, data, kind, number_of, numbered, socket_of};
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

    /// Sends arena bytes that a part of a file follows immediately. Unless other bytes are waiting, makes its own
    /// system call, because the file would have to wait until a send of the ring is submitted (measured: 3 of 17 µs for
    /// 100 KB).
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

    /// Fails a connection if some of its bytes cannot be sent. Nothing queued behind these bytes may leave.
    fn lose(&mut self, id: SocketId, error: io::Error) {
        let Some(connection) = self.connections.get(id) else { return };
        connection.stop_receiving(&error);
        (connection.sending, connection.lost) = (false, true);
        connection.outgoing = None;
        if connection.is_closed() {
            self.cut(id);
        } else {
            self.broken.push((id, error));
        }
    }

    /// Queues shared bytes or a part of a file with `push`, and starts to send, or leaves that to `settle` after an
    /// arena send in the same round.
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

    /// Sends a part of a file. Queues the bytes that the socket does not take immediately, or the whole part if other
    /// bytes are waiting.
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

    /// Starts to send the front of `outgoing`, unless a send is in flight. If nothing is left to send, finishes a
    /// pending shutdown or close, or queues the `Drained` report.
    pub(super) fn send_waiting(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.sending {
            return;
        }
        if connection.is_aborted() {
            return self.finish(id);
        }
        let Some(outgoing) = &connection.outgoing else {
            if connection.is_closed() {
                self.finish(id);
            }
            return;
        };
        if outgoing.is_empty() {
            if outgoing.shutdown {
                socket::shutdown(&connection.descriptor, Shutdown::Write);
            }
            connection.outgoing = None;
            if connection.is_closed() {
                self.finish(id);
            } else if std::mem::take(&mut connection.owed) {
                self.drained.push(id);
            }
            return;
        }
        if !connection.owed && !connection.is_closed() {
            // Bytes wait for the peer, and the loop does not expect a `Drained` report yet, so report `Blocked`.
            connection.owed = true;
            self.blocked.push(id);
        }
        connection.sending = true;
        let bytes = match outgoing.next(limit::SEND_BYTES) {
            Next::Bytes(bytes) => bytes,
            Next::File(_) => return self.send_front_file(id),
        };
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        // MSG_WAITALL is not set, so that a short send completes, which shows that the peer is slow but still reads.
        let entry = opcode::Send::new(descriptor, bytes.as_ptr(), bytes.len() as u32).flags(libc::MSG_NOSIGNAL).build();
        self.submit(entry.user_data(data(kind::SEND, id)));
    }

    /// Sends as much of the file at the front as the socket takes, at most [`limit::SEND_FILE_BYTES`]. If bytes are
    /// left, continues when the socket is writable, in the next turn at the earliest. The ring is not used, because it
    /// would run a splice on another thread.
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

    /// Handles the result of an asynchronous send.
    pub(super) fn sent<S: Sink>(&mut self, socket: SocketId, result: i32, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        connection.sending = false;
        if connection.is_aborted() {
            connection.outgoing = None;
            return self.finish(socket);
        }
        let is_closed = connection.is_closed();
        let Some(outgoing) = &mut connection.outgoing else { return };
        match result {
            count @ 0.. => outgoing.sent(count as usize),
            error if socket::is_passing(&io::Error::from_raw_os_error(-error)) => {}
            error => {
                connection.outgoing = None;
                if connection.is_closed() {
                    return self.finish(socket);
                }
                let error = io::Error::from_raw_os_error(-error);
                connection.lost = true;
                connection.stop_receiving(&error);
                return self.broken.push((socket, error));
            }
        }
        let unfinished = connection.told && !is_closed && !connection.failed && !outgoing.is_empty();
        self.send_waiting(socket);
        if unfinished {
            sink.complete(Completion::Progress { socket }, queue);
        }
    }

    /// Continues to send a file when the socket is writable or broken. If it is broken, the next send returns the
    /// error.
    pub(super) fn writable<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        connection.sending = false;
        if connection.is_aborted() {
            connection.outgoing = None;
            return self.finish(socket);
        }
        let left = |connection: &Connection| connection.outgoing.as_ref().map_or(0, |outgoing| outgoing.left());
        let before = left(connection);
        self.send_waiting(socket);
        if let Some(connection) = self.connections.get(socket)
            && !connection.is_closed()
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
        let Some(connection) = self.connections.get(id).filter(|connection| !connection.is_closed()) else { return };
        if connection.lost {
            return self.cut(id);
        }
        connection.closing = Closing::Closed;
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
        if self.connections.get(id).is_some_and(|connection| !connection.is_closed()) {
            self.cut(id);
        }
    }

    fn cut(&mut self, id: SocketId) {
        let Some(connection) = self.connections.get(id) else { return };
        connection.closing = Closing::Aborted;
        socket::reset_on_close(&connection.descriptor);
        if connection.sending {
            let kind = if connection.lends_bytes() { kind::SEND } else { kind::WRITABLE };
            // The bytes in flight must outlive the send. Make the send fail now; its completion finishes the
            // connection.
            connection.outgoing.as_mut().into_iter().for_each(|outgoing| outgoing.shutdown = false);
            socket::disconnect(&connection.descriptor);
            self.cancel(data(kind, id));
        } else {
            connection.outgoing = None;
            if connection.round == self.round { self.deferred.push(id) } else { self.finish(id) }
        }
    }

    /// Closes a connection. First cancels a receive and a poll in flight, which would keep the connection open.
    pub(super) fn finish(&mut self, id: SocketId) {
        let Some(mut connection) = self.connections.remove(id) else { return };
        if connection.is_armed() {
            self.cancel(data(kind::RECEIVE, id));
        }
        if connection.watches_end {
            self.cancel(data(kind::END, id));
        }
        if connection.fills_lent_buffer()
            && let Some(lent_buffer) = connection.lent_buffer.take()
        {
            let receive = data(kind::RECEIVE_INTO, id);
            self.cancelled.push((receive, lent_buffer));
            self.cancel(receive);
        }
        self.close_descriptor(connection.descriptor);
    }

    /// Queues the closing of a descriptor behind the operations on it that are already queued.
    pub(super) fn close_descriptor(&mut self, descriptor: OwnedFd) {
        let entry = opcode::Close::new(types::Fd(descriptor.into_raw_fd())).build();
        self.submit(entry.user_data(numbered(kind::IGNORED, 0)).flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Handles the results of a submission: copies the bytes that arena sends left over, clears the arena, and starts
    /// the operations that waited behind these sends.
    pub(super) fn settle(&mut self, queue: &mut Queue) {
        if !self.batch.is_empty() {
            for at in 0..self.entries.len() {
                let entry = self.entries[at];
                if entry.data >> 56 == kind::ARENA_SEND {
                    // The number in the entry will belong to another send in the next round.
                    self.entries[at].data = numbered(kind::IGNORED, 0);
                    self.arena_send_failed(number_of(entry.data), entry.result, &queue.output);
                }
            }
            self.batch.clear();
        }
        queue.clear_output();
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
                let error = io::Error::from_raw_os_error(-error);
                connection.outgoing = None;
                connection.lost = true;
                connection.stop_receiving(&error);
                if connection.is_closed() {
                    self.deferred.push(id);
                } else {
                    self.broken.push((id, error));
                }
                return;
            }
        };
        if connection.is_aborted() {
            return self.deferred.push(id);
        }
        let rest = &output[(start + sent).min(end) as usize..end as usize];
        let closed = connection.is_closed();
        // If an operation was queued behind this send, `close` has already added the connection to `lingering`.
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
    /// Returns true if the loop may still send on this connection.
    pub(super) fn may_send(&self) -> bool {
        !self.is_closed() && !self.lost
    }

    /// Returns true if a send in flight points to bytes of this connection.
    pub(super) fn lends_bytes(&mut self) -> bool {
        let waits_for = |outgoing: &Outgoing| matches!(outgoing.next(1), Next::Bytes(_));
        self.sending && self.outgoing.as_deref().is_some_and(waits_for)
    }
}

/// How many times a dropped driver waits up to 10 ms for the operations in flight that it has cut short.
const LAST_WAITS: usize = 20;

impl Drop for Uring {
    fn drop(&mut self) {
        // Queued closes would leave their descriptors open if they were not submitted. But after an unfinished turn,
        // the queue may also contain arena sends, whose bytes may have been freed. Leaking descriptors is better than
        // sending those bytes.
        let may_submit = self.batch.is_empty() && self.failed.is_none();
        if may_submit {
            let _ = self.ring.submit();
        }
        // Operations in flight point to memory that this driver owns, so they must end before this memory is freed.
        let mut in_flight: Vec<u64> = self.cancelled.iter().map(|&(receive, _)| receive).collect();
        for id in self.connections.ids().collect::<Vec<_>>() {
            let Some(connection) = self.connections.get(id) else { continue };
            let lent = [(connection.lends_bytes(), kind::SEND), (connection.fills_lent_buffer(), kind::RECEIVE_INTO)];
            if connection.lends_bytes() || connection.fills_lent_buffer() {
                socket::shutdown(&connection.descriptor, Shutdown::Both);
            }
            in_flight.extend(lent.into_iter().filter(|(is_lent, _)| *is_lent).map(|(_, kind)| data(kind, id)));
        }
        for _ in 0..LAST_WAITS {
            if in_flight.is_empty() || !may_submit || self.ring.enter(Some(Duration::from_millis(10))).is_err() {
                break;
            }
            self.ring.completions(|data, _, _| in_flight.retain(|&operation| operation != data));
        }
        // The kernel may still use the rest of this memory. Leaking it is better than freeing it.
        for operation in in_flight {
            let (is_send, id) = (operation >> 56 == kind::SEND, socket_of(operation));
            if let Some(connection) = self.connections.get(id) {
                let lent = (connection.outgoing.take_if(|_| is_send), connection.lent_buffer.take_if(|_| !is_send));
                std::mem::forget(lent);
            }
            std::mem::forget(self.cancelled.extract_if(.., |(receive, _)| *receive == operation).collect::<Vec<_>>());
        }
    }
}

/// Sends a part of a range, as [`socket::send_range`] does, but returns 0 instead of an error if the send may be tried
/// again.
fn send_range(stream: &OwnedFd, range: &FileRange, lifted: &mut Lifted) -> io::Result<usize> {
    match socket::send_range(stream, range, lifted) {
        Err(error) if is_passing(&error) => Ok(0),
        sent => sent,
    }
}

/// Returns the number of unsent bytes that a connection holds in memory; 0 if there is no connection.
fn held_by(connection: Option<&mut Connection>) -> usize {
    connection.and_then(|connection| connection.outgoing.as_ref()).map_or(0, |outgoing| outgoing.held())
}

/// Returns true if a connection exists and has not finished sending.
fn connection_waits(connection: Option<&mut Connection>) -> bool {
    connection.is_some_and(|connection| connection.outgoing.is_some() || connection.sending)
}
