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
//! | the fields of the connection: `Connection` and those that it names, `Keep-Alive`, `Proxy`, `Proxy-*`, `TE`, `Transfer-Encoding`, `Upgrade` | none of them, but our own for this connection; `TE: trailers` stays |
//! | a field whose name has an underscore | nothing, because CGI programs read it as one with a hyphen ([`Proxy::keep_underscores`]) |
//! | `Host` | the upstream's, or the client's with [`Proxy::preserve_host`] |
//! | `X-Forwarded-For`, `-Proto`, `-Host`, `Forwarded` | the client's address, scheme and host as we know them ([`Forwarding`]) |
//! | a path with dot segments or a control byte, also encoded | nothing: the client gets 400 |
//! | a path with an empty segment or a backslash, also encoded | nothing: the client gets 400 ([`Proxy::allow_unusual_paths`]) |
//! | `Max-Forwards` of OPTIONS and TRACE | one less; with 0 this proxy answers |
//! | a protocol other than WebSocket in `Upgrade` | an ordinary request ([`Proxy::allow_upgrade`]) |
//! | `Expect` | nothing: this server asks for the body itself |
//! | `X-Request-Id` | that of [`RequestIds`](crate::middleware::RequestIds), if the middleware is in place |
//!
//! Interim responses such as 103 pass, and in `Location` the upstream's own address is replaced by a path. If the client
//! leaves, its request to the upstream is cancelled at once.
//!
//! If no upstream can take a request, the client gets 502, or 504 if a time limit has passed. If an upstream ends in the
//! middle of a response, the response to the client is cut, too. `docs/proxy.md` says what happens to an upstream that
//! fails.

mod edits;
mod frames;
mod head;
mod relay;
mod start;
mod upstreams;

pub use self::edits::UpstreamRequest;
pub use self::head::{Forwarding, is_of_connection};
pub use self::upstreams::{Balance, HealthCheck};

use self::edits::Edits;
use self::head::Incoming;
use self::start::{Started, UPLOAD_BYTES, Uploading};
use self::upstreams::{Chosen, Upstreams};
use crate::client::{Bounds, Client, ClientBuilder, Error, OnInterim, Timeouts};
use crate::handler::private::IntoRoute;
use crate::handler::{Handler, Route};
use crate::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use highwire_engine::Body;
use highwire_engine::body::BodyStream;
use highwire_engine::client::{Answer, Failure, Request, Stage};
use highwire_engine::response::{Content, Streamed};
use highwire_engine::time::sleep;
use highwire_proto::Length;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The time limit for the head of an upstream's response. It is shorter than the server's own limit for handlers, so that
/// the client gets 504.
const HEAD: Duration = Duration::from_secs(50);

/// The most connections to upstreams on each worker. Each request in progress over HTTP/1 needs one. The connections of the
/// server to others are at most half of those that its descriptors permit.
const CONNECTIONS: usize = 4096;

