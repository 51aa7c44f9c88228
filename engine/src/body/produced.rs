//! Bodies that are sent: the parts as they are produced.

use super::BoxError;
use crate::message::file_part::{FilePart, Step};
use crate::runtime::memory;
use bytes::Bytes;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A producer of a response's body in parts.
pub trait Source: Stream<Item = Result<Bytes, BoxError>> {
    /// See [`BodyStream::held`].
    fn held(&self) -> usize {
        0
    }

    /// See [`BodyStream::poll_part`].
    fn poll_part(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Part, BoxError>>> {
        self.poll_next(cx).map_ok(Part::Bytes)
    }
}

/// A response's body in parts.
pub enum BodyStream {
    /// A producer makes each part when it is polled.
    Made(Pin<Box<dyn Source>>),
    /// The bytes exist already and are sent in parts.
    There {
        /// The bytes that have not been taken yet.
        bytes: Bytes,
        /// True if no other owner shared the bytes when the body was created.
        own: bool,
    },
    /// A range of a file, which some connections can send without reading it into memory.
    File(FilePart),
}

/// The next part of a body.
pub enum Part {
    /// Bytes.
    Bytes(Bytes),
    /// A range of a file, for a carrier that can send it without reading it into memory.
    File(Step),
}

impl Part {
    /// Returns the length of the part in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(step) => step.range.end - step.range.start,
        }
    }
}

impl BodyStream {
    /// Creates a body from a stream of parts.
    pub fn new<S, E>(stream: S) -> BodyStream
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<BoxError>,
    {
        BodyStream::Made(Box::pin(Converted { stream: Box::pin(stream) }))
    }

    /// Creates a body from a [`Source`].
    pub fn from_source(source: impl Source + 'static) -> BodyStream {
        BodyStream::Made(Box::pin(source))
    }

    /// Creates a body of bytes, which are sent in parts.
    pub fn of(bytes: Bytes) -> BodyStream {
        BodyStream::There { own: memory::is_own(&bytes, memory::new_holder()), bytes }
    }

    /// Returns the number of bytes that are held only for this body or are being read for it, as far as the engine and
    /// the body's source count them.
    pub fn held(&self) -> usize {
        match self {
            BodyStream::Made(source) => source.held(),
            BodyStream::There { bytes, own: true } => bytes.len(),
            BodyStream::There { .. } => 0,
            BodyStream::File(part) => part.held(),
        }
    }

    /// Polls for the next bytes. Returns `None` at the end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        match self {
            BodyStream::Made(stream) => stream.as_mut().poll_next(cx),
            BodyStream::There { bytes, .. } => {
                let length = bytes.len().min(THERE_PART_BYTES);
                Poll::Ready((length > 0).then(|| Ok(bytes.split_to(length))))
            }
            BodyStream::File(part) => part.poll(cx).map_err(BoxError::from),
        }
    }

    /// Takes the whole body as one range of a file, if the file was in memory a moment ago and the range is one step.
    pub(crate) fn take_whole(&mut self) -> Option<Step> {
        match self {
            BodyStream::File(part) => part.take_whole(),
            BodyStream::Made(_) | BodyStream::There { .. } => None,
        }
    }

    /// Polls for the next part, which may be a range of a file, for a connection that can send such ranges. Returns
    /// `None` at the end.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, BoxError>>> {
        match self {
            BodyStream::Made(source) => source.as_mut().poll_part(cx),
            BodyStream::File(part) if part.is_large() => {
                part.poll_step(cx).map(|step| Some(step.map(Part::File).map_err(BoxError::from)))
            }
            BodyStream::File(_) | BodyStream::There { .. } => self.poll(cx).map_ok(Part::Bytes),
        }
    }
}

/// The most bytes in one part of a [`BodyStream::There`].
const THERE_PART_BYTES: usize = 32 * 1024;

/// A stream whose errors are boxed.
struct Converted<S> {
    stream: Pin<Box<S>>,
}

impl<S, E> Stream for Converted<S>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(cx).map(|part| part.map(|part| part.map_err(Into::into)))
    }
}

impl<S, E> Source for Converted<S>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<BoxError>,
{
}
