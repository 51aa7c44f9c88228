//! What an attack consists of.

/// One attack. Every attacking connection does the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// What is sent, as one sentence of the page.
    pub(super) what: &'static str,
    pub(super) protocol: Protocol,
    /// The bytes that each connection begins with.
    pub(super) opening: fn() -> Vec<u8>,
    /// The bytes that follow.
    pub(super) payload: Payload,
    pub(super) pace: Pace,
    pub(super) reading: Reading,
    pub(super) end: End,
    /// Bytes of the one body that the server may hold whole for each connection, beside the memory bound.
    pub(super) body_bytes: u64,
    /// What of it is the work, the memory or the time of a handler, which SECURITY.md leaves to the application: then only
    /// survival and the bystander's errors are judged.
    pub(super) handlers_own: Option<&'static str>,
}

/// What most attacks have in common: they flood, read everything, and hold the connection when they have sent all.
pub(super) const BASE: Attack = Attack {
    name: "",
    what: "",
    protocol: Protocol::Http1,
    opening: Vec::new,
    payload: Payload::Nothing,
    pace: Pace::Flood,
    reading: Reading::All,
    end: End::Hold,
    body_bytes: 0,
    handlers_own: None,
};

/// The protocol decides on the port, and on how the client reads what the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Http1,
    /// With prior knowledge, in the clear.
    Http2,
    Tls,
}

/// What follows the opening.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload {
    Nothing,
    /// The same bytes again and again.
    Same(fn() -> Vec<u8>),
    /// Appends the bytes of a round, counted from 0 on each connection. An empty round is the last.
    Numbered(fn(u32, &mut Vec<u8>)),
    /// HTTP/2 requests on new streams, with at most `open` of them unanswered. Each takes `step` streams, of which the
    /// first counts as the one that is answered.
    Streams {
        open: u32,
        step: u32,
        request: fn(u32, &mut Vec<u8>),
    },
    /// DATA on the streams that the opening opened, in turn, as far as the server's windows allow.
    Data(Data),
}

/// How DATA frames are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// The streams 1, 3, 5 and so on, at most [`MOST_STREAMS`].
    pub(super) streams: u32,
    /// Content of each frame.
    pub(super) bytes: usize,
    pub(super) padding: Option<u8>,
    /// Content that each stream gets.
    pub(super) most: u64,
    pub(super) then: Then,
}

/// What happens when each stream got its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// 55 bytes on each stream every second.
    Drip,
    /// END_STREAM on each stream. The payload is complete when every stream was answered.
    Finish,
}

/// Streams that an attack keeps open: the server's default limit.
pub(super) const MOST_STREAMS: u32 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Flood,
    /// Milliseconds between two rounds of the payload.
    Every(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    All,
    /// One KiB every 100 ms.
    Slowly,
    Nothing,
}

/// What a connection does when its payload has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Keeps the connection until the server closes it or the attack is over.
    Hold,
    /// Closes its own direction, then as `Hold`.
    HalfClose,
    /// Closes the connection and opens the next.
    Close,
    /// Reads the first bytes of an answer, then as `Close`.
    Answer,
    /// Waits for an answer and closes without reading it. The kernel then sends RST in place of FIN.
    Reset,
}

/// What one write carries in a flood.
pub(super) const WRITE_BYTES: usize = 64 * 1024;

/// Repeats a unit until the next one would not fit a write; at least once.
pub(super) fn filled(unit: &[u8]) -> Vec<u8> {
    unit.repeat((WRITE_BYTES / unit.len()).max(1))
}

impl Attack {
    /// Whether a second thread reads while the first one writes. Those that only exchange a few bytes need none.
    pub(super) fn reads_beside(&self) -> bool {
        let is_brief = matches!(self.payload, Payload::Nothing) && !matches!(self.end, End::Hold | End::HalfClose);
        self.reading != Reading::Nothing && !is_brief
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_fills_a_write() {
        assert_eq!(filled(b"abc").len(), WRITE_BYTES / 3 * 3);
        assert_eq!(filled(&[0; WRITE_BYTES + 1]).len(), WRITE_BYTES + 1);
    }
}
