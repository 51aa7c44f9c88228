//! Bodies in parts: of requests while they are received, and of responses while they are produced.

use crate::file_part::{FilePart, Step};
use crate::queue::Queue;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::{HeaderName, HeaderValue, StatusCode};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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
            BodyError::Undecodable => "the request's body is not what its coding says",
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

/// The number of steps that a transform may take before other connections have their turn. Steps that make no part
/// count, too.
const STEPS_A_TURN: u32 = 16;

/// A transform, and the number of steps that it may still take in this turn.
struct Transforming {
    transform: Box<dyn Transform>,
    steps: u32,
}

impl fmt::Debug for Transforming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transforming")
    }
}

/// The number of bytes that a held part costs beside its content, for its place in the queue and its allocation.
pub(crate) const PART_BYTES: usize = 64;

/// The size in bytes up to which small parts are joined, so that holding them does not cost many times their length.
const SMALL_PART_BYTES: usize = 4096;

/// A queue of parts.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Queue<BytesMut>,
}

impl Parts {
    /// Adds bytes. Returns the number of bytes by which the cost of the queue has grown.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        if let Some(last) = self.parts.back_mut().filter(|last| last.len() + bytes.len() <= SMALL_PART_BYTES) {
            last.extend_from_slice(bytes);
            return bytes.len();
        }
        let mut part = BytesMut::with_capacity(bytes.len().max(PART_BYTES));
        part.extend_from_slice(bytes);
        self.parts.push_back(part);
        bytes.len() + PART_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes the first part. The cost of the queue falls by the part's length and [`PART_BYTES`].
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.pop_mut().map(BytesMut::freeze)
    }

    /// Takes the first part as [`pop`](Self::pop) does.
    #[inline]
    pub(crate) fn pop_mut(&mut self) -> Option<BytesMut> {
        self.parts.pop_front()
    }
}

/// The queue between a connection and the reader of a request's body: the waiting parts, and the result of the body
/// when it has ended.
#[derive(Debug, Default)]
pub struct BodyQueue {
    parts: Parts,
    /// The number of bytes in `parts`.
    pub(crate) bytes: usize,
    /// The number of bytes that the queue costs: `bytes`, [`PART_BYTES`] for each part, and the trailers.
    pub(crate) held: usize,
    end: Option<Result<(), BodyError>>,
    trailers: Vec<(HeaderName, HeaderValue)>,
    reader: Option<Waker>,
    /// Wakes the connection when the reader takes a part while `paused` is set, and when the reader drops the body.
    connection: Option<Waker>,
    /// True if the connection must be woken when the reader takes a part, for example because the queue was full.
    pub(crate) paused: bool,
    /// True if the reader has dropped the body.
    pub(crate) abandoned: bool,
}

impl BodyQueue {
    /// Creates an empty queue. `connection` wakes the task that fills it.
    pub fn new(connection: Waker) -> BodyQueue {
        BodyQueue { connection: Some(connection), ..BodyQueue::default() }
    }

