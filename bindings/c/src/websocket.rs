//! WebSockets: the program's callback gets each message, and any thread may send.
//!
//! A socket belongs to its worker, where a future receives from it and calls the program. Messages that the program
//! sends wait in a queue, so that any thread may send them; the future takes them out as fast as the peer reads. Only
//! subscriptions use the socket itself, on its worker's thread (`SENDERS`).

use crate::backlog::Backlog;
use crate::calls::{self, highwire_call};
use crate::current::with_request_mut;
use crate::data::Data;
use crate::handles::Table;
use crate::request::highwire_request;
use crate::response;
use crate::result::{
    Failed, HIGHWIRE_AGAIN, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_REFUSED, HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD,
    bytes, failed, guarded, highwire_result, null, text_or_none,
};
use bytes::Bytes;
use highwire::ws::{
    CloseFrame, Connect, Deflate, Error, Message, Utf8Bytes, WebSocket, WebSocketReceiver, WebSocketSender,
    WebSocketUpgrade, code, is_close_code,
};
use highwire::{FromRequest, Response, StatusCode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A WebSocket: a number that is never used again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_websocket {
    /// Its number; 0 is none.
    pub id: u64,
}

/// The events that a WebSocket's callback gets, and the kinds of messages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_websocket_event {
    /// The connection is open. This is the first event, unless `HIGHWIRE_WEBSOCKET_END` is the only one.
    HIGHWIRE_WEBSOCKET_OPEN = 0,
    /// A message of text. It is UTF-8.
    HIGHWIRE_WEBSOCKET_TEXT = 1,
    /// A message of bytes.
    HIGHWIRE_WEBSOCKET_BINARY = 2,
    /// A Ping frame with at most 125 bytes. The library answers it.
    HIGHWIRE_WEBSOCKET_PING = 9,
    /// A Pong frame with at most 125 bytes.
    HIGHWIRE_WEBSOCKET_PONG = 10,
    /// There is room again after `highwire_websocket_send` has returned `HIGHWIRE_AGAIN`.
    HIGHWIRE_WEBSOCKET_ROOM = 16,
    /// The connection has ended. `code` is that of the peer's Close frame, 1005 if it has none, that of the library's
    /// own Close frame if the peer has broken the protocol or a limit, or 1006 if there was no Close frame; the bytes
    /// are the reason. This is the last event; the handle is then invalid.
    HIGHWIRE_WEBSOCKET_END = 17,
}
use highwire_websocket_event::*;

/// Is called on the thread of the connection's worker: see [`highwire_websocket_event`]. `code` is 0 except for
/// `HIGHWIRE_WEBSOCKET_END`. The bytes are valid until the callback returns.
pub type highwire_websocket_callback = Option<
    unsafe extern "C" fn(
        socket: highwire_websocket,
        event: i32,
        code: u32,
        bytes: *const c_void,
        length: usize,
        data: *mut c_void,
    ),
>;

/// The settings of a WebSocket. A value of 0 or NULL is the default.
#[repr(C)]
#[derive(Debug)]
pub struct highwire_websocket_settings {
    /// The subprotocols that the program speaks, in its order of preference, with commas between them.
    pub protocols: *const c_char,
    /// The origins of pages that may open the connection, with commas between them, such as `https://app.example`, or `*` for
    /// all. By default, only pages of the request's own host may.
    pub origins: *const c_char,
    /// The most bytes of a received message; 1 MiB by default. A longer one ends the connection.
    pub message_bytes: u64,
    /// The time in milliseconds after which a silent peer gets a Ping frame; 30,000 by default.
    pub ping_ms: u64,
    /// 1 compresses messages if the peer agrees.
    pub compress: i32,
}

/// The most bytes of a control frame (RFC 6455 section 5.5).
const CONTROL_BYTES: usize = 125;

/// The most messages that a connection sends and receives before others have their turn.
const MESSAGES_A_TURN: u32 = 64;

/// The bytes that the queue itself needs for a message.
const MESSAGE_COST: usize = size_of::<Message>();

/// The messages from the program to the connection.
struct Outbox {
    messages: Backlog<Message>,
    /// True if a Close frame is queued, or the connection has ended.
    is_closed: bool,
}

/// A connection as every thread sees it.
struct Socket {
    outbox: Mutex<Outbox>,
    callback: Callback,
    data: Data,
}

type Callback = unsafe extern "C" fn(highwire_websocket, i32, u32, *const c_void, usize, *mut c_void);

static SOCKETS: Table<highwire_websocket, Socket> = Table::new();

