//! The bytes that a connection has received and not parsed yet.

use crate::body::HeldBytes;

/// The number of unread bytes at which a connection stops receiving, at the latest. Unread bytes collect, for example,
/// while the connection waits for a handler or for the peer to take answers.
pub(in crate::connection) const UNREAD_BYTES: usize = 64 * 1024;

/// The smallest capacity in bytes of the buffer.
const WINDOW_BYTES: usize = 4 * 1024;

/// Received bytes that are not parsed yet. They are rarely there, so a connection without them pays only for a pointer.
#[derive(Debug, Default)]
pub(super) struct Unread {
    kept: Option<Box<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    /// The number of these bytes that count in what waits on this thread: on a connection to a server all, otherwise none.
    held: HeldBytes,
}

impl Unread {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.bytes.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes.len())
    }

    pub(super) fn capacity(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes.capacity())
    }

    /// Drops the bytes and frees their memory.
    pub(super) fn clear(&mut self) {
        self.kept = None;
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        self.kept.take().map_or_else(Vec::new, |kept| kept.bytes)
    }

    /// Sets the bytes. If `waits` is true, they are those of a response.
    pub(super) fn put(&mut self, bytes: Vec<u8>, waits: bool) {
        self.kept = (bytes.capacity() > 0).then(|| Box::new(Kept { bytes, held: HeldBytes::default() }));
        self.count(waits);
    }

    /// Appends bytes. `most` is the number of bytes at which the connection pauses receiving. If `waits` is true, they are
    /// those of a response.
    pub(super) fn append(&mut self, bytes: &[u8], most: usize, waits: bool) {
        let Kept { bytes: unread, .. } = &mut **self.kept.get_or_insert_default();
        if unread.capacity() == 0 {
            unread.reserve_exact(bytes.len().max(WINDOW_BYTES));
        }
        if unread.len() + bytes.len() > unread.capacity().max(most) {
            // Receiving pauses at `most` bytes, so a fixed step is enough; doubling the buffer would waste memory.
            unread.reserve_exact(bytes.len().max((WINDOW_BYTES * 8).min(most / 2)));
        }
        unread.extend_from_slice(bytes);
        self.count(waits);
    }

    fn count(&mut self, waits: bool) {
        if let Some(kept) = self.kept.as_mut().filter(|_| waits) {
            kept.held.set(kept.bytes.capacity());
        }
    }
}
