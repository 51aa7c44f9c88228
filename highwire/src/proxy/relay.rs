//! Passes bodies, responses and the bytes of other protocols on.

use super::frames::{Frames, GOING_AWAY};
use super::head::{Incoming, has_valid_length, is_of_connection, response_fields};
use super::start::{Untaken, Uploading};
use super::streamed;
use super::upstreams::Chosen;
use crate::{InterimResponses, Response};
use bytes::Bytes;
use futures_core::Stream;
use highwire_engine::Body;
use highwire_engine::body::{BodyError, BodyStream};
use highwire_engine::client::{Answer, AnswerBody};
use highwire_engine::context::{Stopping, stopping};
use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter, Switch};
use highwire_engine::response::Content;
use highwire_proto::Length;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// A body that is passed on. It keeps its place at the upstream until its end, and its trailers.
struct Passing {
    body: Body,
    trailers: Rc<RefCell<Vec<(HeaderName, HeaderValue)>>>,
    /// The request that waits for this body's end, if it is a response's.
    chosen: Option<Chosen>,
    /// Ends an event stream when this server stops. The page then connects again.
    stopping: Option<Stopping>,
    /// The client's request for this answer, until it has taken the first part.
    untaken: Option<Untaken>,
    /// The place of this body among the uploads of its connection, until its end, or until the request is answered.
    uploading: Uploading,
}

impl Drop for Passing {
    fn drop(&mut self) {
        drop(self.uploading.take());
    }
}

impl Stream for Passing {
    type Item = Result<Bytes, BodyError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.body).poll_next(cx);
        if let Some(untaken) = &mut self.untaken
            && untaken.is_over(next.is_ready(), cx)
        {
            self.untaken = None;
        }
        if next.is_pending()
            && let Some(stopping) = &mut self.stopping
            && Pin::new(stopping).poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        if let (Poll::Ready(Some(Err(error))), Some(chosen)) = (&next, &self.chosen) {
            let upstream = chosen.url();
            let error = crate::client::why_response_failed(*error);
            highwire_engine::log!(Upstream, warn, ?upstream, error, "a response was cut by its upstream");
        }
        if let Poll::Ready(None) = next {
            drop(self.uploading.take());
            *self.trailers.borrow_mut() = self.body.trailers();
        }
        next
    }
}

/// Returns a received body as one to send.
pub(super) fn body(body: Body, length: Option<u64>, uploading: &Uploading) -> Content {
    passing(body, length, None, None, false, uploading.clone())
}

/// Returns a body that is passed on. One that is endless ends when this server stops.
fn passing(
    body: Body,
    length: Option<u64>,
    chosen: Option<Chosen>,
    untaken: Option<Untaken>,
    is_endless: bool,
    uploading: Uploading,
) -> Content {
    let trailers = Rc::new(RefCell::default());
    let stopping = is_endless.then(stopping);
    let passing = Passing { body, trailers: trailers.clone(), chosen, stopping, untaken, uploading };
    // A body with a length has no trailers over HTTP/1.
    streamed(length, BodyStream::new(passing), Some(Box::new(move || trailers.take())))
}