thread_local! {
    /// The open connections of this worker.
    static SENDERS: RefCell<HashMap<highwire_websocket, Rc<WebSocketSender>>> = RefCell::default();
}

impl Socket {
    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the waiting messages, and accepts no others.
    fn close(&self) {
        let mut outbox = self.lock();
        outbox.is_closed = true;
        let messages = outbox.messages.discard();
        drop(outbox);
        drop(messages);
    }

    fn tell(&self, handle: highwire_websocket, event: highwire_websocket_event, code: u16, bytes: &[u8]) {
        let pointer = if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr() };
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind. The bytes live
        // until it returns.
        unsafe { (self.callback)(handle, event as i32, code.into(), pointer.cast(), bytes.len(), self.data.0) };
    }
}

/// Returns a message of the program.
pub(crate) fn message(kind: i32, bytes: &[u8]) -> Result<Message, Failed> {
    let is = |event: highwire_websocket_event| kind == event as i32;
    let copy = || Bytes::copy_from_slice(bytes);
    match () {
        () if is(HIGHWIRE_WEBSOCKET_TEXT) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Message::text(text)),
            Err(_) => failed(HIGHWIRE_INVALID_ARGUMENT, "the text is not UTF-8"),
        },
        () if is(HIGHWIRE_WEBSOCKET_BINARY) => Ok(Message::Binary(copy())),
        () if is(HIGHWIRE_WEBSOCKET_PING) || is(HIGHWIRE_WEBSOCKET_PONG) => {
            if bytes.len() > CONTROL_BYTES {
                return failed(HIGHWIRE_INVALID_ARGUMENT, "a Ping or Pong frame must have at most 125 bytes");
            }
            Ok(if is(HIGHWIRE_WEBSOCKET_PING) { Message::Ping(copy()) } else { Message::Pong(copy()) })
        }
        () => failed(HIGHWIRE_INVALID_ARGUMENT, format!("{kind} is not a kind of message")),
    }
}

/// Calls `act` with the connection itself, on its worker's thread.
pub(crate) fn with_sender<R>(socket: highwire_websocket, act: impl FnOnce(&WebSocketSender) -> R) -> Result<R, Failed> {
    SOCKETS.get(socket)?;
    let Some(sender) = SENDERS.with_borrow(|senders| senders.get(&socket).cloned()) else {
        return failed(
            HIGHWIRE_WRONG_THREAD,
            "the connection is not open yet, or this is not the thread of its worker",
        );
    };
    Ok(act(&sender))
}

/// Reports the end of a connection when it is dropped: at that end, or with the response that should have opened it.
struct Ending {
    handle: highwire_websocket,
    socket: Arc<Socket>,
    /// The code of the Close frame, for the last event.
    code: u16,
    reason: Utf8Bytes,
    /// False while the function that makes it may still fail.
    is_armed: bool,
}

impl Ending {
    /// Makes a socket with its handle.
    fn new(callback: Callback, data: Data) -> Ending {
        let outbox = Outbox { messages: Backlog::new(), is_closed: false };
        let socket = Arc::new(Socket { outbox: Mutex::new(outbox), callback, data });
        let handle = SOCKETS.add(socket.clone());
        Ending { handle, socket, code: code::ABNORMAL, reason: Utf8Bytes::new(), is_armed: false }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = SENDERS.try_with(|senders| senders.borrow_mut().remove(&self.handle));
        self.socket.close();
        if self.is_armed {
            self.socket.tell(self.handle, HIGHWIRE_WEBSOCKET_END, self.code, self.reason.as_bytes());
        }
        let _ = SOCKETS.remove(self.handle);
    }
}

/// The future of a connection.
struct Serving {
    sender: Rc<WebSocketSender>,
    receiver: WebSocketReceiver,
    ending: Ending,
    is_open: bool,
}

impl Serving {
    fn new(websocket: WebSocket, mut ending: Ending) -> Serving {
        ending.reason = Utf8Bytes::new();
        let (sender, receiver) = websocket.split();
        Serving { sender: Rc::new(sender), receiver, ending, is_open: false }
    }

