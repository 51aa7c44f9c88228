//! Layers of tower around the routes of an app.
//!
//! A layer wraps a service once, and may keep state that all requests share, such as a limit. So [`layer`] makes one service, around
//! [`Routes`], and each request of the app passes a clone of it. What remains to be done for a request, its handler and the middleware
//! within the layer, cannot leave the worker's thread, while the services of tower are `Send`. It therefore stays in a table of the
//! thread; what passes the layer is its number.

use super::bodies::{poll_body, receive};
use super::handler::{self, Head as _, Incoming, RequestService, announced_length, call, convert, take_over};
use crate::message::request::BodyUse;
use crate::middleware::{FromFn, Next, OwnedRequest, from_fn};
use crate::{FromRequest, HeaderMap, IntoResponse, Method, Response, StatusCode};
use bytes::{Buf, Bytes, BytesMut};
use highwire_engine::body::{BodyError, BoxError};
use highwire_engine::call::CallHead;
use highwire_engine::request::Ready;
use highwire_engine::response::{Content, Streamed};
use highwire_proto::{Length, Limits};
use http::Uri;
use http::request::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Makes a middleware of a layer of tower, such as those of the crates tower and tower-http.
///
/// The layer wraps one service, around all routes within the middleware, on all workers: a limit of the layer counts all
/// their requests. It sees requests that have been routed already, with the handler's body limit around the body. It may change the
/// head and the body of a request, but a changed path does not change the route. If the service of the layer fails, the response is 500, and the
/// error is logged. The upgrade of a WebSocket passes the layer like another response. The head of a `CONNECT` that opens a tunnel cannot be
/// changed: the response is 500.
///
/// The layer must call the routes on the thread on which it was called, once for each request, and pass on the request's extensions.
/// Otherwise the response is 500, and the mistake is logged. So `tower::buffer` cannot be used, and `tower::retry` repeats no request.
///
/// The layer costs more than a middleware of Highwire's own: heads and bodies are converted both ways.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, header, tower};
/// use tower_http::set_header::SetResponseHeaderLayer;
///
/// let layer = SetResponseHeaderLayer::if_not_present(header::X_FRAME_OPTIONS, header::HeaderValue::from_static("DENY"));
/// let app = App::new().get("/", || "hello").with(tower::layer(layer));
/// assert_eq!(Client::new(app)?.get("/").send().header("x-frame-options"), "DENY");
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn layer<L>(layer: L) -> FromFn<impl Fn(OwnedRequest, Next) -> Passing + Send + Sync + 'static, Passing>
where
    L: tower_layer::Layer<Routes>,
    L::Service: RequestService,
{
    let service = layer.layer(Routes { _private: () });
    from_fn(move |request, next| Passing(Box::pin(pass(service.clone(), request, next))))
}

/// A request on its way through a layer.
pub struct Passing(Pin<Box<dyn Future<Output = Response>>>);

impl fmt::Debug for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passing")
    }
}

impl Future for Passing {
    type Output = Response;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        self.0.as_mut().poll(cx)
    }
}

async fn pass<S: RequestService>(mut service: S, mut request: OwnedRequest, next: Next) -> Response {
    let mut borrowed = request.request();
    let mut parts = match handler::Parts::from_request(&mut borrowed) {
        Ok(parts) => parts.into_parts(),
        Err(response) => return response,
    };
    let (body, body_use) = match replace(borrowed.body, Ready::Taken) {
        Ready::Whole(bytes) => (Incoming::whole(bytes), BodyUse::Whole),
        Ready::Parts(body) => (take_over(body, announced_length(&parts.headers)).await, BodyUse::Parts),
        Ready::Nothing | Ready::Taken => (Incoming::whole(Bytes::new()), BodyUse::None),
    };
    let is_head = parts.method == Method::HEAD;
    let length = body.size_hint().exact();
    let (method, uri, headers) = (parts.method.clone(), parts.uri.clone(), parts.headers.clone());
    let received = Received { method, uri, headers, length };
    let entry = Entry::new(Step::Waits(Box::new(Rest { request, next, body_use, received })));
    parts.extensions.insert(entry.ticket());
    let answer = match call(&mut service, http::Request::from_parts(parts, body)).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    let own = entry.take_answer();
    let status = answer.status();
    let mut response = convert(answer.map(|body| Held { body: Box::pin(body), _entry: entry }), is_head);
    if let Some(mut own) = own {
        if own.status() == status && matches!(own.content(), Content::Switch(_)) {
            std::mem::swap(response.content_mut(), own.content_mut());
        }
        response.take_over(own);
    }
    response
}

/// What a handler needs, while its request passes a layer.
struct Rest {
    request: OwnedRequest,
    next: Next,
    body_use: BodyUse,
    received: Received,
}

/// What a layer may change of a request's head, as it was before, with the length of the body.
struct Received {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    length: Option<u64>,
}

