//! Requests as handlers see them: borrowed from the receive buffer, nothing copied until somebody asks.

use crate::shared::Shared;
use crate::{Params, Response};
use bytes::Bytes;
use highwire_engine::Body;
pub use highwire_engine::BodyUse;
use highwire_engine::request::{Caller, Hooks, Ready, TaskWaker};
use highwire_proto::Head;
use http::{Extensions, StatusCode};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// Values by their type.
pub(crate) type Locals = HashMap<TypeId, Rc<dyn Any>>;

/// A request. It lives while its handler is called; an async handler takes what it needs by extractors.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Request};
///
/// let app = App::new().get("/{name}", |request: &Request<'_>| {
///     let agent = String::from_utf8_lossy(request.header("user-agent").unwrap_or(b"nobody"));
///     format!("{} {} {:?} {agent}", request.method(), request.path(), request.params().get("name"))
/// });
/// let answer = Client::new(app)?.get("/a%20b?c").header("user-agent", "test").send();
/// assert_eq!(answer.text(), "GET /a%20b Some(\"a b\") test");
/// # Ok::<(), highwire::Error>(())
/// ```
pub struct Request<'r> {
    pub(crate) head: &'r Head,
    pub(crate) window: &'r [u8],
    pub(crate) params: Params<'r>,
    pub(crate) route: u32,
    pub(crate) caller: Caller<'r>,
    pub(crate) shared: &'r Arc<Shared>,
    pub(crate) locals: &'r Rc<Locals>,
    pub(crate) body: &'r mut Ready,
    pub(crate) hooks: &'r mut Hooks,
    /// The answer where no route was found, on its way through the app's middleware.
    pub(crate) missed: &'r mut Option<Box<Response>>,
    pub(crate) task: &'r TaskWaker<'r>,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("method", &self.method()).field("path", &self.path()).finish_non_exhaustive()
    }
}

