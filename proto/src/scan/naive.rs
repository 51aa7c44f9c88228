//! The byte classes as one table, and a scanner that looks up one byte at a time. Tests compare the fast scanners with
//! this one.

use super::{Plain, Scanner};

/// The class of the bytes of a token (RFC 9110 section 5.6.2).
pub const NAME: u8 = 1;
/// The class of the bytes of a field value: visible, obs-text, space and tab (RFC 9110 section 5.5).
pub const VALUE: u8 = 2;
/// The class of the bytes that a request target may contain anywhere without a further check: those of RFC 3986 except
/// `?`, `%` and `#`, and also `|` and `^`. Browsers send `|`, `^` and brackets unencoded in paths and queries.
pub const TARGET: u8 = 4;
/// The class of the bytes that only a query may contain unencoded: braces, backtick and backslash, which browsers send
/// unencoded, and `?`.
pub const QUERY: u8 = 8;
/// The class of the bytes of a registered name (RFC 3986 section 3.2.2) except `%`.
pub const HOST: u8 = 16;
/// The class of the bytes of a field name in HTTP/2: those of a token except capital letters (RFC 9113 section 8.2.1).
pub const LOWER_NAME: u8 = 32;

const fn one_of(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

const fn class(byte: u8) -> u8 {
    let alphanumeric = byte.is_ascii_alphanumeric();
    let mut class = 0;
    if alphanumeric || one_of(byte, b"!#$%&'*+-.^_`|~") {
        class |= NAME;
    }
    if class & NAME != 0 && !byte.is_ascii_uppercase() {
        class |= LOWER_NAME;
    }
    if byte == b'\t' || (byte >= 0x20 && byte != 0x7f) {
        class |= VALUE;
    }
    if alphanumeric || one_of(byte, b"-._~!$&'()*+,;=:@/|[]^") {
        class |= TARGET;
    }
    if one_of(byte, b"?{}`\\") {
        class |= QUERY;
    }
    if alphanumeric || one_of(byte, b"-._~!$&'()*+,;=") {
        class |= HOST;
    }
    class
}

/// The classes of each byte, as bits.
pub(super) const CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = class(byte as u8);
        byte += 1;
    }
    table
};

/// Returns true if a byte is in a class: [`NAME`], [`VALUE`], [`TARGET`], [`QUERY`], [`HOST`] or [`LOWER_NAME`].
#[inline(always)]
pub const fn is(class: u8, byte: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

/// Scans one byte at a time.
#[derive(Clone, Copy)]
pub struct Naive;

#[inline(always)]
pub(super) fn end_of(class: u8, bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() && is(class, bytes[at]) {
        at += 1;
    }
    at
}

impl Scanner for Naive {
    type Cursor<'b> = Plain<'b, Naive>;

    #[inline(always)]
    fn name_end(bytes: &[u8], from: usize) -> usize {
        end_of(NAME, bytes, from)
    }
    #[inline(always)]
    fn value_end(bytes: &[u8], from: usize) -> usize {
        end_of(VALUE, bytes, from)
    }
    #[inline(always)]
    fn target_end(bytes: &[u8], from: usize) -> usize {
        end_of(TARGET, bytes, from)
    }
}
