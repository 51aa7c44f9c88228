//! Parsing of range requests (RFC 9110 section 14).
//!
//! Parts are sent in the order of the file. Parts that overlap or nearly touch are merged, so that a client that
//! requests the same bytes many times gets them once. A client that requests too many parts gets the whole file, as
//! from a server that does not support ranges.

use std::ops::Range;

/// The most parts that a request may name. Media players and document viewers request a few; hundreds are an attack
/// (CVE-2011-3192).
const MOST_PARTS: usize = 16;

/// Parts with fewer bytes than this between them are merged, because the header of a separate part would take more.
const GAP_BYTES: u64 = 80;

/// The meaning of a Range field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ranges {
    /// The whole file, for example because the field is malformed, has an unknown unit or requests too many parts.
    Whole,
    /// These parts. They are in order, none is empty, and they are at least [`GAP_BYTES`] apart.
    Parts(Vec<Range<u64>>),
    /// None of the requested parts is in the file (416).
    Unsatisfiable,
}

impl Ranges {
    /// Parses a field's value for a file of `length` bytes.
    pub(crate) fn parse(value: &[u8], length: u64) -> Ranges {
        let Some(set) = value.get(..5).filter(|unit| unit.eq_ignore_ascii_case(b"bytes")).map(|_| &value[5..]) else {
            return Ranges::Whole;
        };
        let Some(set) = set.strip_prefix(b"=") else { return Ranges::Whole };
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut any = false;
        for (number, text) in set.split(|&byte| byte == b',').enumerate() {
            if number == MOST_PARTS {
                return Ranges::Whole;
            }
            match (text.trim_ascii(), length) {
                (b"", _) => continue,
                // The last bytes of an empty file are the whole file, and `Content-Range` cannot express an empty
                // range.
                (text, 0) if text.starts_with(b"-") => return Ranges::Whole,
                (text, length) => match part(text, length) {
                    None => return Ranges::Whole,
                    Some(part) if part.is_empty() => {}
                    Some(part) => parts.push(part),
                },
            }
            any = true;
        }
        match (any, parts.is_empty()) {
            (false, _) => Ranges::Whole,
            (true, true) => Ranges::Unsatisfiable,
            (true, false) => Ranges::Parts(merged(parts)),
        }
    }
}

/// Parses `first-last`, `first-` or `-count`. Returns `None` if the text is malformed, and an empty range if no byte of
/// the requested range is in the file.
fn part(text: &[u8], length: u64) -> Option<Range<u64>> {
    let dash = text.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&text[..dash], &text[dash + 1..]);
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => Some(length - number(last)?.min(length)..length),
        (false, true) => Some(number(first)?.min(length)..length),
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first.min(length)..last.saturating_add(1).min(length))
        }
    }
}

/// Parses digits. A number that is too large becomes `u64::MAX`.
fn number(digits: &[u8]) -> Option<u64> {
    let digit = |number: u64, digit: u8| {
        digit.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    };
    digits.iter().try_fold(0, |number, &next| digit(number, next))
}

fn merged(mut parts: Vec<Range<u64>>) -> Vec<Range<u64>> {
    parts.sort_by_key(|part| part.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(parts.len());
    for part in parts {
        match merged.last_mut() {
            Some(last) if part.start < last.end.saturating_add(GAP_BYTES) => last.end = last.end.max(part.end),
            _ => merged.push(part),
        }
    }
    merged
}

/// The assertion of a fuzz target. The file's length is three times the first byte; the other bytes are the field's
/// value. The parsed parts must contain the same bytes as the parts of the naive [`twin`], and may contain the gaps
/// between merged parts.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn assert_equals_twin(input: &[u8]) {
    let Some((&length, value)) = input.split_first() else { return };
    let length = u64::from(length) * 3;
    let ranges = Ranges::parse(value, length);
    let Some(asked) = twin(value, length) else {
        return assert_eq!(ranges, Ranges::Whole, "{}", value.escape_ascii());
    };
    let is_asked = |at: u64| asked.iter().any(|part| part.contains(&u128::from(at)));
    let Ranges::Parts(parts) = ranges else {
        assert_eq!(ranges, Ranges::Unsatisfiable, "{}", value.escape_ascii());
        return assert!(!(0..length).any(is_asked), "a requested byte is in the file: {}", value.escape_ascii());
    };
    assert!(!parts.is_empty() && parts.len() <= MOST_PARTS, "{parts:?}");
    assert!(parts.windows(2).all(|pair| pair[0].end + GAP_BYTES <= pair[1].start), "{parts:?}");
    for part in &parts {
        assert!(part.start < part.end && part.end <= length, "{parts:?} of {length}");
        assert!(is_asked(part.start) && is_asked(part.end - 1), "{parts:?}: {}", value.escape_ascii());
        let mut unasked = 0;
        for at in part.clone() {
            unasked = if is_asked(at) { 0 } else { unasked + 1 };
            assert!(unasked < GAP_BYTES, "{parts:?}: {}", value.escape_ascii());
        }
    }
    let is_sent = |at: u64| parts.iter().any(|part| part.contains(&at));
    assert!((0..length).filter(|&at| is_asked(at)).all(is_sent), "{parts:?}: {}", value.escape_ascii());
}

