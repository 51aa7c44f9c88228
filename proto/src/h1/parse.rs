//! Parses heads: request lines, status lines and field lines (RFC 9112 sections 2 to 5).
//!
//! The parser makes one pass. For each part the scanner finds the first byte that cannot belong to it. Either this is
//! the delimiter that the grammar requires next, or the head is invalid. Validation thus costs little beyond finding
//! the end of each part. An incomplete head is parsed again from its start when more bytes have arrived;
//! [`super::Connection`] bounds how often.

use crate::scan::{self, Cursor, Job, Scanner};
use crate::{Error, Field, Head, Known, Limits, Method, Span, Version, target};

/// Parses a request's head at the front of `bytes` into `head`. Returns the head's length, including the empty line, or
/// `None` if the head is incomplete. Does not interpret the fields that describe the body.
///
/// # Errors
/// Returns the head's first violation of RFC 9112 or of the limits.
#[inline]
pub fn parse_request(bytes: &[u8], limits: &Limits, head: &mut Head) -> Result<Option<usize>, Error> {
    scan::with(RequestHead { bytes, limits, head })
}

/// Parses a response's head, as [`parse_request`] does a request's.
///
/// # Errors
/// Returns the head's first violation of RFC 9112 or of the limits.
pub fn parse_response(bytes: &[u8], limits: &Limits, head: &mut Head) -> Result<Option<usize>, Error> {
    scan::with(ResponseHead { bytes, limits, head })
}

/// Parses a trailer section of at most `most` bytes: field lines and the empty line. Returns its length, or `None` if
/// it is incomplete.
///
/// # Errors
/// Returns the section's first violation of RFC 9112 or of the limits.
pub fn parse_trailers(bytes: &[u8], most: u32, limits: &Limits, head: &mut Head) -> Result<Option<usize>, Error> {
    scan::with(TrailerSection { bytes, most, limits, head })
}

/// Joins folded field lines with one space, as RFC 9112 section 5.2 requires of a client. `bytes` begins with the response's head or
/// trailer section for which [`Connection::receive`](super::Connection::receive) has returned
/// [`Event::Folded`](crate::Event::Folded). What is left over becomes spaces at the end of the line, which belong to no value, so
/// that all lines stay where they are.
pub fn unfold(bytes: &mut [u8]) {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut at = 0;
    // The end of what is joined of a folded line.
    let mut joined: Option<usize> = None;
    while let Some(end) = memchr::memchr(b'\n', &bytes[at..]) {
        let next = at + end + 1;
        if bytes[at..next] == *b"\r\n" {
            break;
        }
        let line_end = if bytes[at..next].ends_with(b"\r\n") { next - 2 } else { next - 1 };
        let goes_on = line_end == next - 2 && bytes.get(next).is_some_and(is_space);
        let trimmed = |from: usize, to: usize, bytes: &[u8]| {
            bytes[from..to].iter().rposition(|byte| !is_space(byte)).map_or(from, |last| from + last + 1)
        };
        if let Some(to) = joined {
            let first =
                bytes[at..line_end].iter().position(|byte| !is_space(byte)).map_or(line_end, |first| at + first);
            let last = trimmed(first, line_end, bytes);
            if first < last {
                bytes[to] = b' ';
                bytes.copy_within(first..last, to + 1);
                joined = Some(to + 1 + last - first);
            }
        } else if goes_on {
            joined = Some(trimmed(at, line_end, bytes));
        }
        if !goes_on && let Some(to) = joined.take() {
            bytes[to..line_end].fill(b' ');
        }
        at = next;
    }
}

struct RequestHead<'a> {
    bytes: &'a [u8],
    limits: &'a Limits,
    head: &'a mut Head,
}

struct ResponseHead<'a> {
    bytes: &'a [u8],
    limits: &'a Limits,
    head: &'a mut Head,
}

