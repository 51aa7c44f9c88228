//! Weights of a client's preferences, such as `q=0.5` in `Accept-Encoding` (RFC 9110 section 12.4.2).

/// A weight in thousandths; [`FULL`] is `q=1`.
pub(crate) type Weight = u16;

pub(crate) const FULL: Weight = 1000;

/// Parses a weight such as `0.375`: at most 1, with at most three digits after the point. Also takes `.2` as `0.2`,
/// because clients in use send it (Java's `HttpURLConnection` by default) and it can mean nothing else.
pub(crate) fn parse(text: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match text {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (*whole, decimals),
        [b'.', decimals @ ..] if !decimals.is_empty() => (b'0', decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fraction = (0..3).fold(0, |sum, at| sum * 10 + decimals.get(at).map_or(0, |digit| Weight::from(digit - b'0')));
    let weight = Weight::from(whole - b'0') * FULL + fraction;
    (weight <= FULL).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("1.", Some(1000)),
            ("1.000", Some(1000)),
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.123", Some(123)),
            (".2", Some(200)),
            (".001", Some(1)),
            (".1234", None),
            (".", None),
            ("..2", None),
            ("0.1234", None),
            ("1.001", None),
            ("2", None),
            ("", None),
            ("0,5", None),
            ("-0", None),
            ("\u{e9}", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
        }
    }
}
