//! Other protocols on the same connection, or on a stream of HTTP/2: a handler gets the raw bytes.

use crate::body::{PART_BYTES, Parts};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What a connection does once it has accepted another protocol: [`Content::Switch`](crate::response::Content::Switch).
pub struct Switch {
    pub(crate) start: Box<dyn FnOnce(RawStream) -> Task>,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

impl Switch {
    /// `start` owns the bytes once the response has been sent.
    pub fn new<F, Fut>(start: F) -> Switch
    where
        F: FnOnce(RawStream) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Switch { start: Box::new(move |stream| Box::pin(start(stream))) }
    }
}

/// Bytes that either direction may be ahead before the other side has to take some.
pub(crate) const RAW_BYTES: usize = 64 * 1024;

/// After so many turns the kernel has the bytes of an arena, unless the driver has reported `Blocked`: operations that are queued
/// while the driver reports completions start in its next turn.
const TURNS_TO_KERNEL: u32 = 2;

/// Why another protocol's bytes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The peer has ended its direction. What is written still reaches it.
    Peer,
    /// The server stops: there is time for a last word, and for the peer's answer to it, until
    /// [`Timeouts::shutdown`](crate::Timeouts::shutdown).
    Draining,
    /// No byte has passed in either direction for [`Timeouts::tunnel`](crate::Timeouts::tunnel). There is a second for a last word;
    /// then the connection, or the stream, ends.
    Idle,
    /// The connection is broken: what was not sent is lost.
    Broken,
}

/// What a connection and its raw stream share.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    received: Parts,
    pub(crate) held: usize,
    /// Bytes in `received`; `held` has what holding them costs, too.
    pub(crate) bytes: usize,
    /// Nothing more comes, and why.
    end: Option<Ended>,
    /// Nothing has passed for too long, and the task was woken to end. Kept apart from `end`, which may have another reason already.
    told_idle: bool,
    /// The server stops.
    drains: bool,
    /// The reader was told so, and may read on.
    told_of_drain: bool,
    pub(crate) paused: bool,
    pub(crate) outgoing: VecDeque<Bytes>,
    pub(crate) outgoing_held: usize,
    /// Nothing that was written waits, in us or in the driver.
    pub(crate) flushed: bool,
    /// Somebody waits for that.
    pub(crate) wants_flush: bool,
    /// Bytes that were copied into a turn's arena, and the number of that turn.
    copied: usize,
    copied_in: u32,
    reader_gone: bool,
    writer_gone: bool,
    reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    connection: Option<Waker>,
}

impl Raw {
    /// An empty one; `connection` wakes the task that moves the bytes.
    pub(crate) fn new(connection: Waker) -> Raw {
        Raw { connection: Some(connection), flushed: true, ..Raw::default() }
    }

    /// Keeps received bytes for the reader, or drops them if the reader is gone.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.reader_gone {
            return;
        }
        self.bytes += bytes.len();
        self.held += self.received.push(bytes);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Nothing more comes. The first word counts, but for a break, which comes behind any other.
    pub(crate) fn end(&mut self, why: Ended) {
        if self.end.is_none() || why == Ended::Broken {
            self.end = Some(why);
        }
        self.wake();
    }

    /// The server stops.
    pub(crate) fn drain(&mut self) {
        self.drains = true;
        self.wake();
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Everything that was written is with the kernel.
    pub(crate) fn mark_flushed(&mut self) {
        if !std::mem::replace(&mut self.flushed, true) {
            self.wants_flush = false;
            self.writer.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Counts bytes that were copied into the arena of a turn. Returns the count of that turn.
    pub(crate) fn count_copied(&mut self, bytes: usize, turn: u32) -> usize {
        if self.copied_in != turn {
            (self.copied_in, self.copied) = (turn, 0);
        }
        self.copied += bytes;
        self.copied
    }

    /// Returns true if the driver may not have given the last copied bytes to the kernel yet. It reports only bytes that it could
    /// not send, so they count as sent after [`TURNS_TO_KERNEL`].
    pub(crate) fn is_in_arena(&self, turn: u32) -> bool {
        self.copied > 0 && turn.wrapping_sub(self.copied_in) < TURNS_TO_KERNEL
    }

    /// Tells the task that nothing has passed for too long. Returns false if it was told before.
    pub(crate) fn tell_idle(&mut self) -> bool {
        self.end(Ended::Idle);
        !std::mem::replace(&mut self.told_idle, true)
    }

    /// Returns true if the task was told that nothing has passed for too long.
    pub(crate) fn is_idle(&self) -> bool {
        self.told_idle
    }

    fn is_broken(&self) -> bool {
        self.end == Some(Ended::Broken)
    }

    /// Returns true if nothing more will be written.
    pub(crate) fn is_written(&self) -> bool {
        self.writer_gone
    }

    /// Returns true if the reader and the writer are gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.reader_gone && self.writer_gone
    }

    fn ended(&self) -> Option<Ended> {
        self.end.or(self.drains.then_some(Ended::Draining))
    }

    fn wake_connection(&self) {
        self.connection.iter().for_each(Waker::wake_by_ref);
    }
}

/// The connection is broken: what was not sent is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is broken")
    }
}

