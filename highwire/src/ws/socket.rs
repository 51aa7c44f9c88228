//! A WebSocket connection and its halves.

use super::message::{CloseFrame, Error, Failure, Message, Utf8Bytes};
use super::upgrade::Settings;
use bytes::{Buf, Bytes, BytesMut};
use highwire_engine::context;
use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter};
use highwire_engine::time::{Sleep, sleep};
use highwire_io::Instant;
use highwire_proto::ws::{Connection, Event, HEADER_BYTES, Kind, Misuse, code};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A received message up to this length is copied out of the receive buffer, so that it does not keep a large buffer in
/// memory.
const COPIED_BYTES: usize = 4096;

/// A sent message from this length on is not copied behind its header.
const APART_BYTES: usize = 16 * 1024;

/// The most messages that [`WebSocketReceiver::recv`] returns without giving other connections their turn.
const MESSAGES_A_TURN: u32 = 64;

/// The time in which the peer must answer our Close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// The period in which the bytes of an incomplete message are counted.
const MESSAGE_PERIOD: Duration = Duration::from_secs(30);

/// The least number of bytes of an incomplete message in a [`MESSAGE_PERIOD`]: 512 a second.
const MESSAGE_PERIOD_BYTES: u64 = 512 * MESSAGE_PERIOD.as_secs();

/// A WebSocket connection.
///
/// It answers Ping and Close frames while [`recv`](Self::recv) waits, and sends Ping frames to a silent peer. Therefore
/// a handler should always receive, even if it expects nothing: a handler that sends on its own splits the connection
/// and receives in a second task. When the server stops, `recv` sends a Close frame with the code 1001. When the
/// receiving half is dropped, a Close frame with the code 1000 is sent if none was before.
#[derive(Debug)]
pub struct WebSocket {
    sender: WebSocketSender,
    receiver: WebSocketReceiver,
}

/// The sending half of a [`WebSocket`].
#[derive(Debug)]
pub struct WebSocketSender {
    core: Rc<RefCell<Core>>,
}

/// The receiving half of a [`WebSocket`].
#[derive(Debug)]
pub struct WebSocketReceiver {
    reader: RawReader,
    core: Rc<RefCell<Core>>,
    /// Received bytes that are not parsed yet.
    window: BytesMut,
    /// The size of the buffer that `window` is a part of.
    window_held: usize,
    /// The parts of an incomplete message.
    message: Vec<u8>,
    /// The number of bytes that the connection is charged for `window` and `message`.
    kept: usize,
    /// The number of messages returned since the last wait.
    streak: u32,
    /// True if no more messages will be returned.
    is_over: bool,
    ping_interval: Option<Duration>,
    /// The moment at which bytes arrived last.
    heard: Instant,
    /// True if a Ping frame was sent after that.
    pinged: bool,
    /// The beginning of the current period of an incomplete message, and the number of bytes that have arrived in it.
    incomplete: Option<(Instant, u64)>,
    /// A timer for the earliest deadline, or for an earlier moment, and that moment.
    alarm: Option<(Instant, Sleep)>,
}

/// The part of a connection that both halves use.
#[derive(Debug)]
struct Core {
    connection: Connection,
    writer: RawWriter,
    /// The bytes of the last Ping frame, if its answer was not sent yet.
    pong: Option<Bytes>,
    /// The moment until which the peer must answer our Close frame.
    close_due: Option<Instant>,
    /// The task that waits for a message, which must learn of `close_due`.
    receiver: Option<Waker>,
    subprotocol: Option<String>,
}

impl WebSocket {
    pub(super) fn new(stream: RawStream, connection: Connection, settings: &Settings) -> WebSocket {
        let (reader, writer) = stream.split();
        let subprotocol = settings.subprotocol.clone();
        let (pong, close_due, receiver) = (None, None, None);
        let core = Core { connection, writer, pong, close_due, receiver, subprotocol };
        let core = Rc::new(RefCell::new(core));
        let receiver = WebSocketReceiver {
            reader,
            core: core.clone(),
            window: BytesMut::new(),
            window_held: 0,
            message: Vec::new(),
            kept: 0,
            streak: 0,
            is_over: false,
            ping_interval: settings.ping_interval,
            heard: context::now(),
            pinged: false,
            incomplete: None,
            alarm: None,
        };
        WebSocket { sender: WebSocketSender { core }, receiver }
    }

