//! The bytes and operations that a connection queues while it handles one event.

use crate::runtime::memory;
use crate::secure::Secure;
use bytes::Bytes;
use highwire_io::{Op, Queue, SocketId};

/// The number of written bytes above which a connection stops parsing until the kernel has taken them.
pub(super) const BATCH_BYTES: usize = 256 * 1024;

/// The number of written bytes at which a connection that sends bodies in parts waits until the kernel has taken them.
pub(super) const AHEAD_BYTES: usize = 64 * 1024;

/// The part of the worker's queue that one connection writes while it handles one event.
pub(crate) struct Out<'q> {
    pub(super) queue: &'q mut Queue,
    pub(super) start: usize,
    /// The connection's TLS session, which encrypts the bytes; `None` without TLS.
    pub(super) tls: Option<Box<Secure>>,
}

impl<'q> Out<'q> {
    pub(crate) fn new(queue: &'q mut Queue) -> Out<'q> {
        let start = queue.output.len();
        Out { queue, start, tls: None }
    }

    /// Queues the written bytes to be sent.
    #[inline]
    pub(super) fn flush(&mut self, socket: SocketId) {
        self.flush_before(socket, false);
    }

    /// Queues the written bytes to be sent. `more` must be true only if another sending operation, or `Shutdown` or
    /// `Close`, follows at once, because the driver may wait for that operation to send both in one packet.
    #[inline]
    pub(super) fn flush_before(&mut self, socket: SocketId, more: bool) {
        if self.queue.output.len() > self.start
            && let Some(tls) = &mut self.tls
        {
            tls.seal(&mut self.queue.output, self.start);
        }
        self.push_send(socket, more);
    }

    /// Queues `bytes` after the written bytes. Does not encrypt `bytes`, because they are records that the TLS session
    /// has made.
    pub(super) fn send_raw(&mut self, socket: SocketId, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.flush(socket);
            self.queue.output.extend_from_slice(bytes);
            self.push_send(socket, false);
        }
    }

    /// Queues a close_notify after the written bytes, if the connection uses TLS.
    pub(super) fn close_tls(&mut self, socket: SocketId) {
        if self.tls.is_some() {
            self.flush_before(socket, true);
        }
        if let Some(tls) = &mut self.tls {
            tls.close(&mut self.queue.output);
            self.push_send(socket, true);
        }
    }

    #[inline]
    fn push_send(&mut self, socket: SocketId, more: bool) {
        let end = self.queue.output.len();
        if end > self.start {
            match self.queue.ops.last_mut() {
                // Extends the last operation, so that several answers to one peer leave in one send.
                Some(Op::Send { socket: last, end: before, more: and_more, .. })
                    if *last == socket && *before as usize == self.start =>
                {
                    (*before, *and_more) = (end as u32, more);
                }
                _ => self.queue.push(Op::Send { socket, start: self.start as u32, end: end as u32, more }),
            }
            self.start = end;
        }
    }

    /// Queues the written bytes, encrypted under TLS, in a separate operation. The driver reports with `Drained` when
    /// the kernel has taken them. Returns the number of queued bytes.
    pub(super) fn flush_and_hear(&mut self, socket: SocketId) -> usize {
        let bytes = match &mut self.tls {
            Some(tls) => tls.sealed(&self.queue.output[self.start..]),
            None => Bytes::copy_from_slice(&self.queue.output[self.start..]),
        };
        self.queue.output.truncate(self.start);
        let length = bytes.len();
        self.queue.push(Op::SendBytes { socket, bytes });
        length
    }

    /// Queues `bytes` in a separate operation: without a copy or, under TLS, encrypted. The driver reports with
    /// `Drained` when the kernel has taken them. Returns the number of queued bytes if only this connection holds them,
    /// otherwise 0.
    pub(super) fn send_bytes(&mut self, socket: SocketId, bytes: Bytes) -> usize {
        let bytes = match &mut self.tls {
            Some(tls) => tls.sealed(&bytes),
            None => bytes,
        };
        let holder = ((socket.index as usize) << 32 | socket.generation as usize) << 1;
        let own = if memory::is_own(&bytes, holder) { bytes.len() } else { 0 };
        self.queue.push(Op::SendBytes { socket, bytes });
        own
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.output.len() - self.start
    }
}
