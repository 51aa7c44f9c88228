//! A response and its body.

use super::error::{Error, Kind};
use crate::{HeaderMap, HeaderName, HeaderValue, RawStream, StatusCode};
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::body::{BodyError, BodyQueue};
use highwire_engine::client::{Answer, AnswerBody};
use highwire_engine::time::{Sleep, sleep};
use highwire_io::Instant;
use highwire_proto::{Head, Version};
use http::Uri;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A response. Its head has been received; its body may still be on its way.
///
/// If it is dropped before the end of its body, the client receives a short rest, so that the connection can be used
/// again, and otherwise ends the connection or the stream.
pub struct Response {
    head: Head,
    window: Bytes,
    headers: OnceCell<HeaderMap>,
    url: Uri,
    body: Body,
    tunnel: Option<RawStream>,
    most: usize,
    stats: Stats,
}

/// Figures of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The time from [`send`](super::RequestBuilder::send) until a connection was ready and began to send the request.
    /// It contains the lookup of the name, the connection and the TLS handshake if the request had to wait for them.
    pub connection: Duration,
    /// The time from the beginning of the request to the head of the response.
    pub first_byte: Duration,
    /// The number of further attempts after lost connections.
    pub retries: usize,
    /// The number of redirects that were followed.
    pub redirects: usize,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status()).field("url", &self.url).finish_non_exhaustive()
    }
}

impl Response {
    pub(super) fn new(answer: Answer, url: Uri, most: usize, due: Option<Instant>, stats: Stats) -> Response {
        let Answer { head, window, body } = answer;
        let (body, tunnel) = match body {
            AnswerBody::Empty => (Source::Empty, None),
            AnswerBody::Whole(bytes) => (Source::Whole(bytes), None),
            AnswerBody::Parts(body) => (Source::Parts(body), None),
            AnswerBody::Tunnel(stream) => (Source::Empty, Some(stream)),
        };
        let due = due.map(|due| sleep(due - highwire_engine::context::now()));
        let body = Body { source: body, due, url: url.clone() };
        Response { head, window, headers: OnceCell::new(), url, body, tunnel, most, stats }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the version of HTTP.
    pub fn version(&self) -> http::Version {
        match self.head.version {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
            Version::Http2 => http::Version::HTTP_2,
        }
    }

    /// Returns the URL of the request, after redirects.
    pub fn uri(&self) -> &Uri {
        &self.url
    }

    /// Returns the header fields.
    pub fn headers(&self) -> &HeaderMap {
        self.headers.get_or_init(|| {
            let mut headers = HeaderMap::with_capacity(self.head.fields.len());
            for field in &self.head.fields {
                let (name, value) = (field.name.of(&self.window), field.value.of(&self.window));
                if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                    headers.append(name, value);
                }
            }
            headers
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
                let value = self.head.field(&self.window, name.as_bytes())?;
                let is_text = value.iter().all(|&byte| byte == b'\t' || (b' '..0x7f).contains(&byte));
                std::str::from_utf8(value).ok().filter(|_| is_text)
            }
        }
    }

    /// Returns the values of all header fields of this name that are printable ASCII.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let values = self.head.named(&self.window, name.as_bytes());
        values.filter_map(|value| std::str::from_utf8(value).ok()).collect()
    }

    /// Returns the announced length of the body in bytes. It is that of the encoded body, which may be decoded since.
    pub fn content_length(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// Returns the figures of the request.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the response as an error if its status is 4xx or 5xx.
    ///
    /// # Errors
    /// Returns an error with the status and the URL.
    pub fn error_for_status(self) -> Result<Response, Error> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(Error::new(Kind::Status(status), Some(&self.url)));
        }
        Ok(self)
    }

    /// Returns the whole body, if it has at most as many bytes as
    /// [`max_body_bytes`](super::ClientBuilder::max_body_bytes) allows.
    ///
    /// # Errors
    /// Returns an error if the body is longer, or is not received completely.
    pub async fn bytes(self) -> Result<Bytes, Error> {
        let (mut body, most) = (self.body, self.most);
        if let Source::Whole(bytes) = &mut body.source {
            return if bytes.len() > most { Err(body.too_large(most)) } else { Ok(std::mem::take(bytes)) };
        }
        let Some(first) = body.next().await.transpose()? else { return Ok(Bytes::new()) };
        let Some(second) = body.next().await.transpose()? else {
            return if first.len() > most { Err(body.too_large(most)) } else { Ok(first) };
        };
        let mut whole = Vec::with_capacity(first.len() + second.len());
        let mut next = Some(second);
        whole.extend_from_slice(&first);
        while let Some(part) = next {
            if whole.len() + part.len() > most {
                return Err(body.too_large(most));
            }
            whole.extend_from_slice(&part);
            next = body.next().await.transpose()?;
        }
        Ok(whole.into())
    }

    /// Returns the whole body as text. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(match String::from_utf8(bytes.into()) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// Returns the whole body as a value in JSON.
    ///
    /// # Errors
    /// Returns an error as [`bytes`](Self::bytes) does, or if the body is not JSON or does not fit the type.
    #[cfg(feature = "json")]
    pub async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, Error> {
        let url = self.url.clone();
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(Kind::Decode(format!("the response's body does not fit the type: {error}")), Some(&url))
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
        self.tunnel
    }

    /// Replaces the body with what a transform makes of it.
    #[cfg_attr(not(feature = "compress"), expect(dead_code, reason = "only compressed bodies are transformed"))]
    pub(super) fn transform_by(&mut self, transform: Box<dyn highwire_engine::body::Transform>) {
        let mut body = match std::mem::replace(&mut self.body.source, Source::Empty) {
            Source::Empty => return,
            Source::Whole(bytes) => {
                let mut queue = BodyQueue::default();
                queue.push(&bytes);
                queue.finish(Ok(()), Vec::new());
                highwire_engine::Body::new(Rc::new(RefCell::new(queue)))
            }
            Source::Parts(body) => body,
        };
        body.transform_by(transform);
        self.body.source = Source::Parts(body);
    }
}

/// The body of a [`Response`]: a stream of parts.
pub struct Body {
    source: Source,
    /// The end of the time for the whole request.
    due: Option<Sleep>,
    url: Uri,
}

enum Source {
    Empty,
    Whole(Bytes),
    Parts(highwire_engine::Body),
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
        if let Source::Parts(body) = &self.source { body.trailers() } else { Vec::new() }
    }

    fn poll_next_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let part = match &mut self.source {
            Source::Empty => return Poll::Ready(None),
            Source::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.source = Source::Empty;
                return Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)));
            }
            Source::Parts(body) => Pin::new(body).poll_next(cx),
        };
        if part.is_pending()
            && let Some(due) = &mut self.due
            && Pin::new(due).poll(cx).is_ready()
        {
            self.source = Source::Empty;
            return Poll::Ready(Some(Err(Error::new(Kind::TimedOut, Some(&self.url)))));
        }
        part.map_err(|error: BodyError| Error::new(Kind::Body(error), Some(&self.url)))
    }

    fn too_large(&self, most: usize) -> Error {
        Error::new(Kind::TooLarge(most), Some(&self.url))
    }
}

impl Stream for Body {
    type Item = Result<Bytes, Error>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_part(cx)
    }
}
