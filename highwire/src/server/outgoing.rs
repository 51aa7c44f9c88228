//! The outgoing half of an exchange: the body of a response, part by part, and its trailers. What the program makes of them may
//! fail or panic at each step; that is noticed, logged and named here, for every carrier.

use super::abort::Abort;
use super::exchange::let_go;
use crate::body::{BoxError, Part};
use crate::response::{Content, Streamed};
use http::{HeaderName, HeaderValue};
use proto::Length;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

/// What a body gives next.
pub(super) enum Next {
    Part(Part),
    End,
    /// The body ends here, before its time. The error is the program's own, where it gave one.
    Failed(Abort, Option<BoxError>),
}

impl Content {
    /// Returns the length that a head announces.
    #[inline]
    pub(super) fn length(&self) -> Length {
        match self {
            Content::Bytes(bytes) if bytes.is_empty() => Length::Empty,
            Content::Bytes(bytes) => Length::Exact(bytes.len() as u64),
            Content::Stream(streamed) => streamed.length.map_or(Length::Unknown, Length::Exact),
            Content::Switch(_) => Length::Empty,
        }
    }
}

impl Streamed {
    /// Returns the next part of the body, which may be a range of a file if `files`.
    pub(super) fn next(&mut self, files: bool, waker: &Waker) -> Poll<Next> {
        let cx = &mut Context::from_waker(waker);
        let poll = AssertUnwindSafe(|| match files {
            true => self.body.poll_part(cx),
            false => self.body.poll(cx).map_ok(Part::Bytes),
        });
        Poll::Ready(match catch_unwind(poll) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some(Ok(part)))) => Next::Part(part),
            Ok(Poll::Ready(None)) => Next::End,
            Ok(Poll::Ready(Some(Err(error)))) => {
                tracing::debug!(%error, "a response's body failed");
                Next::Failed(Abort::BodyFailed, Some(error))
            }
            Err(_) => Next::Failed(Abort::BodyPanicked.logged(), None),
        })
    }

    /// Returns the trailers of a body that has ended. They are made when the body is gone.
    pub(super) fn into_trailers(self) -> Result<Vec<(HeaderName, HeaderValue)>, Abort> {
        let Streamed { body, trailers, .. } = self;
        let_go(body);
        let made = catch_unwind(AssertUnwindSafe(|| trailers.map_or_else(Vec::new, |make| make())));
        made.map_err(|_| Abort::TrailersPanicked.logged())
    }
}
