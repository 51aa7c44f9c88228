//! The header of a frame (RFC 6455 section 5.2).

use super::Failure;
use crate::Role;
use alloc::vec::Vec;

/// The most bytes of a frame's header.
pub const HEADER_BYTES: usize = 14;

/// The most payload bytes of a control frame (RFC 6455 section 5.5).
pub(super) const CONTROL_BYTES: usize = 125;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Text in UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn of(number: u8) -> Option<Opcode> {
        [Opcode::Continuation, Opcode::Text, Opcode::Binary, Opcode::Close, Opcode::Ping, Opcode::Pong]
            .into_iter()
            .find(|opcode| *opcode as u8 == number)
    }

    pub(super) fn is_control(self) -> bool {
        self as u8 >= Opcode::Close as u8
    }
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Opcode {
        match kind {
            Kind::Text => Opcode::Text,
            Kind::Binary => Opcode::Binary,
        }
    }
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) opcode: Opcode,
    pub(super) is_last: bool,
    /// The bit RSV1: the message is compressed.
    pub(super) compressed: bool,
    pub(super) length: u64,
    pub(super) mask: Option<[u8; 4]>,
    /// The header's own length in bytes.
    pub(super) size: usize,
}

const LAST: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

impl Header {
    /// Parses the header at the front of `window`. Returns `None` if more bytes are needed. Each byte is checked as soon
    /// as it is there, so that an invalid frame is refused alike however the input is split. `role` is ours.
    #[inline]
    pub(super) fn parse(window: &[u8], role: Role, may_be_compressed: bool) -> Result<Option<Header>, Failure> {
        let Some(&first) = window.first() else { return Ok(None) };
        let Some(opcode) = Opcode::of(first & 0x0f) else {
            return Err(Failure::protocol("a frame has an opcode that is not defined"));
        };
        let (is_last, compressed) = (first & LAST != 0, first & COMPRESSED != 0);
        let begins_message = matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & RESERVED != 0 || (compressed && !(may_be_compressed && begins_message)) {
            return Err(Failure::protocol("a frame has a reserved bit that no extension uses"));
        }
        if opcode.is_control() && !is_last {
            return Err(Failure::protocol("a control frame is fragmented"));
        }
        let Some(&second) = window.get(1) else { return Ok(None) };
        let is_masked = second & MASKED != 0;
        match role {
            Role::Server if !is_masked => return Err(Failure::protocol("a frame from a client is not masked")),
            Role::Client if is_masked => return Err(Failure::protocol("a frame from a server is masked")),
            _ => {}
        }
        let short = second & !MASKED;
        if opcode.is_control() && usize::from(short) > CONTROL_BYTES {
            return Err(Failure::protocol("a control frame has more than 125 bytes"));
        }
        let (length, at) = match short {
            LENGTH_16 => {
                let Some(bytes) = window[2..].first_chunk::<2>() else { return Ok(None) };
                (u64::from(u16::from_be_bytes(*bytes)), 4)
            }
            LENGTH_64 => {
                let Some(bytes) = window[2..].first_chunk::<8>() else { return Ok(None) };
                (u64::from_be_bytes(*bytes), 10)
            }
            _ => (u64::from(short), 2),
        };
        let is_minimal = match short {
            LENGTH_16 => length >= u64::from(LENGTH_16),
            LENGTH_64 => length > u64::from(u16::MAX),
            _ => true,
        };
        if !is_minimal {
            return Err(Failure::protocol("a frame's length is not encoded in the shortest form"));
        }
        if length > i64::MAX as u64 {
            return Err(Failure::protocol("a frame's length has its highest bit set"));
        }
        let (mask, size) = if is_masked {
            let Some(mask) = window[at..].first_chunk::<4>() else { return Ok(None) };
            (Some(*mask), at + 4)
        } else {
            (None, at)
        };
        Ok(Some(Header { opcode, is_last, compressed, length, mask, size }))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] =
            self.opcode as u8 | if self.is_last { LAST } else { 0 } | if self.compressed { COMPRESSED } else { 0 };
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        let mut size = 2;
        if self.length < u64::from(LENGTH_16) {
            bytes[1] = self.length as u8 | masked;
        } else if let Ok(length) = u16::try_from(self.length) {
            bytes[1] = LENGTH_16 | masked;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            size = 4;
        } else {
            bytes[1] = LENGTH_64 | masked;
            bytes[2..10].copy_from_slice(&self.length.to_be_bytes());
            size = 10;
        }
        if let Some(mask) = self.mask {
            bytes[size..size + 4].copy_from_slice(&mask);
            size += 4;
        }
        out.extend_from_slice(&bytes[..size]);
    }
}

