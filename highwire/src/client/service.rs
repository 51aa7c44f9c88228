//! The client as a service of the tower family.

use super::body::Body;
use super::error::Error;
use super::request::Request;
use super::response::{Body as ResponseBody, Response};
use super::{Client, url};
use crate::HeaderMap;
use crate::tower::bodies::content;
use bytes::{Buf, Bytes};
use highwire_engine::body::{BodyStream, BoxError};
use highwire_engine::response::{Content, Streamed};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

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
        request.body = match content(body) {
            // Few bytes are kept for another attempt.
            Content::Bytes(bytes) if bytes.len() <= KEPT_BYTES => bytes.into(),
            Content::Bytes(bytes) => {
                let length = Some(bytes.len() as u64);
                Body::streamed(Streamed { length, body: BodyStream::of(bytes), trailers: None })
            }
            Content::Stream(streamed) => Body::streamed(*streamed),
            Content::Switch(_) => Body::default(),
        };
        Ok(request)
    }
}

/// The most bytes of a body that are kept for another attempt.
const KEPT_BYTES: usize = 64 * 1024;

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
