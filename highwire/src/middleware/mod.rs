//! What stands around handlers: sees requests before them, and answers after them.
//!
//! A [`Middleware`] is put around a whole app ([`App::with`](crate::App::with)), around what is nested into one, or around
//! one handler ([`Handler::with`](crate::Handler::with)). [`before`], [`after`] and [`around`] make one of a function,
//! [`from_fn`] of an async one.
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
//! The first one that was added stands outermost. Those of an app see every answer that comes of a request with a
//! well-formed head: of its handlers, also where one panicked or took too long to be waited for, and the app's own 404
//! and 405. What is nested into another app has its own inside that app's, also around the answers to methods that its
//! paths do not have: [`Cors`] around a nest answers what browsers ask before a PUT. Around one handler it cannot.
//!
//! A body that the handler takes whole has come before they see the request. What is wrong with it by then (too large, too
//! slow, cut short) the engine answers by itself. A handler that takes its body in parts ([`Body`](crate::Body)) has
//! middleware that sees the request at once, and may refuse an upload before it comes.

mod access_log;
mod body_limit;
mod cors;
mod limit;
mod proxies;
mod request_id;
mod security;
mod timeout;
mod trace;
mod wait;
mod wrap;

use crate::{IntoResponse, Request, Response};
use std::sync::Arc;
use std::task::{Context, Poll};

pub use access_log::AccessLog;
pub use body_limit::BodyLimit;
pub use cors::Cors;
pub use limit::{ConcurrencyLimit, RATE_LIMIT_CALLERS, RateLimit};
use proxies::client_address;
pub use proxies::{ClientAddress, FORWARDED_STEPS, Forwarded, NotANetwork, TrustedProxies};
pub use request_id::{REQUEST_ID_BYTES, RequestId, RequestIds};
pub use security::SecurityHeaders;
pub use timeout::Timeout;
pub use trace::{TraceContext, TraceParent};
pub use wait::{FromFn, Next, OwnedRequest, from_fn};

pub(crate) use wrap::{Layer, Missed};

/// Something that stands around handlers. One value serves all workers; what belongs to one request is its `State`.
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
pub trait Middleware: Send + Sync + 'static {
    /// What is kept of a request until its answer is there. Dropped with it where the peer goes away.
    type State: 'static;

    /// Sees the request before the handler does.
    ///
    /// # Errors
    /// The answer to give in place of the handler's; [`after`](Self::after) does not see it.
    fn before(&self, request: &mut Request<'_>) -> Result<Self::State, Response>;

    /// While the answer is not there: called whenever the request's task is woken. May answer in place of the handler,
    /// whose future is dropped then.
    fn pending(&self, state: &mut Self::State, cx: &mut Context<'_>) -> Poll<Response> {
        let _ = (state, cx);
        Poll::Pending
    }

    /// Sees the answer before the peer does.
    fn after(&self, state: Self::State, response: &mut Response);
}

/// What [`App::with`](crate::App::with) and [`Handler::with`](crate::Handler::with) take: any [`Middleware`], or
/// [`from_fn`].
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

/// Calls a function with each request before its handler. What it returns as an error is the answer.
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

/// Calls a function with each answer.
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

/// Calls a function with each request, and what it returns with the answer.
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

/// See [`before`].
#[derive(Clone, Debug)]
pub struct Before<F>(F);

/// See [`after`].
#[derive(Clone, Debug)]
pub struct After<F>(F);

/// See [`around`].
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
