//! Frames: the nine-byte head, and the numbers of kinds, flags and error codes (RFC 9113 sections 4, 6 and 7).

use alloc::vec::Vec;

/// The number of bytes of a frame's head.
pub(super) const HEAD_BYTES: usize = 9;

/// The size in bytes of the largest payload that every peer accepts, and of the largest that we accept (RFC 9113
/// section 6.5.2).
pub const FRAME_BYTES: u32 = 16_384;

/// The connection preface: the first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The numbers of the kinds of frames.
pub(super) mod kind {
    pub(in crate::h2) const DATA: u8 = 0;
    pub(in crate::h2) const HEADERS: u8 = 1;
    pub(in crate::h2) const PRIORITY: u8 = 2;
    pub(in crate::h2) const RST_STREAM: u8 = 3;
    pub(in crate::h2) const SETTINGS: u8 = 4;
    pub(in crate::h2) const PUSH_PROMISE: u8 = 5;
    pub(in crate::h2) const PING: u8 = 6;
    pub(in crate::h2) const GOAWAY: u8 = 7;
    pub(in crate::h2) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::h2) const CONTINUATION: u8 = 9;
    /// RFC 9218 section 7.1.
    pub(in crate::h2) const PRIORITY_UPDATE: u8 = 16;
}

/// The bits of the flags. The same bit has different meanings in different kinds of frames.
pub(super) mod flag {
    pub(in crate::h2) const END_STREAM: u8 = 1;
    pub(in crate::h2) const ACK: u8 = 1;
    pub(in crate::h2) const END_HEADERS: u8 = 4;
    pub(in crate::h2) const PADDED: u8 = 8;
    pub(in crate::h2) const PRIORITY: u8 = 32;
}

/// The error code that a stream or a connection ends with (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Code {
    /// No error, as in a graceful shutdown.
    NoError = 0,
    /// The peer violated the protocol.
    Protocol = 1,
    /// The sender of the code failed.
    Internal = 2,
    /// The peer sent more bytes than the windows allow.
    FlowControl = 3,
    /// A frame for a stream that is over.
    StreamClosed = 5,
    /// A frame of a wrong size.
    FrameSize = 6,
    /// The stream was not processed. Its request may be sent again.
    Refused = 7,
    /// The sender of the code no longer needs the stream.
    Cancel = 8,
    /// Compressed fields cannot be decoded.
    Compression = 9,
    /// The connection behind a tunnel has failed (RFC 9113 section 8.5).
    Connect = 10,
    /// The peer causes too much load.
    EnhanceYourCalm = 11,
    /// The server requires HTTP/1.1 for the request.
    Http11Required = 13,
    /// Any other number.
    Other = 0xffff_ffff,
}

impl Code {
    pub(super) fn of(number: u32) -> Code {
        match number {
            0 => Code::NoError,
            1 => Code::Protocol,
            2 => Code::Internal,
            3 => Code::FlowControl,
            5 => Code::StreamClosed,
            6 => Code::FrameSize,
            7 => Code::Refused,
            8 => Code::Cancel,
            9 => Code::Compression,
            10 => Code::Connect,
            11 => Code::EnhanceYourCalm,
            13 => Code::Http11Required,
            _ => Code::Other,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    /// Reads a head from the front of the bytes. Returns `None` if there are too few bytes.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<FrameHead> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = bytes.first_chunk::<HEAD_BYTES>()?;
        Some(FrameHead {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            // The highest bit is reserved and ignored.
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        })
    }

    pub(super) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    #[inline]
    pub(super) const fn bytes(self) -> [u8; HEAD_BYTES] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s0, s1, s2, s3]
    }
}

/// The streams that a kind of frame may name: none (number 0), one, or either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Connection,
    Stream,
    Either,
}

/// The rules for each kind of frame: the streams that it may name, and its size. Each violation ends the connection.
/// Rules with other consequences (padding, PRIORITY of a wrong size) are checked by the code that reads the frame.
macro_rules! shapes {
    ($($kind:ident: $on:ident, $least:literal..=$most:expr, $name:literal;)*) => {
        impl FrameHead {
            /// Returns the error that a frame's head alone shows, if there is one.
            #[inline]
            pub(super) const fn wrong(self) -> Option<(Code, &'static str)> {
                let (on, least, most, misplaced, missized) = match self.kind {
                    $(kind::$kind => (
                        On::$on,
                        $least,
                        $most,
                        concat!($name, " on a wrong stream"),
                        concat!($name, " of a wrong size"),
                    ),)*
                    _ => return None,
                };
                match on {
                    On::Connection if self.stream != 0 => Some((Code::Protocol, misplaced)),
                    On::Stream if self.stream == 0 => Some((Code::Protocol, misplaced)),
                    _ if self.length < least || self.length > most => Some((Code::FrameSize, missized)),
                    _ => None,
                }
            }
        }
    };
}

