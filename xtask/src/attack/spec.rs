//! The definition of an attack.

use super::judge::SECONDS_BACK;
use super::upstream::Upstream;

/// An attack. All attacking connections do the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// A description of the sent bytes, as a sentence of the page.
    pub(super) what: &'static str,
    pub(super) target: Target,
    pub(super) protocol: Protocol,
    /// Returns the first bytes of the connection with this number, if they differ between connections. The opening
    /// follows.
    pub(super) numbered_opening: fn(u32) -> Vec<u8>,
    /// Returns the first bytes of each connection.
    pub(super) opening: fn() -> Vec<u8>,
    /// The bytes after the opening.
    pub(super) payload: Payload,
    pub(super) pace: Pace,
    pub(super) reading: Reading,
    pub(super) end: End,
    /// The size in bytes of the body or message that the server may hold for each connection, in addition to the memory
    /// bound.
    pub(super) body_bytes: u64,
    /// A description of the cost that a handler causes, if it causes much. SECURITY.md leaves such costs to the
    /// application, so only survival and the bystander's errors are judged.
    pub(super) handlers_own: Option<&'static str>,
    /// The seconds after which the server must hold no more than at the start: [`SECONDS_BACK`], or longer if a named
    /// deadline of the server is longer.
    pub(super) seconds_back: f64,
    /// The cause of a missed bound on memory that is known and not mended yet, as a sentence of the page. Such a miss is
    /// reported, and does not fail the command.
    pub(super) known: Option<&'static str>,
}

/// The defaults: an attack on the demo over HTTP/1 without a payload, which writes as fast as possible, reads all bytes, and keeps
/// the connection at the end.
pub(super) const BASE: Attack = Attack {
    name: "",
    what: "",
    target: Target::Demo,
    protocol: Protocol::Http1,
    numbered_opening: |_| Vec::new(),
    opening: Vec::new,
    payload: Payload::Nothing,
    pace: Pace::Flood,
    reading: Reading::All,
    end: End::Hold,
    body_bytes: 0,
    handlers_own: None,
    seconds_back: SECONDS_BACK,
    known: None,
};

/// The measured server of an attack.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// `highwire demo`.
    Demo,
    /// `highwire demo` whose chat uses a broker.
    Broker,
    /// `highwire serve` as a proxy in front of `highwire demo`. If an upstream is given, requests for paths below
    /// `/evil` go to that upstream.
    Proxy(Option<&'static Upstream>),
}

/// The protocol of an attack, which determines the port and the parser of the server's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Http1,
    /// HTTP/2 in cleartext, with prior knowledge.
    Http2,
    Tls,
    /// HTTP/1 whose opening requests an upgrade to WebSocket.
    WebSocket,
}

/// The bytes after the opening.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload {
    Nothing,
    /// The same bytes, repeated endlessly.
    Same(fn() -> Vec<u8>),
    /// A function that appends the bytes of a round, counted from 0 on each connection. An empty round ends the
    /// payload.
    Numbered(fn(u32, &mut Vec<u8>)),
    /// HTTP/2 requests, of which at most `open` are unanswered at a time. Each request uses `step` new streams, of
    /// which only the first must be answered.
    Streams {
        open: u32,
        step: u32,
        request: fn(u32, &mut Vec<u8>),
    },
    /// DATA on the streams of the opening in turn, as the server's windows allow.
    Data(Data),
}

/// The DATA frames of a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// The number of streams (1, 3, 5 and so on), at most [`MOST_STREAMS`].
    pub(super) streams: u32,
    /// Returns the content of each frame.
    pub(super) content: fn() -> Vec<u8>,
    pub(super) padding: Option<u8>,
    /// The number of content bytes on each stream, rounded up to whole frames.
    pub(super) most: u64,
    pub(super) then: Then,
}

/// The action once each stream has its content or is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Sends 55 bytes on each stream every second.
    Drip,
    /// Ends each stream. The payload is complete when every stream is answered or reset.
    Finish,
}

/// The server's default limit on concurrent streams. [`Payload::Streams`] and [`Payload::Data`] use no more.
pub(super) const MOST_STREAMS: u32 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Flood,
    /// The pause after each round of the payload, in milliseconds.
    Every(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    All,
    /// Reads at most 1 KiB every 100 ms.
    Slowly,
    Nothing,
}

/// The action of a connection after its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Keeps the connection until the server closes it or the attack is over.
    Hold,
    /// Ends the client's direction, then does the same as `Hold`.
    HalfClose,
    /// Closes the connection and opens the next.
    Close,
    /// Waits for this number of milliseconds, then does the same as `Close`.
    CloseAfter(u64),
    /// Reads the first bytes of an answer, then does the same as `Close`.
    Answer,
    /// Waits for an answer and closes without reading it. The kernel then sends RST instead of FIN.
    Reset,
}

/// The approximate size of one write in a flood, in bytes.
pub(super) const WRITE_BYTES: usize = 64 * 1024;

/// Repeats `unit` as often as it fits into [`WRITE_BYTES`], but at least once.
pub(super) fn filled(unit: &[u8]) -> Vec<u8> {
    unit.repeat((WRITE_BYTES / unit.len()).max(1))
}

impl Attack {
    /// Returns true if a second thread must read while the first writes. Attacks that exchange only a few bytes need
    /// none.
    pub(super) fn reads_beside(&self) -> bool {
        let is_short = !matches!(self.end, End::Hold | End::HalfClose | End::CloseAfter(_));
        let is_brief = matches!(self.payload, Payload::Nothing) && is_short;
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