/// The time after which an upstream that answers nothing is taken to hang, if the request can be sent to another one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time after which a request whose upstream hangs looks again whether there is another upstream.
const AGAIN: Duration = Duration::from_secs(1);

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
    patience: Duration,
    allows_unusual_paths: bool,
    /// The protocols that pass by Upgrade.
    protocols: Vec<String>,
    edits: Edits,
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
        Proxy::with_client(upstreams, Proxy::client)
    }

    /// Returns the builder of the client of [`Proxy::to`], for [`with_client`](Self::with_client).
    pub fn client() -> ClientBuilder {
        let bounds = Bounds::default().connections(CONNECTIONS).connections_in_all(CONNECTIONS);
        Client::builder().timeouts(Timeouts::default().head(HEAD)).bounds(bounds)
    }

    /// Creates a proxy whose client has other settings, such as TLS, bounds, time limits, a unix socket or the version of
    /// HTTP. `builder` is called twice, because requests that propose another protocol go over HTTP/1.1. Settings of whole
    /// requests have no effect: `timeout`, `redirects`, `retries`, default fields, middleware, decompression. Begin with
    /// [`Proxy::client`] to keep the other settings of [`Proxy::to`].
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
            patience: PATIENCE,
            allows_unusual_paths: false,
            protocols: vec!["websocket".to_string()],
            edits: Edits::default(),
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

    /// Passes paths on that have empty segments or backslashes, as image proxies and object stores need. The risk: a server
    /// that merges `//` to `/`, or takes `\` for `/`, reads another path than this server, whose routes decide what a
    /// client may reach. `/public//admin` may then be `/admin` there. Paths with dot segments or control bytes never pass.
    pub fn allow_unusual_paths(mut self) -> Proxy {
        self.shared.allows_unusual_paths = true;
        self
    }

    /// Sets the time after which another upstream is tried if this one has answered no request in that time; the default is
    /// 10 seconds. Only idempotent requests are sent again. The limit for the head of a response, 50 seconds by default,
    /// holds for each attempt.
    pub fn patience(mut self, patience: Duration) -> Proxy {
        self.shared.patience = patience;
        self
    }

    /// Sets a header field of each request for the upstreams, in place of those of the client and of the proxy. `Host` replaces
    /// the host.
    pub fn set_header(mut self, name: HeaderName, value: HeaderValue) -> Proxy {
        self.shared.edits.of_requests.push((name, Some(value)));
        self
    }

    /// Removes a header field from each request for the upstreams.
    pub fn remove_header(mut self, name: HeaderName) -> Proxy {
        self.shared.edits.of_requests.push((name, None));
        self
    }

    /// Sets a header field of each response of the upstreams, in place of their own.
    pub fn set_response_header(mut self, name: HeaderName, value: HeaderValue) -> Proxy {
        self.shared.edits.of_responses.push((name, Some(value)));
        self
    }

    /// Removes a header field from each response of the upstreams.
    pub fn remove_response_header(mut self, name: HeaderName) -> Proxy {
        self.shared.edits.of_responses.push((name, None));
        self
    }

    /// Lets a function change each request for the upstreams, or answer it in their place. It is called for each attempt,
    /// after the fields of [`set_header`](Self::set_header) are set. A later function replaces this one.
    ///
    /// ```
    /// use highwire::proxy::Proxy;
    /// use highwire::{HeaderValue, Response, StatusCode, header};
    ///
    /// let proxy = Proxy::to(["http://127.0.0.1:9000"])?.on_request(|request| {
    ///     if request.decoded_client_path().starts_with("/internal/") {
    ///         return Err(Response::error(StatusCode::FORBIDDEN, "not for you\n"));
    ///     }
    ///     request.set_header(header::AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
    ///     Ok(())
    /// });
    /// # let _ = proxy;
    /// # Ok::<(), highwire::client::Error>(())
    /// ```
    pub fn on_request(
        mut self,
        change: impl Fn(&mut UpstreamRequest<'_>) -> Result<(), Response> + Send + Sync + 'static,
    ) -> Proxy {
        self.shared.edits.on_request = Some(Arc::new(change));
        self
    }

    /// Lets a function change each response of the upstreams, after the fields of
    /// [`set_response_header`](Self::set_response_header) are set. A later function replaces this one.
    pub fn on_response(mut self, change: impl Fn(&mut Response) + Send + Sync + 'static) -> Proxy {
        self.shared.edits.on_response = Some(Arc::new(change));
        self
    }

    /// Sets the most further attempts for one request, at other upstreams; the default is 2. A request is sent again if no
    /// upstream has received it, or if it is idempotent and its connection was lost, and only if its body was not passed
    /// on in parts. Each worker may send again a fifth of its requests of the last 5 to 10 seconds, and in addition 100 or
    /// as many as are in progress, whichever is more.
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
                async move { proxy.pass(incoming, Content::Bytes(body), Uploading::default()).await }
            };
            return buffered.into_route();
        }
        let streamed = move |incoming: Incoming, body: Body| {
            let proxy = proxy.clone();
            async move {
                let length = match incoming.length {
                    Length::Empty => {
                        let content = Content::Bytes(Bytes::new());
                        return proxy.pass(incoming, content, Uploading::default()).await;
                    }
                    Length::Exact(length) => Some(length),
                    Length::Unknown => None,
                };
                let uploading = Uploading::new();
                let content = relay::body(body, length, &uploading);
                proxy.pass(incoming, content, uploading).await
            }
        };
        streamed.into_route()
    }
}

