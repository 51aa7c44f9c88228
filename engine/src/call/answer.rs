//! Sends the answer to a request of this process: the head as an [`http::Response`], and a streamed body part by part
//! as the caller takes it.

use super::{Call, PARTS_A_TURN};
use super::{ResponseBody, crossing};
use crate::body::{BoxError, Part};
use crate::exchange::Waits;
use crate::exchange::abort::Abort;
use crate::exchange::carrier::Sent;
use crate::exchange::lifecycle::Lifecycle;
use crate::message::fields::is_sent_without_connection;
use crate::message::response::{Content, Response};
use crate::service::Service;
use crate::worker::context::WorkerContext;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http::{Method, Version};
use std::task::{Context, Poll};

impl Call {
    /// Sends a response, or its head if the body follows in parts. Takes the content out of `response`.
    pub(super) fn send_response(&mut self, response: &mut Response) {
        let Some(answerer) = self.answerer.take() else { return };
        self.lent = 0;
        let has_none = matches!(response.status.as_u16(), 204 | 304);
        let withheld = has_none || self.request.method == Method::HEAD;
        let (length, body) = match std::mem::replace(&mut response.content, Content::Bytes(Bytes::new())) {
            Content::Bytes(bytes) if withheld => (Some(bytes.len() as u64), None),
            Content::Bytes(bytes) => (Some(bytes.len() as u64), Some(ResponseBody::of(bytes))),
            Content::Stream(streamed) if withheld => (streamed.length, None),
            Content::Stream(streamed) => {
                let (writer, reader) = crossing();
                let length = streamed.length;
                (self.writer, self.left) = (Some(writer), length);
                self.exchange.outgoing.stream(streamed);
                (length, Some(ResponseBody::parts(reader, length)))
            }
            Content::Switch(_) => (Some(0), None),
        };
        let mut answer = http::Response::new(body.unwrap_or_else(|| ResponseBody::of(Bytes::new())));
        *answer.status_mut() = response.status;
        let closes = response.close && self.request.version <= Version::HTTP_11;
        *answer.headers_mut() = fields(response, length.filter(|_| !has_none), closes);
        answerer.send(answer);
    }

    /// Sends the parts of the answer's body that are ready, as long as the channel to the caller has room.
    pub(super) fn pump(&mut self, worker: &mut WorkerContext<impl Service>) {
        let waker = self.waker(worker);
        let mut cx = Context::from_waker(&waker);
        for _ in 0..PARTS_A_TURN {
            let Some(writer) = &self.writer else { return };
            match writer.poll_room(&mut cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.is_cancelled = true,
            }
            if Lifecycle::send_next(self, worker) != Sent::More {
                return;
            }
        }
        waker.wake();
    }

    /// Passes a part of the answer's body to the caller. Returns an error if the body is longer than announced.
    pub(super) fn write(&mut self, part: Part) -> Result<Sent, Abort> {
        let (Some(writer), Part::Bytes(bytes)) = (&self.writer, part) else { return Ok(Sent::Over) };
        // The handler has made a part, so the deadline for the next one starts anew.
        self.waits = Waits::Nothing;
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(bytes.len() as u64).ok_or(Abort::BodyMisfit(None))?;
        }
        writer.push(bytes);
        Ok(Sent::More)
    }

    /// Ends the answer's body. Returns an error if the body is shorter than announced.
    pub(super) fn end_answer(&mut self, trailers: Vec<(HeaderName, HeaderValue)>) -> Result<(), Abort> {
        if self.left.is_some_and(|left| left > 0) {
            return Err(Abort::BodyMisfit(None));
        }
        if let Some(writer) = self.writer.take() {
            writer.end(Ok(trailers.into_iter().collect()));
        }
        Ok(())
    }

    /// Ends the answer's body with an error.
    pub(super) fn fail(&mut self, error: BoxError) {
        self.exchange.outgoing.cut();
        if let Some(writer) = self.writer.take() {
            writer.end(Err(error));
        }
    }
}

/// Returns an answer's header fields. `Server` and `Date` are left to the caller.
fn fields(response: &mut Response, length: Option<u64>, closes: bool) -> HeaderMap {
    response.own_headers().retain(|(name, _)| is_sent_without_connection(name));
    let mut fields = response.take_headers();
    if let Some(length) = length {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
    if closes {
        fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    fields
}
