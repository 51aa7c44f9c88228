//! Bytes that a socket could not take yet, in order.

use bytes::Bytes;
use std::collections::VecDeque;

/// What waits to be sent on one socket, and what comes after it.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<Bytes>,
    /// How many of the bytes that came here were copied for it: the loop learns it with `Blocked`.
    pub(crate) copied: usize,
    /// After the last byte: end our direction.
    pub(crate) shutdown: bool,
}

impl Outgoing {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting.push_back(bytes);
        }
    }

    /// Copies bytes of the arena, behind everything else.
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        self.copied += bytes.len();
        self.push(Bytes::copy_from_slice(bytes));
    }

    /// Copies what was left of an earlier send of the arena, before everything else.
    pub(crate) fn push_copy_front(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.copied += bytes.len();
            self.waiting.push_front(Bytes::copy_from_slice(bytes));
        }
    }

    /// Bytes that wait.
    pub(crate) fn held(&self) -> usize {
        self.waiting.iter().map(Bytes::len).sum()
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
