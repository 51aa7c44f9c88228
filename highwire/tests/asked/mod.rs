//! Helpers for the tests of apps as services: requests with several kinds of bodies, and functions that read responses.

#![allow(dead_code, reason = "each test program uses a part of it")]

use bytes::Bytes;
use highwire::body::BodyError;
use highwire::tower::{self as service, AppService, ResponseBody};
use highwire::{App, Body, HeaderMap, Response};
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// The longest time that a step of a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a future on this thread. Panics if it takes longer than [`PATIENCE`].
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an end in time") })
}

/// Sends a message when it is dropped.
pub(crate) struct Told(pub(crate) mpsc::Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        // The receiver may be gone.
        let _ = self.0.send(());
    }
}

pub(crate) fn told() -> (Told, mpsc::Receiver<()>) {
    let (tell, hear) = mpsc::channel();
    (Told(tell), hear)
}

/// A request's body. After its frames, it ends if `ends` is true, and otherwise stays pending.
pub(crate) struct Sent {
    pub(crate) frames: VecDeque<Result<Frame<Bytes>, BodyError>>,
    pub(crate) ends: bool,
    pub(crate) length: Option<u64>,
    pub(crate) told: Option<Told>,
}

impl Sent {
    pub(crate) fn of(parts: &[&'static str]) -> Sent {
        let frames = parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
        Sent { frames, ends: true, length: None, told: None }
    }

    pub(crate) fn nothing() -> Sent {
        Sent::of(&[])
    }

    pub(crate) fn and(mut self, frame: Result<Frame<Bytes>, BodyError>) -> Sent {
        self.frames.push_back(frame);
        self
    }

    pub(crate) fn without_end(mut self) -> Sent {
        self.ends = false;
        self
    }

    pub(crate) fn telling(mut self, told: Told) -> Sent {
        self.told = Some(told);
        self
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.frames.pop_front() {
            None if !self.ends => Poll::Pending,
            frame => Poll::Ready(frame),
        }
    }
    fn is_end_stream(&self) -> bool {
        self.ends && self.frames.is_empty()
    }
    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

pub(crate) fn start(app: App) -> AppService {
    service::into_service(app).expect("a service")
}

pub(crate) fn request(method: &str, uri: &str) -> http::request::Builder {
    Request::builder().method(method).uri(uri)
}

pub(crate) async fn ask(service: &AppService, request: Request<Sent>) -> http::Response<ResponseBody> {
    let Ok(answer) = service.clone().call(request).await;
    answer
}

/// Returns the next frame of a response's body.
pub(crate) async fn next(
    body: &mut ResponseBody,
) -> Option<Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// Reads a whole body and its trailers.
pub(crate) async fn whole(mut body: ResponseBody) -> (Vec<u8>, HeaderMap) {
    let (mut bytes, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = next(&mut body).await {
        match frame.expect("a whole body").into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers.extend(frame.into_trailers().expect("trailers")),
        }
    }
    (bytes, trailers)
}

/// Sends a request. Returns the status, text and fields of the response.
pub(crate) async fn get(service: &AppService, request: Request<Sent>) -> (u16, String, HeaderMap) {
    let answer = ask(service, request).await;
    let (head, body) = answer.into_parts();
    (head.status.as_u16(), String::from_utf8(whole(body).await.0).expect("text"), head.headers)
}

pub(crate) const SHORT: &str = "the request's body was cut short\n";
pub(crate) const SLOW: &str = "the request's body came too slowly\n";

/// Returns a stream of these parts.
pub(crate) fn stream_of(parts: Vec<&'static str>) -> impl futures_core::Stream<Item = Result<Bytes, BodyError>> {
    struct Parts(VecDeque<&'static str>);
    impl futures_core::Stream for Parts {
        type Item = Result<Bytes, BodyError>;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.pop_front().map(|part| Ok(Bytes::from(part))))
        }
    }
    Parts(parts.into())
}

/// A handler that sends back the request's body and trailers.
pub(crate) fn echo(mut body: Body) -> Response {
    let (mut sender, receiver) = highwire::body::channel();
    let trailers = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = trailers.clone();
    highwire::spawn(async move {
        while let Some(Ok(part)) = body.next().await {
            if sender.send(part).await.is_err() {
                return;
            }
        }
        *kept.borrow_mut() = body.trailers();
        sender.finish();
    });
    Response::stream(receiver).with_trailers(move || trailers.take())
}

/// A stream that stays pending.
pub(crate) struct Stuck;

impl futures_core::Stream for Stuck {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Pending
    }
}
