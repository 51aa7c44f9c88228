//! Converts between the bodies of services and those of the engine.

use crate::HeaderMap;
use bytes::{Buf, Bytes};
use futures_core::Stream;
use highwire_engine::body::{Body as Received, BodyError, BodyQueue, BodyStream, BoxError, Trailers};
use highwire_engine::call::{Reader, ReaderGone, body_error, crossing, each_named};
use highwire_engine::response::{Content, Streamed};
use http_body::Body;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

/// Passes a body to another thread, one part each time the reader waits for one. A task of this worker polls it with
/// `next`, until the end or until the reader is dropped.
pub(crate) fn send_across<B: 'static, E: From<BodyError> + 'static>(
    mut body: B,
    mut next: impl FnMut(&mut B, &mut Context<'_>) -> Poll<Option<Result<Bytes, E>>> + 'static,
    trailers: impl FnOnce(&B) -> HeaderMap + 'static,
) -> Reader<E> {
    let (writer, reader) = crossing();
    highwire_engine::context::spawn(async move {
        let end = loop {
            let part = poll_fn(|cx| match ready!(writer.poll_asked(cx)) {
                Ok(()) => next(&mut body, cx).map(Ok),
                Err(ReaderGone) => Poll::Ready(Err(ReaderGone)),
            });
            match part.await {
                Ok(Some(Ok(part))) => writer.push(part),
                Ok(Some(Err(error))) => break Err(error),
                Ok(None) => break Ok(trailers(&body)),
                // The reader was dropped. The source drops the rest when `body` is dropped here.
                Err(ReaderGone) => return,
            }
        };
        writer.end(end);
    });
    reader
}

/// Returns the error of a body. That of a limit of tower-http is `TooLarge`.
fn error_of(error: &BoxError) -> BodyError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    while let Some(this) = cause {
        if this.is::<http_body_util::LengthLimitError>() {
            return BodyError::TooLarge;
        }
        cause = this.source();
    }
    body_error(error)
}

/// Polls for the next bytes of a body, or for its trailers, which end it.
pub(super) fn poll_body<B: Body<Data: Buf, Error: Into<BoxError>>>(
    body: &mut Pin<Box<B>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Result<Bytes, HeaderMap>, BodyError>>> {
    body.as_mut().poll_frame(cx).map(|frame| {
        Some(match frame? {
            Ok(frame) => match frame.into_data() {
                Ok(mut data) => Ok(Ok(data.copy_to_bytes(data.remaining()))),
                Err(frame) => Ok(Err(frame.into_trailers().unwrap_or_default())),
            },
            Err(error) => Err(error_of(&error.into())),
        })
    })
}

/// Makes a body of at most `limit` bytes, in parts, which a task of this worker fills as fast as its reader takes them.
pub(super) fn receive<B>(body: B, limit: u64) -> Received
where
    B: Body<Data: Buf, Error: Into<BoxError>> + 'static,
{
    let queue = Rc::new(RefCell::new(BodyQueue::new(Waker::noop().clone())));
    let filled = queue.clone();
    highwire_engine::context::spawn(async move {
        let (mut body, mut left) = (Box::pin(body), limit);
        let (end, trailers) = loop {
            // Each wake looks at both ends: the reader may have gone.
            let part = poll_fn(|cx| match ready!(filled.borrow_mut().poll_room(cx)) {
                true => poll_body(&mut body, cx).map(Some),
                false => Poll::Ready(None),
            });
            let Some(part) = part.await else { return };
            match part {
                Some(Ok(Ok(part))) => match left.checked_sub(part.len() as u64) {
                    Some(less) => {
                        left = less;
                        filled.borrow_mut().push(&part);
                    }
                    None => break (Err(BodyError::TooLarge), HeaderMap::new()),
                },
                Some(Ok(Err(trailers))) => break (Ok(()), trailers),
                Some(Err(error)) => break (Err(error), HeaderMap::new()),
                None => break (Ok(()), HeaderMap::new()),
            }
        };
        filled.borrow_mut().finish(end, each_named(trailers).collect());
    });
    Received::new(queue)
}

/// Returns a body of a service as one that the engine sends. A body that is there as a whole needs no stream.
pub(crate) fn content<B>(body: B) -> Content
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Content::Bytes(Bytes::new());
    }
    let length = body.size_hint().exact();
    let mut outgoing = Outgoing { body: Box::pin(body), first: None, has_ended: false, trailers: Rc::default() };
    if let Some(length) = length {
        // The engine polls again with the task's waker if the body is not ready.
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut outgoing).poll_next(&mut cx) {
            Poll::Ready(Some(Ok(bytes))) if bytes.len() as u64 == length => return Content::Bytes(bytes),
            Poll::Ready(Some(part)) => outgoing.first = Some(part),
            Poll::Ready(None) => outgoing.has_ended = true,
            Poll::Pending => {}
        }
    }
    Content::Stream(Box::new(streamed(outgoing, length)))
}

/// Returns a stream that the engine sends. It has trailers only if its length is unknown.
fn streamed<B>(outgoing: Outgoing<B>, length: Option<u64>) -> Streamed
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let trailers = outgoing.trailers.clone();
    let body = BodyStream::new(outgoing);
    let make = move || each_named(trailers.take()).collect();
    Streamed { length, body, trailers: length.is_none().then(|| Box::new(make) as Trailers) }
}

/// A service's body as a stream of its parts. Collects the trailers, which are sent after a stream of unknown length.
struct Outgoing<B> {
    body: Pin<Box<B>>,
    /// The part that was taken before the stream began.
    first: Option<Result<Bytes, BoxError>>,
    /// True if the body has ended.
    has_ended: bool,
    trailers: Rc<RefCell<HeaderMap>>,
}

impl<B> Stream for Outgoing<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        loop {
            let frame = match self.body.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(mut data) if data.has_remaining() => {
                    let length = data.remaining();
                    return Poll::Ready(Some(Ok(data.copy_to_bytes(length))));
                }
                Ok(_) => {}
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        // They are the last frame. What comes of another poll is not defined; bodies of tonic may wait forever.
                        *self.trailers.borrow_mut() = trailers;
                        self.has_ended = true;
                        return Poll::Ready(None);
                    }
                }
            }
        }
    }
}
