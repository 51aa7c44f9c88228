//! Raw bytes for handlers that speak another protocol on an HTTP/1 connection or on a stream of HTTP/2.

mod stream;
#[cfg(feature = "tokio")]
mod tokio;
mod waiting;

pub use self::stream::{Broken, RawReader, RawStream, RawWriter};

use self::waiting::Waiting;
use crate::body::is_tight;
use crate::runtime::deadline::NEVER;
use bytes::Bytes;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

/// The task of a tunnel.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The function that runs another protocol once a handler has accepted it, for
/// [`Content::Switch`](crate::message::response::Content::Switch).
pub struct Switch {
    pub(crate) start: Box<dyn FnOnce(RawStream) -> Task>,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

impl Switch {
    /// Creates a switch to another protocol. When the response is sent, the engine calls `start` with the raw stream,
    /// and the worker runs the returned future.
    pub fn new<F, Fut>(start: F) -> Switch
    where
        F: FnOnce(RawStream) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Switch { start: Box::new(move |stream| Box::pin(start(stream))) }
    }
}

/// What makes the connection of a raw stream one of another protocol, once its task no longer needs the bytes.
pub(crate) trait Takeover: Any + fmt::Debug {
    /// Gives up, because the connection has ended before.
    fn lose(&self);
}

/// The number of waiting bytes in one direction of a tunnel at which the sender must wait until the receiver takes
/// some.
pub(crate) const RAW_BYTES: usize = 64 * 1024;

/// The same number of written bytes while more than [`HELD_BYTES`] wait on this thread. Peers that do not read can make
/// many tunnels wait.
const RAW_BYTES_TIGHT: usize = 4 * 1024;

/// The part that is left of a stream's number then, if that is less. A connection may have a hundred streams.
const TIGHT_PART: usize = 4;

/// The same number of the written bytes of all streams of a connection, of which each stream has its part.
const NEIGHBOURS_BYTES: usize = 1024 * 1024;

/// A change of [`RawReader::keep`] by fewer bytes is counted with the connection's next event.
const NOTABLE_BYTES: u32 = 4096;

/// The number of turns after which the kernel has the bytes that were copied into the arena of a turn, unless the
/// driver has reported `Blocked`. It is two, because operations that are queued while the driver reports completions
/// start in its next turn.
const TURNS_TO_KERNEL: u32 = 2;

/// The reason why the bytes of another protocol end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The peer has ended its direction. It can still receive the bytes that are written.
    Peer,
    /// The server is stopping. The task may write a last message and wait for the peer's answer until
    /// [`Timeouts::shutdown`](crate::Timeouts::shutdown) has passed.
    Draining,
    /// No byte has passed in either direction for [`Timeouts::tunnel`](crate::Timeouts::tunnel). The task may write a
    /// last message within one second; then the connection, or the HTTP/2 stream, ends.
    Idle,
    /// The connection is broken. Bytes that were not sent are lost.
    Broken,
}

