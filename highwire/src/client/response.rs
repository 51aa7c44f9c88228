//! A response and its body.

use super::error::{Error, Kind};
use super::url::Url;
use crate::{HeaderMap, HeaderName, HeaderValue, RawStream, StatusCode};
use bytes::Bytes;
use futures_core::Stream;
#[cfg(feature = "compress")]
use highwire_engine::body::BodyQueue;
use highwire_engine::body::{BodyError, Whole};
use highwire_engine::client::{Answer, AnswerBody, Moments};
use highwire_engine::context;
use highwire_engine::time::{Sleep, sleep};
use highwire_io::Instant;
use highwire_proto::Version;
use http::{Uri, header};
use std::borrow::Cow;
use std::cell::OnceCell;
#[cfg(feature = "compress")]
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A response. Its head has been received; its body may still be on its way.
///
/// If it is dropped before the end of its body, the client receives up to 64 KiB of the rest, so that the connection
/// can be used again, and if more is left, ends the connection or the stream.
pub struct Response {
    /// The head. The body was taken out.
    answer: Box<Answer>,
    headers: OnceCell<Box<HeaderMap>>,
    body: Body,
    most: usize,
}

/// Figures of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The time from [`send`](super::RequestBuilder::send) until a connection was ready and began to send the request.
    /// It contains the lookup of the name, the connection and the TLS handshake if the request had to wait for them.
    pub connection: Duration,
    /// The time of the lookup of the name, zero if the request did not open its connection.
    pub resolve: Duration,
    /// The time to connect, including the exchange with a proxy; zero if the request did not open its connection.
    pub connect: Duration,
    /// The time of the TLS handshake, zero if the request did not open its connection or needs no TLS.
    pub handshake: Duration,
    /// The time from the moment at which the connection began to send the request to the head of the response.
    pub first_byte: Duration,
    /// The time from [`send`](super::RequestBuilder::send), over all attempts and redirects, to the last part of the response's
    /// body that was taken, or to the head if none was.
    pub total: Duration,
    /// The number of bytes of the response's body that were taken so far, after decoding.
    pub body_bytes: u64,
    /// The number of further attempts after lost connections.
    pub retries: usize,
    /// The number of redirects that were followed.
    pub redirects: usize,
}

/// What [`Stats`] is made from.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The beginning of the first attempt, and that of the last.
    pub(super) begun: Instant,
    pub(super) attempt: Instant,
    pub(super) moments: Moments,
    /// The moment at which the last part of the body was taken, and the number of bytes so far.
    taken: Option<Instant>,
    body_bytes: u64,
    pub(super) retries: u32,
    pub(super) redirects: u32,
}

impl Figures {
    pub(super) fn new() -> Figures {
        let now = context::now();
        Figures { begun: now, attempt: now, ..Figures::default() }
    }

    pub(super) fn stats(&self) -> Stats {
        let Moments { begun, answered, opening } = &self.moments;
        let opening = opening.as_deref().copied().unwrap_or_default();
        Stats {
            connection: *begun - self.attempt,
            resolve: opening.resolve,
            connect: opening.connect,
            handshake: opening.handshake,
            first_byte: *answered - *begun,
            total: self.taken.unwrap_or(*answered) - self.begun,
            body_bytes: self.body_bytes,
            retries: self.retries as usize,
            redirects: self.redirects as usize,
        }
    }

    fn take(&mut self, bytes: usize) {
        self.body_bytes += bytes as u64;
        // A poll after the end takes nothing.
        if bytes > 0 || self.taken.is_none() {
            self.taken = context::now_if_any().or(self.taken);
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status()).field("url", &self.body.url).finish_non_exhaustive()
    }
}

impl Response {
    pub(super) fn new(
        mut answer: Box<Answer>,
        url: Rc<Url>,
        most: usize,
        due: Option<Instant>,
        figures: Figures,
    ) -> Response {
        let source = std::mem::replace(&mut answer.body, AnswerBody::Empty);
        let due = due.map(|due| Box::new(sleep(due - highwire_engine::context::now())));
        Response { answer, headers: OnceCell::new(), body: Body { source, due, url, figures }, most }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.answer.head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the version of HTTP.
    pub fn version(&self) -> http::Version {
        match self.answer.head.version {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
            Version::Http2 => http::Version::HTTP_2,
        }
    }

    /// Returns the URL of the request, after redirects.
    pub fn uri(&self) -> &Uri {
        self.body.url.uri()
    }

    /// Returns the header fields.
    pub fn headers(&self) -> &HeaderMap {
        self.headers.get_or_init(|| {
            let mut headers = HeaderMap::with_capacity(self.answer.head.fields.len());
            for field in &self.answer.head.fields {
                let (name, value) = (field.name.of(&self.answer.window), field.value.of(&self.answer.window));
                if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                    headers.append(name, value);
                }
            }
            Box::new(headers)
        })
    }

