//! Handlers that get the request itself, and whose use of the body is chosen at run time. Bindings for other languages
//! are made of them.

use super::private::IntoRoute;
use super::{Endpoint, Handler, Route};
use crate::message::request::{BodyUse, Request};
use crate::{IntoResponse, Response};
use highwire_engine::Outcome;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A handler that gets the request itself. [`direct`] makes it.
#[derive(Clone, Debug)]
pub struct Direct<F> {
    body: BodyUse,
    function: F,
}

/// Makes a handler of a plain function that gets the request itself and takes the body as `body` says. It is for bindings
/// to other languages, whose programs choose that at run time; other handlers have extractors.
///
/// If the function returns `None`, the response is the one of the [`Reply`](crate::Reply) that the function has taken from
/// the request, or 500 without one.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, BodyUse, FromRequest, Reply, Response, direct};
///
/// let later = direct(BodyUse::Whole, |request| {
///     let body = request.take_body().unwrap_or_default();
///     if body.is_empty() {
///         return Some(Response::text("nothing to wait for"));
///     }
///     let reply = Reply::from_request(request).ok()?;
///     std::thread::spawn(move || reply.send(body));
///     None
/// });
/// let mut client = Client::new(App::new().post("/", later))?;
/// assert_eq!(client.post("/").body("hello").send().text(), "hello");
/// assert_eq!(client.post("/").send().text(), "nothing to wait for");
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn direct<F>(body: BodyUse, function: F) -> Direct<F>
where
    F: Fn(&mut Request<'_>) -> Option<Response> + Send + Sync + 'static,
{
    Direct { body, function }
}

/// The `M` of [`Handler`] for [`Direct`].
#[derive(Debug)]
pub struct Directly;

impl<F> Handler<Directly> for Direct<F> where F: Fn(&mut Request<'_>) -> Option<Response> + Send + Sync + 'static {}

impl<F> IntoRoute<Directly> for Direct<F>
where
    F: Fn(&mut Request<'_>) -> Option<Response> + Send + Sync + 'static,
{
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route(self) -> Arc<dyn Route> {
        Arc::new(self)
    }
}

impl<F> Route for Direct<F>
where
    F: Fn(&mut Request<'_>) -> Option<Response> + Send + Sync + 'static,
{
    fn body_use(&self) -> BodyUse {
        self.body
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        Box::new(DirectEndpoint(self))
    }
}

struct DirectEndpoint<F>(Arc<Direct<F>>);

impl<F> Endpoint for DirectEndpoint<F>
where
    F: Fn(&mut Request<'_>) -> Option<Response>,
{
    fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
        *answer = (self.0.function)(request);
        if answer.is_some() {
            request.hooks.reply = None;
        } else if request.hooks.reply.is_none() {
            highwire_engine::log!(Mistake, error, "a direct handler has neither answered nor taken a `Reply`");
            *answer = Some(crate::StatusCode::INTERNAL_SERVER_ERROR.into_response());
        }
        Outcome::Ready
    }
    fn poll(&self, _: u32, _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }
    fn cancel(&self, _: u32) {}
}