/// The state that a connection and its raw stream share. It is small while the tunnel is idle.
pub(crate) struct Raw {
    /// The protocol's task; `None` before the handler accepts a CONNECT, while the task is polled, after it has finished or
    /// panicked, and if we have opened the connection.
    pub(crate) task: Option<Task>,
    /// The waiting bytes; `None` if there are none.
    waiting: Option<Box<Waiting>>,
    /// The number of bytes that the task has taken and keeps, and of those that it keeps to send them; see
    /// [`RawReader::keep`] and [`RawWriter::keep`].
    kept: u32,
    kept_to_send: u32,
    /// The number of written bytes at which the task must wait.
    most_written: u32,
    /// The number of bytes copied into the driver's arena in the turn `copied_in`.
    copied: u32,
    copied_in: u32,
    /// The tick at which the reader is woken; see [`RawReader::wake_at`].
    pub(crate) alarm: u32,
    /// The tick of the HTTP/1 connection's own deadline. It is kept here, because an alarm may be earlier.
    pub(crate) due: u32,
    /// The reason why no more bytes will be received, if there is one.
    end: Option<Ended>,
    /// True if the task was woken to end because no byte has passed for too long. It is a field of its own because
    /// `end` may hold an earlier reason.
    told_idle: bool,
    drain: Drain,
    pub(crate) paused: bool,
    flush: Flush,
    reader_gone: bool,
    writer_gone: bool,
    /// See [`RawWriter::cut_when_dropped`] and [`RawWriter::cut_with_peer`].
    when_dropped: WhenDropped,
    /// The events for which the connection's task waits.
    waits: [bool; EVENTS],
    /// The wakers of other tasks, which wait for events. Usually a tunnel's task is a part of the connection's task.
    others: Option<Box<[Option<Waker>; EVENTS]>>,
    /// The waker of the connection's task.
    connection: Option<Waker>,
    /// True while an HTTP/1 connection polls the task. What the task does then needs no wake, because the connection
    /// looks for it after the poll.
    pub(crate) is_polled: bool,
}

/// Whether the server is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    None,
    /// It is, and the reader does not know yet.
    Begun,
    /// A read has returned `None` once for that. Later ones may return more bytes.
    Told,
}

/// Whether written bytes wait. Over HTTP/1, they wait until the kernel has them; over HTTP/2, until they are in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// None wait.
    Done,
    Waits,
    /// Some wait, and a task waits until none do.
    Wanted,
}

/// What happens to the connection when the task has dropped both halves of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenDropped {
    /// It ends behind the written bytes.
    End,
    /// It is cut when the written bytes are sent.
    Cut,
    /// It ends behind the written bytes. A peer that has ended its direction must take them soon.
    CutWithPeer,
}

/// An event for which a task can wait.
#[derive(Clone, Copy)]
enum Event {
    /// Received bytes, or their end.
    Read,
    /// Room for written bytes, or that they are sent.
    Write,
    /// Room for written bytes, for a second task besides the one that writes.
    Room,
}

const EVENTS: usize = Event::Room as usize + 1;

/// Creates the state of a tunnel that no connection moves.
impl Default for Raw {
    fn default() -> Raw {
        Raw {
            task: None,
            waiting: None,
            kept: 0,
            kept_to_send: 0,
            most_written: RAW_BYTES as u32,
            copied: 0,
            copied_in: 0,
            alarm: NEVER,
            due: NEVER,
            end: None,
            told_idle: false,
            drain: Drain::None,
            paused: false,
            flush: Flush::Done,
            reader_gone: false,
            writer_gone: false,
            when_dropped: WhenDropped::End,
            waits: [false; EVENTS],
            others: None,
            connection: None,
            is_polled: false,
        }
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Raw { waiting, end, .. } = self;
        f.debug_struct("Raw").field("waiting", waiting).field("end", end).finish_non_exhaustive()
    }
}

impl Raw {
    /// Creates the state of a new tunnel. `connection` wakes the task that moves its bytes.
    pub(crate) fn new(connection: Waker) -> Raw {
        Raw { connection: Some(connection), ..Raw::default() }
    }

    /// Creates the state of a tunnel on a connection that has so many streams besides.
    pub(crate) fn beside(neighbours: u32, connection: Waker) -> Raw {
        let part = NEIGHBOURS_BYTES / (neighbours as usize + 1);
        Raw { most_written: part.min(RAW_BYTES) as u32, ..Raw::new(connection) }
    }