impl Shared {
    /// Passes a request on, and returns the response. `uploading` gets the request's place among the uploads of its
    /// connection.
    async fn pass(&self, mut incoming: Incoming, content: Content, uploading: Uploading) -> Response {
        if !incoming.limit_upgrade(&self.protocols) {
            return Response::error(StatusCode::NOT_IMPLEMENTED, "this protocol does not pass here\n");
        }
        let checked = incoming.check_path(self.allows_unusual_paths);
        if let Err(why) = checked.and_then(|()| incoming.path(&self.prefix)) {
            return Response::error(StatusCode::BAD_REQUEST, format!("{why}\n"));
        }
        if let Some(answer) = incoming.forward_once() {
            return answer;
        }
        let here = self.upstreams.here(&self.client);
        let on_interim = incoming.take_interims().map(relay::interim);
        let is_long = match incoming.length {
            _ if !matches!(content, Content::Stream(_)) => false,
            Length::Exact(length) => length > UPLOAD_BYTES,
            Length::Empty | Length::Unknown => true,
        };
        let (mut started, mut connection) = (None, None);
        match incoming.shared_connection() {
            Some(shared) if is_long => {
                let Some(upload) = here.starts.enter_upload(shared).await else {
                    let text = "too many uploads of this connection are in progress\n";
                    return Response::error(StatusCode::SERVICE_UNAVAILABLE, text);
                };
                connection = Some(upload.connection());
                uploading.set(upload);
            }
            Some(shared) => {
                let request = here.starts.enter(shared).await;
                connection = Some(request.connection());
                started = Some(request);
            }
            None => {}
        }
        here.count_request();
        let (mut tried, mut attempts, mut content) = (Vec::new(), 0, content);
        loop {
            let had_stream = matches!(content, Content::Stream(_));
            let mut chosen = here.choose(&incoming, &tried, had_stream);
            if !here.is_single() {
                tried.push(chosen.index());
            }
            let copy = if let Content::Bytes(bytes) = &content { Some(bytes.clone()) } else { None };
            let mut request = self.request(&incoming, &chosen, std::mem::replace(&mut content, empty()));
            if let Err(response) = self.edits.request(&mut request, &incoming) {
                return response;
            }
            request.wants_interims = on_interim.is_some();
            request.is_sparing = started.as_ref().is_some_and(Started::is_sparing);
            // Another upstream may get the request if this one hangs.
            let may_change = !here.is_single() && copy.is_some() && incoming.is_idempotent() && attempts < self.retries;
            let patience = Some(self.patience).filter(|patience| may_change && !patience.is_zero());
            let has_another = || here.has_another(&tried);
            // It is in a box, because requests that wait for their turn do not need its memory.
            let on_interim = on_interim.as_ref().map(|on_interim| on_interim as &OnInterim);
            let attempt = Box::pin(self.attempt(&incoming, &chosen, request, on_interim, patience, has_another));
            let failure = match attempt.await {
                Ok(answer) => {
                    chosen.answered();
                    drop((uploading.take(), started));
                    let untaken = connection.map(|connection| connection.answered());
                    let mut response = relay::response(*answer, &incoming, chosen, untaken, &self.prefix);
                    self.edits.response(&mut response);
                    return response;
                }
                Err((failure, again)) => {
                    chosen.failed(&failure);
                    content = match (again, copy) {
                        (Some(request), _) => request.content,
                        (None, Some(bytes)) => Content::Bytes(bytes),
                        (None, None) => return refused(&failure, &incoming, &chosen),
                    };
                    failure
                }
            };
            let is_whole = !had_stream || matches!(content, Content::Stream(_));
            let is_timed_out = matches!(failure, Failure::TimedOut(Stage::Head));
            let is_lost = failure.is_lost() || is_timed_out;
            let may = failure.is_unsent() || is_refused(&failure) || (is_lost && incoming.is_idempotent());
            let has_time = !is_timed_out || here.has_another(&tried);
            if !may || !is_whole || attempts >= self.retries || !has_time || !here.may_retry() {
                return refused(&failure, &incoming, &chosen);
            }
            attempts += 1;
        }
    }

