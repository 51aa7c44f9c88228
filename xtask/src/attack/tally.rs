//! The counts of the attacking process. Its threads count, the process prints all counts as one line at its end, and
//! the measuring process parses that line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::frames::{GOAWAY, RST_STREAM};

/// A kind of reaction of the server, as a number for the line: a status of HTTP/1 or HTTP/2, an HTTP/2 error code in
/// RST_STREAM or GOAWAY, a TLS alert, the status of a WebSocket's Close frame, or one of the constants below.
pub(super) type Word = usize;

// A word below `RESETS` is a status. The word of a RST_STREAM, a GOAWAY or an alert is its offset below plus its code.
const RESETS: Word = 600;
const GOAWAYS: Word = 620;
const ALERTS: Word = 640;
/// An HTTP/2 answer whose status is not encoded in a single byte of HPACK.
pub(super) const ANSWER: Word = 896;
/// A TLS handshake record.
pub(super) const HANDSHAKE: Word = 897;
/// A text or binary message of a WebSocket, or its first fragment.
pub(super) const MESSAGE: Word = 898;
/// A Pong frame of a WebSocket.
pub(super) const PONG: Word = 899;
/// A Close frame of a WebSocket without a status, or with an unknown one.
pub(super) const CLOSE: Word = 900;
/// The word of a Close frame whose status is `first` is `at`; the words of higher statuses follow.
const CLOSES: [(u16, Word); 2] = [(1000, 901), (4000, 917)];
const CLOSES_EACH: u16 = 16;
const WORDS: usize = 933;

const STATUSES: std::ops::Range<Word> = 100..600;

/// The names of the HTTP/2 error codes 0 to 13 (RFC 9113 section 7).
const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

pub(super) fn status(status: u16) -> Option<Word> {
    Some(Word::from(status)).filter(|word| STATUSES.contains(word))
}

pub(super) fn alert(code: u8) -> Word {
    ALERTS + Word::from(code)
}

/// Returns the word of a Close frame with this status (RFC 6455 section 7.4).
pub(super) fn close(status: u16) -> Word {
    let known = CLOSES.iter().find(|(first, _)| (*first..first + CLOSES_EACH).contains(&status));
    known.map_or(CLOSE, |(first, at)| at + Word::from(status - first))
}

/// Returns the word of a RST_STREAM or GOAWAY frame with an error code, or `None` if the code is unknown.
pub(super) fn code(kind: u8, code: u32) -> Option<Word> {
    let code = code as Word;
    match kind {
        RST_STREAM if code < CODES.len() => Some(RESETS + code),
        GOAWAY if code < CODES.len() => Some(GOAWAYS + code),
        _ => None,
    }
}

/// Returns the text of a word for reports.
pub(super) fn name(word: Word) -> String {
    match word {
        RESETS..GOAWAYS => format!("RST_STREAM {}", CODES.get(word - RESETS).unwrap_or(&"?")),
        GOAWAYS..ALERTS => format!("GOAWAY {}", CODES.get(word - GOAWAYS).unwrap_or(&"?")),
        ALERTS..ANSWER => format!("alert {}", word - ALERTS),
        ANSWER => "an answer".into(),
        HANDSHAKE => "a handshake record".into(),
        MESSAGE => "a message".into(),
        PONG => "Pong".into(),
        CLOSE => "Close".into(),
        word if word > CLOSE => {
            let (first, at) = CLOSES[usize::from(word >= CLOSES[1].1)];
            format!("Close {}", usize::from(first) + word - at)
        }
        status => status.to_string(),
    }
}

/// The counts of all attacking connections.
pub(super) struct Tally {
    /// The number of connections that were opened.
    pub(super) opened: AtomicU64,
    /// The number of failed attempts to connect, including those for which the client had no free port.
    pub(super) refused: AtomicU64,
    /// The number of connections that the server ended.
    pub(super) closed: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    said: Vec<AtomicU64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let said = (0..WORDS).map(|_| zero()).collect();
        Self { opened: zero(), refused: zero(), closed: zero(), sent: zero(), received: zero(), said }
    }

    pub(super) fn hear(&self, word: Word) {
        self.said[word].fetch_add(1, Relaxed);
    }

    /// Returns the line that [`Report::read`] parses.
    pub(super) fn line(&self, cpu_seconds: f64, elapsed: Duration) -> String {
        let counts = [&self.opened, &self.refused, &self.closed, &self.sent, &self.received];
        let [opened, refused, closed, sent, received] = counts.map(|count| count.load(Relaxed));
        let said: Vec<String> = (0..WORDS)
            .map(|word| (word, self.said[word].load(Relaxed)))
            .filter(|&(_, count)| count > 0)
            .map(|(word, count)| format!("{word}:{count}"))
            .collect();
        let seconds = elapsed.as_secs_f64();
        format!(
            "{REPORT} opened={opened} refused={refused} closed={closed} sent={sent} received={received} \
             cpu={cpu_seconds:.6} seconds={seconds:.6} said={}",
            said.join(",")
        )
    }
}

