//! The raw stream of a task, and its halves.

use super::{Drain, Ended, Event, Flush, Raw, Takeover, WhenDropped};
use crate::body::{PART_BYTES, Parts};
use crate::runtime::context;
use crate::runtime::deadline;
use bytes::{Bytes, BytesMut};
use highwire_io::Instant;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The connection is broken. Bytes that were not sent are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is broken")
    }
}

impl std::error::Error for Broken {}

impl From<Broken> for std::io::Error {
    fn from(broken: Broken) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::BrokenPipe, broken)
    }
}

/// The raw bytes of a connection, or of a stream of HTTP/2, that speaks another protocol. When it is dropped, our
/// direction ends after all written bytes are sent, and bytes that the peer sends later are dropped.
#[derive(Debug)]
pub struct RawStream {
    pub(super) reader: RawReader,
    pub(super) writer: RawWriter,
}

/// The reading half of a [`RawStream`]. When it is dropped, bytes that the peer sends later are dropped.
#[derive(Debug)]
pub struct RawReader {
    raw: Rc<RefCell<Raw>>,
}

/// The writing half of a [`RawStream`]. When it is dropped, our direction ends after all written bytes are sent, and
/// the other half can still read. Over HTTP/1 with TLS, our end is sent only when the other half is dropped too, or the
/// peer has ended its direction, because TLS 1.2 ends both directions at once.
#[derive(Debug)]
pub struct RawWriter {
    raw: Rc<RefCell<Raw>>,
}

impl RawStream {
    /// See [`RawWriter::cut_when_dropped`].
    pub fn cut_when_dropped(&mut self, cuts: bool) {
        self.writer.cut_when_dropped(cuts);
    }

    pub(crate) fn new(raw: Rc<RefCell<Raw>>) -> RawStream {
        RawStream { reader: RawReader { raw: raw.clone() }, writer: RawWriter { raw } }
    }

    /// Lets the connection become one to a server of HTTP.
    pub(crate) fn into_http(self, setup: Box<dyn Takeover>) {
        let raw = self.reader.raw.clone();
        let received = raw.borrow_mut().take_received();
        drop(self);
        let mut raw = raw.borrow_mut();
        if raw.is_broken() {
            return setup.lose();
        }
        (raw.reader_gone, raw.writer_gone) = (false, false);
        if !received.is_empty() {
            raw.push(&received);
        }
        raw.waiting().setup = Some(setup);
        raw.wake_connection();
    }

    /// Splits the stream into its halves, for two tasks.
    pub fn split(self) -> (RawReader, RawWriter) {
        (self.reader, self.writer)
    }

    /// See [`RawReader::read`].
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
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
    /// Returns an error if the connection is broken.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), Broken> {
        self.writer.write(bytes).await
    }

    /// See [`RawWriter::flush`].
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub async fn flush(&mut self) -> Result<(), Broken> {
        self.writer.flush().await
    }
}

