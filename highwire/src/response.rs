//! Responses, and what turns into one.

use crate::body::{BodyStream, Trailers};
use crate::file_part::FilePart;
use crate::upgrade::Switch;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use io::file::File;
use std::borrow::Cow;
use std::cell::{Ref, RefCell};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A response: status, fields and a body.
///
/// The engine adds `Date`, `Server`, `Content-Length` or `Transfer-Encoding`, and `Connection`; a handler that sets the
/// latter three itself is overruled, since they frame the message.
#[must_use]
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) reason: Option<Box<str>>,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    /// Fields beside those, which the answer shares with others.
    pub(crate) rendered: Option<Rc<Rendered>>,
    pub(crate) content: Content,
    pub(crate) close: bool,
}

/// Fields that many answers of a worker share: as they are, as the lines of HTTP/1, and as the whole head that was made of
/// them last.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) lines: Vec<u8>,
    head: RefCell<KeptHead>,
}

#[derive(Debug, Default)]
struct KeptHead {
    /// The second of its date, its status and the length that it announces.
    key: (u64, u16, usize),
    bytes: Vec<u8>,
}

impl Rendered {
    pub(crate) fn new(fields: Vec<(HeaderName, HeaderValue)>) -> Rc<Rendered> {
        let lines =
            fields.iter().flat_map(|(name, value)| [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        Rc::new(Rendered { lines: lines.collect::<Vec<_>>().concat(), fields, head: RefCell::default() })
    }

    /// The head that was kept, if it is still the same.
    #[inline]
    pub(crate) fn head(&self, key: (u64, u16, usize)) -> Option<Ref<'_, [u8]>> {
        let head = self.head.borrow();
        (head.key == key && !head.bytes.is_empty()).then(|| Ref::map(head, |head| &*head.bytes))
    }

    pub(crate) fn keep_head(&self, key: (u64, u16, usize), bytes: &[u8]) {
        let mut head = self.head.borrow_mut();
        head.key = key;
        head.bytes.clear();
        head.bytes.extend_from_slice(bytes);
    }
}

/// A response's body.
pub(crate) enum Content {
    Bytes(Bytes),
    Stream(Box<Streamed>),
    Switch(Box<Switch>),
}

/// A body that comes in parts.
pub(crate) struct Streamed {
    pub(crate) length: Option<u64>,
    pub(crate) body: BodyStream,
    pub(crate) trailers: Option<Trailers>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

impl Response {
    /// An empty response.
    #[inline]
    pub const fn new(status: StatusCode) -> Response {
        Response {
            status,
            reason: None,
            content_type: None,
            fields: Vec::new(),
            rendered: None,
            content: Content::Bytes(Bytes::new()),
            close: false,
        }
    }

    /// A response with the given body, `text/plain` in UTF-8.
    #[inline]
    pub fn text(text: impl Into<Cow<'static, str>>) -> Response {
        let bytes = match text.into() {
            Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
            Cow::Owned(text) => Bytes::from(text),
        };
        Response::bytes(TEXT, bytes)
    }

    /// A response with the given body, `text/html` in UTF-8.
    pub fn html(text: impl Into<Cow<'static, str>>) -> Response {
        let mut response = Response::text(text);
        response.content_type = Some("text/html; charset=utf-8");
        response
    }

    /// A response with the given body and media type.
    #[inline]
    pub fn bytes(content_type: &'static str, bytes: impl Into<Bytes>) -> Response {
        // In one piece: fields that are set afterwards would be stored twice and waited for.
        Response {
            status: StatusCode::OK,
            reason: None,
            content_type: Some(content_type),
            fields: Vec::new(),
            rendered: None,
            content: Content::Bytes(bytes.into()),
            close: false,
        }
    }

    /// A response whose body comes in parts. The stream is asked for the next part only when the peer has taken most of
    /// what came before, so a slow reader slows the producer. An error ends the connection: the peer sees that the body is
    /// cut short.
    pub fn stream<S, E>(stream: S) -> Response
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Response::streamed(None, BodyStream::new(stream))
    }

    /// As [`stream`](Self::stream), with the length announced. A body that turns out shorter or longer ends the
    /// connection.
    pub fn stream_of<S, E>(length: u64, stream: S) -> Response
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Response::streamed(Some(length), BodyStream::new(stream))
    }

