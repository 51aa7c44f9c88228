//! Received bytes: the completions of a multishot receive become reports to the sink.

use super::{Connection, Entry, Receive, Uring, data, kind, socket_of};
use crate::lent_buffer::LentBuffer;
use crate::{Completion, Queue, Sink, SocketId, limit, socket};
use io_uring::{cqueue, opcode, types};
use std::io;
use std::os::fd::AsRawFd;

/// Returns the number of completions at the front that together are one receive: of one socket, into buffers that follow
/// each other in memory, all but the last one full. A peer that sends much then causes one report for many buffers.
#[inline]
pub(super) fn run(entries: &[Entry]) -> usize {
    let is_full = |entry: &Entry| {
        entry.result == limit::RING_BUFFER_BYTES as i32
            && entry.data >> 56 == kind::RECEIVE
            && cqueue::more(entry.flags)
    };
    let follows = |entry: &Entry, next: &Entry| {
        is_full(entry)
            && next.data == entry.data
            && next.result > 0
            && cqueue::buffer_select(next.flags) == cqueue::buffer_select(entry.flags).and_then(|at| at.checked_add(1))
    };
    let most = limit::RECEIVE_BYTES / limit::RING_BUFFER_BYTES;
    1 + entries.iter().zip(&entries[1..]).take(most - 1).take_while(|(entry, next)| follows(entry, next)).count()
}

impl Uring {
    /// Reports the bytes of several completions as one receive.
    pub(super) fn received_run<S: Sink>(&mut self, run: &[Entry], queue: &mut Queue, sink: &mut S) {
        let [first, .., last] = run else { return };
        let Some(buffer) = cqueue::buffer_select(first.flags) else { return };
        let socket = socket_of(first.data);
        if let Some(connection) = self.connections.get(socket)
            && !connection.is_closed()
            && !connection.ended
        {
            let count = (run.len() - 1) * limit::RING_BUFFER_BYTES + last.result as usize;
            let bytes = self.buffers.run(buffer, count);
            connection.report(socket, bytes, queue, sink);
        }
        self.after_receive(socket, *last);
        (0..run.len()).for_each(|at| self.buffers.give_back(buffer + at as u16));
    }

    /// Arms the receive anew if this completion was its last one, or else notes the socket, because its end may have no
    /// completion.
    #[inline]
    fn after_receive(&mut self, socket: SocketId, entry: Entry) {
        let Some(connection) = self.connections.get(socket) else { return };
        let more = cqueue::more(entry.flags);
        if !more {
            connection.disarm();
        }
        if connection.is_closed() || connection.ended {
            return;
        }
        if !more {
            self.arm(socket);
        } else if !cqueue::sock_nonempty(entry.flags) {
            self.note_quiet(socket);
        }
    }

    #[inline]
    pub(super) fn received<S: Sink>(&mut self, socket: SocketId, entry: Entry, queue: &mut Queue, sink: &mut S) {
        let buffer = cqueue::buffer_select(entry.flags);
        if let Some(connection) = self.connections.get(socket) {
            let more = cqueue::more(entry.flags);
            if !more {
                connection.disarm();
            }
            if !connection.is_closed() && !connection.ended {
                match (entry.result, buffer) {
                    (count @ 1.., Some(buffer)) => {
                        let bytes = self.buffers.bytes(buffer, count as usize);
                        connection.report(socket, bytes, queue, sink);
                        self.after_receive(socket, entry);
                    }
                    // After a reset, this may be the same error.
                    (..=0, _) if connection.is_reset => {}
                    (0, _) => {
                        connection.ended = true;
                        connection.lent_buffer = None;
                        sink.complete(Completion::Ended { socket }, queue);
                    }
                    (error, _) => match -error {
                        libc::ENOBUFS => self.starved.push(socket),
                        libc::ECANCELED | libc::EINTR | libc::EAGAIN => self.interrupted.push(socket),
                        error => connection.break_off(socket, error, queue, sink),
                    },
                }
            }
        }
        if let Some(buffer) = buffer {
            self.buffers.give_back(buffer);
        }
        self.fill_lent_buffer(socket);
    }