impl RawReader {
    /// Waits for the next bytes and returns them. Returns `None` when they end; [`ended`](Self::ended) then gives the
    /// reason. When the server stops, `None` with [`Ended::Draining`] is returned once, and later calls may return more
    /// bytes.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub async fn read(&mut self) -> Result<Option<Bytes>, Broken> {
        poll_fn(|cx| self.poll_read(cx)).await
    }

    /// Polls for the next bytes, as [`read`](Self::read) does.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        self.poll_read_mut(cx).map_ok(|bytes| bytes.map(BytesMut::freeze))
    }

    /// Polls for the next bytes as [`poll_read`](Self::poll_read) does, and returns them in memory that can be changed.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn poll_read_mut(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<BytesMut>, Broken>> {
        self.poll_received(cx, |received| {
            let bytes = received.pop_mut()?;
            let counts = (bytes.len(), bytes.len() + PART_BYTES);
            Some((bytes, counts))
        })
    }

    /// Polls for the next bytes, and copies as many as fit `into`. Returns their number, which is 0 when the peer has ended its
    /// direction. It goes on waiting when the server stops.
    ///
    /// # Errors
    /// Returns an error if the connection is broken. Returns [`TimedOut`](std::io::ErrorKind::TimedOut) if the server ends it because
    /// it was idle: the peer may have had more to send.
    #[cfg(feature = "tokio")]
    pub(super) fn poll_read_into(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<std::io::Result<usize>> {
        loop {
            let copied = self.poll_received(cx, |received| {
                let counts = received.copy_to(into)?;
                Some((counts.0, counts))
            });
            if let Some(count) = std::task::ready!(copied)? {
                return Poll::Ready(Ok(count));
            }
            return match self.raw.borrow().end {
                // `poll_received` has reported that the server stops, which it does once.
                None => continue,
                Some(Ended::Peer) => Poll::Ready(Ok(0)),
                Some(_) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            };
        }
    }

    /// Polls for received bytes. `take` takes some, and returns them with their number and the cost of holding them.
    #[inline]
    fn poll_received<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Parts) -> Option<(T, (usize, usize))>,
    ) -> Poll<Result<Option<T>, Broken>> {
        let mut raw = self.raw.borrow_mut();
        if let Some(waiting) = &mut raw.waiting
            && let Some((taken, (count, cost))) = take(&mut waiting.received)
        {
            waiting.held -= cost;
            waiting.bytes -= count;
            raw.free();
            if raw.paused {
                raw.wake_connection();
            }
            return Poll::Ready(Ok(Some(taken)));
        }
        match raw.end {
            Some(Ended::Broken) => return Poll::Ready(Err(Broken)),
            Some(_) => return Poll::Ready(Ok(None)),
            None => {}
        }
        if raw.drain == Drain::Begun {
            raw.drain = Drain::Told;
            return Poll::Ready(Ok(None));
        }
        raw.wait(Event::Read, cx);
        Poll::Pending
    }

    /// Lets [`RawWriter::wake_reader`] wake this task, without reading.
    pub fn watch(&mut self, cx: &mut Context<'_>) {
        self.raw.borrow_mut().wait(Event::Read, cx);
    }

    /// Waits as [`watch`](Self::watch) does, and at most until `moment`, which replaces the one of an earlier call. The wait
    /// ends up to a tenth of a second late. Unlike [`sleep`](crate::runtime::time::sleep), it takes no memory.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub fn wake_at(&mut self, moment: Instant, cx: &mut Context<'_>) {
        let mut raw = self.raw.borrow_mut();
        raw.wait(Event::Read, cx);
        if raw.connection.is_none() || raw.is_broken() {
            context::wake_at(moment, cx.waker());
            return;
        }
        // At the beginning of the next tick, the moment has passed.
        let alarm = deadline::tick(moment).saturating_add(1);
        // The connection learns of a later alarm when the earlier one is due.
        if std::mem::replace(&mut raw.alarm, alarm) > alarm {
            raw.wake_connection();
        }
    }

    /// Sets the number of received bytes that the task keeps, such as those of an incomplete message. The connection is
    /// charged for them, and is cut if the memory budget has no room.
    pub fn keep(&mut self, bytes: usize) {
        self.raw.borrow_mut().set_kept(|raw| &mut raw.kept, bytes);
    }

    /// Returns the reason why the received bytes have ended or will end soon, or `None` if there is no such reason.
    /// Bytes that arrived earlier may still wait for [`read`](Self::read).
    pub fn ended(&self) -> Option<Ended> {
        self.raw.borrow().ended()
    }
}

impl RawWriter {
    /// Sets the number of bytes that the task keeps to send them, such as those of a message that it encodes, as
    /// [`RawReader::keep`] does for received ones.
    pub fn keep(&mut self, bytes: usize) {
        self.raw.borrow_mut().set_kept(|raw| &mut raw.kept_to_send, bytes);
    }

    /// Sets whether the connection is cut, not ended, when both halves are dropped: the peer then sees a TCP reset, or over
    /// HTTP/2 a reset of the stream with CANCEL (RFC 8441 section 5), so that it knows that the bytes are incomplete. What the
    /// kernel holds for a peer that is slow to take it is then lost. Over HTTP/1, if bytes were written just before, the
    /// connection ends as without this. A connection that was cut needs no port of this machine any more, while one that was
    /// ended needs it for another minute.
    pub fn cut_when_dropped(&mut self, cuts: bool) {
        self.raw.borrow_mut().when_dropped = if cuts { WhenDropped::Cut } else { WhenDropped::End };
    }

