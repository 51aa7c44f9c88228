//! Buffers of long messages, which a worker reuses: the kernel has to clear new memory before a program gets it, which
//! takes longer than to copy a message.

use bytes::Bytes;
use highwire_engine::context;
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
    /// True if this thread receives the messages of many connections. Other threads, which may drop them, have no use for
    /// a buffer.
    receives: bool,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers { kept: Vec::new(), receives: false }) };
}

/// Appends a part to a message, of whose current frame `left` more bytes are announced.
pub(super) fn append(message: &mut Vec<u8>, part: &[u8], left: u64) {
    let length = message.len() + part.len();
    if length > message.capacity() && length >= LONG_BYTES {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        // A buffer that is much longer than the message would hold memory that is not counted.
        let fitting = length..=length.saturating_add(left).saturating_mul(2);
        let larger = |buffers: &mut Buffers| {
            buffers.receives = context::serves_many();
            let at = buffers.kept.iter().position(|buffer| fitting.contains(&buffer.capacity()))?;
            Some(buffers.kept.swap_remove(at))
        };
        match BUFFERS.with_borrow_mut(larger) {
            Some(mut buffer) => {
                buffer.extend_from_slice(message);
                *message = buffer;
            }
            // At most twice what has arrived, because the peer may send no more. At least half more, because the
            // message may have many frames.
            None => message.reserve_exact(part.len() + left.clamp(length / 2, length)),
        }
    }
    message.extend_from_slice(part);
}

/// Turns a buffer into the bytes of a message. The thread that drops the last of them keeps the buffer, if it receives
/// messages itself.
pub(super) fn freeze(buffer: Vec<u8>) -> Bytes {
    // The bytes are counted by their length, wherever they go.
    let is_full = buffer.capacity() / 2 <= buffer.len();
    match is_full && KEPT_BYTES.contains(&buffer.capacity()) {
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
    use crate::App;
    use crate::testing::Client;

    /// Runs a test on a worker.
    fn on_a_worker(test: fn()) {
        assert_eq!(Client::new(App::new().get("/", test)).expect("an app").get("/").send().status(), 200);
    }

    /// Returns the message to which parts were appended, as a frame of `announced` bytes.
    fn appended(parts: &[usize], announced: usize) -> Vec<u8> {
        let (mut message, mut length) = (Vec::new(), 0);
        for (part, byte) in parts.iter().zip(1..) {
            length += part;
            append(&mut message, &vec![byte; *part], (announced - length) as u64);
        }
        let expected: Vec<u8> = parts.iter().zip(1..).flat_map(|(part, byte)| vec![byte; *part]).collect();
        assert!(message == expected);
        message
    }

    #[test]
    fn a_message_gets_what_its_frame_announces_but_at_most_twice_what_has_arrived() {
        for (parts, announced, capacity) in [
            (&[20_000][..], 30_000, 30_000),
            (&[20_000], 1_000_000, 40_000),
            (&[20_000], 20_000, 30_000),
            (&[20_000, 10_000], 1_000_000, 40_000),
            (&[20_000, 30_000], 1_000_000, 100_000),
        ] {
            assert_eq!(appended(parts, announced).capacity(), capacity, "{parts:?} of {announced}");
        }
        // Many small frames do not cause many allocations.
        let (mut message, mut capacities) = (Vec::new(), Vec::new());
        for _ in 0..60_000 {
            append(&mut message, &[1; 16], 0);
            capacities.push(message.capacity());
        }
        capacities.dedup();
        assert!(capacities.len() < 30, "{capacities:?}");
    }

    #[test]
    fn a_buffer_is_used_again_when_all_bytes_are_dropped() {
        on_a_worker(|| {
            let message = freeze(appended(&[90_000, 10_000], 100_000));
            let copy = message.clone();
            drop(message);
            assert_eq!(appended(&[40_000], 60_000).capacity(), 60_000, "the bytes are still used");
            drop(copy);
            assert_eq!(appended(&[140_000], 140_000).capacity(), 210_000, "the one that is kept is too small");
            assert_eq!(appended(&[30_000], 40_000).capacity(), 45_000, "the one that is kept is too large");
            assert_eq!(appended(&[40_000], 70_000).capacity(), 135_000);
            assert_eq!(appended(&[40_000], 70_000).capacity(), 70_000, "there is no other");
        });
    }

    #[test]
    fn the_bytes_that_are_kept_are_bounded() {
        on_a_worker(|| {
            appended(&[20_000], 20_000);
            for (capacity, kept) in [(1000, 0), (3 << 20, 0), (1 << 20, ALL_BYTES >> 20)] {
                let messages: Vec<_> = (0..20).map(|_| freeze(vec![0; capacity])).collect();
                drop(messages);
                assert_eq!(BUFFERS.with_borrow(|buffers| buffers.kept.len()), kept, "{capacity}");
            }
        });
    }

    #[test]
    fn a_thread_that_receives_nothing_keeps_nothing() {
        appended(&[20_000], 20_000);
        drop(freeze(vec![0; 1 << 20]));
        assert!(BUFFERS.with_borrow(|buffers| buffers.kept.is_empty()));
    }

    #[test]
    fn a_message_does_not_hold_a_buffer_that_is_much_longer() {
        on_a_worker(|| {
            appended(&[20_000], 20_000);
            let mut buffer = Vec::with_capacity(1 << 20);
            buffer.extend_from_slice(&[1; 1000]);
            drop(freeze(buffer));
            assert!(BUFFERS.with_borrow(|buffers| buffers.kept.is_empty()));
        });
    }
}
