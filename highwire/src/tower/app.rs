//! An app as a tower service. The service has its own workers, which answer requests of this process and listen on no
//! address.

use crate::App;
use crate::server::Handle;
use bytes::{Buf, Bytes};
use highwire_engine::body::BoxError;
use highwire_engine::call::{RequestBody, ResponseBody, ResponseFuture};
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Turns an app into a service of `http` requests, for axum's `fallback_service` and `nest_service`, for hyper, and for
/// layers of the tower family.
///
/// ```
/// use highwire::{App, tower};
/// use tower_service::Service;
///
/// let mut service = tower::into_service(App::new().get("/", async || "hello"))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let request = http::Request::new(axum::body::Body::empty());
/// let Ok(answer) = service.call(request).await;
/// assert_eq!(answer.status(), 200);
/// # });
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// Each handler runs on one thread, as everywhere in Highwire, so the service has its own workers, `Config::workers` of
/// them, or one if that is 0. This function starts them. When the last clone of the service is dropped, the workers
/// finish the requests in progress, for at most `Timeouts::shutdown`, and end.
///
/// Routes, middleware, limits, the memory budget and the access log work as they do behind sockets.
/// `Limits::connections` bounds the requests in progress; further ones get 503. The timeouts that apply are `body`,
/// `handler`, and `write`, which ends responses whose bodies are not read. The handler is cancelled if the caller drops
/// the future, or drops the response before its end.
///
/// - The worker's thread polls the request's body, no faster than the handler takes it. If polling the body needs a
///   tokio runtime, as with some layers, turn on the feature `tokio`. The handler gets the body's errors as
///   [`BodyError`](crate::body::BodyError).
/// - The client's address is the [`Peer`](crate::Peer) or the `SocketAddr` in the request's extensions. A
///   [`Tls`](crate::Tls) there marks a request that arrived under TLS. Without a `Tls`, the request counts as plain
///   HTTP; therefore let the outer server redirect to HTTPS, not [`Https::redirect`](crate::Https::redirect).
///   [`Extension`](crate::Extension) extracts other extensions.
/// - A request without an address counts as from `0.0.0.0`, and rate limits by address do not apply to it.
///   axum adds no address automatically. With axum's `into_make_service_with_connect_info::<SocketAddr>`, requests have
///   a `ConnectInfo<SocketAddr>`, from which a layer (`middleware::map_request`) can copy the `SocketAddr` into the
///   extensions.
/// - `Content-Length` and `Transfer-Encoding` of a request are ignored; the length is that of the request's body.
/// - Interim responses and reason phrases are dropped. CONNECT, and a handler that accepts an upgrade, are answered
///   with 501. `Server` and `Date` are left to the server that sends the response.
///
/// # Errors
/// Returns an error if the app's routes or settings are wrong, or if its workers cannot start.
pub fn into_service(app: App) -> crate::Result<AppService> {
    let server = app.configure(|config| config.workers = config.workers.max(1)).server()?;
    Ok(AppService { running: Arc::new(Running { handle: server.start_inside()? }) })
}

/// A service that [`into_service`] has made of an app.
#[derive(Clone)]
pub struct AppService {
    running: Arc<Running>,
}

impl fmt::Debug for AppService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppService")
    }
}

/// The workers of all clones of a service. Dropping it shuts the workers down.
struct Running {
    handle: Handle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

impl<B> tower_service::Service<http::Request<B>> for AppService
where
    B: Body<Data: Buf, Error: Into<BoxError>> + Send + 'static,
{
    type Response = http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    /// Always returns ready. Requests beyond `Limits::connections` are answered with 503.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> ResponseFuture {
        let (request, body) = request.into_parts();
        let body = (!body.is_end_stream()).then(|| Box::pin(InBytes { body: Box::pin(body) }) as RequestBody);
        self.running.handle.call(request, body)
    }
}

/// Wraps a body and converts its parts to [`Bytes`].
struct InBytes<B> {
    body: Pin<Box<B>>,
}

impl<B: Body<Error: Into<BoxError>>> Body for InBytes<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = self.body.as_mut().poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
