//! Header fields as types, with the crate `headers`.

use crate::message::request::{FromRequest, OptionalFromRequest, Request};
use crate::{IntoResponse, IntoResponseParts, Problem, Response};
use headers::{Header, HeaderMapExt};
use http::{HeaderMap, HeaderValue, StatusCode};

/// A header field as a type of the crate [`headers`]: an extractor, and a part of a response.
///
/// Responds with 400 if the field is missing or malformed. `Option<TypedHeader<H>>` is `None` if it is missing.
///
/// ```
/// use highwire::headers::{CacheControl, UserAgent};
/// use highwire::testing::Client;
/// use highwire::{App, TypedHeader};
/// use std::time::Duration;
///
/// let agent = |TypedHeader(agent): TypedHeader<UserAgent>| {
///     (TypedHeader(CacheControl::new().with_max_age(Duration::from_secs(60))), agent.to_string())
/// };
/// let mut client = Client::new(App::new().get("/", agent))?;
/// let answer = client.get("/").header("user-agent", "test").send();
/// assert_eq!((answer.text(), answer.header("cache-control")), ("test", "max-age=60"));
/// assert_eq!(client.get("/").send().status(), 400);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypedHeader<H>(pub H);

/// Returns the values of a field.
fn values(request: &Request<'_>, name: &str) -> Vec<HeaderValue> {
    let fields = request.headers().filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let mut values: Vec<_> = fields.filter_map(|value| HeaderValue::from_bytes(value).ok()).collect();
    if name == "host" {
        // The target may name it, too (RFC 9112 section 3.3), and on HTTP/2 it is not in a field.
        let authority = Some(request.authority()).filter(|authority| !authority.is_empty());
        values = authority.and_then(|authority| HeaderValue::from_str(authority).ok()).into_iter().collect();
    }
    values
}

fn refused(name: &str, fault: &str) -> Response {
    Problem::new(StatusCode::BAD_REQUEST, format!("the header field {name} {fault}")).with("in", name).into_response()
}

impl<H: Header> FromRequest for TypedHeader<H> {
    fn from_request(request: &mut Request<'_>) -> Result<TypedHeader<H>, Response> {
        let found = TypedHeader::from_request_optional(request)?;
        found.ok_or_else(|| refused(H::name().as_str(), "is missing"))
    }
}

impl<H: Header> OptionalFromRequest for TypedHeader<H> {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<TypedHeader<H>>, Response> {
        let name = H::name().as_str();
        let values = values(request, name);
        if values.is_empty() {
            return Ok(None);
        }
        match H::decode(&mut values.iter()) {
            Ok(header) => Ok(Some(TypedHeader(header))),
            Err(_) => Err(refused(name, "is malformed")),
        }
    }
}

impl<H: Header> IntoResponseParts for TypedHeader<H> {
    fn add_to(self, response: Response) -> Result<Response, Response> {
        let mut fields = HeaderMap::new();
        fields.typed_insert(self.0);
        fields.add_to(response)
    }
}
