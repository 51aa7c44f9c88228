//! Links that precede a response, in interim responses with the status 103 (RFC 8297).

use super::convert::{Fields, as_bytes};
use highwire::InterimResponses;
use highwire_engine::Begin;
use highwire_engine::http::header::LINK;
use highwire_engine::http::{HeaderValue, StatusCode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The most interim responses that one step of an application may leave. More are dropped, because they are only hints.
const MOST_WAITING: usize = 16;

/// The interim responses of a request.
#[derive(Default)]
pub(super) struct Hints {
    /// Those of the application's first step.
    waiting: Vec<Fields>,
    /// Sends later ones.
    interim: Option<InterimResponses>,
}

impl Hints {
    /// Sends those of the first step, and later ones at once if the response is `pending`.
    pub(super) fn connect(&mut self, request: &mut Begin<'_>, pending: bool) {
        if !pending && self.waiting.is_empty() {
            return;
        }
        let interim = request.hooks.interim(request.task.waker());
        self.waiting.drain(..).for_each(|links| interim.send(StatusCode::EARLY_HINTS, links));
        self.interim = Some(interim);
    }

    pub(super) fn send(&mut self, links: Fields) {
        match &self.interim {
            Some(interim) => interim.send(StatusCode::EARLY_HINTS, links),
            None if self.waiting.len() < MOST_WAITING => self.waiting.push(links),
            None => {}
        }
    }
}

/// Reads the links of a message.
pub(super) fn link_fields(links: &Bound<'_, PyAny>) -> PyResult<Fields> {
    let mut fields = Fields::new();
    for link in links.try_iter()? {
        let link = link?;
        let bytes = as_bytes(&link)?;
        let value = HeaderValue::from_bytes(bytes)
            .map_err(|_| PyValueError::new_err(format!("{:?} is not a link", String::from_utf8_lossy(bytes))))?;
        fields.push((LINK, value));
    }
    Ok(fields)
}
