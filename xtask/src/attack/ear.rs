//! Parses the server's bytes for the attacking process, only as far as is needed to count the server's reactions and,
//! for HTTP/2, to follow the flow-control windows.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::Thread;

use super::frames::{
    ACK, DATA, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};
use super::spec::{MOST_STREAMS, Protocol};
use super::tally::{self, Tally};
use super::websocket_ear::WebSocketFrames;

/// The initial flow-control window of a connection and of each stream, in bytes (RFC 9113 section 6.9.2).
const WINDOW: i64 = 65_535;

/// The state of one connection that its reading thread shares with its writing thread.
pub(super) struct Link {
    pub(super) writer: Thread,
    /// True if the reading thread has reached the end of the connection.
    pub(super) ended: AtomicBool,
    /// The number of streams that the server has answered or reset.
    pub(super) answered: AtomicU64,
    /// Only the first of each `step` consecutive streams counts as answered.
    step: u32,
    connection: AtomicI64,
    streams: Vec<AtomicI64>,
    /// The initial window of a stream in the server's last SETTINGS, in bytes.
    initial: AtomicI64,
    /// The number of SETTINGS frames that the server has sent, and of those that are acknowledged. The attackers acknowledge the
    /// first ones before they arrive.
    settings: AtomicU32,
    acknowledged: AtomicU32,
}

impl Link {
    pub(super) fn new(writer: Thread, step: u32) -> Self {
        let window = |_| AtomicI64::new(WINDOW);
        Self {
            writer,
            ended: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            step,
            connection: AtomicI64::new(WINDOW),
            streams: (0..MOST_STREAMS).map(window).collect(),
            initial: AtomicI64::new(WINDOW),
            settings: AtomicU32::new(0),
            acknowledged: AtomicU32::new(1),
        }
    }

    /// Appends an acknowledgement for each SETTINGS frame that needs one.
    pub(super) fn acknowledge(&self, out: &mut Vec<u8>) {
        let settings = self.settings.load(Relaxed);
        // Only the writer acknowledges.
        while self.acknowledged.load(Relaxed) < settings {
            frame(out, SETTINGS, ACK, 0, b"");
            self.acknowledged.fetch_add(1, Relaxed);
        }
    }

    /// Applies the server's SETTINGS.
    fn set(&self, settings: &[u8]) {
        for setting in settings.chunks_exact(6) {
            let (name, value) = setting.split_at(2);
            if let (Ok(value), true) = (value.try_into(), name == INITIAL_WINDOW_SIZE.to_be_bytes()) {
                let initial = i64::from(u32::from_be_bytes(value));
                let more = initial - self.initial.swap(initial, Relaxed);
                self.streams.iter().for_each(|window| _ = window.fetch_add(more, Relaxed));
            }
        }
        self.settings.fetch_add(1, Relaxed);
    }

    /// Takes `bytes` from the windows of the connection and of the stream with this index. Takes nothing and returns
    /// false if a window is too small.
    pub(super) fn take(&self, index: usize, bytes: i64) -> bool {
        // Only the writer takes from the windows. SETTINGS that shrink one between the check and the subtraction are not yet
        // acknowledged.
        let windows = [&self.connection, &self.streams[index]];
        if windows.iter().any(|window| window.load(Relaxed) < bytes) {
            return false;
        }
        for window in windows {
            window.fetch_sub(bytes, Relaxed);
        }
        true
    }

    /// Returns true if the server has reset the stream with this index.
    pub(super) fn is_reset(&self, index: usize) -> bool {
        self.streams[index].load(Relaxed) < i64::from(i32::MIN)
    }

    fn stream(&self, stream: u32) -> Option<&AtomicI64> {
        self.streams.get((stream / 2) as usize)
    }

    fn widen(&self, stream: u32, by: u32) {
        let window = if stream == 0 { Some(&self.connection) } else { self.stream(stream) };
        if let Some(window) = window {
            window.fetch_add(i64::from(by), Relaxed);
        }
    }

    fn answer(&self, stream: u32) {
        if (stream / 2).is_multiple_of(self.step) {
            self.answered.fetch_add(1, Relaxed);
        }
    }
}

