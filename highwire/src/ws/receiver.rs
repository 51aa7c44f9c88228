//! The receiving half of a WebSocket connection.

use super::large;
use super::message::{CloseFrame, Error, Failure, Message, Part, Utf8Bytes};
use super::socket::{Core, WebSocket, WebSocketSender};
use super::upgrade::Settings;
use crate::topics::{Pace, returned};
use bytes::{Buf, Bytes, BytesMut};
use highwire_engine::raw::{Ended, RawReader};
use highwire_engine::{FreeList, context, memory};
use highwire_io::Instant;
use highwire_proto::ws::state::State;
use highwire_proto::ws::{Event, Kind, code};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// A received message up to this length is copied out of the receive buffer, so that it does not keep a large buffer in
/// memory.
const COPIED_BYTES: usize = 4096;

/// The most messages that [`WebSocketReceiver::recv`] returns without giving other connections their turn.
const MESSAGES_A_TURN: u8 = 64;

/// The same number while messages of subscriptions wait because the connection has no room. It has room only after its
/// turn, when it has sent the written bytes. A handler that publishes to its own topic would otherwise fill its queue.
const MESSAGES_A_TURN_BEHIND: u8 = 4;

/// The most bytes of these messages. A small compressed message may be inflated to a long one, which takes time.
const BYTES_A_TURN: u32 = 256 * 1024;

/// The least number of bytes of an incomplete message in a [`MESSAGE_PERIOD`]: 512 a second.
const MESSAGE_PERIOD_BYTES: u64 = 512 * MESSAGE_PERIOD.as_secs();

/// The period in which the bytes of an incomplete message are counted.
const MESSAGE_PERIOD: Duration = Duration::from_secs(30);

/// The reasons why the server closes a WebSocket whose peer has not broken the protocol.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The peer takes messages of subscriptions too slowly.
    TooSlow,
    /// Messages of subscriptions were lost on their way to this process.
    Lost,
    /// The WebSockets of the connection hold too many bytes.
    TooMuch,
}

impl Cut {
    fn failure(self) -> Failure {
        match self {
            Cut::TooSlow => Failure { code: code::POLICY, text: "messages are read too slowly" },
            Cut::Lost => Failure { code: code::TRY_AGAIN, text: "messages were lost; connect again and resume" },
            Cut::TooMuch => Failure { code: code::TRY_AGAIN, text: "this connection's WebSockets hold too many bytes" },
        }
    }
}

/// The receiving half of a [`WebSocket`].
#[derive(Debug)]
pub struct WebSocketReceiver {
    /// Boxed, because the compiler keeps a moved argument of an async function twice in its future.
    receiving: Box<Receiving>,
}

/// The state of a receiving half.
#[derive(Debug)]
struct Receiving {
    reader: RawReader,
    /// It has the state that both halves use.
    sender: WebSocketSender,
    /// Bytes that were received and not returned; `None` if there are none.
    arriving: Option<Box<Arriving>>,
    /// The number of held bytes that the connection is charged for.
    kept: u32,
    /// The number of messages and of their bytes returned since the last wait.
    streak: u8,
    streak_bytes: u32,
    /// Slows the handler down if it publishes faster than messages are delivered.
    pace: Pace,
    /// True if no more messages will be returned.
    is_over: bool,
    /// The reason why the server has closed this WebSocket, until the handler gets it. Then the handler gets nothing
    /// more that the peer has sent (RFC 6455 section 7.1.7).
    cut: Option<Cut>,
    /// The time after which a silent peer gets a Ping frame, in milliseconds.
    ping_interval: Option<NonZeroU32>,
    /// The moment at which bytes arrived last.
    heard: Instant,
    /// True if a Ping frame was sent after that.
    pinged: bool,
}

/// Bytes that were received and not returned.
#[derive(Debug, Default)]
struct Arriving {
    /// Received bytes that are not parsed yet.
    window: BytesMut,
    /// The size of the buffer that `window` is a part of.
    window_held: usize,
    /// The parts of an incomplete message.
    message: Vec<u8>,
    /// The beginning of the current period of an incomplete message, and the number of bytes that have arrived in it.
    incomplete: Option<(Instant, u64)>,
}

thread_local! {
    static SPARE: FreeList<Arriving> = const { FreeList::new() };
}

/// Returns the place for received bytes. It takes only the field, so that others can be used at the same time.
fn place(arriving: &mut Option<Box<Arriving>>) -> &mut Arriving {
    arriving.get_or_insert_with(|| FreeList::take(&SPARE))
}

/// The length below which a message that a handler has is not charged.
const SHORT_BYTES: usize = 1024;

