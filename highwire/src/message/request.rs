//! Requests as handlers get them. A request borrows its head, and only extractors that own their data copy parts of it.

use crate::app::shared::Shared;
use crate::app::states;
use crate::message::problem;
use crate::message::provided::Provided;
use crate::{Params, Response};
use bytes::Bytes;
use highwire_engine::Body;
pub use highwire_engine::BodyUse;
use highwire_engine::request::{Caller, Hooks, Ready, TaskWaker};
use highwire_proto::Head;
use http::{Extensions, StatusCode};
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// The values of one worker by type, for [`PerWorker`](crate::PerWorker).
pub(crate) type Locals = HashMap<TypeId, Rc<dyn Any>>;

/// A request, borrowed for the call of its handler. An async handler takes the data it needs by extractors.
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
    /// The router's response, such as a 405, if no handler is to be called. The app's middleware processes it.
    pub(crate) missed: &'r mut Option<Box<Response>>,
    pub(crate) task: &'r TaskWaker<'r>,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("method", &self.method()).field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Returns bytes as text. The parser lets only ASCII into methods, targets, authorities and field names.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl<'r> Request<'r> {
    /// Returns the values of the app that has registered the route, together with those of the apps around it.
    pub(crate) fn values(&self) -> &states::Map {
        let app = &self.shared.app;
        &app.states[app.scope(self.route)]
    }

    /// Returns the app's response to a request for a path without a route.
    pub(crate) fn not_found(&self) -> Response {
        match &self.shared.app.not_found {
            Some(handler) => handler(self),
            None => self.shared.app.error(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// Returns the response to a request that an extractor has refused with `response`, in the app's wording if it has one.
    #[cold]
    pub(crate) fn refused(&self, mut response: Response) -> Response {
        let Some(word) = &self.shared.app.on_rejection else { return response };
        let Some(problem) = problem::take_problem(&response) else { return response };
        let status = problem.status();
        let mut worded = word(self, problem);
        if worded.status() == StatusCode::OK {
            worded.set_status(status);
        }
        let mut kept = std::mem::take(response.own_headers());
        kept.retain(|(name, _)| worded.header(name).is_none());
        for (name, value) in kept {
            worded.add_header(name, value);
        }
        worded
    }

    /// Returns the method, such as `GET`.
    pub fn method(&self) -> &'r str {
        self.head.method.token().unwrap_or_else(|| text(self.head.method_span.of(self.window)))
    }

    /// Returns the whole target as it was sent.
    pub fn target(&self) -> &'r str {
        text(self.head.target.whole.of(self.window))
    }

    /// Returns the bytes of [`target`](Self::target), which are ASCII, without the check that a `str` needs.
    #[doc(hidden)]
    pub fn target_bytes(&self) -> &'r [u8] {
        self.head.target.whole.of(self.window)
    }

    /// Returns the path as it was sent. It may be percent-encoded and have dot segments.
    pub fn path(&self) -> &'r str {
        text(self.head.target.path.of(self.window))
    }

    /// Returns the path without its dot segments, and with its percent-encoded bytes decoded, as the router and the parameters of the
    /// route see it. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// Put access rules into the middleware of the app that is nested at the guarded prefix, which no spelling of the path avoids.
    /// A rule that compares texts should take this one and not [`path`](Self::path), which may be spelled in many ways. An encoded
    /// slash, which the router does not take for a border between two segments, looks like one here.
    pub fn decoded_path(&self) -> Cow<'r, str> {
        let path = if self.params.path.is_empty() { self.head.target.path.of(self.window) } else { self.params.path };
        percent_encoding::percent_decode(path).decode_utf8_lossy()
    }

    /// Returns the template of the route's path, such as `/users/{id}`, with the prefixes of nested apps; `None` if no route with a
    /// path was found. Use it in metrics and logs, where the paths of requests would be too many. It is no guard: files, proxies and
    /// catch-alls have one template for many paths.
    pub fn matched_path(&self) -> Option<&'r str> {
        self.shared.app.paths.get(self.route as usize)?.as_deref()
    }

    /// Returns the query as it was sent, without the question mark.
    pub fn query(&self) -> Option<&'r str> {
        self.head.target.query.map(|query| text(query.of(self.window)))
    }

    /// Returns the authority that the request is for, such as `example.com:8080`. It is empty if the request names
    /// none, as HTTP/1.0 requests may.
    pub fn authority(&self) -> &'r str {
        text(self.head.authority(self.window))
    }

    /// Returns the version of HTTP.
    pub fn version(&self) -> http::Version {
        match self.head.version {
            highwire_proto::Version::Http10 => http::Version::HTTP_10,
            highwire_proto::Version::Http11 => http::Version::HTTP_11,
            highwire_proto::Version::Http2 => http::Version::HTTP_2,
        }
    }

    /// Returns the value of the first header field of that name. The case of the name does not matter. Without a Host
    /// field, `host` is the authority of the request.
    #[doc(alias = "field")]
    pub fn header(&self, name: &str) -> Option<&'r [u8]> {
        let found = self.head.field(self.window, name.as_bytes());
        // On HTTP/2 the host is in the field `:authority` (RFC 9113 section 8.3.1).
        let authority = || Some(self.head.authority(self.window)).filter(|host| !host.is_empty());
        if found.is_none() && name.eq_ignore_ascii_case("host") { authority() } else { found }
    }

    /// Returns the names, as they were sent, and the values of all header fields, in order.
    #[doc(alias = "fields")]
    pub fn headers(&self) -> impl Iterator<Item = (&'r str, &'r [u8])> {
        let window = self.window;
        self.head.fields.iter().map(move |field| (text(field.name.of(window)), field.value.of(window)))
    }

    /// Returns the parameters of the path.
    pub fn params(&self) -> Params<'r> {
        self.params
    }

    /// Returns the address of the peer, which is the client or a proxy.
    pub fn peer(&self) -> highwire_engine::Peer {
        self.caller.peer()
    }

    /// Returns the connection on which the request arrived: a number that no other open connection of this worker has. A later
    /// connection has another generation. Middleware that waits passes requests on without it.
    pub fn connection(&self) -> Option<highwire_io::SocketId> {
        self.caller.connection()
    }

    /// Returns true if the request arrived under TLS.
    pub fn is_secure(&self) -> bool {
        self.caller.is_secure()
    }

    /// Returns the properties of the connection's TLS, or `None` without TLS.
    pub fn tls(&self) -> Option<highwire_engine::Tls> {
        self.caller.tls()
    }

    /// Returns the values that middleware stores for inner middleware and the handler. A handler extracts them by
    /// [`Extension`](crate::Extension).
    pub fn extensions(&mut self) -> &mut Extensions {
        self.hooks.extensions()
    }

    /// Returns a value that middleware has stored. Unlike [`extensions`](Self::extensions), this makes no place for values.
    pub(crate) fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.hooks.extension()
    }

    /// Returns the worker's own value of a type.
    pub(crate) fn local<T: 'static>(&self) -> Option<Rc<T>> {
        self.locals.get(&TypeId::of::<T>()).cloned().and_then(|value| value.downcast().ok())
    }

    /// Takes the whole body, for extractors whose [`BODY`](FromRequest::BODY) is [`BodyUse::Whole`].
    ///
    /// # Errors
    /// Returns a response with 500 if another extractor has taken the body, or will take it in parts.
    pub fn take_body(&mut self) -> Result<Bytes, Response> {
        match std::mem::replace(self.body, Ready::Taken) {
            Ready::Whole(bytes) => Ok(bytes),
            Ready::Nothing => Ok(Bytes::new()),
            Ready::Taken | Ready::Parts(_) => Err(taken_twice()),
        }
    }

    /// Takes the body in parts, for handlers and extractors whose use of the body is [`BodyUse::Parts`].
    ///
    /// # Errors
    /// Returns a response with 500 if another extractor has taken the body, or takes it whole.
    pub fn take_parts(&mut self) -> Result<Body, Response> {
        match std::mem::replace(self.body, Ready::Taken) {
            Ready::Parts(body) => Ok(body),
            Ready::Nothing => Ok(Body::empty()),
            Ready::Taken | Ready::Whole(_) => Err(taken_twice()),
        }
    }

    /// Replaces the whole body, such as with the decoded one. The connection is charged `bytes` for the new body until
    /// the handler has answered.
    #[cfg(any(feature = "compress", feature = "tower"))]
    pub(crate) fn replace_body(&mut self, body: Bytes, bytes: usize) {
        *self.body = Ready::Whole(body);
        self.hooks.set_decoded(bytes);
    }

    /// Returns a waker of the task that answers this request.
    pub(crate) fn waker(&mut self) -> Waker {
        self.hooks.waker.get_or_insert_with(|| self.task.waker()).clone()
    }
}