/// The start of the line with the counts.
const REPORT: &str = "attackers:";

/// The counts that the attacking process printed at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    pub(super) opened: u64,
    pub(super) refused: u64,
    pub(super) closed: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) cpu_seconds: f64,
    pub(super) seconds: f64,
    /// The server's reactions, most frequent first.
    pub(super) said: Vec<(Word, u64)>,
}

impl Report {
    pub(super) fn read(line: &str) -> Option<Self> {
        let fields = line.strip_prefix(REPORT)?;
        let field = |name: &str| {
            fields
                .split_whitespace()
                .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, value)| value)
        };
        let count = |name: &str| field(name)?.parse::<u64>().ok();
        let seconds = |name: &str| field(name)?.parse::<f64>().ok();
        let pair = |text: &str| {
            let (word, count) = text.split_once(':')?;
            Some((word.parse::<Word>().ok()?, count.parse::<u64>().ok()?))
        };
        let mut said: Vec<(Word, u64)> = field("said")?.split(',').filter_map(pair).collect();
        said.sort_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
        Some(Self {
            opened: count("opened")?,
            refused: count("refused")?,
            closed: count("closed")?,
            sent: count("sent")?,
            received: count("received")?,
            cpu_seconds: seconds("cpu")?,
            seconds: seconds("seconds")?,
            said,
        })
    }

    /// Returns a short text with the server's most frequent reactions and the number of connections that it closed.
    pub(super) fn summary(&self) -> String {
        /// The largest number of reactions in the text.
        const NAMED: usize = 3;
        let mut parts: Vec<String> =
            self.said.iter().take(NAMED).map(|&(word, count)| format!("{} × {count}", name(word))).collect();
        if self.said.len() > NAMED {
            parts.push("and others".into());
        }
        parts.push(match self.closed {
            0 => format!("closed none of {}", connections(self.opened)),
            closed => format!("closed {closed} of {}", connections(self.opened)),
        });
        if self.refused > 0 {
            parts.push(format!("{} failed", connections(self.refused)));
        }
        parts.join(", ")
    }

    /// Returns a short text with the number of MiB in both directions.
    pub(super) fn traffic(&self) -> String {
        format!("{:.1} MiB sent, {:.1} MiB received", mebibytes(self.sent), mebibytes(self.received))
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection".into() } else { format!("{count} connections") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let tally = Tally::new();
        tally.opened.store(20, Relaxed);
        tally.closed.store(19, Relaxed);
        tally.sent.store(1_000_000, Relaxed);
        tally.hear(400);
        tally.hear(400);
        tally.hear(code(GOAWAY, 11).expect("a code"));
        let report = Report::read(&tally.line(0.25, Duration::from_millis(1500))).expect("a report");
        assert_eq!(
            report,
            Report {
                opened: 20,
                refused: 0,
                closed: 19,
                sent: 1_000_000,
                received: 0,
                cpu_seconds: 0.25,
                seconds: 1.5,
                said: vec![(400, 2), (631, 1)],
            }
        );
        assert_eq!(report.summary(), "400 × 2, GOAWAY ENHANCE_YOUR_CALM × 1, closed 19 of 20 connections");
        assert_eq!(Report::read(&Tally::new().line(0.0, Duration::ZERO)).map(|report| report.said), Some(Vec::new()));
        assert_eq!(Report::read("a word"), None);
    }

    #[test]
    fn words_have_names() {
        for (word, expected) in [
            (status(431), "431"),
            (code(RST_STREAM, 7), "RST_STREAM REFUSED_STREAM"),
            (Some(alert(40)), "alert 40"),
            (Some(alert(255)), "alert 255"),
            (Some(ANSWER), "an answer"),
            (Some(close(1009)), "Close 1009"),
            (Some(close(4001)), "Close 4001"),
            (Some(close(1016)), "Close"),
        ] {
            assert_eq!(word.map(name).as_deref(), Some(expected));
        }
        assert_eq!((status(99), status(600), code(GOAWAY, 14), code(0, 1)), (None, None, None, None));
    }
}