impl WebSocketReceiver {
    pub(super) fn new(
        reader: RawReader,
        core: Rc<RefCell<Core>>,
        settings: &Settings,
        window: BytesMut,
    ) -> WebSocketReceiver {
        let receiving = Receiving {
            reader,
            sender: WebSocketSender { core },
            arriving: (!window.is_empty()).then(|| {
                let window_held = window.capacity();
                Box::new(Arriving { window, window_held, ..Arriving::default() })
            }),
            kept: 0,
            streak: 0,
            streak_bytes: 0,
            pace: Pace::default(),
            is_over: false,
            cut: None,
            ping_interval: settings.ping_interval.map(|interval| {
                let most = u32::MAX / 2;
                NonZeroU32::new(interval.as_millis().clamp(1, most.into()) as u32).unwrap_or(NonZeroU32::MIN)
            }),
            heard: context::now(),
            pinged: false,
        };
        WebSocketReceiver { receiving: Box::new(receiving) }
    }

    /// Waits for the next message and returns it. Returns `None` after a Close frame, an error, or the end of the
    /// connection.
    pub fn recv(&mut self) -> impl Future<Output = Option<Result<Message, Error>>> {
        poll_fn(|cx| self.poll_recv(cx))
    }

    /// Polls for the next message, as [`recv`](Self::recv) does.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        self.receiving.poll_whole(cx)
    }

    /// Waits for the next part of a message, or for a control frame, and returns it, for messages that are too long to
    /// be held in memory. Their length is still limited by
    /// [`max_message_size`](super::WebSocketUpgrade::max_message_size). Returns `None` as [`recv`](Self::recv) does.
    pub fn recv_part(&mut self) -> impl Future<Output = Option<Result<Part, Error>>> {
        poll_fn(|cx| self.poll_part(cx))
    }

    /// Polls for the next part, as [`recv_part`](Self::recv_part) does.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Error>>> {
        let polled = self.receiving.poll_in_turn(cx);
        self.receiving.settle(0);
        polled
    }
}

impl WebSocketReceiver {
    /// Polls without receiving, for use while the peer does not read what was sent. Deadlines, subscriptions and the
    /// server's shutdown still have effect. Returns the error that ends the connection.
    pub fn poll_without_messages(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.receiving.poll_without_messages(cx)
    }
}

