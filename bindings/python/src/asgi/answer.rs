//! The response of an application, as far as it is known.

use super::convert::{Fields, final_status, header_fields};
use super::words::Words;
use bytes::Bytes;
use highwire_engine::Response;
use highwire_engine::http::StatusCode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::task::Waker;

/// What the application has sent.
pub(super) enum Answer {
    Nothing,
    /// The status and the header fields.
    Begun(Box<Begun>),
    /// The whole response, which the engine has not taken.
    Ready(Box<Response>),
    /// A body in parts.
    Streaming(Parts),
    /// All, or the client has left.
    Over,
}

impl Answer {
    /// Returns true if the application has sent all of its response.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Answer::Nothing | Answer::Begun(_) => false,
            Answer::Streaming(parts) => parts.end.is_some(),
            Answer::Ready(_) | Answer::Over => true,
        }
    }

    /// Takes the head of a response without a body so far. The caller puts what follows in its place.
    pub(super) fn take_begun(&mut self) -> Option<Box<Begun>> {
        match std::mem::replace(self, Answer::Over) {
            Answer::Begun(begun) => Some(begun),
            other => {
                *self = other;
                None
            }
        }
    }
}

pub(crate) struct Begun {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
    pub(crate) length: Option<u64>,
    /// True if trailer fields follow the body.
    pub(crate) has_trailers: bool,
}

#[derive(Default)]
pub(super) struct Parts {
    pub(super) waiting: VecDeque<Bytes>,
    pub(super) bytes: usize,
    /// `Ok` when the last part was sent, `Err` when there will be no last part.
    pub(super) end: Option<Result<(), ()>>,
    pub(super) waker: Option<Waker>,
    /// True if the engine has taken the beginning of the response.
    pub(super) is_taken: bool,
    pub(super) begun: Option<Box<Begun>>,
    /// True if trailer fields follow the last part.
    pub(super) awaits_trailers: bool,
    /// True if the response has no body, whatever the application sends.
    pub(super) has_no_body: bool,
    /// True if parts are dropped, because the response has no body and the client has it.
    pub(super) is_dropped: bool,
}

impl Begun {
    /// Returns true if a response with this status has no body (RFC 9110 section 6.4.1).
    pub(super) fn has_no_body(&self) -> bool {
        matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    pub(super) fn fill(self, response: &mut Response) {
        response.set_status(self.status);
        *response.own_headers() = self.fields;
    }
}

/// Reads the message that begins a response.
pub(super) fn begun(message: &Bound<'_, PyDict>, words: &Words) -> PyResult<Begun> {
    let status =
        message.get_item(&words.status)?.ok_or_else(|| PyValueError::new_err("the message has no 'status'"))?;
    let status = final_status(status.extract()?)?;
    let (fields, length) = match message.get_item(&words.headers)? {
        Some(headers) => header_fields(&headers)?,
        None => (Vec::new(), None),
    };
    let has_trailers = message.get_item(&words.trailers)?.is_some_and(|is| is.is_truthy().unwrap_or(false));
    Ok(Begun { status, fields, length, has_trailers })
}
