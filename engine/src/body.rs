//! Bodies in parts: of requests as they arrive, of responses as they are made.

use crate::file_part::{FilePart, Step};
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

/// Makes the fields behind a body.
pub type Trailers = Box<dyn FnOnce() -> Vec<(HeaderName, HeaderValue)>>;

/// Why a request's body did not arrive whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The connection ended, or the framing was wrong.
    CutShort,
    /// It is longer than the route allows.
    TooLarge,
    /// It came too slowly.
    TooSlow,
    /// The server has no memory left for it.
    NoMemory,
    /// It is not what its `Content-Encoding` says.
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
    /// The status that says so: 400, 408, 413 or 503.
    pub fn status(self) -> StatusCode {
        match self {
            BodyError::CutShort | BodyError::Undecodable => StatusCode::BAD_REQUEST,
            BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyError::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Changes a body on its way to the handler: takes a part when it has no more to give of the one before.
pub trait Transform {
    /// Gives it a part as it came.
    fn push(&mut self, part: Bytes);
    /// The next part for the handler. What it does for that is taken from `steps`, each of them a piece of work.
    fn pull(&mut self, steps: &mut u32) -> Result<Pulled, BodyError>;
    /// The body has ended: whether it may.
    fn finish(&mut self) -> Result<(), BodyError>;
}

/// What pulling came to.
pub enum Pulled {
    /// A part for the handler.
    Part(Bytes),
    /// It needs another part first.
    Starved,
    /// There were no steps left: it goes on when it is pulled again.
    Unfinished,
}

/// Steps that a transform may make in a row before other connections have their turn, whether or not parts come of them.
const STEPS_A_TURN: u32 = 16;

/// A transform, and how many steps it may make before it rests.
struct Transforming {
    transform: Box<dyn Transform>,
    steps: u32,
}

impl fmt::Debug for Transforming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transforming")
    }
}

/// What it costs to hold a part, however small: its place in the queue, and its allocation.
pub(crate) const PART_BYTES: usize = 64;

/// What comes in smaller parts than this is put together, so that holding it does not cost many times its length.
const SMALL_PART_BYTES: usize = 4096;

/// Parts that wait for somebody to take them.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: VecDeque<BytesMut>,
}

impl Parts {
    /// Adds bytes: how many more are held now.
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

    /// Takes the first part; it was held with [`PART_BYTES`].
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.parts.pop_front().map(BytesMut::freeze)
    }
}

/// What a connection and a handler share of a body that arrives: parts that wait, and how it ended.
#[derive(Debug, Default)]
pub struct BodyQueue {
    parts: Parts,
    /// Bytes in `parts`.
    pub(crate) bytes: usize,
    /// The same, with what holding them costs.
    pub(crate) held: usize,
    end: Option<Result<(), BodyError>>,
    trailers: Vec<(HeaderName, HeaderValue)>,
    reader: Option<Waker>,
    /// Whom to wake when the handler has taken something and the connection waits for that.
    connection: Option<Waker>,
    /// The connection has stopped receiving because enough is held.
    pub(crate) paused: bool,
    /// The handler has dropped its end: nobody reads what comes.
    pub(crate) abandoned: bool,
}

impl BodyQueue {
    /// An empty one; `connection` wakes the task that fills it.
    pub fn new(connection: Waker) -> BodyQueue {
        BodyQueue { connection: Some(connection), ..BodyQueue::default() }
    }

    /// Bytes that wait for the reader.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the reader has dropped its end: nobody reads what comes.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Adds bytes, and wakes the reader.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.held += self.parts.push(bytes);
        self.wake();
    }

    /// The body has ended, or no more of it comes.
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

/// A request's body as it arrives. Back-pressure reaches the peer: while the handler does not ask for the next
/// part, no more than a bounded amount is received.
#[derive(Debug)]
pub struct Body {
    incoming: Rc<RefCell<BodyQueue>>,
    transforming: Option<Transforming>,
}

impl Body {
    /// A body that comes by this queue.
    pub fn new(incoming: Rc<RefCell<BodyQueue>>) -> Body {
        Body { incoming, transforming: None }
    }

