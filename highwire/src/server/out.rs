//! What a connection sends in one call: its part of the driver's queue.

use bytes::Bytes;
use io::{Op, Queue, SocketId};

/// What a connection sends in one go: its part of the queue's output.
pub(crate) struct Out<'q> {
    pub(super) queue: &'q mut Queue,
    pub(super) start: usize,
}

impl<'q> Out<'q> {
    pub(crate) fn new(queue: &'q mut Queue) -> Out<'q> {
        let start = queue.output.len();
        Out { queue, start }
    }

    /// Hands what was written to the driver.
    #[inline]
    pub(super) fn flush(&mut self, socket: SocketId) {
        self.flush_before(socket, false);
    }

    /// Hands what was written to the driver; with `more`, another sending operation follows at once.
    #[inline]
    pub(super) fn flush_before(&mut self, socket: SocketId, more: bool) {
        let end = self.queue.output.len();
        if end > self.start {
            match self.queue.ops.last_mut() {
                // What one peer sends may come in several pieces: the answers to all of them leave together.
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

    /// Hands what was written to the driver as bytes of their own, so that it says when they are out: how
    /// many they are.
    pub(super) fn flush_and_hear(&mut self, socket: SocketId) -> usize {
        let bytes = Bytes::copy_from_slice(&self.queue.output[self.start..]);
        self.queue.output.truncate(self.start);
        let length = bytes.len();
        self.queue.push(Op::SendBytes { socket, bytes });
        length
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.output.len() - self.start
    }
}
