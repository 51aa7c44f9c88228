//! Responses: status, header fields and content.

use crate::body::{BodyError, BodyStream, Trailers};
use crate::message::file_part::FilePart;
use crate::raw::Switch;
use bytes::Bytes;
use futures_core::Stream;
use highwire_io::file::File;
use highwire_proto::Version;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::borrow::Cow;
use std::cell::{Ref, RefCell};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A response: status, header fields and a body.
///
/// The engine adds `Date` and `Server`, unless a handler has set them. It also adds `Content-Length`,
/// `Transfer-Encoding` and `Connection` as the protocol requires, and ignores these three if a handler sets them, because
/// they frame the message.
///
/// Most methods whose names begin with `with_` return the changed response. Methods whose names begin with `set_`, `add_`
/// or `remove_` change a response in place, for example in middleware.
#[must_use]
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) reason: Option<Box<str>>,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    /// Header fields that the response shares with others. They are sent before the response's own.
    pub(crate) rendered: Option<Rc<Rendered>>,
    pub(crate) content: Content,
    pub(crate) close: bool,
}

/// Header fields that many responses of a worker share: as names and values, as lines of HTTP/1, and as the last whole
/// head that was rendered with them.
#[derive(Debug)]
pub struct Rendered {
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) lines: Vec<u8>,
    head: RefCell<KeptHead>,
}

#[derive(Debug, Default)]
struct KeptHead {
    /// The date in seconds, the status, and the announced length.
    key: (u64, u16, usize),
    bytes: Vec<u8>,
}

