//! A WebSocket connection and its halves.

use super::deflate::{Codec, Deflated, Inflated, Way};
use super::message::{CloseFrame, Error, Failure, Message, Part};
use super::receiver::WebSocketReceiver;
use super::together::{Member, Together};
use super::upgrade::Settings;
use crate::topics::{PublishedMessage, Queued, Sink, Start, SubscribeError, Subscription, Topics};
use bytes::{Bytes, BytesMut};
use highwire_engine::context;
use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter};
use highwire_io::Instant;
use highwire_proto::ws::state::State;
use highwire_proto::ws::{Connection, Kind, Misuse, code, header_bytes};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// From this length on, a sent message is queued apart from its header, without a copy.
const APART_BYTES: usize = 16 * 1024;

/// The most subscriptions of a connection, also of all WebSockets of an HTTP/2 connection.
const SUBSCRIPTIONS: usize = 1000;

/// The time in which the peer must answer our Close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// A WebSocket connection.
///
/// It answers Ping and Close frames while [`recv`](Self::recv) waits, and sends Ping frames to a silent peer. Therefore
/// a handler should always receive, even if it expects nothing: a handler that sends on its own splits the connection
/// and receives in a second task. When the server stops, `recv` sends a Close frame with the code 1001. When the
/// receiving half is dropped, a Close frame with the code 1000 is sent if none was before.
#[derive(Debug)]
pub struct WebSocket {
    pub(super) sender: WebSocketSender,
    pub(super) receiver: WebSocketReceiver,
}

/// The sending half of a [`WebSocket`].
#[derive(Debug)]
pub struct WebSocketSender {
    pub(super) core: Rc<RefCell<Core>>,
}

/// The part of a connection that both halves use.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) connection: Connection,
    /// The compression, if the peers have agreed on it.
    pub(super) codec: Option<Box<Codec>>,
    pub(super) writer: RawWriter,
    /// State that most connections have only when they close.
    rare: Option<Box<Rare>>,
    /// The length of the message that was returned last, which its handler has until it asks for the next one; 0 if it is
    /// short.
    pub(super) returned: u32,
    /// True if the connection is charged for messages.
    keeps_messages: bool,
    /// True if messages of subscriptions may wait because the connection had no room.
    pub(super) is_behind: bool,
}

/// The subscriptions of a connection.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    pub(super) all: Vec<Subscription>,
    /// About the number of bytes that they hold, without messages.
    pub(super) bytes: usize,
    /// The number of bytes of their waiting messages.
    queued: Queued,
}

impl Subscriptions {
    /// Counts the bytes that they hold.
    pub(super) fn count(&mut self) {
        self.bytes = self.all.iter().map(Subscription::cost).sum();
        self.all.shrink_to(self.all.len() * 2);
    }
}

/// State of a connection that has subscriptions, a subprotocol or an unanswered Ping frame, shares an HTTP/2 connection, or
/// closes.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// The bytes of the last Ping frame, if there was no room to answer it.
    ping: Option<Bytes>,
    /// The moment until which the peer must answer our Close frame.
    close_due: Option<Instant>,
    /// The subprotocol on which the peers have agreed.
    subprotocol: Option<Box<str>>,
    /// What the WebSockets of the same HTTP/2 connection share.
    member: Option<Member>,
    pub(super) subscriptions: Option<Box<Subscriptions>>,
}

impl WebSocket {
    pub(super) fn new(
        stream: RawStream,
        connection: Connection,
        codec: Option<Codec>,
        settings: &Settings,
        together: Option<Rc<Together>>,
    ) -> WebSocket {
        let (reader, writer) = stream.split();
        let socket = WebSocket::of_halves(reader, writer, connection, codec, settings, BytesMut::new());
        if let Some(together) = together {
            let core = &mut *socket.sender.core.borrow_mut();
            let takes_over = core.codec.as_ref().is_some_and(|codec| codec.has_takeover());
            core.rare().member = Some(Member::new(together, takes_over));
        }
        socket
    }

