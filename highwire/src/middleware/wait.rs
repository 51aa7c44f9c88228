//! Async middleware: functions that own the request and decide when to call the handler.

use super::{IntoLayer, Layer};
use crate::app::shared::Shared;
use crate::handler::{Endpoint, Pool, Route};
use crate::message::extract::{Peer, Tls};
use crate::message::provided::Provided;
use crate::message::request::{BodyUse, Locals, Request};
use crate::router::Captures;
use crate::{IntoResponse, Params, Response};
use highwire_engine::Outcome;
use highwire_engine::reply::Awaited;
use highwire_engine::request::{Caller, Hooks, Ready, TaskWaker};
use highwire_proto::Head;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Makes a middleware of an async function that owns the request. The function may wait before and after the handler,
/// or respond without calling the handler. Each request costs a copy of its head and several allocations, which a
/// [`Middleware`](super::Middleware) does not need.
///
/// ```
/// use highwire::middleware::{OwnedRequest, Next, from_fn};
/// use highwire::{App, IntoResponse, StatusCode};
///
/// async fn known(token: &[u8]) -> bool {
///     token == b"Bearer secret"
/// }
///
/// let app = App::new().get("/", || "hello").with(from_fn(async |mut request: OwnedRequest, next: Next| {
///     let token = request.request().header("authorization").unwrap_or_default().to_vec();
///     match known(&token).await {
///         true => next.run(request).await,
///         false => StatusCode::UNAUTHORIZED.into_response(),
///     }
/// }));
/// # let _ = app;
/// ```
pub fn from_fn<F, Fut>(function: F) -> FromFn<F, Fut>
where
    F: Fn(OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future + 'static,
    Fut::Output: IntoResponse,
{
    FromFn { function, kinds: PhantomData }
}

/// The middleware that [`from_fn`] makes.
pub struct FromFn<F, Fut> {
    function: F,
    kinds: PhantomData<fn() -> Fut>,
}

impl<F, Fut> std::fmt::Debug for FromFn<F, Fut> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FromFn")
    }
}

impl<F, Fut> IntoLayer for FromFn<F, Fut>
where
    F: Fn(OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future + 'static,
    Fut::Output: IntoResponse,
{
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_layer(self) -> Arc<dyn Layer> {
        Arc::new(Arc::new(self))
    }
}

impl<F, Fut> Layer for Arc<FromFn<F, Fut>>
where
    F: Fn(OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future + 'static,
    Fut::Output: IntoResponse,
{
    fn wrap(&self, inner: Arc<dyn Route>) -> Arc<dyn Route> {
        Arc::new(WaitingRoute { inner, layer: self.clone() })
    }
}

struct WaitingRoute<F, Fut> {
    inner: Arc<dyn Route>,
    layer: Arc<FromFn<F, Fut>>,
}

impl<F, Fut> Route for WaitingRoute<F, Fut>
where
    F: Fn(OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future + 'static,
    Fut::Output: IntoResponse,
{
    fn body_use(&self) -> BodyUse {
        self.inner.body_use()
    }
    fn check(&self, provided: &Provided<'_>) -> Result<(), String> {
        self.inner.check(provided)
    }
    fn body_limit(&self) -> Option<u64> {
        self.inner.body_limit()
    }
    fn is_async(&self) -> bool {
        true
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        let inner = Rc::from(self.inner.clone().endpoint());
        Box::new(WaitingEndpoint { inner, layer: self.layer.clone(), pool: Pool::default() })
    }
}

struct WaitingEndpoint<F, Fut> {
    inner: Rc<dyn Endpoint>,
    layer: Arc<FromFn<F, Fut>>,
    pool: Pool<Fut>,
}

impl<F, Fut> Endpoint for WaitingEndpoint<F, Fut>
where
    F: Fn(OwnedRequest, Next) -> Fut,
    Fut: Future,
    Fut::Output: IntoResponse,
{
    fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
        let waker = request.waker();
        let future = (self.layer.function)(OwnedRequest::new(request), Next { inner: self.inner.clone() });
        self.pool.start(future, &waker, answer)
    }
    fn poll(&self, place: u32, cx: &mut Context<'_>) -> Poll<Response> {
        self.pool.poll(place, cx)
    }
    fn cancel(&self, place: u32) {
        self.pool.cancel(place);
    }
}

/// A request that owns its head and body, so that an async middleware can keep the request while the middleware waits.
#[doc(alias = "Kept")]
pub struct OwnedRequest {
    head: Head,
    window: Vec<u8>,
    route: u32,
    captures: Captures,
    path: Vec<u8>,
    peer: Peer,
    tls: Option<Box<Tls>>,
    shared: Arc<Shared>,
    locals: Rc<Locals>,
    body: Ready,
    hooks: Hooks,
    missed: Option<Box<Response>>,
    waker: TaskWaker<'static>,
}

impl std::fmt::Debug for OwnedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnedRequest")
    }
}