impl Rendered {
    /// Returns the fields.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.fields
    }

    /// Renders header fields.
    pub fn new(fields: Vec<(HeaderName, HeaderValue)>) -> Rc<Rendered> {
        let lines =
            fields.iter().flat_map(|(name, value)| [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        Rc::new(Rendered { lines: lines.collect::<Vec<_>>().concat(), fields, head: RefCell::default() })
    }

    /// Returns the kept head, if it has the same key.
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
pub enum Content {
    /// Bytes.
    Bytes(Bytes),
    /// Parts that are made, or read from a file, while earlier parts are being sent.
    Stream(Box<Streamed>),
    /// No body, because another protocol takes over.
    Switch(Box<Switch>),
}

impl Content {
    /// Returns true if there is no body.
    pub fn is_empty(&self) -> bool {
        matches!(self, Content::Bytes(bytes) if bytes.is_empty())
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Bytes(bytes) => f.debug_tuple("Bytes").field(&bytes.len()).finish(),
            Content::Stream(streamed) => f.debug_tuple("Stream").field(&streamed.length).finish(),
            Content::Switch(_) => f.write_str("Switch"),
        }
    }
}

/// A body in parts.
pub struct Streamed {
    /// The length of the whole body in bytes, if it is known.
    pub length: Option<u64>,
    /// The producer of the parts.
    pub body: BodyStream,
    /// The function that makes the trailer fields.
    pub trailers: Option<Trailers>,
}

/// A name of static lifetime for [`Response::headers`], which returns references.
static CONTENT_TYPE: HeaderName = header::CONTENT_TYPE;

/// The media type of text.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// The media type of arbitrary bytes.
pub const BINARY: &str = "application/octet-stream";

impl Response {
    /// Makes a response without a body.
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

    /// Makes a response with a text, `text/plain` in UTF-8.
    #[inline]
    pub fn text(text: impl Into<Cow<'static, str>>) -> Response {
        let bytes = match text.into() {
            Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
            Cow::Owned(text) => Bytes::from(text),
        };
        Response::bytes(TEXT, bytes)
    }

    /// Makes a response with a page, `text/html` in UTF-8.
    pub fn html(text: impl Into<Cow<'static, str>>) -> Response {
        let mut response = Response::text(text);
        response.content_type = Some("text/html; charset=utf-8");
        response
    }

    /// Makes a response with a body and its media type.
    #[inline]
    pub fn bytes(content_type: &'static str, bytes: impl Into<Bytes>) -> Response {
        // One expression builds the response, because fields that are set afterwards would be stored twice (measured).
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

    /// Makes a response whose body is a stream of parts. The engine stops polling the stream while too many bytes of
    /// earlier parts wait for the peer, so a slow peer slows the producer. An error cuts the body short, and the peer
    /// sees that.
    pub fn stream<S, E>(stream: S) -> Response
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Response::streamed(None, BodyStream::new(stream))
    }

    /// Makes a streamed response as [`stream`](Self::stream) does, with an announced length in bytes. A body that is
    /// shorter or longer is cut, and the peer sees that.
    pub fn stream_of<S, E>(length: u64, stream: S) -> Response
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Response::streamed(Some(length), BodyStream::new(stream))
    }

    /// Makes a response whose body is a range of an open file, without a content type. The blocking pool, and not the
    /// worker, reads bytes that are not in memory. If the file is shorter than the range, the body is cut, as with
    /// [`stream_of`](Self::stream_of).
    ///
    /// The caller sets the status, `Content-Range` and other fields that describe the range.
    pub fn file_part(file: Arc<impl File + 'static>, range: Range<u64>) -> Response {
        Response::of_part(FilePart::new(file, range))
    }

    /// Makes a response whose body is a range of an open file, without a content type.
    pub fn of_part(part: FilePart) -> Response {
        let (length, body) = (Some(part.left()), BodyStream::File(part));
        Response::with_content(Content::Stream(Box::new(Streamed { length, body, trailers: None })))
    }

    fn streamed(length: Option<u64>, body: BodyStream) -> Response {
        let mut response = Response::with_content(Content::Stream(Box::new(Streamed { length, body, trailers: None })));
        response.content_type = Some(BINARY);
        response
    }

    /// Makes a response with this content, without a content type.
    pub fn with_content(content: Content) -> Response {
        let mut response = Response::new(StatusCode::OK);
        response.content = content;
        response
    }

    /// Returns the content that follows the head.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns a mutable reference to the content.
    pub fn content_mut(&mut self) -> &mut Content {
        &mut self.content
    }

    /// Sets a function that makes the trailer fields after a streamed body has ended. They reach clients of HTTP/2, and
    /// of HTTP/1.1 if no length is announced. Does nothing for a body of bytes.
    pub fn with_trailers(mut self, trailers: impl FnOnce() -> Vec<(HeaderName, HeaderValue)> + 'static) -> Response {
        if let Content::Stream(streamed) = &mut self.content {
            streamed.trailers = Some(Box::new(trailers));
        }
        self
    }

    /// Handles a streamed body with an announced length of 0. Removes the length if there are trailers, because no
    /// trailers could follow such a body in HTTP/1. Otherwise replaces the body with empty bytes.
    pub(crate) fn make_room_for_trailers(&mut self) {
        if let Content::Stream(streamed) = &mut self.content
            && streamed.length == Some(0)
        {
            match streamed.trailers {
                Some(_) => streamed.length = None,
                None => self.content = Content::Bytes(Bytes::new()),
            }
        }
    }

    /// Sets the status.
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.status = status;
        self
    }

    /// Sets the status.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// Replaces the reason phrase of the status line in HTTP/1.
    ///
    /// # Errors
    /// Returns an error if the phrase has a control byte other than a tab, because such a byte could end the line.
    pub fn with_reason(mut self, reason: &str) -> Result<Response, InvalidReason> {
        if reason.bytes().any(|byte| byte != b'\t' && (byte < b' ' || byte == 0x7f)) {
            return Err(InvalidReason);
        }
        self.reason = Some(reason.into());
        Ok(self)
    }

    /// Adds a header field as [`add_header`](Self::add_header) does. `HeaderValue` cannot hold a line break, so no field
    /// can split a response.
    #[doc(alias = "with_field")]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.add_header(name, value);
        self
    }

    /// Adds a header field after those of the same name. `Content-Type` is replaced, because a response has only one.
    #[doc(alias = "add_field")]
    pub fn add_header(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::CONTENT_TYPE {
            self.remove_header(&name);
        }
        self.fields.push((name, value));
    }

    /// Sets a header field and removes all others of the same name.
    #[doc(alias = "set_field")]
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove_header(&name);
        self.fields.push((name, value));
    }

    /// Removes all header fields with this name. Fields that the engine adds, such as `Date`, cannot be removed,
    /// because the engine adds them when it sends the response.
    #[doc(alias = "remove_field")]
    pub fn remove_header(&mut self, name: &HeaderName) {
        self.own_headers();
        if name == header::CONTENT_TYPE {
            self.content_type = None;
        }
        self.fields.retain(|(known, _)| known != name);
    }

    /// Sets the header fields that the response shares with others. They are sent before the response's own.
    pub fn share_headers(&mut self, fields: Rc<Rendered>) {
        self.rendered = Some(fields);
    }

    /// Copies the shared header fields into the response's own fields, so that they can be changed, and returns all of
    /// these. The content type that [`bytes`](Self::bytes) and similar functions set is not among them.
    pub fn own_headers(&mut self) -> &mut Vec<(HeaderName, HeaderValue)> {
        if let Some(rendered) = self.rendered.take() {
            self.fields.splice(0..0, rendered.fields.iter().cloned());
        }
        &mut self.fields
    }

    /// Takes all header fields out of the response, its content type first.
    pub fn take_headers(&mut self) -> HeaderMap {
        self.own_headers();
        let mut headers = HeaderMap::with_capacity(self.fields.len() + 2);
        if let Some(content_type) = self.content_type.take() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for (name, value) in self.fields.drain(..) {
            headers.append(name, value);
        }
        headers
    }

    /// Takes over what the types of the crate `http` do not carry: that the connection closes after `other`, and its reason
    /// phrase, unless this response has another status.
    pub fn take_over(&mut self, other: Response) {
        self.close |= other.close;
        if self.status == other.status {
            self.reason = other.reason;
        }
    }

    /// Drops the content if the status forbids it: 204, 205 and 304 (RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5). A
    /// 304 then announces no length, because clients would take it for the length of the unchanged content (section
    /// 8.6).
    #[inline]
    pub(crate) fn drop_forbidden_content(&mut self) {
        if matches!(self.status.as_u16(), 204 | 205 | 304) && !matches!(self.content, Content::Switch(_)) {
            self.content = Content::Bytes(Bytes::new());
        }
    }

    /// Makes the engine close the connection after this response, unless it is an HTTP/2 connection, which has other
    /// streams.
    pub fn and_close_http1(self, version: Version) -> Response {
        if version == Version::Http2 { self } else { self.and_close() }
    }

    /// Makes the engine close the connection after this response.
    pub fn and_close(mut self) -> Response {
        self.close = true;
        self
    }

    /// Returns the value of the first header field of that name. Fields that the engine adds later are not included.
    #[doc(alias = "field")]
    pub fn header(&self, name: &HeaderName) -> Option<&[u8]> {
        self.headers().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the names and values of the response's header fields, in the order in which they are sent. Fields that
    /// the engine adds later are not included.
    #[doc(alias = "fields")]
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let content_type = self.content_type.map(|value| (&CONTENT_TYPE, value.as_bytes()));
        let shared = self.rendered.iter().flat_map(|rendered| &rendered.fields);
        content_type.into_iter().chain(shared.chain(&self.fields).map(|(name, value)| (name, value.as_bytes())))
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Makes a response with a status and a text, for errors.
    pub fn error(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Response {
        Response::text(text).with_status(status)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<_> = self.headers().map(|(name, value)| (name, value.escape_ascii().to_string())).collect();
        f.debug_struct("Response").field("status", &self.status).field("fields", &fields).finish_non_exhaustive()
    }
}

/// The error of a reason phrase with a control byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidReason;

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reason phrase must not contain control bytes")
    }
}