    /// Creates a connection whose first bytes, `window`, were received already.
    pub(super) fn of_halves(
        reader: RawReader,
        mut writer: RawWriter,
        connection: Connection,
        codec: Option<Codec>,
        settings: &Settings,
        window: BytesMut,
    ) -> WebSocket {
        // A peer that has ended its direction takes no part in the closing handshake.
        writer.cut_with_peer();
        let subprotocol = settings.subprotocol.as_deref().map(Box::from);
        let rare = subprotocol.map(|name| Box::new(Rare { subprotocol: Some(name), ..Rare::default() }));
        let codec = codec.map(Box::new);
        let (returned, keeps_messages, is_behind) = (0, false, false);
        let core = Core { connection, codec, writer, rare, returned, keeps_messages, is_behind };
        let core = Rc::new(RefCell::new(core));
        let receiver = WebSocketReceiver::new(reader, core.clone(), settings, window);
        WebSocket { sender: WebSocketSender { core }, receiver }
    }

    /// See [`WebSocketReceiver::recv`].
    pub fn recv(&mut self) -> impl Future<Output = Option<Result<Message, Error>>> {
        self.receiver.recv()
    }

    /// See [`WebSocketReceiver::recv_part`].
    pub fn recv_part(&mut self) -> impl Future<Output = Option<Result<Part, Error>>> {
        self.receiver.recv_part()
    }

    /// See [`WebSocketSender::send`].
    ///
    /// # Errors
    /// Returns an error if the connection is broken or the message cannot be sent.
    pub fn send(&mut self, message: impl Into<Message>) -> impl Future<Output = Result<(), Error>> {
        self.sender.send(message)
    }

    /// See [`WebSocketSender::close`].
    ///
    /// # Errors
    /// Returns an error if the connection is broken, a Close frame was sent before, or the code or the reason is invalid.
    pub fn close(&mut self, code: u16, reason: &str) -> impl Future<Output = Result<(), Error>> {
        self.sender.close(code, reason)
    }

    /// Returns the subprotocol on which the peers have agreed.
    pub fn protocol(&self) -> Option<String> {
        self.sender.protocol()
    }

    /// See [`WebSocketSender::subscribe`].
    ///
    /// # Errors
    /// As [`Topics::subscribe`], and if the connection has 1,000 subscriptions.
    pub fn subscribe(&self, topics: &Topics, filter: &str, start: Start) -> Result<(), SubscribeError> {
        self.sender.subscribe(topics, filter, start)
    }

    /// See [`WebSocketSender::unsubscribe`].
    pub fn unsubscribe(&self, topics: &Topics, filter: &str) -> bool {
        self.sender.unsubscribe(topics, filter)
    }

    /// Splits the connection into its halves, for two tasks.
    pub fn split(self) -> (WebSocketSender, WebSocketReceiver) {
        (self.sender, self.receiver)
    }
}

impl WebSocketSender {
    /// Queues a message to be sent. Waits while 64 KiB or more wait for the peer (less on an HTTP/2 connection with many
    /// streams, and while much waits for other peers; see docs/limits.md).
    ///
    /// # Errors
    /// Returns an error if the connection is broken or the message cannot be sent.
    // An async function would keep the message twice in its future.
    pub fn send(&mut self, message: impl Into<Message>) -> impl Future<Output = Result<(), Error>> {
        let mut message = Some(message.into());
        poll_fn(move |cx| {
            let mut core = self.core.borrow_mut();
            ready!(core.poll_deflating(cx))?;
            if message.is_some() {
                ready!(core.writer.poll_ready(cx))?;
                message.take().map_or(Ok(()), |message| core.send(message))?;
            }
            // A long message is deflated in slices, and then queued.
            core.poll_deflating(cx)
        })
    }

