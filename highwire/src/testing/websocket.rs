//! WebSockets of the test client.

use super::{Client, Link, OpenResponse, RequestBuilder, Simulation, TestResponse};
use crate::ws::{CloseFrame, Message};
use highwire_io::random;
use highwire_proto::ws::{Bounds, Connection, Event, Kind, handshake};
use std::collections::VecDeque;

/// The largest message that a test receives.
const MOST_BYTES: u64 = 256 * 1024 * 1024;

impl RequestBuilder<'_> {
    /// Opens a WebSocket. Further fields, such as `Sec-WebSocket-Protocol` or `Origin`, are set by [`header`](Self::header).
    ///
    /// ```
    /// use highwire::App;
    /// use highwire::testing::Client;
    /// use highwire::ws::{Message, WebSocket};
    ///
    /// async fn echo(mut socket: WebSocket) {
    ///     while let Some(Ok(message)) = socket.recv().await {
    ///         if matches!(message, Message::Text(_)) && socket.send(message).await.is_err() {
    ///             return;
    ///         }
    ///     }
    /// }
    ///
    /// let mut client = Client::new(App::new().ws("/echo", echo))?;
    /// let mut socket = client.get("/echo").websocket();
    /// socket.send(&mut client, "hello");
    /// assert_eq!(socket.recv(&mut client), Some(Message::text("hello")));
    /// socket.send(&mut client, Message::Close(None));
    /// assert_eq!(socket.recv(&mut client), Some(Message::Close(None)));
    /// assert_eq!(socket.recv(&mut client), None);
    /// # Ok::<(), highwire::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the server refuses, with its response; [`try_websocket`](Self::try_websocket) returns it. Panics as
    /// [`open`](Self::open).
    pub fn websocket(self) -> TestWebSocket {
        self.try_websocket().unwrap_or_else(|response| panic!("the server refuses the WebSocket: {response:?}"))
    }

    /// Opens a WebSocket, as [`websocket`](Self::websocket) does.
    ///
    /// # Errors
    /// Returns the response of a server that refuses.
    ///
    /// # Panics
    /// Panics as [`open`](Self::open).
    pub fn try_websocket(self) -> Result<TestWebSocket, Box<TestResponse>> {
        let key = handshake::key([7; 16]);
        let request = self.header("upgrade", "websocket");
        let request = request.header("sec-websocket-version", "13").header("sec-websocket-key", key);
        let (client, mut open) = request.with_cookies().begin();
        open.complete(client);
        if open.answer.status() != 101 {
            return Err(Box::new(open.answer));
        }
        let accept = handshake::accept(&key).map(|accept| accept.to_vec());
        assert_eq!(accept.as_deref(), Some(open.answer.header("sec-websocket-accept").as_bytes()), "the server's key");
        let OpenResponse { link, answer, .. } = open;
        let bounds = Bounds { message_bytes: MOST_BYTES, small_frames: u32::MAX };
        let mask = || (random::system() as u32).to_le_bytes();
        let frames = Connection::client(bounds, false, mask);
        Ok(TestWebSocket { link, answer, frames, partial: Vec::new(), received: VecDeque::new(), is_over: false })
    }
}

/// A WebSocket of a test, from [`RequestBuilder::websocket`]. It answers Ping frames by itself. If a test drops it, the
/// client disconnects without a Close frame.
pub struct TestWebSocket {
    link: Link,
    answer: TestResponse,
    frames: Connection,
    /// The message that is being received.
    partial: Vec<u8>,
    received: VecDeque<Message>,
    is_over: bool,
}

impl std::fmt::Debug for TestWebSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestWebSocket").field("answer", &self.answer).finish_non_exhaustive()
    }
}

impl TestWebSocket {
    /// Returns the response to the request, such as for the subprotocol in its fields.
    pub fn response(&self) -> &TestResponse {
        &self.answer
    }

    /// Sends a message or a control frame, and lets the server work until it has nothing left to do at this moment.
    ///
    /// # Panics
    /// Panics if a Close frame was sent before.
    pub fn send(&mut self, client: &mut Client, message: impl Into<Message>) {
        let mut frames = Vec::new();
        let sent = match message.into() {
            Message::Text(text) => self.frames.send_text(&text, &mut frames),
            Message::Binary(bytes) => self.frames.send_binary(&bytes, &mut frames),
            Message::Ping(bytes) => self.frames.send_ping(&bytes, &mut frames),
            Message::Pong(bytes) => self.frames.send_pong(&bytes, &mut frames),
            Message::Close(None) => self.frames.send_close(None, "", &mut frames),
            Message::Close(Some(CloseFrame { code, reason })) => {
                self.frames.send_close(Some(code), &reason, &mut frames)
            }
        };
        sent.expect("a frame that may be sent");
        self.link.wire.send(&frames, &mut self.link.out);
        let client = client.simulation();
        while self.step(client) || !client.worker.driver().is_idle() {}
    }

    /// Returns the next message or control frame of the server, or `None` if the connection has ended. Waits in virtual time, as
    /// [`RequestBuilder::send`] does. Pings are answered and returned.
    ///
    /// # Panics
    /// Panics if nothing comes within 20 seconds of real time, or if the server sends invalid frames.
    pub fn recv(&mut self, client: &mut Client) -> Option<Message> {
        client.simulation().run_until("a message", |client| {
            let any = self.step(client);
            let message = self.received.pop_front();
            (any, if message.is_some() || self.is_over { Some(message) } else { None })
        })
    }

    /// Returns the messages and control frames that have come without a wait.
    pub fn received(&mut self, client: &mut Client) -> Vec<Message> {
        let client = client.simulation();
        while self.step(client) || !client.worker.driver().is_idle() {}
        self.received.drain(..).collect()
    }

    /// Sends and receives what is possible in one turn. Returns true if there was anything.
    fn step(&mut self, client: &mut Simulation) -> bool {
        if self.is_over {
            client.turn();
            return false;
        }
        let (any, end) = self.link.step(client);
        self.is_over = end.is_some();
        // The first frames may have come with the response.
        self.read() || any
    }

    /// Parses the received bytes. Returns true if there was a frame.
    fn read(&mut self) -> bool {
        let (mut at, mut any) = (0, false);
        loop {
            let received = self.frames.receive(&mut self.link.window[at..]).expect("the server sends valid frames");
            at += received.consumed;
            let mut answer = Vec::new();
            let message = match received.event {
                Event::NeedMore => break,
                Event::Data { kind, bytes, is_last, .. } => {
                    self.partial.extend_from_slice(bytes);
                    let whole = is_last.then(|| std::mem::take(&mut self.partial));
                    whole.map(|bytes| match kind {
                        Kind::Text => Message::text(String::from_utf8(bytes).expect("the server sends text")),
                        Kind::Binary => Message::binary(bytes),
                    })
                }
                Event::Ping(bytes) => {
                    // After our Close frame nothing more may be sent.
                    let _ = self.frames.send_pong(bytes, &mut answer);
                    Some(Message::Ping(bytes.to_vec().into()))
                }
                Event::Pong(bytes) => Some(Message::Pong(bytes.to_vec().into())),
                Event::Close { code, reason } => {
                    let _ = self.frames.send_close(code, "", &mut answer);
                    let frame = code.map(|code| CloseFrame { code, reason: reason.to_string().into() });
                    Some(Message::Close(frame))
                }
            };
            any = true;
            self.received.extend(message);
            self.link.wire.send(&answer, &mut self.link.out);
        }
        self.link.window.drain(..at);
        any
    }
}
