//! Writes heads and chunk framing.

use crate::scan::{self, NAME};
use crate::{Error, Known};
use alloc::vec::Vec;

macro_rules! statuses {
    ($($code:literal $reason:literal,)*) => {
        /// Returns the reason phrase of a status (RFC 9110 section 15 and the IANA registry); empty for a status that
        /// this table lacks.
        pub const fn reason_phrase(status: u16) -> &'static str {
            match status { $($code => $reason,)* _ => "" }
        }

        /// Returns the whole status line of a status, or `None` if this table lacks the status.
        pub(super) fn status_line(status: u16) -> Option<&'static [u8]> {
            Some(match status {
                $($code => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes(),)*
                _ => return None,
            })
        }
    };
}

statuses! {
    100 "Continue", 101 "Switching Protocols", 102 "Processing", 103 "Early Hints",
    200 "OK", 201 "Created", 202 "Accepted", 203 "Non-Authoritative Information", 204 "No Content",
    205 "Reset Content", 206 "Partial Content", 207 "Multi-Status", 208 "Already Reported", 226 "IM Used",
    300 "Multiple Choices", 301 "Moved Permanently", 302 "Found", 303 "See Other", 304 "Not Modified",
    305 "Use Proxy", 307 "Temporary Redirect", 308 "Permanent Redirect",
    400 "Bad Request", 401 "Unauthorized", 402 "Payment Required", 403 "Forbidden", 404 "Not Found",
    405 "Method Not Allowed", 406 "Not Acceptable", 407 "Proxy Authentication Required", 408 "Request Timeout",
    409 "Conflict", 410 "Gone", 411 "Length Required", 412 "Precondition Failed", 413 "Content Too Large",
    414 "URI Too Long", 415 "Unsupported Media Type", 416 "Range Not Satisfiable", 417 "Expectation Failed",
    421 "Misdirected Request", 422 "Unprocessable Content", 423 "Locked", 424 "Failed Dependency", 425 "Too Early",
    426 "Upgrade Required", 428 "Precondition Required", 429 "Too Many Requests",
    431 "Request Header Fields Too Large", 451 "Unavailable For Legal Reasons",
    500 "Internal Server Error", 501 "Not Implemented", 502 "Bad Gateway", 503 "Service Unavailable",
    504 "Gateway Timeout", 505 "HTTP Version Not Supported", 506 "Variant Also Negotiates",
    507 "Insufficient Storage", 508 "Loop Detected", 511 "Network Authentication Required",
}

/// Writes a status line whose status is not in the table, or whose reason phrase is the caller's.
#[cold]
pub(super) fn custom_status_line(status: u16, reason: &str, out: &mut Vec<u8>) -> Result<(), Error> {
    if !reason.bytes().all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte) || byte >= 0x80) {
        return Err(Error::InvalidReason);
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Writes the field lines of a head or of a trailer section.
#[derive(Debug)]
pub struct FieldWriter<'o> {
    pub(super) out: &'o mut Vec<u8>,
    pub(super) error: Option<Error>,
    /// True if an Upgrade field was written, which Connection must list (RFC 9110 section 7.8).
    pub(super) upgrade: bool,
    /// True if a TE field was written, which Connection must list (RFC 9110 section 10.1.4).
    pub(super) te: bool,
}

impl FieldWriter<'_> {
    /// Adds a field. The whole send fails if the name or value is invalid, or if the field frames the message
    /// (Content-Length, Transfer-Encoding, Connection), because [`Connection`](super::Connection) writes those.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let valid_name = !name.is_empty() && name.iter().all(|&byte| scan::is(NAME, byte));
        let valid_value = value.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        if !valid_name || !valid_value {
            self.error = Some(Error::InvalidField);
        } else if matches!(Known::from_name(name), Known::ContentLength | Known::TransferEncoding | Known::Connection) {
            self.error = Some(Error::ReservedField);
        } else {
            self.trusted_field(name, value);
        }
    }

    /// Adds a field without checks. Its name and value must be valid, and it must not frame the message.
    #[inline]
    pub fn trusted_field(&mut self, name: &[u8], value: &[u8]) {
        self.upgrade |= Known::from_name(name) == Known::Upgrade;
        self.te |= name.len() == 2 && name.eq_ignore_ascii_case(b"te");
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Adds whole field lines, each with its line end, without checks. The lines must be valid. An Upgrade field among
    /// them is not listed in Connection.
    #[inline]
    pub fn trusted_lines(&mut self, lines: &[u8]) {
        self.out.extend_from_slice(lines);
    }
}

#[inline]
pub(super) fn number_field(name: &'static [u8], number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a chunk's size line.
pub(super) fn chunk_size(size: usize, out: &mut Vec<u8>) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[size >> (4 * place) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes() {
        for (size, line) in [(0, "0\r\n"), (1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0xabc0, "abc0\r\n")] {
            let mut out = Vec::new();
            chunk_size(size, &mut out);
            assert_eq!(out, line.as_bytes());
        }
    }

    #[test]
    fn fields_that_would_split_a_message_are_refused() {
        for (name, value, error) in [
            ("x", "a\r\nb: c", Error::InvalidField),
            ("x", "a\nb", Error::InvalidField),
            ("x", "a\0", Error::InvalidField),
            ("x y", "a", Error::InvalidField),
            ("", "a", Error::InvalidField),
            ("x:", "a", Error::InvalidField),
            ("content-Length", "3", Error::ReservedField),
            ("Transfer-Encoding", "chunked", Error::ReservedField),
            ("connection", "close", Error::ReservedField),
        ] {
            let mut out = Vec::new();
            let mut writer = FieldWriter { out: &mut out, error: None, upgrade: false, te: false };
            writer.field(name.as_bytes(), value.as_bytes());
            assert_eq!(writer.error, Some(error), "{name}: {value}");
        }
    }
}
