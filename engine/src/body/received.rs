//! Bodies that are received: the queue between a connection and the reader, and the reader's end.

use super::bounds::{is_tight, most_incoming};
use super::{BodyError, Pulled, Transform, cost, lend};
use crate::runtime::memory;
use crate::runtime::queue::Queue;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::{HeaderName, HeaderValue};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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

    /// Takes the first part, if there is no other one.
    fn pop_only(&mut self) -> Option<Bytes> {
        self.parts.pop_only().map(BytesMut::freeze)
    }

    /// Copies as many bytes of the first part as fit `into`. Returns their number and the cost by which the queue's falls, or
    /// `None` if the queue is empty.
    #[cfg(feature = "tokio")]
    pub(crate) fn copy_to(&mut self, into: &mut [u8]) -> Option<(usize, usize)> {
        let first = self.parts.front_mut()?;
        let count = first.len().min(into.len());
        into[..count].copy_from_slice(&first[..count]);
        if count == first.len() {
            self.parts.pop_front();
            return Some((count, count + PART_BYTES));
        }
        bytes::Buf::advance(first, count);
        Some((count, count))
    }

    /// Takes the first part as [`pop`](Self::pop) does.
    #[inline]
    pub(crate) fn pop_mut(&mut self) -> Option<BytesMut> {
        self.parts.pop_front()
    }
}

/// A body whose reader takes it as a whole.
#[derive(Debug)]
struct Joined {
    bytes: Vec<u8>,
    /// The number of bytes that the reader accepts.
    limit: usize,
    /// The number of bytes that the buffer costs while it is lent.
    lent: usize,
    /// The capacity of the buffer, if it is that of an earlier body.
    resident: usize,
}

thread_local! {
    static HELD_IN_ALL: Cell<usize> = const { Cell::new(0) };
    static AHEAD_IN_ALL: Rc<Cell<usize>> = Rc::default();
    static STREAMS_AHEAD: Rc<Cell<usize>> = Rc::default();
}

/// Returns the number of streams of this thread whose HTTP/2 peers may send ahead.
pub(crate) fn streams_ahead() -> Rc<Cell<usize>> {
    STREAMS_AHEAD.with(Rc::clone)
}

/// Returns the number of bytes that HTTP/2 peers of this thread may send ahead, because they are far away. The HTTP/2 connections
/// change it.
pub(crate) fn ahead_in_all() -> Rc<Cell<usize>> {
    AHEAD_IN_ALL.with(Rc::clone)
}

/// Returns the number of bytes that wait on this thread: in all queues, and for the windows of all HTTP/2 connections.
pub(crate) fn held_in_all() -> usize {
    HELD_IN_ALL.get()
}

/// The number of bytes that wait in a queue, or for the windows of a connection. It is part of the sum over the thread.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes(usize);

impl HeldBytes {
    pub(crate) fn get(&self) -> usize {
        self.0
    }

    pub(crate) fn set(&mut self, bytes: usize) {
        // Fails if the thread ends.
        let _ = HELD_IN_ALL.try_with(|all| all.set((all.get() + bytes).saturating_sub(self.0)));
        self.0 = bytes;
    }
}

impl std::ops::AddAssign<usize> for HeldBytes {
    fn add_assign(&mut self, bytes: usize) {
        self.set(self.0 + bytes);
    }
}