    /// Sends the next waiting message, if there is room.
    fn send_next(&mut self, cx: &mut Context<'_>) -> Result<Sent, Error> {
        let mut outbox = self.ending.socket.lock();
        if outbox.messages.is_empty() {
            outbox.messages.wait(cx);
            return Ok(Sent::All);
        }
        drop(outbox);
        match self.sender.poll_ready(cx) {
            Poll::Pending => return Ok(Sent::Nothing),
            Poll::Ready(ready) => ready?,
        }
        let mut outbox = self.ending.socket.lock();
        let Some(message) = outbox.messages.pop(cost) else { return Ok(Sent::One) };
        let has_room = !outbox.is_closed && outbox.messages.tells_of_room();
        drop(outbox);
        match self.sender.try_send(message) {
            Ok(()) => {}
            // The library has closed the connection, because the server stops or the peer is slow.
            Err(Error::Unsendable(_)) => {
                self.ending.socket.close();
                return Ok(Sent::One);
            }
            Err(error) => return Err(error),
        }
        if has_room {
            self.ending.socket.tell(self.ending.handle, HIGHWIRE_WEBSOCKET_ROOM, 0, &[]);
        }
        Ok(Sent::One)
    }

    fn received(&mut self, message: &Message) {
        let tell = |event, bytes: &[u8]| self.ending.socket.tell(self.ending.handle, event, 0, bytes);
        match message {
            Message::Text(text) => tell(HIGHWIRE_WEBSOCKET_TEXT, text.as_bytes()),
            Message::Binary(bytes) => tell(HIGHWIRE_WEBSOCKET_BINARY, bytes),
            Message::Ping(bytes) => tell(HIGHWIRE_WEBSOCKET_PING, bytes),
            Message::Pong(bytes) => tell(HIGHWIRE_WEBSOCKET_PONG, bytes),
            Message::Close(_) => {}
        }
    }

    /// Ends the connection after the peer's Close frame, which was answered.
    fn closed(&mut self, frame: Option<CloseFrame>) -> Poll<()> {
        self.ending.code = frame.as_ref().map_or(code::NO_STATUS, |frame| frame.code);
        self.ending.reason = frame.map(|frame| frame.reason).unwrap_or_default();
        Poll::Ready(())
    }

    fn end_with(&mut self, error: Error) -> Poll<()> {
        self.ending.code = if let Error::Refused(failure) = error { failure.code } else { code::ABNORMAL };
        self.ending.reason = error.to_string().into();
        Poll::Ready(())
    }
}

impl Future for Serving {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let serving = &mut *self;
        if !std::mem::replace(&mut serving.is_open, true) {
            SENDERS.with_borrow_mut(|senders| senders.insert(serving.ending.handle, serving.sender.clone()));
            serving.ending.socket.tell(serving.ending.handle, HIGHWIRE_WEBSOCKET_OPEN, 0, &[]);
        }
        // A program that always has another message must not block receiving or other connections.
        for _ in 0..MESSAGES_A_TURN {
            let sent = match serving.send_next(cx) {
                Ok(sent) => sent,
                Err(error) => return serving.end_with(error),
            };
            if sent == Sent::Nothing {
                // Nothing is received from a peer that does not read.
                return match serving.receiver.poll_without_messages(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(error) => serving.end_with(error),
                };
            }
            match serving.receiver.poll_recv(cx) {
                Poll::Pending if sent == Sent::All => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(Message::Close(frame)))) => return serving.closed(frame),
                Poll::Ready(Some(Ok(message))) => serving.received(&message),
                Poll::Ready(Some(Err(error))) => return serving.end_with(error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// What [`Serving::send_next`] has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing waits.
    All,
    One,
    /// There is no room, because the peer does not read.
    Nothing,
}

/// Returns the bytes that a message counts as in the queue.
fn cost(message: &Message) -> usize {
    let bytes = match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(frame) => frame.as_ref().map_or(0, |frame| frame.reason.len()),
    };
    bytes + MESSAGE_COST
}

/// The settings as Rust sees them.
#[derive(Default)]
struct Settings<'s> {
    protocols: Option<&'s str>,
    origins: Option<&'s str>,
    message_bytes: u64,
    ping_ms: u64,
    compress: bool,
}

fn list(texts: &str) -> impl Iterator<Item = &str> {
    texts.split(',').map(str::trim).filter(|text| !text.is_empty())
}