fn taken_twice() -> Response {
    highwire_engine::log!(Mistake, error, "two of a handler's extractors take the request's body");
    Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
}

/// Returns how a handler with these extractors takes the body. Does not compile if two of them take it.
pub(crate) const fn one_body(uses: &[BodyUse]) -> BodyUse {
    let mut one = BodyUse::None;
    let mut at = 0;
    while at < uses.len() {
        if !matches!(uses[at], BodyUse::None) {
            assert!(matches!(one, BodyUse::None), "two of the handler's arguments take the body of the request");
            one = uses[at];
        }
        at += 1;
    }
    one
}

/// A type that a handler can take as an argument: an extractor.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, FromRequest, IntoResponse, Request, Response, StatusCode};
///
/// /// The tenant that a request is for: the first label of the request's host.
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
///
/// Only one argument of a handler can take the body. A handler with two does not compile:
///
/// ```compile_fail
/// let app = highwire::App::new().post("/", |text: String, bytes: highwire::Body| text);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from a request",
    note = "handlers take extractors such as `Path`, `Query`, `Json`, `State`, `Body`, `Bytes` or `Reply`, or nothing but `&Request<'_>`"
)]
pub trait FromRequest: Sized {
    /// How the extractor uses the request's body.
    const BODY: BodyUse = BodyUse::None;