    /// One that has no bytes.
    pub fn empty() -> Body {
        let mut incoming = BodyQueue::default();
        incoming.finish(Ok(()), Vec::new());
        Body::new(Rc::new(RefCell::new(incoming)))
    }

    /// Lets what comes pass a transform.
    pub fn transform_by(&mut self, transform: Box<dyn Transform>) {
        self.transforming = Some(Transforming { transform, steps: STEPS_A_TURN });
    }

    /// The next part, or `None` at the end.
    ///
    /// # Errors
    /// Where the body does not arrive whole; nothing follows then.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|cx| self.poll_part(cx)).await
    }

    /// All of the body, if it has at most `limit` bytes.
    ///
    /// # Errors
    /// Where the body does not arrive whole, or is longer.
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

    /// Whether there is none, and none will come.
    pub fn is_empty(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.bytes == 0 && incoming.end == Some(Ok(())) && incoming.trailers.is_empty()
    }

    /// The trailer fields, once the body has ended.
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
                // Whatever still comes is read and dropped.
                Err(error) => {
                    *self = Body::empty();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }
}

/// The next part as the peer sent it.
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

/// What makes a response's body in parts.
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
    /// Made as it is asked for.
    Made(Pin<Box<dyn Source>>),
    /// There already, and sent in parts.
    There {
        /// What is left.
        bytes: Bytes,
        /// Nobody else holds it.
        own: bool,
    },
    /// A part of a file: some connections can send it without reading it.
    File(FilePart),
}

/// What comes next of a body.
pub enum Part {
    /// Bytes.
    Bytes(Bytes),
    /// A range of a file, for a carrier that can send it unread.
    File(Step),
}

impl Part {
    /// Bytes that it sends.
    pub fn length(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(step) => step.range.end - step.range.start,
        }
    }
}

impl BodyStream {
    /// Parts that a stream makes.
    pub fn new<S, E>(stream: S) -> BodyStream
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<BoxError>,
    {
        BodyStream::Made(Box::pin(Converted { stream: Box::pin(stream) }))
    }

    /// Parts that a [`Source`] makes.
    pub fn from_source(source: impl Source + 'static) -> BodyStream {
        BodyStream::Made(Box::pin(source))
    }

    /// Bytes that are there already, in parts that are worth a send.
    pub fn of(bytes: Bytes) -> BodyStream {
        BodyStream::There { own: bytes.is_unique(), bytes }
    }

    /// Bytes that it holds and nobody else does, or that are read for it.
    pub fn held(&self) -> usize {
        match self {
            BodyStream::Made(source) => source.held(),
            BodyStream::There { bytes, own: true } => bytes.len(),
            BodyStream::There { .. } => 0,
            BodyStream::File(part) => part.held(),
        }
    }

    /// The next bytes, or `None` at the end.
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

    /// All of it, where that can be sent now, in one go and without being read: nothing is left of it then.
    pub(crate) fn take_whole(&mut self) -> Option<Step> {
        match self {
            BodyStream::File(part) => part.take_whole(),
            BodyStream::Made(_) | BodyStream::There { .. } => None,
        }
    }

    /// As [`poll`](Self::poll), for a connection that can send files as they are.
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

/// Bytes of a body that is there already, in one part.
const THERE_PART_BYTES: usize = 32 * 1024;

/// A stream with its error boxed.
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

/// Bytes that a [`Sender`] may be ahead of the peer.
pub const CHANNEL_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Channel {
    parts: VecDeque<Bytes>,
    held: usize,
    ended: bool,
    /// The sender is gone without having said that the body is whole.
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

/// A response body that a task on the same worker writes: `Sender::send` waits while [`CHANNEL_BYTES`] are ahead.
pub fn channel() -> (Sender, Receiver) {
    let channel = Rc::new(RefCell::new(Channel::default()));
    (Sender { channel: channel.clone() }, Receiver { channel })
}

/// The peer is gone: nobody reads what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerGone;

impl fmt::Display for PeerGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer is gone")
    }
}

impl std::error::Error for PeerGone {}

impl Sender {
    /// Sends a part, as soon as there is room.
    ///
    /// # Errors
    /// Where the peer is gone.
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

    /// Says that the body is whole. A sender that is dropped without it cuts the body short, and the peer sees that.
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
