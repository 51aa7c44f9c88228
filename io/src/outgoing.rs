//! Bytes that a socket could not take yet, in order.

use bytes::Bytes;
use std::collections::VecDeque;

/// What waits to be sent on one socket, and what comes after it.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<Bytes>,
    /// After the last byte: end our direction.
    pub(crate) shutdown: bool,
}

impl Outgoing {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting.push_back(bytes);
        }
    }

    /// Puts what was left of an earlier send before everything else.
    pub(crate) fn push_front(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting.push_front(bytes);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The bytes to send next, at most `most` of them, and not empty unless nothing waits.
    pub(crate) fn next(&self, most: usize) -> &[u8] {
        self.waiting.front().map_or(&[], |bytes| &bytes[..bytes.len().min(most)])
    }

    /// Drops what was sent from the front.
    pub(crate) fn sent(&mut self, count: usize) {
        let Some(front) = self.waiting.front_mut() else { return };
        if count >= front.len() {
            self.waiting.pop_front();
        } else {
            let _ = front.split_to(count);
        }
    }
}
