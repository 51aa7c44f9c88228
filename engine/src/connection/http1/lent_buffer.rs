//! Receives long bodies straight into the memory of their reader, if it takes the body as a whole.

use super::H1;
use crate::connection::Connection;
use crate::connection::work;
use crate::exchange::lifecycle::Lifecycle;
use crate::service::Service;
use crate::worker::WorkerContext;
use highwire_io::{Op, Queue};
use highwire_proto::Head;

/// The number of missing bytes of a body from which they are received into its reader's memory. Below it, the operations
/// cost more than a copy.
const LEAST_BYTES: u64 = 32 * 1024;

impl Connection {
    /// Receives the next bytes into the memory of the body's reader, if the body is long and nothing stands against it.
    /// Returns true if such a receive is in progress.
    #[inline]
    pub(in crate::connection) fn lend_buffer(&mut self, queue: &mut Queue) -> bool {
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
        let left = self.http.exact_left();
        let Some((buffer, room)) = self.exchange.as_mut().and_then(|exchange| exchange.incoming.lend(left)) else {
            return false;
        };
        // The driver pauses receiving when it gives the buffer back.
        (self.transport.has_lent_buffer, self.transport.paused) = (true, true);
        queue.push(Op::ReceiveInto { socket: self.transport.id, buffer, room });
        true
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