/// A parser of the server's bytes on one connection.
pub(super) enum Ear {
    Http1,
    Http2(Frames),
    Tls,
    WebSocket(WebSocketFrames),
}

impl Ear {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 => Self::Http1,
            Protocol::Http2 => Self::Http2(Frames::default()),
            Protocol::Tls => Self::Tls,
            Protocol::WebSocket => Self::WebSocket(WebSocketFrames::default()),
        }
    }

    /// Counts the server's reactions in these bytes. With HTTP/2, these are HEADERS, RST_STREAM and GOAWAY frames,
    /// and with WebSocket the status, messages, Pong and Close frames; otherwise, only an answer or a record at the start of the bytes counts.
    pub(super) fn hear(&mut self, bytes: &[u8], tally: &Tally, link: Option<&Link>) {
        match self {
            Self::Http2(_) if bytes.starts_with(b"HTTP/1.") => hear_status(bytes, tally),
            Self::Http2(frames) => frames.hear(bytes, tally, link),
            Self::Http1 => hear_status(bytes, tally),
            Self::WebSocket(frames) => frames.hear(bytes, tally),
            Self::Tls => match *bytes {
                [21, _, _, _, 2, _, code, ..] => tally.hear(tally::alert(code)),
                [22, ..] => tally.hear(tally::HANDSHAKE),
                _ => hear_status(bytes, tally),
            },
        }
    }
}

/// Counts the status of an HTTP/1 answer at the start of the bytes.
pub(super) fn hear_status(bytes: &[u8], tally: &Tally) {
    let digits = bytes.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    let status = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    if let Some(word) = status.and_then(tally::status) {
        tally.hear(word);
    }
}

/// Splits received bytes into frames, independent of how they arrive.
#[derive(Default)]
pub(super) struct Frames {
    /// The frame's header, and the first bytes of its content.
    start: Vec<u8>,
    /// The number of content bytes to skip.
    left: usize,
}

const HEAD_BYTES: usize = 9;

/// The largest number of content bytes that are parsed: ten settings. The others have no more than eight.
const LOOK_BYTES: usize = 60;

impl Frames {
    fn hear(&mut self, mut bytes: &[u8], tally: &Tally, link: Option<&Link>) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = self.left.min(bytes.len());
                self.left -= count;
                bytes = &bytes[count..];
                continue;
            }
            let count = (self.wanted() - self.start.len()).min(bytes.len());
            self.start.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            // Once the header is complete, `wanted` includes content.
            if self.start.len() >= HEAD_BYTES && self.start.len() == self.wanted() {
                self.left = self.length() - (self.start.len() - HEAD_BYTES);
                hear_frame(&self.start, tally, link);
                self.start.clear();
            }
        }
    }

    /// Returns the length that `start` must reach.
    fn wanted(&self) -> usize {
        if self.start.len() < HEAD_BYTES { HEAD_BYTES } else { HEAD_BYTES + self.length().min(LOOK_BYTES) }
    }

    /// Returns the length of the frame's content.
    fn length(&self) -> usize {
        self.start[..3].iter().fold(0, |length, &byte| length << 8 | usize::from(byte))
    }
}

/// Counts a frame and applies it to the windows of `link`. `start` contains the frame's header and the first bytes of
/// its content.
fn hear_frame(start: &[u8], tally: &Tally, link: Option<&Link>) {
    let number = |at: usize| {
        start
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(|bytes| u32::from_be_bytes(bytes) & 0x7fff_ffff)
    };
    let (kind, flags, stream) = (start[3], start[4], number(5).unwrap_or(0));
    let content = HEAD_BYTES;
    match kind {
        HEADERS => tally.hear(start.get(content).and_then(|&byte| indexed_status(byte)).unwrap_or(tally::ANSWER)),
        RST_STREAM | GOAWAY => {
            let at = if kind == GOAWAY { content + 4 } else { content };
            if let Some(word) = number(at).and_then(|code| tally::code(kind, code)) {
                tally.hear(word);
            }
        }
        _ => {}
    }
    let Some(link) = link else { return };
    match kind {
        HEADERS | DATA if flags & END_STREAM != 0 => link.answer(stream),
        RST_STREAM => {
            if let Some(window) = link.stream(stream) {
                window.store(i64::MIN / 2, Relaxed);
            }
            link.answer(stream);
        }
        WINDOW_UPDATE => link.widen(stream, number(content).unwrap_or(0)),
        SETTINGS if flags & ACK == 0 => link.set(&start[content..]),
        _ => {}
    }
}

