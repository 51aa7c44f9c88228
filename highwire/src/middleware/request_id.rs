//! Identifiers of requests, for handlers and for the response field `X-Request-Id`.

use super::Middleware;
use crate::message::request::FromRequest;
use crate::{HeaderName, HeaderValue, Request, Response};
use std::cell::RefCell;

/// The length in bytes of the longest identifier that [`RequestIds::trust_incoming`] accepts.
pub const REQUEST_ID_BYTES: usize = 128;

pub(crate) const NAME: HeaderName = HeaderName::from_static("x-request-id");

/// Gives each request an identifier of 128 random bits, written as hex digits. Handlers take it as [`RequestId`]; the
/// response has it in `X-Request-Id`, and a `proxy::Proxy` passes it on.
///
/// ```
/// use highwire::App;
/// use highwire::middleware::{RequestId, RequestIds};
/// use highwire::testing::Client;
///
/// let app = App::new().get("/", |id: RequestId| id.to_string()).with(RequestIds::new());
/// let answer = Client::new(app)?.get("/").send();
/// assert_eq!((answer.text(), answer.text().len()), (answer.header("x-request-id"), 32));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RequestIds {
    trusts: bool,
}

impl RequestIds {
    /// Creates the middleware. It ignores the `X-Request-Id` of requests.
    pub fn new() -> RequestIds {
        RequestIds::default()
    }

    /// Uses the request's own `X-Request-Id` if it has 1 to 128 visible ASCII characters. Use this only behind a proxy
    /// that sets or removes the field.
    pub fn trust_incoming(mut self) -> RequestIds {
        self.trusts = true;
        self
    }
}

/// The identifier of a request: an extractor. Responds with 500 unless the middleware [`RequestIds`] is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub HeaderValue);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

impl FromRequest for RequestId {
    fn from_request(request: &mut Request<'_>) -> Result<RequestId, Response> {
        crate::Extension::<RequestId>::from_request(request).map(|found| found.0)
    }
}

impl Middleware for RequestIds {
    type State = HeaderValue;

    fn before(&self, request: &mut Request<'_>) -> Result<HeaderValue, Response> {
        let given = request.header(NAME.as_str()).filter(|value| self.trusts && is_acceptable(value));
        let id = given.and_then(|value| HeaderValue::from_bytes(value).ok()).unwrap_or_else(make);
        request.extensions().insert(RequestId(id.clone()));
        Ok(id)
    }

    fn after(&self, id: HeaderValue, response: &mut Response) {
        // That of a server behind this one is of no use to the client.
        response.set_header(NAME, id);
    }
}

fn is_acceptable(value: &[u8]) -> bool {
    (1..=REQUEST_ID_BYTES).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

thread_local! {
    static RANDOM: RefCell<(highwire_io::random::Seeded, highwire_io::random::Seeded)> =
        RefCell::new((highwire_io::random::Seeded::new(highwire_io::random::system()), highwire_io::random::Seeded::new(highwire_io::random::system())));
}

/// Returns 128 random bits. They practically never repeat, but they can be predicted, so they are no secret.
pub(super) fn random() -> u128 {
    RANDOM.with_borrow_mut(|(high, low)| u128::from(high.next()) << 64 | u128::from(low.next()))
}

fn make() -> HeaderValue {
    HeaderValue::try_from(format!("{:032x}", random())).unwrap_or_else(|_| HeaderValue::from_static("-"))
}
