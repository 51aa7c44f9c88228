//! Base64 of credentials and cookies (RFC 4648 sections 4 and 5).
//!
//! Each byte string has exactly one encoding per alphabet, because decoding fails if the padding is wrong or if the
//! unused bits of the last digit are not zero.

#[cfg(feature = "cookies")]
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes padded base64. Returns `None` if the text is malformed.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let fits = text.len().is_multiple_of(4) && text.len() - digits.len() <= 2;
    if fits { decode_digits(digits, |byte| byte) } else { None }
}

/// Decodes base64 for URLs, file names and cookies, which has `-` and `_` and no padding. Returns `None` if the text is
/// malformed.
#[cfg(feature = "cookies")]
pub(crate) fn decode_url(text: &str) -> Option<Vec<u8>> {
    decode_digits(text, |byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        // `+` and `/` do not belong to this alphabet. `=` is no digit, so `decode_digits` fails.
        b'+' | b'/' => b'=',
        _ => byte,
    })
}

fn decode_digits(text: &str, plain: impl Fn(u8) -> u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0;
        for &byte in group {
            let byte = plain(byte);
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        // Two digits encode one byte, and three encode two. The unused bits of the last digit must be zero.
        let (count, rest) = (group.len() - 1, [0, 0, 4, 2, 0][group.len()]);
        if count == 0 || bits & ((1 << rest) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&(bits >> rest).to_be_bytes()[4 - count..]);
    }
    Some(bytes)
}

/// Encodes bytes in the form that [`decode_url`] reads.
#[cfg(feature = "cookies")]
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 3);
    for group in bytes.chunks(3) {
        let mut bits = group.iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        bits <<= 8 * (3 - group.len());
        for place in 0..=group.len() {
            text.push(match DIGITS[(bits >> (18 - 6 * place) & 63) as usize] {
                b'+' => '-',
                b'/' => '_',
                digit => char::from(digit),
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_base64_and_what_is_none() {
        for (text, expected) in [
            ("", Some("")),
            ("Zg==", Some("f")),
            ("Zm8=", Some("fo")),
            ("Zm9v", Some("foo")),
            ("Zm9vYmFy", Some("foobar")),
            ("Zg", None),
            ("Zg=", None),
            ("Zg===", None),
            ("Z===", None),
            ("====", None),
            ("Zh==", None),
            ("Zm9=", None),
            ("Zm-v", None),
            ("Zg==Zg==", None),
        ] {
            assert_eq!(decode(text).as_deref(), expected.map(str::as_bytes), "{text}");
        }
        assert_eq!(decode("/+/+"), Some(vec![0xff, 0xef, 0xfe]));
    }

    #[cfg(feature = "cookies")]
    #[test]
    fn what_is_written_is_read() {
        let bytes: Vec<u8> = (0..=255).collect();
        for end in 0..bytes.len() {
            let text = encode_url(&bytes[..end]);
            assert_eq!(decode_url(&text).as_deref(), Some(&bytes[..end]), "{text}");
        }
        assert_eq!(encode_url(&[0xff, 0xef, 0xfe, 0xff]), "_-_-_w");
        for text in ["_-_-_x", "/+/+", "Zg==", "Z"] {
            assert_eq!(decode_url(text), None, "{text}");
        }
    }
}
