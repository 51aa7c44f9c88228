//! A WebSocket connection and its halves.

use super::message::{CloseFrame, Error, Failure, Message, Utf8Bytes};
use super::upgrade::Settings;
use crate::time::{Sleep, sleep};
use bytes::{Buf, Bytes, BytesMut};
use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter};
use highwire_proto::ws::state::State;
use highwire_proto::ws::{Connection, Event, HEADER_BYTES, Kind, Misuse, code};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
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

/// A WebSocket connection.
///
/// It answers Ping and Close frames while [`recv`](Self::recv) waits, and sends Ping frames to a silent peer. Therefore
/// a handler should always receive, even if it expects nothing. When the server stops, `recv` sends a Close frame with
/// the code 1001. When both halves of the connection are dropped, a Close frame with the code 1000 is sent if none was
/// before.
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
    /// The parts of an incomplete message.
    message: Vec<u8>,
    /// The number of bytes that the connection is charged for `window` and `message`.
    kept: usize,
    /// The number of messages returned since the last wait.
    streak: u32,
    /// True if no more messages will be returned.
    is_over: bool,
    ping_interval: Option<Duration>,
    alarm: Option<Sleep>,
    /// True if bytes have arrived since the last alarm.
    heard: bool,
    /// True if a Ping frame was sent at the last alarm.
    pinged: bool,
}

/// The part of a connection that both halves use.
#[derive(Debug)]
struct Core {
    connection: Connection,
    writer: RawWriter,
    /// The bytes of the last Ping frame, if its answer was not sent yet.
    pong: Option<Bytes>,
    subprotocol: Option<String>,
}

impl WebSocket {
    pub(super) fn new(stream: RawStream, connection: Connection, settings: &Settings) -> WebSocket {
        let (reader, writer) = stream.split();
        let subprotocol = settings.subprotocol.clone();
        let core = Rc::new(RefCell::new(Core { connection, writer, pong: None, subprotocol }));
        let receiver = WebSocketReceiver {
            reader,
            core: core.clone(),
            window: BytesMut::new(),
            message: Vec::new(),
            kept: 0,
            streak: 0,
            is_over: false,
            ping_interval: settings.ping_interval,
            alarm: None,
            heard: false,
            pinged: false,
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
        if self.streak >= MESSAGES_A_TURN {
            self.streak = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = self.poll_next(cx);
        match &polled {
            Poll::Pending => self.streak = 0,
            Poll::Ready(Some(Err(_)) | None) => self.is_over = true,
            Poll::Ready(Some(Ok(_))) => self.streak += 1,
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
            self.core.borrow_mut().answer_ping();
            match self.reader.poll_read(cx) {
                Poll::Ready(Ok(Some(bytes))) => self.add(bytes),
                Poll::Ready(Ok(None)) if self.reader.ended() == Some(Ended::Draining) => {
                    self.core.borrow_mut().close(code::GOING_AWAY, "the server stops");
                    self.alarm = None;
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
        self.heard = true;
        if self.window.is_empty() {
            self.window = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&bytes[..]));
        } else {
            self.window.extend_from_slice(&bytes);
        }
    }

    /// Parses the window up to the end of the next message or control frame. Returns `None` if more bytes are needed.
    fn parse(&mut self) -> Option<Result<Message, Error>> {
        loop {
            let core = &mut *self.core.borrow_mut();
            let received = match core.connection.receive(&mut self.window) {
                Ok(received) => received,
                Err(failure) => {
                    core.close(failure.code, failure.text);
                    self.window = BytesMut::new();
                    return Some(Err(Error::Refused(failure)));
                }
            };
            let consumed = received.consumed;
            let message = match received.event {
                Event::NeedMore => {
                    self.window.advance(consumed);
                    if self.window.is_empty() {
                        // Frees the buffer.
                        self.window = BytesMut::new();
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
                    core.answer_ping();
                    Some(Ok(Message::Ping(bytes)))
                }
                Event::Pong(bytes) => Some(Ok(Message::Pong(Bytes::copy_from_slice(bytes)))),
                Event::Close { code, reason } => {
                    self.is_over = true;
                    let frame = code.map(|code| CloseFrame { code, reason: reason.into() });
                    core.answer_ping();
                    // Fails if the Close frame answers ours.
                    let _ = core.send(Message::Close(
                        frame.clone().map(|frame| CloseFrame { reason: Utf8Bytes::new(), ..frame }),
                    ));
                    Some(Ok(Message::Close(frame)))
                }
            };
            self.window.advance(consumed);
            if message.is_some() {
                return message;
            }
        }
    }

    /// Polls the alarm, which fires if the peer is silent: first sends a Ping frame, and then ends the connection.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        let is_closing = self.core.borrow().connection.outgoing() == State::Closed;
        let Some(wait) = (if is_closing { Some(CLOSE_WAIT) } else { self.ping_interval }) else { return Poll::Pending };
        loop {
            let alarm = self.alarm.get_or_insert_with(|| sleep(wait));
            if Pin::new(alarm).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.alarm = None;
            if is_closing || (!self.heard && self.pinged) {
                return Poll::Ready(Some(Err(Error::Silent)));
            }
            self.pinged = !std::mem::take(&mut self.heard);
            if self.pinged {
                // Fails if a message that is sent in parts has not ended, which cannot be here.
                let _ = self.core.borrow_mut().send(Message::Ping(Bytes::new()));
            }
        }
    }

    /// Charges the connection for the bytes of an incomplete message.
    fn charge(&mut self) {
        let kept = self.message.capacity() + self.window.capacity();
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
        if self.writer.ended() == Some(Ended::Draining) && !matches!(message, Message::Close(_)) {
            self.close(code::GOING_AWAY, "the server stops");
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
            Message::Close(None) => self.connection.send_close(None, "", &mut out)?,
            Message::Close(Some(frame)) => self.connection.send_close(Some(frame.code), &frame.reason, &mut out)?,
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

    /// Queues a Close frame, unless one was sent before or the connection is broken.
    fn close(&mut self, code: u16, reason: &str) {
        let _ = self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
    }

    /// Answers the last Ping frame, if there is room. A peer that does not take its answers gets only the last one,
    /// as RFC 6455 section 5.5.3 permits.
    fn answer_ping(&mut self) {
        if self.writer.has_room()
            && let Some(bytes) = self.pong.take()
        {
            match self.send(Message::Pong(bytes)) {
                Ok(()) | Err(Error::Unsendable(Misuse::Closed) | Error::Broken) => {}
                Err(error) => highwire_engine::log!(Mistake, error, %error, "a Pong frame cannot be sent"),
            }
        }
    }
}

/// Sends a Close frame, if none was sent before.
impl Drop for Core {
    fn drop(&mut self) {
        if self.connection.outgoing() != State::Closed {
            self.close(if std::thread::panicking() { code::INTERNAL } else { code::NORMAL }, "");
        }
    }
}
