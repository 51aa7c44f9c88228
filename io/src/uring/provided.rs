//! The receive buffers, from which the kernel picks. All connections share one ring of them, which is small enough to
//! stay in the cache.

use super::ring::Ring;
use crate::limit;
use io_uring::types::BufRingEntry;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The number of the buffer group that receive operations name.
pub(super) const GROUP: u16 = 0;

const COUNT: usize = limit::RING_BUFFERS as usize;
const RING_BYTES: usize = COUNT * size_of::<BufRingEntry>();
const ALL_BYTES: usize = RING_BYTES + COUNT * limit::RING_BUFFER_BYTES;

const _: () = assert!(COUNT.is_power_of_two(), "the count must be a power of two, because the kernel masks indices");
const _: () = assert!(RING_BYTES.is_multiple_of(4096), "the buffers must begin on a page");

/// The ring of buffer descriptions, followed by the buffers, in one anonymous mapping.
#[derive(Debug)]
pub(super) struct BufferRing {
    memory: NonNull<u8>,
    tail: u16,
    /// The number of buffers in use. The memory of the others has never been touched.
    used: u16,
}

// SAFETY: this object alone owns the mapping, which any thread may access.
unsafe impl Send for BufferRing {}

impl BufferRing {
    pub(super) fn new(ring: &Ring) -> io::Result<BufferRing> {
        // SAFETY: the call creates an anonymous private mapping at an address that the kernel chooses.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), ALL_BYTES, protection, flags, -1, 0)
        };
        let memory = match NonNull::new(memory.cast::<u8>()) {
            Some(memory) if memory.as_ptr().cast() != libc::MAP_FAILED => memory,
            _ => return Err(io::Error::last_os_error()),
        };
        let mut buffers = BufferRing { memory, tail: 0, used: 0 };
        // SAFETY: the mapping is page-aligned, begins with room for COUNT entries, and outlives the ring with which it
        // is registered, because both are fields of one driver and the ring is dropped first.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(memory.as_ptr() as u64, limit::RING_BUFFERS, GROUP, 0)
        }?;
        buffers.grow_to(limit::RING_BUFFERS_AT_FIRST);
        Ok(buffers)
    }

    /// Doubles the number of buffers, up to [`limit::RING_BUFFERS`]. Must be called when a receive has found no buffer.
    pub(super) fn grow(&mut self) {
        self.grow_to(self.used.saturating_mul(2).min(limit::RING_BUFFERS));
    }

    /// Returns the number of buffers in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> u16 {
        self.used
    }

    fn grow_to(&mut self, count: u16) {
        for buffer in self.used..count {
            self.give_back(buffer);
        }
        self.used = count;
        self.publish();
    }

    fn buffer(&self, number: u16) -> *mut u8 {
        let offset = RING_BYTES + (number as usize % COUNT) * limit::RING_BUFFER_BYTES;
        // SAFETY: the offset is below ALL_BYTES, so it is inside the mapping.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    /// Returns the first `count` bytes of a buffer that a completion named and that has not been given back.
    pub(super) fn bytes(&self, number: u16, count: usize) -> &[u8] {
        // SAFETY: the bytes are inside the mapping. After a completion, the kernel does not write to the buffer until
        // it is given back, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.buffer(number), count.min(limit::RING_BUFFER_BYTES)) }
    }

    /// Returns the first `count` bytes of buffers that follow each other in memory, under the conditions of
    /// [`bytes`](Self::bytes).
    pub(super) fn run(&self, first: u16, count: usize) -> &[u8] {
        let behind = (COUNT - first as usize % COUNT) * limit::RING_BUFFER_BYTES;
        // SAFETY: the bytes begin in the first buffer and end before the mapping does. After the completions, the
        // kernel does not write to the buffers until they are given back, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.buffer(first), count.min(behind)) }
    }

    /// Queues a buffer for the kernel, which may use it after the next [`publish`](Self::publish).
    pub(super) fn give_back(&mut self, number: u16) {
        let address = self.buffer(number) as u64;
        let place = self.tail as usize & (COUNT - 1);
        // SAFETY: the place is below COUNT, so the entry is in the ring's part of the mapping. The kernel reads the
        // entry only after the tail has moved past it. The entry's last two bytes, which may be the tail, are not
        // written.
        unsafe {
            let entry = &mut *self.memory.as_ptr().cast::<BufRingEntry>().add(place);
            entry.set_addr(address);
            entry.set_len(limit::RING_BUFFER_BYTES as u32);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    pub(super) fn publish(&mut self) {
        // SAFETY: the ring's tail is in its first entry and aligned, and every access to it is atomic.
        unsafe {
            let tail = BufRingEntry::tail(self.memory.as_ptr().cast::<BufRingEntry>());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and the ring that used it is already dropped (the driver's fields drop in
        // order).
        unsafe { libc::munmap(self.memory.as_ptr().cast(), ALL_BYTES) };
    }
}