    /// Extracts the value.
    ///
    /// # Errors
    /// Returns the response to send instead of calling the handler.
    fn from_request(request: &mut Request<'_>) -> Result<Self, Response>;

    /// Checks, when the app is built, that the app provides what the extractor needs, such as a value of
    /// [`App::state`](crate::App::state).
    ///
    /// ```
    /// use highwire::{App, FromRequest, Provided, Request, Response, State};
    ///
    /// #[derive(Clone)]
    /// struct Prices { /* … */ }
    ///
    /// /// The price of the seat that the request is for.
    /// struct Price(u32);
    ///
    /// impl FromRequest for Price {
    ///     fn from_request(request: &mut Request<'_>) -> Result<Price, Response> {
    ///         let _prices = State::<Prices>::from_request(request)?;
    ///         Ok(Price(12))
    ///     }
    ///
    ///     fn check(provided: &Provided<'_>) -> Result<(), String> {
    ///         State::<Prices>::check(provided)
    ///     }
    /// }
    ///
    /// let app = App::new().get("/price", |Price(price): Price| price.to_string());
    /// let error = app.server().expect_err("an app without prices");
    /// assert!(error.to_string().contains("State<Prices>"), "{error}");
    /// ```
    ///
    /// # Errors
    /// Returns the reason why the value can never be extracted on this route. It becomes the error of the method that builds the
    /// app, such as [`App::listen`](crate::App::listen), together with the route and the handler.
    fn check(_provided: &Provided<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// An extractor that handlers may take as an `Option`: `None` means that the request has nothing of the kind. What is there and wrong
/// is refused as without the `Option`. To handle the refusal in the handler, take `Result<T, Response>`.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Bearer};
///
/// let whoami = |bearer: Option<Bearer>| if bearer.is_some() { "someone with a token" } else { "a guest" };
/// let mut client = Client::new(App::new().get("/", whoami))?;
/// assert_eq!(client.get("/").send().text(), "a guest");
/// assert_eq!(client.get("/").header("authorization", "Bearer x1y2").send().text(), "someone with a token");
/// assert_eq!(client.get("/").header("authorization", "Bearer (").send().status(), 401);
/// # Ok::<(), highwire::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no form that a request may lack",
    note = "take `Result<{Self}, Response>` to handle its refusal in the handler"
)]
pub trait OptionalFromRequest: Sized {
    /// How the extractor uses the request's body.
    const BODY: BodyUse = BodyUse::None;

    /// Extracts the value, if the request has one.
    ///
    /// # Errors
    /// Returns the response to send instead of calling the handler.
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Self>, Response>;
}

/// Extracts the whole body.
impl FromRequest for Bytes {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<Bytes, Response> {
        request.take_body()
    }
}

/// Extracts the whole body as text. Responds with 400 if it is not UTF-8.
impl FromRequest for String {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<String, Response> {
        String::from_utf8(request.take_body()?.into())
            .map_err(|_| Response::error(StatusCode::BAD_REQUEST, "the body is not UTF-8\n"))
    }
}
