//! Finds the ends of WebSocket frames in bytes that are passed on, so that the proxy can add a Close frame of its own.

/// A Close frame of a server with the code 1001, going away.
pub(super) const GOING_AWAY: &[u8] = &[0x88, 2, 0x03, 0xe9];

/// The most bytes of a frame's header.
const HEADER_BYTES: usize = 14;

/// The place in a sequence of frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The bytes of an incomplete header.
    header: [u8; HEADER_BYTES],
    known: usize,
    /// The number of bytes of the payload that have not passed yet.
    left: u64,
    has_closed: bool,
}

impl Frames {
    /// Returns true between two frames, unless a Close frame has passed, which nothing may follow.
    pub(super) fn is_between(&self) -> bool {
        self.known == 0 && self.left == 0 && !self.has_closed
    }

    /// Passes bytes. Stops at the first end of a frame if `stops` is true. Returns the number of bytes that have passed.
    pub(super) fn pass(&mut self, bytes: &[u8], stops: bool) -> usize {
        let mut at = 0;
        while at < bytes.len() && !(stops && self.is_between()) {
            if self.left > 0 {
                let passed = self.left.min((bytes.len() - at) as u64);
                self.left -= passed;
                at += passed as usize;
                continue;
            }
            self.header[self.known] = bytes[at];
            (self.known, at) = (self.known + 1, at + 1);
            if let Some(length) = payload(&self.header[..self.known]) {
                self.has_closed |= self.header[0] & 0x0f == 8;
                (self.known, self.left) = (0, length);
            }
        }
        at
    }
}

/// Returns the length of the payload behind a header, or `None` if more bytes of the header are missing (RFC 6455 section
/// 5.2).
fn payload(header: &[u8]) -> Option<u64> {
    let &second = header.get(1)?;
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let masked = if second & 0x80 == 0 { 0 } else { 4 };
    if header.len() < 2 + extended + masked {
        return None;
    }
    let long = header[2..2 + extended].iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
    Some(if extended == 0 { u64::from(second & 0x7f) } else { long })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_end_where_their_lengths_say_however_they_are_split() {
        let mut stream = vec![0x81, 2, b'h', b'i'];
        let mut ends = vec![4];
        for (head, length) in [
            (&[0x82, 126, 1, 0][..], 256),
            (&[0x02, 127, 0, 0, 0, 0, 0, 1, 0, 0], 65_536),
            (&[0x89, 0x80, 1, 2, 3, 4], 0),
        ] {
            stream.extend_from_slice(head);
            stream.extend(std::iter::repeat_n(0x81, length));
            ends.push(stream.len());
        }
        for size in [1, 3, 1000, usize::MAX] {
            let (mut frames, mut at, mut found) = (Frames::default(), 0, Vec::new());
            while at < stream.len() {
                let part = &stream[at..stream.len().min(at.saturating_add(size))];
                // The first byte is passed, so that a frame has begun.
                at += frames.pass(&part[..1], false);
                at += frames.pass(&part[1..], true);
                if frames.is_between() {
                    found.push(at);
                }
            }
            assert_eq!(found, ends, "parts of {size}");
        }
        let mut frames = Frames::default();
        frames.pass(GOING_AWAY, false);
        assert!(!frames.is_between(), "nothing follows a Close frame");
    }
}