impl<'s> Settings<'s> {
    /// # Safety
    /// The pointer is NULL, or points to settings whose texts are NULL or end with a NUL, and live as long as the result.
    unsafe fn of(settings: *const highwire_websocket_settings) -> Result<Settings<'s>, Failed> {
        // SAFETY: as the caller promises.
        let Some(given) = (unsafe { settings.as_ref() }) else { return Ok(Settings::default()) };
        Ok(Settings {
            // SAFETY: as the caller promises.
            protocols: unsafe { text_or_none(given.protocols, "protocols") }?,
            // SAFETY: as the caller promises.
            origins: unsafe { text_or_none(given.origins, "origins") }?,
            message_bytes: given.message_bytes,
            ping_ms: given.ping_ms,
            compress: given.compress != 0,
        })
    }

    fn apply(&self, mut upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
        if let Some(protocols) = self.protocols {
            upgrade = upgrade.protocols(list(protocols));
        }
        for origin in self.origins.into_iter().flat_map(list) {
            upgrade = if origin == "*" { upgrade.any_origin() } else { upgrade.origin(origin) };
        }
        if self.message_bytes > 0 {
            upgrade = upgrade.max_message_size(self.message_bytes);
        }
        if self.ping_ms > 0 {
            upgrade = upgrade.ping_interval(Duration::from_millis(self.ping_ms));
        }
        if self.compress { upgrade.deflate(Deflate::new()) } else { upgrade }
    }

    fn apply_to_client(&self, mut connect: Connect) -> Connect {
        if let Some(protocols) = self.protocols {
            connect = connect.protocols(list(protocols));
        }
        if self.message_bytes > 0 {
            connect = connect.max_message_size(self.message_bytes);
        }
        if self.ping_ms > 0 {
            connect = connect.ping_interval(Duration::from_millis(self.ping_ms));
        }
        if self.compress { connect.deflate(Deflate::new()) } else { connect }
    }
}

/// Answers a request with a WebSocket, over HTTP/1 and HTTP/2. The route's method must be GET, and its handler must
/// call this function. `settings` and `out` may be NULL. The callback also gets the handle, each time; it is first
/// called after the handler has returned.
///
/// If the request does not ask for a WebSocket, or comes from a page of a foreign origin, the library answers it with
/// an error, and returns `HIGHWIRE_REFUSED`. After any other error, the program must still answer the request. After an
/// error, the callback is never called; after `HIGHWIRE_OK`, it always gets `HIGHWIRE_WEBSOCKET_END` once. A deferred
/// request cannot become a WebSocket: to look something up first, open it, and to refuse the client, close it with a
/// code of your own, such as 4401.
///
/// # Safety
/// `settings` must be NULL or point to settings whose texts are NULL or end with a NUL; `callback` must be a function of its
/// type; `out` must be NULL or point to a `highwire_websocket`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_respond_websocket(
    request: highwire_request,
    settings: *const highwire_websocket_settings,
    callback: highwire_websocket_callback,
    data: *mut c_void,
    out: *mut highwire_websocket,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return null("callback") };
        // SAFETY: as the caller promises.
        let settings = unsafe { Settings::of(settings) }?;
        let Some(upgrade) = with_request_mut(request, WebSocketUpgrade::from_request) else {
            // The request may be deferred, or the handle invalid.
            crate::current::deferred_request(request)?;
            return failed(HIGHWIRE_WRONG_STATE, "only the request's handler can open a WebSocket");
        };
        let upgrade = match upgrade {
            Ok(upgrade) => upgrade,
            Err(response) => return refuse(request, response),
        };
        let ending = Ending::new(callback, Data(data));
        let handle = ending.handle;
        let arm = Rc::new(RefCell::new(Some(ending)));
        let start = {
            let ending = arm.clone();
            move |websocket: WebSocket| {
                let ending = ending.borrow_mut().take();
                let serving = ending.map(|ending| Serving::new(websocket, ending));
                async move {
                    if let Some(serving) = serving {
                        serving.await;
                    }
                }
            }
        };
        let response = settings.apply(upgrade).on_upgrade(start);
        if response.status() == StatusCode::FORBIDDEN {
            return refuse(request, response);
        }
        if !response::answer_here(request, || response) {
            return failed(HIGHWIRE_WRONG_STATE, "the request was answered or deferred already");
        }
        if let Some(ending) = &mut *arm.borrow_mut() {
            ending.is_armed = true;
        }
        if !out.is_null() {
            // SAFETY: as the caller promises, and it is not NULL.
            unsafe { out.write(handle) };
        }
        Ok(())
    })
}

