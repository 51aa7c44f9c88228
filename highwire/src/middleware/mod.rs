//! Middleware: code that runs before and after handlers.
//!
//! A [`Middleware`] wraps a whole app ([`App::with`](crate::App::with)), a nested app, or one handler
//! ([`Handler::with`](crate::Handler::with)). [`before`], [`after`] and [`around`] make one of a function, [`from_fn`]
//! of an async function.
//!
//! ```
//! use highwire::middleware::{after, before};
//! use highwire::{App, Handler, HeaderValue, Request, Response, StatusCode};
//!
//! fn only_json(request: &mut Request<'_>) -> Result<(), StatusCode> {
//!     let accepts = request.header("accept").is_none_or(|value| value.windows(4).any(|four| four == b"json"));
//!     if accepts { Ok(()) } else { Err(StatusCode::NOT_ACCEPTABLE) }
//! }
//!
//! let app = App::new()
//!     .get("/", || "for everybody")
//!     .get("/api", (|| "[]").with(before(only_json)))
//!     .with(after(|response: &mut Response| {
//!         response.add_header(highwire::header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
//!     }));
//! # let _ = app;
//! ```
//!
//! # Order
//!
//! A request passes middleware from the outside to the inside, and its response passes it back:
//!
//! 1. the middleware of the app, then that of a nested app, then that of the handler;
//! 2. in each of them, the first `with` is the outermost.
//!
//! So `app.with(A).with(B)` and `handler.with(A).with(B)` are both read from left to right: A sees the request before B, and the response
//! after B. An app's middleware is around all of its routes, also around those that are registered after it.
//!
//! ```
//! use highwire::testing::Client;
//! use highwire::{App, Handler, HeaderName, HeaderValue, Response};
//!
//! /// Writes its name into the response's header field `x-passed`, on the way back.
//! fn mark(name: &'static str) -> impl highwire::middleware::Middleware {
//!     highwire::middleware::after(move |response: &mut Response| {
//!         let name_of_field = HeaderName::from_static("x-passed");
//!         let before = response.header(&name_of_field).map(|value| String::from_utf8_lossy(value).into_owned());
//!         let passed = before.map_or(name.to_string(), |before| format!("{before}, {name}"));
//!         response.set_header(name_of_field, HeaderValue::try_from(passed).unwrap());
//!     })
//! }
//!
//! let nested = App::new().get("/", (|| "hello").with(mark("handler 1")).with(mark("handler 2"))).with(mark("nested"));
//! let app = App::new().with(mark("app 1")).nest("/nested", nested).with(mark("app 2"));
//! let answer = Client::new(app)?.get("/nested").send();
//! assert_eq!(answer.header("x-passed"), "handler 2, handler 1, nested, app 2, app 1");
//! # Ok::<(), highwire::Error>(())
//! ```
//!
//! # What middleware sees
//!
//! An app's middleware sees the responses of the app's handlers, including the 503 of a [`Timeout`] inside of that middleware,
//! and the app's own 404 and 405. It also sees the 500 after a panic; only the functions of [`from_fn`] do not, because
//! the panic unwinds them. An app's middleware does not see responses that the engine makes itself, such as those to a
//! malformed request or after the server's handler timeout. A nested app's middleware also sees the 405 and OPTIONS responses of the
//! nested paths. Therefore, [`Cors`] around a nested app
//! answers preflight requests. `Cors` around a single handler cannot, unless the handler is registered for OPTIONS,
//! too.
//!
//! If a handler takes the request's body whole, the body is received before middleware sees the request. The engine
//! itself responds if that body is too large, too slow or cut short. If a handler takes the body in parts
//! ([`Body`](crate::Body)), middleware sees the request at once, and can refuse an upload before it is received.

mod access_log;
mod body_limit;
mod cors;
mod limit;
mod proxies;
mod request_id;
mod security;
mod span;
mod timeout;
mod trace;
mod wait;
pub(crate) mod wrap;

