//! Decodes the bodies of responses.

use super::error::{Error, Kind};
use super::response::Response;
use crate::compress::{Coding, decoding};
use http::{HeaderValue, header};

/// The value of `Accept-Encoding`.
pub(super) const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, deflate, br, zstd");

/// The most codings of a body.
const MOST_CODINGS: usize = 2;

/// Lets a response's body be decoded as it is read, if it is encoded. Removes `Content-Encoding` and `Content-Length`. The
/// decoded body has at most `most` bytes.
pub(super) fn decode(response: &mut Response, most: usize) -> Result<(), Error> {
    let mut codings = Vec::new();
    let values = response.all("content-encoding").filter_map(|value| std::str::from_utf8(value).ok());
    for name in values.flat_map(|value| value.split(',')).map(str::trim) {
        if name.is_empty() || name.eq_ignore_ascii_case("identity") {
            continue;
        }
        match Coding::of(name.as_bytes()) {
            Some(coding) if codings.len() < MOST_CODINGS => codings.push(coding),
            Some(_) => {
                let text = format!("the response's body has more than {MOST_CODINGS} codings");
                return Err(Error::new(Kind::Decode(text), Some(response.url())));
            }
            // A body with a coding that was not asked for stays as it is.
            None => return Ok(()),
        }
    }
    if !codings.is_empty() {
        response.transform_by(decoding(codings, most as u64));
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
    }
    Ok(())
}