    /// Changes the header fields, for middleware.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers();
        self.headers.get_mut().expect("the line above has set it")
    }

    /// Returns the value of the first header field of this name, if it is printable ASCII. It is faster than
    /// [`headers`](Self::headers) for a few fields.
    pub fn header(&self, name: &str) -> Option<&str> {
        match self.headers.get() {
            Some(headers) => headers.get(name)?.to_str().ok(),
            None => {
                let value = self.answer.head.field(&self.answer.window, name.as_bytes())?;
                let is_text = value.iter().all(|&byte| byte == b'\t' || (b' '..0x7f).contains(&byte));
                std::str::from_utf8(value).ok().filter(|_| is_text)
            }
        }
    }

    /// Returns the reference in `Location`. Bytes outside of ASCII, which some servers send, are percent-encoded, as browsers
    /// do it.
    pub(super) fn location(&self) -> Option<Cow<'_, str>> {
        let value = match self.headers.get() {
            Some(headers) => headers.get(header::LOCATION)?.as_bytes(),
            None => self.answer.head.field(&self.answer.window, b"location")?,
        };
        Some(percent_encoding::percent_encode(value, percent_encoding::CONTROLS).into())
    }

    /// Returns the values of all header fields of this name.
    #[cfg(any(feature = "compress", feature = "cookie-jar"))]
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &[u8]> {
        self.answer.head.named(&self.answer.window, name.as_bytes())
    }

    /// Returns the announced length of the body in bytes. It is that of the encoded body, even if the body is decoded.
    pub fn content_length(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// Returns the figures of the request so far. After [`collect`](Self::collect), they are complete.
    pub fn stats(&self) -> Stats {
        self.body.stats()
    }

    /// Returns the response as an error if its status is 4xx or 5xx.
    ///
    /// # Errors
    /// Returns an error with the status and the URL.
    pub fn error_for_status(self) -> Result<Response, Error> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(Error::new(Kind::Status(status), Some(&self.body.url)));
        }
        Ok(self)
    }

    /// Returns the whole body, if it has at most as many bytes as
    /// [`max_body_bytes`](super::ClientBuilder::max_body_bytes) allows.
    ///
    /// # Errors
    /// Returns an error if the body is longer, or is not received completely.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        self.collect().await
    }

    /// Returns the whole body, as [`bytes`](Self::bytes) does, and leaves the response for its trailers and figures.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub async fn collect(&mut self) -> Result<Bytes, Error> {
        self.whole().await.map(Bytes::from)
    }

    async fn whole(&mut self) -> Result<Whole, Error> {
        let is_long = matches!(self.body.source, AnswerBody::Parts(_))
            && self.content_length().is_some_and(|announced| announced > self.most as u64);
        let (most, body) = (self.most, &mut self.body);
        let whole = match &mut body.source {
            AnswerBody::Empty | AnswerBody::Tunnel(_) => Ok(Whole::Buffer(Vec::new())),
            AnswerBody::Whole(bytes) if bytes.len() <= most => Ok(Whole::Bytes(std::mem::take(bytes))),
            AnswerBody::Parts(_) if !is_long => poll_fn(|cx| body.poll_whole(most, cx)).await,
            AnswerBody::Whole(_) | AnswerBody::Parts(_) => Err(Kind::TooLarge(most)),
        };
        let whole = whole.map_err(|kind| Error::new(kind, Some(&body.url)))?;
        body.figures.take(whole.len());
        Ok(whole)
    }

    /// Returns the whole body as text. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub async fn text(mut self) -> Result<String, Error> {
        Ok(text(self.whole().await?.into()))
    }

    /// Returns the whole body as a value in JSON.
    ///
    /// # Errors
    /// Returns an error as [`bytes`](Self::bytes) does, or if the body is not JSON or does not fit the type.
    #[cfg(feature = "json")]
    pub async fn json<T: serde::de::DeserializeOwned>(mut self) -> Result<T, Error> {
        let body = self.collect().await?;
        self.decode_json(&body)
    }

    #[cfg(feature = "json")]
    pub(super) fn decode_json<T: serde::de::DeserializeOwned>(&self, body: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(body).map_err(|error| {
            let text = format!("the response's body does not fit the type: {error}");
            Error::new(Kind::Decode(text), Some(&self.body.url))
        })
    }

    /// Waits for the next part of the body and returns it, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the body is not received completely.
    #[doc(alias = "chunk")]
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        self.body.next().await
    }

    /// Polls for the time limit of the whole request, for a task that waits for something else than the next part. When
    /// the limit has passed, drops the rest of the body. Never ready without
    /// [`RequestBuilder::timeout`](super::RequestBuilder::timeout) or
    /// [`ClientBuilder::timeout`](super::ClientBuilder::timeout).
    pub fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if self.body.is_late(cx) { Poll::Ready(self.body.timed_out()) } else { Poll::Pending }
    }

    /// Returns the trailers. There are none before the end of the body.
    pub fn trailers(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.body.trailers()
    }

    /// Returns the body alone, as a stream of parts.
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Returns the stream of the other protocol, if the server has accepted one: after
    /// [`upgrade`](super::RequestBuilder::upgrade) or CONNECT.
    pub fn upgrade(self) -> Option<RawStream> {
        if let AnswerBody::Tunnel(stream) = self.body.source { Some(stream) } else { None }
    }

    /// Returns the URL of the request, for errors.
    #[cfg(feature = "compress")]
    pub(super) fn url(&self) -> &Rc<Url> {
        &self.body.url
    }

    /// Returns the figures, for the following request to continue.
    pub(super) fn into_figures(self) -> Figures {
        self.body.figures
    }

    /// Replaces the body with what a transform makes of it.
    #[cfg(feature = "compress")]
    pub(super) fn transform_by(&mut self, transform: Box<dyn highwire_engine::body::Transform>) {
        let mut body = match std::mem::replace(&mut self.body.source, AnswerBody::Empty) {
            AnswerBody::Whole(bytes) => {
                let mut queue = BodyQueue::default();
                queue.push(&bytes);
                queue.finish(Ok(()), Vec::new());
                highwire_engine::Body::new(Rc::new(RefCell::new(queue)))
            }
            AnswerBody::Parts(body) => body,
            other => {
                self.body.source = other;
                return;
            }
        };
        body.transform_by(transform);
        self.body.source = AnswerBody::Parts(body);
    }
}

