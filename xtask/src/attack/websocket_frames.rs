//! Encodes the opening handshake and the frames of WebSocket clients (RFC 6455, RFC 8441).

use super::deflate;
use super::frames::{headers, numbers, string};

/// The bit of the last frame of a message.
pub(super) const FIN: u8 = 0x80;
/// The bit of the first frame of a compressed message (RFC 7692 section 6).
pub(super) const COMPRESSED: u8 = 0x40;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

const MASKED: u8 = 0x80;

/// The extension of RFC 7692.
const DEFLATE: &str = "permessage-deflate";

/// Returns the head of a frame with a payload of this length and the mask 0, which leaves the payload as it is.
pub(super) fn frame_head(first: u8, length: u64) -> Vec<u8> {
    let mut out = vec![first];
    match length {
        0..126 => out.push(MASKED | length as u8),
        126..65_536 => {
            out.push(MASKED | 126);
            out.extend((length as u16).to_be_bytes());
        }
        _ => {
            out.push(MASKED | 127);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend([0; 4]);
    out
}

/// Returns a frame. `first` has the opcode and the bits of the first byte.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = frame_head(first, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

/// Returns a request for an upgrade on this path.
pub(super) fn upgrade(path: &str) -> Vec<u8> {
    upgrade_with(path, "")
}

/// Returns a request for an upgrade that proposes permessage-deflate.
pub(super) fn upgrade_compressed(path: &str) -> Vec<u8> {
    upgrade_with(path, &format!("Sec-WebSocket-Extensions: {DEFLATE}\r\n"))
}

fn upgrade_with(path: &str, fields: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    )
    .into_bytes()
}

/// Returns a request to enter a room of the demo's chat.
pub(super) fn join(room: &str, name: &str) -> Vec<u8> {
    upgrade(&chat(room, name))
}

/// Returns the path of the WebSocket of a room of the demo's chat.
pub(super) fn chat(room: &str, name: &str) -> String {
    format!("/chat/ws?room={room}&name={name}")
}

/// Appends the CONNECT request of a WebSocket on a stream of HTTP/2 (RFC 8441 section 5).
pub(super) fn connect(out: &mut Vec<u8>, stream: u32, path: &str, is_compressed: bool) {
    // 0x02, 0x04 and 0x01 precede a literal method, path and authority, 0x00 precedes a literal name (RFC 7541 appendix
    // A). 0x86 is the scheme `http`.
    let mut block = b"\x02\x07CONNECT\x86\x01\x09localhost\x04".to_vec();
    string(&mut block, path.as_bytes());
    let mut field = |name: &str, value: &str| {
        block.push(0);
        string(&mut block, name.as_bytes());
        string(&mut block, value.as_bytes());
    };
    field(":protocol", "websocket");
    field("sec-websocket-version", "13");
    if is_compressed {
        field("sec-websocket-extensions", DEFLATE);
    }
    // Pseudo-header fields must come first (RFC 9113 section 8.3), and so does `:protocol` here.
    headers(out, 0, stream, &block);
}

/// Appends the CONNECT requests of `streams` WebSockets.
pub(super) fn connect_all(out: &mut Vec<u8>, streams: u32, path: &str, is_compressed: bool) {
    numbers(0, streams).for_each(|stream| connect(out, stream, path, is_compressed));
}

/// Returns a message of `length` zero bytes, which is compressed 1,032 to 1.
pub(super) fn bomb(length: usize) -> Vec<u8> {
    frame(FIN | COMPRESSED | BINARY, &deflate::zeros(length))
}

/// Returns the first fragment of such a message.
pub(super) fn half_bomb(length: usize) -> Vec<u8> {
    frame(COMPRESSED | BINARY, &deflate::zeros(length))
}

/// Returns words of random letters, which a compressor reduces to about half.
pub(super) fn words(length: usize) -> Vec<u8> {
    // A linear congruential generator (Numerical Recipes), so that each run sends the same text.
    let (mut state, mut text) = (1_u32, Vec::with_capacity(length));
    while text.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let letter = (state >> 24) % 30;
        text.push(if letter < 26 { b'a' + letter as u8 } else { b' ' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_lengths_that_they_say() {
        for (length, head) in [(0, 6), (125, 6), (126, 8), (65_535, 8), (65_536, 14)] {
            let found = frame(FIN | TEXT, &vec![b'x'; length]);
            assert_eq!(found.len(), head + length);
        }
        assert_eq!(frame(FIN | TEXT, b"a"), [0x81, 0x81, 0, 0, 0, 0, b'a']);
        assert_eq!(frame_head(FIN | BINARY, 300)[..4], [0x82, 0xfe, 1, 44]);
    }
}
