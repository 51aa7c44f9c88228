//! Decodes chunked bodies (RFC 9112 section 7.1): sizes, extensions, data, trailers.
//!
//! The decoder is strict, because lenient parsers of chunks have allowed request smuggling. A size is 1 to 16 hex
//! digits and nothing before them, a line ends in CR LF and nothing else, and extensions follow their grammar and share
//! a byte budget for the whole body.

use crate::scan::{self, NAME};
use crate::{Error, Head, Limits, h1::parse};

/// The part of a chunked body that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// Decodes one chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoder {
    place: Place,
    extension_bytes: u16,
}

/// The number of data bytes below which a chunk counts as small.
const SMALL_BYTES: u64 = 16;

/// A larger chunk restores one small chunk for each `BYTES_A_CHUNK` of its bytes, and each second restores
/// `CHUNKS_A_SECOND`.
const BYTES_A_CHUNK: u64 = 64;
const CHUNKS_A_SECOND: u32 = 256;

/// Counts the small chunks of a connection against [`Limits::small_chunks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SmallChunks {
    used: u16,
    second: u32,
}

impl SmallChunks {
    pub(super) const fn new() -> SmallChunks {
        SmallChunks { used: 0, second: 0 }
    }

    /// Sets the current second, counted from any start, and restores small chunks for the seconds since the last call.
    pub(super) fn set_second(&mut self, second: u32) {
        let passed = second.saturating_sub(self.second);
        self.second = second;
        self.give_back(u64::from(passed.saturating_mul(CHUNKS_A_SECOND)));
    }

    fn give_back(&mut self, chunks: u64) {
        self.used = self.used.saturating_sub(u16::try_from(chunks).unwrap_or(u16::MAX));
    }

    fn chunk(&mut self, size: u64, limits: &Limits) -> Result<(), Error> {
        if size >= SMALL_BYTES {
            self.give_back(size / BYTES_A_CHUNK);
        } else if size > 0 {
            self.used = self.used.saturating_add(1);
            if self.used > limits.small_chunks {
                return Err(Error::TooManySmallChunks);
            }
        }
        Ok(())
    }
}

/// The result of reading the front of the window.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'b> {
    NeedMore,
    Data(&'b [u8]),
    End {
        trailers: bool,
    },
    /// The trailer section behind the bytes taken has folded lines.
    Folded,
}

impl Decoder {
    pub(super) const fn new() -> Decoder {
        Decoder { place: Place::Size, extension_bytes: 0 }
    }

    /// Returns the number of data bytes of the current chunk that have not been read.
    pub(super) fn remaining(&self) -> u64 {
        match self.place {
            Place::Data(left) => left,
            _ => 0,
        }
    }

    /// Reads the front of the window. Returns the number of bytes taken and their meaning.
    pub(super) fn receive<'b>(
        &mut self,
        window: &'b [u8],
        head: &mut Head,
        limits: &Limits,
        small: &mut SmallChunks,
    ) -> Result<(usize, Found<'b>), Error> {
        let mut at = 0;
        loop {
            let rest = &window[at..];
            match self.place {
                Place::Size => match self.size_line(rest, limits)? {
                    None => return Ok((at, Found::NeedMore)),
                    Some((length, size)) => {
                        at += length;
                        small.chunk(size, limits)?;
                        self.place = if size == 0 { Place::Trailers } else { Place::Data(size) };
                    }
                },
                Place::Data(_) if rest.is_empty() => return Ok((at, Found::NeedMore)),
                Place::Data(left) => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let left = left - take as u64;
                    self.place = if left == 0 { Place::DataEnd } else { Place::Data(left) };
                    return Ok((at + take, Found::Data(&rest[..take])));
                }
                Place::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.place = Place::Size;
                    }
                    [] | [b'\r'] => return Ok((at, Found::NeedMore)),
                    _ => return Err(Error::InvalidChunkEnd),
                },
                Place::Trailers => {
                    // Spans have 16 bits and count from the window's start, but the trailers begin `at` bytes after it.
                    let most =
                        limits.trailer_bytes.min(Limits::MAX_HEAD_BYTES - (at as u32).min(Limits::MAX_HEAD_BYTES));
                    return Ok(match parse::parse_trailers(rest, most, limits, head) {
                        // A first line that begins with white space continues nothing.
                        Err(Error::ObsoleteFold) if !head.fields.is_empty() => (at, Found::Folded),
                        Err(error) => return Err(error),
                        Ok(None) => (at, Found::NeedMore),
                        Ok(Some(length)) => {
                            for field in &mut head.fields {
                                for span in [&mut field.name, &mut field.value] {
                                    span.start += at as u16;
                                    span.end += at as u16;
                                }
                            }
                            (at + length, Found::End { trailers: !head.fields.is_empty() })
                        }
                    });
                }
            }
        }
    }

    /// Reads `chunk-size [ chunk-ext ] CRLF`. Returns the line's length and the chunk's size, or `None` if the line is
    /// incomplete.
    fn size_line(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<(usize, u64)>, Error> {
        let mut size = 0u64;
        let mut at = 0;
        while let Some(digit) = bytes.get(at).and_then(|&byte| (byte as char).to_digit(16)) {
            if at == 16 {
                return Err(Error::InvalidChunkSize);
            }
            size = size << 4 | u64::from(digit);
            at += 1;
        }
        if at == 0 && !bytes.is_empty() {
            return Err(Error::InvalidChunkSize);
        }
        let digits = at;
        match bytes.get(at..).unwrap_or_default() {
            [b'\r', b'\n', ..] => return Ok(Some((at + 2, size))),
            [] | [b'\r'] => return Ok(None),
            [b'\r' | b'\n', ..] => return Err(Error::InvalidLineEnd),
            [b';' | b' ' | b'\t', ..] => {}
            _ => return Err(Error::InvalidChunkSize),
        }
        let budget = limits.chunk_extension_bytes.saturating_sub(self.extension_bytes) as usize;
        let end = extensions(bytes.get(at..at + budget + 1).unwrap_or(&bytes[at..]))?;
        let used = end.unwrap_or(bytes.len() - at);
        if used > budget {
            return Err(Error::ChunkExtensionsTooLong);
        }
        let Some(used) = end else { return Ok(None) };
        at = digits + used;
        match bytes[at..] {
            [b'\r', b'\n', ..] => {
                self.extension_bytes += used as u16;
                Ok(Some((at + 2, size)))
            }
            [b'\r'] => Ok(None),
            _ => Err(Error::InvalidLineEnd),
        }
    }
}

