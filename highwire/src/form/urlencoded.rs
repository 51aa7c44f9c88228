//! Parsing of `application/x-www-form-urlencoded` queries and bodies (WHATWG URL, section 5).
//!
//! Browsers encode a literal percent sign. A percent sign without two hex digits after it, and decoded bytes that are
//! not UTF-8, are errors, because parsers disagree about their meaning.

use super::MOST_FIELDS;
use crate::message::fields::Pair;
use crate::message::media::hex;
use std::borrow::Cow;
use std::fmt;

/// The kind of a [`Malformed`] form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Percent,
    Utf8,
    /// There are more than [`MOST_FIELDS`] fields.
    TooMany,
}

/// An error of a form, and its position in bytes from the form's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) fault: Fault,
    pub(crate) offset: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::Percent => f.write_str("a percent sign is not followed by two hex digits"),
            Fault::Utf8 => f.write_str("a percent-decoded name or value is not UTF-8"),
            Fault::TooMany => write!(f, "there are more than {MOST_FIELDS} fields"),
        }
    }
}

/// Splits a form into names and values, in the order of the form. Skips empty pieces between ampersands.
pub(crate) fn pairs(form: &[u8]) -> Result<Vec<Pair<'_>>, Malformed> {
    let mut pairs = Vec::new();
    let mut offset = 0;
    for piece in form.split(|&byte| byte == b'&') {
        if !piece.is_empty() {
            if pairs.len() == MOST_FIELDS {
                return Err(Malformed { fault: Fault::TooMany, offset });
            }
            let equals = memchr::memchr(b'=', piece);
            let (name, value) = match equals {
                Some(at) => (&piece[..at], &piece[at + 1..]),
                None => (piece, &[][..]),
            };
            let value_offset = offset + equals.map_or(0, |at| at + 1);
            pairs.push((decode(name, offset)?, decode(value, value_offset)?));
        }
        offset += piece.len() + 1;
    }
    Ok(pairs)
}

/// Decodes a name or a value, which begins at `offset` in the form.
fn decode(text: &[u8], offset: usize) -> Result<Cow<'_, str>, Malformed> {
    let malformed = Malformed { fault: Fault::Utf8, offset };
    let Some(mut at) = memchr::memchr2(b'+', b'%', text) else {
        return std::str::from_utf8(text).map(Cow::Borrowed).map_err(|_| malformed);
    };
    let mut plain = Vec::with_capacity(text.len());
    plain.extend_from_slice(&text[..at]);
    while let Some(&byte) = text.get(at) {
        let (decoded, length) = match byte {
            b'+' => (b' ', 1),
            b'%' => match text.get(at + 1..at + 3).and_then(hex) {
                Some(decoded) => (decoded, 3),
                None => return Err(Malformed { fault: Fault::Percent, offset: offset + at }),
            },
            _ => (byte, 1),
        };
        plain.push(decoded);
        at += length;
    }
    String::from_utf8(plain).map(Cow::Owned).map_err(|_| malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(form: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        assert_eq!(pairs(form.as_bytes()), Ok(expected), "{form}");
    }

    #[test]
    fn names_and_values() {
        check("", &[]);
        check("&&", &[]);
        check("a", &[("a", "")]);
        check("a=", &[("a", "")]);
        check("=", &[("", "")]);
        check("=b", &[("", "b")]);
        check("a=b=c&&d+e=%2B+%26%3d%C3%A9&a=2", &[("a", "b=c"), ("d e", "+ &=é"), ("a", "2")]);
        check("a=\u{e9};b", &[("a", "\u{e9};b")]);
    }

    #[test]
    fn what_is_refused_and_where() {
        for (form, fault, offset) in [
            ("a=%", Fault::Percent, 2),
            ("a=b&c%4=d", Fault::Percent, 5),
            ("a=%+1", Fault::Percent, 2),
            ("a=x%g0", Fault::Percent, 3),
            ("ab=1&cd=%ff", Fault::Utf8, 8),
            ("ab=1&%c3=%a9", Fault::Utf8, 5),
        ] {
            assert_eq!(pairs(form.as_bytes()), Err(Malformed { fault, offset }), "{form}");
        }
    }

    #[test]
    fn fields_have_a_bound() {
        let form = "a&".repeat(MOST_FIELDS);
        assert_eq!(pairs(form.as_bytes()).map(|pairs| pairs.len()), Ok(MOST_FIELDS));
        let offset = form.len();
        assert_eq!(pairs(format!("{form}b").as_bytes()), Err(Malformed { fault: Fault::TooMany, offset }));
    }

    proptest! {
        /// Forms that another library writes are read back unchanged.
        #[test]
        fn what_others_write_is_read(expected in prop::collection::vec((".{0,9}", ".{0,9}"), 0..6)) {
            let form = serde_urlencoded::to_string(&expected).expect("a form");
            let expected = expected.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            prop_assert_eq!(pairs(form.as_bytes()), Ok(expected));
        }

        /// A lenient library reads an accepted form in the same way.
        #[test]
        fn a_lenient_reader_agrees(form in "[a-c=&+%0-9]{0,24}") {
            if let Ok(ours) = pairs(form.as_bytes()) {
                let theirs: Vec<Pair<'_>> = serde_urlencoded::from_str(&form).expect("a form");
                prop_assert_eq!(ours, theirs);
            }
        }
    }
}