    /// Keeps received bytes for the reader, or drops them if the reader is gone. The caller must then poll the tunnel's
    /// task. Wakes the reader if it is part of another task.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.reader_gone {
            return;
        }
        let waiting = self.waiting();
        waiting.bytes += bytes.len();
        waiting.held += waiting.received.push(bytes);
        self.waits[Event::Read as usize] = false;
        self.wake_other(Event::Read);
    }

    fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_with(Waiting::boxed)
    }

    /// Frees the memory for waiting bytes if there are none.
    fn free(&mut self) {
        if let Some(waiting) = self
            .waiting
            .take_if(|waiting| waiting.received.is_empty() && !waiting.has_outgoing() && waiting.setup.is_none())
        {
            waiting.recycle();
        }
    }

    /// Returns the number of bytes that wait for the reader, with the cost of holding them.
    pub(crate) fn held(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.held)
    }

    /// Returns the number of bytes that wait for the reader.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.bytes)
    }

    /// Sets a number of bytes that the task keeps.
    fn set_kept(&mut self, place: fn(&mut Raw) -> &mut u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = std::mem::replace(place(self), bytes);
        // A task that is not a part of the connection must let it count.
        if before.abs_diff(bytes) >= NOTABLE_BYTES {
            self.wake_connection();
        }
    }

    /// Returns the number of bytes that the task keeps.
    pub(crate) fn kept(&self) -> usize {
        self.kept as usize + self.kept_to_send as usize
    }

    /// Returns the number of bytes that wait for the peer, with the cost of holding them.
    pub(crate) fn outgoing_held(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.outgoing_held())
    }

    /// Returns true if bytes wait for the peer.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.has_outgoing())
    }

    /// Records that a task waits for an event.
    fn wait(&mut self, event: Event, cx: &Context<'_>) {
        let is_own = self.connection.as_ref().is_some_and(|connection| connection.will_wake(cx.waker()));
        self.waits[event as usize] = is_own;
        if !is_own {
            self.others.get_or_insert_default()[event as usize] = Some(cx.waker().clone());
        } else if let Some(others) = &mut self.others {
            others[event as usize] = None;
        }
    }

    /// Wakes the task that waits for an event.
    fn wake_for(&mut self, event: Event) {
        if std::mem::take(&mut self.waits[event as usize]) {
            self.connection.iter().for_each(Waker::wake_by_ref);
        }
        self.wake_other(event);
    }

    fn wake_other(&mut self, event: Event) {
        let other = self.others.as_mut().and_then(|others| others[event as usize].take());
        other.into_iter().for_each(Waker::wake);
    }

    /// Ends the received bytes and wakes the task. The first reason is kept, but [`Ended::Broken`] replaces any other.
    pub(crate) fn end(&mut self, why: Ended) {
        if self.end.is_none() || why == Ended::Broken {
            self.end = Some(why);
        }
        if why == Ended::Broken
            && let Some(setup) = self.waiting.as_mut().and_then(|waiting| waiting.setup.take())
        {
            setup.lose();
        }
        self.wake();
    }

    /// Signals the task that the server is stopping.
    pub(crate) fn drain(&mut self) {
        if self.drain == Drain::None {
            self.drain = Drain::Begun;
        }
        self.wake();
    }

    fn wake(&mut self) {
        self.wake_for(Event::Read);
        self.wake_writer();
    }

    /// Wakes the tasks that wait for room, or until the written bytes are sent.
    pub(crate) fn wake_writer(&mut self) {
        self.wake_for(Event::Write);
        self.wake_for(Event::Room);
    }

    /// Records that no written bytes wait, and wakes the task that waits for that.
    pub(crate) fn mark_flushed(&mut self) {
        if std::mem::replace(&mut self.flush, Flush::Done) != Flush::Done {
            self.wake_writer();
        }
    }

    /// Returns true if no written bytes wait.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flush == Flush::Done
    }

    /// Returns true if a task waits until no written bytes wait.
    pub(crate) fn wants_flush(&self) -> bool {
        self.flush == Flush::Wanted
    }

    /// Counts bytes that were copied into the arena of a turn. Returns the number of bytes copied in that turn so far.
    pub(crate) fn count_copied(&mut self, bytes: usize, turn: u32) -> usize {
        if self.copied_in != turn {
            (self.copied_in, self.copied) = (turn, 0);
        }
        self.copied = self.copied.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.copied as usize
    }

    /// Returns true if the driver may not have given the last copied bytes to the kernel yet. The driver reports only
    /// bytes that it could not send, so after [`TURNS_TO_KERNEL`] turns the bytes count as sent.
    pub(crate) fn is_in_arena(&self, turn: u32) -> bool {
        self.copied > 0 && turn.wrapping_sub(self.copied_in) < TURNS_TO_KERNEL
    }

    /// Signals the task that no byte has passed for too long. Returns false if it was signaled before.
    pub(crate) fn tell_idle(&mut self) -> bool {
        self.end(Ended::Idle);
        !std::mem::replace(&mut self.told_idle, true)
    }

    /// Wakes the reader if its alarm is due.
    pub(crate) fn ring(&mut self, now: u32) {
        if self.alarm <= now {
            self.alarm = NEVER;
            self.wake_for(Event::Read);
        }
    }

    /// Records that no connection moves the bytes any more, because both directions have ended. Wakes the reader, which has
    /// lost its alarm. A task that was a part of the connection must be polled.
    pub(crate) fn detach(&mut self) {
        self.alarm = NEVER;
        self.wake_for(Event::Read);
        self.connection = None;
    }

    /// Returns true if the task was signaled that no byte has passed for too long.
    pub(crate) fn is_idle(&self) -> bool {
        self.told_idle
    }

    fn is_broken(&self) -> bool {
        self.end == Some(Ended::Broken)
    }

    /// Returns true if the task may write more.
    fn has_room(&self) -> bool {
        let most = self.most_written as usize;
        let most = if is_tight() { RAW_BYTES_TIGHT.min(most / TIGHT_PART) } else { most };
        self.outgoing_held() < most
    }

    /// Takes the first bytes that were written.
    pub(crate) fn take_written(&mut self) -> Option<Bytes> {
        let waiting = self.waiting.as_mut()?;
        let bytes = waiting.take_written()?;
        self.free();
        Some(bytes)
    }

    /// Takes what the connection needs to become one to a server of HTTP, and the bytes that were received and not read.
    pub(crate) fn take_setup(&mut self) -> Option<(Box<dyn Takeover>, Vec<u8>)> {
        let setup = self.waiting.as_mut()?.setup.take()?;
        Some((setup, self.take_received()))
    }

    /// Returns true if the connection shall become one to a server of HTTP.
    pub(crate) fn has_setup(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.setup.is_some())
    }

    /// Takes the bytes that wait for the reader.
    fn take_received(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        let Some(waiting) = &mut self.waiting else { return received };
        while let Some(part) = waiting.received.pop() {
            received.extend_from_slice(&part);
        }
        (waiting.bytes, waiting.held) = (0, 0);
        received
    }

    /// Returns true if no more bytes will be written.
    pub(crate) fn is_written(&self) -> bool {
        self.writer_gone
    }

    /// Returns true if the reader and the writer are gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.reader_gone && self.writer_gone
    }

    /// Returns true if the connection must be cut: the reader and the writer are gone, their bytes are incomplete, and those
    /// that were written are sent.
    pub(crate) fn is_cut(&self, turn: u32) -> bool {
        self.when_dropped == WhenDropped::Cut && self.is_finished() && !self.has_outgoing() && !self.is_in_arena(turn)
    }

    /// Returns true if a peer that has ended its direction has probably left, so that the written bytes are of no use.
    pub(crate) fn is_cut_with_peer(&self) -> bool {
        self.when_dropped == WhenDropped::CutWithPeer
    }

    fn ended(&self) -> Option<Ended> {
        self.end.or((self.drain != Drain::None).then_some(Ended::Draining))
    }

    fn wake_connection(&self) {
        if !self.is_polled {
            self.connection.iter().for_each(Waker::wake_by_ref);
        }
    }
}
