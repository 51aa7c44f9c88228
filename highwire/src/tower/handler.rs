//! Services as handlers. The service reads the request's body through a channel, and its response is converted to a
//! [`Response`].

use super::bodies::{content, send_across};
use crate::handler::{Async, Handler};
use crate::message::request::{FromRequest, Request};
use crate::{HeaderMap, Response, StatusCode, Upgrade};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use highwire_engine::body::{Body, BodyError, BodyStream, BoxError};
use highwire_engine::call::{Reader, each_named};
use highwire_engine::response::{Content, Streamed};
use http::header;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A service of requests, as [`service`], [`nested`](super::nested) and [`serve`](super::serve) take it. Every service with the types
/// named here is one.
pub trait RequestService:
    tower_service::Service<
        http::Request<Incoming>,
        Response = http::Response<Self::Body>,
        Error: Into<BoxError>,
        Future: 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
    /// The body of the responses.
    type Body: HttpBody<Error: Into<BoxError>> + 'static;
}

impl<S, B> RequestService for S
where
    S: tower_service::Service<http::Request<Incoming>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: HttpBody + 'static,
    B::Error: Into<BoxError>,
{
    type Body = B;
}

/// Makes a handler of a service, for a route or for an app's [`fallback`](crate::App::fallback). If the service fails,
/// the response is 500 and the error is logged.
///
/// The service is cloned for each request, as tower's contract requires, and its future stays on the worker that has
/// the connection. The extensions of a request contain its [`Peer`](crate::Peer) and, under TLS, its
/// [`Tls`](crate::Tls). With the feature `hyper`, a request that proposes another protocol also has hyper's `OnUpgrade`,
/// which axum's `WebSocketUpgrade` needs. Over HTTP/2 such a request has the method `CONNECT`, as in hyper, so register its
/// route in axum with `any`: `get` would only match over HTTP/1. axum runs its WebSockets on tokio, so also turn on the
/// feature `tokio`. Without `hyper`, axum refuses to open a WebSocket; without `tokio`, its handler panics.
///
/// ```
/// use axum::{Router, routing::get};
/// use highwire::testing::Client;
/// use highwire::{App, tower};
///
/// let old = Router::new().route("/old/{*path}", get(async || "from axum"));
/// let app = App::new().get("/new", || "from Highwire").any("/old/{*path}", tower::service(old));
/// let mut client = Client::new(app)?;
/// assert_eq!((client.get("/old/a").send().text(), client.get("/new").send().text()), ("from axum", "from Highwire"));
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn service<S: RequestService>(service: S) -> impl Handler<Async<(Parts, Upgrade, Body)>> {
    with_head::<Parts, _>(service)
}

/// The head of a request, for a service.
pub(super) trait Head: FromRequest + 'static {
    fn into_parts(self) -> http::request::Parts;
}

impl Head for Parts {
    fn into_parts(self) -> http::request::Parts {
        self.0
    }
}

/// The head of a request without the client's address among the extensions, which costs some allocations.
#[derive(Debug)]
pub(super) struct Anonymous(http::request::Parts);

impl FromRequest for Anonymous {
    fn from_request(request: &mut Request<'_>) -> Result<Anonymous, Response> {
        parts_of(request).map(Anonymous)
    }
}

impl Head for Anonymous {
    fn into_parts(self) -> http::request::Parts {
        self.0
    }
}

/// Makes a handler of a service as [`service`] does. The head of each request is an `H`.
pub(super) fn with_head<H: Head, S: RequestService>(service: S) -> impl Handler<Async<(H, Upgrade, Body)>> {
    move |head: H, upgrade: Upgrade, body: Body| {
        let mut service = service.clone();
        async move {
            let mut parts = head.into_parts();
            let offer = super::upgrade::offer(&mut parts, &upgrade);
            let is_head = parts.method == http::Method::HEAD;
            let length = announced_length(&parts.headers);
            let request = http::Request::from_parts(parts, take_over(body, length).await);
            match call(&mut service, request).await {
                Ok(answer) => {
                    let switch = offer.and_then(|offer| offer.answered(answer.status()));
                    let mut response = convert(answer, is_head);
                    if let Some(switch) = switch {
                        *response.content_mut() = Content::Switch(Box::new(switch));
                    }
                    response
                }
                Err(response) => response,
            }
        }
    }
}