    /// Sends a request to an upstream once. If `patience` is given, the upstream has answered nothing for so long, and another one
    /// could take the request, the attempt ends.
    async fn attempt(
        &self,
        incoming: &Incoming,
        chosen: &Chosen,
        request: Request,
        on_interim: Option<&OnInterim>,
        patience: Option<Duration>,
        has_another: impl Fn() -> bool,
    ) -> Result<Box<Answer>, (Failure, Option<Request>)> {
        let client = if incoming.upgrade.is_some() { &self.upgrades } else { &self.client };
        let mut answer = pin!(client.send_to(chosen.url(), request, on_interim));
        let mut pause = patience.map(sleep);
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            while let Some((pause, patience)) = pause.as_mut().zip(patience)
                && Pin::new(&mut *pause).poll(cx).is_ready()
            {
                let silence = chosen.silence();
                if silence >= patience && has_another() {
                    return Poll::Ready(Err((Failure::TimedOut(Stage::Head), None)));
                }
                // It has answered other requests meanwhile, or there is no other upstream now.
                let rest = patience.saturating_sub(silence);
                *pause = sleep(if rest.is_zero() { AGAIN } else { rest });
            }
            Poll::Pending
        })
        .await
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

/// Returns the response to a request that no upstream has answered, and logs what has failed.
fn refused(failure: &Failure, incoming: &Incoming, chosen: &Chosen) -> Response {
    let (status, text) = match failure {
        Failure::TimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, "the server behind this one does not answer in time\n"),
        Failure::TooManyWaiting | Failure::TooManyConnections | Failure::NoMemory => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait for the server behind this one\n")
        }
        Failure::Invalid(_) => (StatusCode::BAD_REQUEST, "the request cannot be passed on\n"),
        Failure::Body(_) => (StatusCode::BAD_REQUEST, "the body of the request was not received\n"),
        Failure::Malformed(error) if error.status() == 431 => {
            (StatusCode::BAD_GATEWAY, "the head of the response of the server behind this one is too large\n")
        }
        Failure::Malformed(_) | Failure::Http2(..) => {
            (StatusCode::BAD_GATEWAY, "the response of the server behind this one is malformed\n")
        }
        Failure::Lost => (StatusCode::BAD_GATEWAY, "the server behind this one has ended its connection\n"),
        _ => (StatusCode::BAD_GATEWAY, "the server behind this one does not answer\n"),
    };
    let client = incoming.peer().map(|client| client.to_string());
    let (client, method, path) = (client.as_deref(), incoming.method.as_str(), incoming.whole_path());
    let upstream = chosen.url();
    highwire_engine::log!(
        Upstream, warn, ?upstream, method, path, client, status = status.as_u16(), %failure,
        "a request was not answered by its upstream"
    );
    Response::error(status, text)
}

/// Returns a body in parts.
fn streamed(length: Option<u64>, body: BodyStream, trailers: Option<highwire_engine::body::Trailers>) -> Content {
    Content::Stream(Box::new(Streamed { length, body, trailers }))
}