impl std::ops::SubAssign<usize> for HeldBytes {
    fn sub_assign(&mut self, bytes: usize) {
        self.set(self.0 - bytes);
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The queue between a connection and the reader of a body: the waiting parts, and the result of the body when it has
/// ended.
#[derive(Debug, Default)]
pub struct BodyQueue {
    parts: Parts,
    /// The body so far, if the reader takes it as a whole. Then there are no parts.
    whole: Option<Box<Joined>>,
    /// The number of bytes in `parts`.
    pub(crate) bytes: usize,
    /// The number of bytes that the queue costs: `bytes`, [`PART_BYTES`] for each part, and the trailers.
    pub(crate) held: HeldBytes,
    end: Option<Result<(), BodyError>>,
    trailers: Vec<(HeaderName, HeaderValue)>,
    reader: Option<Waker>,
    /// Wakes the connection when the reader takes a part while `paused` is set, and when the reader drops the body.
    connection: Option<Waker>,
    /// True if the connection must be woken when the reader takes a part, for example because the queue was full.
    pub(crate) paused: bool,
    /// True if no more bytes are wanted before the reader asks for the body, because it may want the body as a whole.
    awaits_reader: bool,
    /// True if the queue counts as full until the reader has used the next part.
    awaits_use: bool,
    /// True if the body is a response's. (If one of a request counted as full after each part, its rate could not be judged.)
    pub(crate) is_of_response: bool,
    /// True if the reader has dropped the body.
    pub(crate) abandoned: bool,
}

impl BodyQueue {
    /// Creates an empty queue. `connection` wakes the task that fills it.
    pub fn new(connection: Waker) -> BodyQueue {
        BodyQueue { connection: Some(connection), ..BodyQueue::default() }
    }

    /// Polls for room for another part. Returns false if the reader has dropped the body. This serves a task that fills
    /// the queue in place of a connection.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.abandoned {
            return Poll::Ready(false);
        }
        if !self.connection.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.connection = Some(cx.waker().clone());
        }
        self.paused = self.is_full(most_incoming());
        if self.paused { Poll::Pending } else { Poll::Ready(true) }
    }

    /// Returns the number of bytes that wait for the reader.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the reader has dropped the body.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Adds bytes, and wakes the reader, unless it waits for more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.whole {
            None => {
                self.bytes += bytes.len();
                let grown = self.parts.push(bytes);
                self.held += grown;
            }
            Some(whole) => {
                self.held -= cost(&whole.bytes, whole.resident);
                whole.bytes.extend_from_slice(bytes);
                self.held += cost(&whole.bytes, whole.resident);
                if whole.bytes.len() <= whole.limit {
                    return;
                }
            }
        }
        self.wake();
    }

    /// Counts as full until the reader asks for the body, so that it can be lent from its beginning if it is taken as a
    /// whole. If `uses_first` is true, counts as full until the reader asks again after the first part.
    pub(crate) fn await_reader(&mut self, uses_first: bool) {
        (self.awaits_reader, self.awaits_use) = (true, uses_first);
    }

    /// Records that the reader asks for the body.
    fn ask(&mut self) {
        if std::mem::take(&mut self.awaits_reader) && self.paused {
            self.connection.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Joins the bytes from now on, because the reader takes the body as a whole. Wakes the connection if it waits for the
    /// reader to take a part.
    fn join(&mut self, limit: usize) {
        if self.whole.is_some() {
            return;
        }
        let mut bytes = self.parts.pop().map_or_else(Vec::new, Vec::from);
        while let Some(part) = self.parts.pop() {
            bytes.extend_from_slice(&part);
        }
        self.bytes = 0;
        self.held.set(self.trailers_held() + cost(&bytes, 0));
        self.whole = Some(Box::new(Joined { bytes, limit, lent: 0, resident: 0 }));
        if self.paused {
            self.connection.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Lends the buffer of a body that the reader takes as a whole; see [`Incoming::lend`](crate::exchange::Incoming).
    pub(crate) fn lend(&mut self, left: u64, is_paused: bool) -> Option<(Vec<u8>, usize)> {
        let whole = self.whole.as_mut()?;
        let before = cost(&whole.bytes, whole.resident);
        let (buffer, room) = lend(&mut whole.bytes, left, is_paused, &mut whole.resident)?;
        whole.lent = (buffer.len() + room).max(whole.resident);
        self.held.set(self.held.get() - before + whole.lent);
        Some((buffer, room))
    }

    /// Returns true if a buffer is lent and the reader still waits for the body.
    pub(crate) fn is_lent(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.lent > 0)
    }

    /// Takes back a lent buffer.
    pub(crate) fn take_back(&mut self, buffer: Vec<u8>) {
        let Some(whole) = &mut self.whole else { return };
        self.held.set(self.held.get() - std::mem::take(&mut whole.lent) + cost(&buffer, whole.resident));
        whole.bytes = buffer;
        if whole.bytes.len() > whole.limit {
            self.wake();
        }
    }

    /// Returns true if at least `most` bytes wait for the reader, or more than it accepts, or if the body waits for its reader
    /// to ask for it.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        match &self.whole {
            None => {
                let is_awaited = self.awaits_reader || (self.awaits_use && self.bytes > 0);
                self.held.get() >= most || (is_awaited && !self.abandoned)
            }
            Some(whole) => whole.bytes.len() > whole.limit,
        }
    }

    /// Returns the number of bytes that the peer may not send again. A body that is taken as a whole has none, unless it has
    /// more bytes than its reader accepts.
    pub(crate) fn untaken(&self) -> usize {
        let is_over = |whole: &Joined| if whole.bytes.len() > whole.limit { whole.bytes.len() } else { 0 };
        self.whole.as_deref().map_or(self.bytes, is_over)
    }

    fn trailers_held(&self) -> usize {
        self.trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
    }

    /// Ends the body, complete or with an error. Later calls have no effect.
    pub fn finish(&mut self, end: Result<(), BodyError>, trailers: Vec<(HeaderName, HeaderValue)>) {
        if self.end.is_none() {
            self.end = Some(end);
            self.trailers = trailers;
            let held = self.trailers_held();
            self.held += held;
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
    /// What the transform has made so far, if the body is taken as a whole.
    #[expect(clippy::box_collection, reason = "few bodies have one")]
    transformed: Option<Box<Vec<u8>>>,
}

impl Body {
    /// Creates a body that reads its parts from a queue.
    pub fn new(incoming: Rc<RefCell<BodyQueue>>) -> Body {
        Body { incoming, transforming: None, transformed: None }
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
        poll_fn(|cx| self.poll_whole(limit, cx)).await.map(Vec::from)
    }

    /// Polls for the whole body, if it has at most `limit` bytes. After the first call, the body can only be taken as a
    /// whole, and the peer is not slowed down before the limit.
    ///
    /// # Errors
    /// As [`collect`](Self::collect).
    pub fn poll_whole(&mut self, limit: usize, cx: &mut Context<'_>) -> Poll<Result<Whole, BodyError>> {
        if self.transforming.is_some() || self.transformed.is_some() {
            return self.poll_whole_transformed(limit, cx);
        }
        let mut incoming = self.incoming.borrow_mut();
        let incoming = &mut *incoming;
        incoming.ask();
        if incoming.whole.is_none()
            && incoming.end == Some(Ok(()))
            && let Some(only) = incoming.parts.pop_only()
        {
            let held = incoming.trailers_held();
            incoming.bytes = 0;
            incoming.held.set(held);
            return Poll::Ready(if only.len() > limit { Err(BodyError::TooLarge) } else { Ok(Whole::Bytes(only)) });
        }
        incoming.join(limit);
        let Some(whole) = &mut incoming.whole else { return Poll::Pending };
        if whole.bytes.len() > limit {
            return Poll::Ready(Err(BodyError::TooLarge));
        }
        match incoming.end {
            Some(Ok(())) => {
                let bytes = std::mem::take(&mut whole.bytes);
                let held = incoming.trailers_held();
                incoming.held.set(held);
                Poll::Ready(Ok(Whole::Buffer(bytes)))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => {
                incoming.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_whole_transformed(&mut self, limit: usize, cx: &mut Context<'_>) -> Poll<Result<Whole, BodyError>> {
        loop {
            let part = match self.poll_part(cx) {
                Poll::Ready(part) => part.transpose()?,
                Poll::Pending => return Poll::Pending,
            };
            let whole = self.transformed.get_or_insert_default();
            let Some(part) = part else { return Poll::Ready(Ok(Whole::Buffer(std::mem::take(whole)))) };
            if whole.len() + part.len() > limit {
                return Poll::Ready(Err(BodyError::TooLarge));
            }
            whole.extend_from_slice(&part);
        }
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

/// A body that was received as a whole.
pub enum Whole {
    /// Bytes that others may share.
    Bytes(Bytes),
    /// A buffer of its own.
    Buffer(Vec<u8>),
}

impl Whole {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Whole::Bytes(bytes) => bytes.len(),
            Whole::Buffer(buffer) => buffer.len(),
        }
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Whole> for Bytes {
    fn from(whole: Whole) -> Bytes {
        match whole {
            Whole::Bytes(bytes) => bytes,
            Whole::Buffer(buffer) => memory::share(buffer),
        }
    }
}

impl From<Whole> for Vec<u8> {
    fn from(whole: Whole) -> Vec<u8> {
        match whole {
            Whole::Bytes(bytes) => bytes.into(),
            Whole::Buffer(buffer) => buffer,
        }
    }
}

/// Polls for the next received part, before any transform.
fn poll_received(incoming: &RefCell<BodyQueue>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
    let mut incoming = incoming.borrow_mut();
    incoming.ask();
    if let Some(part) = incoming.parts.pop() {
        incoming.bytes -= part.len();
        incoming.held -= part.len() + PART_BYTES;
        // While much waits on this thread, the next part is received when the reader has used this one.
        incoming.awaits_reader = std::mem::take(&mut incoming.awaits_use) || (incoming.is_of_response && is_tight());
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
        (incoming.parts, incoming.whole) = (Parts::default(), None);
        incoming.bytes = 0;
        incoming.held.set(0);
        if let Some(connection) = &incoming.connection {
            connection.wake_by_ref();
        }
    }
}
