//! What stands on the engine and answers requests. Exchanges know it by this trait only; which service it is, is said in
//! `worker/context.rs`.

use super::quiet;
use crate::handler::Outcome;
use crate::request::{BodyUse, Caller, Hooks, Ready, TaskWaker};
use crate::{Response, StatusCode};
use http::HeaderValue;
use proto::Head;
use std::task::{Context, Poll};

/// A service on one worker. A route is a number of its own that it gives for a head, and that it is asked by later; a future is a
/// route and a place.
///
/// [`call`](Self::call), [`poll`](Self::poll) and [`cancel`](Self::cancel) may panic: whoever calls them answers then.
pub(crate) trait Service {
    /// Takes a request's method for another one, if the program wants that and the request asks for it.
    fn override_method(&self, head: &mut Head, window: &[u8]);

    /// Finds the route for a request. If there is none, returns what to answer; or, if the app has middleware, a route that
    /// passes the request through it and answers inside.
    fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> Result<u32, Box<Response>>;

    /// How the route takes a request's body.
    fn body_use(&self, route: u32) -> BodyUse;

    /// Bytes of the largest body that the route takes in this way.
    fn body_limit(&self, route: u32, body_use: BodyUse) -> u64;

    /// Calls the handler of the route that [`route`](Self::route) found for the same head just before.
    #[expect(
        clippy::too_many_arguments,
        reason = "all of them are on their way to the handler; a struct would copy them"
    )]
    fn call(
        &mut self,
        route: u32,
        request: (&Head, &[u8]),
        caller: Caller<'_>,
        body: &mut Ready,
        hooks: &mut Hooks,
        task: &TaskWaker<'_>,
        answer: &mut Option<Response>,
    ) -> Outcome;

    /// Polls the future of a pending handler.
    fn poll(&mut self, future: (u32, u32), cx: &mut Context<'_>) -> Poll<Response>;

    /// Drops the future of a pending handler.
    fn cancel(&mut self, future: (u32, u32));

    /// What answers under TLS say of `Strict-Transport-Security`.
    fn strict_transport_security(&self) -> Option<HeaderValue>;

    /// The answer to an error that the engine has found.
    fn error(&self, status: StatusCode, text: &str) -> Response;

    /// The worker ends, on a thread that may go on: it runs none of the service's handlers or tasks any more.
    fn end(&mut self);

    /// The answer to a request whose handler has panicked.
    fn panicked(&self) -> Response {
        quiet::log!(Panic, error, "a handler panicked");
        self.error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error")
    }
}
