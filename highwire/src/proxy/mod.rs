//! A reverse proxy: a handler that passes requests on to other servers, its *upstreams*, and their responses back.
//!
//! ```
//! use highwire::App;
//! use highwire::proxy::{Balance, Proxy};
//!
//! let backends = Proxy::to(["http://127.0.0.1:9000", "http://127.0.0.1:9001"])?
//!     .strip_prefix("/api")
//!     .balance(Balance::LeastPending);
//! let app = App::new().proxy("/api", backends);
//! # let _ = app;
//! # Ok::<(), highwire::client::Error>(())
//! ```
//!
//! Bodies pass in both directions in parts, as fast as the slower side takes them, with their trailers. `Upgrade` passes
//! through, as for WebSockets. What the strict parser refuses never reaches an upstream; what remains is written anew, so
//! that two parsers read it alike:
//!
//! | of the request | what the upstream gets |
//! |---|---|
//! | the fields of the connection: `Connection` and those that it names, `Keep-Alive`, `Proxy-*`, `TE`, `Transfer-Encoding`, `Upgrade` | none of them, but our own for this connection; `TE: trailers` stays |
//! | a field whose name has an underscore | nothing, because CGI programs read it as one with a hyphen ([`Proxy::keep_underscores`]) |
//! | `Host` | the upstream's, or the client's with [`Proxy::preserve_host`] |
//! | `X-Forwarded-For`, `-Proto`, `-Host`, `Forwarded` | the client's address, scheme and host as we know them ([`Forwarding`]) |
//! | a path with an empty segment, with dot segments, also encoded, or with a backslash or a control byte | nothing: the client gets 400 |
//! | a protocol other than WebSocket in `Upgrade` | an ordinary request ([`Proxy::allow_upgrade`]) |
//! | `Expect` | nothing: this server asks for the body itself |
//!
//! If no upstream can take a request, the client gets 502, or 504 if a time limit has passed. If an upstream ends in the
//! middle of a response, the response to the client is cut, too.

mod head;
mod relay;
mod upstreams;

pub use self::head::Forwarding;
pub use self::upstreams::{Balance, HealthCheck};

use self::head::Incoming;
use self::upstreams::{Chosen, Upstreams};
use crate::client::{Bounds, Client, ClientBuilder, Error, Timeouts};
use crate::handler::private::IntoRoute;
use crate::handler::{Handler, Route};
use crate::{Response, StatusCode};
use bytes::Bytes;
use highwire_engine::Body;
use highwire_engine::body::BodyStream;
use highwire_engine::client::{Failure, Request};
use highwire_engine::response::{Content, Streamed};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The time limit for the head of an upstream's response. It is shorter than the server's own limit for handlers, so that
/// the client gets 504.
const HEAD: Duration = Duration::from_secs(50);

/// The most connections to upstreams on each worker. Each request in progress over HTTP/1 needs one.
const CONNECTIONS: usize = 4096;

/// The most further attempts for one request.
const RETRIES: usize = 2;

/// A reverse proxy. It is a handler; [`App::proxy`](crate::App::proxy) adds its routes.
#[derive(Clone)]
#[must_use]
pub struct Proxy {
    shared: Shared,
}

#[derive(Clone)]
struct Shared {
    upstreams: Upstreams,
    client: Client,
    /// A client for requests that propose another protocol, which HTTP/1.1 carries.
    upgrades: Client,
    prefix: String,
    preserves_host: bool,
    forwarding: Forwarding,
    keeps_underscores: bool,
    buffers: bool,
    retries: usize,
    /// The protocols that pass by Upgrade.
    protocols: Vec<String>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("upstreams", &self.shared.upstreams).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Creates a proxy for these upstreams: URLs with the scheme `http` or `https`. The path of a URL goes before the path
    /// of each request.
    ///
    /// # Errors
    /// Returns an error if a URL is invalid or there is none.
    pub fn to<U: AsRef<str>>(upstreams: impl IntoIterator<Item = U>) -> Result<Proxy, Error> {
        Proxy::with_client(upstreams, || {
            let bounds = Bounds { connections: CONNECTIONS, connections_in_all: CONNECTIONS, ..Bounds::default() };
            Client::builder().timeouts(Timeouts { head: HEAD, ..Timeouts::default() }).bounds(bounds)
        })
    }

