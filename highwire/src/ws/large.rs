//! The growth of a message's buffer, which may be one that an earlier message has used.

use highwire_engine::memory;

/// The length from which a message may get a buffer that was used before.
const LONG_BYTES: usize = 16 * 1024;

/// Appends a part to a message whose current frame announces `left` more bytes.
pub(super) fn append(message: &mut Vec<u8>, part: &[u8], left: u64) {
    let length = message.len() + part.len();
    if length > message.capacity() && length >= LONG_BYTES {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        // A much longer buffer would hold memory that is not counted.
        let fitting = length..=length.saturating_add(left).saturating_mul(2);
        match memory::take(fitting) {
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
            let message = memory::share(appended(&[90_000, 10_000], 100_000));
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
}
