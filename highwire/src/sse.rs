//! Server-Sent Events (WHATWG HTML, section 9.2): a stream of small messages that browsers read and reconnect to by
//! themselves.
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

use crate::body::{self, PeerGone, Receiver, Sender};
use crate::request::{FromRequest, Request};
use crate::time::{Sleep, sleep};
use crate::{HeaderName, HeaderValue, Response, header};
use bytes::Bytes;
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// After so long without an event a comment is sent, so that nobody on the way, nor our own deadline, takes the silence for
/// the end.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes of the longest `Last-Event-ID` that is taken.
pub const LAST_EVENT_ID_BYTES: usize = 1024;

/// A message.
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
    /// A message with data, which may have several lines.
    pub fn new(data: impl AsRef<str>) -> Event {
        Event::default().lines("data", data.as_ref())
    }

    /// The kind of message that a page listens for; without it, `message`. Line ends are left out.
    pub fn name(self, name: impl AsRef<str>) -> Event {
        self.line("event", name.as_ref())
    }

    /// What a browser that reconnects says it has seen last ([`LastEventId`]). Line ends and NUL are left out.
    pub fn id(self, id: impl AsRef<str>) -> Event {
        self.line("id", &id.as_ref().replace('\0', ""))
    }

    /// How long a browser waits before it reconnects.
    pub fn retry(self, after: Duration) -> Event {
        self.line("retry", &after.as_millis().to_string())
    }

    /// What nobody is told.
    pub fn comment(self, text: impl AsRef<str>) -> Event {
        self.lines("", text.as_ref())
    }

    fn line(mut self, name: &str, value: &str) -> Event {
        self.text.push_str(name);
        self.text.push_str(": ");
        self.text.extend(value.chars().filter(|character| !matches!(character, '\r' | '\n')));
        self.text.push('\n');
        self
    }

    /// Each line by itself, whatever ends it: CR LF, CR or LF.
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
    /// Sends a message, as soon as the peer has taken most of what came before.
    ///
    /// # Errors
    /// Where the peer is gone.
    pub async fn send(&mut self, event: Event) -> Result<(), PeerGone> {
        let mut text = event.text;
        text.push('\n');
        self.sender.send(text).await
    }

    /// Ends the stream in order. Browsers reconnect all the same; 204 in answer to that tells them not to. Dropped without
    /// this, the stream is cut.
    pub fn finish(self) {
        self.sender.finish();
    }
}

/// An event stream: the end that a task writes to, and the response.
pub fn channel() -> (Events, Response) {
    let (sender, receiver) = body::channel();
    let response = Response::stream(KeptAlive { receiver, silence: None })
        .with_header(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
        // nginx collects what it passes on, unless it is told not to.
        .with_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (Events { sender }, response)
}

/// Events, and comments where there are none for long.
struct KeptAlive {
    receiver: Receiver,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Stream for KeptAlive {
    type Item = Result<Bytes, crate::body::BodyError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(part) = Pin::new(&mut self.receiver).poll_next(cx) {
            self.silence = None;
            return Poll::Ready(part);
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(KEEP_ALIVE)));
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.silence = None;
        Poll::Ready(Some(Ok(Bytes::from_static(b":\n\n"))))
    }
}

/// What a browser that reconnects has seen last: an extractor.
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
