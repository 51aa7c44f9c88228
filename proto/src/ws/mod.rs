//! The WebSocket protocol (RFC 6455) without I/O, in both roles: turns received bytes into events, and turns method
//! calls into bytes to send.
//!
//! After the handshake ([`handshake`]), a caller keeps the received but unread bytes (the *window*) and drives one
//! [`Connection`]:
//!
//! 1. append the received bytes to the window;
//! 2. call [`Connection::receive`] with the window: it unmasks a part of it in place, and returns one [`Event`] and the
//!    number of bytes that it took;
//! 3. act on the event, drop those bytes from the window, and repeat from 2 until the event is [`Event::NeedMore`];
//! 4. to send, call [`Connection::send_text`] and its siblings: each appends bytes to a vector that the caller
//!    sends. Answer a [`Event::Ping`] with [`Connection::send_pong`], and a [`Event::Close`] with
//!    [`Connection::send_close`].
//!
//! A message arrives as one or more [`Event::Data`], so a message of any size can be received as a stream. Apart from
//! [`Event::NeedMore`] and from the division of a message into [`Event::Data`], the events do not depend on how the
//! input was split. (Of a text that is not UTF-8, some bytes may be reported before the failure.)
//!
//! Compressed messages (RFC 7692) are negotiated ([`deflate`]) and recognized here, but inflated and deflated by the
//! caller.

mod connection;
pub mod deflate;
mod frame;
pub mod handshake;
mod mask;
mod send;
pub mod state;
mod utf8;

pub use connection::{Bounds, Connection, Event, Received};
pub use frame::{HEADER_BYTES, Kind, header_bytes, write_frame_header};
pub use mask::{apply_mask, apply_mask_naive};
pub use send::Misuse;
pub use utf8::{NotUtf8, Utf8};

use core::fmt;

/// Some status codes of Close frames (RFC 6455 section 7.4.1).
pub mod code {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The server stops, or the page is left.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer has broken the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// There was a Close frame without a code. It is never sent.
    pub const NO_STATUS: u16 = 1005;
    /// There was no Close frame. It is never sent.
    pub const ABNORMAL: u16 = 1006;
    /// The peer has sent text that is not UTF-8.
    pub const NOT_UTF8: u16 = 1007;
    /// The peer has broken a rule of this end.
    pub const POLICY: u16 = 1008;
    /// The peer has sent a message that is too large.
    pub const TOO_LARGE: u16 = 1009;
    /// This end has no room now. The peer may try again later.
    pub const TRY_AGAIN: u16 = 1013;
}

/// The reason why the received bytes are refused. The caller should send a Close frame with this code and text, and
/// then end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status code of the Close frame to send.
    pub code: u16,
    /// A description in lower case and without a full stop. It fits into a Close frame.
    pub text: &'static str,
}

impl Failure {
    const fn protocol(text: &'static str) -> Failure {
        Failure { code: code::PROTOCOL, text }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl core::error::Error for Failure {}

/// Returns true if a Close frame may contain this code: one that RFC 6455 or the IANA registry defines for the wire,
/// or one for libraries and applications (3000 to 4999).
pub const fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