    /// See [`WebSocketReceiver::recv`].
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        self.receiver.recv().await
    }

    /// See [`WebSocketSender::send`].
    ///
    /// # Errors
    /// Returns an error if the connection is broken or the message cannot be sent.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.sender.send(message).await
    }

    /// See [`WebSocketSender::close`].
    ///
    /// # Errors
    /// Returns an error if the connection is broken, a Close frame was sent before, or the code or the reason is invalid.
    pub async fn close(&mut self, code: u16, reason: &str) -> Result<(), Error> {
        self.sender.close(code, reason).await
    }

    /// Returns the subprotocol on which the peers have agreed.
    pub fn protocol(&self) -> Option<String> {
        self.sender.protocol()
    }

    /// Splits the connection into its halves, for two tasks.
    pub fn split(self) -> (WebSocketSender, WebSocketReceiver) {
        (self.sender, self.receiver)
    }
}

impl WebSocketSender {
    /// Queues a message to be sent. Waits while 64 KiB or more wait for the peer.
    ///
    /// # Errors
    /// Returns an error if the connection is broken or the message cannot be sent.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        poll_fn(|cx| self.core.borrow_mut().writer.poll_ready(cx)).await?;
        self.core.borrow_mut().send(message.into())
    }

    /// Queues a Close frame. Afterwards [`recv`](WebSocketReceiver::recv) returns the messages that the peer has sent
    /// before its own Close frame.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, a Close frame was sent before, or the code or the reason is invalid.
    pub async fn close(&mut self, code: u16, reason: &str) -> Result<(), Error> {
        self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await
    }

    /// Returns the subprotocol on which the peers have agreed.
    pub fn protocol(&self) -> Option<String> {
        self.core.borrow().subprotocol.clone()
    }
}

