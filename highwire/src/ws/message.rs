//! Messages, and the errors of a connection.

use bytes::Bytes;
use highwire_engine::raw::Broken;
pub use highwire_proto::ws::{Failure, Kind, Misuse};
use std::fmt;

/// Bytes that are valid UTF-8 and can be shared without a copy.
#[doc(inline)]
pub use bytestring::ByteString as Utf8Bytes;

/// A message, or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A text.
    Text(Utf8Bytes),
    /// Any bytes.
    Binary(Bytes),
    /// A Ping frame with at most 125 bytes. [`WebSocket`](super::WebSocket) answers each received Ping frame automatically.
    Ping(Bytes),
    /// A Pong frame with at most 125 bytes. A Pong frame that answers no Ping frame is permitted.
    Pong(Bytes),
    /// A Close frame. [`WebSocket`](super::WebSocket) answers a received Close frame automatically. After sending
    /// one, it can send nothing else.
    Close(Option<CloseFrame>),
}

impl Message {
    /// Creates a text message.
    pub fn text(text: impl Into<Utf8Bytes>) -> Message {
        Message::Text(text.into())
    }

    /// Creates a binary message.
    pub fn binary(bytes: impl Into<Bytes>) -> Message {
        Message::Binary(bytes.into())
    }

    /// Returns the message in memory of its own. A received message may be a part of a large buffer, which would stay
    /// in memory with it.
    pub(crate) fn alone(self) -> Message {
        match self {
            Message::Text(text) => Message::Text(Utf8Bytes::from(&text[..])),
            Message::Binary(bytes) => Message::Binary(Bytes::copy_from_slice(&bytes)),
            other => other,
        }
    }

    /// Returns the kind and the bytes of a text or binary message.
    pub(crate) fn as_data(&self) -> Option<(Kind, &Bytes)> {
        match self {
            Message::Text(text) => Some((Kind::Text, text.as_bytes())),
            Message::Binary(bytes) => Some((Kind::Binary, bytes)),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => None,
        }
    }

    /// Returns the bytes of a message, a Ping or a Pong frame, or the reason of a Close frame.
    pub fn into_data(self) -> Bytes {
        match self {
            Message::Text(text) => text.into_bytes(),
            Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes,
            Message::Close(frame) => frame.map(|frame| frame.reason.into_bytes()).unwrap_or_default(),
        }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::Text(text.into())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Text(text.into())
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::Binary(bytes.into())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message::Binary(bytes)
    }
}

/// A part of a message, or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of a message.
    Data {
        /// The kind of the message.
        kind: Kind,
        /// The bytes, possibly none. Text is checked, but a character may be divided between two parts.
        bytes: Bytes,
        /// True if the message ends here.
        is_last: bool,
    },
    /// A control frame: [`Message::Ping`], [`Message::Pong`] or [`Message::Close`].
    Control(Message),
}

/// The content of a Close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// The status code; see [`code`](super::code).
    pub code: u16,
    /// The reason: at most 123 bytes, possibly none.
    pub reason: Utf8Bytes,
}

/// The error of a WebSocket connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The connection is broken, or the peer has ended it without a Close frame. Bytes that were not sent are lost.
    Broken,
    /// The peer has not answered a Ping frame or a Close frame in time, or no byte has passed for
    /// [`Timeouts::tunnel`](crate::server::Timeouts::tunnel).
    Silent,
    /// The peer has broken the protocol or a limit. A Close frame with the code and the text was sent, unless another
    /// one was sent before.
    Refused(Failure),
    /// 64 KiB or more wait for the peer. Returned only by [`try_send`](super::WebSocketSender::try_send).
    Full,
    /// The message cannot be sent: its Close frame was sent before, or the message is invalid.
    Unsendable(Misuse),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Broken => f.write_str("the connection ended without a Close frame"),
            Error::Silent => f.write_str("the peer is silent and does not answer Ping or Close frames"),
            Error::Refused(failure) => write!(f, "the peer broke the protocol: {failure} ({})", failure.code),
            Error::Full => f.write_str("the peer has not taken the messages that were sent before"),
            Error::Unsendable(misuse) => write!(f, "the message cannot be sent: {misuse}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Broken> for Error {
    fn from(_: Broken) -> Error {
        Error::Broken
    }
}

impl From<Misuse> for Error {
    fn from(misuse: Misuse) -> Error {
        Error::Unsendable(misuse)
    }
}