    /// Creates a proxy whose client has other settings, such as TLS, bounds, time limits, a unix socket or the version of
    /// HTTP. `builder` is called twice, because requests that propose another protocol go over HTTP/1.1. Settings of whole
    /// requests have no effect: `timeout`, `redirects`, `retries`, default fields, middleware, decompression. The defaults
    /// are those of a client, not those of [`Proxy::to`].
    ///
    /// # Errors
    /// Returns an error if a URL or a setting is invalid or there is no upstream.
    pub fn with_client<U: AsRef<str>>(
        upstreams: impl IntoIterator<Item = U>,
        builder: impl Fn() -> ClientBuilder,
    ) -> Result<Proxy, Error> {
        let shared = Shared {
            upstreams: Upstreams::new(upstreams)?,
            client: builder().build()?,
            upgrades: builder().http1_only().build()?,
            prefix: String::new(),
            preserves_host: false,
            forwarding: Forwarding::default(),
            keeps_underscores: false,
            buffers: false,
            retries: RETRIES,
            protocols: vec!["websocket".to_string()],
        };
        Ok(Proxy { shared })
    }

    /// Removes a prefix from the path of each request, such as that of the route.
    pub fn strip_prefix(mut self, prefix: &str) -> Proxy {
        self.shared.prefix = prefix.trim_end_matches('/').to_string();
        self
    }

    /// Sends the client's `Host` to the upstreams, and not their own.
    pub fn preserve_host(mut self) -> Proxy {
        self.shared.preserves_host = true;
        self
    }

    /// Sets how the upstreams learn about the client; the default is [`Forwarding::Replace`].
    pub fn forwarding(mut self, forwarding: Forwarding) -> Proxy {
        self.shared.forwarding = forwarding;
        self
    }

    /// Passes on header fields whose names have underscores.
    pub fn keep_underscores(mut self) -> Proxy {
        self.shared.keeps_underscores = true;
        self
    }

    /// Receives the whole body of a request before an upstream gets the request, so that slow clients do not occupy
    /// upstreams, and so that the request can be sent to another upstream. The limit is that of the server for whole
    /// bodies.
    pub fn buffer_requests(mut self) -> Proxy {
        self.shared.buffers = true;
        self
    }

    /// Passes another protocol than WebSocket by `Upgrade`. The proxy does not see what is in its bytes.
    pub fn allow_upgrade(mut self, protocol: &str) -> Proxy {
        self.shared.protocols.push(protocol.to_string());
        self
    }

    /// Sets how an upstream is chosen; the default is [`Balance::RoundRobin`].
    pub fn balance(mut self, balance: Balance) -> Proxy {
        self.shared.upstreams.set_balance(balance);
        self
    }

    /// Asks each upstream regularly whether it is healthy. Without this, only the requests themselves show it.
    pub fn health_check(mut self, check: HealthCheck) -> Proxy {
        self.shared.upstreams.set_check(check);
        self
    }

    /// Sets the most further attempts for one request, at other upstreams; the default is 2. A request is sent again if no
    /// upstream has received it, or if it is idempotent and its connection was lost, and only if its body was not passed
    /// on in parts. Over time, a fifth of the requests may be sent again.
    pub fn retries(mut self, retries: usize) -> Proxy {
        self.shared.retries = retries;
        self
    }
}

/// The `M` of [`Handler`] for [`Proxy`].
#[derive(Debug)]
pub struct Proxying;

impl Handler<Proxying> for Proxy {}

impl IntoRoute<Proxying> for Proxy {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route(self) -> Arc<dyn Route> {
        let proxy = Arc::new(self.shared);
        if proxy.buffers {
            let buffered = move |incoming: Incoming, body: Bytes| {
                let proxy = proxy.clone();
                async move { proxy.pass(incoming, Content::Bytes(body)).await }
            };
            return buffered.into_route();
        }
        let streamed = move |incoming: Incoming, body: Body| {
            let proxy = proxy.clone();
            async move {
                let content = match incoming.length {
                    highwire_proto::Length::Empty => Content::Bytes(Bytes::new()),
                    highwire_proto::Length::Exact(length) => relay::body(body, Some(length)),
                    highwire_proto::Length::Unknown => relay::body(body, None),
                };
                proxy.pass(incoming, content).await
            }
        };
        streamed.into_route()
    }
}