shapes! {
    DATA: Stream, 0..=FRAME_BYTES, "DATA";
    HEADERS: Stream, 0..=FRAME_BYTES, "HEADERS";
    PRIORITY: Stream, 0..=FRAME_BYTES, "PRIORITY";
    RST_STREAM: Stream, 4..=4, "RST_STREAM";
    SETTINGS: Connection, 0..=FRAME_BYTES, "SETTINGS";
    PING: Connection, 8..=8, "PING";
    GOAWAY: Connection, 8..=FRAME_BYTES, "GOAWAY";
    WINDOW_UPDATE: Either, 4..=4, "WINDOW_UPDATE";
    PRIORITY_UPDATE: Connection, 4..=FRAME_BYTES, "PRIORITY_UPDATE";
}

/// Reads a 32-bit big-endian number from the front of a payload. Returns 0 if the payload is too short.
pub(super) fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

pub(super) fn write_reset(stream: u32, code: Code, out: &mut Vec<u8>) {
    FrameHead { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.write(out);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

pub(super) fn write_window_update(stream: u32, more: u32, out: &mut Vec<u8>) {
    FrameHead { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.write(out);
    out.extend_from_slice(&more.to_be_bytes());
}

pub(super) fn write_goaway(last: u32, code: Code, text: &str, out: &mut Vec<u8>) {
    FrameHead { length: 8 + text.len() as u32, kind: kind::GOAWAY, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn write_ping(payload: &[u8], is_answer: bool, out: &mut Vec<u8>) {
    let flags = if is_answer { flag::ACK } else { 0 };
    FrameHead { length: 8, kind: kind::PING, flags, stream: 0 }.write(out);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead { length: 0x01_02_03, kind: kind::HEADERS, flags: 0x25, stream: 0x7fff_fffe };
        let mut out = Vec::new();
        head.write(&mut out);
        assert_eq!(out, [1, 2, 3, 1, 0x25, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHead::read(&out), Some(head));
        out[5] |= 0x80;
        assert_eq!(FrameHead::read(&out), Some(head), "the reserved bit is ignored");
        assert_eq!(FrameHead::read(&out[..8]), None);
    }

    #[test]
    fn each_kind_has_its_streams_and_its_sizes() {
        let fits = |kind, stream, length| FrameHead { length, kind, flags: 0, stream }.wrong().map(|wrong| wrong.0);
        let (protocol, size) = (Some(Code::Protocol), Some(Code::FrameSize));
        for (kind, on_none, on_one, least, most) in [
            (kind::DATA, protocol, None, 0, FRAME_BYTES),
            (kind::HEADERS, protocol, None, 0, FRAME_BYTES),
            (kind::PRIORITY, protocol, None, 0, FRAME_BYTES),
            (kind::RST_STREAM, protocol, None, 4, 4),
            (kind::SETTINGS, None, protocol, 0, FRAME_BYTES),
            (kind::PING, None, protocol, 8, 8),
            (kind::GOAWAY, None, protocol, 8, FRAME_BYTES),
            (kind::WINDOW_UPDATE, None, None, 4, 4),
            (kind::PRIORITY_UPDATE, None, protocol, 4, FRAME_BYTES),
        ] {
            let stream = u32::from(on_one.is_none());
            assert_eq!((fits(kind, 0, most), fits(kind, 1, most)), (on_none, on_one), "{kind}");
            assert_eq!((fits(kind, stream, least), fits(kind, stream, most + 1)), (None, size), "{kind}");
            assert!(least == 0 || fits(kind, stream, least - 1) == size, "{kind}");
        }
        assert_eq!((fits(0x77, 0, 0), fits(0x77, 9, 9)), (None, None), "unknown kinds have no rules");
    }

    #[test]
    fn codes_are_read_as_they_are_written() {
        for number in 0..20 {
            let code = Code::of(number);
            assert!(code == Code::Other || code as u32 == number, "{number}");
        }
    }
}