impl OwnedRequest {
    fn new(request: &mut Request<'_>) -> OwnedRequest {
        let waker = request.waker();
        // Interim responses that the handler sends go to the queue of the original request.
        let hooks = request.hooks.for_later(waker.clone());
        OwnedRequest {
            head: request.head.to_kept(),
            window: request.window.to_vec(),
            route: request.route,
            captures: request.params.captures.clone(),
            path: request.params.path.to_vec(),
            peer: request.peer(),
            tls: request.tls().map(Box::new),
            shared: request.shared.clone(),
            locals: request.locals.clone(),
            body: std::mem::replace(request.body, Ready::Taken),
            hooks,
            missed: request.missed.take(),
            waker: TaskWaker::Known(waker),
        }
    }

    /// Returns the request as extractors and other middleware take it.
    pub fn request(&mut self) -> Request<'_> {
        let names = &self.shared.app.names[self.route as usize];
        Request {
            head: &self.head,
            window: &self.window,
            params: Params { names, captures: &self.captures, path: &self.path },
            route: self.route,
            caller: Caller::kept(self.peer, self.tls.as_deref()),
            shared: &self.shared,
            locals: &self.locals,
            body: &mut self.body,
            hooks: &mut self.hooks,
            missed: &mut self.missed,
            task: &self.waker,
        }
    }
}

#[cfg(feature = "tower")]
impl OwnedRequest {
    /// Returns true for an extended CONNECT (RFC 8441), which opens a WebSocket over HTTP/2.
    pub(crate) fn is_extended_connect(&self) -> bool {
        !self.head.protocol.is_empty()
    }

    /// Replaces the head. Route and parameters stay, and so do the method and the protocol of an extended CONNECT.
    pub(crate) fn replace_head(&mut self, mut head: Head, mut window: Vec<u8>) {
        if self.is_extended_connect() {
            let start = window.len() as u16;
            window.extend_from_slice(self.head.protocol.of(&self.window));
            head.protocol = highwire_proto::Span { start, end: window.len() as u16 };
            (head.method, head.upgrade, head.keep_alive) = (self.head.method, self.head.upgrade, self.head.keep_alive);
        }
        (self.head, self.window) = (head, window);
    }

    /// Returns the limit in bytes of a body that the route uses in this way.
    pub(crate) fn body_limit(&self, body_use: BodyUse) -> u64 {
        self.shared.body_limit(self.route, body_use)
    }
}

/// The next middleware, or the handler.
pub struct Next {
    inner: Rc<dyn Endpoint>,
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Next")
    }
}

impl Next {
    /// Calls the next middleware or the handler, and returns the response. If the returned future is dropped before it
    /// is ready, the call is cancelled.
    pub async fn run(self, mut request: OwnedRequest) -> Response {
        let mut answer = None;
        let outcome = self.inner.call(&mut request.request(), &mut answer);
        let place = match outcome {
            Outcome::Ready => None,
            Outcome::Pending(place) => Some(place),
        };
        let reply = request.hooks.reply.take();
        drop(request);
        if let (None, None, Some(response)) = (place, &reply, answer) {
            return response;
        }
        let mut running = Running { inner: self.inner, place, reply };
        poll_fn(move |cx| running.poll(cx)).await
    }
}

struct Running {
    inner: Rc<dyn Endpoint>,
    place: Option<u32>,
    reply: Option<Awaited>,
}

impl Running {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response> {
        if let Some(response) = self.reply.as_ref().and_then(|slot| slot.take()) {
            return Poll::Ready(response);
        }
        let Some(place) = self.place else { return Poll::Pending };
        let Poll::Ready(response) = self.inner.poll(place, cx) else { return Poll::Pending };
        self.place = None;
        // A handler that took a `Reply` answers only through that `Reply`; the handler's own result is ignored.
        if self.reply.as_ref().is_none_or(Awaited::is_waived) { Poll::Ready(response) } else { Poll::Pending }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.inner.cancel(place);
        }
    }
}
