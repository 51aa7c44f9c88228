//! The bytes that a connection has received and not parsed yet.

/// The smallest capacity in bytes of the buffer.
const WINDOW_BYTES: usize = 4 * 1024;

/// Received bytes that are not parsed yet. They are rarely there, so a connection without them pays only for a pointer.
#[derive(Debug, Default)]
pub(super) struct Unread {
    #[expect(clippy::box_collection, reason = "a vector in place takes three times as much memory of each connection")]
    bytes: Option<Box<Vec<u8>>>,
}

impl Unread {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.as_ref().is_none_or(|bytes| bytes.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.capacity())
    }

    /// Drops the bytes and frees their memory.
    pub(super) fn clear(&mut self) {
        self.bytes = None;
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        self.bytes.take().map_or_else(Vec::new, |bytes| *bytes)
    }

    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        self.bytes = (bytes.capacity() > 0).then(|| Box::new(bytes));
    }

    /// Appends bytes. `most` is the number of bytes at which the connection pauses receiving.
    pub(super) fn append(&mut self, bytes: &[u8], most: usize) {
        let unread = self.bytes.get_or_insert_default();
        if unread.capacity() == 0 {
            unread.reserve_exact(bytes.len().max(WINDOW_BYTES));
        }
        if unread.len() + bytes.len() > unread.capacity().max(most) {
            // Receiving pauses at `most` bytes, so a fixed step is enough; doubling the buffer would waste memory.
            unread.reserve_exact(bytes.len().max((WINDOW_BYTES * 8).min(most / 2)));
        }
        unread.extend_from_slice(bytes);
    }
}
