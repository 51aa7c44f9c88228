//! HTTP/2: SETTINGS that narrow the windows of streams while the peer sends bodies (RFC 9113 section 6.9.2).

use crate::wire::{DATA, END, HEADERS, POST, SETTINGS, Side, WHOLE, WINDOW_UPDATE};
use crate::wire::{block, frame, frames, number, opening};
use highwire_proto::Role;
use highwire_proto::h2::Bounds;
use std::collections::BTreeMap;

const WIDE: u32 = 64 * 1024;
const NARROW: u32 = 4 * 1024;

/// The windows of streams as a client computes them.
struct Windows {
    initial: i64,
    streams: BTreeMap<u32, i64>,
}

impl Windows {
    fn new() -> Windows {
        Windows { initial: 65_535, streams: BTreeMap::new() }
    }

    /// Begins a request, and returns it with as much of its body as a stream's window allows.
    fn post(&mut self, stream: u32) -> Vec<u8> {
        let mut bytes = frame(HEADERS, WHOLE, stream, &block(POST));
        self.streams.insert(stream, self.initial);
        bytes.extend(self.fill(stream));
        bytes
    }

    /// Returns as much of a body as the stream's window allows.
    fn fill(&mut self, stream: u32) -> Vec<u8> {
        let left = self.streams.get_mut(&stream).expect("a stream");
        let mut bytes = Vec::new();
        while *left > 0 {
            let part = (*left).min(16_384);
            bytes.extend(frame(DATA, 0, stream, &vec![b'x'; part as usize]));
            *left -= part;
        }
        bytes
    }

    /// Reads what the server has sent. Returns an acknowledgement for each SETTINGS frame.
    fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        for (kind, flags, stream, payload) in frames(bytes) {
            match kind {
                SETTINGS if flags == 0 => {
                    for entry in payload.chunks_exact(6).filter(|entry| entry[..2] == [0, 4]) {
                        let initial = i64::from(number(&entry[2..]));
                        self.streams.values_mut().for_each(|left| *left += initial - self.initial);
                        self.initial = initial;
                    }
                    answer.extend(frame(SETTINGS, END, 0, b""));
                }
                WINDOW_UPDATE if stream > 0 => {
                    *self.streams.get_mut(&stream).expect("a stream") += i64::from(number(payload));
                }
                _ => {}
            }
            let least = self.streams.values().min();
            assert!(least.is_none_or(|least| *least >= 0), "after a frame of kind {kind}: {:?}", self.streams);
        }
        answer
    }
}

/// Returns a server that uses up nothing, with much room in the connection's window.
fn server(stream_window: u32) -> Side {
    let mut server = Side::new(Role::Server, Bounds { stream_window, connection_window: 1 << 20, ..Bounds::default() });
    server.holds = true;
    server
}

#[test]
fn no_window_of_a_client_becomes_negative() {
    // The client has, or has not, read and acknowledged the first SETTINGS when the server narrows the windows.
    for acknowledges in [false, true] {
        let (mut server, mut client) = (server(WIDE), Windows::new());
        server.receive(&opening());
        if acknowledges {
            let answer = client.read(&std::mem::take(&mut server.out));
            server.receive(&answer);
        }
        server.receive(&client.post(1));
        assert!(server.connection.narrow_streams(NARROW, &mut server.out));
        assert!(!server.connection.narrow_streams(NARROW, &mut server.out), "the windows are narrow already");
        let answer = client.read(&std::mem::take(&mut server.out));
        assert_eq!(client.initial, i64::from(NARROW));
        server.receive(&answer);
        let third = client.post(3);
        assert_eq!(
            third.len(),
            9 + block(POST).len() + 9 + NARROW as usize,
            "the first window of a new stream is narrow"
        );
        server.receive(&third);
        // The windows of both streams are full: one byte more is too much for each.
        let whole = 65_535 + u32::from(acknowledges);
        assert_eq!(server.connection.streams().count(), 2);
        for (stream, used) in server.connection.streams().zip([whole, NARROW]).collect::<Vec<_>>() {
            server.connection.used(stream, used as usize, &mut server.out);
        }
        _ = client.read(&std::mem::take(&mut server.out));
        // The window of the first stream is as wide as before, that of the second one narrow.
        assert_eq!(client.streams, [(1, i64::from(WIDE)), (3, i64::from(NARROW))].into());
        for stream in [1, 3] {
            let bytes = client.fill(stream);
            server.receive(&bytes);
        }
        assert_eq!(server.failure, None);
    }
}

#[test]
fn a_peer_may_use_the_wide_window_until_it_has_acknowledged_the_narrow_one() {
    let (mut server, mut client) = (server(WIDE), Windows::new());
    server.receive(&opening());
    let answer = client.read(&std::mem::take(&mut server.out));
    server.receive(&answer);
    assert!(server.connection.narrow_streams(NARROW, &mut server.out));
    // The client sends before it reads. It gets nothing of the connection's window back until it has.
    server.receive(&client.post(1));
    assert_eq!(server.failure, None);
    let stream = server.connection.streams().next().expect("a stream");
    server.connection.dropped(600_000, &mut server.out);
    let settings = std::mem::take(&mut server.out);
    assert_eq!(frames(&settings).len(), 1, "only SETTINGS are sent");
    server.receive(&frame(SETTINGS, END, 0, b""));
    assert_eq!(frames(&server.out), [(WINDOW_UPDATE, 0, 0, &600_000_u32.to_be_bytes()[..])]);
    // The stream's window has become negative, as RFC 9113 section 6.9.2 describes.
    server.connection.used_on_stream(stream, WIDE as usize, &mut server.out);
    assert_eq!(server.connection.stream_window(stream), Some((NARROW, None)));
    server.receive(&frame(DATA, 0, 1, &[b'x'; NARROW as usize]));
    assert_eq!(server.failure, None);
    server.receive(&frame(DATA, 0, 1, b"x"));
    assert!(frames(&server.out).iter().any(|frame| frame.0 == crate::wire::RESET), "the window is exceeded");
}
