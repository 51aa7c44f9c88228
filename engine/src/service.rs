//! What stands on the engine and answers requests.

use crate::quiet;
use crate::request::{BodyUse, Caller, Hooks, Ready, TaskWaker};
use crate::response::Response;
use crate::shared::Shared;
use highwire_proto::Head;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use std::task::{Context, Poll};

/// What a call led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is where the caller wanted it, or comes by [`Hooks::reply`].
    Ready,
    /// The future in this place of the route is not ready.
    Pending(u32),
}

/// A request whose handler is to be called.
#[derive(Debug)]
pub struct Begin<'c> {
    /// The number that [`Service::route`] gave for the same head just before.
    pub route: u32,
    /// The head: spans over `window`.
    pub head: &'c Head,
    /// The bytes that the head was read from.
    pub window: &'c [u8],
    /// Whom it comes from.
    pub caller: Caller<'c>,
    /// The body, as [`Service::body_use`] wanted it; [`Ready::Nothing`] where it is empty. A request that asks for an `Upgrade` over
    /// HTTP/1 and has a body brings it [whole](Ready::Whole) in place of not at all, since the other protocol begins behind it.
    pub body: &'c mut Ready,
    /// What is left for the exchange.
    pub hooks: &'c mut Hooks,
    /// How the task that answers is woken.
    pub task: &'c TaskWaker<'c>,
}

/// What answers requests, on one worker.
///
/// A worker asks it in this order: [`route`](Self::route) for a head; [`body_use`](Self::body_use) and
/// [`body_limit`](Self::body_limit) where the request has a body; `route` once more for a body that was collected whole, since other
/// heads may have come in between; [`begin`](Self::begin); and, if that is pending, [`poll`](Self::poll) whenever the request's task
/// is woken, until it is ready or [`cancel`](Self::cancel) says that nobody waits any more. A route is a number of the service's own;
/// a future is a route and a place in it.
///
/// `begin`, `poll` and `cancel` may panic; the request is then answered by [`panicked`](Self::panicked). None of them may block:
/// all connections of the worker wait for it.
///
/// The trait is object-safe, and `Box<dyn Service>` is a service.
///
/// ```
/// use highwire_engine::{Begin, Outcome, Response, Service, http::StatusCode, proto::Head, request::Caller};
/// use std::task::{Context, Poll};
///
/// /// Answers each request with its path.
/// struct Echo;
///
/// impl Service for Echo {
///     fn route(&mut self, _: &Head, _: &[u8], _: Caller<'_>) -> Result<u32, Box<Response>> {
///         Ok(0)
///     }
///     fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
///         let path = request.head.target.path.of(request.window);
///         *answer = Some(Response::bytes("text/plain", path.to_vec()));
///         Outcome::Ready
///     }
/// }
/// ```
pub trait Service {
    /// Finds the route for a request.
    ///
    /// # Errors
    /// The answer, where no handler is to be called. A body that comes with the request is read and dropped.
    fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> Result<u32, Box<Response>>;

    /// How the route takes a request's body.
    fn body_use(&self, _route: u32) -> BodyUse {
        BodyUse::None
    }

    /// Bytes of the largest body that the route takes in this way: 413 above. `None`: what [`Config::limits`](crate::Config) says.
    fn body_limit(&self, _route: u32, _: BodyUse) -> Option<u64> {
        None
    }

    /// Calls the handler of the route that [`route`](Self::route) found for the same head just before. A ready answer is put in
    /// place and not returned: a struct of its size that is handed up through several calls is copied in each.
    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome;

    /// Polls the future of a pending handler: its route and its place.
    fn poll(&mut self, _future: (u32, u32), _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }

    /// Drops the future of a pending handler.
    fn cancel(&mut self, _future: (u32, u32)) {}

    /// What answers under TLS say of `Strict-Transport-Security`. Asked once, when the worker starts.
    fn strict_transport_security(&self) -> Option<HeaderValue> {
        None
    }

    /// The answer to an error that the engine has found.
    fn error(&self, status: StatusCode, text: &str) -> Response {
        Response::error(status, format!("{text}\n"))
    }

    /// The answer to a request whose handler has panicked.
    fn panicked(&self) -> Response {
        quiet::log!(Panic, error, "a handler panicked");
        self.error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error")
    }

    /// The worker ends, on a thread that may go on: it runs none of the service's handlers or tasks any more. A panic is logged.
    fn end(&mut self) {}
}

impl<S: Service + ?Sized> Service for Box<S> {
    fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> Result<u32, Box<Response>> {
        (**self).route(head, window, caller)
    }
    fn body_use(&self, route: u32) -> BodyUse {
        (**self).body_use(route)
    }
    fn body_limit(&self, route: u32, body_use: BodyUse) -> Option<u64> {
        (**self).body_limit(route, body_use)
    }
    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        (**self).begin(request, answer)
    }
    fn poll(&mut self, future: (u32, u32), cx: &mut Context<'_>) -> Poll<Response> {
        (**self).poll(future, cx)
    }
    fn cancel(&mut self, future: (u32, u32)) {
        (**self).cancel(future);
    }
    fn strict_transport_security(&self) -> Option<HeaderValue> {
        (**self).strict_transport_security()
    }
    fn error(&self, status: StatusCode, text: &str) -> Response {
        (**self).error(status, text)
    }
    fn panicked(&self) -> Response {
        (**self).panicked()
    }
    fn end(&mut self) {
        (**self).end();
    }
}

/// Makes the service of each worker, on the worker's thread; with [`Engine::Threads`](crate::Engine::Threads) that of each
/// connection, on its thread.
pub trait MakeService: Send + Sync + 'static {
    /// What it makes. It stays on its thread.
    type Service: Service;

    /// Makes one. `shared` is what all workers of the server share: its settings and its blocking pool.
    fn make(&self, shared: &Arc<Shared>) -> Self::Service;

    /// The name of a route, and whether futures answer its requests, for warnings about handlers that hold a worker.
    fn describe(&self, _route: u32) -> (&str, bool) {
        ("", false)
    }
}

/// A function that makes services.
impl<S: Service, F: Fn(&Arc<Shared>) -> S + Send + Sync + 'static> MakeService for F {
    type Service = S;
    fn make(&self, shared: &Arc<Shared>) -> S {
        self(shared)
    }
}