/// Returns a body as text. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn text(body: Vec<u8>) -> String {
    match String::from_utf8(body) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// The body of a [`Response`]: a stream of parts.
pub struct Body {
    source: AnswerBody,
    /// The end of the time for the whole request.
    due: Option<Box<Sleep>>,
    url: Rc<Url>,
    figures: Figures,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl Body {
    /// Waits for the next part and returns it, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the body is not received completely.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        poll_fn(|cx| self.poll_next_part(cx)).await
    }

    /// Returns the trailers. There are none before the end of the body.
    pub fn trailers(&self) -> Vec<(HeaderName, HeaderValue)> {
        if let AnswerBody::Parts(body) = &self.source { body.trailers() } else { Vec::new() }
    }

    /// Returns the figures of the request so far.
    pub fn stats(&self) -> Stats {
        self.figures.stats()
    }

    /// Drops the rest of the body, with its trailers.
    #[cfg(feature = "tower")]
    pub(super) fn drop_safely(&mut self) {
        self.source = AnswerBody::Empty;
    }

    /// Returns the length of a body that has been received whole.
    #[cfg(feature = "tower")]
    pub(super) fn whole_length(&self) -> Option<usize> {
        match &self.source {
            AnswerBody::Empty => Some(0),
            AnswerBody::Whole(bytes) => Some(bytes.len()),
            AnswerBody::Parts(_) | AnswerBody::Tunnel(_) => None,
        }
    }

    pub(super) fn poll_next_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let part = match &mut self.source {
            AnswerBody::Empty | AnswerBody::Tunnel(_) => return Poll::Ready(None),
            AnswerBody::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.source = AnswerBody::Empty;
                self.figures.take(bytes.len());
                return Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)));
            }
            AnswerBody::Parts(body) => Pin::new(body).poll_next(cx),
        };
        if part.is_pending() && self.is_late(cx) {
            return Poll::Ready(Some(Err(self.timed_out())));
        }
        if let Poll::Ready(part) = &part {
            self.figures.take(part.as_ref().map_or(0, |part| part.as_ref().map_or(0, Bytes::len)));
        }
        part.map_err(|error: BodyError| Error::new(Kind::Body(error), Some(&self.url)))
    }

    /// Polls for the whole of a body that comes in parts.
    fn poll_whole(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<Result<Whole, Kind>> {
        let AnswerBody::Parts(body) = &mut self.source else { return Poll::Ready(Ok(Whole::Buffer(Vec::new()))) };
        let whole = body.poll_whole(most, cx);
        if whole.is_pending() && self.is_late(cx) {
            return Poll::Ready(Err(Kind::TimedOut));
        }
        whole.map_err(|error| if error == BodyError::TooLarge { Kind::TooLarge(most) } else { Kind::Body(error) })
    }

    fn timed_out(&self) -> Error {
        Error::new(Kind::TimedOut, Some(&self.url))
    }

    /// Returns true if the time for the whole request has passed, and then drops the body.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let is_late = self.due.as_mut().is_some_and(|due| Pin::new(&mut **due).poll(cx).is_ready());
        if is_late {
            self.source = AnswerBody::Empty;
        }
        is_late
    }
}

impl Stream for Body {
    type Item = Result<Bytes, Error>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_part(cx)
    }
}
