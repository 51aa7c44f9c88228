//! Buffers of long messages, which a worker reuses: the kernel has to clear new memory before a program gets it, which
//! takes longer than to copy a message.

use bytes::Bytes;
use std::cell::RefCell;

/// The smallest and the largest capacity of a buffer that is kept. The memory of smaller ones comes from the allocator
/// fast.
const KEPT_BYTES: std::ops::RangeInclusive<usize> = 64 * 1024..=2 * 1024 * 1024;

/// The length from which on a message may get a buffer that was used before.
const LONG_BYTES: usize = 16 * 1024;

/// The most bytes of all buffers that a worker keeps.
const ALL_BYTES: usize = 16 * 1024 * 1024;

/// The buffers that a thread keeps.
#[derive(Default)]
struct Buffers {
    kept: Vec<Vec<u8>>,
    /// True if this thread receives messages. Other threads, which may drop them, have no use for a buffer.
    receives: bool,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers { kept: Vec::new(), receives: false }) };
}

/// Appends a part to a message, of whose current frame `left` more bytes are announced.
pub(super) fn append(message: &mut Vec<u8>, part: &[u8], left: u64) {
    let length = message.len() + part.len();
    if length > message.capacity() && length >= LONG_BYTES {
        let larger = |buffers: &mut Buffers| {
            buffers.receives = true;
            let at = buffers.kept.iter().position(|buffer| buffer.capacity() >= length)?;
            Some(buffers.kept.swap_remove(at))
        };
        match BUFFERS.with_borrow_mut(larger) {
            Some(mut buffer) => {
                buffer.extend_from_slice(message);
                *message = buffer;
            }
            // At most twice what has arrived, because the peer may send no more.
            None => {
                let more = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, length);
                message.reserve_exact(part.len() + more);
            }
        }
    }
    message.extend_from_slice(part);
}

/// Turns a buffer into the bytes of a message. The thread that drops the last of them keeps the buffer, if it receives
/// messages itself.
pub(super) fn freeze(buffer: Vec<u8>) -> Bytes {
    match KEPT_BYTES.contains(&buffer.capacity()) {
        true => Bytes::from_owner(Kept(buffer)),
        false => buffer.into(),
    }
}

/// A buffer that is kept when it is dropped.
struct Kept(Vec<u8>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        // Fails if the thread is ending.
        let _ = BUFFERS.try_with(|buffers| {
            if let Ok(mut buffers) = buffers.try_borrow_mut()
                && buffers.receives
                && buffers.kept.iter().map(Vec::capacity).sum::<usize>() + buffer.capacity() <= ALL_BYTES
            {
                buffers.kept.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the capacity of a message after a part was appended.
    fn appended(length: usize, left: u64) -> usize {
        let mut message = vec![1; 10];
        append(&mut message, &vec![2; length - 10], left);
        assert_eq!((message.len(), message[9], message[10], message[length - 1]), (length, 1, 2, 2));
        message.capacity()
    }

    #[test]
    fn a_message_gets_what_its_frame_announces_but_at_most_twice_what_has_arrived() {
        assert_eq!(appended(20_000, 100), 20_100);
        assert_eq!(appended(20_000, u64::MAX), 40_000);
        assert!(appended(20_000, 0) > 20_000);
    }

    #[test]
    fn a_buffer_is_used_again_when_all_bytes_are_dropped() {
        assert_eq!(appended(20_000, 1), 20_001);
        let mut buffer = Vec::with_capacity(64 * 1024);
        buffer.extend_from_slice(b"secret");
        let message = freeze(buffer);
        let copy = message.clone();
        drop(message);
        assert_eq!(appended(20_000, 1), 20_001, "the bytes are still used");
        drop(copy);
        assert_eq!(appended(64 * 1024 + 1, 1), 64 * 1024 + 2, "the one that is kept is too small");
        assert_eq!(appended(20_000, 1), 64 * 1024);
        assert_eq!(appended(20_000, 1), 20_001, "there is no other");
    }

    #[test]
    fn a_thread_that_receives_nothing_keeps_nothing() {
        drop(freeze(Vec::with_capacity(1 << 20)));
        assert!(BUFFERS.with_borrow(|buffers| buffers.kept.is_empty()));
    }

    #[test]
    fn the_bytes_that_are_kept_are_bounded() {
        assert!(appended(20_000, 0) > 0);
        for (capacity, kept) in [(1000, 0), (3 << 20, 0), (1 << 20, ALL_BYTES >> 20)] {
            let messages: Vec<_> = (0..20).map(|_| freeze(Vec::with_capacity(capacity))).collect();
            drop(messages);
            assert_eq!(BUFFERS.with_borrow(|buffers| buffers.kept.len()), kept, "{capacity}");
        }
    }
}
