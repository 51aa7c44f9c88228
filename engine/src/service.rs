//! The contract between the engine and the service that answers its requests.

use crate::body::BoxError;
use crate::message::request::{BodyUse, Caller, Hooks, Ready, TaskWaker};
use crate::message::response::Response;
use crate::runtime::panics::Cause;
use crate::runtime::rate_limited;
use crate::server::shared::Shared;
use highwire_proto::{Head, Method, Version};
use http::{HeaderValue, StatusCode};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The result of [`Service::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is in the argument `answer`, or will be given through [`Hooks::reply`].
    Ready,
    /// A future will answer. The number is the future's place in its route.
    Pending(u32),
}

/// A request whose handler is to be called.
#[derive(Debug)]
pub struct Begin<'c> {
    /// The number that [`Service::route`] returned for the same head just before.
    pub route: u32,
    /// The head: spans over `window`.
    pub head: &'c Head,
    /// The bytes that the head was read from.
    pub window: &'c [u8],
    /// The sender.
    pub caller: Caller<'c>,
    /// The body in the form that [`Service::body_use`] has chosen; [`Ready::Nothing`] if there is none. If an HTTP/1
    /// request asks for an `Upgrade`, has a body and its route takes none, the body is [whole](Ready::Whole), because
    /// the other protocol's bytes follow the body.
    pub body: &'c mut Ready,
    /// The values that the handler leaves for the exchange.
    pub hooks: &'c mut Hooks,
    /// Makes wakers of the request's task.
    pub task: &'c TaskWaker<'c>,
}

/// Answers the requests of one worker.
///
/// A worker calls the methods in this order: [`route`](Self::route) for a head; [`body_use`](Self::body_use) and
/// [`body_limit`](Self::body_limit) if the request has a body; `route` again after a body was collected whole, because
/// other requests may have been routed since; [`begin`](Self::begin); and, if a future will answer,
/// [`poll`](Self::poll) whenever the request's task is woken, until the future is ready or [`cancel`](Self::cancel)
/// drops it. A route is any number below `u32::MAX` that the service chooses. A future is identified by its route and
/// its place in the route.
///
/// `begin`, `poll` and `cancel` may panic. After a panic of the first two, [`panicked`](Self::panicked) answers the
/// request; a panic of `cancel` is logged. No method may block, because all connections of the worker would wait.
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
    /// Returns the answer as the error if no handler is to be called. The body of the request is then read and dropped,
    /// up to a limit.
    fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> Result<u32, Box<Response>>;

    /// Returns how the route takes a request's body.
    fn body_use(&self, _route: u32) -> BodyUse {
        BodyUse::None
    }

    /// Returns the size in bytes of the largest body that the route takes in this way. If a handler takes the body, a
    /// larger one is answered with 413. `None` means the limit of [`Config::limits`](crate::Config).
    fn body_limit(&self, _route: u32, _: BodyUse) -> Option<u64> {
        None
    }

    /// Calls the handler of the route that [`route`](Self::route) found for the same head just before. A ready answer
    /// is stored in `answer` and not returned, because a struct of its size would be copied at each return.
    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome;

    /// Polls the future of a pending handler. The pair contains the future's route and its place in the route.
    fn poll(&mut self, _future: (u32, u32), _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }

    /// Drops the future of a pending handler. The pair is the same as for [`poll`](Self::poll).
    fn cancel(&mut self, _future: (u32, u32)) {}

    /// Returns the value of `Strict-Transport-Security` for responses over TLS. Called once, when the worker starts.
    fn strict_transport_security(&self) -> Option<HeaderValue> {
        None
    }

    /// Returns what learns of each request of the worker that has ended. Called once, when the worker starts. Without an observer, requests
    /// are not measured.
    fn observer(&self) -> Option<Rc<dyn Observer>> {
        None
    }

    /// Returns the answer to an error that the engine has found.
    fn error(&self, status: StatusCode, text: &str) -> Response {
        Response::error(status, format!("{text}\n"))
    }

    /// Returns the answer to a request whose handler has panicked, and logs that. `route` is the handler's, if it is known.
    fn panicked(&self, route: Option<u32>, cause: &Cause) -> Response {
        rate_limited::log!(Panic, error, route, "a handler panicked: {cause}");
        self.error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error")
    }

    /// Returns true if the worker's host has work to do, so that the turn must not wait. Called once in each turn, before its
    /// wait: a task of the worker may have given the host's event loop work after the host began the turn.
    fn has_work(&self) -> bool {
        false
    }

    /// Called just before the worker's thread may block until something happens, and not when it only looks whether something
    /// has. A service that holds a lock which other threads need, such as an interpreter's, gives it back here. Must not
    /// panic. The engine `threads` does not call it.
    fn before_wait(&mut self) {}

    /// Called just after the worker's thread has blocked, with every [`before_wait`](Self::before_wait), before any other
    /// method. Must not panic.
    fn after_wait(&mut self) {}

    /// Called when the worker ends. Its thread may continue to run. No handler or task of the service runs after this
    /// call. A panic is logged.
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
    fn observer(&self) -> Option<Rc<dyn Observer>> {
        (**self).observer()
    }
    fn error(&self, status: StatusCode, text: &str) -> Response {
        (**self).error(status, text)
    }
    fn panicked(&self, route: Option<u32>, cause: &Cause) -> Response {
        (**self).panicked(route, cause)
    }
    fn has_work(&self) -> bool {
        (**self).has_work()
    }
    fn before_wait(&mut self) {
        (**self).before_wait();
    }
    fn after_wait(&mut self) {
        (**self).after_wait();
    }
    fn end(&mut self) {
        (**self).end();
    }
}

/// Learns of each request of a worker that has ended, whether a handler has answered it or the engine.
pub trait Observer {
    /// Called once for each request with a valid head, when its response is sent completely, or when it ends before. Must not panic, and
    /// must be quick: all connections of the worker wait.
    fn finished(&self, request: &Finished);
}

/// A request that has ended, for an [`Observer`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Finished {
    /// The route, if [`Service::route`] has found one.
    pub route: Option<u32>,
    /// The method.
    pub method: Method,
    /// The HTTP version.
    pub version: Version,
    /// True if the connection has TLS.
    pub is_secure: bool,
    /// The response's status; 499 if the client has left before the response, and 503 if the server has stopped.
    pub status: u16,
    /// The time from the arrival of the head to the end of the response. The last byte was given to the system, but may not have left
    /// the machine.
    pub duration: Duration,
    /// The number of bytes of the response's body that were sent.
    pub bytes: u64,
    /// True if no complete response was sent.
    pub is_cut: bool,
    /// Why the exchange ended early, if it did: there was no complete response, or the engine has answered before the request or its
    /// handler was complete.
    pub ended: Option<&'static str>,
}

/// What [`MakeService::on_start`] and [`MakeService::on_stop`] return.
pub type Hook = Pin<Box<dyn Future<Output = Result<(), BoxError>>>>;

/// Makes the service of each worker, on the worker's thread. With [`Engine::Threads`](crate::Engine::Threads), makes
/// one for each connection, on the connection's thread.
pub trait MakeService: Send + Sync + 'static {
    /// The type of the services. A service stays on its thread.
    type Service: Service;

    /// Makes a service. `shared` has the settings and the blocking pool of the server.
    fn make(&self, shared: &Arc<Shared>) -> Self::Service;

    /// Returns what the first worker of a server does before the server accepts connections. If it fails, the server does not start.
    /// Called once, on that worker.
    fn on_start(&self) -> Option<Hook> {
        None
    }

    /// Returns what the first worker does after all workers have ended their connections, for at most
    /// [`Timeouts::shutdown`](crate::Timeouts::shutdown). Called once, on that worker.
    fn on_stop(&self) -> Option<Hook> {
        None
    }

    /// Returns the name of a route, and true if its handler is async, for warnings about handlers that hold a worker.
    fn describe(&self, _route: u32) -> (&str, bool) {
        ("", false)
    }
}

/// A function that makes a service is a [`MakeService`].
impl<S: Service, F: Fn(&Arc<Shared>) -> S + Send + Sync + 'static> MakeService for F {
    type Service = S;
    fn make(&self, shared: &Arc<Shared>) -> S {
        self(shared)
    }
}