    /// Submits a poll for the peer's end, unless there is one.
    pub(super) fn watch_end(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.is_closed() || connection.ended || connection.watches_end {
            return;
        }
        connection.watches_end = true;
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, libc::POLLRDHUP as u32).build();
        self.submit(entry.user_data(data(kind::END, socket)));
    }

    /// Reports that the peer's end has arrived.
    pub(super) fn end_arrived<S: Sink>(&mut self, socket: SocketId, result: i32, queue: &mut Queue, sink: &mut S) {
        let Some(connection) = self.connections.get(socket) else { return };
        connection.watches_end = false;
        if result >= 0 && !connection.ended && !connection.is_closed() && !connection.failed {
            sink.complete(Completion::EndArrived { socket }, queue);
        }
    }

    /// Receives once into a buffer of the loop. First cancels a multishot receive in flight.
    pub(super) fn receive_into(&mut self, socket: SocketId, buffer: Vec<u8>, room: usize) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.is_closed() || connection.ended || connection.lent_buffer.is_some() {
            return;
        }
        connection.lent_buffer = Some(Box::new(LentBuffer::new(buffer, room)));
        (connection.paused, connection.resumed) = (true, true);
        if connection.is_armed() {
            self.cancel(data(kind::RECEIVE, socket));
        }
        self.fill_lent_buffer(socket);
    }

    /// Submits the receive into the loop's buffer, if there is one and no other receive is in flight.
    pub(super) fn fill_lent_buffer(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.get(socket) else { return };
        if connection.is_armed() || connection.fills_lent_buffer() || connection.is_closed() || connection.ended {
            return;
        }
        let Some(lent_buffer) = &mut connection.lent_buffer else { return };
        let spare = lent_buffer.spare();
        let descriptor = types::Fd(connection.descriptor.as_raw_fd());
        // The memory stays in place until the receive completes, because only `filled_lent_buffer` takes the box, or `finish`, which
        // keeps it in `cancelled`.
        let entry = opcode::Recv::new(descriptor, spare.as_mut_ptr().cast(), spare.len() as u32).build();
        connection.receive = Receive::IntoLentBuffer;
        self.submit(entry.user_data(data(kind::RECEIVE_INTO, socket)));
    }

    /// Reports the result of a receive into the loop's buffer.
    pub(super) fn filled_lent_buffer<S: Sink>(
        &mut self,
        socket: SocketId,
        entry: Entry,
        queue: &mut Queue,
        sink: &mut S,
    ) {
        let Some(connection) = self.connections.get(socket) else {
            return self.cancelled.retain(|(cancelled, _)| *cancelled != entry.data);
        };
        connection.receive = Receive::None;
        // If the loop has resumed receiving, the memory is among the cancelled ones, and the loop may have another buffer.
        let cancelled = self.cancelled.iter().position(|(cancelled, _)| *cancelled == entry.data);
        let lent_buffer = match cancelled {
            Some(at) => Some(self.cancelled.swap_remove(at).1),
            None => connection.lent_buffer.take(),
        };
        let Some(lent_buffer) = lent_buffer.filter(|_| !connection.is_closed() && !connection.ended) else { return };
        match entry.result {
            count @ 1.. => {
                let count = count as usize;
                // SAFETY: the kernel has received this many bytes into the spare memory of this lent buffer.
                let buffer = unsafe { lent_buffer.filled(count) };
                match cancelled {
                    Some(_) => connection.report(socket, &buffer[buffer.len() - count..], queue, sink),
                    None => sink.complete(Completion::ReceivedInto { socket, buffer, count }, queue),
                }
            }
            ..=0 if connection.is_reset => {}
            0 => {
                (connection.ended, connection.lent_buffer) = (true, None);
                sink.complete(Completion::Ended { socket }, queue);
            }
            error if socket::is_passing(&io::Error::from_raw_os_error(-error)) || -error == libc::ECANCELED => {
                if cancelled.is_none() {
                    connection.lent_buffer = Some(lent_buffer);
                }
                self.interrupted.push(socket);
            }
            error => connection.break_off(socket, -error, queue, sink),
        }
        if cancelled.is_some() {
            self.arm(socket);
        }
    }
}

/// The most receives of bytes that arrived before a reset, and the most turns until then.
const LAST_RECEIVES: usize = 16;
const LAST_TURNS: u8 = 8;

impl Uring {
    /// Receives what has arrived on a connection before the peer has reset it. Returns false if that must wait for the next
    /// turn, because bytes that came before may be among the completions.
    pub(super) fn receive_rest<S: Sink>(&mut self, socket: SocketId, queue: &mut Queue, sink: &mut S) -> bool {
        let has_completions = !self.entries.is_empty() || self.ring.has_completions();
        let mut buffer = Vec::new();
        for _ in 0..LAST_RECEIVES {
            let Some(connection) = self.connections.get(socket) else { return true };
            if !connection.is_reset || connection.ended || connection.is_closed() || connection.failed {
                return true;
            }
            // A receive in flight ends soon, because the connection is broken.
            let is_lent = connection.lent_buffer.is_some() || connection.fills_lent_buffer();
            if is_lent || (has_completions && connection.is_armed()) {
                connection.turns_since_reset += 1;
                return connection.turns_since_reset > LAST_TURNS;
            }
            if connection.paused {
                return true;
            }
            buffer.resize(limit::RING_BUFFER_BYTES, 0);
            match socket::receive(&connection.descriptor, &mut buffer) {
                Ok(count @ 1..) => connection.report(socket, &buffer[..count], queue, sink),
                _ => return true,
            }
        }
        true
    }
}

