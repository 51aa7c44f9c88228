//! A body that a task of the same worker writes.

use super::BodyError;
use bytes::Bytes;
use futures_core::Stream;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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
