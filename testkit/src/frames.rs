//! HTTP/2 frames as bytes, independent of the engine, so that tests can send invalid frames and read the server's
//! frames without the engine's parser. RFC 9113 sections 4, 6 and 7, RFC 7541 sections 5 and 6.

/// The preface: the first bytes that a client sends (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest payload of a frame unless settings allow more (RFC 9113 section 4.2).
pub const FRAME_BYTES: usize = 16_384;

/// The kind of frames that carry a body.
pub const DATA: u8 = 0x0;
/// The kind of frames that begin a field section.
pub const HEADERS: u8 = 0x1;
/// The kind of frames that give a stream a weight (deprecated).
pub const PRIORITY: u8 = 0x2;
/// The kind of frames that reset a stream.
pub const RST_STREAM: u8 = 0x3;
/// The kind of frames that carry settings or acknowledge them.
pub const SETTINGS: u8 = 0x4;
/// The kind of frames that announce a pushed response.
pub const PUSH_PROMISE: u8 = 0x5;
/// The kind of frames that request an acknowledgement, and of the acknowledgements.
pub const PING: u8 = 0x6;
/// The kind of frames that announce the end of a connection.
pub const GOAWAY: u8 = 0x7;
/// The kind of frames that widen a flow-control window.
pub const WINDOW_UPDATE: u8 = 0x8;
/// The kind of frames that continue a field section.
pub const CONTINUATION: u8 = 0x9;
/// The kind of frames that change a request's priority (RFC 9218 section 7.1).
pub const PRIORITY_UPDATE: u8 = 0x10;

/// The flag of DATA and HEADERS frames after which the sender sends no more of its message on the stream.
pub const END_STREAM: u8 = 0x1;
/// The flag of SETTINGS and PING frames that acknowledge a frame of the peer.
pub const ACK: u8 = 0x1;
/// The flag of HEADERS and CONTINUATION frames that end a field section.
pub const END_HEADERS: u8 = 0x4;
/// The flag of DATA and HEADERS frames whose payload is padded.
pub const PADDED: u8 = 0x8;

/// A frame: kind, flags, stream, payload.
pub type Frame<'a> = (u8, u8, u32, &'a [u8]);

/// Returns a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a SETTINGS frame with these identifiers and values.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let entry = |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &values.iter().flat_map(entry).collect::<Vec<u8>>())
}

/// Returns the first bytes of a client without settings of its own.
pub fn opening() -> Vec<u8> {
    [PREFACE, &settings(&[])].concat()
}

/// Returns a WINDOW_UPDATE frame. Stream 0 stands for the connection.
pub fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// Returns a header block of these fields: literals without Huffman coding and without indexing.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    block_of_bytes(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
}

/// Does the same as [`block`] for names and values as bytes.
pub fn block_of_bytes<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            push_length(text.len(), &mut bytes);
            bytes.extend_from_slice(text);
        }
    }
    bytes
}

/// Appends a length as an integer with a prefix of seven bits (RFC 7541 section 5.1).
fn push_length(length: usize, out: &mut Vec<u8>) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// Returns these fields as a HEADERS frame, with CONTINUATION frames if they do not fit. `flags` is END_STREAM or 0.
pub fn headers(flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    section(flags, stream, &block(fields))
}

/// Returns a header block as frames: HEADERS, and CONTINUATION if the block does not fit one frame. `flags` is
/// END_STREAM or 0.
pub fn section(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    let (mut kind, mut flags, mut rest, mut frames) = (HEADERS, flags, block, Vec::new());
    loop {
        let (part, after) = rest.split_at(rest.len().min(FRAME_BYTES));
        if after.is_empty() {
            frames.extend(frame(kind, flags | END_HEADERS, stream, part));
            return frames;
        }
        frames.extend(frame(kind, flags, stream, part));
        (kind, flags, rest) = (CONTINUATION, 0, after);
    }
}

/// Splits the bytes of one side into frames, without the preface.
///
/// # Panics
/// Panics if the last frame is incomplete.
pub fn frames(bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    let mut frames = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        frames.push((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), &after[..length]));
        rest = &after[length..];
    }
    assert!(rest.is_empty(), "the last frame is incomplete; it has {} bytes", rest.len());
    frames
}

/// Returns the number in the first four bytes of a payload, and 0 for a shorter one.
pub fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_as_they_were_joined() {
        let bytes = [opening(), frame(DATA, END_STREAM, 3, b"abc"), window_update(0, 7)].concat();
        let expected: [Frame<'_>; 3] =
            [(SETTINGS, 0, 0, b""), (DATA, END_STREAM, 3, b"abc"), (WINDOW_UPDATE, 0, 0, &[0, 0, 0, 7])];
        assert_eq!(frames(&bytes), expected);
        assert_eq!(settings(&[(4, 0x0102_0304)]), *b"\0\0\x06\x04\0\0\0\0\0\0\x04\x01\x02\x03\x04");
    }

    #[test]
    fn lengths_are_integers_of_hpack() {
        for (length, expected) in [
            (0, &[0][..]),
            (126, &[126]),
            (127, &[127, 0]),
            (254, &[127, 127]),
            (255, &[127, 0x80, 1]),
            (16_511, &[127, 0x80, 0x80, 1]),
        ] {
            let mut out = Vec::new();
            push_length(length, &mut out);
            assert_eq!(out, expected, "{length}");
        }
        assert_eq!(block(&[("x", "yz")]), *b"\0\x01x\x02yz");
    }

    #[test]
    fn a_long_block_continues() {
        let bytes = section(END_STREAM, 1, &[0; FRAME_BYTES + 1]);
        let expected: [Frame<'_>; 2] =
            [(HEADERS, END_STREAM, 1, &[0; FRAME_BYTES]), (CONTINUATION, END_HEADERS, 1, &[0])];
        assert_eq!(frames(&bytes), expected);
        assert_eq!(frames(&headers(0, 1, &[])), [(HEADERS, END_HEADERS, 1, &b""[..])]);
    }
}
