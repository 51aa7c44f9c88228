//! Compares our decoder of chunked bodies with one that follows the grammar of RFC 9112 section 7.1 byte by byte.

use super::exchange::{Script, Step, play_both_ways};
use super::{FieldText, Text};
use crate::{Limits, Role};
use alloc::vec::Vec;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Decodes a chunked body. Asserts that whole and cut input give the same result, and that a slow decoder gives this
/// result too.
///
/// # Panics
/// Panics if the results differ.
pub fn chunked(input: &[u8]) {
    let Some((script, body)) = Script::from_input(input) else { return };
    let transcript = play_both_ways(Role::Server, &script, &[HEAD, body].concat());
    let mut steps = transcript.steps.into_iter();
    assert!(matches!(steps.next(), Some((_, Step::Head(..)))), "the head is valid");
    let mut next = steps.next();
    let mut data = Text::default();
    if let Some((_, Step::Data(bytes))) = next {
        data = bytes;
        next = steps.next();
    }
    let outcome = match next {
        Some((consumed, Step::End(trailers))) => Outcome::Complete { bytes: consumed - HEAD.len(), trailers },
        Some((_, Step::Refused(crate::Error::Truncated))) => Outcome::Incomplete,
        Some((_, Step::Refused(_))) => Outcome::Wrong,
        other => panic!("{other:?} in a body"),
    };
    let expected = decode(body, &script.limits);
    assert_eq!((data, outcome), expected, "we (left) and the slow decoder (right): {}", body.escape_ascii());
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Complete { bytes: usize, trailers: Vec<FieldText> },
    Incomplete,
    Wrong,
}

/// The reason why reading stops early.
enum Stop {
    Incomplete,
    Wrong,
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    limits: &'b Limits,
    /// The number of extension bytes read so far.
    extensions: usize,
    /// The small chunks so far, less those that larger chunks have refilled.
    small: u128,
    data: Vec<u8>,
}

fn decode(bytes: &[u8], limits: &Limits) -> (Text, Outcome) {
    let mut reader = Reader { bytes, at: 0, limits, extensions: 0, small: 0, data: Vec::new() };
    let outcome = match reader.body() {
        Ok(trailers) => Outcome::Complete { bytes: reader.at, trailers },
        Err(Stop::Incomplete) => Outcome::Incomplete,
        Err(Stop::Wrong) => Outcome::Wrong,
    };
    (Text(reader.data), outcome)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

impl Reader<'_> {
    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Incomplete)
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<(), Stop> {
        for &byte in wanted {
            if self.peek()? != byte {
                return Err(Stop::Wrong);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn body(&mut self) -> Result<Vec<FieldText>, Stop> {
        loop {
            let size = self.size()?;
            self.chunk_extensions()?;
            self.expect(b"\r\n")?;
            if size == 0 {
                return self.trailers();
            }
            self.count(size)?;
            for _ in 0..size {
                self.data.push(self.peek()?);
                self.at += 1;
            }
            self.expect(b"\r\n")?;
        }
    }

    /// Counts a chunk against [`Limits::small_chunks`]: one of fewer than 16 bytes costs 1, each 64 bytes of a larger one
    /// refill 1.
    fn count(&mut self, size: u128) -> Result<(), Stop> {
        if size >= 16 {
            self.small = self.small.saturating_sub(size / 64);
            return Ok(());
        }
        self.small += 1;
        if self.small > u128::from(self.limits.small_chunks) { Err(Stop::Wrong) } else { Ok(()) }
    }

    fn size(&mut self) -> Result<u128, Stop> {
        let (mut size, mut digits) = (0, 0);
        while let Some(digit) = (self.peek()? as char).to_digit(16) {
            size = size * 16 + u128::from(digit);
            digits += 1;
            self.at += 1;
            if digits > 16 {
                return Err(Stop::Wrong);
            }
        }
        if digits == 0 { Err(Stop::Wrong) } else { Ok(size) }
    }

    /// Skips one byte of an extension, and counts it.
    fn pass(&mut self) -> Result<(), Stop> {
        self.at += 1;
        self.extensions += 1;
        if self.extensions > usize::from(self.limits.chunk_extension_bytes) { Err(Stop::Wrong) } else { Ok(()) }
    }

    fn blanks(&mut self) -> Result<usize, Stop> {
        let start = self.at;
        while matches!(self.peek()?, b' ' | b'\t') {
            self.pass()?;
        }
        Ok(self.at - start)
    }

    fn token(&mut self) -> Result<(), Stop> {
        if !is_token(self.peek()?) {
            return Err(Stop::Wrong);
        }
        while is_token(self.peek()?) {
            self.pass()?;
        }
        Ok(())
    }

    /// Reads `*( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`.
    fn chunk_extensions(&mut self) -> Result<(), Stop> {
        let mut blanks = self.blanks()?;
        while self.peek()? == b';' {
            self.pass()?;
            self.blanks()?;
            self.token()?;
            blanks = self.blanks()?;
            if self.peek()? == b'=' {
                self.pass()?;
                self.blanks()?;
                if self.peek()? == b'"' {
                    self.quoted_string()?
                } else {
                    self.token()?
                }
                blanks = self.blanks()?;
            }
        }
        // White space is allowed before a semicolon and an equals sign, but not before the line's end.
        if blanks > 0 { Err(Stop::Wrong) } else { Ok(()) }
    }

    fn quoted_string(&mut self) -> Result<(), Stop> {
        self.pass()?;
        loop {
            let byte = self.peek()?;
            if !is_text(byte) {
                return Err(Stop::Wrong);
            }
            self.pass()?;
            match byte {
                b'"' => return Ok(()),
                b'\\' if is_text(self.peek()?) => self.pass()?,
                b'\\' => return Err(Stop::Wrong),
                _ => {}
            }
        }
    }

    /// Reads field lines and the empty line. Ignores bytes beyond the section's limit.
    fn trailers(&mut self) -> Result<Vec<FieldText>, Stop> {
        let end = self.at + self.limits.trailer_bytes as usize;
        let full = self.bytes.len() >= end;
        self.bytes = &self.bytes[..end.min(self.bytes.len())];
        let mut fields = Vec::new();
        let read = self.field_lines(&mut fields);
        match read {
            Ok(()) => Ok(fields),
            Err(Stop::Incomplete) if !full => Err(Stop::Incomplete),
            Err(_) => Err(Stop::Wrong),
        }
    }

    fn field_lines(&mut self, fields: &mut Vec<FieldText>) -> Result<(), Stop> {
        while self.peek()? != b'\r' {
            let line = self.at;
            while is_token(self.peek_in_line(line)?) {
                self.at += 1;
            }
            let name = &self.bytes[line..self.at];
            if name.is_empty() {
                return Err(Stop::Wrong);
            }
            self.expect(b":")?;
            let value = self.at;
            while is_text(self.peek_in_line(line)?) {
                self.at += 1;
            }
            let value = &self.bytes[value..self.at];
            let field = (Text(name.to_vec()), Text(value.trim_ascii().to_vec()));
            self.expect(b"\r\n")?;
            if fields.len() == usize::from(self.limits.field_count) {
                return Err(Stop::Wrong);
            }
            fields.push(field);
        }
        self.expect(b"\r\n")
    }

    /// Returns the next byte of a field line, or an error if the line is too long.
    fn peek_in_line(&self, line: usize) -> Result<u8, Stop> {
        if self.at - line > self.limits.field_bytes as usize { Err(Stop::Wrong) } else { self.peek() }
    }
}
