//! The parser of multipart bodies (RFC 2046 section 5.1, RFC 7578).
//!
//! ```text
//! preamble  (CR LF "--" boundary padding CR LF  head  CR LF  data)*  CR LF "--" boundary "--" padding  epilogue
//! ```
//!
//! The parser puts a line end before the body, so that the first delimiter is like all others. It searches data for the
//! whole delimiter. At the end of the received bytes, it keeps back those that may begin a delimiter. Only the last
//! carriage return can begin one, because a boundary contains none. Any split of the body gives the same events, except
//! that data may be split differently.

use super::Limits;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::{self, Finder};
use std::fmt;

/// The length of the longest permitted boundary, in bytes (RFC 2046 section 5.1.1).
const MOST_BOUNDARY_BYTES: usize = 70;

/// The most bytes of white space after a boundary. Mail transports once added some; HTTP clients add none.
const MOST_PADDING_BYTES: usize = 64;

const LINE_END: &[u8] = b"\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The result of [`Parser::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    NeedMore,
    /// The header lines of the next part, each with its line end.
    Head(Bytes),
    /// Bytes of the part; never empty.
    Data(Bytes),
    PartEnd,
    /// The last delimiter. No part follows.
    End,
}

/// An error of a multipart body, whose syntax is wrong or which exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A boundary, or the two hyphens after the last boundary, is followed by more than white space and a line end.
    Delimiter,
    /// The preamble before the first delimiter is longer than [`Limits::head_bytes`].
    Preamble,
    /// The body ended before the last delimiter.
    CutShort,
    Parts,
    Head,
    Total,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Delimiter => "something else stands behind a boundary than its line's end",
            Fault::Preamble => "there is no boundary at the body's beginning",
            Fault::CutShort => "the body ends before its last boundary",
            Fault::Parts => "there are too many parts",
            Fault::Head => "a part's header fields are too large",
            Fault::Total => "the parts are too large together",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preamble,
    /// Reads the rest of the line after a boundary.
    Line,
    Head,
    Data,
    /// Reads the rest of the line after the last boundary's two hyphens.
    Closing,
    Ended,
}

/// The parser of one body.
#[derive(Debug)]
pub(crate) struct Parser {
    delimiter: Finder<'static>,
    limits: Limits,
    buffer: BytesMut,
    state: State,
    /// The number of bytes at the buffer's front that were searched for the end of a head.
    searched: usize,
    /// The number of bytes at the buffer's front that end the head: 2 after a head, for the CR LF of the empty line,
    /// otherwise 0. If a delimiter follows at once, this CR LF is also part of the delimiter.
    lead: usize,
    /// The number of bytes before the buffer, including the line end that the parser puts before the body.
    passed: u64,
    received: u64,
    preamble: usize,
    parts: usize,
    over: bool,
}

/// Returns the beginning of each delimiter, or `None` if the boundary is invalid by RFC 2046 section 5.1.1.
fn delimiter(boundary: &str) -> Option<Vec<u8>> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let is_boundary =
        (1..=MOST_BOUNDARY_BYTES).contains(&boundary.len()) && !boundary.ends_with(' ') && boundary.bytes().all(fits);
    is_boundary.then(|| [b"\r\n--", boundary.as_bytes()].concat())
}

