//! An app as a service: requests of this process go to workers of their own, which have no address.

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

/// Makes a service of an app, for whatever takes services of `http` requests: axum's `fallback_service` and `nest_service`,
/// hyper, layers of the tower family.
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
/// Handlers stay on one thread, as everywhere in Highwire: the service has workers of its own, as many as `Config::workers`
/// says, and one where that says nothing. They begin here. When the last clone of the service is gone they finish what is
/// under way, until `Timeouts::shutdown` at the latest, and end.
///
/// Routes, middleware, bounds, deadlines, the memory budget and the access log are those that the app has behind sockets.
/// `Limits::connections` bounds the requests at once; beyond it they are answered 503. Timeouts are those of bodies, handlers,
/// and of answers that nobody takes (`Timeouts::write`). A response that is dropped before its end, or the future of one,
/// cancels its handler.
///
/// - The request's body is asked for on the worker's thread, and no faster than the handler takes it. A body that needs
///   tokio there, as some layers' do, needs the feature `tokio`. Its errors arrive as [`BodyError`](crate::body::BodyError).
/// - A [`Peer`](crate::Peer) or a `SocketAddr` in the request's extensions is whom it comes from, a [`Tls`](crate::Tls) says that
///   it came under TLS, and [`Extension`](crate::Extension) takes the others. Without `Tls` a request counts as in the clear: an
///   app that sends those to https is best told to do so where it is served.
/// - axum does not say whom a request comes from by itself, and without it limits by address let everything pass. Its
///   `into_make_service_with_connect_info::<SocketAddr>` leaves a `ConnectInfo<SocketAddr>`, out of which a layer
///   (`middleware::map_request`) puts the `SocketAddr` into the extensions.
/// - `Content-Length` and `Transfer-Encoding` of a request are not believed; its body says how long it is.
/// - There is no way for interim responses, reason phrases and other protocols: a handler that accepts an upgrade, and every
///   CONNECT, is answered 501. `Server` and `Date` are left to whoever sends the answer.
///
/// # Errors
/// A mistake in the app's routes or settings, or what keeps its workers from starting.
pub fn into_service(app: App) -> crate::Result<AppService> {
    let server = app.configure(|config| config.workers = config.workers.max(1)).server()?;
    Ok(AppService { running: Arc::new(Running { handle: server.start_inside()? }) })
}

/// An app as a service: see [`into_service`].
#[derive(Clone)]
pub struct AppService {
    running: Arc<Running>,
}

impl fmt::Debug for AppService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppService")
    }
}

/// What all clones share. Its end is that of the workers.
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

    /// Always ready: what is too much is answered so.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> ResponseFuture {
        let (request, body) = request.into_parts();
        let body = (!body.is_end_stream()).then(|| Box::pin(InBytes { body: Box::pin(body) }) as RequestBody);
        self.running.handle.call(request, body)
    }
}

/// A body whose parts are [`Bytes`].
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
