//! The client as a service of the tower family.

use super::body::Body;
use super::error::Error;
use super::request::Request;
use super::response::{Body as ResponseBody, Response};
use super::{Client, url};
use crate::HeaderMap;
use crate::tower::bodies::streamed;
use bytes::{Buf, Bytes};
use highwire_engine::body::BoxError;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

impl Request {
    /// Creates a request from one of `http`, whose URI must be absolute. A body of at most 64 KiB that is complete at
    /// once, such as a `String`, is kept for retries and redirects; any other body is sent in parts, and its length is
    /// announced if it is known.
    ///
    /// # Errors
    /// Returns an error if the URI is not the URL of a request.
    pub fn from_http<B>(request: http::Request<B>) -> Result<Request, Error>
    where
        B: HttpBody<Data: Buf, Error: Into<BoxError>> + 'static,
    {
        let (parts, body) = request.into_parts();
        let mut request = Request::of(parts.method, url::parse(&parts.uri.to_string())?);
        request.fields.extend(parts.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        let length = body.size_hint().exact().filter(|length| *length <= KEPT_BYTES);
        let mut body = Begun { first: None, rest: Box::pin(body) };
        if let Some(whole) = length.and_then(|length| body.take_whole(length)) {
            request.body = whole.into();
        } else if !body.is_end_stream() {
            request.body = Body::streamed(streamed(body));
        }
        Ok(request)
    }
}

/// The most bytes of a body that are kept for another attempt.
const KEPT_BYTES: u64 = 64 * 1024;

/// A body whose first frame may have been polled already.
struct Begun<B: HttpBody> {
    first: Option<Result<Frame<Bytes>, B::Error>>,
    rest: Pin<Box<B>>,
}

impl<B: HttpBody<Data: Buf>> Begun<B> {
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = self.rest.as_mut().poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
    }

    /// Returns the whole body of `length` bytes, if its first frame is there and has all of them.
    fn take_whole(&mut self, length: u64) -> Option<Bytes> {
        if length == 0 && self.rest.is_end_stream() {
            return Some(Bytes::new());
        }
        let Poll::Ready(Some(first)) = self.poll_rest(&mut Context::from_waker(Waker::noop())) else { return None };
        let data = first.as_ref().ok().and_then(|frame| frame.data_ref()).cloned();
        self.first = Some(first);
        data.filter(|data| data.len() as u64 == length && self.rest.is_end_stream())
    }
}

impl<B: HttpBody<Data: Buf>> HttpBody for Begun<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.poll_rest(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok()?.data_ref());
        let first = first.map_or(0, |data| data.len() as u64);
        self.rest.size_hint().exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(first + rest))
    }
}

/// The first frame is never pinned, so it may move.
impl<B: HttpBody> Unpin for Begun<B> {}

impl Response {
    /// Returns the response as one of `http`. The figures of the request are an extension ([`Stats`](super::Stats)).
    pub fn into_http(self) -> http::Response<ResponseBody> {
        let mut response = http::Response::new(());
        *response.status_mut() = self.status();
        *response.version_mut() = self.version();
        *response.headers_mut() = self.headers().clone();
        response.extensions_mut().insert(self.stats());
        response.map(|()| self.into_body())
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.poll_next_part(cx).map(|part| match part {
            Some(part) => Some(part.map(Frame::data)),
            None => {
                let trailers: HeaderMap = self.trailers().into_iter().collect();
                // The trailers are passed on once.
                self.drop_safely();
                (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.whole_length() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.whole_length().map_or_else(SizeHint::default, |length| SizeHint::with_exact(length as u64))
    }
}

/// Sends requests on the worker of the current thread, for layers such as those of tower-http. For a service that any
/// thread can use, see [`Background`](super::Background).
impl<B> tower_service::Service<http::Request<B>> for Client
where
    B: HttpBody<Data: Buf, Error: Into<BoxError>> + 'static,
{
    type Response = http::Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    /// Always returns ready. Requests without a connection stay pending, within [`Bounds`](super::Bounds).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { Ok(client.execute(Request::from_http(request)?).await?.into_http()) })
    }
}