struct TrailerSection<'a> {
    bytes: &'a [u8],
    most: u32,
    limits: &'a Limits,
    head: &'a mut Head,
}

/// Returns the bytes that a head may use, at most `limit`, and true if there are that many.
#[inline(always)]
fn within(bytes: &[u8], limit: u32) -> (&[u8], bool) {
    let limit = limit.min(Limits::MAX_HEAD_BYTES) as usize;
    match bytes.get(..limit) {
        Some(cut) => (cut, true),
        None => (bytes, false),
    }
}

impl Job for RequestHead<'_> {
    type Output = Result<Option<usize>, Error>;

    #[inline(always)]
    fn run<S: Scanner>(self) -> Self::Output {
        let RequestHead { bytes, limits, head } = self;
        let (bytes, full) = within(bytes, limits.head_bytes);
        head.clear();
        let Some(start) = skip_empty_lines(bytes, limits.empty_lines)? else { return Ok(None) };
        // The cursor begins at the request line, although that line is parsed without it, because the processor can
        // load this block at once. The position of the first field is known only after the request line is parsed.
        let mut cursor = S::Cursor::new(bytes, start);
        let (line, too_long) = match bytes.get(..start + limits.target_bytes as usize + LINE_OVERHEAD) {
            Some(line) => (line, true),
            None => (bytes, false),
        };
        let Some(at) = request_line::<S>(line, start, limits, head)? else {
            return if too_long || full { Err(line_too_long(line, start)) } else { Ok(None) };
        };
        match fields::<false>(&mut cursor, bytes, at, limits, head)? {
            None if full => Err(Error::HeadTooLarge),
            end => Ok(end),
        }
    }
}

const HTTP_11: u64 = u64::from_le_bytes(*b"HTTP/1.1");
const HTTP_10: u64 = u64::from_le_bytes(*b"HTTP/1.0");

/// The number of bytes that a request line may hold besides its target, for the method, two spaces, the version and the
/// line end.
pub(super) const LINE_OVERHEAD: usize = 64;

/// Returns the error for an incomplete request line that is too long. If it has no space, the method is too long, which
/// a server answers with 501 and not with 414 (RFC 9112 section 3).
#[cold]
fn line_too_long(line: &[u8], start: usize) -> Error {
    if line[start..].contains(&b' ') { Error::TargetTooLong } else { Error::MethodTooLong }
}

#[inline(always)]
fn request_line<S: Scanner>(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    head: &mut Head,
) -> Result<Option<usize>, Error> {
    let method_end = if bytes.get(start..start + 4) == Some(b"GET ") {
        head.method = Method::Get;
        start + 3
    } else {
        let end = S::name_end(bytes, start);
        match bytes.get(end) {
            None => return Ok(None),
            Some(b' ') if end > start => {}
            Some(_) => return Err(Error::InvalidMethod),
        }
        head.method = Method::from_token(&bytes[start..end]);
        end
    };
    head.method_span = Span::new(start, method_end);
    let Some(target_end) = target::parse::<S>(bytes, method_end + 1, head.method, &mut head.target)? else {
        return Ok(None);
    };
    if target_end - method_end - 1 > limits.target_bytes as usize {
        return Err(Error::TargetTooLong);
    }
    let Some(version) = bytes.get(target_end + 1..target_end + 11) else {
        return incomplete_version(&bytes[target_end + 1..], 8).map(|()| None);
    };
    // The version is compared as one word, because a slice pattern would be compared byte by byte.
    let (name, line_end) = version.split_at(8);
    let word = name.try_into().map(u64::from_le_bytes).unwrap_or_default();
    head.version = match (word, line_end) {
        (HTTP_11, b"\r\n") => Version::Http11,
        (HTTP_10, b"\r\n") => Version::Http10,
        _ => other_version(version)?,
    };
    Ok(Some(target_end + 11))
}

