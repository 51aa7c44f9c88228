//! Bodies out of files, in parts: what the kernel has in its cache is read on the worker, the rest on the blocking pool.

use crate::Response;
use crate::server::{Asked, Shared};
use bytes::Bytes;
use futures_core::Stream;
use io::file::{File, Open};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes that are read at once: as many as are handed to the driver before it has to say that they are out.
const READ_BYTES: u64 = 64 * 1024;

/// A piece of a body.
pub(super) enum Piece {
    Bytes(Bytes),
    File(Range<u64>),
}

/// A response whose body is a file's parts, with other bytes between them.
pub(super) fn response(file: Arc<Open>, pieces: VecDeque<Piece>, shared: Arc<Shared>) -> Response {
    let length = pieces.iter().map(|piece| match piece {
        Piece::Bytes(bytes) => bytes.len() as u64,
        Piece::File(range) => range.end - range.start,
    });
    let mut response = Response::stream_of(length.sum(), Pieces { file, pieces, asked: None, shared });
    response.content_type = None;
    response
}

struct Pieces {
    file: Arc<Open>,
    pieces: VecDeque<Piece>,
    asked: Option<Asked<Result<Bytes, Error>>>,
    shared: Arc<Shared>,
}

impl Pieces {
    /// Bytes of the file's part that comes next were read. None of them: the file has become shorter, and what was announced
    /// cannot be sent.
    fn take(&mut self, bytes: Bytes) -> Result<Bytes, Error> {
        if let Some(Piece::File(range)) = self.pieces.front_mut() {
            range.start += bytes.len() as u64;
        }
        if bytes.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(asked) = &mut self.asked {
                let Poll::Ready(read) = asked.poll(cx) else { return Poll::Pending };
                self.asked = None;
                let read = read.unwrap_or_else(|| Err(Error::other("the blocking pool has no room")));
                return Poll::Ready(Some(read.and_then(|bytes| self.take(bytes))));
            }
            let range = match self.pieces.front_mut() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    self.pieces.pop_front();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Piece::File(range)) if range.is_empty() => {
                    self.pieces.pop_front();
                    continue;
                }
                Some(Piece::File(range)) => range.start..range.end.min(range.start + READ_BYTES),
            };
            let mut buffer = vec![0; (range.end - range.start) as usize];
            match self.file.read_now(&mut buffer, range.start) {
                Ok(Some(count)) => {
                    buffer.truncate(count);
                    let taken = self.take(buffer.into());
                    return Poll::Ready(Some(taken));
                }
                Ok(None) => {
                    let file = self.file.clone();
                    self.asked = Some(self.shared.ask(move || {
                        let count = file.read(&mut buffer, range.start)?;
                        buffer.truncate(count);
                        Ok(buffer.into())
                    }));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