impl std::error::Error for Broken {}

/// The raw bytes of a connection, or of a stream of HTTP/2, that speaks another protocol. Dropped, it ends our direction once all
/// is sent, and what the peer still sends is dropped.
#[derive(Debug)]
pub struct RawStream {
    reader: RawReader,
    writer: RawWriter,
}

/// The reading half of a [`RawStream`]. Dropped, it drops what the peer still sends.
#[derive(Debug)]
pub struct RawReader {
    raw: Rc<RefCell<Raw>>,
}

/// The writing half of a [`RawStream`]. Dropped, it ends our direction once all is sent; the other half reads on. Over HTTP/1 under
/// TLS the end is sent when the other half is gone as well, or the peer has ended: TLS 1.2 ends both directions at once.
#[derive(Debug)]
pub struct RawWriter {
    raw: Rc<RefCell<Raw>>,
}

impl RawStream {
    pub(crate) fn new(raw: Rc<RefCell<Raw>>) -> RawStream {
        RawStream { reader: RawReader { raw: raw.clone() }, writer: RawWriter { raw } }
    }

    /// Both halves, for two tasks.
    pub fn split(self) -> (RawReader, RawWriter) {
        (self.reader, self.writer)
    }

    /// See [`RawReader::read`].
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn read(&mut self) -> Result<Option<Bytes>, Broken> {
        self.reader.read().await
    }

    /// See [`RawReader::ended`].
    pub fn ended(&self) -> Option<Ended> {
        self.reader.ended()
    }

    /// See [`RawWriter::write`].
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), Broken> {
        self.writer.write(bytes).await
    }

    /// See [`RawWriter::flush`].
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn flush(&mut self) -> Result<(), Broken> {
        self.writer.flush().await
    }
}

impl RawReader {
    /// Waits for the next bytes and returns them. Returns `None` when they end; [`ended`](Self::ended) then gives the reason. When
    /// the server stops, `None` with [`Ended::Draining`] is returned once, and later calls may return more bytes.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn read(&mut self) -> Result<Option<Bytes>, Broken> {
        poll_fn(|cx| {
            let mut raw = self.raw.borrow_mut();
            if let Some(bytes) = raw.received.pop() {
                raw.held -= bytes.len() + PART_BYTES;
                raw.bytes -= bytes.len();
                if raw.paused {
                    raw.wake_connection();
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            match raw.end {
                Some(Ended::Broken) => return Poll::Ready(Err(Broken)),
                Some(_) => return Poll::Ready(Ok(None)),
                None => {}
            }
            if raw.drains && !std::mem::replace(&mut raw.told_of_drain, true) {
                return Poll::Ready(Ok(None));
            }
            raw.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Why nothing more comes, or will not for long; `None` as long as there is no end in sight. Bytes that came before may still
    /// be there to [`read`](Self::read).
    pub fn ended(&self) -> Option<Ended> {
        self.raw.borrow().ended()
    }
}

impl RawWriter {
    /// Sends bytes, as soon as less than 64 KiB are ahead of the peer.
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), Broken> {
        let mut bytes = Some(bytes.into());
        poll_fn(|cx| {
            let mut raw = self.raw.borrow_mut();
            if raw.is_broken() {
                return Poll::Ready(Err(Broken));
            }
            if raw.outgoing_held >= RAW_BYTES {
                raw.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let bytes = bytes.take().unwrap_or_default();
            if bytes.is_empty() {
                return Poll::Ready(Ok(()));
            }
            raw.outgoing_held += bytes.len() + PART_BYTES;
            raw.flushed = false;
            // The connection takes all waiting bytes at once, so only the first ones wake it.
            let is_first = raw.outgoing.is_empty();
            raw.outgoing.push_back(bytes);
            if is_first {
                raw.wake_connection();
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Waits until everything written is with the kernel.
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn flush(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| {
            let mut raw = self.raw.borrow_mut();
            if raw.is_broken() {
                return Poll::Ready(Err(Broken));
            }
            if raw.flushed {
                return Poll::Ready(Ok(()));
            }
            raw.writer = Some(cx.waker().clone());
            // Once: the connection's task may be the one that waits here.
            if !std::mem::replace(&mut raw.wants_flush, true) {
                raw.wake_connection();
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for RawReader {
    fn drop(&mut self) {
        let mut raw = self.raw.borrow_mut();
        raw.reader_gone = true;
        raw.received = Parts::default();
        (raw.held, raw.bytes) = (0, 0);
        raw.wake_connection();
    }
}

impl Drop for RawWriter {
    fn drop(&mut self) {
        let mut raw = self.raw.borrow_mut();
        raw.writer_gone = true;
        raw.wake_connection();
    }
}
