//! The extractor of multipart forms, which returns the parts while the body is received.

use super::Limits;
use super::head::{self, Head};
use super::parser::{self, Event, Parser};
use super::spool::Spool;
use crate::body::BodyError;
use crate::message::media::MediaType;
use crate::message::problem::shortened;
use crate::message::request::{BodyUse, FromRequest, Request};
use crate::message::response::Overloaded;
use crate::{Body, IntoResponse, Problem, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

const MEDIA_TYPE: &str = "multipart/form-data";

/// An error of a multipart body or of one of its parts. It converts into a response, which is a [`Problem`] with the
/// position, or 503 with `Retry-After` for [`Fault::Busy`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MultipartError {
    /// The kind of the error.
    pub fault: Fault,
    /// The name of the part with the error, if it is known.
    pub part: Option<String>,
    /// The position in the body, in bytes.
    pub offset: u64,
}

/// The kind of a [`MultipartError`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The body is not a well-formed multipart form (400).
    Malformed(String),
    /// The body or a part exceeds one of the [`Limits`], or the `limit` of [`Part::bytes`] or [`Part::text`] (413).
    TooLarge(String),
    /// A part that must be text is not UTF-8 (422).
    NotText,
    /// A part is a file, but [`Form`](super::Form) takes only fields (422).
    File,
    /// The body was not received whole, or cannot be decoded (400, 408, 413 or 503).
    Body(BodyError),
    /// A file cannot be created or written: 507 if the disk or a quota is full, otherwise 500.
    Disk(ErrorKind),
    /// The blocking pool is full, so a file cannot be created or written (503).
    Busy,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Malformed(what) | Fault::TooLarge(what) => f.write_str(what),
            Fault::NotText => f.write_str("the part is not UTF-8"),
            Fault::File => f.write_str("the part is a file where a field is wanted"),
            Fault::Body(error) => error.fmt(f),
            Fault::Disk(kind) if is_full(*kind) => f.write_str("the server has no room left for the upload"),
            Fault::Disk(_) => f.write_str("the server cannot store the upload"),
            Fault::Busy => f.write_str("the server is overloaded"),
        }
    }
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

impl fmt::Display for MultipartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Some(part) => write!(f, "{} (part {part:?}, byte {})", self.fault, self.offset),
            None => write!(f, "{} (byte {})", self.fault, self.offset),
        }
    }
}

impl std::error::Error for MultipartError {}

