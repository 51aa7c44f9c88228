//! Forms with files, as `multipart/form-data` (RFC 7578).

use super::body::Body;
use crate::HeaderValue;
use bytes::{Bytes, BytesMut};
use highwire_io::random;

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
#[derive(Debug)]
#[must_use]
pub struct Part {
    bytes: Bytes,
    file_name: Option<String>,
    content_type: Option<HeaderValue>,
}

impl Part {
    /// Returns a field with these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Part {
        Part { bytes: bytes.into(), file_name: None, content_type: None }
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
        // The boundary must not occur in the content. Nobody can foresee 128 random bits.
        let boundary = format!("{:016x}{:016x}", random::system(), random::system());
        let mut out = BytesMut::new();
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
            out.extend_from_slice(&part.bytes);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
        (content_type.expect("hex digits are valid"), Body::from(out.freeze()))
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
