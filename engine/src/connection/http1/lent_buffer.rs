//! Receives long bodies straight into the memory of their reader, if it takes the body as a whole.

use super::H1;
use crate::body::{INCOMING_BYTES, is_tight};
use crate::connection::Connection;
use crate::connection::work;
use crate::exchange::lifecycle::Lifecycle;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::{Op, Queue};
use highwire_proto::Head;
use highwire_proto::h1::state::State;

/// The number of missing bytes of a body from which they are received into its reader's memory. Below it, the operations
/// cost more than a copy.
const LEAST_BYTES: u64 = 32 * 1024;

/// The size in bytes of the buffer for a piece of a response: for its head if it is probably long, and for its body while much
/// waits on this thread. What follows the head is copied.
const PIECE_BYTES: usize = 16 * 1024;

impl Connection {
    /// Receives the next bytes into the memory of the body's reader, if the body is long and nothing stands against it.
    /// Returns true if such a receive is in progress.
    #[inline]
    pub(in crate::connection) fn lend_buffer(&mut self, queue: &mut Queue) -> bool {
        if self.transport.awaits_piece {
            return true;
        }
        if self.transport.has_lent_buffer {
            let is_wanted = self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.is_lent());
            // If the reader has dropped the body, the driver drops the buffer when receiving is resumed.
            self.transport.has_lent_buffer = is_wanted;
            return is_wanted;
        }
        self.http.exact_left() >= LEAST_BYTES && self.begin_to_lend(queue)
    }

    fn begin_to_lend(&mut self, queue: &mut Queue) -> bool {
        let is_read = self.transport.unread.is_empty() && !self.transport.ended && !self.transport.is_secure;
        if !is_read || self.http2.is_some() || !self.may_read() || self.incoming_is_full() || self.is_tunnel() {
            return false;
        }
        let (left, is_paused) = (self.http.exact_left(), self.transport.paused);
        let lent = self.exchange.as_mut().and_then(|exchange| exchange.incoming.lend(left, is_paused));
        let Some((buffer, room)) = lent else {
            return false;
        };
        // The driver pauses receiving when it gives the buffer back.
        (self.transport.has_lent_buffer, self.transport.paused) = (true, true);
        self.transport.was_lent = true;
        queue.push(Op::ReceiveInto { socket: self.transport.id, buffer, room });
        true
    }

    /// Receives the response to the request that begins into a buffer, if its reader may be slow (`is_sparing`), if much waits on
    /// this thread, or if the last one on this connection went to the memory of its reader. Otherwise the driver would have received and copied much of
    /// a long response before its head is seen.
    pub(in crate::connection) fn receive_head_alone(&mut self, is_sparing: bool, queue: &mut Queue) {
        self.transport.is_sparing = is_sparing || is_tight();
        let is_wanted = std::mem::take(&mut self.transport.was_lent) || self.transport.is_sparing;
        if !is_wanted || self.transport.is_secure || self.transport.ended {
            return;
        }
        self.receive_piece(queue);
    }

    fn receive_piece(&mut self, queue: &mut Queue) {
        (self.transport.has_lent_buffer, self.transport.awaits_piece, self.transport.paused) = (true, true, true);
        let buffer = Vec::with_capacity(PIECE_BYTES);
        queue.push(Op::ReceiveInto { socket: self.transport.id, buffer, room: PIECE_BYTES });
    }

    /// Receives on after a pause. While much waits on this thread, receives one piece of a response's body: the driver receives
    /// what has come in the meantime at once, which may be some 200 KB, however soon it is paused again.
    pub(in crate::connection) fn receive_on(&mut self, queue: &mut Queue) {
        let transport = &self.transport;
        let is_response = transport.link.is_some() && self.http2.is_none() && !transport.is_secure && !transport.ended;
        // If the reader has dropped the body, the driver may have a buffer of it, which only resuming takes back.
        let is_read = self.exchange.as_ref().is_some_and(|exchange| !exchange.incoming.is_let_go());
        if is_response && is_read && self.http.theirs() == State::SendsBody && is_tight() {
            return self.receive_piece(queue);
        }
        self.transport.paused = false;
        queue.push(Op::ResumeRecv { socket: self.transport.id });
    }

    /// Receives no more of a long response while receiving is paused, until its reader asks for the body. A shorter one is
    /// received as always, so that the connection is free for the next request. A reader that may be slow must also have used
    /// what came with the head.
    pub(in crate::connection) fn await_reader(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        exchange.incoming.mark_as_response();
        let is_sparing = self.transport.is_sparing;
        if self.transport.paused && (is_sparing || self.http.exact_left() > INCOMING_BYTES as u64) {
            exchange.incoming.await_reader(is_sparing);
        }
    }

    /// Takes back the buffer, because other bytes came before the driver has started to receive into it. Returns false if
    /// there is none, so that the body so far is lost.
    pub(in crate::connection) fn take_back_unused(&mut self, queue: &mut Queue) -> bool {
        let Some(buffer) = queue.take_back(self.transport.id) else { return false };
        self.take_back(buffer);
        // The driver may have been paused before.
        queue.push(Op::ResumeRecv { socket: self.transport.id });
        true
    }

    /// Takes back the buffer of a receive that the driver has not started.
    pub(crate) fn take_back(&mut self, buffer: Vec<u8>) {
        (self.transport.has_lent_buffer, self.transport.paused) = (false, false);
        if std::mem::take(&mut self.transport.awaits_piece) {
            return;
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.incoming.take_back(buffer);
        }
    }

    /// Handles the driver's report that it has received `count` bytes into the buffer.
    pub(crate) fn received_into(
        &mut self,
        buffer: Vec<u8>,
        count: usize,
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        queue: &mut Queue,
    ) {
        self.transport.has_lent_buffer = false;
        if self.transport.is_ending() {
            // The driver has paused receiving. The connection waits for the peer's end, or is gone.
            return queue.push(Op::ResumeRecv { socket: self.transport.id });
        }
        if std::mem::take(&mut self.transport.awaits_piece) {
            return self.with_out(worker, queue, |connection, worker, out| {
                connection.received_plain(&buffer[buffer.len() - count..], worker, head, out);
            });
        }
        self.with_out(worker, queue, |connection, worker, out| {
            connection.transport.work.begin(worker.turn, worker.allowance);
            connection.transport.work.spend(work::CHUNK + work::bytes(count));
            connection.http.pass_body(count as u64);
            H1::new(connection, out).received_into(buffer, count, worker);
            connection.body_fed(worker, out);
            connection.proceed(worker, head, out);
            connection.resume_if_wanted(out.queue);
            connection.settle(worker, head, out);
        });
    }
}
