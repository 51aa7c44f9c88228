//! Checks UTF-8 that arrives in parts.

/// The text is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8;

/// Checks a text that arrives in parts, which may end within a character. Refuses a byte as soon as no valid character
/// can contain it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8 {
    /// The first bytes of a character whose other bytes have not arrived.
    begun: [u8; 3],
    count: u8,
}

impl Utf8 {
    /// Checks the next part of the text.
    ///
    /// # Errors
    /// Returns an error if the text so far is not the beginning of any valid text.
    #[inline]
    pub fn check(&mut self, part: &[u8]) -> Result<(), NotUtf8> {
        if self.count == 0 && part.is_ascii() {
            return Ok(());
        }
        self.check_any(part)
    }

    /// Returns true if the text so far does not end within a character.
    pub fn is_whole(&self) -> bool {
        self.count == 0
    }

    fn check_any(&mut self, mut part: &[u8]) -> Result<(), NotUtf8> {
        while self.count > 0 {
            let Some((&byte, rest)) = part.split_first() else { return Ok(()) };
            let mut character = [self.begun[0], self.begun[1], self.begun[2], 0];
            let count = usize::from(self.count);
            character[count] = byte;
            part = rest;
            self.begin(&character[..=count])?;
        }
        let Err(error) = core::str::from_utf8(part) else { return Ok(()) };
        if error.error_len().is_some() {
            return Err(NotUtf8);
        }
        self.begin(&part[error.valid_up_to()..])
    }

    /// Keeps the first bytes of a character, or nothing if the character is whole.
    fn begin(&mut self, bytes: &[u8]) -> Result<(), NotUtf8> {
        self.count = 0;
        let Err(error) = core::str::from_utf8(bytes) else { return Ok(()) };
        if error.error_len().is_some() || bytes.len() > self.begun.len() {
            return Err(NotUtf8);
        }
        self.begun[..bytes.len()].copy_from_slice(bytes);
        self.count = bytes.len() as u8;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks the bytes in parts of one length. Returns true if they are valid text.
    fn is_text(bytes: &[u8], part: usize) -> bool {
        let mut utf8 = Utf8::default();
        bytes.chunks(part).all(|part| utf8.check(part).is_ok()) && utf8.is_whole()
    }

    #[test]
    fn parts_of_any_length_are_checked_as_the_whole() {
        for bytes in [
            &b""[..],
            b"plain",
            "\u{e9}\u{20ac}\u{1f600} x".as_bytes(),
            "\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}".as_bytes(),
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xe2\x82",
            b"a\x80",
            b"\xf0\x9f\x98x",
        ] {
            for part in 1..=bytes.len().max(1) {
                assert_eq!(is_text(bytes, part), core::str::from_utf8(bytes).is_ok(), "{bytes:?} in parts of {part}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_refused_before_the_character_is_complete() {
        for bytes in [&b"\xf4\x90"[..], b"\xed\xa0", b"\xe0\x80", b"\xf8", b"\xc1"] {
            let mut utf8 = Utf8::default();
            assert!(bytes.iter().any(|byte| utf8.check(&[*byte]).is_err()), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_checked_as_the_standard_library_does(
            bytes in prop::collection::vec(prop::sample::select(&b"az\x80\x8f\x90\x9f\xa0\xbf\xc2\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5"[..]), 0..12),
            part in 1..5_usize,
        ) {
            prop_assert_eq!(is_text(&bytes, part), core::str::from_utf8(&bytes).is_ok());
        }
    }
}
