//! The bytes that wait in a tunnel, in either direction.

use super::Takeover;
use crate::body::{HeldBytes, PART_BYTES, Parts};
use crate::runtime::free_list::FreeList;
use crate::runtime::queue::Queue;
use bytes::{Bytes, BytesMut};

/// The length in bytes up to which a write is joined with other ones that wait.
const SHORT_BYTES: usize = size_of::<Bytes>();

/// The bytes that wait in a tunnel.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) received: Parts,
    /// The number of bytes in `received`, and this number with the cost of holding them.
    pub(super) bytes: usize,
    pub(super) held: usize,
    outgoing: Queue<Bytes>,
    /// Short writes behind those in `outgoing`, each of which would take more memory there than it has bytes.
    joined: BytesMut,
    /// The number of bytes in `outgoing` and `joined` with the cost of holding them.
    outgoing_held: HeldBytes,
    /// What the connection needs to become one to a server of HTTP, if it shall.
    pub(super) setup: Option<Box<dyn Takeover>>,
}

thread_local! {
    static SPARE: FreeList<Waiting> = const { FreeList::new() };
}

impl Waiting {
    /// Returns an empty place, in memory that the thread keeps, if there is some.
    pub(super) fn boxed() -> Box<Waiting> {
        FreeList::take(&SPARE)
    }

    /// Drops the contents. The thread keeps the memory for [`boxed`](Self::boxed), unless it has enough.
    pub(super) fn recycle(self: Box<Waiting>) {
        FreeList::recycle(&SPARE, self);
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty() || !self.joined.is_empty()
    }

    /// Returns the number of written bytes with the cost of holding them.
    pub(super) fn outgoing_held(&self) -> usize {
        self.outgoing_held.get()
    }

    /// Adds written bytes.
    pub(super) fn queue(&mut self, bytes: Bytes) {
        if self.has_outgoing() && bytes.len() <= SHORT_BYTES {
            self.outgoing_held += bytes.len() + if self.joined.is_empty() { PART_BYTES } else { 0 };
            return self.joined.extend_from_slice(&bytes);
        }
        if !self.joined.is_empty() {
            self.outgoing.push_back(std::mem::take(&mut self.joined).freeze());
        }
        self.outgoing_held += bytes.len() + PART_BYTES;
        self.outgoing.push_back(bytes);
    }

    /// Takes the first bytes that were written.
    pub(super) fn take_written(&mut self) -> Option<Bytes> {
        let bytes = match self.outgoing.pop_front() {
            Some(bytes) => bytes,
            None if self.joined.is_empty() => return None,
            None => std::mem::take(&mut self.joined).freeze(),
        };
        self.outgoing_held -= bytes.len() + PART_BYTES;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_writes_behind_others_are_joined_and_all_come_in_their_order() {
        let mut waiting = Waiting::default();
        let long = [b'-'; SHORT_BYTES + 1];
        let writes: [&[u8]; 8] = [b"a", b"b", b"c", &long, &long, b"d", b"e", &long];
        writes.iter().for_each(|bytes| waiting.queue(Bytes::copy_from_slice(bytes)));
        let taken: Vec<_> = std::iter::from_fn(|| waiting.take_written()).collect();
        assert_eq!(taken, [&b"a"[..], b"bc", &long, &long, b"de", &long]);
        assert_eq!((waiting.outgoing_held(), waiting.has_outgoing()), (0, false));
    }
}