/// How far a request has come within a layer.
enum Step {
    /// The layer has not called the routes.
    Waits(Box<Rest>),
    /// The handler runs.
    Runs(Pin<Box<dyn Future<Output = Response>>>),
    /// The handler has answered: its response without the content, unless the connection is to be taken over, and the stream that
    /// remains to be read.
    Answered(Box<Option<Response>>, Option<Box<Streamed>>),
}

thread_local! {
    /// The requests of this thread that are in layers, by numbers that no two requests of the process share.
    static STEPS: RefCell<HashMap<u64, Step>> = RefCell::default();
}

/// Takes a step out of the table, so that the table is free while the step is used: a handler may call other routes.
fn take(number: u64) -> Option<Step> {
    // The table may be gone, if a layer keeps a response until the thread ends.
    STEPS.try_with(|steps| steps.borrow_mut().remove(&number)).ok().flatten()
}

fn put(number: u64, step: Step) {
    STEPS.with_borrow_mut(|steps| steps.insert(number, step));
}

/// A request's entry in the table of its thread, which ends with this value.
struct Entry(u64);

impl Entry {
    fn new(step: Step) -> Entry {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        put(number, step);
        Entry(number)
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.0)
    }

    /// Takes the handler's own response, if the handler has answered.
    fn take_answer(&self) -> Option<Response> {
        STEPS.with_borrow_mut(|steps| match steps.get_mut(&self.0) {
            Some(Step::Answered(response, _)) => response.take(),
            _ => None,
        })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // The step is dropped when the table is free again.
        drop(take(self.0));
    }
}

/// The number of a request's entry, among the request's extensions.
#[derive(Clone, Copy, Debug)]
struct Ticket(u64);

/// The routes within a [`layer`], as the service that the layer wraps.
#[derive(Clone, Debug)]
pub struct Routes {
    _private: (),
}

impl<B> tower_service::Service<http::Request<B>> for Routes
where
    B: HttpBody<Data: Buf, Error: Into<BoxError>> + 'static,
{
    type Response = http::Response<RoutesBody>;
    type Error = Infallible;
    type Future = RoutesFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> RoutesFuture {
        let (mut parts, body) = request.into_parts();
        let ticket = parts.extensions.remove::<Ticket>();
        let number = ticket.and_then(|Ticket(number)| match take(number)? {
            Step::Waits(rest) => {
                put(number, Step::Runs(Box::pin(run(*rest, parts, body))));
                Some(number)
            }
            step => {
                put(number, step);
                None
            }
        });
        RoutesFuture { number }
    }
}

/// The future of [`Routes`]. If it is dropped before it is ready, the handler is cancelled.
#[derive(Debug)]
pub struct RoutesFuture {
    /// The request's number; `None` if the routes cannot be called.
    number: Option<u64>,
}

impl Future for RoutesFuture {
    type Output = Result<http::Response<RoutesBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let step = self.number.and_then(|number| Some((number, take(number)?)));
        let (number, mut future) = match step {
            Some((number, Step::Runs(future))) => (number, future),
            other => {
                other.into_iter().for_each(|(number, step)| put(number, step));
                highwire_engine::log!(
                    Mistake,
                    error,
                    "a layer has called the routes twice, on another thread, or without the extensions of the request"
                );
                let mut answer = http::Response::new(Bytes::from_static(b"internal server error\n").into());
                *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                return Poll::Ready(Ok(answer));
            }
        };
        let Poll::Ready(mut response) = future.as_mut().poll(cx) else {
            put(number, Step::Runs(future));
            return Poll::Pending;
        };
        self.number = None;
        let mut answer = http::Response::new(());
        (*answer.status_mut(), *answer.headers_mut()) = (response.status(), response.take_headers());
        let (body, rest) = match replace(response.content_mut(), Content::Bytes(Bytes::new())) {
            Content::Bytes(bytes) => (bytes.into(), None),
            Content::Stream(streamed) => {
                // Trailers follow only a body whose length is not announced.
                let left = streamed.length.filter(|_| streamed.trailers.is_none());
                (RoutesBody(Source::Parts { number, left }), Some(streamed))
            }
            switch @ Content::Switch(_) => {
                *response.content_mut() = switch;
                (RoutesBody::default(), None)
            }
        };
        put(number, Step::Answered(Box::new(Some(response)), rest));
        Poll::Ready(Ok(answer.map(|()| body)))
    }
}

impl Drop for RoutesFuture {
    fn drop(&mut self) {
        drop(self.number.and_then(take));
    }
}

/// Calls the handler with the request as the layer has passed it on.
async fn run<B>(rest: Rest, mut parts: Parts, body: B) -> Response
where
    B: HttpBody<Data: Buf, Error: Into<BoxError>> + 'static,
{
    let Rest { mut request, next, body_use, received } = rest;
    let length = body.size_hint().exact();
    if received.differs(&parts, length)
        && let Err(mistake) = change_head(&mut request, &received, &mut parts, length)
    {
        highwire_engine::log!(Mistake, error, mistake, "a layer has made a request that is not valid");
        return Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n");
    }
    *request.request().extensions() = parts.extensions;
    let limit = request.body_limit(body_use);
    match body_use {
        BodyUse::None => *request.request().body = Ready::Nothing,
        BodyUse::Whole => match collect(body, limit).await {
            Ok(bytes) => {
                let held = bytes.len();
                request.request().replace_body(bytes, held);
            }
            Err(error) => return error.into_response(),
        },
        BodyUse::Parts => *request.request().body = Ready::Parts(receive(body, limit)),
    }
    next.run(request).await
}