/// Returns the number of bytes of the header of a frame with `length` payload bytes.
#[inline]
pub const fn header_bytes(length: usize, is_masked: bool) -> usize {
    let size = match length {
        0..126 => 2,
        126..0x1_0000 => 4,
        _ => 10,
    };
    size + if is_masked { 4 } else { 0 }
}

/// Appends the header of a server's frame that is a whole message of `length` bytes. The payload must follow. A frame
/// that is written in this way can be sent to several clients.
pub fn write_frame_header(kind: Kind, compressed: bool, length: usize, out: &mut Vec<u8>) {
    let header = Header { opcode: kind.into(), is_last: true, compressed, length: length as u64, mask: None, size: 0 };
    header.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_written_header_is_parsed_as_it_was() {
        for length in [0, 1, 125, 126, 65_535, 65_536, i64::MAX as u64] {
            for (mask, role) in [(Some([1, 2, 3, 4]), Role::Server), (None, Role::Client)] {
                let mut header =
                    Header { opcode: Opcode::Binary, is_last: false, compressed: true, length, mask, size: 0 };
                let mut bytes = vec![];
                header.write(&mut bytes);
                header.size = bytes.len();
                assert_eq!(header_bytes(length as usize, mask.is_some()), bytes.len());
                assert_eq!(Header::parse(&bytes, role, true), Ok(Some(header)), "{length}");
                for cut in 0..bytes.len() {
                    assert_eq!(Header::parse(&bytes[..cut], role, true), Ok(None), "{length}, cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn invalid_headers_are_refused_at_their_first_wrong_byte() {
        for (bytes, at, role, text) in [
            (&[0x83][..], 1, Role::Server, "a frame has an opcode that is not defined"),
            (&[0x8b], 1, Role::Server, "a frame has an opcode that is not defined"),
            (&[0xa1], 1, Role::Server, "a frame has a reserved bit that no extension uses"),
            (&[0xc0], 1, Role::Server, "a frame has a reserved bit that no extension uses"),
            (&[0xc9], 1, Role::Server, "a frame has a reserved bit that no extension uses"),
            (&[0x09], 1, Role::Server, "a control frame is fragmented"),
            (&[0x81, 0x05], 2, Role::Server, "a frame from a client is not masked"),
            (&[0x81, 0x85], 2, Role::Client, "a frame from a server is masked"),
            (&[0x89, 0xfe], 2, Role::Server, "a control frame has more than 125 bytes"),
            (&[0x81, 0x7e, 0, 125], 4, Role::Client, "a frame's length is not encoded in the shortest form"),
            (
                &[0x82, 0x7f, 0, 0, 0, 0, 0, 0, 255, 255],
                10,
                Role::Client,
                "a frame's length is not encoded in the shortest form",
            ),
            (&[0x82, 0x7f, 128, 0, 0, 0, 0, 0, 0, 0], 10, Role::Client, "a frame's length has its highest bit set"),
        ] {
            for cut in 0..at {
                assert_eq!(Header::parse(&bytes[..cut], role, true), Ok(None), "{text}: {cut} bytes of {bytes:?}");
            }
            assert_eq!(Header::parse(bytes, role, true), Err(Failure::protocol(text)), "{bytes:?}");
        }
        assert!(Header::parse(&[0xc1], Role::Server, false).is_err(), "compression was not negotiated");
    }
}
