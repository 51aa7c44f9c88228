//! Middleware of a client: code that runs around each request.

use super::error::Error;
use super::request::Request;
use super::response::Response;
use super::{Client, Running};
use highwire_engine::context;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The future of a middleware.
pub type Sending<'r> = Pin<Box<dyn Future<Output = Result<Response, Error>> + 'r>>;

/// Code that runs around each request of a client, with its redirects and retries.
pub trait Middleware: Send + Sync + 'static {
    /// Handles a request: usually changes it, sends it with [`Next::run`], and looks at the response.
    fn handle<'r>(&'r self, request: Request, next: Next<'r>) -> Sending<'r>;
}

/// The rest of a request's way: the following middleware, and then the server. A clone sends another request, such as the same one once
/// more ([`Request::try_clone`]).
#[derive(Clone)]
pub struct Next<'r> {
    pub(super) client: &'r Client,
    pub(super) rest: &'r [Arc<dyn Middleware>],
    pub(super) running: &'r Running,
}

impl std::fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Next").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

impl Next<'_> {
    /// Returns the rest of the time limit of the whole request, if it has one.
    pub fn time_left(&self) -> Option<Duration> {
        self.running.due.map(|due| due.since(context::now()))
    }

    /// Sends the request.
    ///
    /// # Errors
    /// As [`RequestBuilder::send`](super::RequestBuilder::send).
    pub async fn run(self, mut request: Request) -> Result<Response, Error> {
        match self.rest.split_first() {
            Some((first, rest)) => first.handle(request, Next { rest, ..self }).await,
            None => self.client.follow(&mut request, self.running).await,
        }
    }
}

/// Makes middleware of an async function.
///
/// ```
/// use highwire::HeaderValue;
/// use highwire::client::{Client, Next, Request, from_fn};
///
/// let client = Client::builder()
///     .with(from_fn(async |mut request: Request, next: Next<'_>| {
///         request.set_header(highwire::header::USER_AGENT, HeaderValue::from_static("crawler/1.0"));
///         let response = next.run(request).await?;
///         println!("{} {}", response.status(), response.uri());
///         Ok(response)
///     }))
///     .build()?;
/// # let _ = client;
/// # Ok::<(), highwire::client::Error>(())
/// ```
pub fn from_fn<F>(function: F) -> impl Middleware
where
    F: AsyncFn(Request, Next<'_>) -> Result<Response, Error> + Send + Sync + 'static,
{
    FromFn { function }
}

struct FromFn<F> {
    function: F,
}

impl<F> Middleware for FromFn<F>
where
    F: AsyncFn(Request, Next<'_>) -> Result<Response, Error> + Send + Sync + 'static,
{
    fn handle<'r>(&'r self, request: Request, next: Next<'r>) -> Sending<'r> {
        Box::pin((self.function)(request, next))
    }
}