impl Receiving {
    /// See [`WebSocketReceiver::recv`].
    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        let polled = self.poll_message(cx);
        let returned = match &polled {
            Poll::Ready(Some(Ok(Message::Text(text)))) => text.len(),
            Poll::Ready(Some(Ok(Message::Binary(bytes)))) => bytes.len(),
            _ => 0,
        };
        self.settle(returned);
        // A message that exceeds what the connection may hold is not returned.
        if self.cut.is_some() { self.poll_message(cx) } else { polled }
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        loop {
            let Some(part) = ready!(self.poll_in_turn(cx)) else { return Poll::Ready(None) };
            return Poll::Ready(Some(match part {
                Ok(Part::Data { kind, bytes, is_last }) => {
                    let message = &mut place(&mut self.arriving).message;
                    if is_last && message.is_empty() {
                        return Poll::Ready(Some(whole(kind, bytes)));
                    }
                    large::append(message, &bytes, self.sender.core.borrow().connection.frame_left());
                    if !is_last {
                        continue;
                    }
                    whole(kind, memory::share(std::mem::take(message)))
                }
                Ok(Part::Control(message)) => Ok(message),
                Err(error) => Err(error),
            }));
        }
    }

    /// Returns true if a Close frame was sent.
    fn is_closing(&self) -> bool {
        self.sender.core.borrow().connection.outgoing() != State::Between
    }

    /// See [`WebSocketReceiver::poll_without_messages`].
    fn poll_without_messages(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.sender.core.borrow_mut().see_drain();
        self.send_subscribed(cx);
        if let Some(incomplete) = self.arriving.as_mut().and_then(|arriving| arriving.incomplete.as_mut()) {
            // The peer cannot go on with its message while nothing is read.
            *incomplete = (context::now(), 0);
        }
        self.settle(0);
        self.reader.watch(cx);
        match ready!(self.poll_alarm(cx)) {
            Some(Err(error)) => Poll::Ready(error),
            _ => Poll::Ready(Error::Broken),
        }
    }

    /// Polls for the next part, unless other connections must have their turn first.
    fn poll_in_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Error>>> {
        let address = std::ptr::from_ref(self) as usize;
        // Fails if the connection is broken, which the next read reports.
        let _ = self.sender.core.borrow_mut().poll_deflating(cx);
        self.send_subscribed(cx);
        if let Some(cut) = self.cut.take().filter(|_| !self.is_over) {
            (self.is_over, self.arriving) = (true, None);
            return Poll::Ready(Some(Err(Error::Refused(cut.failure()))));
        }
        let most = if self.sender.core.borrow().is_behind { MESSAGES_A_TURN_BEHIND } else { MESSAGES_A_TURN };
        // Messages after our Close frame are dropped; waiting must not hide the end of the connection.
        let polled = if !self.is_closing() && self.pace.must_wait(address, cx) {
            // Received messages wait until those that the handler has published are delivered.
            self.sender.core.borrow_mut().see_drain();
            self.poll_alarm(cx)
        } else if self.streak >= most || self.streak_bytes >= BYTES_A_TURN {
            cx.waker().wake_by_ref();
            // A peer that always has another message must not escape the deadlines.
            self.sender.core.borrow_mut().see_drain();
            self.poll_alarm(cx)
        } else {
            self.poll_next(cx)
        };
        match &polled {
            Poll::Pending => (self.streak, self.streak_bytes) = (0, 0),
            Poll::Ready(Some(Ok(part))) => {
                self.streak += 1;
                returned(address);
                let length = if let Part::Data { bytes, .. } = part { bytes.len() } else { 0 };
                self.streak_bytes = self.streak_bytes.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
            }
            Poll::Ready(Some(Err(_)) | None) => {
                self.is_over = true;
                self.arriving = None;
            }
        }
        polled
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Error>>> {
        while !self.is_over {
            if let Some(part) = self.sender.core.borrow_mut().inflate_rest() {
                return Poll::Ready(Some(part));
            }
            if self.arriving.as_ref().is_some_and(|arriving| !arriving.window.is_empty())
                && let Some(part) = self.parse()
            {
                return Poll::Ready(Some(part));
            }
            if let Some(arriving) = &mut self.arriving
                && arriving.window.is_empty()
            {
                (arriving.window, arriving.window_held) = (BytesMut::new(), 0);
            }
            self.sender.core.borrow_mut().answer_ping(cx);
            match self.reader.poll_read_mut(cx) {
                Poll::Ready(Ok(Some(bytes))) => self.add(bytes),
                Poll::Ready(Ok(None)) if self.reader.ended() == Some(Ended::Draining) => {
                    self.sender.core.borrow_mut().see_drain();
                }
                Poll::Ready(Ok(None)) if self.reader.ended() == Some(Ended::Idle) => {
                    return Poll::Ready(Some(Err(Error::Silent)));
                }
                Poll::Ready(_) => return Poll::Ready(Some(Err(Error::Broken))),
                Poll::Pending => return self.poll_alarm(cx),
            }
        }
        Poll::Ready(None)
    }

    /// Sends the waiting messages of subscriptions, as far as there is room, and closes the connection if a
    /// subscription has ended because the peer is slow.
    fn send_subscribed(&mut self, cx: &mut Context<'_>) {
        if !self.sender.core.borrow().is_behind {
            return;
        }
        // They are taken out, because sending each of their messages borrows `core`.
        let Some(mut subscriptions) = self.sender.core.borrow_mut().rare().subscriptions.take() else { return };
        let mut is_behind = false;
        for subscription in &subscriptions.all {
            is_behind |= !subscription.subscriber().flush(&*self.sender.core);
        }
        let count = subscriptions.all.len();
        let mut cut = Cut::TooSlow;
        subscriptions.all.retain(|subscription| {
            let subscriber = subscription.subscriber();
            if subscriber.is_cut() && subscriber.has_lost_some() {
                cut = Cut::Lost;
            }
            !subscriber.is_cut()
        });
        let is_cut = subscriptions.all.len() < count;
        if is_cut {
            subscriptions.count();
        }
        let mut core = self.sender.core.borrow_mut();
        core.count_subscriptions(count - subscriptions.all.len(), 0);
        if is_cut {
            let Failure { code, text } = cut.failure();
            core.close(code, text);
            self.cut = Some(cut);
        }
        core.is_behind = is_behind;
        core.rare().subscriptions = Some(subscriptions);
        if is_behind && core.writer.poll_room(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Appends received bytes to the window. Usually the window is empty, and the bytes are not copied.
    fn add(&mut self, bytes: BytesMut) {
        (self.heard, self.pinged) = (context::now(), false);
        let arriving = place(&mut self.arriving);
        if let Some((_, count)) = &mut arriving.incomplete {
            *count += bytes.len() as u64;
        }
        if arriving.window.is_empty() {
            arriving.window = bytes;
        } else {
            arriving.window.extend_from_slice(&bytes);
        }
        arriving.window_held = arriving.window.capacity();
    }

    /// Parses the next part of a message or control frame. Returns `None` if more bytes are needed.
    fn parse(&mut self) -> Option<Result<Part, Error>> {
        let arriving = place(&mut self.arriving);
        loop {
            let core = &mut *self.sender.core.borrow_mut();
            let received = match core.connection.receive(&mut arriving.window) {
                Ok(received) => received,
                Err(failure) => {
                    core.close(failure.code, failure.text);
                    return Some(Err(Error::Refused(failure)));
                }
            };
            let consumed = received.consumed;
            let part = match received.event {
                Event::NeedMore => {
                    // The rest is less than a control frame, so it is copied, and the buffer is freed.
                    arriving.window = BytesMut::from(&arriving.window[consumed..]);
                    arriving.window_held = arriving.window.capacity();
                    let is_within = core.connection.is_within_message() || !arriving.window.is_empty();
                    note_incomplete(&mut arriving.incomplete, is_within);
                    return None;
                }
                Event::Data { kind, compressed: true, bytes, is_last } => {
                    let Some(inflated) = core.codec.as_mut().map(|codec| codec.inflate(kind, bytes, is_last)) else {
                        continue;
                    };
                    match inflated {
                        // Nothing was inflated from these bytes yet.
                        Ok(inflated) if inflated.bytes.is_empty() && !inflated.is_last => {
                            arriving.window.advance(consumed);
                            continue;
                        }
                        inflated => core.inflated(inflated),
                    }
                }
                Event::Data { kind, bytes, is_last, .. } if bytes.len() > COPIED_BYTES => {
                    let start = consumed - bytes.len();
                    let bytes = arriving.window.split_to(consumed).freeze().slice(start..);
                    note_incomplete(&mut arriving.incomplete, !is_last);
                    return Some(Ok(Part::Data { kind, bytes, is_last }));
                }
                Event::Data { kind, bytes, is_last, .. } => {
                    Ok(Part::Data { kind, bytes: Bytes::copy_from_slice(bytes), is_last })
                }
                Event::Ping(bytes) => {
                    let bytes = Bytes::copy_from_slice(bytes);
                    core.answer(bytes.clone());
                    Ok(Part::Control(Message::Ping(bytes)))
                }
                Event::Pong(bytes) => Ok(Part::Control(Message::Pong(Bytes::copy_from_slice(bytes)))),
                Event::Close { code, reason } => {
                    self.is_over = true;
                    let frame = code.map(|code| CloseFrame { code, reason: reason.into() });
                    core.answer_ping(&mut Context::from_waker(Waker::noop()));
                    // Fails if the Close frame answers ours.
                    let _ = core.send(Message::Close(
                        frame.clone().map(|frame| CloseFrame { reason: Utf8Bytes::new(), ..frame }),
                    ));
                    Ok(Part::Control(Message::Close(frame)))
                }
            };
            arriving.window.advance(consumed);
            note_incomplete(&mut arriving.incomplete, core.connection.is_within_message());
            return Some(part);
        }
    }

    /// Waits until the next deadline: for the answer to our Close frame, for the bytes of an incomplete message, or for
    /// any byte. A silent peer first gets a Ping frame.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Error>>> {
        loop {
            let now = context::now();
            let close_due = self.sender.core.borrow().close_due();
            let ping_due = self.ping_interval.map(|interval| {
                // After the Ping frame, the peer gets the interval once more.
                let interval = Duration::from_millis(u64::from(interval.get()));
                self.heard + interval * if self.pinged { 2 } else { 1 }
            });
            let incomplete = self.arriving.as_mut().and_then(|arriving| arriving.incomplete.as_mut());
            let message_due = incomplete.as_ref().map(|(begun, _)| *begun + MESSAGE_PERIOD);
            if close_due.is_some_and(|due| due <= now) {
                return Poll::Ready(Some(Err(Error::Silent)));
            }
            if let Some((begun, count)) = incomplete
                && *begun + MESSAGE_PERIOD <= now
            {
                if *count < MESSAGE_PERIOD_BYTES {
                    let failure = Failure { code: code::POLICY, text: "a message arrives too slowly" };
                    self.sender.core.borrow_mut().close(failure.code, failure.text);
                    return Poll::Ready(Some(Err(Error::Refused(failure))));
                }
                (*begun, *count) = (now, 0);
                continue;
            }
            if ping_due.is_some_and(|due| due <= now) && close_due.is_none() {
                if std::mem::replace(&mut self.pinged, true) {
                    return Poll::Ready(Some(Err(Error::Silent)));
                }
                // Fails if the connection is broken, which the next read reports.
                let _ = self.sender.core.borrow_mut().send(Message::Ping(Bytes::new()));
                continue;
            }
            let ping_due = ping_due.filter(|_| close_due.is_none());
            let Some(due) = close_due.into_iter().chain(ping_due).chain(message_due).min() else {
                return Poll::Pending;
            };
            self.reader.wake_at(due, cx);
            return Poll::Pending;
        }
    }

    /// Frees the place for received bytes if there are none, and charges the connection for the held bytes. `returned`
    /// is the length of the message that is being returned.
    fn settle(&mut self, returned: usize) {
        let is_idle = |arriving: &mut Box<Arriving>| {
            arriving.window_held == 0 && arriving.message.is_empty() && arriving.incomplete.is_none()
        };
        if let Some(idle) = self.arriving.take_if(is_idle) {
            FreeList::recycle(&SPARE, idle);
        }
        let arriving = self.arriving.as_ref();
        let arriving = arriving.map_or(0, |arriving| arriving.message.capacity() + arriving.window_held);
        let mut core = self.sender.core.borrow_mut();
        core.returned = if returned < SHORT_BYTES { 0 } else { clamp(returned) };
        let kept = arriving + core.held();
        let messages = core.held_of_messages();
        core.keep_messages();
        drop(core);
        self.share(kept + messages);
        let kept = if self.cut.is_some() {
            self.sender.core.borrow_mut().keep_messages();
            self.sender.core.borrow().held()
        } else {
            kept
        };
        if clamp(kept) != self.kept {
            self.kept = clamp(kept);
            self.reader.keep(kept);
        }
    }

    /// Counts the bytes of the WebSocket against the limit of its connection. If they exceed it, frees them and closes
    /// the WebSocket. The handler gets the error at its next poll.
    fn share(&mut self, bytes: usize) {
        let core = &mut *self.sender.core.borrow_mut();
        if core.hold(clamp(bytes)) || self.is_over {
            return;
        }
        let Failure { code, text } = Cut::TooMuch.failure();
        core.close(code, text);
        self.cut = Some(Cut::TooMuch);
        (self.arriving, core.codec, core.returned) = (None, None, 0);
        core.hold(clamp(core.held()));
    }
}

/// Sends a Close frame, if none was sent before, because the connection then drops what the peer sends. Without the
/// frame, a remaining sending half could send for ever to a peer that gets no answers.
impl Drop for Receiving {
    fn drop(&mut self) {
        let mut core = self.sender.core.borrow_mut();
        core.hold(0);
        core.close(code::NORMAL, "");
        core.returned = 0;
        core.keep_messages();
    }
}

/// Each connection keeps counts of bytes as `u32`.
fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Records whether a message is incomplete. If it was incomplete before, its period goes on.
#[inline]
fn note_incomplete(incomplete: &mut Option<(Instant, u64)>, is_within: bool) {
    if !is_within {
        *incomplete = None;
    } else if incomplete.is_none() {
        *incomplete = Some((context::now(), 0));
    }
}

/// The future of a connection whose messages go to a callback. It takes the place of both halves.
pub(super) struct Callbacks<F> {
    receiving: Receiving,
    callback: F,
}

impl<F> Callbacks<F> {
    pub(super) fn new(socket: WebSocket, callback: F) -> Callbacks<F> {
        Callbacks { receiving: *socket.receiver.receiving, callback }
    }
}

impl<F: FnMut(&WebSocketSender, Result<Message, Error>) + Unpin> Future for Callbacks<F> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Callbacks { receiving, callback } = &mut *self;
        loop {
            // Nothing is received from a peer that does not read its answers.
            if receiving.sender.poll_ready(cx).is_pending() && !receiving.is_closing() {
                let error = ready!(receiving.poll_without_messages(cx));
                callback(&receiving.sender, Err(error));
                return Poll::Ready(());
            }
            let Some(message) = ready!(receiving.poll_whole(cx)) else { return Poll::Ready(()) };
            callback(&receiving.sender, message);
        }
    }
}

/// Makes a message from checked bytes.
fn whole(kind: Kind, bytes: Bytes) -> Result<Message, Error> {
    match kind {
        Kind::Binary => Ok(Message::Binary(bytes)),
        Kind::Text => match Utf8Bytes::try_from(bytes) {
            Ok(text) => Ok(Message::Text(text)),
            Err(_) => Err(Error::Refused(Failure { code: code::NOT_UTF8, text: "a text is not UTF-8" })),
        },
    }
}
