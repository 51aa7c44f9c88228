//! Receives long bodies straight into the memory of their reader, if it takes the body as a whole.

use super::{H1, Http1};
use crate::body::{INCOMING_BYTES, is_tight};
use crate::connection::out::Out;
use crate::connection::transport::Transport;
use crate::connection::work;
use crate::exchange::lifecycle::Lifecycle;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Queue;
use highwire_proto::h1::state::State;

/// The number of missing bytes of a body from which they are received into its reader's memory. Below it, the operations
/// cost more than a copy.
const LEAST_BYTES: u64 = 32 * 1024;

/// The size in bytes of the buffer for a piece of a response: for its head if it is probably long, and for its body while much
/// waits on this thread. What follows the head is copied.
const PIECE_BYTES: usize = 16 * 1024;

/// The buffer that the driver has for the next bytes. Receiving counts as paused then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LentBuffer {
    #[default]
    None,
    /// A buffer of a body's reader.
    Body,
    /// A buffer for bytes of any kind, such as the head of a response.
    Piece,
}

impl Http1 {
    /// Receives the next bytes into the memory of the body's reader, if the body is long and nothing stands against it.
    /// Returns true if such a receive is in progress.
    #[inline]
    pub(super) fn lend_buffer(&mut self, transport: &mut Transport, queue: &mut Queue) -> bool {
        match self.lent_buffer {
            LentBuffer::None => {}
            LentBuffer::Piece => return true,
            LentBuffer::Body => {
                let is_wanted = self.exchange.as_ref().is_some_and(|exchange| exchange.incoming.is_lent());
                if !is_wanted {
                    // The reader has dropped the body. The driver drops the buffer when receiving is resumed.
                    self.lent_buffer = LentBuffer::None;
                }
                return is_wanted;
            }
        }
        self.http.exact_left() >= LEAST_BYTES && self.begin_to_lend(transport, queue)
    }

    fn begin_to_lend(&mut self, transport: &mut Transport, queue: &mut Queue) -> bool {
        let is_read = transport.unread.is_empty() && !transport.ended() && !transport.is_secure();
        if !is_read || !self.may_read(transport) || self.incoming_is_full() || self.becomes_tunnel() {
            return false;
        }
        let (left, is_paused) = (self.http.exact_left(), transport.paused());
        let lent = self.exchange.as_mut().and_then(|exchange| exchange.incoming.lend(left, is_paused));
        let Some((buffer, room)) = lent else {
            return false;
        };
        (self.lent_buffer, self.was_lent) = (LentBuffer::Body, true);
        transport.receive_into(buffer, room, queue);
        true
    }

    /// Receives the response to the request that begins into a buffer, if its reader may be slow (`is_sparing`), if much waits on
    /// this thread, or if the last one on this connection went to the memory of its reader. Otherwise the driver would have received and copied much of
    /// a long response before its head is seen.
    pub(super) fn receive_head_alone(&mut self, transport: &mut Transport, is_sparing: bool, queue: &mut Queue) {
        self.is_sparing = is_sparing || is_tight();
        let is_wanted = std::mem::take(&mut self.was_lent) || self.is_sparing;
        if !is_wanted || transport.is_secure() || transport.ended() {
            return;
        }
        self.receive_piece(transport, queue);
    }

    fn receive_piece(&mut self, transport: &mut Transport, queue: &mut Queue) {
        self.lent_buffer = LentBuffer::Piece;
        transport.receive_into(Vec::with_capacity(PIECE_BYTES), PIECE_BYTES, queue);
    }

    /// Receives on after a pause. While much waits on this thread, receives one piece of a response's body: the driver receives
    /// what has come in the meantime at once, which may be some 200 KB, however soon it is paused again.
    pub(super) fn receive_on(&mut self, transport: &mut Transport, queue: &mut Queue) {
        let is_response = transport.is_client() && !transport.is_secure() && !transport.ended();
        // If the reader has dropped the body, the driver may have a buffer of it, which only resuming takes back.
        let is_read = self.exchange.as_ref().is_some_and(|exchange| !exchange.incoming.is_let_go());
        if is_response && is_read && self.http.theirs() == State::SendsBody && is_tight() {
            return self.receive_piece(transport, queue);
        }
        transport.resume(queue);
    }

    /// Receives no more of a long response while receiving is paused, until its reader asks for the body. A shorter one is
    /// received as always, so that the connection is free for the next request. A reader that may be slow must also have used
    /// what came with the head.
    pub(super) fn await_reader(&mut self, transport: &Transport) {
        let Some(exchange) = &mut self.exchange else { return };
        exchange.incoming.mark_as_response();
        let is_sparing = self.is_sparing;
        if transport.paused() && (is_sparing || self.http.exact_left() > INCOMING_BYTES as u64) {
            exchange.incoming.await_reader(is_sparing);
        }
    }

    /// Takes back the buffer, because other bytes came before the driver has started to receive into it. Returns false if
    /// there is none, so that the body so far is lost.
    pub(in crate::connection) fn take_back_unused(&mut self, transport: &mut Transport, queue: &mut Queue) -> bool {
        let Some(buffer) = queue.take_back(transport.id()) else { return false };
        self.take_back(transport, buffer);
        // The driver may have been paused before.
        transport.resume(queue);
        true
    }

    /// Takes back the buffer of a receive that the driver has not started.
    pub(crate) fn take_back(&mut self, transport: &mut Transport, buffer: Vec<u8>) {
        transport.forget_pause();
        if std::mem::take(&mut self.lent_buffer) != LentBuffer::Piece
            && let Some(exchange) = &mut self.exchange
        {
            exchange.incoming.take_back(buffer);
        }
    }

    /// Returns true if the driver has a buffer for the next bytes.
    pub(in crate::connection) fn has_lent_buffer(&self) -> bool {
        self.lent_buffer != LentBuffer::None
    }

    /// Records that the driver has dropped the buffer.
    pub(in crate::connection) fn forget_lent_buffer(&mut self) {
        self.lent_buffer = LentBuffer::None;
    }

    /// Handles the driver's report that it has received `count` bytes into the buffer. Returns the buffer if its last `count` bytes
    /// are not only those of a body.
    pub(in crate::connection) fn received_into(
        &mut self,
        transport: &mut Transport,
        buffer: Vec<u8>,
        count: usize,
        worker: &mut WorkerContext<impl Service>,
        out: &mut Out<'_>,
    ) -> Option<Vec<u8>> {
        if std::mem::take(&mut self.lent_buffer) == LentBuffer::Piece {
            return Some(buffer);
        }
        transport.work.begin(worker.turn(), worker.allowance());
        transport.work.spend(work::CHUNK + work::bytes(count));
        self.http.pass_body(count as u64);
        H1::new(self, transport, out).received_into(buffer, count, worker);
        self.body_fed(transport, worker, out);
        None
    }
}
