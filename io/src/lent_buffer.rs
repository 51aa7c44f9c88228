//! The memory into which a driver receives for [`Op::ReceiveInto`](crate::Op::ReceiveInto).

use std::io;
use std::mem::MaybeUninit;

/// A buffer of the loop, and how many bytes may be appended to it.
#[derive(Debug)]
pub(crate) struct LentBuffer {
    buffer: Vec<u8>,
    room: usize,
}

impl LentBuffer {
    pub(crate) fn new(mut buffer: Vec<u8>, room: usize) -> LentBuffer {
        // The loop has usually reserved the room. A room of 0 would look like the peer's end.
        let room = room.max(1);
        buffer.reserve_exact(room);
        LentBuffer { buffer, room }
    }

    /// Returns the memory for the bytes.
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.buffer.spare_capacity_mut()[..self.room]
    }

    /// Adds the first `count` bytes of [`spare`](Self::spare) to the buffer, and returns the buffer.
    ///
    /// # Safety
    /// These bytes must have been written.
    pub(crate) unsafe fn filled(mut self, count: usize) -> Vec<u8> {
        debug_assert!(count <= self.room);
        // SAFETY: `new` has reserved the room, and the caller promises that the bytes have been written.
        unsafe { self.buffer.set_len(self.buffer.len() + count.min(self.room)) };
        self.buffer
    }

    /// Appends bytes as far as there is room. Returns the buffer, and the number of appended bytes.
    pub(crate) fn append(mut self, bytes: &[u8]) -> (Vec<u8>, usize) {
        let count = bytes.len().min(self.room);
        self.buffer.extend_from_slice(&bytes[..count]);
        (self.buffer, count)
    }

    /// Fills the room with a receiving function, as far as bytes have arrived. Returns the number of bytes, and the
    /// buffer, or this object if nothing was received.
    ///
    /// # Safety
    /// If the function returns a number of bytes, it must have written as many at the front of its memory.
    pub(crate) unsafe fn fill(
        mut self,
        receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
    ) -> (io::Result<usize>, Result<Vec<u8>, LentBuffer>) {
        match receive(self.spare()) {
            // SAFETY: the caller promises that the function has written as many bytes as it returned.
            Ok(count @ 1..) => (Ok(count), Ok(unsafe { self.filled(count) })),
            nothing => (nothing, Err(self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_appended_as_far_as_there_is_room() {
        for (room, bytes, expected) in [(3, &b"abcde"[..], &b"xyabc"[..]), (9, b"ab", b"xyab"), (0, b"ab", b"xya")] {
            let (buffer, count) = LentBuffer::new(b"xy".to_vec(), room).append(bytes);
            assert_eq!((&buffer[..], count), (expected, expected.len() - 2));
        }
    }

    #[test]
    fn the_spare_memory_has_the_size_of_the_room() {
        let lent_buffer = LentBuffer::new(b"xy".to_vec(), 100);
        let write = |spare: &mut [MaybeUninit<u8>]| {
            assert_eq!(spare.len(), 100);
            spare[..3].iter_mut().zip(b"abc").for_each(|(place, &byte)| {
                place.write(byte);
            });
            Ok(3)
        };
        // SAFETY: `write` writes the three bytes that it returns.
        let (count, buffer) = unsafe { lent_buffer.fill(write) };
        assert_eq!((count.ok(), buffer.ok().as_deref()), (Some(3), Some(&b"xyabc"[..])));
        let lent_buffer = LentBuffer::new(b"xy".to_vec(), 100);
        // SAFETY: the function returns no bytes.
        let (_, lent_buffer) = unsafe { lent_buffer.fill(|_| Err(io::ErrorKind::WouldBlock.into())) };
        assert_eq!(lent_buffer.map_err(|lent_buffer| lent_buffer.append(b"!").0), Err(b"xy!".to_vec()));
    }
}