impl std::error::Error for InvalidReason {}

/// Makes the answer to a body that was not received completely or cannot be decoded: 400, 408, 413 or 503, with the
/// reason.
impl From<BodyError> for Response {
    fn from(error: BodyError) -> Response {
        let response = Response::error(error.status(), format!("{error}\n"));
        match error {
            BodyError::NoMemory => response.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")),
            _ => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the header fields of a response as text.
    fn all(response: &Response) -> String {
        let said = |(name, value): (&HeaderName, &[u8])| format!("{name}: {}, ", value.escape_ascii());
        response.headers().map(said).collect()
    }

    #[test]
    fn fields_are_added_set_and_removed_wherever_they_are_kept() {
        type Change = fn(&mut Response);
        const VARY: HeaderName = header::VARY;
        let value = HeaderValue::from_static;
        let own = || Response::bytes("text/css", "").with_header(VARY, value("accept"));
        let shared = || {
            let mut response = Response::new(StatusCode::OK);
            let fields = vec![(header::CONTENT_TYPE, value("text/css")), (VARY, value("accept"))];
            response.rendered = Some(Rendered::new(fields));
            response
        };
        let add: Change = |r| r.add_header(VARY, HeaderValue::from_static("origin"));
        let set: Change = |r| r.set_header(VARY, HeaderValue::from_static("*"));
        let remove: Change = |r| r.remove_header(&VARY);
        let add_type: Change = |r| r.add_header(header::CONTENT_TYPE, HeaderValue::from_static("a/b"));
        let set_type: Change = |r| r.set_header(header::CONTENT_TYPE, HeaderValue::from_static("a/b"));
        let remove_type: Change = |r| r.remove_header(&header::CONTENT_TYPE);
        for (changes, expected) in [
            (&[][..], "content-type: text/css, vary: accept, "),
            (&[add], "content-type: text/css, vary: accept, vary: origin, "),
            (&[set], "content-type: text/css, vary: *, "),
            (&[add, set], "content-type: text/css, vary: *, "),
            (&[add, remove], "content-type: text/css, "),
            (&[remove_type], "vary: accept, "),
            (&[set_type], "vary: accept, content-type: a/b, "),
            (&[add_type], "vary: accept, content-type: a/b, "),
            (&[add_type, add_type, remove], "content-type: a/b, "),
        ] {
            for mut response in [own(), shared()] {
                changes.iter().for_each(|change| change(&mut response));
                assert_eq!(all(&response), expected);
            }
        }
        for response in [own(), shared()] {
            assert_eq!(response.header(&header::CONTENT_TYPE), Some(&b"text/css"[..]));
            assert_eq!((response.header(&VARY), response.header(&header::ETAG)), (Some(&b"accept"[..]), None));
        }
    }
}
