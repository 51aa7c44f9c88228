//! The body of a request.

use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::{BodyStream, BoxError, Receiver, Sender, channel};
use highwire_engine::response::{Content, Streamed};
use http::{HeaderName, HeaderValue};
use std::fmt;

/// The body of a request: bytes, or parts that the program makes while they are sent.
///
/// A request whose body is bytes may be sent again after a lost connection or a redirect. A request with a body in
/// parts cannot, after the first part was taken.
#[derive(Default)]
pub struct Body {
    kind: Kind,
    trailers: Option<highwire_engine::body::Trailers>,
}

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    Bytes(Bytes),
    Stream {
        length: Option<u64>,
        body: BodyStream,
    },
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Empty => f.write_str("Body::Empty"),
            Kind::Bytes(bytes) => write!(f, "Body::Bytes({} bytes)", bytes.len()),
            Kind::Stream { .. } => f.write_str("Body::Stream"),
        }
    }
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Body {
        Body::default()
    }

    /// Returns a body of parts from a stream. It is polled as fast as the server takes the parts.
    #[doc(alias = "wrap_stream")]
    pub fn stream<S, E>(stream: S) -> Body
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<BoxError>,
    {
        Body { kind: Kind::Stream { length: None, body: BodyStream::new(stream) }, trailers: None }
    }

    /// Returns a body that a task writes. [`Sender::send`] waits while 64 KiB or more wait to be sent.
    pub fn channel() -> (Sender, Body) {
        let (sender, receiver): (Sender, Receiver) = channel();
        (sender, Body::stream(receiver))
    }

    /// Announces the length of a body in parts. If the body has another length, the request fails.
    #[must_use]
    pub fn with_length(mut self, bytes: u64) -> Body {
        if let Kind::Stream { length, .. } = &mut self.kind {
            *length = Some(bytes);
        }
        self
    }

    /// Adds trailers, which `make` returns after the last part of the body.
    #[must_use]
    pub fn with_trailers(mut self, make: impl FnOnce() -> Vec<(HeaderName, HeaderValue)> + 'static) -> Body {
        self.trailers = Some(Box::new(make));
        self
    }

    /// Returns a body of parts, with its length and its trailers.
    #[cfg(feature = "tower")]
    pub(super) fn streamed(streamed: Streamed) -> Body {
        let Streamed { length, body, trailers } = streamed;
        Body { kind: Kind::Stream { length, body }, trailers }
    }

    /// Returns the body for the engine.
    pub(super) fn into_content(self) -> Content {
        let (length, body) = match self.kind {
            Kind::Empty if self.trailers.is_none() => return Content::Bytes(Bytes::new()),
            Kind::Bytes(bytes) if self.trailers.is_none() => return Content::Bytes(bytes),
            Kind::Empty => (None, BodyStream::of(Bytes::new())),
            Kind::Bytes(bytes) => (None, BodyStream::of(bytes)),
            Kind::Stream { length, body } => (length.filter(|_| self.trailers.is_none()), body),
        };
        Content::Stream(Box::new(Streamed { length, body, trailers: self.trailers }))
    }

    /// Returns the same body for another request, if it is not made in parts.
    pub(super) fn copy(&self) -> Option<Body> {
        match &self.kind {
            _ if self.trailers.is_some() => None,
            Kind::Empty => Some(Body::empty()),
            Kind::Bytes(bytes) => Some(Body::from(bytes.clone())),
            Kind::Stream { .. } => None,
        }
    }

    /// Returns true if there is no body.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty) && self.trailers.is_none()
    }

    /// Returns the bytes of a body that is not made in parts.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Empty => Some(&[]),
            Kind::Bytes(bytes) => Some(bytes),
            Kind::Stream { .. } => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body { kind: if bytes.is_empty() { Kind::Empty } else { Kind::Bytes(bytes) }, trailers: None }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::from(Bytes::from(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::from(Bytes::from(text))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Body::from(Bytes::from_static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Body {
        Body::from(Bytes::from_static(bytes))
    }
}

/// The received body of a request as the body of another one, for gateways.
impl From<crate::Body> for Body {
    fn from(body: crate::Body) -> Body {
        Body::stream(body)
    }
}
