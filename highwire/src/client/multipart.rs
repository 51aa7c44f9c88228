//! Forms with files, as `multipart/form-data` (RFC 7578).

use super::body::Body;
use crate::HeaderValue;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use highwire_engine::body::{BodyStream, BoxError};
use highwire_io::random;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A form with files.
///
/// ```
/// use highwire::client::multipart::{Form, Part};
///
/// let form = Form::new().text("title", "A photo").part("photo", Part::bytes(&b"..."[..]).file_name("p.png"));
/// # let _ = form;
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Form {
    parts: Vec<(String, Part)>,
}

/// A field of a [`Form`].
#[must_use]
pub struct Part {
    content: Content,
    file_name: Option<String>,
    content_type: Option<HeaderValue>,
}

/// The content of a field.
enum Content {
    Bytes(Bytes),
    Stream(BodyStream),
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("file_name", &self.file_name).finish_non_exhaustive()
    }
}

impl Part {
    /// Returns a field with these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Part {
        Part { content: Content::Bytes(bytes.into()), file_name: None, content_type: None }
    }

    /// Returns a field whose content is made in parts while the form is sent, such as that of a large file. The form then has no
    /// `Content-Length`, and cannot be sent again after a redirect or a lost connection.
    pub fn stream<S, E>(stream: S) -> Part
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<BoxError>,
    {
        Part { content: Content::Stream(BodyStream::new(stream)), file_name: None, content_type: None }
    }

    /// Returns a field with this text.
    pub fn text(text: impl Into<String>) -> Part {
        Part::bytes(text.into())
    }

    /// Makes the field a file of this name.
    pub fn file_name(mut self, name: impl Into<String>) -> Part {
        self.file_name = Some(name.into());
        self
    }

    /// Sets the media type; the default of a file is `application/octet-stream`.
    pub fn content_type(mut self, content_type: HeaderValue) -> Part {
        self.content_type = Some(content_type);
        self
    }
}

impl Form {
    /// Returns an empty form.
    pub fn new() -> Form {
        Form::default()
    }

    /// Adds a field with a text.
    pub fn text(self, name: impl Into<String>, text: impl Into<String>) -> Form {
        self.part(name, Part::text(text))
    }

    /// Adds a field.
    pub fn part(mut self, name: impl Into<String>, part: Part) -> Form {
        self.parts.push((name.into(), part));
        self
    }

    /// Returns the value of `Content-Type`, and the body.
    pub(super) fn into_body(self) -> (HeaderValue, Body) {
        let (content_type, mut pieces) = self.into_pieces();
        let body = match (pieces.pop_front(), pieces.is_empty()) {
            (Some(Content::Bytes(bytes)), true) => Body::from(bytes),
            (first, _) => Body::stream(Pieces(first.into_iter().chain(pieces).collect())),
        };
        (content_type, body)
    }

    /// Returns the value of `Content-Type`, and the body, if no field is a stream.
    #[cfg(feature = "testing")]
    pub(crate) fn into_bytes(self) -> Option<(HeaderValue, Bytes)> {
        let (content_type, pieces) = self.into_pieces();
        match <[Content; 1]>::try_from(Vec::from(pieces)) {
            Ok([Content::Bytes(bytes)]) => Some((content_type, bytes)),
            _ => None,
        }
    }

    /// Returns the value of `Content-Type`, and the content in its order: a stream, or all bytes up to the next stream.
    fn into_pieces(self) -> (HeaderValue, VecDeque<Content>) {
        // The boundary must not occur in the content. Nobody can foresee 128 random bits.
        let boundary = format!("{:016x}{:016x}", random::system(), random::system());
        let (mut out, mut pieces) = (BytesMut::new(), VecDeque::new());
        for (name, part) in self.parts {
            out.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
            out.extend_from_slice(format!("Content-Disposition: form-data; name=\"{}\"", quoted(&name)).as_bytes());
            if let Some(file_name) = &part.file_name {
                out.extend_from_slice(format!("; filename=\"{}\"", quoted(file_name)).as_bytes());
            }
            let default = part.file_name.is_some().then(|| HeaderValue::from_static("application/octet-stream"));
            if let Some(content_type) = part.content_type.or(default) {
                out.extend_from_slice(b"\r\nContent-Type: ");
                out.extend_from_slice(content_type.as_bytes());
            }
            out.extend_from_slice(b"\r\n\r\n");
            match part.content {
                Content::Bytes(bytes) => out.extend_from_slice(&bytes),
                stream @ Content::Stream(_) => {
                    pieces.push_back(Content::Bytes(out.split().freeze()));
                    pieces.push_back(stream);
                }
            }
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        pieces.push_back(Content::Bytes(out.freeze()));
        let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
        (content_type.expect("hex digits are valid"), pieces)
    }
}

/// A body of pieces, one after the other.
struct Pieces(VecDeque<Content>);

impl Stream for Pieces {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.0.front_mut() {
                None => return Poll::Ready(None),
                Some(Content::Bytes(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    self.0.pop_front();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Content::Stream(stream)) => match ready!(stream.poll(cx)) {
                    Some(part) => return Poll::Ready(Some(part)),
                    None => drop(self.0.pop_front()),
                },
            }
        }
    }
}

/// Escapes a name as browsers do (HTML, section 4.10.21.8).
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_field() {
        let form = Form::new().part("a\"\r\nX: y", Part::text("1").file_name("b\"c"));
        let (content_type, body) = form.into_body();
        let boundary = content_type.to_str().expect("text").split_once("boundary=").expect("a boundary").1;
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"a%22%0D%0AX: y\"; filename=\"b%22c\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n1\r\n--{boundary}--\r\n"
        );
        assert_eq!(body.as_bytes(), Some(expected.as_bytes()));
    }
}