/// Returns the function that passes interim responses on (RFC 9110 section 15.2). This server itself asks for the body of a
/// request, and answers other protocols.
pub(super) fn interim(interims: InterimResponses) -> impl Fn(StatusCode, &[(HeaderName, HeaderValue)]) {
    move |status, fields: &[(HeaderName, HeaderValue)]| {
        if status != StatusCode::CONTINUE && status != StatusCode::SWITCHING_PROTOCOLS {
            let named = |name: &HeaderName| {
                let lists = fields.iter().filter(|(other, _)| *other == header::CONNECTION);
                lists
                    .flat_map(|(_, list)| list.as_bytes().split(|&byte| byte == b','))
                    .any(|one| one.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
            };
            let passes = |(name, _): &&(HeaderName, HeaderValue)| !is_of_connection(name) && !named(name);
            interims.send(status, fields.iter().filter(passes).cloned());
        }
    }
}

/// Returns an upstream's answer as the response to the client.
pub(super) fn response(
    mut answer: Answer,
    incoming: &Incoming,
    chosen: Chosen,
    untaken: Option<Untaken>,
    prefix: &str,
) -> Response {
    // The parser has checked the length of a response with a body.
    if matches!(answer.body, AnswerBody::Empty) && !has_valid_length(&answer) {
        let text = "the length of the response of the server behind this one is malformed\n";
        return Response::error(StatusCode::BAD_GATEWAY, text);
    }
    let body = std::mem::replace(&mut answer.body, AnswerBody::Empty);
    let is_switch = matches!(body, AnswerBody::Tunnel(_));
    // Over HTTP/2, a protocol is accepted with 200 (RFC 8441 section 4).
    let status = if is_switch && incoming.is_http2() { StatusCode::OK } else { answer.status() };
    let mut response = Response::new(status);
    *response.own_headers() = response_fields(&answer, chosen.url(), prefix);
    *response.content_mut() = match body {
        AnswerBody::Empty if incoming.method == Method::HEAD => {
            // The engine announces this length, and polls no body for HEAD. A length that the upstream has not announced must
            // not be announced to the client.
            let announced = answer.head.field(&answer.window, b"content-length");
            let announced = announced.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
            streamed(announced, BodyStream::of(Bytes::new()), None)
        }
        AnswerBody::Empty => Content::Bytes(Bytes::new()),
        AnswerBody::Whole(bytes) => Content::Bytes(bytes),
        AnswerBody::Parts(body) => {
            let length = if let Length::Exact(length) = answer.head.length { Some(length) } else { None };
            let media_type = answer.head.field(&answer.window, b"content-type").unwrap_or_default();
            let is_endless = length.is_none() && media_type.to_ascii_lowercase().starts_with(b"text/event-stream");
            passing(body, length, Some(chosen), untaken, is_endless, Uploading::default())
        }
        AnswerBody::Tunnel(mut upstream) => {
            // The client may be gone before the other protocol begins.
            upstream.cut_when_dropped(true);
            let protocol = answer.head.field(&answer.window, b"upgrade").unwrap_or_default();
            if !incoming.has_proposed(protocol) && answer.head.status == 101 {
                let text = "the server behind this one has accepted a protocol that was not proposed\n";
                return Response::error(StatusCode::BAD_GATEWAY, text);
            }
            if incoming.is_http2() {
                // The key is ours; see `Incoming::fields`.
                response.own_headers().retain(|(name, _)| *name != http::header::SEC_WEBSOCKET_ACCEPT);
            } else if let Some(protocol) = answer.head.field(&answer.window, b"upgrade")
                && let Ok(protocol) = HeaderValue::from_bytes(protocol)
            {
                response.own_headers().push((http::header::UPGRADE, protocol));
            }
            let is_websocket =
                protocol.trim_ascii().eq_ignore_ascii_case(b"websocket") || incoming.is_http2_websocket();
            let switch = Switch::new(move |client| async move {
                join(client, upstream, is_websocket).await;
                drop(chosen);
            });
            Content::Switch(Box::new(switch))
        }
    };
    response
}

/// Copies the bytes of two streams to each other until both have ended. When this server stops, a WebSocket client gets a
/// Close frame between two frames of the upstream; its answer ends the upstream's side.
async fn join(client: RawStream, upstream: RawStream, is_websocket: bool) {
    let ((from_client, to_client), (from_upstream, to_upstream)) = (client.split(), upstream.split());
    let mut there = pin!(copy(from_client, to_upstream));
    let mut back = pin!(async {
        if is_websocket { copy_frames(from_upstream, to_client).await } else { copy(from_upstream, to_client).await }
    });
    let (mut is_there, mut is_back) = (false, false);
    poll_fn(|cx| {
        is_there = is_there || there.as_mut().poll(cx).is_ready();
        is_back = is_back || back.as_mut().poll(cx).is_ready();
        if is_there && is_back { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Copies the frames of a WebSocket until their end, as fast as they are taken, or until this server stops.
async fn copy_frames(mut from: RawReader, to: RawWriter) {
    let mut to = Incomplete::new(to);
    let (mut frames, mut stops) = (Frames::default(), false);
    loop {
        match from.read().await {
            Ok(Some(bytes)) => {
                let passed = frames.pass(&bytes, stops);
                if to.0.write(bytes.slice(..passed)).await.is_err() {
                    return;
                }
            }
            Ok(None) if from.ended() == Some(Ended::Draining) => stops = true,
            _ => return to.end(),
        }
        if stops && frames.is_between() {
            // Fails if the client is gone.
            let _ = to.0.write(GOING_AWAY).await;
            return to.end();
        }
    }
}

/// Copies bytes until their end, as fast as they are taken.
async fn copy(mut from: RawReader, to: RawWriter) {
    let mut to = Incomplete::new(to);
    loop {
        match from.read().await {
            Ok(Some(bytes)) => {
                if to.0.write(bytes).await.is_err() {
                    return;
                }
            }
            // This server stops. The protocol itself decides when it ends.
            Ok(None) if from.ended() == Some(Ended::Draining) => {}
            _ => return to.end(),
        }
    }
}

/// A direction that has not ended. If it is dropped with its task, because the client's connection or stream was cut, so is the
/// connection to which it goes.
struct Incomplete(RawWriter);

impl Incomplete {
    fn new(mut writer: RawWriter) -> Incomplete {
        writer.cut_when_dropped(true);
        Incomplete(writer)
    }

    fn end(mut self) {
        self.0.cut_when_dropped(false);
    }
}
