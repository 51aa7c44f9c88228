//! The reasons why an exchange ends early. One table, which all protocols share, maps each reason to the status and
//! text of the response, the error that a handler still reading the body gets, and the HTTP/2 error code.
//! [`Abort::logged`] writes a reason to the log if it concerns the operator.

use super::record::CLIENT_LEFT;
use crate::body::BodyError;
use crate::client::{Failure, Stage};
use crate::message::request::BodyUse;
use crate::message::response::Response;
use crate::runtime::rate_limited;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_proto::h2::Code;
use http::StatusCode;

/// The reason why an exchange ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    /// The peer sent bytes that are not HTTP, or that the parser refuses.
    Malformed(highwire_proto::Error),
    /// The peer sent bytes other than TLS, probably plain HTTP, to an address that requires TLS.
    NotTls,
    /// The head of the request was not complete before its deadline.
    HeadTooSlow,
    /// The body of the request was slower than `Timeouts::body_rate`.
    BodyTooSlow,
    /// The body of the request is longer than this route allows for this use.
    BodyTooLarge(u32, BodyUse),
    /// The handler, or the next part of the response's body, missed its deadline.
    HandlerTooSlow,
    /// The client has ended its direction, and the handler has not answered in time since then.
    ClientLeft,
    /// The peer has taken too little of the response before the write deadline.
    WriteTooSlow,
    /// The response's body has returned an error while it was polled.
    BodyFailed,
    /// The response's body has panicked while it was polled.
    BodyPanicked,
    /// The function that makes the response's trailers has panicked.
    TrailersPanicked,
    /// The body or the trailers of the response cannot be sent, for example because the body is shorter or longer than
    /// announced.
    BodyMisfit(Option<highwire_proto::Error>),
    /// The task of a tunnel has panicked.
    TaskPanicked,
    /// The memory budget has no room.
    NoMemory,
    /// The peer has too many connections.
    TooManyConnections,
    /// The server stops, and no longer waits for the response.
    #[cfg_attr(
        not(any(feature = "call", test)),
        expect(dead_code, reason = "only requests of this process get a response then")
    )]
    ShuttingDown,
}

/// The consequences of an [`Abort`].
struct Outcome {
    status: StatusCode,
    text: &'static str,
    body: BodyError,
    code: Code,
}

impl Abort {
    #[rustfmt::skip]
    fn outcome(self) -> Outcome {
        use BodyError::{CutShort, NoMemory, TooLarge, TooSlow};
        let of = |status, body, code, text| Outcome { status, text, body, code };
        match self {
            Abort::Malformed(error) => {
                let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
                of(status, CutShort, Code::Protocol, error.text())
            }
            Abort::NotTls => of(StatusCode::BAD_REQUEST, CutShort, Code::Protocol, "this port speaks TLS: use https"),
            Abort::HeadTooSlow => of(StatusCode::REQUEST_TIMEOUT, TooSlow, Code::Cancel, "the request's head came too slowly"),
            Abort::BodyTooSlow => of(StatusCode::REQUEST_TIMEOUT, TooSlow, Code::NoError, "the request's body came too slowly"),
            Abort::BodyTooLarge(..) => of(StatusCode::PAYLOAD_TOO_LARGE, TooLarge, Code::Cancel, "the request's body is too large"),
            Abort::HandlerTooSlow => of(StatusCode::SERVICE_UNAVAILABLE, CutShort, Code::Cancel, "the answer took too long"),
            // A client that still reads learns why it gets no answer.
            Abort::ClientLeft => of(StatusCode::from_u16(CLIENT_LEFT).unwrap_or(StatusCode::BAD_REQUEST), CutShort, Code::Cancel, "the client has ended its direction before the answer was ready"),
            Abort::WriteTooSlow => of(StatusCode::SERVICE_UNAVAILABLE, CutShort, Code::Cancel, "the answer was not taken in time"),
            Abort::BodyFailed => of(StatusCode::INTERNAL_SERVER_ERROR, CutShort, Code::Internal, "a response's body failed"),
            Abort::BodyPanicked => of(StatusCode::INTERNAL_SERVER_ERROR, CutShort, Code::Internal, "a response's body panicked"),
            Abort::TrailersPanicked => of(StatusCode::INTERNAL_SERVER_ERROR, CutShort, Code::Internal, "a response's trailers panicked"),
            Abort::BodyMisfit(_) => of(StatusCode::INTERNAL_SERVER_ERROR, CutShort, Code::Internal, "a response's body does not fit what its head announced"),
            Abort::TaskPanicked => of(StatusCode::INTERNAL_SERVER_ERROR, CutShort, Code::Internal, "an upgraded protocol's task panicked"),
            Abort::NoMemory => of(StatusCode::SERVICE_UNAVAILABLE, NoMemory, Code::EnhanceYourCalm, "the server has no memory for this now"),
            Abort::TooManyConnections => of(StatusCode::SERVICE_UNAVAILABLE, CutShort, Code::EnhanceYourCalm, "too many connections"),
            Abort::ShuttingDown => of(StatusCode::SERVICE_UNAVAILABLE, CutShort, Code::Cancel, "the server stops"),
        }
    }