impl WebSocketReceiver {
    /// Waits for the next message and returns it. Returns `None` after a Close frame, an error, or the end of the
    /// connection.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the next message, as [`recv`](Self::recv) does.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        let polled = if self.streak >= MESSAGES_A_TURN {
            cx.waker().wake_by_ref();
            // A peer that always has another message must not escape the deadlines.
            self.core.borrow_mut().see_drain();
            self.poll_alarm(cx)
        } else {
            self.poll_next(cx)
        };
        match &polled {
            Poll::Pending => self.streak = 0,
            Poll::Ready(Some(Ok(_))) => self.streak += 1,
            Poll::Ready(Some(Err(_)) | None) => {
                self.is_over = true;
                (self.window, self.window_held, self.message) = (BytesMut::new(), 0, Vec::new());
            }
        }
        self.charge();
        polled
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        while !self.is_over {
            if !self.window.is_empty()
                && let Some(message) = self.parse()
            {
                return Poll::Ready(Some(message));
            }
            self.core.borrow_mut().answer_ping(cx);
            match self.reader.poll_read(cx) {
                Poll::Ready(Ok(Some(bytes))) => self.add(bytes),
                Poll::Ready(Ok(None)) if self.reader.ended() == Some(Ended::Draining) => {
                    self.core.borrow_mut().see_drain();
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

    /// Appends received bytes to the window. Usually the window is empty, and the bytes are not copied.
    fn add(&mut self, bytes: Bytes) {
        (self.heard, self.pinged) = (context::now(), false);
        if let Some((_, count)) = &mut self.incomplete {
            *count += bytes.len() as u64;
        }
        if self.window.is_empty() {
            self.window = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&bytes[..]));
        } else {
            self.window.extend_from_slice(&bytes);
        }
        self.window_held = self.window.capacity();
    }

    /// Parses the window up to the end of the next message or control frame. Returns `None` if more bytes are needed.
    fn parse(&mut self) -> Option<Result<Message, Error>> {
        loop {
            let core = &mut *self.core.borrow_mut();
            let received = match core.connection.receive(&mut self.window) {
                Ok(received) => received,
                Err(failure) => {
                    core.close(failure.code, failure.text);
                    return Some(Err(Error::Refused(failure)));
                }
            };
            let consumed = received.consumed;
            let message = match received.event {
                Event::NeedMore => {
                    // The rest is less than a control frame, so it is copied, and the buffer is freed.
                    self.window = BytesMut::from(&self.window[consumed..]);
                    self.window_held = self.window.capacity();
                    if !core.connection.is_within_message() && self.window.is_empty() {
                        self.incomplete = None;
                    } else if self.incomplete.is_none() {
                        self.incomplete = Some((context::now(), 0));
                    }
                    return None;
                }
                Event::Data { kind, bytes, is_last, .. } if is_last && self.message.is_empty() => {
                    if bytes.len() > COPIED_BYTES {
                        let start = consumed - bytes.len();
                        let bytes = self.window.split_to(consumed).freeze().slice(start..);
                        return Some(whole(kind, bytes));
                    }
                    Some(whole(kind, Bytes::copy_from_slice(bytes)))
                }
                Event::Data { kind, bytes, is_last, .. } => {
                    self.message.extend_from_slice(bytes);
                    is_last.then(|| whole(kind, Bytes::from(std::mem::take(&mut self.message))))
                }
                Event::Ping(bytes) => {
                    let bytes = Bytes::copy_from_slice(bytes);
                    core.pong = Some(bytes.clone());
                    core.answer_ping(&mut Context::from_waker(Waker::noop()));
                    Some(Ok(Message::Ping(bytes)))
                }
                Event::Pong(bytes) => Some(Ok(Message::Pong(Bytes::copy_from_slice(bytes)))),
                Event::Close { code, reason } => {
                    self.is_over = true;
                    let frame = code.map(|code| CloseFrame { code, reason: reason.into() });
                    core.answer_ping(&mut Context::from_waker(Waker::noop()));
                    // Fails if the Close frame answers ours.
                    let _ = core.send(Message::Close(
                        frame.clone().map(|frame| CloseFrame { reason: Utf8Bytes::new(), ..frame }),
                    ));
                    Some(Ok(Message::Close(frame)))
                }
            };
            self.window.advance(consumed);
            if message.is_some() {
                if !core.connection.is_within_message() {
                    self.incomplete = None;
                }
                return message;
            }
        }
    }

    /// Waits until the next deadline: for the answer to our Close frame, for the bytes of an incomplete message, or for
    /// any byte. A silent peer first gets a Ping frame.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        loop {
            let now = context::now();
            let close_due = self.core.borrow().close_due;
            let ping_due = self.ping_interval.map(|interval| {
                // After the Ping frame, the peer has the interval once more.
                self.heard + interval * if self.pinged { 2 } else { 1 }
            });
            let message_due = self.incomplete.map(|(begun, _)| begun + MESSAGE_PERIOD);
            if close_due.is_some_and(|due| due <= now) {
                return Poll::Ready(Some(Err(Error::Silent)));
            }
            if let Some((begun, count)) = self.incomplete
                && begun + MESSAGE_PERIOD <= now
            {
                if count < MESSAGE_PERIOD_BYTES {
                    let failure = Failure { code: code::POLICY, text: "a message arrives too slowly" };
                    self.core.borrow_mut().close(failure.code, failure.text);
                    return Poll::Ready(Some(Err(Error::Refused(failure))));
                }
                self.incomplete = Some((now, 0));
                continue;
            }
            if ping_due.is_some_and(|due| due <= now) && close_due.is_none() {
                if std::mem::replace(&mut self.pinged, true) {
                    return Poll::Ready(Some(Err(Error::Silent)));
                }
                // Fails if the connection is broken, which the next read reports.
                let _ = self.core.borrow_mut().send(Message::Ping(Bytes::new()));
                continue;
            }
            let ping_due = ping_due.filter(|_| close_due.is_none());
            let Some(due) = close_due.into_iter().chain(ping_due).chain(message_due).min() else {
                self.core.borrow_mut().receiver = Some(cx.waker().clone());
                return Poll::Pending;
            };
            if self.alarm.as_ref().is_none_or(|(at, _)| *at > due || *at <= now) {
                self.alarm = Some((due, sleep(due.since(now))));
            }
            let Some((_, alarm)) = &mut self.alarm else { return Poll::Pending };
            if Pin::new(alarm).poll(cx).is_pending() {
                self.core.borrow_mut().receiver = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }

    /// Charges the connection for the bytes of an incomplete message.
    fn charge(&mut self) {
        let kept = self.message.capacity() + self.window_held;
        if kept != self.kept {
            self.kept = kept;
            self.reader.keep(kept);
        }
    }
}

