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

/// What a connection and its raw stream share.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    received: Parts,
    pub(crate) held: usize,
    /// Bytes in `received`; `held` has what holding them costs, too.
    pub(crate) bytes: usize,
    pub(crate) ended: bool,
    pub(crate) broken: bool,
    pub(crate) paused: bool,
    pub(crate) outgoing: VecDeque<Bytes>,
    pub(crate) outgoing_held: usize,
    /// Nothing that was written waits, in us or in the driver.
    pub(crate) flushed: bool,
    pub(crate) finished: bool,
    reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    connection: Option<Waker>,
}

impl Raw {
    /// An empty one; `connection` wakes the task that moves the bytes.
    pub(crate) fn new(connection: Waker) -> Raw {
        Raw { connection: Some(connection), flushed: true, ..Raw::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.held += self.received.push(bytes);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn end(&mut self, broken: bool) {
        self.ended = true;
        self.broken |= broken;
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
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

/// The raw bytes of a connection that speaks another protocol. Dropped, it closes the connection once all is sent.
#[derive(Debug)]
pub struct RawStream {
    pub(crate) raw: Rc<RefCell<Raw>>,
}

impl RawStream {
    /// The next bytes, or `None` when the peer has ended its direction.
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn read(&mut self) -> Result<Option<Bytes>, Broken> {
        poll_fn(|cx| {
            let mut raw = self.raw.borrow_mut();
            if let Some(bytes) = raw.received.pop() {
                raw.held -= bytes.len() + PART_BYTES;
                raw.bytes -= bytes.len();
                if raw.paused {
                    raw.connection.iter().for_each(Waker::wake_by_ref);
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            match (raw.broken, raw.ended) {
                (true, _) => Poll::Ready(Err(Broken)),
                (false, true) => Poll::Ready(Ok(None)),
                (false, false) => {
                    raw.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Sends bytes, as soon as less than 64 KiB are ahead of the peer.
    ///
    /// # Errors
    /// Where the connection broke.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), Broken> {
        let mut bytes = Some(bytes.into());
        poll_fn(|cx| {
            let mut raw = self.raw.borrow_mut();
            if raw.broken {
                return Poll::Ready(Err(Broken));
            }
            if raw.outgoing_held >= RAW_BYTES {
                raw.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let bytes = bytes.take().unwrap_or_default();
            raw.outgoing_held += bytes.len() + PART_BYTES;
            raw.flushed = false;
            raw.outgoing.push_back(bytes);
            raw.connection.iter().for_each(Waker::wake_by_ref);
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
            if raw.broken {
                return Poll::Ready(Err(Broken));
            }
            if raw.flushed {
                return Poll::Ready(Ok(()));
            }
            raw.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        let mut raw = self.raw.borrow_mut();
        raw.finished = true;
        raw.connection.iter().for_each(Waker::wake_by_ref);
    }
}
