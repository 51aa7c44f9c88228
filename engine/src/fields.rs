//! Decides which header fields of a response are sent, by protocol.

use http::{HeaderName, header};

/// Returns true for the fields that frame a message or close its connection. The engine writes these fields itself.
pub(super) fn is_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING || *name == header::CONNECTION
}

/// Returns true for other fields of an HTTP/1 connection. HTTP/2 (RFC 9113 section 8.2.2) and requests of this process
/// have no such fields.
fn is_of_a_connection(name: &HeaderName) -> bool {
    *name == header::UPGRADE || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Returns true if a response's field is sent over HTTP/2 or to a request of this process.
pub(super) fn is_sent_without_connection(name: &HeaderName) -> bool {
    !is_framing(name) && !is_of_a_connection(name)
}
