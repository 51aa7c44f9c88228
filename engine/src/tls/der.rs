//! Reads a certificate's DNS names, validity and subject.
//!
//! This parser of DER (X.690) reads only these fields of a certificate (RFC 5280 section 4.1) and verifies nothing,
//! because rustls has already verified a client's certificate, and the server's own certificates are checked against
//! their keys. A library for all of X.509 would add a dozen crates. Nothing here panics; input that cannot be parsed
//! gives `None`.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag of the version, `[0] EXPLICIT`.
const VERSION: u8 = 0xa0;
/// The tag of the extensions, `[3] EXPLICIT`.
const EXTENSIONS: u8 = 0xa3;
/// The tag of a DNS name in a `GeneralName`, `[2] IMPLICIT`.
const DNS_NAME: u8 = 0x82;
/// The object identifier of the subject alternative names, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Attribute types that RFC 4514 section 3 gives short names.
const SHORT_NAMES: &[(&[u8], &str)] = &[
    (&[0x55, 0x04, 0x03], "CN"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x09], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01], "UID"),
];

/// The fields that are read from a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The DNS names among the certificate's subject alternative names, in lower case.
    pub(super) names: Vec<String>,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// The subject in the format of RFC 4514.
    pub(super) subject: String,
}

/// Reads a certificate. Returns `None` if the bytes cannot be parsed as a certificate.
pub(super) fn facts(certificate: &[u8]) -> Option<Facts> {
    let mut outer = Reader { rest: Reader { rest: certificate }.expect(SEQUENCE)? };
    let mut body = Reader { rest: outer.expect(SEQUENCE)? };
    body.optional(VERSION);
    body.expect(INTEGER)?;
    let _signature = body.expect(SEQUENCE)?;
    let _issuer = body.expect(SEQUENCE)?;
    let mut validity = Reader { rest: body.expect(SEQUENCE)? };
    let (not_before, not_after) = (validity.time()?, validity.time()?);
    let subject = distinguished_name(body.expect(SEQUENCE)?)?;
    let _public_key = body.expect(SEQUENCE)?;
    let mut names = Vec::new();
    while let Some((tag, value)) = body.next() {
        if tag == EXTENSIONS {
            names = alternative_names(Reader { rest: value }.expect(SEQUENCE)?)?;
        }
    }
    Some(Facts { names, not_before, not_after, subject })
}

/// Returns the SubjectPublicKeyInfo of a certificate, with its tag and length.
pub(super) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let mut outer = Reader { rest: Reader { rest: certificate }.expect(SEQUENCE)? };
    let mut body = Reader { rest: outer.expect(SEQUENCE)? };
    body.optional(VERSION);
    body.expect(INTEGER)?;
    // Signature, issuer, validity, subject.
    for _ in 0..4 {
        body.expect(SEQUENCE)?;
    }
    let begin = body.rest;
    body.expect(SEQUENCE)?;
    begin.get(..begin.len() - body.rest.len())
}

/// Returns true if `bytes` are exactly one DER sequence, as each OCSP response is.
pub(super) fn is_sequence(bytes: &[u8]) -> bool {
    let mut reader = Reader { rest: bytes };
    reader.expect(SEQUENCE).is_some() && reader.rest.is_empty()
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut extensions = Reader { rest: extensions };
    while !extensions.rest.is_empty() {
        let mut extension = Reader { rest: extensions.expect(SEQUENCE)? };
        if extension.expect(OBJECT_ID)? != SUBJECT_ALT_NAME {
            continue;
        }
        extension.optional(BOOLEAN);
        let mut list = Reader { rest: Reader { rest: extension.expect(OCTET_STRING)? }.expect(SEQUENCE)? };
        while let Some((tag, value)) = list.next() {
            if tag == DNS_NAME
                && let Ok(name) = std::str::from_utf8(value)
            {
                names.push(name.to_ascii_lowercase());
            }
        }
    }
    Some(names)
}

/// Returns a `Name` in the format of RFC 4514 section 2, which puts the last part first.
fn distinguished_name(name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    let mut sets = Reader { rest: name };
    while !sets.rest.is_empty() {
        let mut set = Reader { rest: sets.expect(SET)? };
        let mut text = String::new();
        while !set.rest.is_empty() {
            let mut pair = Reader { rest: set.expect(SEQUENCE)? };
            if !text.is_empty() {
                text.push('+');
            }
            attribute(pair.expect(OBJECT_ID)?, pair.rest, &mut text)?;
        }
        parts.push(text);
    }
    parts.reverse();
    Some(parts.join(","))
}

/// Appends one attribute. A value that is not a readable string, or whose type has no short name, is written in hex
/// (RFC 4514 section 2.4).
fn attribute(object_id: &[u8], encoded: &[u8], text: &mut String) -> Option<()> {
    let short = SHORT_NAMES.iter().find(|(id, _)| *id == object_id).map(|(_, name)| *name);
    let (tag, value) = Reader { rest: encoded }.next()?;
    let readable = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
    match (short, std::str::from_utf8(value)) {
        (Some(name), Ok(value)) if readable => {
            text.push_str(name);
            text.push('=');
            escape(value, text);
        }
        _ => {
            match short {
                Some(name) => text.push_str(name),
                None => dotted(object_id, text),
            }
            text.push_str("=#");
            encoded.iter().for_each(|byte| hex(*byte, text));
        }
    }
    Some(())
}