    /// Waits until fewer than 64 KiB wait for the peer, so that [`try_send`](Self::try_send) has room.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut core = self.core.borrow_mut();
        ready!(core.poll_deflating(cx))?;
        core.writer.poll_ready(cx).map_err(Error::from)
    }

    /// Queues a message to be sent, without waiting.
    ///
    /// # Errors
    /// Returns [`Error::Full`] if 64 KiB or more wait for the peer, and otherwise an error as [`send`](Self::send) does.
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), Error> {
        let mut core = self.core.borrow_mut();
        if !core.has_room() {
            return Err(Error::Full);
        }
        core.send(message.into())?;
        if !core.has_room() {
            // The receiver deflates a long message.
            core.writer.wake_reader();
        }
        Ok(())
    }

    /// Queues a Close frame. Afterwards [`recv`](WebSocketReceiver::recv) returns the messages that the peer has sent
    /// before its own Close frame.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, a Close frame was sent before, or the code or the reason is invalid.
    pub fn close(&mut self, code: u16, reason: &str) -> impl Future<Output = Result<(), Error>> {
        self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() })))
    }

    /// Returns the subprotocol on which the peers have agreed.
    pub fn protocol(&self) -> Option<String> {
        self.core.borrow().rare.as_ref()?.subprotocol.as_deref().map(str::to_owned)
    }

    /// Sends the messages of a filter's topics to the peer, until the connection ends. This takes no task: a published
    /// message goes to the connection directly while fewer than 64 KiB wait for the peer. Then messages wait in the
    /// subscription, whose topics' settings decide what happens to slow readers. An earlier subscription to the same
    /// filter is replaced. Messages that wait are sent while [`recv`](WebSocketReceiver::recv) waits.
    ///
    /// # Errors
    /// As [`Topics::subscribe`], and if the connection has 1,000 subscriptions.
    pub fn subscribe(&self, topics: &Topics, filter: &str, start: Start) -> Result<(), SubscribeError> {
        let sink: Rc<dyn Sink> = self.core.clone();
        let queued = {
            let core = &mut *self.core.borrow_mut();
            let Rare { member, subscriptions, .. } = core.rare();
            let together = member.as_ref().map(|member| &member.together);
            let known = subscriptions.get_or_insert_with(|| {
                let queued = together.map(|together| together.queued.clone()).unwrap_or_default();
                Box::new(Subscriptions { queued, ..Subscriptions::default() })
            });
            if together.map_or(known.all.len(), |together| together.subscriptions.get()) >= SUBSCRIPTIONS {
                return Err(SubscribeError::TooMany);
            }
            known.queued.clone()
        };
        let subscription = Subscription::new(topics.hub(), filter, start, Some((Rc::downgrade(&sink), queued)))?;
        drop(self.remove(topics, filter));
        subscription.subscriber().flush(&*sink);
        let mut core = self.core.borrow_mut();
        let known = core.rare().subscriptions.get_or_insert_default();
        known.bytes += subscription.cost();
        known.all.push(subscription);
        core.count_subscriptions(0, 1);
        // The receiver charges the connection for the subscription.
        core.writer.wake_reader();
        Ok(())
    }

    /// Ends a subscription. Returns false if there is none to this filter.
    pub fn unsubscribe(&self, topics: &Topics, filter: &str) -> bool {
        self.remove(topics, filter).is_some()
    }

    fn remove(&self, topics: &Topics, filter: &str) -> Option<Subscription> {
        let mut core = self.core.borrow_mut();
        let subscriptions = core.rare.as_mut()?.subscriptions.as_mut()?;
        let at = subscriptions.all.iter().position(|known| known.is_of(topics.hub(), filter))?;
        let removed = subscriptions.all.swap_remove(at);
        subscriptions.bytes -= removed.cost();
        core.count_subscriptions(1, 0);
        Some(removed)
    }
}

