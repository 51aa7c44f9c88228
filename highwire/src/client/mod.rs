//! A client for HTTP/1 and HTTP/2. It runs on the workers: the worker that runs a handler also sends the handler's
//! requests, over outgoing connections of the same event loop.
//!
//! ```
//! use highwire::client::{Client, Error};
//! use highwire::{App, State};
//!
//! let app = App::new().state(Client::new()).get("/weather", async |State(client): State<Client>| {
//!     let request = client.get("https://api.example/v1/now").query(&[("city", "Bern")]).bearer("token");
//!     let text = request.send().await?.error_for_status()?.text().await?;
//!     Ok::<_, Error>(text)
//! });
//! # let _ = app;
//! ```
//!
//! A program without a server runs a future with [`block_on`], or uses [`blocking`].
//!
//! | | |
//! |---|---|
//! | versions | HTTP/1.1 and 2 by ALPN; [`ClientBuilder::http1_only`], [`http2_prior_knowledge`](ClientBuilder::http2_prior_knowledge), [`http10_only`](ClientBuilder::http10_only) |
//! | connections | kept for further requests, by origin and worker; bounds in [`Bounds`] |
//! | time limits | [`Timeouts`]; for the whole request only if [`ClientBuilder::timeout`] or [`RequestBuilder::timeout`] sets one |
//! | retries | up to three after lost connections: of any request that the server has not processed, otherwise of idempotent ones; never after a part of the response has come |
//! | redirects | up to ten; [`Redirects`] |
//! | proxies | [`Proxy`]; those of the environment only with [`ClientBuilder::proxies_from_environment`] |
//! | bodies | in parts both ways, as fast as both sides take them; `gzip`, `deflate`, `br` and `zstd` are decoded with the feature `compress` |
//! | cookies | `CookieJar`, with the feature `cookie-jar` |
//! | typed resources | `rest`, with the feature `json` |
//! | without sockets | `Client::to` an app of the same process, with the feature `tower` |
//! | other executors | `Background` for tasks of tokio, and tower's `Service`, with the feature `tower` |
//!
//! docs/client.md in the repository explains more.

#[cfg(feature = "tower")]
pub mod background;
pub mod blocking;
pub mod multipart;
#[cfg(feature = "json")]
pub mod rest;

mod body;
mod builder;
mod connect;
#[cfg(feature = "cookie-jar")]
mod cookies;
#[cfg(feature = "compress")]
mod decode;
mod error;
#[cfg(feature = "tower")]
pub(crate) mod local;
mod middleware;
mod proxy;
mod redirect;
mod request;
mod request_builder;
mod response;
mod retry;
mod send;
#[cfg(feature = "tower")]
mod service;
pub(crate) mod url;

#[cfg(feature = "tower")]
pub use self::background::Background;
pub use self::body::Body;
pub use self::builder::ClientBuilder;
#[cfg(feature = "cookie-jar")]
pub use self::cookies::CookieJar;
pub(crate) use self::error::why_response_failed;
pub use self::error::{Error, Party};
pub use self::middleware::{Middleware, Next, Sending, from_fn};
pub use self::proxy::Proxy;
pub use self::redirect::Redirects;
pub use self::request::Request;
pub use self::request_builder::RequestBuilder;
pub use self::response::{Body as ResponseBody, Response, Stats};
pub use self::retry::Retry;
pub use highwire_engine::body::Sender;
pub use highwire_engine::client::{Bounds, Failure, Stage, Timeouts};
/// Looks up the addresses of names, for [`ClientBuilder::resolver`].
pub use highwire_io::resolve::{Answer, Resolve};

use self::builder::Settings;
use self::connect::Here;
pub(crate) use self::request::OnInterim;
pub(crate) use self::send::is_idempotent;
use crate::Method;
pub use crate::app::runtime::block_on;
use highwire_engine::context;
use highwire_engine::time::sleep;
use highwire_io::Instant;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A client. Clones share its settings and, on each worker, its connections.
#[derive(Clone)]
pub struct Client {
    settings: Arc<Settings>,
    /// Owns the client's state on each worker. The settings must not own it: that state refers to the settings, and
    /// would keep itself alive.
    owner: Arc<()>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

/// State that a request and its redirects share.
pub(crate) struct Running {
    /// The end of the time for the whole request.
    due: Option<Instant>,
}

impl Client {
    /// Creates a client with the default settings.
    pub fn new() -> Client {
        Client { settings: Arc::new(Settings::default()), owner: Arc::default() }
    }

    /// Returns a builder of a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Begins a GET request.
    pub fn get(&self, url: &str) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a HEAD request.
    pub fn head(&self, url: &str) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Begins a POST request.
    pub fn post(&self, url: &str) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a PUT request.
    pub fn put(&self, url: &str) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a PATCH request.
    pub fn patch(&self, url: &str) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a DELETE request.
    pub fn delete(&self, url: &str) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Begins a request with any method. `url` is relative to the client's [base](ClientBuilder::base_url), if it has one.
    /// [`RequestBuilder::send`] returns the error of an invalid URL.
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        let url = match &self.settings.base {
            Some(base) => url::join(base, url),
            None => url::parse(url),
        };
        RequestBuilder::new(self.clone(), url.map(|url| Request::of(method, url)))
    }

    /// Sends a request, and waits for the head of the response. If the future is dropped, the request is cancelled.
    ///
    /// # Errors
    /// As [`RequestBuilder::send`].
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub async fn execute(&self, request: Request) -> Result<Response, Error> {
        self.execute_boxed(Box::new(request)).await
    }

    async fn execute_boxed(&self, mut request: Box<Request>) -> Result<Response, Error> {
        // They are added before redirects, which remove the fields that another origin must not see.
        for (name, value) in &self.settings.fields {
            if request.header(name).is_none() {
                request.fields.push((name.clone(), value.clone()));
            }
        }
        let limit = request.timeout.or(self.settings.timeout);
        let running = Running { due: limit.map(|limit| context::now() + limit) };
        let url = request.url.clone();
        let mut late = limit.map(|limit| Box::pin(sleep(limit)));
        // The combinator `timeout` would make each request's future twice as large.
        let mut run = pin!(self.run(request, &running));
        poll_fn(|cx| match run.as_mut().poll(cx) {
            Poll::Pending if late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready()) => {
                Poll::Ready(Err(Error::new(error::Kind::TimedOut, Some(&url))))
            }
            polled => polled,
        })
        .await
    }

    /// Sends a request through the middleware.
    async fn run(&self, mut request: Box<Request>, running: &Running) -> Result<Response, Error> {
        let rest = &self.settings.middleware;
        if rest.is_empty() {
            return self.follow(&mut request, running).await;
        }
        // Boxed, so that requests without middleware do not have room for it in their futures.
        Box::pin(Next { client: self, rest, running }.run(*request)).await
    }

    /// Returns the number of this client's connections on the current worker, and how many of them have no request.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub fn connections(&self) -> (usize, usize) {
        let here = self.here();
        (here.pool.connections(), here.pool.idle())
    }

    /// Returns the client's state on the current worker.
    fn here(&self) -> Rc<Here> {
        context::local(&self.owner, || Here::new(&self.settings))
    }
}
