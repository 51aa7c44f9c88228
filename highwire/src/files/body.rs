//! A response body of several parts of a file, with other bytes between them.

use super::open::Held;
use crate::Response;
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::{BodyStream, BoxError, Part, Source};
use highwire_engine::file_part::FilePart;
use highwire_engine::response::{Content, Streamed};
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A piece of a body.
pub(super) enum Piece {
    Bytes(Bytes),
    File(Range<u64>),
}

/// Returns a response without header fields, whose body consists of the pieces.
pub(super) fn response(file: &Arc<Held>, pieces: Vec<Piece>) -> Response {
    let length = pieces.iter().map(|piece| match piece {
        Piece::Bytes(bytes) => bytes.len() as u64,
        Piece::File(range) => range.end - range.start,
    });
    let length = length.sum();
    let pieces = pieces.into_iter().map(|piece| match piece {
        Piece::Bytes(bytes) => BodyStream::of(bytes),
        Piece::File(range) => BodyStream::File(FilePart::new(file.clone(), range)),
    });
    let body = BodyStream::from_source(Pieces(pieces.collect()));
    Response::with_content(Content::Stream(Box::new(Streamed { length: Some(length), body, trailers: None })))
}

/// A body that consists of several bodies in sequence.
struct Pieces(VecDeque<BodyStream>);

impl Pieces {
    /// Polls the first body that has not ended.
    fn poll_first<T>(&mut self, mut poll: impl FnMut(&mut BodyStream) -> Poll<Option<T>>) -> Poll<Option<T>> {
        while let Some(first) = self.0.front_mut() {
            match poll(first) {
                Poll::Ready(None) => drop(self.0.pop_front()),
                part => return part,
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_first(|piece| piece.poll(cx))
    }
}

impl Source for Pieces {
    fn held(&self) -> usize {
        self.0.iter().map(BodyStream::held).sum()
    }

    fn poll_part(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Part, BoxError>>> {
        self.poll_first(|piece| piece.poll_part(cx))
    }
}
