//! Encodes HTTP/2 frames, HPACK integers and header blocks (RFC 9113 section 4.1, RFC 7541 section 5).

use testkit::frames::FRAME_BYTES;
pub(super) use testkit::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE, PRIORITY,
    PRIORITY_UPDATE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

/// The identifier of SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 section 6.5.2).
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

/// The error code CANCEL.
pub(super) const CANCEL: u32 = 8;

/// The number of bytes by which [`opening`] increases the connection's window. Floods of WINDOW_UPDATE can still
/// increase it.
const WINDOW: u32 = 1 << 30;

// Header blocks. 0x82 is GET, 0x83 is POST and 0x86 is the scheme `http`. 0x04 and 0x01 precede a literal path and
// authority, which are not inserted into the table (RFC 7541 appendix A).
pub(super) const GET_HELLO: &[u8] = b"\x82\x86\x04\x06/hello\x01\x09localhost";
pub(super) const GET_STREAM: &[u8] = b"\x82\x86\x04\x18/stream?bytes=1000000000\x01\x09localhost";
pub(super) const GET_SLEEP: &[u8] = b"\x82\x86\x04\x0f/sleep?ms=50000\x01\x09localhost";
pub(super) const GET_HEADERS: &[u8] = b"\x82\x86\x04\x08/headers\x01\x09localhost";
pub(super) const POST_UPLOAD: &[u8] = b"\x83\x86\x04\x07/upload\x01\x09localhost";
pub(super) const POST_BODY: &[u8] = b"\x83\x86\x04\x05/body\x01\x09localhost";

/// Appends a frame.
pub(super) fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, content: &[u8]) {
    let length = (content.len() as u32).to_be_bytes();
    out.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(content);
}

/// Appends a whole header block: HEADERS, and CONTINUATION if it does not fit one frame. `flags` is END_STREAM or 0.
pub(super) fn headers(out: &mut Vec<u8>, flags: u8, stream: u32, block: &[u8]) {
    let (mut kind, mut flags, mut rest) = (HEADERS, flags, block);
    loop {
        let (piece, after) = rest.split_at(rest.len().min(FRAME_BYTES));
        if after.is_empty() {
            frame(out, kind, flags | END_HEADERS, stream, piece);
            return;
        }
        frame(out, kind, flags, stream, piece);
        (kind, flags, rest) = (CONTINUATION, 0, after);
    }
}

pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, by: u32) {
    frame(out, WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
}

pub(super) fn reset(out: &mut Vec<u8>, stream: u32) {
    frame(out, RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
}

pub(super) fn setting(number: u16, value: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (number.to_be_bytes(), value.to_be_bytes());
    [a, b, c, d, e, f]
}

/// Returns the preface, SETTINGS with the initial window of streams if one is given, and WINDOW_UPDATE for the
/// connection.
pub(super) fn opening(window: Option<u32>) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let settings = window.map(|window| setting(INITIAL_WINDOW_SIZE, window));
    frame(&mut out, SETTINGS, 0, 0, settings.as_ref().map_or(&[][..], |setting| &setting[..]));
    // Until its SETTINGS are acknowledged, the server opens no windows for bodies.
    frame(&mut out, SETTINGS, ACK, 0, b"");
    window_update(&mut out, 0, WINDOW);
    out
}

/// Returns an opening and a request with this block on each of `streams` streams.
pub(super) fn opening_with(window: Option<u32>, streams: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let mut out = opening(window);
    for stream in numbers(0, streams) {
        headers(&mut out, flags, stream, block);
    }
    out
}

/// Returns the numbers of the streams of a round. After the largest number they begin at 1 again, which a server
/// refuses.
pub(super) fn numbers(round: u32, streams: u32) -> impl Iterator<Item = u32> {
    let first = round.wrapping_mul(streams);
    (0..streams).map(move |index| (first.wrapping_add(index) << 1 | 1) & 0x7fff_ffff)
}

/// Appends an HPACK integer with a prefix of `bits` bits; `first` has the other bits of the first byte.
pub(super) fn integer(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let most = (1_usize << bits) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push(128 | (rest % 128) as u8);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// Appends an HPACK string without Huffman coding.
pub(super) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    integer(out, 0, 7, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a field that is inserted into the dynamic table as its newest entry, number 62.
pub(super) fn insert(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0x40);
    string(out, name);
    string(out, value);
}

#[cfg(test)]
mod tests {
    use super::super::spec::{Payload, Protocol};
    use super::super::table;
    use super::*;

    #[test]
    fn integers_are_those_of_the_rfc() {
        for (bits, value, expected) in
            [(5, 10, &[10][..]), (5, 1337, &[31, 154, 10]), (8, 42, &[42]), (4, 62, &[0x0f, 0x2f]), (6, 62, &[62])]
        {
            let mut out = Vec::new();
            integer(&mut out, 0, bits, value);
            assert_eq!(out, expected, "{value} in {bits}");
        }
    }

    #[test]
    fn blocks_of_requests_have_the_lengths_that_they_say() {
        for (block, path) in [
            (GET_HELLO, "/hello"),
            (GET_STREAM, "/stream?bytes=1000000000"),
            (GET_SLEEP, "/sleep?ms=50000"),
            (GET_HEADERS, "/headers"),
            (POST_UPLOAD, "/upload"),
            (POST_BODY, "/body"),
        ] {
            let mut expected = vec![block[0], 0x86, 0x04];
            string(&mut expected, path.as_bytes());
            expected.push(0x01);
            string(&mut expected, b"localhost");
            assert_eq!(block, expected, "{path}");
        }
    }

    #[test]
    fn a_long_block_continues() {
        let mut out = Vec::new();
        headers(&mut out, END_STREAM, 1, &[0; FRAME_BYTES + 1]);
        assert_eq!(out[..9], [0, 0x40, 0, HEADERS, END_STREAM, 0, 0, 0, 1]);
        assert_eq!(out[9 + FRAME_BYTES..], [0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn attacks_are_made_of_whole_frames() {
        // These attacks send an incomplete preface or an incomplete frame.
        let broken = ["http2-slow-preface", "http2-large-frame"];
        for attack in table::all().filter(|attack| attack.protocol == Protocol::Http2) {
            if broken.contains(&attack.name) {
                continue;
            }
            let mut out = [(attack.numbered_opening)(0), (attack.opening)()].concat();
            match attack.payload {
                Payload::Same(bytes) => out.extend(bytes()),
                Payload::Numbered(fill) => (0..2).for_each(|round| fill(round, &mut out)),
                Payload::Streams { request, .. } => request(1, &mut out),
                Payload::Nothing | Payload::Data(_) => {}
            }
            let mut rest = out.strip_prefix(PREFACE).expect(attack.name);
            while let Some((head, after)) = rest.split_at_checked(9) {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                assert!(length <= FRAME_BYTES, "{}", attack.name);
                rest = after.split_at_checked(length).expect(attack.name).1;
            }
            assert!(rest.is_empty(), "{}", attack.name);
        }
    }
}