    /// A response whose body is a part of an open file, without a content type. What is not in memory is fetched by the
    /// blocking pool, not by the worker. A file that turns out shorter ends the connection, as with
    /// [`stream_of`](Self::stream_of).
    ///
    /// Status, `Content-Range` and all else that says which part it is are the caller's.
    pub fn file_part(file: Arc<impl File + 'static>, range: Range<u64>) -> Response {
        Response::of_part(FilePart::new(file, range))
    }

    pub(crate) fn of_part(part: FilePart) -> Response {
        let mut response = Response::streamed(Some(part.left()), BodyStream::File(part));
        response.content_type = None;
        response
    }

    pub(crate) fn streamed(length: Option<u64>, body: BodyStream) -> Response {
        let mut response = Response::new(StatusCode::OK);
        response.content_type = Some(BINARY);
        response.content = Content::Stream(Box::new(Streamed { length, body, trailers: None }));
        response
    }

    /// Fields to send behind a streamed body, asked for when it has ended. They reach clients of HTTP/1.1 and HTTP/2, in
    /// HTTP/1.1 only where the length is not announced.
    pub fn with_trailers(mut self, trailers: impl FnOnce() -> Vec<(HeaderName, HeaderValue)> + 'static) -> Response {
        if let Content::Stream(streamed) = &mut self.content {
            streamed.trailers = Some(Box::new(trailers));
        }
        self
    }

    /// Changes the status.
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.status = status;
        self
    }

    /// Replaces the reason phrase that goes with the status.
    ///
    /// # Errors
    /// Where it has a control byte: it would end the line.
    pub fn with_reason(mut self, reason: &str) -> Result<Response, InvalidReason> {
        if reason.bytes().any(|byte| byte != b'\t' && (byte < b' ' || byte == 0x7f)) {
            return Err(InvalidReason);
        }
        self.reason = Some(reason.into());
        Ok(self)
    }

    /// Adds a field. `HeaderValue` cannot hold a line break, so no field can split a response.
    pub fn with_field(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.add_field(name, value);
        self
    }

    /// Adds a field.
    pub fn add_field(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::CONTENT_TYPE {
            self.own_fields();
            self.content_type = None;
            self.fields.retain(|(known, _)| known != header::CONTENT_TYPE);
        }
        self.fields.push((name, value));
    }

    /// Makes the fields that it shares with others its own, so that they can be seen and changed.
    pub(crate) fn own_fields(&mut self) {
        if let Some(rendered) = self.rendered.take() {
            self.fields.splice(0..0, rendered.fields.iter().cloned());
        }
    }

    /// Closes the connection after this response.
    pub fn and_close(mut self) -> Response {
        self.close = true;
        self
    }

    /// The first field of that name; the engine's own are not there yet.
    pub fn field(&self, name: &HeaderName) -> Option<&HeaderValue> {
        let shared = self.rendered.iter().flat_map(|rendered| &rendered.fields);
        shared.chain(&self.fields).find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// An error in words, as text.
    pub(crate) fn error(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Response {
        Response::text(text).with_status(status)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("fields", &self.fields).finish_non_exhaustive()
    }
}

/// A reason phrase with a control byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidReason;

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reason phrase may not hold control bytes")
    }
}

impl std::error::Error for InvalidReason {}

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as a response",
    note = "return text, bytes, a `StatusCode`, a `Json`, a `Response`, a tuple of a status and one of them, or a `Result` of two of them"
)]
pub trait IntoResponse {
    /// The response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK)
    }
}

impl IntoResponse for &'static str {
    #[inline]
    fn into_response(self) -> Response {
        Response::bytes(TEXT, Bytes::from_static(self.as_bytes()))
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        Response::bytes(TEXT, self)
    }
}

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        Response::bytes(BINARY, self)
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        Response::bytes(BINARY, self)
    }
}

impl IntoResponse for &'static [u8] {
    fn into_response(self) -> Response {
        Response::bytes(BINARY, Bytes::from_static(self))
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl<R: IntoResponse> IntoResponse for (StatusCode, R) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<R: IntoResponse, const N: usize> IntoResponse for ([(HeaderName, HeaderValue); N], R) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        self.0.into_iter().for_each(|(name, value)| response.add_field(name, value));
        response
    }
}

impl<R: IntoResponse, const N: usize> IntoResponse for (StatusCode, [(HeaderName, HeaderValue); N], R) {
    fn into_response(self) -> Response {
        (self.1, self.2).into_response().with_status(self.0)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Ok(answer) => answer.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// Nothing is `404 Not Found`.
impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        self.map_or_else(|| Response::error(StatusCode::NOT_FOUND, "not found\n"), T::into_response)
    }
}