/// Calls a service. If it fails, logs the error and returns a response with 500.
pub(super) async fn call<S: RequestService>(
    service: &mut S,
    request: http::Request<Incoming>,
) -> Result<http::Response<S::Body>, Response> {
    let answer = match poll_fn(|cx| service.poll_ready(cx)).await {
        Ok(()) => service.call(request).await,
        Err(error) => Err(error),
    };
    answer.map_err(|error| {
        let error: BoxError = error.into();
        highwire_engine::log!(Failure, error, %error, "a tower service failed");
        Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
    })
}

/// An extractor for the head of a request, in the types of the `http` crate.
#[derive(Clone, Debug)]
pub struct Parts(pub http::request::Parts);

impl FromRequest for Parts {
    fn from_request(request: &mut Request<'_>) -> Result<Parts, Response> {
        let mut parts = parts_of(request)?;
        parts.extensions.insert(request.peer());
        Ok(Parts(parts))
    }
}

/// Returns the head of a request, with its extensions and its TLS session.
fn parts_of(request: &mut Request<'_>) -> Result<http::request::Parts, Response> {
    let refuse = |_| Response::error(StatusCode::BAD_REQUEST, "the target is no URI\n");
    let mut builder = http::Request::builder().method(request.method()).version(request.version());
    builder = match request.target() {
        // As in hyper, the URI is the target as it was sent (for CONNECT, an authority), but on HTTP/2 a path is
        // made absolute.
        target if request.version() != http::Version::HTTP_2 || !target.starts_with('/') => builder.uri(target),
        target => {
            let scheme = if request.is_secure() { "https" } else { "http" };
            builder.uri(format!("{scheme}://{}{target}", request.authority()))
        }
    };
    let (mut parts, ()) = builder.body(()).map_err(refuse)?.into_parts();
    parts.headers = HeaderMap::from_request(request)?;
    parts.extensions = std::mem::take(request.extensions());
    if let Some(tls) = request.tls() {
        parts.extensions.insert(tls);
    }
    Ok(parts)
}

/// The body of a request in the form that a service gets.
#[derive(Debug)]
pub struct Incoming {
    /// What was taken before the service was called.
    first: Option<Result<Bytes, BodyError>>,
    /// The rest; `None` if there is none.
    reader: Option<Reader<BodyError>>,
    /// The number of bytes that are still to come, if it is known.
    left: Option<u64>,
}

/// Returns the length that a request announces. A body with a coding may be decoded on its way.
pub(super) fn announced_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::CONTENT_ENCODING) { None } else { content_length(headers) }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The most bytes of a body that are taken without a task and a channel, if they have arrived.
const SHORT_BYTES: u64 = 16 * 1024;

impl Incoming {
    /// Makes a body that is there as a whole.
    pub(super) fn whole(bytes: Bytes) -> Incoming {
        let left = Some(bytes.len() as u64);
        Incoming { first: (!bytes.is_empty()).then_some(Ok(bytes)), reader: None, left }
    }
}

/// Passes a body to the service. A short one that has arrived by the next turn is passed as a whole.
pub(super) async fn take_over(mut body: Body, length: Option<u64>) -> Incoming {
    if body.is_empty() {
        return Incoming::whole(Bytes::new());
    }
    let Some(length) = length.filter(|length| *length <= SHORT_BYTES) else { return cross(body, None, length) };
    let mut first: Result<BytesMut, BodyError> = Ok(BytesMut::new());
    let mut begun = None;
    let is_whole = poll_fn(|cx| {
        while let Poll::Ready(part) = Pin::new(&mut body).poll_next(cx) {
            match (part, &mut first) {
                (Some(Ok(part)), Ok(first)) if first.is_empty() => *first = BytesMut::from(part),
                (Some(Ok(part)), Ok(first)) => first.extend_from_slice(&part),
                (Some(Err(error)), first) => {
                    *first = Err(error);
                    return Poll::Ready(true);
                }
                // Trailers reach the service behind the rest.
                _ => return Poll::Ready(body.trailers().is_empty()),
            }
        }
        // What has arrived with the head is there in this turn, or in the next one.
        let turn = highwire_engine::context::turn();
        if *begun.get_or_insert(turn) != turn {
            return Poll::Ready(false);
        }
        highwire_engine::context::wake_next_turn(cx.waker());
        Poll::Pending
    });
    let is_whole = is_whole.await;
    let first = match first {
        Ok(bytes) if bytes.is_empty() => None,
        first => Some(first.map(BytesMut::freeze)),
    };
    if is_whole { Incoming { first, reader: None, left: Some(length) } } else { cross(body, first, Some(length)) }
}

