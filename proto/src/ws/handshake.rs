//! The parts of the opening handshake that are not ordinary HTTP (RFC 6455 section 4): keys and lists of tokens.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;

/// The only version of the protocol, the value of `Sec-WebSocket-Version`.
pub const VERSION: &str = "13";

/// The length of a `Sec-WebSocket-Key`: 16 bytes in base64.
const KEY_BYTES: usize = 24;

/// The length of a `Sec-WebSocket-Accept`: a SHA-1 digest in base64.
pub const ACCEPT_BYTES: usize = 28;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the value of `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`, or `None` if the key is not 16 bytes
/// in base64.
pub fn accept(key: &[u8]) -> Option<[u8; ACCEPT_BYTES]> {
    let mut random = [0; 18];
    if key.len() != KEY_BYTES || STANDARD.decode_slice(key, &mut random) != Ok(16) {
        return None;
    }
    let mut digest = Sha1::from(key);
    digest.update(GUID);
    let mut accept = [0; ACCEPT_BYTES];
    STANDARD.encode_slice(digest.digest().bytes(), &mut accept).ok()?;
    Some(accept)
}

/// Returns the `Sec-WebSocket-Key` for 16 random bytes.
pub fn key(random: [u8; 16]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    STANDARD.encode_slice(random, &mut key).expect("16 bytes have 24 bytes in base64");
    key
}

/// Returns the tokens of a list that is separated by commas, such as `Sec-WebSocket-Protocol`. Returns `None` in place
/// of an element that is not a token. Empty elements are left out.
pub fn tokens(list: &[u8]) -> impl Iterator<Item = Option<&str>> {
    let is_token = |token: &&[u8]| token.iter().all(|&byte| crate::scan::is(crate::scan::NAME, byte));
    list.split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
        .map(move |element| Some(element).filter(is_token).and_then(|token| core::str::from_utf8(token).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_key_of_the_rfc_gets_its_accept() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ==").as_ref(), Some(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(&key(*b"the sample nonce"), b"dGhlIHNhbXBsZSBub25jZQ==");
    }

    #[test]
    fn a_key_of_another_length_or_alphabet_is_refused() {
        for key in [
            &b""[..],
            b"dGhlIHNhbXBsZSBub25jZQ=",
            b"dGhlIHNhbXBsZSBub25jZQ===",
            b"dGhlIHNhbXBsZSBub25jZSE=",
            b"dGhlIHNhbXBsZSBub25jZSEh",
            b"dGhlIHNhbXBsZSBub25j Q==",
            b"dGhlIHNhbXBsZSBub25jZR==",
            b"dGhlIHNhbXBsZSBub25j_Q==",
        ] {
            assert_eq!(accept(key), None, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn lists_are_split_at_commas() {
        let list: Vec<_> = tokens(b" chat, ,v2.chat ,a b,\xff").collect();
        assert_eq!(list, [Some("chat"), Some("v2.chat"), None, None]);
    }
}