/// Makes a message of checked bytes.
fn whole(kind: Kind, bytes: Bytes) -> Result<Message, Error> {
    match kind {
        Kind::Binary => Ok(Message::Binary(bytes)),
        Kind::Text => match Utf8Bytes::try_from(bytes) {
            Ok(text) => Ok(Message::Text(text)),
            Err(_) => Err(Error::Refused(Failure { code: code::NOT_UTF8, text: "a text is not UTF-8" })),
        },
    }
}

impl Core {
    fn send(&mut self, message: Message) -> Result<(), Error> {
        if !matches!(message, Message::Close(_)) {
            self.see_drain();
        }
        let mut out = Vec::new();
        let mut room = |bytes: &[u8]| out.reserve_exact(HEADER_BYTES + bytes.len());
        match &message {
            Message::Text(text) if text.len() < APART_BYTES => room(text.as_bytes()),
            Message::Binary(bytes) if bytes.len() < APART_BYTES => room(bytes),
            _ => {}
        }
        match message {
            Message::Text(text) if self.goes_apart(text.len()) => {
                return self.send_apart(Kind::Text, text.into_bytes(), out);
            }
            Message::Binary(bytes) if self.goes_apart(bytes.len()) => return self.send_apart(Kind::Binary, bytes, out),
            Message::Text(text) => self.connection.send_text(&text, &mut out)?,
            Message::Binary(bytes) => self.connection.send_binary(&bytes, &mut out)?,
            Message::Ping(bytes) => self.connection.send_ping(&bytes, &mut out)?,
            Message::Pong(bytes) => self.connection.send_pong(&bytes, &mut out)?,
            Message::Close(frame) => {
                let (code, reason) = frame.as_ref().map_or((None, ""), |frame| (Some(frame.code), &frame.reason[..]));
                self.connection.send_close(code, reason, &mut out)?;
                self.close_due = context::now_if_any().map(|now| now + CLOSE_WAIT);
                self.receiver.take().into_iter().for_each(Waker::wake);
            }
        }
        Ok(self.writer.queue(out.into())?)
    }

    fn goes_apart(&self, length: usize) -> bool {
        length >= APART_BYTES && self.connection.is_server()
    }

    /// Queues a long message behind its header, without a copy.
    fn send_apart(&mut self, kind: Kind, bytes: Bytes, mut header: Vec<u8>) -> Result<(), Error> {
        self.connection.send_header(kind, bytes.len(), &mut header)?;
        self.writer.queue(header.into())?;
        Ok(self.writer.queue(bytes)?)
    }

    /// Queues a Close frame if the server is stopping.
    fn see_drain(&mut self) {
        if self.writer.ended() == Some(Ended::Draining) {
            self.close(code::GOING_AWAY, "the server stops");
        }
    }

    /// Queues a Close frame, unless one was sent before or the connection is broken.
    fn close(&mut self, code: u16, reason: &str) {
        let _ = self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
    }

    /// Answers the last Ping frame, if there is room. A peer that does not take its answers gets only the last one,
    /// as RFC 6455 section 5.5.3 permits.
    fn answer_ping(&mut self, cx: &mut Context<'_>) {
        if self.pong.is_some()
            && self.writer.poll_room(cx).is_ready()
            && let Some(bytes) = self.pong.take()
        {
            match self.send(Message::Pong(bytes)) {
                Ok(()) | Err(Error::Unsendable(Misuse::Closed) | Error::Broken) => {}
                Err(error) => highwire_engine::log!(Mistake, error, %error, "a Pong frame cannot be sent"),
            }
        }
    }
}

/// Sends a Close frame, if none was sent before, because the connection then drops what the peer sends. Without it, a
/// sending half that is still there could send for any length of time to a peer that gets no answers.
impl Drop for WebSocketReceiver {
    fn drop(&mut self) {
        self.core.borrow_mut().close(code::NORMAL, "");
    }
}
