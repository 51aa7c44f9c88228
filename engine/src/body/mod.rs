//! Bodies in parts: of requests while they are received, and of responses while they are produced.

mod bounds;
mod channel;
mod lent;
mod produced;
mod received;

pub use crate::error::BoxError;
pub(crate) use bounds::{INCOMING_BYTES, is_tight, most_incoming};
pub use channel::{CHANNEL_BYTES, PeerGone, Receiver, Sender, channel};
pub(crate) use lent::{cost, lend};
pub use produced::{BodyStream, Part, Source};
pub use received::{Body, BodyQueue, Whole};
pub(crate) use received::{HeldBytes, PART_BYTES, Parts, ahead_in_all, streams_ahead};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use std::fmt;

/// A function that makes the trailer fields at the end of a body.
pub type Trailers = Box<dyn FnOnce() -> Vec<(HeaderName, HeaderValue)>>;

/// The reason why a request's body was not received completely or cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The body ended early, for example because the connection ended or the framing was wrong.
    CutShort,
    /// The body is longer than the route or the caller allows.
    TooLarge,
    /// The peer sent the body too slowly.
    TooSlow,
    /// The server's memory budget has no room for the body.
    NoMemory,
    /// The body does not match its `Content-Encoding`.
    Undecodable,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyError::CutShort => "the request's body was cut short",
            BodyError::TooLarge => "the request's body is too large",
            BodyError::TooSlow => "the request's body came too slowly",
            BodyError::NoMemory => "the server has no memory left for the request's body",
            BodyError::Undecodable => "the request's body does not match its coding",
        })
    }
}

impl std::error::Error for BodyError {}

impl BodyError {
    /// Returns the status for this error: 400, 408, 413 or 503.
    pub fn status(self) -> StatusCode {
        match self {
            BodyError::CutShort | BodyError::Undecodable => StatusCode::BAD_REQUEST,
            BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyError::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Transforms a body on its way to the handler, part by part.
pub trait Transform {
    /// Takes a received part. Called only after [`pull`](Self::pull) has returned [`Pulled::Starved`].
    fn push(&mut self, part: Bytes);
    /// Makes the next part for the handler. Each unit of work lowers `steps` by one. Returns [`Pulled::Unfinished`]
    /// when `steps` has reached 0.
    fn pull(&mut self, steps: &mut u32) -> Result<Pulled, BodyError>;
    /// Called at the end of the body. Returns an error if the body is incomplete.
    fn finish(&mut self) -> Result<(), BodyError>;
}

/// The result of [`Transform::pull`].
pub enum Pulled {
    /// A part for the handler.
    Part(Bytes),
    /// The transform needs another received part.
    Starved,
    /// No steps are left. The next call continues.
    Unfinished,
}