/// Sends a call as the opening handshake of a WebSocket to another server. The call's method must be GET. Its URL
/// begins with `ws:`, `wss:`, `http:` or `https:`, or is relative to the client's base URL. Its header fields are part
/// of the handshake, except `Host`, `Upgrade` and `Sec-WebSocket-…`. Its timeout, 30 seconds by default, is that of the
/// handshake. The call's handle is then invalid, even on failure. `settings` and `out` may be NULL. `origins` is
/// ignored: add a field `Origin` if the server needs one.
///
/// After `HIGHWIRE_OK`, the callback gets `HIGHWIRE_WEBSOCKET_OPEN`, or, if the WebSocket cannot be opened, only
/// `HIGHWIRE_WEBSOCKET_END` with the code 1006 and the reason as text. `highwire_websocket_close` before that does not
/// stop the attempt: it closes the connection once that is open. The callback runs on the same thread as that of
/// `highwire_call_send`; if this is another thread, maybe before this function has returned. A freed client's thread
/// runs until its WebSockets are closed.
///
/// # Safety
/// As [`highwire_respond_websocket`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_call_websocket(
    call: highwire_call,
    settings: *const highwire_websocket_settings,
    callback: highwire_websocket_callback,
    data: *mut c_void,
    out: *mut highwire_websocket,
) -> highwire_result {
    guarded(|| {
        let (place, connect) = calls::take_websocket(call)?;
        let Some(callback) = callback else { return null("callback") };
        // SAFETY: as the caller promises.
        let settings = unsafe { Settings::of(settings) };
        let connect = settings?.apply_to_client(connect);
        let mut ending = Ending::new(callback, Data(data));
        ending.is_armed = true;
        ending.reason = "the worker that opened the WebSocket has ended".into();
        if !out.is_null() {
            // SAFETY: as the caller promises, and it is not NULL.
            unsafe { out.write(ending.handle) };
        }
        place.spawn(|_| serve(connect, ending));
        Ok(())
    })
}

/// Opens a WebSocket to another server, and serves it.
async fn serve(connect: Connect, mut ending: Ending) {
    match connect.connect().await {
        Ok(websocket) => Serving::new(websocket, ending).await,
        Err(error) => ending.reason = error.to_string().into(),
    }
}

/// Answers a request that opens no WebSocket.
fn refuse(request: highwire_request, response: Response) -> Result<(), Failed> {
    let status = response.status().as_u16();
    if !response::answer_here(request, || response) {
        return failed(HIGHWIRE_WRONG_STATE, "the request was answered or deferred already");
    }
    failed(HIGHWIRE_REFUSED, format!("the request opens no WebSocket here, and was answered with {status}"))
}

/// Queues a message for the socket's peer.
fn send(socket: highwire_websocket, message: Message) -> Result<(), Failed> {
    let socket = SOCKETS.get(socket)?;
    let mut outbox = socket.lock();
    if outbox.is_closed {
        return failed(HIGHWIRE_WRONG_STATE, "the connection was closed");
    }
    let (cost, is_close) = (cost(&message), matches!(message, Message::Close(_)));
    // A Close frame always has room.
    if !is_close && !outbox.messages.has_room_for(cost) {
        return failed(HIGHWIRE_AGAIN, "too many bytes wait for the peer");
    }
    outbox.messages.push(message, cost);
    outbox.is_closed |= is_close;
    let task = outbox.messages.take_reader();
    drop(outbox);
    task.into_iter().for_each(Waker::wake);
    Ok(())
}

/// Sends a message, whose kind is `HIGHWIRE_WEBSOCKET_TEXT`, `_BINARY`, `_PING` or `_PONG`. Any thread may do that. The bytes are
/// copied.
///
/// Returns `HIGHWIRE_AGAIN` if 256 KiB wait for the peer already; the callback gets `HIGHWIRE_WEBSOCKET_ROOM` when
/// there is room, on another thread maybe before this function has returned. Waiting messages do not count against
/// `HIGHWIRE_MEMORY`.
///
/// # Safety
/// `bytes` must point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_websocket_send(
    socket: highwire_websocket,
    kind: i32,
    bytes: *const c_void,
    length: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let bytes = unsafe { self::bytes(bytes.cast(), length, "bytes") }?;
        send(socket, message(kind, bytes)?)
    })
}

/// Closes a connection after the messages that were sent before: `code` is 1000 for a normal end, or another code of
/// RFC 6455 section 7.4; `reason` has at most 123 bytes, or is NULL. The peer's messages still arrive until it has
/// closed, too.
///
/// # Safety
/// `reason` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_websocket_close(
    socket: highwire_websocket,
    code: u32,
    reason: *const c_char,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { text_or_none(reason, "reason") }?.unwrap_or_default();
        let code = u16::try_from(code).ok().filter(|&code| is_close_code(code));
        let Some(code) = code.filter(|_| reason.len() + 2 <= CONTROL_BYTES) else {
            return failed(
                HIGHWIRE_INVALID_ARGUMENT,
                "the code is not allowed in a Close frame, or the reason is longer than 123 bytes",
            );
        };
        send(socket, Message::Close(Some(CloseFrame { code, reason: reason.into() })))
    })
}