fn text(bytes: &[u8]) -> &str {
    // Methods and targets are ASCII by their grammar.
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl<'r> Request<'r> {
    /// What the app answers if there is nothing at this path.
    pub(crate) fn not_found(&self) -> Response {
        match &self.shared.app.not_found {
            Some(handler) => handler(self),
            None => self.shared.app.error(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// The method's token.
    pub fn method(&self) -> &'r str {
        text(self.head.method_span.of(self.window))
    }

    /// The whole target, as it was sent.
    pub fn target(&self) -> &'r str {
        text(self.head.target.whole.of(self.window))
    }

    /// The path as it was sent: percent-encoded, dot segments not resolved.
    pub fn path(&self) -> &'r str {
        text(self.head.target.path.of(self.window))
    }

    /// What follows the question mark, as it was sent.
    pub fn query(&self) -> Option<&'r str> {
        self.head.target.query.map(|query| text(query.of(self.window)))
    }

    /// The authority that the request is for: `example.com:8080`.
    pub fn authority(&self) -> &'r str {
        text(self.head.authority(self.window))
    }

    /// The version.
    pub fn version(&self) -> http::Version {
        match self.head.version {
            highwire_proto::Version::Http10 => http::Version::HTTP_10,
            highwire_proto::Version::Http11 => http::Version::HTTP_11,
            highwire_proto::Version::Http2 => http::Version::HTTP_2,
        }
    }

    /// The value of the first field of that name, in any case.
    #[doc(alias = "field")]
    pub fn header(&self, name: &str) -> Option<&'r [u8]> {
        let found = self.head.field(self.window, name.as_bytes());
        // HTTP/2 has a field of its own for that (RFC 9113 section 8.3.1).
        let authority = || Some(self.head.authority(self.window)).filter(|host| !host.is_empty());
        if found.is_none() && name.eq_ignore_ascii_case("host") { authority() } else { found }
    }

    /// Names, as they were sent, and values of all fields, in order.
    #[doc(alias = "fields")]
    pub fn headers(&self) -> impl Iterator<Item = (&'r str, &'r [u8])> {
        let window = self.window;
        self.head.fields.iter().map(move |field| (text(field.name.of(window)), field.value.of(window)))
    }

    /// The parameters of the path.
    pub fn params(&self) -> Params<'r> {
        self.params
    }

    /// Who sent it.
    pub fn peer(&self) -> crate::Peer {
        self.caller.peer()
    }

    /// Whether the connection is under TLS.
    pub fn is_secure(&self) -> bool {
        self.caller.is_secure()
    }

    /// What there is to say about the connection's TLS, where it has any.
    pub fn tls(&self) -> Option<crate::Tls> {
        self.caller.tls()
    }

    /// Values that middleware leaves for what comes after it; [`Extension`](crate::Extension) takes them.
    pub fn extensions(&mut self) -> &mut Extensions {
        &mut self.hooks.extensions
    }

    /// The whole body, for extractors whose [`BODY`](FromRequest::BODY) is [`BodyUse::Whole`].
    ///
    /// # Errors
    /// 500 where another extractor has taken it: the program's mistake.
    pub fn take_body(&mut self) -> Result<Bytes, Response> {
        match std::mem::replace(self.body, Ready::Taken) {
            Ready::Whole(bytes) => Ok(bytes),
            Ready::Nothing => Ok(Bytes::new()),
            Ready::Taken | Ready::Parts(_) => Err(taken_twice()),
        }
    }

    pub(crate) fn take_parts(&mut self) -> Result<Body, Response> {
        match std::mem::replace(self.body, Ready::Taken) {
            Ready::Parts(body) => Ok(body),
            Ready::Nothing => Ok(Body::empty()),
            Ready::Taken | Ready::Whole(_) => Err(taken_twice()),
        }
    }

    /// Puts another body in place of the whole one; `bytes` are what it holds, and what the connection is charged for until
    /// the answer is there.
    #[cfg(feature = "compress")]
    pub(crate) fn replace_body(&mut self, body: Bytes, bytes: usize) {
        *self.body = Ready::Whole(body);
        self.hooks.unfolded.get_or_insert_with(Rc::default).set(bytes);
    }

    /// A waker of the task that answers this request.
    pub(crate) fn waker(&mut self) -> Waker {
        self.hooks.waker.get_or_insert_with(|| self.task.waker()).clone()
    }
}

fn taken_twice() -> Response {
    highwire_engine::log!(Mistake, error, "two of a handler's extractors take the request's body");
    Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
}

/// What a handler may take as an argument.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, FromRequest, IntoResponse, Request, Response, StatusCode};
///
/// /// The tenant that a request is for: the first label of the host that it names.
/// struct Tenant(String);
///
/// impl FromRequest for Tenant {
///     fn from_request(request: &mut Request<'_>) -> Result<Tenant, Response> {
///         match request.authority().split_once('.') {
///             Some((name, _)) => Ok(Tenant(name.to_string())),
///             None => Err((StatusCode::BAD_REQUEST, "this host is nobody's\n").into_response()),
///         }
///     }
/// }
///
/// let mut client = Client::new(App::new().get("/", |Tenant(name): Tenant| name))?;
/// assert_eq!(client.get("/").header("host", "ann.example.com").send().text(), "ann");
/// assert_eq!(client.get("/").header("host", "localhost").send().status(), 400);
/// # Ok::<(), highwire::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from a request",
    note = "handlers take extractors such as `Path`, `Query`, `Json`, `State`, `Body`, `Bytes` or `Reply`"
)]
pub trait FromRequest: Sized {
    /// What it needs of the body.
    const BODY: BodyUse = BodyUse::None;

    /// Takes it.
    ///
    /// # Errors
    /// The response to send instead of calling the handler.
    fn from_request(request: &mut Request<'_>) -> Result<Self, Response>;
}

/// The whole body.
impl FromRequest for Bytes {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<Bytes, Response> {
        request.take_body()
    }
}

/// The whole body as text.
impl FromRequest for String {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<String, Response> {
        String::from_utf8(request.take_body()?.into())
            .map_err(|_| Response::error(StatusCode::BAD_REQUEST, "the body is not UTF-8\n"))
    }
}
