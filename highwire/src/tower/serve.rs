//! Services as servers: what `axum::serve` does, on Highwire's workers.

use super::handler::{Anonymous, Incoming, RequestService, service, with_head};
use crate::app::dispatch::AppFactory;
use crate::server::{Config, Listener, Serve, SocketOptions};
use crate::{App, Peer};
use highwire_engine::body::BoxError;
use http_body::Body as HttpBody;
use std::convert::Infallible;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Serves an axum `Router` or another service of `http` requests on Highwire's workers: the drop-in for `axum::serve`.
///
/// ```
/// use axum::{Router, routing::get};
/// use highwire::tower;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Router::new().route("/", get(async || "hello"));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let stop = async {};
/// tower::serve(listener, app).with_graceful_shutdown(stop).await?;
/// # Ok(())
/// # }
/// ```
///
/// The second argument is a service of requests, such as a `Router`, or one that makes such a service for a
/// [`Connection`], such as what `Router::into_make_service` returns. With the feature `axum`, what
/// `Router::into_make_service_with_connect_info::<SocketAddr>` returns is one, too. It is asked for a service at each request,
/// not once for each connection.
///
/// For axum (0.8) turn on the feature `axum`, which includes `hyper`, `tokio` and `tower`. The service then runs inside the tokio
/// runtime of a worker's thread, not in that of the caller: `block_in_place` panics, and a shutdown does not wait for tasks of
/// `tokio::spawn`, which are dropped with the worker. For work that must outlive it, take a `Handle` of the program's runtime, or use
/// [`spawn`](crate::spawn). A type of your own is connect info if it implements `Connected<tower::Connection>`. Services must be
/// `Sync`, as routers are.
///
/// `axum::serve` has no timeouts. Here a handler has 60 seconds and so has each part of a response (`timeouts.handler`), a WebSocket on
/// which nothing passes ends after 300 (`timeouts.tunnel`), and a shutdown cuts what is left after 30 (`timeouts.shutdown`): send
/// keep-alives in event streams, and Pings. [`configure`](ServeService::configure) changes these settings and all others of [`Config`].
/// The queue of connections is the listener's own, which all workers share.
///
/// Requests to a `Router` carry no [`Peer`]: for the address use `into_make_service_with_connect_info`. Bodies, WebSockets and HTTP/2
/// are as with [`service`]. For TLS, unix sockets, several addresses, routes of an app or hooks, use
/// `App::new().fallback(tower::service(router))` and its `listen`.
pub fn serve<L, S, K>(listener: L, service: S) -> ServeService
where
    L: IntoListener,
    S: Served<K>,
{
    ServeService { app: service.into_app(), listener: listener.into_std() }
}

/// What [`serve`] returns. It becomes the future [`Serve`] when it is awaited.
#[must_use = "the server starts when this is awaited"]
pub struct ServeService {
    app: App,
    listener: io::Result<TcpListener>,
}

impl std::fmt::Debug for ServeService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeService").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl ServeService {
    /// Changes the server's settings, such as the number of workers.
    pub fn configure(self, change: impl FnOnce(&mut Config)) -> ServeService {
        ServeService { app: self.app.configure(change), listener: self.listener }
    }

    /// Shuts the server down gracefully when `signal` is ready.
    pub fn with_graceful_shutdown<F>(self, signal: F) -> ServeFuture
    where
        F: IntoFuture<Output = (), IntoFuture: Send + 'static>,
    {
        let mut future = self.into_future();
        if let Ok(serve) = future.serve {
            future.serve = Ok(serve.with_graceful_shutdown(signal));
        }
        future
    }

    fn begin(self) -> crate::Result<Serve<AppFactory>> {
        let listener = self.listener?;
        let mut options = SocketOptions::default();
        let app = self.app.configure(|config| options = config.socket.clone());
        Ok(app.server()?.listen_on(Listener::from_std(listener, &options)?)?.serve())
    }
}

impl IntoFuture for ServeService {
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture { serve: self.begin().map_err(Some) }
    }
}

/// The future of a server of a service. It is ready when the server has stopped.
#[must_use = "the server starts when the future is polled"]
#[derive(Debug)]
pub struct ServeFuture {
    serve: Result<Serve<AppFactory>, Option<crate::Error>>,
}

impl Future for ServeFuture {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.serve {
            Ok(serve) => Pin::new(serve).poll(cx).map_ok(drop).map_err(as_io),
            Err(error) => match error.take() {
                Some(error) => Poll::Ready(Err(as_io(error))),
                None => Poll::Pending,
            },
        }
    }
}

fn as_io(error: crate::Error) -> io::Error {
    match error {
        crate::Error::System(error) => error,
        other => io::Error::other(other),
    }
}

/// A listening socket of the standard library or, with the feature `tokio`, of tokio, for [`serve`].
pub trait IntoListener {
    /// Returns the socket without its runtime.
    ///
    /// # Errors
    /// Returns the system's error.
    fn into_std(self) -> io::Result<TcpListener>;
}

impl IntoListener for TcpListener {
    fn into_std(self) -> io::Result<TcpListener> {
        Ok(self)
    }
}

#[cfg(feature = "tokio")]
impl IntoListener for tokio::net::TcpListener {
    fn into_std(self) -> io::Result<TcpListener> {
        self.into_std()
    }
}

/// The connection for which [`serve`] asks a maker of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    peer: Peer,
}

impl Connection {
    /// Returns the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

/// A service that [`serve`] takes. `K` tells the two kinds apart: [`OfRequests`] and [`OfConnections`].
pub trait Served<K> {
    #[doc(hidden)]
    fn into_app(self) -> App;
}

/// The kind of services of requests, such as axum's `Router`.
#[derive(Debug)]
pub struct OfRequests;

/// The kind of makers of services, such as axum's `IntoMakeService`.
#[derive(Debug)]
pub struct OfConnections;

impl<S: RequestService> Served<OfRequests> for S {
    fn into_app(self) -> App {
        App::new().fallback(with_head::<Anonymous, _>(self))
    }
}

impl<M, S, B> Served<OfConnections> for M
where
    M: tower_service::Service<Connection, Response = S, Error = Infallible, Future: 'static>
        + Clone
        + Send
        + Sync
        + 'static,
    S: tower_service::Service<http::Request<Incoming>, Response = http::Response<B>> + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: HttpBody + 'static,
    B::Error: Into<BoxError>,
{
    fn into_app(self) -> App {
        App::new().fallback(service(ForEach { make: self }))
    }
}

/// Makes a service for each request.
#[derive(Clone)]
struct ForEach<M> {
    make: M,
}

impl<M, S, B> tower_service::Service<http::Request<Incoming>> for ForEach<M>
where
    M: tower_service::Service<Connection, Response = S, Error = Infallible, Future: 'static> + Clone + 'static,
    S: tower_service::Service<http::Request<Incoming>, Response = http::Response<B>> + 'static,
    S::Future: 'static,
{
    type Response = http::Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<B>, S::Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.make.poll_ready(cx).map(|Ok(())| Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Local);
        let making = self.make.call(Connection { peer });
        Box::pin(async move {
            let Ok(mut service) = making.await;
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        })
    }
}

#[cfg(feature = "axum")]
impl axum::extract::connect_info::Connected<Connection> for std::net::SocketAddr {
    /// Returns the client's address; for a unix socket `0.0.0.0:0`, because axum knows no other kind.
    fn connect_info(connection: Connection) -> std::net::SocketAddr {
        match connection.peer {
            Peer::Internet(ip, port) => (ip, port).into(),
            Peer::Local => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}
