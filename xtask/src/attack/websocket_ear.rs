//! Parses the server's bytes on a WebSocket connection for the attacking process: the response to the upgrade, then
//! frames (RFC 6455 section 5.2), independent of how they arrive.

use super::ear::hear_status;
use super::tally::{self, Tally};

const SWITCHING: &[u8] = b"HTTP/1.1 101 ";
/// The number of bytes of a response up to its status.
const STATUS_BYTES: usize = 12;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The opcodes of frames that are counted.
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;

/// Splits received bytes into the head of the response and frames.
#[derive(Debug, Default)]
pub(super) struct WebSocketFrames {
    is_open: bool,
    /// The head of the response, or the start of a frame.
    start: Vec<u8>,
    /// The number of payload bytes to skip.
    left: u64,
}

impl WebSocketFrames {
    /// Counts the status, messages, and Pong and Close frames in these bytes.
    pub(super) fn hear(&mut self, mut bytes: &[u8], tally: &Tally) {
        if !self.is_open {
            let before = self.start.len();
            self.start.extend_from_slice(bytes);
            if before < STATUS_BYTES && self.start.len() >= STATUS_BYTES {
                hear_status(&self.start, tally);
            }
            let Some(at) = self.start.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD) else {
                return;
            };
            self.is_open = true;
            if !self.start.starts_with(SWITCHING) {
                // No frames follow.
                self.left = u64::MAX;
            }
            self.start.clear();
            bytes = &bytes[at + END_OF_HEAD.len() - before..];
        }
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = self.left.min(bytes.len() as u64);
                self.left -= count;
                bytes = &bytes[count as usize..];
                continue;
            }
            self.start.push(bytes[0]);
            bytes = &bytes[1..];
            if self.start.len() == wanted(&self.start) {
                hear_frame(&self.start, tally);
                let (head, length) = head(&self.start);
                self.left = length - (self.start.len() - head) as u64;
                self.start.clear();
            }
        }
    }
}

/// Returns the length of a frame's head, of which the first two bytes must be complete, and the length of its payload
/// as far as the bytes show it. The frames of servers have no mask.
fn head(start: &[u8]) -> (usize, u64) {
    let long = |bytes: &[u8]| bytes.iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
    match start[1] & 0x7f {
        126 => (4, long(start.get(2..4).unwrap_or_default())),
        127 => (10, long(start.get(2..10).unwrap_or_default())),
        length => (2, u64::from(length)),
    }
}

/// Returns the length that `start` must reach: a frame's head and, for Close, the status.
fn wanted(start: &[u8]) -> usize {
    if start.len() < 2 {
        return 2;
    }
    let (head, length) = head(start);
    if start[0] & 0x0f == CLOSE && length >= 2 { head + 2 } else { head }
}

fn hear_frame(start: &[u8], tally: &Tally) {
    match start[0] & 0x0f {
        TEXT | BINARY => tally.hear(tally::MESSAGE),
        PONG => tally.hear(tally::PONG),
        CLOSE => match *start {
            [_, _, a, b] => tally.hear(tally::close(u16::from_be_bytes([a, b]))),
            _ => tally.hear(tally::CLOSE),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn frames_are_counted_however_they_arrive() {
        let mut bytes =
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x02hi\x82\x7e\x01\x00".to_vec();
        bytes.extend([b'x'; 256]);
        bytes.extend(b"\x8a\x00\x81\x00\x88\x05\x03\xf1why");
        for size in [1, 2, 5, 60, 1000] {
            let (tally, mut frames) = (Tally::new(), WebSocketFrames::default());
            bytes.chunks(size).for_each(|piece| frames.hear(piece, &tally));
            let line = tally.line(0.0, Duration::ZERO);
            assert!(line.ends_with("said=101:1,898:3,899:1,910:1"), "in pieces of {size}: {line}");
        }
    }
}
