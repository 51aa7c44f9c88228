//! The outgoing half of an exchange: our message. On a server it is the response; on a client, the request.

use super::abort::Abort;
use super::state::{State, Step};
use crate::body::{BoxError, Part};
use crate::message::response::{Content, Streamed};
use crate::runtime::panics::drop_safely;
use highwire_proto::Length;
use http::{HeaderName, HeaderValue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

/// Our message.
pub(crate) struct Outgoing {
    state: State,
    /// The body that is being sent in parts.
    body: Option<Box<Streamed>>,
}

impl Outgoing {
    /// Returns a message whose head has not been made yet.
    pub(super) fn awaited() -> Outgoing {
        Outgoing { state: State::Awaited, body: None }
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Records that the head is handed to the carrier.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.state == State::Awaited {
            self.state.take(Step::Head);
        }
    }

    /// Starts a body that follows its head in parts.
    pub(crate) fn stream(&mut self, body: Box<Streamed>) {
        self.begin();
        self.state.take(Step::Stream);
        self.body = Some(body);
    }

    /// Records that our bytes belong to a tunnel from now on.
    pub(super) fn switch(&mut self) {
        self.begin();
        self.state.take(Step::Switch);
    }

    /// Returns true if our bytes belong to a tunnel.
    pub(super) fn is_switched(&self) -> bool {
        self.state == State::Tunnel
    }

    /// Completes the message, unless it has a body in parts or has become a tunnel.
    #[inline]
    pub(crate) fn end_unless_it_goes_on(&mut self) {
        if self.state == State::Begun {
            self.state.take(Step::End);
        }
    }

    /// Returns true if the carrier has the head.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.state != State::Awaited
    }

    /// Returns true if a body is being sent in parts.
    #[inline]
    pub(crate) fn is_streaming(&self) -> bool {
        self.body.is_some()
    }

    /// Polls for the next part of the body, which may be a range of a file if `files` is true. Returns `None` if no
    /// body is being sent.
    pub(super) fn next(&mut self, files: bool, waker: &Waker) -> Option<Poll<Next>> {
        Some(self.body.as_mut()?.next(files, waker))
    }

    /// Ends the body after its last part: drops the body, runs the closure that makes the trailers, and returns the
    /// trailers.
    pub(super) fn end(&mut self) -> Result<Vec<(HeaderName, HeaderValue)>, Abort> {
        let Some(body) = self.body.take() else { return Ok(Vec::new()) };
        self.state.take(Step::End);
        body.into_trailers()
    }

    /// Drops the rest of the body.
    pub(crate) fn cut(&mut self) {
        if let Some(body) = self.body.take() {
            self.state.take(Step::Cut);
            drop_safely(body);
        }
    }

    /// Returns the number of bytes that the body holds.
    pub(crate) fn held(&self) -> usize {
        self.body.as_ref().map_or(0, |streamed| streamed.body.held())
    }
}

/// The result of polling a body.
pub(super) enum Next {
    Part(Part),
    End,
    /// The body failed. Contains the program's own error, if the body returned one.
    Failed(Abort, Option<BoxError>),
}

impl Content {
    /// Returns the length that the head announces.
    #[inline]
    pub(crate) fn length(&self) -> Length {
        match self {
            Content::Bytes(bytes) if bytes.is_empty() => Length::Empty,
            Content::Bytes(bytes) => Length::Exact(bytes.len() as u64),
            Content::Stream(streamed) => streamed.length.map_or(Length::Unknown, Length::Exact),
            Content::Switch(_) => Length::Empty,
        }
    }
}

impl Streamed {
    /// Polls for the next part of the body, which may be a range of a file if `files` is true.
    fn next(&mut self, files: bool, waker: &Waker) -> Poll<Next> {
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

    /// Drops a body that has ended, runs the closure that makes the trailers, and returns the trailers.
    pub(crate) fn into_trailers(self) -> Result<Vec<(HeaderName, HeaderValue)>, Abort> {
        let Streamed { body, trailers, .. } = self;
        drop_safely(body);
        let made = catch_unwind(AssertUnwindSafe(|| trailers.map_or_else(Vec::new, |make| make())));
        made.map_err(|_| Abort::TrailersPanicked.logged())
    }
}