impl Sink for RefCell<Core> {
    fn take(&self, published: &PublishedMessage) -> bool {
        let mut core = self.borrow_mut();
        if core.connection.outgoing() != State::Between {
            // Nothing follows a Close frame.
            return true;
        }
        if !core.has_room() {
            return false;
        }
        if !core.connection.is_server() {
            // A client masks each frame with a key of its own. Fails if the connection is broken, as below.
            let _ = core.send(published.message().clone());
            return true;
        }
        let deflated = core.codec.as_ref().is_some_and(|codec| codec.takes_shared(published.length()));
        // Fails if the connection is broken, which the next read reports.
        let _ = core.writer.queue(published.frame(deflated));
        true
    }

    fn wake(&self) {
        let mut core = self.borrow_mut();
        core.is_behind = true;
        core.writer.wake_reader();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.count_subscriptions(self.subscriptions().map_or(0, |known| known.all.len()), 0);
    }
}

impl Core {
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn subscriptions(&self) -> Option<&Subscriptions> {
        self.rare.as_ref()?.subscriptions.as_deref()
    }

    /// Counts the bytes of the WebSocket against the limit of its HTTP/2 connection. Returns false if it must free
    /// them.
    pub(super) fn hold(&mut self, bytes: u32) -> bool {
        let member = self.rare.as_mut().and_then(|rare| rare.member.as_mut());
        member.is_none_or(|member| member.hold(bytes))
    }

    /// Counts subscriptions that have ended and begun.
    pub(super) fn count_subscriptions(&self, ended: usize, begun: usize) {
        if let Some(Member { together, .. }) = self.rare.as_ref().and_then(|rare| rare.member.as_ref()) {
            together.subscriptions.set((together.subscriptions.get() + begun).saturating_sub(ended));
        }
    }

    /// Returns true if a message can be queued.
    fn has_room(&self) -> bool {
        self.writer.has_room() && !self.codec.as_ref().is_some_and(|codec| codec.is_deflating())
    }