/// Reads `*( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`. Returns the index of the line end, or `None`
/// if the bytes end first.
fn extensions(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let blank = |mut at: usize| {
        while let Some(b' ' | b'\t') = bytes.get(at) {
            at += 1;
        }
        at
    };
    let token = |mut at: usize| {
        while bytes.get(at).is_some_and(|&byte| scan::is(NAME, byte)) {
            at += 1;
        }
        at
    };
    let mut at = 0;
    loop {
        at = match (bytes.get(at), bytes.get(blank(at))) {
            (None, _) | (_, None) => return Ok(None),
            (Some(b'\r' | b'\n'), _) => return Ok(Some(at)),
            (_, Some(b';')) => blank(blank(at) + 1),
            _ => return Err(Error::InvalidChunkExtension),
        };
        let name = at;
        at = token(at);
        if at == bytes.len() {
            return Ok(None);
        }
        if at == name {
            return Err(Error::InvalidChunkExtension);
        }
        if bytes.get(blank(at)) != Some(&b'=') {
            continue;
        }
        at = blank(blank(at) + 1);
        if bytes.get(at) == Some(&b'"') {
            match quoted_string(bytes, at)? {
                None => return Ok(None),
                Some(end) => at = end,
            }
        } else {
            let value = at;
            at = token(at);
            if at == value {
                return if at == bytes.len() { Ok(None) } else { Err(Error::InvalidChunkExtension) };
            }
        }
    }
}