/// Parses a version and line end other than `HTTP/1.0` or `HTTP/1.1` with CR LF.
#[cold]
fn other_version(version: &[u8]) -> Result<Version, Error> {
    let [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9', end @ ..] = version else {
        return Err(Error::InvalidVersion);
    };
    match end {
        b"\r\n" => {}
        [b'\n', _] | [b'\r', _] => return Err(Error::InvalidLineEnd),
        _ => return Err(Error::InvalidVersion),
    }
    match (major, minor) {
        (b'1', b'0') => Ok(Version::Http10),
        (b'1', _) => Ok(Version::Http11),
        _ => Err(Error::UnsupportedVersion),
    }
}

/// Returns an error if the bytes cannot be the beginning of a version of `width` bytes and a line end.
#[cold]
fn incomplete_version(bytes: &[u8], width: usize) -> Result<(), Error> {
    for (at, &byte) in bytes.iter().enumerate() {
        let fits = match at {
            0..5 => byte == b"HTTP/"[at],
            5 | 7 => byte.is_ascii_digit(),
            6 => byte == b'.',
            _ if at == width => byte == b'\r',
            _ => true,
        };
        if !fits {
            let line_end = at == width && byte == b'\n';
            return Err(if line_end { Error::InvalidLineEnd } else { Error::InvalidVersion });
        }
    }
    Ok(())
}

/// Skips up to `most` empty lines before a start line (RFC 9112 section 2.2). Returns where the start line begins, or
/// `None` if more bytes are needed.
#[inline(always)]
fn skip_empty_lines(bytes: &[u8], most: u8) -> Result<Option<usize>, Error> {
    if !matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Ok(Some(0));
    }
    let mut at = 0;
    loop {
        match bytes[at..] {
            [b'\r', b'\n', ..] if at < 2 * most as usize => at += 2,
            [] => return Ok(None),
            [b'\r'] if at < 2 * most as usize => return Ok(None),
            [b'\r' | b'\n', ..] => return Err(Error::InvalidLineEnd),
            _ => return Ok(Some(at)),
        }
    }
}

impl Job for ResponseHead<'_> {
    type Output = Result<Option<usize>, Error>;

    #[inline(always)]
    fn run<S: Scanner>(self) -> Self::Output {
        let ResponseHead { bytes, limits, head } = self;
        let (bytes, full) = within(bytes, limits.head_bytes);
        head.clear();
        let at = status_line::<S>(bytes, head)?;
        let end = match at {
            Some(at) => fields::<true>(&mut S::Cursor::new(bytes, at), bytes, at, limits, head)?,
            None => None,
        };
        match end {
            None if full => Err(Error::HeadTooLarge),
            end => Ok(end),
        }
    }
}

/// Parses a status line such as `HTTP/1.1 200 OK`. Returns the index after the line, or `None` if it is incomplete. The
/// reason may be missing, and even the space before it, because some servers omit them.
fn status_line<S: Scanner>(bytes: &[u8], head: &mut Head) -> Result<Option<usize>, Error> {
    let Some(start) = bytes.get(..12) else {
        let known = bytes.len().min(8);
        incomplete_version(&bytes[..known], 8)?;
        return Ok(None);
    };
    head.version = match &start[..8] {
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9'] => Version::Http11,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => return Err(Error::UnsupportedVersion),
        _ => return Err(Error::InvalidVersion),
    };
    let [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = start[8..] else {
        return Err(Error::InvalidStatus);
    };
    head.status = u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0');
    let end = S::value_end(bytes, 12);
    match bytes[12..end].first() {
        None | Some(b' ') => {}
        Some(_) => return Err(Error::InvalidStatus),
    }
    head.reason = Span::new((13).min(end), end);
    match bytes[end..] {
        [b'\r', b'\n', ..] => Ok(Some(end + 2)),
        [b'\r'] | [] => Ok(None),
        [b'\r' | b'\n', ..] => Err(Error::InvalidLineEnd),
        _ => Err(Error::InvalidStatus),
    }
}

impl Job for TrailerSection<'_> {
    type Output = Result<Option<usize>, Error>;

    #[inline(always)]
    fn run<S: Scanner>(self) -> Self::Output {
        let TrailerSection { bytes, most, limits, head } = self;
        let (bytes, full) = within(bytes, most);
        head.clear();
        match fields::<false>(&mut S::Cursor::new(bytes, 0), bytes, 0, limits, head)? {
            None if full => Err(Error::TrailersTooLarge),
            end => Ok(end),
        }
    }
}