    /// Returns the number of bytes that wait for the reader.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the reader has dropped the body.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Adds bytes, and wakes the reader.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.held += self.parts.push(bytes);
        self.wake();
    }

    /// Ends the body, complete or with an error. Later calls have no effect.
    pub fn finish(&mut self, end: Result<(), BodyError>, trailers: Vec<(HeaderName, HeaderValue)>) {
        if self.end.is_none() {
            self.end = Some(end);
            self.held += trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
            self.trailers = trailers;
            self.wake();
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// A request's body while it is received. Back-pressure reaches the peer, because the connection receives only a
/// bounded number of bytes that the handler has not taken.
#[derive(Debug)]
pub struct Body {
    incoming: Rc<RefCell<BodyQueue>>,
    transforming: Option<Transforming>,
}

impl Body {
    /// Creates a body that reads its parts from a queue.
    pub fn new(incoming: Rc<RefCell<BodyQueue>>) -> Body {
        Body { incoming, transforming: None }
    }

    /// Creates a body without bytes.
    pub fn empty() -> Body {
        let mut incoming = BodyQueue::default();
        incoming.finish(Ok(()), Vec::new());
        Body::new(Rc::new(RefCell::new(incoming)))
    }

    /// Passes the received parts through a transform.
    pub fn transform_by(&mut self, transform: Box<dyn Transform>) {
        self.transforming = Some(Transforming { transform, steps: STEPS_A_TURN });
    }

    /// Waits for the next part and returns it, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the body is not received completely or cannot be decoded. The next call returns `None`.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|cx| self.poll_part(cx)).await
    }

    /// Returns the whole body, if it has at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error if the body is not received completely, cannot be decoded, or is longer than `limit`.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>, BodyError> {
        let mut whole = Vec::new();
        while let Some(part) = self.next().await {
            let part = part?;
            if whole.len() + part.len() > limit {
                return Err(BodyError::TooLarge);
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole)
    }

    /// Returns true if the body has ended without an error and without trailers, and no received bytes are left to
    /// read.
    pub fn is_empty(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.bytes == 0 && incoming.end == Some(Ok(())) && incoming.trailers.is_empty()
    }

    /// Returns the trailer fields. There are none before the body has ended.
    pub fn trailers(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.incoming.borrow().trailers.clone()
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.transforming.is_some() { self.poll_transformed(cx) } else { poll_received(&self.incoming, cx) }
    }

    fn poll_transformed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        while let Some(transforming) = &mut self.transforming {
            let ended = match transforming.transform.pull(&mut transforming.steps) {
                Ok(Pulled::Part(part)) => return Poll::Ready(Some(Ok(part))),
                Ok(Pulled::Unfinished) => {
                    transforming.steps = STEPS_A_TURN;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Pulled::Starved) => match poll_received(&self.incoming, cx) {
                    Poll::Ready(Some(Ok(part))) => {
                        transforming.transform.push(part);
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => Err(error),
                    Poll::Ready(None) => transforming.transform.finish(),
                    Poll::Pending => {
                        transforming.steps = STEPS_A_TURN;
                        return Poll::Pending;
                    }
                },
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => self.transforming = None,
                // The rest of the body is received and dropped.
                Err(error) => {
                    *self = Body::empty();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }
}

/// Polls for the next received part, before any transform.
fn poll_received(incoming: &RefCell<BodyQueue>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
    let mut incoming = incoming.borrow_mut();
    if let Some(part) = incoming.parts.pop() {
        incoming.bytes -= part.len();
        incoming.held -= part.len() + PART_BYTES;
        if incoming.paused
            && let Some(connection) = &incoming.connection
        {
            connection.wake_by_ref();
        }
        return Poll::Ready(Some(Ok(part)));
    }
    match incoming.end {
        Some(Ok(())) => Poll::Ready(None),
        Some(Err(error)) => {
            incoming.end = Some(Ok(()));
            Poll::Ready(Some(Err(error)))
        }
        None => {
            incoming.reader = Some(cx.waker().clone());
            Poll::Pending
        }
    }
}

impl Stream for Body {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_part(cx)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let mut incoming = self.incoming.borrow_mut();
        incoming.abandoned = true;
        incoming.parts = Parts::default();
        (incoming.bytes, incoming.held) = (0, 0);
        if let Some(connection) = &incoming.connection {
            connection.wake_by_ref();
        }
    }
}

pub use crate::error::BoxError;

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
        BodyStream::There { own: bytes.is_unique(), bytes }
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

/// The number of unread bytes in a [`channel`] at which its [`Sender`] must wait.
pub const CHANNEL_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Channel {
    parts: VecDeque<Bytes>,
    held: usize,
    ended: bool,
    /// True if the sender was dropped before it finished the body, and the receiver has not reported that yet.
    broken: bool,
    receiver_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The writing end of [`channel`].
#[derive(Debug)]
pub struct Sender {
    channel: Rc<RefCell<Channel>>,
}

/// The reading end of [`channel`]: a stream for [`Response::stream`](crate::Response::stream).
#[derive(Debug)]
pub struct Receiver {
    channel: Rc<RefCell<Channel>>,
}

/// Creates a response body that a task on the same worker writes. [`Sender::send`] waits while [`CHANNEL_BYTES`] or
/// more are unread.
pub fn channel() -> (Sender, Receiver) {
    let channel = Rc::new(RefCell::new(Channel::default()));
    (Sender { channel: channel.clone() }, Receiver { channel })
}

/// The error of [`Sender::send`]: the receiver was dropped, usually because the peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerGone;

impl fmt::Display for PeerGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer is gone")
    }
}

impl std::error::Error for PeerGone {}

impl Sender {
    /// Sends a part. Waits until the channel has room.
    ///
    /// # Errors
    /// Returns an error if the receiver was dropped, usually because the peer is gone.
    pub async fn send(&mut self, part: impl Into<Bytes>) -> Result<(), PeerGone> {
        let mut part = Some(part.into());
        poll_fn(|cx| {
            let mut channel = self.channel.borrow_mut();
            if channel.receiver_gone {
                return Poll::Ready(Err(PeerGone));
            }
            if channel.held >= CHANNEL_BYTES {
                channel.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let part = part.take().unwrap_or_default();
            channel.held += part.len();
            channel.parts.push_back(part);
            channel.reader.take().into_iter().for_each(Waker::wake);
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Ends the body. If the sender is dropped without this call, the body is cut short, and the peer sees that it is
    /// incomplete.
    pub fn finish(self) {
        self.channel.borrow_mut().ended = true;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut channel = self.channel.borrow_mut();
        channel.broken = !channel.ended;
        channel.ended = true;
        channel.reader.take().into_iter().for_each(Waker::wake);
    }
}

impl Stream for Receiver {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut channel = self.channel.borrow_mut();
        if let Some(part) = channel.parts.pop_front() {
            channel.held -= part.len();
            channel.writer.take().into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok(part)));
        }
        if std::mem::take(&mut channel.broken) {
            return Poll::Ready(Some(Err(BodyError::CutShort)));
        }
        if channel.ended {
            return Poll::Ready(None);
        }
        channel.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut channel = self.channel.borrow_mut();
        channel.receiver_gone = true;
        channel.writer.take().into_iter().for_each(Waker::wake);
    }
}