/// Returns the parts in a value as they are written, or `None` if the value is ignored.
#[cfg(any(test, feature = "testing"))]
fn twin(value: &[u8], length: u64) -> Option<Vec<Range<u128>>> {
    let text = std::str::from_utf8(value).ok()?.to_ascii_lowercase();
    let elements: Vec<&str> = text.strip_prefix("bytes=")?.split(',').collect();
    let blank = |letter: char| letter.is_ascii_whitespace();
    let mut parts = Vec::new();
    let digits = |text: &str| -> Option<u128> {
        let is_number = text.chars().all(|letter| letter.is_ascii_digit());
        let text = text.trim_start_matches('0');
        let most = u128::from(u64::MAX);
        is_number.then(|| if text.len() > 30 { most } else { text.parse().unwrap_or(0).min(most) })
    };
    for element in elements.iter().map(|element| element.trim_matches(blank)).filter(|element| !element.is_empty()) {
        let (first, last) = element.split_once('-')?;
        parts.push(match (first, last) {
            ("", "") => return None,
            ("", _) if length == 0 => return None,
            ("", count) => u128::from(length).saturating_sub(digits(count)?)..u128::from(length),
            (first, "") => digits(first)?..1 << 100,
            (first, last) if digits(first)? <= digits(last)? => digits(first)?..digits(last)? + 1,
            _ => return None,
        });
    }
    (elements.len() <= MOST_PARTS && !parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_what_they_come_to() {
        use Ranges::{Parts, Unsatisfiable, Whole};
        let parts = |parts: &[(u64, u64)]| Parts(parts.iter().map(|&(start, end)| start..end).collect());
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        for (value, length, expected) in [
            ("bytes=0-0", 1000, parts(&[(0, 1)])),
            ("bytes=0-499", 1000, parts(&[(0, 500)])),
            ("bytes=500-999", 1000, parts(&[(500, 1000)])),
            ("bytes=500-5000", 1000, parts(&[(500, 1000)])),
            ("bytes=500-", 1000, parts(&[(500, 1000)])),
            ("bytes=-1", 1000, parts(&[(999, 1000)])),
            ("bytes=-5000", 1000, parts(&[(0, 1000)])),
            ("BYTES=0-1", 1000, parts(&[(0, 2)])),
            ("bytes=0-0,-1", 1000, parts(&[(0, 1), (999, 1000)])),
            ("bytes= 0-0 , -1 ,,", 1000, parts(&[(0, 1), (999, 1000)])),
            ("bytes=500-600,601-999", 1000, parts(&[(500, 1000)])),
            ("bytes=500-700,601-650", 1000, parts(&[(500, 701)])),
            ("bytes=900-999,0-9", 1000, parts(&[(0, 10), (900, 1000)])),
            ("bytes=0-9,90-99", 1000, parts(&[(0, 10), (90, 100)])),
            ("bytes=0-9,89-99", 1000, parts(&[(0, 100)])),
            ("bytes=0-0,5000-", 1000, parts(&[(0, 1)])),
            ("bytes=1000-", 1000, Unsatisfiable),
            ("bytes=1000-2000,3000-", 1000, Unsatisfiable),
            ("bytes=-0", 1000, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=-5", 0, Whole),
            ("bytes=99999999999999999999999-", 1000, Unsatisfiable),
            ("bytes=0-99999999999999999999999", 1000, parts(&[(0, 1000)])),
            ("bytes=-99999999999999999999999", 1000, parts(&[(0, 1000)])),
            ("bytes=5-4", 1000, Whole),
            ("bytes=a-b", 1000, Whole),
            ("bytes=-", 1000, Whole),
            ("bytes=--1", 1000, Whole),
            ("bytes=0-1-2", 1000, Whole),
            ("bytes=+0-1", 1000, Whole),
            ("bytes=0 -1", 1000, Whole),
            ("bytes=", 1000, Whole),
            ("bytes=,", 1000, Whole),
            ("bytes", 1000, Whole),
            ("", 1000, Whole),
            ("lines=0-1", 1000, Whole),
            ("bytes=0-1, bytes=2-3", 1000, Whole),
        ] {
            assert_eq!(Ranges::parse(value.as_bytes(), length), expected, "{value} of {length}");
        }
        assert_eq!(Ranges::parse(many(MOST_PARTS).as_bytes(), 10), parts(&[(0, 1)]));
        assert_eq!(Ranges::parse(many(MOST_PARTS + 1).as_bytes(), 10), Whole);
    }

    #[test]
    fn every_small_set_of_parts_equals_its_twin() {
        let words = ["0", "1", "79", "80", "200", "-", ",", " ", "99999999999999999999"];
        let mut places = [0; 5];
        loop {
            let text: String = places.iter().filter_map(|&place: &usize| words.get(place)).copied().collect();
            for length in [0, 1, 80] {
                assert_equals_twin(&[&[length][..], b"bytes=", text.as_bytes()].concat());
            }
            // Count up: each place is a digit that selects a word, or, at its highest value, none.
            let Some(at) = places.iter().position(|&place| place < words.len()) else { return };
            places[at] += 1;
            places[..at].fill(0);
        }
    }
}