/// Returns the status of a header block if its first byte references a status in the static table (RFC 7541
/// appendix A).
fn indexed_status(byte: u8) -> Option<tally::Word> {
    const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    tally::status(*STATUSES.get(usize::from(byte.checked_sub(0x88)?))?)
}

#[cfg(test)]
mod tests {
    use super::super::frames::{setting, window_update};
    use super::*;
    use std::time::Duration;

    /// Compares the counts of these bytes, in pieces of several sizes.
    fn check(protocol: Protocol, bytes: &[u8], expected: &str) {
        for size in [1, 2, 7, 10, 1000] {
            if size < bytes.len() && protocol != Protocol::Http2 {
                continue;
            }
            let (tally, mut ear) = (Tally::new(), Ear::new(protocol));
            bytes.chunks(size).for_each(|piece| ear.hear(piece, &tally, None));
            let line = tally.line(0.0, Duration::ZERO);
            assert_eq!(line.split_once("said=").map(|(_, said)| said), Some(expected), "in pieces of {size}");
        }
    }

    #[test]
    fn what_the_server_says_is_counted() {
        check(Protocol::Http1, b"HTTP/1.1 408 Request Timeout\r\n", "408:1");
        check(Protocol::Http1, b"xxxxxxxxxxxxxxxx", "");
        check(Protocol::Tls, &[21, 3, 3, 0, 2, 2, 50], "690:1");
        check(Protocol::Tls, &[22, 3, 3, 0, 100], "897:1");
        let mut bytes = Vec::new();
        frame(&mut bytes, 4, 0, 0, &[0; 12]);
        frame(&mut bytes, HEADERS, 4, 1, &[0x88, 1, 2]);
        frame(&mut bytes, DATA, END_STREAM, 1, &[b'x'; 100]);
        frame(&mut bytes, HEADERS, 4, 3, b"\x08\x03431");
        frame(&mut bytes, RST_STREAM, 0, 5, &[0, 0, 0, 7]);
        frame(&mut bytes, GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 11, b'w', b'h', b'y']);
        check(Protocol::Http2, &bytes, "200:1,607:1,631:1,896:1");
    }

    #[test]
    fn windows_are_kept() {
        let link = Link::new(std::thread::current(), 1);
        let mut bytes = Vec::new();
        window_update(&mut bytes, 0, 1000);
        window_update(&mut bytes, 3, 10);
        frame(&mut bytes, RST_STREAM, 0, 5, &[0, 0, 0, 7]);
        Ear::new(Protocol::Http2).hear(&bytes, &Tally::new(), Some(&link));
        assert!(!link.take(1, WINDOW + 11) && link.take(1, WINDOW + 10) && !link.take(1, 1));
        // The rest of the connection's window is smaller than a stream's window.
        assert!(!link.take(0, 991) && link.take(0, 990) && !link.take(0, 1));
        assert!(link.is_reset(2) && !link.is_reset(1));
        assert_eq!(link.answered.load(Relaxed), 1);
    }

    #[test]
    fn settings_change_the_windows_and_are_acknowledged() {
        let link = Link::new(std::thread::current(), 1);
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        frame(&mut bytes, SETTINGS, 0, 0, &[setting(1, 7), setting(INITIAL_WINDOW_SIZE, 1000)].concat());
        frame(&mut bytes, SETTINGS, ACK, 0, b"");
        Ear::new(Protocol::Http2).hear(&bytes, &Tally::new(), Some(&link));
        link.acknowledge(&mut out);
        assert!(out.is_empty() && link.take(0, 1000) && !link.take(0, 1));
        bytes.clear();
        frame(&mut bytes, SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 10));
        Ear::new(Protocol::Http2).hear(&bytes, &Tally::new(), Some(&link));
        assert!(!link.take(1, 11) && link.take(1, 10) && !link.take(0, 1));
        link.acknowledge(&mut out);
        link.acknowledge(&mut out);
        assert_eq!(out, [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
    }
}
