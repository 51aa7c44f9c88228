//! Base64 of credentials and cookies (RFC 4648 sections 4 and 5).
//!
//! Each byte string has exactly one encoding per alphabet, because decoding fails if the padding is wrong or if the
//! unused bits of the last digit are not zero.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
#[cfg(feature = "cookies")]
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Decodes padded base64. Returns `None` if the text is malformed.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Encodes bytes in the form that [`decode`] reads.
#[cfg(any(test, feature = "client"))]
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 for URLs, file names and cookies, which has `-` and `_` and no padding. Returns `None` if the text is
/// malformed.
#[cfg(feature = "cookies")]
pub(crate) fn decode_url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Encodes bytes in the form that [`decode_url`] reads.
#[cfg(feature = "cookies")]
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
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