impl Parser {
    /// Creates a parser of a body with this boundary. Returns `None` if the boundary is invalid.
    pub(crate) fn new(boundary: &str, limits: Limits) -> Option<Parser> {
        let delimiter = Finder::new(&delimiter(boundary)?).into_owned();
        Some(Parser {
            delimiter,
            limits,
            buffer: BytesMut::from(LINE_END),
            state: State::Preamble,
            searched: 0,
            lead: 0,
            passed: 0,
            received: 0,
            preamble: 0,
            parts: 0,
            over: false,
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the position of the next byte in the body, or 0 before the first delimiter is found.
    pub(crate) fn offset(&self) -> u64 {
        match self.state {
            State::Preamble => 0,
            _ => self.passed.saturating_sub(LINE_END.len() as u64),
        }
    }

    /// Adds received bytes of the body. Drops those beyond [`Limits::total_bytes`].
    pub(crate) fn push(&mut self, mut bytes: Bytes) {
        let room = self.limits.total_bytes.saturating_sub(self.received);
        self.received += bytes.len() as u64;
        if bytes.len() as u64 > room {
            self.over = true;
            bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        }
        match bytes.try_into_mut() {
            Ok(bytes) if self.buffer.is_empty() => self.buffer = bytes,
            Ok(bytes) => self.buffer.extend_from_slice(&bytes),
            Err(bytes) => self.buffer.extend_from_slice(&bytes),
        }
    }

    /// Returns the next event in the received bytes.
    ///
    /// # Errors
    /// Returns an error if the syntax is wrong or a limit is exceeded; [`offset`](Self::offset) then returns its
    /// position. The caller must not call this again after an error.
    pub(crate) fn next(&mut self) -> Result<Event, Fault> {
        let event = match self.state {
            State::Preamble => self.preamble()?,
            State::Line => self.line()?,
            State::Head => self.head()?,
            State::Data => self.data(),
            State::Closing => self.closing()?,
            State::Ended => Event::End,
        };
        match event {
            Event::NeedMore if self.over => Err(Fault::Total),
            event => Ok(event),
        }
    }

    /// Ends the body, after [`next`](Self::next) has returned [`Event::NeedMore`]. Returns an error if the last
    /// delimiter is missing.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        let closed = self.state == State::Closing && self.buffer.iter().all(|byte| b" \t".contains(byte));
        if !closed && self.state != State::Ended {
            return Err(Fault::CutShort);
        }
        self.state = State::Ended;
        Ok(())
    }

    fn pass(&mut self, count: usize) {
        self.buffer.advance(count);
        self.passed += count as u64;
    }

    /// Returns how many of the buffer's last bytes may begin a delimiter.
    fn held(&self) -> usize {
        let delimiter = self.delimiter.needle();
        let tail = self.buffer.len().saturating_sub(delimiter.len() - 1);
        let begun = memchr::memrchr(b'\r', &self.buffer[tail..]).map(|at| &self.buffer[tail + at..]);
        begun.filter(|begun| delimiter.starts_with(begun)).map_or(0, <[u8]>::len)
    }

    fn preamble(&mut self) -> Result<Event, Fault> {
        let found = self.delimiter.find(&self.buffer);
        let before = found.unwrap_or_else(|| self.buffer.len() - self.held());
        self.preamble += before;
        if self.preamble > self.limits.head_bytes + LINE_END.len() {
            return Err(Fault::Preamble);
        }
        self.pass(before);
        if found.is_none() {
            return Ok(Event::NeedMore);
        }
        self.pass(self.delimiter.needle().len());
        self.state = State::Line;
        self.line()
    }

    fn padding(&self) -> usize {
        self.buffer.iter().take_while(|byte| b" \t".contains(byte)).count()
    }

    fn line(&mut self) -> Result<Event, Fault> {
        let padding = self.padding();
        let rest = &self.buffer[padding..];
        if padding == 0 && rest.starts_with(b"--") {
            self.pass(2);
            self.state = State::Closing;
            return self.closing();
        }
        if padding <= MOST_PADDING_BYTES && rest.starts_with(LINE_END) {
            if self.parts == self.limits.parts {
                return Err(Fault::Parts);
            }
            self.pass(padding + LINE_END.len());
            self.parts += 1;
            (self.state, self.searched) = (State::Head, 0);
            return self.head();
        }
        let may_become = rest.is_empty() || rest == b"\r" || (padding == 0 && rest == b"-");
        match may_become && padding <= MOST_PADDING_BYTES {
            true => Ok(Event::NeedMore),
            false => Err(Fault::Delimiter),
        }
    }

    fn head(&mut self) -> Result<Event, Fault> {
        let from = self.searched.saturating_sub(HEAD_END.len() - 1);
        let end = match self.buffer.starts_with(LINE_END) {
            true => Some(0),
            false => memmem::find(&self.buffer[from..], HEAD_END).map(|at| from + at + LINE_END.len()),
        };
        self.searched = self.buffer.len();
        // Before the end is found, the last byte may belong to the empty line, which does not count.
        if end.unwrap_or(self.buffer.len().saturating_sub(1)) > self.limits.head_bytes {
            return Err(Fault::Head);
        }
        let Some(end) = end else { return Ok(Event::NeedMore) };
        self.passed += end as u64;
        // The CR LF of the empty line stays in the buffer, because it may begin a delimiter if the part has no data.
        (self.state, self.lead) = (State::Data, LINE_END.len());
        Ok(Event::Head(self.buffer.split_to(end).freeze()))
    }

    fn data(&mut self) -> Event {
        loop {
            let found = self.delimiter.find(&self.buffer);
            let end = found.unwrap_or_else(|| self.buffer.len() - self.held());
            if end > 0 {
                self.passed += end as u64;
                let mut data = self.buffer.split_to(end);
                data.advance(std::mem::take(&mut self.lead));
                if !data.is_empty() {
                    return Event::Data(data.freeze());
                }
            } else if found.is_some() {
                self.pass(self.delimiter.needle().len());
                (self.state, self.lead) = (State::Line, 0);
                return Event::PartEnd;
            } else {
                return Event::NeedMore;
            }
        }
    }

    fn closing(&mut self) -> Result<Event, Fault> {
        let padding = self.padding();
        let rest = &self.buffer[padding..];
        if padding > MOST_PADDING_BYTES || !(rest.starts_with(LINE_END) || LINE_END.starts_with(rest)) {
            return Err(Fault::Delimiter);
        }
        if rest.len() < LINE_END.len() {
            return Ok(Event::NeedMore);
        }
        self.buffer.clear();
        self.state = State::Ended;
        Ok(Event::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fuzz;

    const LIMITS: Limits = Limits { parts: 3, head_bytes: 16, part_bytes: 1000, total_bytes: 60 };

    /// Parses a body in every split, and with a naive parser that gets it whole, and compares the events.
    fn check(body: &str, expected: &str) {
        let read = |cut: &[&[u8]]| fuzz::read_parts(&mut Parser::new("B", LIMITS).expect("a boundary"), cut);
        for cut in highwire_proto::testing::splits(body.as_bytes()) {
            assert_eq!(read(&cut), expected, "{body:?} as {} pieces", cut.len());
        }
        let naive = fuzz::read_parts_naively(body.as_bytes(), "B", &LIMITS);
        assert_eq!(naive, expected, "{body:?}, naive");
    }

    #[test]
    fn bodies_in_every_cut() {
        for (body, expected) in [
            ("--B\r\na: b\r\n\r\ndata\r\n--B--\r\n", "[a: b\r\n|data] end"),
            ("--B\r\na: b\r\n\r\ndata\r\n--B--", "[a: b\r\n|data] end"),
            ("--B--\r\n", "end"),
            ("--B-- \t\r\nepilogue\r\n--B\r\n", "end"),
            ("pre\r\n--B\r\n\r\n\r\n--B--", "[|] end"),
            ("--B\r\n\r\n--B--", "[|] end"),
            ("--B\r\na:b\r\n\r\n--B\r\nc:d\r\n\r\n\r\n\r\n--B--", "[a:b\r\n|] [c:d\r\n|\r\n] end"),
            ("--B \t \r\n\r\n\r\r\n-\r\n--\r\n--A\r\n--B--", "[|\r\r\n-\r\n--\r\n--A] end"),
            ("--B\r\n\r\n--A\n--B\n--B--\r\n--B--", "[|--A\n--B\n--B--] end"),
            ("", "CutShort at 0"),
            ("--", "CutShort at 0"),
            ("--B", "CutShort at 3"),
            ("--B-", "CutShort at 3"),
            ("--B--\r", "CutShort at 5"),
            ("--B\r\na: b\r\n\r\ndata\r\n--", "[a: b\r\n|data CutShort at 17"),
            ("--B\r\na: b\r\n", "CutShort at 5"),
            ("--Bx\r\n", "Delimiter at 3"),
            ("--B\n", "Delimiter at 3"),
            ("--B --", "Delimiter at 3"),
            ("--B--x", "Delimiter at 5"),
            ("--B\r\n\r\n\r\n--BB", "[|] Delimiter at 12"),
            ("12345678901234567\r\n--B--", "Preamble at 0"),
            ("1234567890123456\r\n--B--", "end"),
            ("12345678901234567890", "Preamble at 0"),
            ("--B\r\n12345678901234\r\n\r\n\r\n--B--", "[12345678901234\r\n|] end"),
            ("--B\r\n123456789012345\r\n\r\n\r\n--B--", "Head at 5"),
            ("--B\r\n12345678901234567890", "Head at 5"),
            ("--B\r\n\r\n--B\r\n\r\n--B\r\n\r\n--B\r\n", "[|] [|] [|] Parts at 24"),
            (
                "--B\r\n\r\n1234567890123456789012345678901234567890123456789012\r\n--B--",
                "[|1234567890123456789012345678901234567890123456789012 Total at 59",
            ),
        ] {
            check(body, expected);
        }
    }

    #[test]
    fn boundaries() {
        let longest = "b".repeat(MOST_BOUNDARY_BYTES);
        let too_long = format!("{longest}b");
        for (boundary, expected) in [
            ("----WebKitFormBoundaryx9", true),
            ("'()+_,-./:=? a", true),
            (&longest, true),
            (&too_long, false),
            ("", false),
            ("a ", false),
            ("a\r", false),
            ("a\"", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(Parser::new(boundary, Limits::default()).is_some(), expected, "{boundary:?}");
        }
    }
}