use crate::{IntoResponse, Request, Response};
use std::sync::Arc;
use std::task::{Context, Poll};

pub use access_log::AccessLog;
pub use body_limit::BodyLimit;
pub use cors::Cors;
pub use limit::{ConcurrencyLimit, RATE_LIMIT_CALLERS, RateLimit};
use proxies::client_address;
pub use proxies::{ClientAddress, FORWARDED_STEPS, Forwarded, NotANetwork, TrustedProxies};
#[cfg(feature = "client")]
pub(crate) use request_id::NAME as REQUEST_ID;
pub use request_id::{REQUEST_ID_BYTES, RequestId, RequestIds};
pub use security::SecurityHeaders;
pub use span::RequestSpan;
pub use timeout::Timeout;
pub use trace::{TraceContext, TraceParent};
pub use wait::{FromFn, Next, OwnedRequest, from_fn};

pub(crate) use wrap::{Layer, Missed};

/// Code that runs before and after handlers. All workers share one value; [`State`](Self::State) holds the data of one
/// request.
///
/// ```
/// use highwire::middleware::Middleware;
/// use highwire::testing::Client;
/// use highwire::{App, HeaderName, HeaderValue, Request, Response};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Numbers requests.
/// #[derive(Default)]
/// struct Numbers {
///     last: AtomicU64,
/// }
///
/// impl Middleware for Numbers {
///     type State = u64;
///
///     fn before(&self, _: &mut Request<'_>) -> Result<u64, Response> {
///         Ok(self.last.fetch_add(1, Ordering::Relaxed) + 1)
///     }
///
///     fn after(&self, number: u64, response: &mut Response) {
///         response.set_header(HeaderName::from_static("x-number"), HeaderValue::from(number));
///     }
/// }
///
/// let mut client = Client::new(App::new().get("/", || "hello").with(Numbers::default()))?;
/// assert_eq!((client.get("/").send().header("x-number"), client.get("/").send().header("x-number")), ("1", "2"));
/// # Ok::<(), highwire::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a middleware",
    note = "`middleware::before`, `after`, `around` and `from_fn` make one of a function or closure; their arguments are in their documentation"
)]
pub trait Middleware: Send + Sync + 'static {
    /// The data kept for a request until [`after`](Self::after) takes it. It is dropped without that call if
    /// [`pending`](Self::pending) responds, or if the request ends without a response, such as when the client
    /// disconnects.
    type State: 'static;

    /// Runs before the handler.
    ///
    /// # Errors
    /// Returns a response if the request is refused. Then neither the handler nor this middleware's
    /// [`after`](Self::after) is called.
    fn before(&self, request: &mut Request<'_>) -> Result<Self::State, Response>;

    /// Runs a step of the handler and of the middleware inside of this one: the call, and each poll of the future. It must call `step`
    /// once. A middleware that sets something for the thread while the handler runs, such as a span, does it here.
    fn within(&self, state: &mut Self::State, step: &mut dyn FnMut()) {
        let _ = state;
        step();
    }

    /// Runs while the handler is pending: once after the handler was called, and then whenever the request's task is
    /// woken and the handler has still not responded. May respond in place of the handler, whose future is then
    /// dropped; [`after`](Self::after) is not called.
    fn pending(&self, state: &mut Self::State, cx: &mut Context<'_>) -> Poll<Response> {
        let _ = (state, cx);
        Poll::Pending
    }

    /// Runs when the handler or a middleware inside of this one has responded or panicked, before the response is sent.
    fn after(&self, state: Self::State, response: &mut Response);
}

/// An argument of [`App::with`](crate::App::with) and [`Handler::with`](crate::Handler::with): any [`Middleware`],
/// [`from_fn`] or [`BodyLimit`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a middleware",
    note = "`middleware::before`, `after`, `around` and `from_fn` make one of a function or closure; their arguments are in their documentation"
)]
pub trait IntoLayer {
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_layer(self) -> Arc<dyn Layer>;
}