    /// Lets an HTTP/1 connection be cut if its peer has ended its direction and then takes nothing of what was written for
    /// [`Timeouts::linger`](crate::Timeouts::linger), or a second if that is less. It is for a protocol in which such a peer has
    /// probably left. Otherwise the bytes would wait for it until [`Timeouts::write`](crate::Timeouts::write) has passed. The
    /// end counts when it has arrived, although bytes before it may wait to be read. Both halves end normally if they are
    /// dropped. An HTTP/2 stream is ended as without this.
    pub fn cut_with_peer(&mut self) {
        self.raw.borrow_mut().when_dropped = WhenDropped::CutWithPeer;
    }

    /// Queues bytes to be sent. Waits while 64 KiB or more wait for the peer (less on an HTTP/2 connection with many streams).
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), Broken> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.queue(bytes.into())
    }

    /// Polls until fewer than 64 KiB (4 KiB if much waits for other peers) wait for the peer.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut raw = self.raw.borrow_mut();
        if raw.is_broken() {
            return Poll::Ready(Err(Broken));
        }
        if !raw.has_room() {
            raw.wait(Event::Write, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Polls until fewer than 64 KiB (4 KiB if much waits for other peers) wait for the peer, or the connection is broken. A
    /// task other than the one that writes may wait here at the same time, so that it can answer the peer.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut raw = self.raw.borrow_mut();
        if raw.has_room() || raw.is_broken() {
            return Poll::Ready(());
        }
        raw.wait(Event::Room, cx);
        Poll::Pending
    }

    /// Wakes the task that waits for received bytes.
    pub fn wake_reader(&mut self) {
        self.raw.borrow_mut().wake_for(Event::Read);
    }

    /// Returns true if [`poll_room`](Self::poll_room) would not wait.
    pub fn has_room(&self) -> bool {
        self.raw.borrow().has_room()
    }

    /// See [`RawReader::ended`].
    pub fn ended(&self) -> Option<Ended> {
        self.raw.borrow().ended()
    }

    /// Queues bytes to be sent, however many wait. The caller limits their number, such as by
    /// [`poll_ready`](Self::poll_ready).
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn queue(&mut self, bytes: Bytes) -> Result<(), Broken> {
        let mut raw = self.raw.borrow_mut();
        if raw.is_broken() {
            return Err(Broken);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if raw.flush == Flush::Done {
            raw.flush = Flush::Waits;
        }
        // The connection takes all waiting bytes at once, so only the first ones wake it.
        let is_first = !raw.has_outgoing();
        let waiting = raw.waiting();
        waiting.queue(bytes);
        if is_first {
            raw.wake_connection();
        }
        Ok(())
    }

    /// Waits until the kernel has all written bytes or, over HTTP/2, until they are in frames that the driver will
    /// send.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub async fn flush(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Polls until the written bytes are sent, as [`flush`](Self::flush) does.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut raw = self.raw.borrow_mut();
        if raw.is_broken() {
            return Poll::Ready(Err(Broken));
        }
        if raw.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        raw.wait(Event::Write, cx);
        // Wakes the connection only once. This task may run as part of the connection's task, which would otherwise
        // wake itself again and again.
        if std::mem::replace(&mut raw.flush, Flush::Wanted) != Flush::Wanted {
            raw.wake_connection();
        }
        Poll::Pending
    }
}

impl Drop for RawReader {
    fn drop(&mut self) {
        let mut raw = self.raw.borrow_mut();
        raw.reader_gone = true;
        if let Some(waiting) = &mut raw.waiting {
            (waiting.received, waiting.held, waiting.bytes) = (Parts::default(), 0, 0);
            raw.free();
        }
        raw.kept = 0;
        raw.wake_connection();
    }
}

impl RawWriter {
    /// Ends our direction behind the written bytes.
    pub(super) fn end(&mut self) {
        let mut raw = self.raw.borrow_mut();
        (raw.writer_gone, raw.kept_to_send) = (true, 0);
        raw.wake_connection();
    }

    /// Returns true if [`end`](Self::end) was called.
    #[cfg(feature = "tokio")]
    pub(super) fn has_ended(&self) -> bool {
        self.raw.borrow().writer_gone
    }
}

impl Drop for RawWriter {
    fn drop(&mut self) {
        self.end();
    }
}
