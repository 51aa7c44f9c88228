//! The queue of a socket's unsent bytes and parts of files.

use crate::file::File;
use crate::limit;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// The unsent bytes and parts of files of one socket, in sending order, and whether our sending direction ends after
/// them.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<Piece>,
    /// The number of bytes that were copied from the arena into this queue. `Blocked` reports it to the loop.
    pub(crate) copied: usize,
    /// True if our sending direction must end after the last byte.
    pub(crate) shutdown: bool,
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    File(FileRange),
}

/// A part of an open file.
#[derive(Debug)]
pub(crate) struct FileRange {
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// True if another part of a file follows on this socket.
    pub(crate) more: bool,
    /// True if the bound on unsent bytes is lifted for this part. The kernel may then hold as many unsent bytes as it
    /// has room for.
    pub(crate) unbounded: bool,
}

impl FileRange {
    pub(crate) fn new(file: Arc<dyn File>, offset: u64, length: u64, more: bool) -> FileRange {
        FileRange { file, offset, length, more, unbounded: length >= limit::UNBOUNDED_FILE_BYTES }
    }

    /// Removes `count` sent bytes from the start of the part.
    pub(crate) fn advance(&mut self, count: usize) {
        self.offset += count as u64;
        self.length -= count as u64;
    }

    /// Returns how many bytes to send next, at most `most`.
    pub(crate) fn next(&self, most: usize) -> usize {
        usize::try_from(self.length).map_or(most, |length| length.min(most))
    }
}

/// The next piece to send.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// The first waiting bytes. Empty if nothing waits.
    Bytes(&'a [u8]),
    File(&'a FileRange),
}

impl Outgoing {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting.push_back(Piece::Bytes(bytes));
        }
    }

    pub(crate) fn push_file(&mut self, range: FileRange) {
        if range.length > 0 {
            self.waiting.push_back(Piece::File(range));
        }
    }

    /// Copies bytes of the arena to the end of the queue.
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        self.copied += bytes.len();
        self.push(Bytes::copy_from_slice(bytes));
    }

    /// Copies the rest of an earlier arena send to the front of the queue.
    #[cfg(target_os = "linux")]
    pub(crate) fn push_copy_front(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.copied += bytes.len();
            self.waiting.push_front(Piece::Bytes(Bytes::copy_from_slice(bytes)));
        }
    }

    /// Returns the number of unsent bytes in memory, which excludes those of files.
    pub(crate) fn held(&self) -> usize {
        let held = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::File(_) => 0,
        };
        self.waiting.iter().map(held).sum()
    }

    /// Returns the number of all unsent bytes, including those of files.
    #[cfg(target_os = "linux")]
    pub(crate) fn left(&self) -> u64 {
        let left = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File(range) => range.length,
        };
        self.waiting.iter().map(left).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the piece to send next; if that is bytes, at most `most` of them.
    pub(crate) fn next(&self, most: usize) -> Next<'_> {
        match self.waiting.front() {
            None => Next::Bytes(&[]),
            Some(Piece::Bytes(bytes)) => Next::Bytes(&bytes[..bytes.len().min(most)]),
            Some(Piece::File(range)) => Next::File(range),
        }
    }

    /// Removes `count` sent bytes from the piece at the front.
    pub(crate) fn sent(&mut self, count: usize) {
        let is_over = match self.waiting.front_mut() {
            None => false,
            Some(Piece::Bytes(bytes)) if count < bytes.len() => {
                let _ = bytes.split_to(count);
                false
            }
            Some(Piece::File(range)) if (count as u64) < range.length => {
                range.advance(count);
                false
            }
            Some(_) => true,
        };
        if is_over {
            self.waiting.pop_front();
        }
    }
}