impl<M: Middleware> IntoLayer for M {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_layer(self) -> Arc<dyn Layer> {
        Arc::new(Arc::new(self))
    }
}

/// Makes a middleware that calls a function with each request, before the handler. If the function returns an error,
/// the error becomes the response, and the handler is not called.
///
/// ```
/// use highwire::middleware::before;
/// use highwire::testing::Client;
/// use highwire::{App, Request, StatusCode};
///
/// let app = App::new().get("/", || "hello").with(before(|request: &mut Request<'_>| {
///     if request.header("x-key") == Some(b"open-sesame") { Ok(()) } else { Err(StatusCode::FORBIDDEN) }
/// }));
/// let mut client = Client::new(app)?;
/// assert_eq!(client.get("/").send().status(), 403);
/// assert_eq!(client.get("/").header("x-key", "open-sesame").send().text(), "hello");
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn before<F, R>(function: F) -> Before<F>
where
    F: Fn(&mut Request<'_>) -> Result<(), R> + Send + Sync + 'static,
    R: IntoResponse,
{
    Before(function)
}

/// Makes a middleware that calls a function with each response that passes through it.
///
/// ```
/// use highwire::middleware::after;
/// use highwire::testing::Client;
/// use highwire::{App, HeaderValue, Response, header};
///
/// let app = App::new().get("/", || "hello").with(after(|response: &mut Response| {
///     if response.header(&header::CACHE_CONTROL).is_none() {
///         response.set_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
///     }
/// }));
/// assert_eq!(Client::new(app)?.get("/").send().header("cache-control"), "no-store");
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn after<F>(function: F) -> After<F>
where
    F: Fn(&mut Response) + Send + Sync + 'static,
{
    After(function)
}

/// Makes a middleware that calls a function with each request. The function returns a closure, which is called with the
/// response, or an error, which becomes the response.
///
/// ```
/// use highwire::middleware::around;
/// use highwire::{App, Request, Response};
///
/// let app = App::new().get("/", || "hello").with(around(|request: &mut Request<'_>| {
///     let path = request.path().to_string();
///     Ok::<_, Response>(move |response: &mut Response| println!("{path}: {}", response.status()))
/// }));
/// # let _ = app;
/// ```
pub fn around<F, A, R>(function: F) -> Around<F>
where
    F: Fn(&mut Request<'_>) -> Result<A, R> + Send + Sync + 'static,
    A: FnOnce(&mut Response) + 'static,
    R: IntoResponse,
{
    Around(function)
}

/// The middleware that [`before`] makes.
#[derive(Clone, Debug)]
pub struct Before<F>(F);

/// The middleware that [`after`] makes.
#[derive(Clone, Debug)]
pub struct After<F>(F);

/// The middleware that [`around`] makes.
#[derive(Clone, Debug)]
pub struct Around<F>(F);

impl<F, R> Middleware for Before<F>
where
    F: Fn(&mut Request<'_>) -> Result<(), R> + Send + Sync + 'static,
    R: IntoResponse,
{
    type State = ();
    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        (self.0)(request).map_err(IntoResponse::into_response)
    }
    fn after(&self, (): (), _: &mut Response) {}
}

impl<F> Middleware for After<F>
where
    F: Fn(&mut Response) + Send + Sync + 'static,
{
    type State = ();
    fn before(&self, _: &mut Request<'_>) -> Result<(), Response> {
        Ok(())
    }
    fn after(&self, (): (), response: &mut Response) {
        (self.0)(response);
    }
}

impl<F, A, R> Middleware for Around<F>
where
    F: Fn(&mut Request<'_>) -> Result<A, R> + Send + Sync + 'static,
    A: FnOnce(&mut Response) + 'static,
    R: IntoResponse,
{
    type State = A;
    fn before(&self, request: &mut Request<'_>) -> Result<A, Response> {
        (self.0)(request).map_err(IntoResponse::into_response)
    }
    fn after(&self, state: A, response: &mut Response) {
        state(response);
    }
}
