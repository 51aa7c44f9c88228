//! HTTP/1.0 and 1.1, both roles: RFC 9112, with the framing parts of RFC 9110.
//!
//! [`Connection`] tracks an exchange by the table of states in `state`. `parse` reads heads, `framing` derives from a
//! head how its body ends, `chunked` reads chunked bodies, `send` and `encode` write.

mod chunked;
mod connection;
mod encode;
mod framing;
mod parse;
mod send;
pub mod state;

pub use connection::Connection;
pub use encode::{FieldWriter, reason_phrase};
pub use parse::{parse_request, parse_response, parse_trailers};
pub use send::{Request, Response};