/// Reads a quoted string that begins at `at`. Returns the index after its closing quote, or `None` if the bytes end
/// first.
fn quoted_string(bytes: &[u8], at: usize) -> Result<Option<usize>, Error> {
    let mut at = at + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(Some(at + 1)),
            b'\\' => match bytes.get(at + 1) {
                None => return Ok(None),
                Some(b'\t' | b' '..=0x7e | 0x80..) => at += 1,
                Some(_) => return Err(Error::InvalidChunkExtension),
            },
            b'\t' | b' '..=0x7e | 0x80.. => {}
            _ => return Err(Error::InvalidChunkExtension),
        }
        at += 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A body's data, and the names and values of its trailers.
    type Decoded = (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);
    type Expected<'a> = (&'a str, &'a [(&'a str, &'a str)]);

    /// Decodes a body in each split of [`splits`](crate::testing::splits) and asserts that the results are equal.
    /// Returns the data and the trailers, or the error.
    fn decode(body: &[u8]) -> Result<Decoded, Error> {
        let mut results = Vec::new();
        for pieces in crate::testing::splits(body) {
            results.push(decode_pieces(&pieces));
        }
        for result in &results {
            assert_eq!(result, &results[0], "{:?}", core::str::from_utf8(body));
        }
        results.swap_remove(0)
    }

    fn decode_pieces(pieces: &[&[u8]]) -> Result<Decoded, Error> {
        let (mut decoder, mut head, limits) = (Decoder::new(), Head::default(), Limits::default());
        let (mut window, mut data, mut small) = (Vec::new(), Vec::new(), SmallChunks::default());
        for piece in pieces {
            window.extend_from_slice(piece);
            loop {
                let (taken, found) = decoder.receive(&window, &mut head, &limits, &mut small)?;
                match found {
                    Found::NeedMore => {
                        window.drain(..taken);
                        break;
                    }
                    Found::Data(bytes) => data.extend_from_slice(bytes),
                    Found::Folded => return Err(Error::ObsoleteFold),
                    Found::End { .. } => {
                        let words = |span: crate::Span| span.of(&window).to_vec();
                        let trailers =
                            head.fields.iter().map(|field| (words(field.name), words(field.value))).collect();
                        return Ok((data, trailers));
                    }
                }
                window.drain(..taken);
            }
        }
        Err(Error::Truncated)
    }

    fn check(body: &str, expected: Result<Expected<'_>, Error>) {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let expected = expected.map(|(data, trailers)| {
            (bytes(data), trailers.iter().map(|(name, value)| (bytes(name), bytes(value))).collect::<Vec<_>>())
        });
        assert_eq!(decode(body.as_bytes()), expected, "{body:?}");
    }

    #[test]
    fn bodies() {
        check("0\r\n\r\n", Ok(("", &[])));
        check("5\r\nhello\r\n0\r\n\r\n", Ok(("hello", &[])));
        check("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n", Ok(("helloworld", &[])));
        check("A\r\n0123456789\r\n000\r\n\r\n", Ok(("0123456789", &[])));
        check("1;a\r\nx\r\n0\r\n\r\n", Ok(("x", &[])));
        check("1 ; a=b ;c=\"d;\\\"e\" \r\nx\r\n0\r\n\r\n", Err(Error::InvalidChunkExtension));
        check("1 ; a = b ;c=\"d;\\\"e\"\r\nx\r\n0\r\n\r\n", Ok(("x", &[])));
        check("1\r\nx\r\n0\r\nx-sum: 5\r\n\r\n", Ok(("x", &[("x-sum", "5")])));
    }

    #[test]
    fn what_is_refused() {
        for size in ["x", "-1", "+1", "0x1", " 1", "1_0", "\"1\"", "11111111111111111"] {
            check(&std::format!("{size}\r\nx\r\n0\r\n\r\n"), Err(Error::InvalidChunkSize));
        }
        check("1\nx\r\n0\r\n\r\n", Err(Error::InvalidLineEnd));
        check("1\rx\r\n0\r\n\r\n", Err(Error::InvalidLineEnd));
        check("1;a\nx\r\n0\r\n\r\n", Err(Error::InvalidLineEnd));
        check("1\r\nxy\r\n0\r\n\r\n", Err(Error::InvalidChunkEnd));
        check("1\r\nx\n0\r\n\r\n", Err(Error::InvalidChunkEnd));
        for extension in [";", ";=", ";a=", ";a b", ";a=\"\u{1}\"", "; ;a", " x"] {
            check(&std::format!("1{extension}\r\nx\r\n0\r\n\r\n"), Err(Error::InvalidChunkExtension));
        }
        check("0\r\nbad field: x\r\n\r\n", Err(Error::SpaceBeforeColon));
        check("5\r\nhel", Err(Error::Truncated));
    }

    #[test]
    fn a_body_byte_by_byte_is_cut_unless_it_takes_its_time() {
        let limits = Limits { small_chunks: 3, ..Limits::default() };
        let mut small = SmallChunks::default();
        let mut all = |sizes: &[u64]| sizes.iter().try_for_each(|&size| small.chunk(size, &limits));
        assert_eq!(all(&[1, 15, 1, 0, 16]), Ok(()));
        assert_eq!(all(&[1]), Err(Error::TooManySmallChunks));
        // The 128 bytes give back two of the four small chunks.
        assert_eq!((all(&[128, 1]), all(&[1])), (Ok(()), Err(Error::TooManySmallChunks)));
        small.set_second(7);
        assert_eq!((small.used, small.second), (0, 7));
        let body = std::format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(20_001));
        let decoded = decode_pieces(&[body.as_bytes()]);
        assert_eq!(decoded, Err(Error::TooManySmallChunks));
    }

    #[test]
    fn endless_extensions_are_cut() {
        let one = std::format!("1;{}\r\nx\r\n", "a".repeat(600));
        check(&std::format!("{one}0\r\n\r\n"), Ok(("x", &[])));
        check(&std::format!("{one}{one}0\r\n\r\n"), Err(Error::ChunkExtensionsTooLong));
    }
}