impl Connection {
    /// Receives no more after an error of a send, because a receive may report the same error as the peer's end. After a
    /// reset, what arrived before is still received.
    pub(super) fn stop_receiving(&mut self, error: &io::Error) {
        if socket::is_reset(error) {
            self.is_reset = true;
        } else {
            self.ended = true;
        }
    }

    /// Reports bytes that were received into the ring's buffers. If the loop waits for them in a buffer of its own, they
    /// arrived before the receive into that buffer began.
    #[inline]
    fn report<S: Sink>(&mut self, socket: SocketId, bytes: &[u8], queue: &mut Queue, sink: &mut S) {
        let mut rest = bytes;
        if let Some(lent_buffer) = self.lent_buffer.take() {
            let (buffer, count) = lent_buffer.append(bytes);
            rest = &bytes[count..];
            sink.complete(Completion::ReceivedInto { socket, buffer, count }, queue);
            if rest.is_empty() {
                return;
            }
        }
        sink.complete(Completion::Received { socket, bytes: rest }, queue);
    }

    /// Records that a receive has failed, and reports it unless a failure was reported before.
    fn break_off<S: Sink>(&mut self, socket: SocketId, error: i32, queue: &mut Queue, sink: &mut S) {
        (self.ended, self.lent_buffer) = (true, None);
        if !std::mem::replace(&mut self.failed, true) {
            let error = io::Error::from_raw_os_error(error);
            sink.complete(Completion::Failed { socket, error }, queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accept, listening};
    use super::*;
    use crate::{Driver, Instant};
    use std::io::Write;
    use std::net::TcpStream;

    /// Collects received bytes and the size of the largest receive.
    #[derive(Default)]
    struct Collect {
        bytes: Vec<u8>,
        largest: usize,
    }

    impl Sink for Collect {
        fn begin(&mut self, _: Instant) {}
        fn complete(&mut self, completion: Completion<'_>, _: &mut Queue) {
            if let Completion::Received { bytes, .. } = completion {
                self.bytes.extend_from_slice(bytes);
                self.largest = self.largest.max(bytes.len());
            }
        }
    }

    #[test]
    fn buffers_that_follow_each_other_are_reported_as_one_receive() {
        const BYTES: usize = 3 * limit::RING_BUFFERS as usize * limit::RING_BUFFER_BYTES + 77;
        let Some((mut driver, address)) = listening() else { return };
        let mut client = TcpStream::connect(address).expect("a connection");
        accept(&mut driver, 1);
        let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        let (mut queue, mut seen) = (Queue::new(), Collect::default());
        let mut writing = 0;
        client.set_nonblocking(true).expect("an option");
        while seen.bytes.len() < BYTES {
            while let Ok(count @ 1..) = client.write(&sent[writing..]) {
                writing += count;
            }
            driver.turn(None, &mut queue, &mut seen).expect("a turn");
        }
        assert!(seen.bytes == sent, "the bytes are in their order");
        assert!(seen.largest > limit::RING_BUFFER_BYTES, "{} bytes at most", seen.largest);
        assert!(seen.largest <= limit::RECEIVE_BYTES, "{} bytes at most", seen.largest);
    }

    #[test]
    fn completions_form_a_run_if_their_buffers_follow_each_other() {
        let received = |socket: u64, buffer: u32, result: usize, more: u32| Entry {
            data: kind::RECEIVE << 56 | socket,
            result: result as i32,
            // IORING_CQE_F_BUFFER, and IORING_CQE_F_MORE if `more` is 2.
            flags: buffer << 16 | 1 | more,
        };
        const FULL: usize = limit::RING_BUFFER_BYTES;
        let long: Vec<_> = (0..40).map(|buffer| received(1, buffer, FULL, 2)).collect();
        for (entries, expected) in [
            (&[received(1, 0, FULL, 2), received(1, 1, 5, 2)][..], 2),
            (&[received(1, 0, FULL, 2), received(1, 1, FULL, 0), received(1, 2, 5, 2)], 2),
            (&[received(1, 0, FULL, 2), received(2, 1, 5, 2)], 1),
            (&[received(1, 0, FULL - 1, 2), received(1, 1, 5, 2)], 1),
            (&[received(1, 0, FULL, 2), received(1, 2, 5, 2)], 1),
            (&[received(1, 1, FULL, 2), received(1, 0, 5, 2)], 1),
            (&[received(1, 0, FULL, 2), received(1, 1, 0, 2)], 1),
            (&[received(1, 0, FULL, 2)], 1),
            (&long, limit::RECEIVE_BYTES / FULL),
        ] {
            assert_eq!(run(entries), expected, "{entries:?}");
        }
    }
}