impl Received {
    fn differs(&self, parts: &Parts, length: Option<u64>) -> bool {
        (&parts.method, &parts.uri, &parts.headers, length) != (&self.method, &self.uri, &self.headers, self.length)
    }
}

/// Gives the request the head that the layer has made.
///
/// # Errors
/// Returns an error if the head is not valid, or if the layer has changed that of a tunnel.
fn change_head(
    request: &mut OwnedRequest,
    received: &Received,
    parts: &mut Parts,
    length: Option<u64>,
) -> Result<(), String> {
    let length = match length {
        Some(0) => Length::Empty,
        Some(length) => Length::Exact(length),
        None => Length::Unknown,
    };
    if parts.method == Method::CONNECT || received.method == Method::CONNECT {
        // A WebSocket over HTTP/2 has a path as other requests (RFC 8441), and is written as one. Its method stays.
        if parts.method != received.method || !request.is_extended_connect() {
            return Err("the head of a CONNECT cannot be changed".to_string());
        }
        parts.method = Method::GET;
    }
    let mut head = CallHead::default();
    head.read(parts, length, &most()).map_err(|error| error.to_string())?;
    request.replace_head(head.head, head.window);
    Ok(())
}

/// The limits of a head that a layer has changed: those that the format has. The peer's head has passed the server's limits.
fn most() -> Limits {
    Limits {
        head_bytes: Limits::MAX_HEAD_BYTES,
        target_bytes: Limits::MAX_HEAD_BYTES,
        field_bytes: Limits::MAX_HEAD_BYTES,
        field_count: u16::MAX,
        ..Limits::default()
    }
}

/// Receives a whole body of at most `limit` bytes.
async fn collect<B: HttpBody<Data: Buf, Error: Into<BoxError>>>(body: B, limit: u64) -> Result<Bytes, BodyError> {
    let mut body = Box::pin(body);
    let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
    while let Some(part) = poll_fn(|cx| poll_body(&mut body, cx)).await {
        let Ok(part) = part? else { break };
        if (first.len() + whole.len() + part.len()) as u64 > limit {
            return Err(BodyError::TooLarge);
        }
        // A body in one part, as most are, is not copied.
        if first.is_empty() && whole.is_empty() {
            first = part;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&part);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// The body of a handler's response within a [`layer`]. The default is an empty body, for responses that a layer makes itself.
#[derive(Debug)]
pub struct RoutesBody(Source);

#[derive(Debug)]
enum Source {
    /// What is left of a body that is there as a whole.
    Whole(Bytes),
    /// A stream in the entry of this number, and the number of its bytes that are still to come, if it is known.
    Parts { number: u64, left: Option<u64> },
    /// The body has ended.
    Ended,
}

impl From<Bytes> for RoutesBody {
    fn from(bytes: Bytes) -> RoutesBody {
        RoutesBody(if bytes.is_empty() { Source::Ended } else { Source::Whole(bytes) })
    }
}

impl Default for RoutesBody {
    fn default() -> RoutesBody {
        RoutesBody(Source::Ended)
    }
}

impl HttpBody for RoutesBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (number, left) = match replace(&mut self.0, Source::Ended) {
            Source::Whole(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Source::Parts { number, left } => (number, left),
            Source::Ended => return Poll::Ready(None),
        };
        let (response, mut streamed) = match take(number) {
            Some(Step::Answered(response, Some(streamed))) => (response, streamed),
            other => {
                other.into_iter().for_each(|step| put(number, step));
                // The request has ended, or this is another thread. A layer that keeps the body must not take it for complete.
                return Poll::Ready(Some(Err(BodyError::CutShort.into())));
            }
        };
        let (frame, rest) = match streamed.body.poll(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                let left = left.map(|left| left.saturating_sub(bytes.len() as u64));
                self.0 = Source::Parts { number, left };
                (Poll::Ready(Some(Ok(Frame::data(bytes)))), Some(streamed))
            }
            Poll::Ready(Some(Err(error))) => (Poll::Ready(Some(Err(error))), None),
            Poll::Ready(None) => {
                let trailers = streamed.trailers.map(|make| make().into_iter().collect::<HeaderMap>());
                (Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))), None)
            }
            Poll::Pending => {
                self.0 = Source::Parts { number, left };
                (Poll::Pending, Some(streamed))
            }
        };
        put(number, Step::Answered(response, rest));
        frame
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Source::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Parts { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Source::Ended => SizeHint::with_exact(0),
        }
    }
}

/// The body of a layer's response, with the entry that its rest is in.
struct Held<B> {
    body: Pin<Box<B>>,
    _entry: Entry,
}

impl<B: HttpBody> HttpBody for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.body.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