    /// Returns the error for a handler that is still reading the request's body.
    pub(crate) fn body_error(self) -> BodyError {
        self.outcome().body
    }

    /// Returns the error code of RST_STREAM for a stream whose response has begun.
    pub(crate) fn code(self) -> Code {
        self.outcome().code
    }

    /// Returns the reason as a text for the client and the log.
    pub(crate) fn text(self) -> &'static str {
        self.outcome().text
    }

    /// Returns the error response, to be sent if no response has begun. A 503 has Retry-After.
    pub(crate) fn response(self, worker: &WorkerContext<impl Service>) -> Response {
        let Outcome { status, text, .. } = self.outcome();
        match self {
            Abort::BodyTooLarge(route, body_use) => worker.too_large(route, body_use),
            _ if status == StatusCode::SERVICE_UNAVAILABLE => worker.overloaded(text),
            _ => worker.error(status, text),
        }
    }

    /// Writes a line to the log if the reason concerns the operator. Call it once, at the place that detects the
    /// reason.
    pub(crate) fn logged(self) -> Abort {
        match self {
            Abort::HandlerTooSlow => rate_limited::log!(Slow, warn, "a handler or a response body missed its deadline"),
            Abort::BodyPanicked | Abort::TrailersPanicked | Abort::TaskPanicked => {
                rate_limited::log!(Panic, error, "{}", self.text());
            }
            Abort::BodyMisfit(Some(error)) => rate_limited::log!(Mistake, error, %error, "{}", self.text()),
            Abort::BodyMisfit(None) => rate_limited::log!(Mistake, error, "{}", self.text()),
            _ => {}
        }
        self
    }
}

/// The reason for the requester of a request of ours.
impl From<Abort> for Failure {
    fn from(abort: Abort) -> Failure {
        match abort {
            // The connection has ended in the middle of a response's head.
            Abort::Malformed(highwire_proto::Error::Truncated) => Failure::Lost,
            Abort::Malformed(error) => Failure::Malformed(error),
            Abort::HeadTooSlow => Failure::TimedOut(Stage::Head),
            Abort::BodyTooSlow => Failure::TimedOut(Stage::Body),
            Abort::WriteTooSlow | Abort::HandlerTooSlow | Abort::ClientLeft => Failure::TimedOut(Stage::Write),
            Abort::NoMemory => Failure::NoMemory,
            Abort::TooManyConnections => Failure::TooManyConnections,
            Abort::ShuttingDown => Failure::ShuttingDown,
            Abort::BodyFailed
            | Abort::BodyPanicked
            | Abort::TrailersPanicked
            | Abort::TaskPanicked
            | Abort::BodyTooLarge(..)
            | Abort::NotTls
            | Abort::BodyMisfit(None) => Failure::Body(abort.text().to_string()),
            Abort::BodyMisfit(Some(error)) => Failure::Body(error.text().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_handlers_hear_the_same_reason() {
        let error = highwire_proto::Error::ALL[0];
        for (abort, status, body) in [
            (Abort::Malformed(error), error.status(), BodyError::CutShort),
            (Abort::HeadTooSlow, 408, BodyError::TooSlow),
            (Abort::BodyTooSlow, 408, BodyError::TooSlow),
            (Abort::BodyTooLarge(0, BodyUse::Whole), 413, BodyError::TooLarge),
            (Abort::HandlerTooSlow, 503, BodyError::CutShort),
            (Abort::NoMemory, 503, BodyError::NoMemory),
            (Abort::ShuttingDown, 503, BodyError::CutShort),
        ] {
            let outcome = abort.outcome();
            assert_eq!((outcome.status.as_u16(), outcome.body), (status, body), "{abort:?}");
            assert!(!outcome.text.is_empty() && !outcome.text.ends_with('\n'), "{abort:?}");
        }
    }
}
