//! Which fields of a response reach the wire, and in which versions of HTTP.

use http::{HeaderName, header};

/// Fields that the engine writes itself: they frame the message.
pub(super) fn is_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING || *name == header::CONNECTION
}

/// Fields that are about a connection of HTTP/1, which neither HTTP/2 (RFC 9113 section 8.2.2) nor a call has.
fn is_of_a_connection(name: &HeaderName) -> bool {
    *name == header::UPGRADE || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Returns true if a field of a response is sent where there is no connection of HTTP/1.
pub(super) fn is_sent_without_connection(name: &HeaderName) -> bool {
    !is_framing(name) && !is_of_a_connection(name)
}