/// Passes a body to the service, behind what was taken before. The rest of it stays with the connection, which is charged for it and stops receiving at
/// the connection's limit.
fn cross(body: Body, first: Option<Result<Bytes, BodyError>>, length: Option<u64>) -> Incoming {
    let trailers = |body: &Body| body.trailers().into_iter().collect();
    let reader = send_across(body, |body, cx| Pin::new(body).poll_next(cx), trailers);
    Incoming { first, reader: Some(reader), left: length }
}

impl HttpBody for Incoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match (self.first.take(), &mut self.reader) {
            (Some(first), _) => Poll::Ready(Some(first.map(Frame::data))),
            (None, Some(reader)) => Pin::new(reader).poll_frame(cx),
            (None, None) => return Poll::Ready(None),
        };
        if let (Some(left), Poll::Ready(Some(Ok(frame)))) = (&mut self.left, &frame) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.reader.as_ref().is_none_or(|reader| reader.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match (self.left, &self.reader) {
            (Some(left), _) => SizeHint::with_exact(left),
            (None, Some(reader)) if self.first.is_none() => reader.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

/// Converts a service's response to a [`Response`].
pub(super) fn convert<B>(answer: http::Response<B>, is_head: bool) -> Response
where
    B: HttpBody + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = answer.into_parts();
    let announced = content_length(&parts.headers);
    let mut response = Response::new(parts.status);
    response.own_headers().extend(each_named(parts.headers));
    if is_head && let Some(length) = announced {
        // The service has left out the body. This body only announces the length, because the engine polls no body for
        // HEAD.
        let body = BodyStream::of(Bytes::new());
        *response.content_mut() = Content::Stream(Box::new(Streamed { length: Some(length), body, trailers: None }));
        return response;
    }
    if !body.is_end_stream() {
        *response.content_mut() = content(body);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;
    use crate::testing::Client;
    use highwire_engine::body::BodyQueue as Arriving;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::task::Waker;
    use std::time::Duration;

    /// Waits until all other tasks have nothing left to do, because the test's clock moves only then.
    async fn rest() {
        crate::time::sleep(Duration::from_secs(1)).await;
    }

    #[test]
    fn a_body_is_taken_as_far_as_its_service_asks_for_it_and_goes_with_the_services_end_of_it() {
        let handler = async || {
            let arriving = Rc::new(RefCell::new(Arriving::new(Waker::noop().clone())));
            let mut incoming = cross(Body::new(arriving.clone()), None, None);
            arriving.borrow_mut().push(&[1; 5000]);
            arriving.borrow_mut().push(&[2; 5000]);
            let mut seen = Vec::new();
            for _ in 0..2 {
                rest().await;
                seen.push(arriving.borrow().bytes());
                let part = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await;
                let part = part.and_then(Result::ok).and_then(|part| part.into_data().ok());
                seen.push(part.map_or(0, |part| part.len()));
            }
            // The service polls for more of the body, and then drops it.
            let asked = poll_fn(|cx| Poll::Ready(Pin::new(&mut incoming).poll_frame(cx).is_pending())).await;
            rest().await;
            let held = arriving.borrow().is_abandoned();
            drop(incoming);
            rest().await;
            format!("{seen:?} {asked} {held} {}", arriving.borrow().is_abandoned())
        };
        let mut client = Client::new(App::new().get("/", handler)).expect("an app");
        assert_eq!(client.get("/").send().text(), "[10000, 5000, 5000, 5000] true false true");
    }
}