/// Parses field lines and the empty line. Returns the index after it, or `None` if more bytes are needed. With `BLANKS`,
/// drops white space between a name and its colon, as RFC 9112 section 5.1 asks a proxy to do in a response. In a
/// request that is an error.
#[inline(always)]
fn fields<'b, const BLANKS: bool>(
    cursor: &mut impl Cursor<'b>,
    bytes: &'b [u8],
    from: usize,
    limits: &Limits,
    head: &mut Head,
) -> Result<Option<usize>, Error> {
    let mut at = from;
    loop {
        let line = at;
        let name_end = cursor.name_end(at);
        let colon = if BLANKS && name_end != line { after_blanks(bytes, name_end) } else { name_end };
        let Some(&delimiter) = bytes.get(colon) else {
            return if colon - line > limits.field_bytes as usize { Err(Error::FieldTooLong) } else { Ok(None) };
        };
        if delimiter != b':' || name_end == line {
            if name_end != line {
                if name_end - line > limits.field_bytes as usize {
                    return Err(Error::FieldTooLong);
                }
                return Err(if matches!(bytes[name_end], b' ' | b'\t') {
                    Error::SpaceBeforeColon
                } else {
                    Error::InvalidFieldName
                });
            }
            return end_of_fields(bytes, line);
        }
        at = after_blanks(bytes, colon + 1);
        let value_start = at;
        at = cursor.value_end(at);
        if at - line > limits.field_bytes as usize {
            return Err(Error::FieldTooLong);
        }
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => {}
            Some([b'\n', _]) | Some([b'\r', _]) => return Err(Error::InvalidLineEnd),
            Some(_) => return Err(Error::InvalidFieldValue),
            None => return unfinished_line(&bytes[at..]).map(|()| None),
        }
        let mut value_end = at;
        while value_end > value_start && matches!(bytes[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        if head.fields.len() == limits.field_count as usize {
            return Err(Error::TooManyFields);
        }
        let known = Known::from_name(&bytes[line..name_end]);
        head.repeated |= head.seen & known.bit();
        head.seen |= known.bit();
        head.fields.push(Field { name: Span::new(line, name_end), value: Span::new(value_start, value_end), known });
        at += 2;
    }
}

/// Returns the index of the first byte from `at` on that is no space and no tab.
#[inline(always)]
fn after_blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Handles a line that does not begin with a field name, and so must be the empty line. Returns the index after the
/// line, or `None` if it is incomplete.
#[inline(always)]
fn end_of_fields(bytes: &[u8], at: usize) -> Result<Option<usize>, Error> {
    match bytes[at..] {
        [b'\r', b'\n', ..] => Ok(Some(at + 2)),
        [b'\r'] => Ok(None),
        [b'\r' | b'\n', ..] => Err(Error::InvalidLineEnd),
        [b' ' | b'\t', ..] => Err(Error::ObsoleteFold),
        _ => Err(Error::InvalidFieldName),
    }
}

/// Checks the bytes after a value if fewer than two have arrived. None, or a carriage return, can still become a line
/// end.
#[cold]
fn unfinished_line(rest: &[u8]) -> Result<(), Error> {
    match rest {
        [] | [b'\r'] => Ok(()),
        [b'\n', ..] => Err(Error::InvalidLineEnd),
        _ => Err(Error::InvalidFieldValue),
    }
}
