//! Server-Sent Events (WHATWG HTML, section 9.2): a stream of small messages to a browser, which reconnects
//! automatically.
//!
//! ```
//! use highwire::sse::{self, Event, LastEventId};
//! use highwire::{App, time};
//! use std::time::Duration;
//!
//! let app = App::new().get("/ticks", |LastEventId(last): LastEventId| {
//!     let (mut events, response) = sse::channel();
//!     highwire::spawn(async move {
//!         let first = last.and_then(|id| id.parse::<u64>().ok()).map_or(0, |id| id + 1);
//!         for number in first.. {
//!             let event = Event::new(format!("tick {number}")).id(number.to_string());
//!             if events.send(event).await.is_err() {
//!                 break;
//!             }
//!             time::sleep(Duration::from_secs(1)).await;
//!         }
//!     });
//!     response
//! });
//! # let _ = app;
//! ```

use crate::body::{self, PeerGone, Sender};
use crate::message::request::{FromRequest, Request};
use crate::time::{Sleep, sleep};
use crate::{HeaderName, HeaderValue, Response, header};
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::context::{Stopping, stopping};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The time without an event after which a comment is sent. The comment keeps proxies and the server's own deadline
/// from ending an idle stream.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The most bytes of a `Last-Event-ID`. A longer ID is ignored.
pub const LAST_EVENT_ID_BYTES: usize = 1024;

/// A message of an event stream.
///
/// ```
/// use highwire::App;
/// use highwire::sse::{self, Event};
/// use highwire::testing::Client;
///
/// let app = App::new().get("/news", || {
///     let (mut events, response) = sse::channel();
///     highwire::spawn(async move {
///         let _ = events.send(Event::new("two\nlines").name("headline").id("7")).await;
///         events.finish();
///     });
///     response
/// });
/// assert_eq!(Client::new(app)?.get("/news").send().text(), "data: two\ndata: lines\nevent: headline\nid: 7\n\n");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Event {
    text: String,
}

impl Event {
    /// Creates a message with data, which may have several lines.
    pub fn new(data: impl AsRef<str>) -> Event {
        Event::default().lines("data", data.as_ref())
    }

    /// Sets the type of the event that the page listens for; the default is `message`. Line ends are removed.
    pub fn name(self, name: impl AsRef<str>) -> Event {
        self.line("event", name.as_ref())
    }

    /// Sets the event's ID. A browser that reconnects sends the last ID that it received ([`LastEventId`]). Line ends
    /// and NUL are removed.
    pub fn id(self, id: impl AsRef<str>) -> Event {
        self.line("id", &id.as_ref().replace('\0', ""))
    }

    /// Sets how long the browser waits before it reconnects, in whole milliseconds.
    pub fn retry(self, after: Duration) -> Event {
        self.line("retry", &after.as_millis().to_string())
    }

    /// Adds a comment. Clients ignore it.
    pub fn comment(self, text: impl AsRef<str>) -> Event {
        self.lines("", text.as_ref())
    }

    /// Returns the event as the bytes of a stream.
    pub(crate) fn into_bytes(self) -> Bytes {
        (self.text + "\n").into()
    }

    fn line(mut self, name: &str, value: &str) -> Event {
        self.text.push_str(name);
        self.text.push_str(": ");
        self.text.extend(value.chars().filter(|character| !matches!(character, '\r' | '\n')));
        self.text.push('\n');
        self
    }

    /// Adds a field for each line of a text. CR LF, CR or LF ends a line.
    fn lines(self, name: &str, text: &str) -> Event {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        text.split('\n').fold(self, |event, line| event.line(name, line))
    }
}

/// The writing end of an event stream.
#[derive(Debug)]
pub struct Events {
    sender: Sender,
}

impl Events {
    /// Sends a message. Waits while 64 KiB ([`body::CHANNEL_BYTES`]) or more are queued.
    ///
    /// # Errors
    /// Returns an error if the peer is gone.
    pub async fn send(&mut self, event: Event) -> Result<(), PeerGone> {
        self.sender.send(event.into_bytes()).await
    }

    /// Ends the stream normally. If `Events` is dropped without this call, the response is cut short. Browsers
    /// reconnect in both cases, until a request gets a response with status 204.
    pub fn finish(self) {
        self.sender.finish();
    }
}

/// Creates an event stream. Returns its writing end for a task, and the response for the handler.
pub fn channel() -> (Events, Response) {
    let (sender, receiver) = body::channel();
    (Events { sender }, response(receiver))
}

/// Returns the response whose body is a stream of events.
pub(crate) fn response<S>(events: S) -> Response
where
    S: Stream<Item = Result<Bytes, body::BodyError>> + Unpin + 'static,
{
    Response::stream(KeptAlive { events, silence: None, stopping: stopping() })
        .with_header(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
        // Without this field, nginx buffers the response.
        .with_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
}

/// The body of an event stream, with a comment after each [`KEEP_ALIVE`] without an event.
struct KeptAlive<S> {
    events: S,
    silence: Option<Pin<Box<Sleep>>>,
    /// Ends the stream when the server stops. The page then connects again, to a server that goes on.
    stopping: Stopping,
}

impl<S: Stream<Item = Result<Bytes, body::BodyError>> + Unpin> Stream for KeptAlive<S> {
    type Item = Result<Bytes, body::BodyError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(part) = Pin::new(&mut self.events).poll_next(cx) {
            self.silence = None;
            return Poll::Ready(part);
        }
        if Pin::new(&mut self.stopping).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(KEEP_ALIVE)));
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.silence = None;
        Poll::Ready(Some(Ok(Bytes::from_static(b":\n\n"))))
    }
}

/// An extractor of the ID of the last event that a reconnecting browser has received. It is `None` if the request has
/// no such ID, or if the ID is not UTF-8 or is longer than [`LAST_EVENT_ID_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastEventId(pub Option<String>);

impl FromRequest for LastEventId {
    fn from_request(request: &mut Request<'_>) -> Result<LastEventId, Response> {
        let value = request.header("last-event-id").filter(|value| value.len() <= LAST_EVENT_ID_BYTES);
        Ok(LastEventId(value.and_then(|value| String::from_utf8(value.to_vec()).ok())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_as_browsers_read_them() {
        for (event, text) in [
            (Event::new("a"), "data: a\n"),
            (Event::new(""), "data: \n"),
            (Event::new("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n"),
            (Event::new("x").name("ev\nent").id("1\r\n\0"), "data: x\nevent: event\nid: 1\n"),
            (Event::default().retry(Duration::from_secs(2)), "retry: 2000\n"),
            (Event::default().comment("one\ntwo"), ": one\n: two\n"),
        ] {
            assert_eq!(event.text, text);
        }
    }
}
