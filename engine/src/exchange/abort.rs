//! Why an exchange ends before its time. One table says what follows from each reason, for every protocol: the status of the
//! answer, the error that a handler gets which still reads the body, the HTTP/2 error code, and the line in the log.

use crate::body::BodyError;
use crate::quiet;
use crate::request::BodyUse;
use crate::response::Response;
use crate::service::Service;
use crate::worker::WorkerContext;
use highwire_proto::h2::Code;
use http::StatusCode;

/// Why an exchange ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    /// What the peer sent is not HTTP, or is refused as it stands.
    Malformed(highwire_proto::Error),
    /// It speaks HTTP where TLS is expected.
    NotTls,
    /// Its request's head did not come in time.
    HeadTooSlow,
    /// Its request's body came more slowly than the rate that a body must have.
    BodyTooSlow,
    /// The body is longer than its route takes in this way.
    BodyTooLarge(u32, BodyUse),
    /// The handler, or the next part of its answer's body, took longer than its deadline.
    HandlerTooSlow,
    /// The peer does not take the answer.
    WriteTooSlow,
    /// The body of the response has failed.
    BodyFailed,
    /// It has panicked.
    BodyPanicked,
    /// Its trailers have panicked.
    TrailersPanicked,
    /// It is shorter or longer than its head says, or its trailers cannot be sent.
    BodyMisfit(Option<highwire_proto::Error>),
    /// The task of another protocol has panicked.
    TaskPanicked,
    /// The memory budget has no room.
    NoMemory,
    /// The peer has as many connections as one may have.
    TooManyConnections,
    /// The worker stops, and waits no longer.
    #[cfg_attr(not(any(feature = "call", test)), expect(dead_code, reason = "connections are cut without a word"))]
    ShuttingDown,
}

/// What an [`Abort`] comes to.
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

    /// Returns the error that a handler gets which still reads the request's body.
    pub(crate) fn body_error(self) -> BodyError {
        self.outcome().body
    }

    /// What a stream of HTTP/2 is reset with whose answer has begun.
    pub(crate) fn code(self) -> Code {
        self.outcome().code
    }

    /// What happened, in words.
    pub(crate) fn text(self) -> &'static str {
        self.outcome().text
    }

    /// What the peer is answered whose answer has not begun. A 503 says when to come again.
    pub(crate) fn response(self, worker: &WorkerContext<impl Service>) -> Response {
        let Outcome { status, text, .. } = self.outcome();
        match self {
            Abort::BodyTooLarge(route, body_use) => worker.too_large(route, body_use),
            _ if status == StatusCode::SERVICE_UNAVAILABLE => worker.overloaded(text),
            _ => worker.error(status, text),
        }
    }

    /// Writes a line to the log if the operator should know of this reason. Call it once, at the place that finds the reason.
    pub(crate) fn logged(self) -> Abort {
        match self {
            Abort::HandlerTooSlow => quiet::log!(Slow, warn, "a handler took longer than its deadline"),
            Abort::BodyPanicked | Abort::TrailersPanicked | Abort::TaskPanicked => {
                quiet::log!(Panic, error, "{}", self.text());
            }
            Abort::BodyMisfit(Some(error)) => quiet::log!(Mistake, error, %error, "{}", self.text()),
            Abort::BodyMisfit(None) => quiet::log!(Mistake, error, "{}", self.text()),
            _ => {}
        }
        self
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