/// Appends a value with the escapes of RFC 4514 section 2.4. Also escapes control characters, because the text is
/// logged.
fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (index, letter) in value.chars().enumerate() {
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', letter]),
            '#' if index == 0 => text.push_str("\\#"),
            ' ' if index == 0 || index == last => text.push_str("\\ "),
            letter if letter.is_control() => letter.to_string().bytes().for_each(|byte| {
                text.push('\\');
                hex(byte, text);
            }),
            letter => text.push(letter),
        }
    }
}

fn hex(byte: u8, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{byte:02x}");
}

/// Appends an object identifier as numbers with dots (X.690 section 8.19).
fn dotted(object_id: &[u8], text: &mut String) {
    let mut value = 0u64;
    let mut first = true;
    for byte in object_id {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            let _ = match std::mem::take(&mut first) {
                true => write!(text, "{}.{}", (value / 40).min(2), value - (value / 40).min(2) * 40),
                false => write!(text, ".{value}"),
            };
            value = 0;
        }
    }
}

/// A cursor over DER.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns the tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.rest.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // A length that needs more than four bytes would exceed every file that is read.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some((tag, value))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, value)| value)
    }

    fn optional(&mut self, wanted: u8) {
        if self.rest.first() == Some(&wanted) {
            self.next();
        }
    }

    /// Reads a time in one of the formats of RFC 5280 section 4.1.2.5: in UTC, with seconds.
    fn time(&mut self) -> Option<SystemTime> {
        let (tag, value) = self.next()?;
        let text = std::str::from_utf8(value).ok()?.strip_suffix('Z')?;
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (year, text) = match (tag, text.len()) {
            (UTC_TIME, 12) => {
                let short: i64 = text[..2].parse().ok()?;
                (if short < 50 { 2000 + short } else { 1900 + short }, &text[2..])
            }
            (GENERALIZED_TIME, 14) => (text[..4].parse().ok()?, &text[4..]),
            _ => return None,
        };
        let field = |index: usize| text[2 * index..2 * index + 2].parse::<i64>().ok();
        let days = days_from_civil(year, field(0)?, field(1)?);
        from_unix(days * 86_400 + field(2)? * 3_600 + field(3)? * 60 + field(4)?)
    }
}

fn from_unix(seconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}

/// Returns the number of days from 1970-01-01 to a date. The computation uses years that begin in March, so that the
/// leap day is the last day of a year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(all(test, feature = "self-signed"))]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970() {
        for ((year, month, day), expected) in [
            ((1970, 1, 1), 0),
            ((1969, 12, 31), -1),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 20), 20_777),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_from_civil(year, month, day), expected, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn times_are_utc_with_seconds() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000001Z", Some(1)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000001+0100", None),
            (UTC_TIME, "70010100000\u{e9}Z", None),
            (GENERALIZED_TIME, "700101000001Z", None),
        ] {
            let mut bytes = vec![tag, text.len() as u8];
            bytes.extend_from_slice(text.as_bytes());
            assert_eq!(Reader { rest: &bytes }.time(), expected.and_then(from_unix), "{text}");
        }
    }

    #[test]
    fn names_are_written_as_rfc_4514_says() {
        fn der(tag: u8, content: &[u8]) -> Vec<u8> {
            [&[tag, content.len() as u8], content].concat()
        }
        fn part(object_id: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
            der(SET, &der(SEQUENCE, &[der(OBJECT_ID, object_id), der(tag, value)].concat()))
        }
        let common_name = &[0x55, 0x04, 0x03];
        let check = |parts: &[Vec<u8>], expected: &str| {
            assert_eq!(distinguished_name(&parts.concat()).as_deref(), Some(expected));
        };
        check(&[], "");
        check(
            &[part(&[0x55, 4, 6], PRINTABLE_STRING, b"DE"), part(common_name, UTF8_STRING, b"Zo\xc3\xab")],
            "CN=Zo\u{eb},C=DE",
        );
        check(&[part(common_name, UTF8_STRING, b" a,b+c\\\n#")], "CN=\\ a\\,b\\+c\\\\\\0a#");
        check(&[part(common_name, UTF8_STRING, b"#x ")], "CN=\\#x\\ ");
        check(&[part(common_name, 0x1e, b"\0a")], "CN=#1e020061");
        // The type 1.2.840.113549.1.9.1 denotes an e-mail address.
        let mail = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
        check(&[part(mail, IA5_STRING, b"a@b")], "1.2.840.113549.1.9.1=#1603614062");
    }

    #[test]
    fn nothing_that_is_cut_or_changed_panics() {
        let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate").cert;
        let bytes = certificate.der().to_vec();
        assert_eq!(facts(&bytes).expect("facts").names, ["a.example"]);
        for cut in 0..bytes.len() {
            assert_eq!(facts(&bytes[..cut]), None);
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[cut] ^= flip;
                let _ = facts(&changed);
            }
        }
    }
}
