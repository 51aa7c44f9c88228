//! HTTP/1.0 and 1.1 in both roles: RFC 9112, and the parts of RFC 9110 about framing.
//!
//! [`Connection`] tracks an exchange by the table of states in `state`. `parse` reads heads, `framing` derives from a
//! head how its body ends, `chunked` reads chunked bodies, and `send` and `encode` write messages.

mod chunked;
mod connection;
mod encode;
mod framing;
mod parse;
mod send;
pub mod state;

pub use connection::Connection;
pub use encode::{FieldWriter, reason_phrase};
pub use parse::{parse_request, parse_response, parse_trailers, unfold};
pub use send::{Request, Response};