impl Shared {
    /// Passes a request on, and returns the response.
    async fn pass(&self, mut incoming: Incoming, content: Content) -> Response {
        if !incoming.limit_upgrade(&self.protocols) {
            return Response::error(StatusCode::NOT_IMPLEMENTED, "this protocol does not pass here\n");
        }
        if let Err(why) = incoming.check_path().and_then(|()| incoming.path(&self.prefix)) {
            return Response::error(StatusCode::BAD_REQUEST, format!("{why}\n"));
        }
        let here = self.upstreams.here(&self.client);
        let client = if incoming.upgrade.is_some() { &self.upgrades } else { &self.client };
        let (mut tried, mut attempts, mut content) = (Vec::new(), 0, content);
        loop {
            let chosen = here.choose(&incoming, &tried);
            let had_stream = matches!(content, Content::Stream(_));
            let request = self.request(&incoming, &chosen, std::mem::replace(&mut content, empty()));
            let failure = match client.send_to(chosen.url(), request).await {
                Ok(answer) => {
                    chosen.answered();
                    return relay::response(*answer, &incoming, chosen);
                }
                Err((failure, again)) => {
                    chosen.failed(&failure);
                    let Some(request) = again else { return refused(&failure) };
                    content = request.content;
                    failure
                }
            };
            tried.push(chosen.index());
            let is_whole = !had_stream || matches!(content, Content::Stream(_));
            let may = failure.is_unsent() || is_refused(&failure) || (failure.is_lost() && incoming.is_idempotent());
            if !may || !is_whole || attempts >= self.retries || !here.may_retry() {
                return refused(&failure);
            }
            attempts += 1;
        }
    }

    /// Returns the request for an upstream.
    fn request(&self, incoming: &Incoming, chosen: &Chosen, content: Content) -> Request {
        let url = chosen.url();
        let scheme = if url.is_secure() { "https" } else { "http" };
        let host: Rc<str> = match incoming.host() {
            Some(host) if self.preserves_host => host.into(),
            _ => chosen.host(),
        };
        let base = url.target().trim_end_matches('/');
        let (path, query) = (incoming.path(&self.prefix).unwrap_or_default(), incoming.query());
        let mut target = String::with_capacity(base.len() + path.len() + 1 + query.map_or(0, str::len));
        for part in [base, path].into_iter().chain(query.map(|query| ["?", query]).into_iter().flatten()) {
            target.push_str(part);
        }
        let mut request = Request::new(incoming.method.clone(), scheme, host, target);
        request.fields = incoming.fields(self.forwarding, self.keeps_underscores);
        request.upgrade = incoming.upgrade.clone();
        request.content = content;
        request
    }
}

fn empty() -> Content {
    Content::Bytes(Bytes::new())
}

/// Returns true if the connection was not made, so that the upstream has not received the request.
fn is_refused(failure: &Failure) -> bool {
    use highwire_engine::client::Stage::{Connect, Handshake, Pool, Resolve};
    matches!(
        failure,
        Failure::Resolve(_)
            | Failure::Connect(_)
            | Failure::Tls(_)
            | Failure::TooManyWaiting
            | Failure::TimedOut(Connect | Handshake | Pool | Resolve)
    )
}

/// Returns the response to a request that no upstream has answered.
fn refused(failure: &Failure) -> Response {
    highwire_engine::log!(Failure, warn, %failure, "an upstream has not answered");
    let (status, text) = match failure {
        Failure::TimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, "the server behind this one does not answer in time\n"),
        Failure::TooManyWaiting | Failure::TooManyConnections | Failure::NoMemory => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait for the server behind this one\n")
        }
        Failure::Invalid(_) => (StatusCode::BAD_REQUEST, "the request cannot be passed on\n"),
        Failure::Body(_) => (StatusCode::BAD_REQUEST, "the body of the request was not received\n"),
        _ => (StatusCode::BAD_GATEWAY, "the server behind this one does not answer\n"),
    };
    Response::error(status, text)
}

/// Returns a body in parts.
fn streamed(length: Option<u64>, body: BodyStream, trailers: Option<highwire_engine::body::Trailers>) -> Content {
    Content::Stream(Box::new(Streamed { length, body, trailers }))
}
