//! Writes our SETTINGS and reads the peer's (RFC 9113 section 6.5, RFC 8441, RFC 9218).

use super::frame::{Code, FRAME_BYTES, FrameHead, kind};
use alloc::vec::Vec;

mod name {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The largest window in bytes that the protocol allows.
pub(super) const LARGEST_WINDOW: u32 = 0x7fff_ffff;

/// The initial window in bytes of a connection, and of a stream unless SETTINGS announce another one.
pub(super) const FIRST_WINDOW: u32 = 65_535;

/// The peer's settings that affect what we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// The largest size in bytes of the table that our encoder may use.
    pub(super) table_bytes: u32,
    /// The smallest value of `table_bytes` directly before the last SETTINGS frame or within it.
    pub(super) least_table_bytes: u32,
    /// The largest number of streams that we may have open (client role).
    pub(super) streams: u32,
    /// The initial window of a stream in bytes.
    pub(super) window: u32,
    /// The size in bytes of the largest frame payload.
    pub(super) frame_bytes: u32,
    /// True if CONNECT may have a protocol (RFC 8441; client role).
    pub(super) connect_protocol: bool,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer {
            table_bytes: 4096,
            least_table_bytes: 4096,
            streams: u32::MAX,
            window: FIRST_WINDOW,
            frame_bytes: FRAME_BYTES,
            connect_protocol: false,
        }
    }
}

impl Peer {
    /// Applies the payload of a SETTINGS frame. `is_client` is true if a client sent it.
    pub(super) fn read(&mut self, payload: &[u8], is_client: bool) -> Result<(), Code> {
        if !payload.len().is_multiple_of(6) {
            return Err(Code::FrameSize);
        }
        self.least_table_bytes = self.table_bytes;
        for entry in payload.chunks_exact(6) {
            let &[n0, n1, v0, v1, v2, v3] = entry else { return Err(Code::FrameSize) };
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([n0, n1]) {
                name::HEADER_TABLE_SIZE => {
                    self.table_bytes = value;
                    self.least_table_bytes = self.least_table_bytes.min(value);
                }
                // A server must not enable push (RFC 9113 section 6.5.2).
                name::ENABLE_PUSH if value > u32::from(is_client) => return Err(Code::Protocol),
                name::MAX_CONCURRENT_STREAMS => self.streams = value,
                name::INITIAL_WINDOW_SIZE if value > LARGEST_WINDOW => return Err(Code::FlowControl),
                name::INITIAL_WINDOW_SIZE => self.window = value,
                name::MAX_FRAME_SIZE if !(FRAME_BYTES..1 << 24).contains(&value) => return Err(Code::Protocol),
                name::MAX_FRAME_SIZE => self.frame_bytes = value,
                name::ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(Code::Protocol),
                name::ENABLE_CONNECT_PROTOCOL => self.connect_protocol |= value == 1,
                name::NO_RFC7540_PRIORITIES if value > 1 => return Err(Code::Protocol),
                // Unknown settings are ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Our settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ours {
    pub(super) table_bytes: u32,
    pub(super) streams: u32,
    pub(super) window: u32,
    pub(super) list_bytes: u32,
    pub(super) is_server: bool,
}

impl Ours {
    /// Writes a SETTINGS frame that changes only the initial window of the peer's streams.
    pub(super) fn write_window(window: u32, out: &mut Vec<u8>) {
        FrameHead { length: 6, kind: kind::SETTINGS, flags: 0, stream: 0 }.write(out);
        write_entry(name::INITIAL_WINDOW_SIZE, window, out);
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        let common = [
            (name::HEADER_TABLE_SIZE, self.table_bytes),
            (name::INITIAL_WINDOW_SIZE, self.window),
            (name::MAX_HEADER_LIST_SIZE, self.list_bytes),
        ];
        let server = [
            (name::MAX_CONCURRENT_STREAMS, self.streams),
            (name::ENABLE_CONNECT_PROTOCOL, 1),
            // We ignore the priorities of RFC 7540 and use those of RFC 9218.
            (name::NO_RFC7540_PRIORITIES, 1),
        ];
        let client = [(name::ENABLE_PUSH, 0)];
        let own: &[(u16, u32)] = if self.is_server { &server } else { &client };
        let length = 6 * (common.len() + own.len()) as u32;
        FrameHead { length, kind: kind::SETTINGS, flags: 0, stream: 0 }.write(out);
        for &(name, value) in common.iter().chain(own) {
            write_entry(name, value, out);
        }
    }
}

fn write_entry(name: u16, value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&name.to_be_bytes());
    out.extend_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(u16, u32)]) -> Result<Peer, Code> {
        let mut payload = Vec::new();
        for (name, value) in entries {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut peer = Peer::default();
        peer.read(&payload, true).map(|()| peer)
    }

    #[test]
    fn values_are_taken_over_and_wrong_ones_have_their_codes() {
        assert_eq!(read(&[]), Ok(Peer::default()));
        assert_eq!(read(&[(4, 7), (4, 9)]).map(|peer| peer.window), Ok(9), "the last one counts");
        assert_eq!(read(&[(0x4a4a, 3)]), Ok(Peer::default()), "unknown ones are ignored");
        assert_eq!(read(&[(2, 2)]), Err(Code::Protocol));
        assert_eq!(read(&[(4, 0x8000_0000)]), Err(Code::FlowControl));
        assert_eq!(read(&[(5, 16_383)]), Err(Code::Protocol));
        assert_eq!(read(&[(5, 0x0100_0000)]), Err(Code::Protocol));
        assert_eq!(read(&[(8, 2)]), Err(Code::Protocol));
        assert_eq!(Peer::default().read(&[0; 5], true), Err(Code::FrameSize));
    }
}
