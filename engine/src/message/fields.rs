//! Decides which header fields are sent, by protocol.

use highwire_proto::Error;
use http::{HeaderName, HeaderValue, header};

/// Checks the fields of a request of ours. `te` with another value than `trailers` is malformed over HTTP/2 (RFC 9113 section
/// 8.2.2), and over HTTP/1 it asks for transfer codings that a client here does not decode.
pub(crate) fn check(fields: &[(HeaderName, HeaderValue)]) -> Result<(), Error> {
    let is_wrong = |(name, value): &(HeaderName, HeaderValue)| {
        *name == header::TE && !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"trailers")
    };
    if fields.iter().any(is_wrong) { Err(Error::InvalidTe) } else { Ok(()) }
}

/// Returns true for the fields that frame a message or close its connection. The engine writes these fields itself.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING || *name == header::CONNECTION
}

/// Returns true for other fields of an HTTP/1 connection. HTTP/2 (RFC 9113 section 8.2.2) and requests of this process
/// have no such fields.
fn is_of_a_connection(name: &HeaderName) -> bool {
    *name == header::UPGRADE || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Returns true if a response's field is sent over HTTP/2 or to a request of this process.
pub(crate) fn is_sent_without_connection(name: &HeaderName) -> bool {
    !is_framing(name) && !is_of_a_connection(name)
}