    /// Deflates a slice of a long message. Is ready when there is no such message, or when it was queued.
    pub(super) fn poll_deflating(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(codec) = self.codec.as_mut().filter(|codec| codec.is_deflating()) else { return Poll::Ready(Ok(())) };
        let deflated = codec.deflate_slice();
        self.keep_messages();
        let Some(Deflated { kind, message, deflated }) = deflated else {
            // Other connections have their turn before the next slice.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        let mut out = Vec::new();
        let Some(deflated) = deflated else { return Poll::Ready(self.send_apart(kind, message, out)) };
        out.reserve_exact(header_bytes(deflated.len(), !self.connection.is_server()) + deflated.len());
        self.connection.send_deflated(kind, &deflated, &mut out)?;
        Poll::Ready(Ok(self.writer.queue(out.into())?))
    }

    /// Returns the next part of received bytes that are not inflated yet.
    pub(super) fn inflate_rest(&mut self) -> Option<Result<Part, Error>> {
        let inflated = self.codec.as_mut()?.inflate_rest()?;
        Some(self.inflated(inflated))
    }

    /// Makes a part of inflated bytes, or closes the connection.
    pub(super) fn inflated(&mut self, inflated: Result<Inflated, Failure>) -> Result<Part, Error> {
        match inflated {
            Ok(Inflated { kind, bytes, is_last }) => Ok(Part::Data { kind, bytes: bytes.into(), is_last }),
            Err(failure) => {
                self.close(failure.code, failure.text);
                Err(Error::Refused(failure))
            }
        }
    }

    /// Returns the moment until which the peer must answer our Close frame.
    pub(super) fn close_due(&self) -> Option<Instant> {
        self.rare.as_ref()?.close_due
    }

    /// Returns about how many bytes are held, besides those that the stream holds.
    pub(super) fn held(&self) -> usize {
        // Waiting messages of subscriptions are charged by the topics.
        self.codec.as_ref().map_or(0, |codec| codec.held()) + self.subscriptions().map_or(0, |all| all.bytes)
    }

    /// Returns about how many bytes are held of the message that the handler has, and of the one that is being deflated.
    /// Often they are the same.
    pub(super) fn held_of_messages(&self) -> usize {
        let (message, others) = self.codec.as_ref().map_or((0, 0), |codec| codec.deflating());
        (self.returned as usize).max(message) + others
    }

    /// Charges the connection for these messages.
    pub(super) fn keep_messages(&mut self) {
        let held = self.held_of_messages();
        if held > 0 || self.keeps_messages {
            self.keeps_messages = held > 0;
            self.writer.keep(held);
        }
    }

    pub(super) fn send(&mut self, message: Message) -> Result<(), Error> {
        if !matches!(message, Message::Close(_)) {
            self.see_drain();
        }
        let mut out = Vec::new();
        // With context takeover, the peer must get each message that was deflated, so the state is checked before.
        let mut deflated = None;
        if let Some(codec) = &mut self.codec
            && self.connection.outgoing() == State::Between
            && let Some((kind, bytes)) = message.as_data()
        {
            deflated = match codec.begin(kind, bytes.len(), || message.clone().into_data()) {
                Way::Slices => {
                    self.keep_messages();
                    return Ok(());
                }
                Way::Whole => codec.deflate(bytes).map(|deflated| (kind, deflated)),
                Way::Plain => None,
            };
        }
        if let Some((kind, deflated)) = deflated {
            out.reserve_exact(header_bytes(deflated.len(), !self.connection.is_server()) + deflated.len());
            self.connection.send_deflated(kind, &deflated, &mut out)?;
            return Ok(self.writer.queue(out.into())?);
        }
        // The exact capacity, because `Bytes` needs another allocation for a vector with more.
        let is_masked = !self.connection.is_server();
        let mut room = |bytes: &[u8]| out.reserve_exact(header_bytes(bytes.len(), is_masked) + bytes.len());
        match &message {
            Message::Text(text) if text.len() < APART_BYTES => room(text.as_bytes()),
            Message::Binary(bytes) if bytes.len() < APART_BYTES => room(bytes),
            Message::Ping(bytes) | Message::Pong(bytes) => room(bytes),
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
                // A message that is being deflated can no longer be sent.
                self.codec.iter_mut().for_each(|codec| codec.give_up());
                let (code, reason) = frame.as_ref().map_or((None, ""), |frame| (Some(frame.code), &frame.reason[..]));
                self.connection.send_close(code, reason, &mut out)?;
                self.rare().close_due = context::now_if_any().map(|now| now + CLOSE_WAIT);
                // Lets the receiver wait for this deadline.
                self.writer.wake_reader();
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
    pub(super) fn see_drain(&mut self) {
        if self.writer.ended() == Some(Ended::Draining) {
            self.close(code::GOING_AWAY, "the server stops");
        }
    }

    /// Queues a Close frame, unless one was sent before or the connection is broken.
    pub(super) fn close(&mut self, code: u16, reason: &str) {
        let _ = self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
    }

    /// Answers a Ping frame, now or when there is room.
    pub(super) fn answer(&mut self, ping: Bytes) {
        if self.writer.has_room() {
            self.rare.iter_mut().for_each(|rare| rare.ping = None);
            return self.send_pong(ping);
        }
        self.rare().ping = Some(ping);
    }

    /// Answers the last Ping frame that was not answered, if there is room. A peer that does not read its answers gets
    /// only the last one, as RFC 6455 section 5.5.3 permits.
    pub(super) fn answer_ping(&mut self, cx: &mut Context<'_>) {
        let Some(rare) = self.rare.as_mut().filter(|rare| rare.ping.is_some()) else { return };
        if self.writer.poll_room(cx).is_ready()
            && let Some(ping) = rare.ping.take()
        {
            self.send_pong(ping);
        }
    }

    fn send_pong(&mut self, ping: Bytes) {
        match self.send(Message::Pong(ping)) {
            Ok(()) | Err(Error::Unsendable(Misuse::Closed) | Error::Broken) => {}
            Err(error) => highwire_engine::log!(Mistake, error, %error, "a Pong frame cannot be sent"),
        }
    }
}