impl MultipartError {
    /// Returns the status of the response for this error.
    pub fn status(&self) -> StatusCode {
        match &self.fault {
            Fault::Malformed(_) => StatusCode::BAD_REQUEST,
            Fault::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Fault::NotText | Fault::File => StatusCode::UNPROCESSABLE_ENTITY,
            Fault::Body(error) => error.status(),
            Fault::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Disk(kind) if is_full(*kind) => StatusCode::INSUFFICIENT_STORAGE,
            Fault::Disk(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<MultipartError> for Problem {
    fn from(error: MultipartError) -> Problem {
        let problem = Problem::new(error.status(), shortened(error.fault.to_string()))
            .with("in", "body")
            .with_number("offset", error.offset);
        match error.part {
            Some(part) => problem.with("field", &shortened(part)),
            None => problem,
        }
    }
}

impl IntoResponse for MultipartError {
    fn into_response(self) -> Response {
        if self.status().is_server_error() {
            highwire_engine::log!(Failure, warn, error = %self, "an upload failed");
        }
        if self.fault == Fault::Busy {
            return Overloaded.into_response();
        }
        Problem::from(self).into_response()
    }
}

/// An extractor of a multipart form, which returns the parts while the body is received.
///
/// Back-pressure reaches the peer, because the connection receives only a bounded number of bytes that the handler has
/// not read. Do not trust the names of parts and files, and do not store a file under the name that the peer sent;
/// [`Part::safe_file_name`] makes a safe one. [`Limits`] apply to the body, as does
/// [`Limits::streamed_body_bytes`](crate::server::Limits). If the body has another media type, the response is 415.
///
/// ```
/// use highwire::form::MultipartError;
/// use highwire::testing::Client;
/// use highwire::{App, Multipart};
///
/// let names = async |mut form: Multipart| {
///     let mut names = Vec::new();
///     // A part that is not read is skipped.
///     while let Some(part) = form.next().await {
///         names.push(part?.name().to_string());
///     }
///     Ok::<_, MultipartError>(names.join(", "))
/// };
/// let body = "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n\
///     --B\r\nContent-Disposition: form-data; name=b; filename=b.txt\r\n\r\n2\r\n--B--\r\n";
/// let mut client = Client::new(App::new().post("/", names))?;
/// let answer = client.post("/").header("content-type", "multipart/form-data; boundary=B").body(body).send();
/// assert_eq!(answer.text(), "a, b");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Debug)]
pub struct Multipart {
    body: Body,
    parser: Parser,
    /// True if a part was returned, and its end has not been read.
    in_part: bool,
    ended: bool,
}

/// Returns the boundary of a request's body, or the response to send if there is none.
pub(super) fn boundary(request: &Request<'_>) -> Result<String, Response> {
    let media_type = crate::message::media::of_body(request).filter(|media_type| media_type.is(MEDIA_TYPE));
    let Some(media_type) = media_type else { return Err(crate::message::media::unsupported(MEDIA_TYPE)) };
    boundary_of(&media_type)
}

pub(super) fn boundary_of(media_type: &MediaType<'_>) -> Result<String, Response> {
    let boundary = media_type.parameter("boundary");
    boundary.map(|boundary| boundary.into_owned()).ok_or_else(no_boundary)
}

fn no_boundary() -> Response {
    Problem::new(StatusCode::BAD_REQUEST, "the media type has no boundary that RFC 2046 allows")
        .with("in", "content-type")
        .into_response()
        .with_header(header::ACCEPT, HeaderValue::from_static(MEDIA_TYPE))
}

/// Creates a parser of a request's body, or returns the response to send if the boundary is invalid.
pub(super) fn parser(request: &Request<'_>, boundary: &str) -> Result<Parser, Response> {
    let limits = request.values().get::<Limits>().cloned().unwrap_or_default();
    Parser::new(boundary, limits).ok_or_else(no_boundary)
}

impl FromRequest for Multipart {
    const BODY: BodyUse = BodyUse::Parts;
    fn from_request(request: &mut Request<'_>) -> Result<Multipart, Response> {
        let parser = parser(request, &boundary(request)?)?;
        Ok(Multipart { body: request.take_parts()?, parser, in_part: false, ended: false })
    }
}

/// Returns the fault of a part with more than `limit` bytes.
pub(super) fn too_large(limit: u64) -> Fault {
    Fault::TooLarge(format!("the part is larger than {limit} bytes"))
}

/// Converts a fault of the parser into an error at the parser's position.
pub(super) fn malformed(parser: &Parser, fault: parser::Fault) -> MultipartError {
    let what = fault.to_string();
    let fault = match fault {
        parser::Fault::Delimiter | parser::Fault::Preamble | parser::Fault::CutShort => Fault::Malformed(what),
        parser::Fault::Parts | parser::Fault::Head | parser::Fault::Total => Fault::TooLarge(what),
    };
    MultipartError { fault, part: None, offset: parser.offset() }
}

/// Parses the header lines that the parser has just returned.
pub(super) fn read_head(parser: &Parser, lines: &Bytes) -> Result<Head, MultipartError> {
    let offset = parser.offset() - lines.len() as u64;
    head::parse(lines).map_err(|fault| MultipartError {
        fault: Fault::Malformed(fault.to_string()),
        part: None,
        offset,
    })
}

impl Multipart {
    /// Makes a form of a body that a handler has taken itself, and of the value of its `Content-Type`. Its limits are the
    /// defaults.
    ///
    /// # Errors
    /// Returns the response to send if the media type is another one or has no boundary.
    pub fn new(content_type: &[u8], body: Body) -> Result<Multipart, Response> {
        let media_type = std::str::from_utf8(content_type).ok().and_then(MediaType::parse);
        let Some(media_type) = media_type.filter(|media_type| media_type.is(MEDIA_TYPE)) else {
            return Err(crate::message::media::unsupported(MEDIA_TYPE));
        };
        let parser = Parser::new(&boundary_of(&media_type)?, Limits::default()).ok_or_else(no_boundary)?;
        Ok(Multipart { body, parser, in_part: false, ended: false })
    }

    /// Replaces the limits. Call it before the first call of [`next`](Self::next).
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Multipart {
        self.parser.set_limits(limits);
        self
    }

    /// Returns the next part, or `None` after the last one. Drops the unread rest of the previous part.
    ///
    /// # Errors
    /// Returns an error if the body is malformed, exceeds a limit or is not received whole. The next call returns
    /// `None`.
    pub async fn next(&mut self) -> Option<Result<Part<'_>, MultipartError>> {
        match self.advance().await {
            Ok(Some(head)) => Some(Ok(Part { multipart: self, head, bytes: 0 })),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn advance(&mut self) -> Result<Option<Head>, MultipartError> {
        while self.in_part {
            self.data().await?;
        }
        while !self.ended {
            match self.event().await? {
                Event::Head(lines) => {
                    self.in_part = true;
                    return read_head(&self.parser, &lines).map(Some).inspect_err(|_| self.end());
                }
                Event::End => {
                    self.ended = true;
                    self.leave().await?;
                }
                // None of these events occurs between parts.
                Event::Data(_) | Event::PartEnd | Event::NeedMore => {}
            }
        }
        Ok(None)
    }

    /// Reads the bytes after the last part, so that the connection can be used again. Gives up after
    /// [`Limits::head_bytes`].
    async fn leave(&mut self) -> Result<(), MultipartError> {
        let mut room = self.parser.limits().head_bytes;
        while let Some(bytes) = self.body.next().await {
            let bytes = bytes.map_err(|error| self.error(Fault::Body(error)))?;
            match room.checked_sub(bytes.len()) {
                Some(left) => room = left,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the next bytes of the current part, or `None` at its end.
    async fn data(&mut self) -> Result<Option<Bytes>, MultipartError> {
        if !self.in_part {
            return Ok(None);
        }
        match self.event().await? {
            Event::Data(data) => Ok(Some(data)),
            _ => {
                self.in_part = false;
                Ok(None)
            }
        }
    }

    async fn event(&mut self) -> Result<Event, MultipartError> {
        loop {
            let event = match self.parser.next() {
                Ok(Event::NeedMore) => match self.body.next().await {
                    Some(Ok(bytes)) => {
                        self.parser.push(bytes);
                        continue;
                    }
                    Some(Err(error)) => return Err(self.fail(Fault::Body(error))),
                    None => self.parser.finish().map(|()| Event::End),
                },
                event => event,
            };
            return event.map_err(|fault| {
                self.end();
                malformed(&self.parser, fault)
            });
        }
    }

    /// Ends the form, so that neither parts nor bytes follow.
    fn end(&mut self) {
        (self.in_part, self.ended) = (false, true);
    }

    fn error(&self, fault: Fault) -> MultipartError {
        MultipartError { fault, part: None, offset: self.parser.offset() }
    }

    fn fail(&mut self, fault: Fault) -> MultipartError {
        self.end();
        self.error(fault)
    }
}

/// A part of a form. If it is dropped before its end, [`Multipart::next`] skips the rest.
#[derive(Debug)]
pub struct Part<'m> {
    multipart: &'m mut Multipart,
    head: Head,
    bytes: u64,
}

impl Part<'_> {
    /// Returns the field's name.
    pub fn name(&self) -> &str {
        &self.head.name
    }

    /// Returns the file name that the peer sent, if the part is a file. The name may be empty, and it may be a path, so
    /// do not store the file under this name.
    pub fn file_name(&self) -> Option<&str> {
        self.head.file_name.as_deref()
    }

    /// Returns a safe name for storing the file. It is the last component of [`file_name`](Self::file_name) without
    /// characters that are special on some system and without dots and spaces at its ends, cut to at most 200 bytes.
    /// The name of a Windows device gets a `_` before it. Returns `None` if the part is no file, or if no character is
    /// left. Two files may have the same name.
    pub fn safe_file_name(&self) -> Option<String> {
        head::safe_file_name(self.file_name()?)
    }

    /// Returns the media type that the peer sent. A part without one is `text/plain` by default (RFC 7578 section 4.4).
    pub fn content_type(&self) -> Option<&str> {
        self.head.content_type.as_deref()
    }

    /// Returns the next bytes, or `None` at the part's end.
    ///
    /// # Errors
    /// Returns an error if the body is malformed, exceeds a limit or is not received whole. The next call returns
    /// `None`.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, MultipartError> {
        let chunk = self.multipart.data().await.map_err(|error| self.named(error))?;
        self.bytes += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let limit = self.multipart.parser.limits().part_bytes;
        if self.bytes > limit {
            return Err(self.too_large(limit));
        }
        Ok(chunk)
    }

    /// Returns all bytes of the part, at most `limit`.
    ///
    /// # Errors
    /// Returns an error if there are more bytes, and in the cases of [`chunk`](Self::chunk).
    pub async fn bytes(mut self, limit: usize) -> Result<Vec<u8>, MultipartError> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > limit {
                return Err(self.too_large(limit as u64));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }

    /// Returns the whole part as text, at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error if the part is not UTF-8, and in the cases of [`bytes`](Self::bytes).
    pub async fn text(self, limit: usize) -> Result<String, MultipartError> {
        let not_text = self.named(self.multipart.error(Fault::NotText));
        String::from_utf8(self.bytes(limit).await?).map_err(|_| not_text)
    }

    /// Writes the part to a new file in a folder, on the blocking pool. The file is removed when the returned handle is
    /// dropped, or after an error.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created or written, if the pool is full, and in the cases of
    /// [`chunk`](Self::chunk).
    pub async fn spool(mut self, folder: impl AsRef<Path>) -> Result<Spool, MultipartError> {
        let mut spool = Spool::create(folder.as_ref()).await.map_err(|fault| self.failed(fault))?;
        while let Some(chunk) = self.chunk().await? {
            spool = spool.write(&chunk).await.map_err(|fault| self.failed(fault))?;
        }
        spool.finish().await.map_err(|fault| self.failed(fault))
    }

    fn named(&self, error: MultipartError) -> MultipartError {
        MultipartError { part: Some(self.head.name.clone()), ..error }
    }

    fn failed(&mut self, fault: Fault) -> MultipartError {
        let error = self.multipart.fail(fault);
        self.named(error)
    }

    fn too_large(&mut self, limit: u64) -> MultipartError {
        self.failed(too_large(limit))
    }
}
