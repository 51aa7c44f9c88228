//! The error of a request.

use super::url::Url;
use crate::{IntoResponse, Response, StatusCode};
use highwire_engine::body::BodyError;
use highwire_engine::client::{Failure, Stage};
use http::Uri;
use std::fmt;
use std::rc::Rc;

/// The reason why a request has failed.
///
/// A handler may return it with `?`: the handler's client then gets 502, or 504 if a time limit has passed.
#[derive(Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    url: Option<Uri>,
}

/// The kinds of errors.
#[derive(Debug)]
pub(super) enum Kind {
    /// The request cannot be made. Contains the reason.
    Builder(String),
    /// A redirect cannot be followed. Contains the reason.
    Redirect(String),
    /// The request has no response.
    Failure(Failure),
    /// The time for the whole request has passed.
    TimedOut,
    /// The body of the response was not received completely.
    Body(BodyError),
    /// The body of the response has more than this number of bytes.
    TooLarge(usize),
    /// The body of the response cannot be decoded. Contains the reason.
    #[cfg_attr(
        not(any(feature = "json", feature = "compress")),
        expect(dead_code, reason = "without these features, nothing is decoded")
    )]
    Decode(String),
    /// The response has this status, which is an error.
    Status(StatusCode),
}

/// The side whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Party {
    /// The program: the request is invalid, or a bound or a time limit is too small.
    Program,
    /// The server or its network: it cannot be reached, is too slow, or sends something wrong.
    Server,
    /// The proxy.
    Proxy,
}

impl Error {
    pub(super) fn new(kind: Kind, url: Option<&Rc<Url>>) -> Error {
        Error { inner: Box::new(Inner { kind, url: url.map(|url| url.uri().clone()) }) }
    }

    pub(crate) fn builder(text: impl Into<String>) -> Error {
        Error::new(Kind::Builder(text.into()), None)
    }

    pub(crate) fn url(text: &str, why: &str) -> Error {
        let shown: String = text.chars().take(200).collect();
        Error::builder(format!("{shown:?} is not the URL of a request: {why}"))
    }

    /// Returns the URL of the request, if it is known.
    pub fn uri(&self) -> Option<&Uri> {
        self.inner.url.as_ref()
    }

    /// Returns true if the request could not be made, because its URL, a header field or another part is invalid.
    pub fn is_builder(&self) -> bool {
        matches!(self.inner.kind, Kind::Builder(_) | Kind::Failure(Failure::Invalid(_)))
    }

    /// Returns true if a redirect could not be followed.
    pub fn is_redirect(&self) -> bool {
        matches!(self.inner.kind, Kind::Redirect(_))
    }

    /// Returns true if a time limit has passed.
    pub fn is_timeout(&self) -> bool {
        let is_slow = matches!(self.inner.kind, Kind::TimedOut | Kind::Body(BodyError::TooSlow));
        is_slow || matches!(self.inner.kind, Kind::Failure(Failure::TimedOut(_)))
    }

    /// Returns true if there was no connection to the server.
    pub fn is_connect(&self) -> bool {
        use Stage::{Connect, Handshake, Resolve};
        matches!(
            self.inner.kind,
            Kind::Failure(
                Failure::Resolve(_)
                    | Failure::Connect(_)
                    | Failure::Tls(_)
                    | Failure::Proxy(_)
                    | Failure::TimedOut(Resolve | Connect | Handshake)
            )
        )
    }

    /// Returns true if a body was not sent or received completely.
    pub fn is_body(&self) -> bool {
        matches!(self.inner.kind, Kind::Body(_) | Kind::TooLarge(_) | Kind::Failure(Failure::Body(_)))
    }

    /// Returns true if the body of the response cannot be decoded, for example because it is not JSON.
    pub fn is_decode(&self) -> bool {
        matches!(self.inner.kind, Kind::Decode(_) | Kind::Body(BodyError::Undecodable))
    }

    /// Returns true if [`Response::error_for_status`](super::Response::error_for_status) has made this error.
    pub fn is_status(&self) -> bool {
        matches!(self.inner.kind, Kind::Status(_))
    }

    /// Returns the status of the response, if [`is_status`](Self::is_status).
    pub fn status(&self) -> Option<StatusCode> {
        if let Kind::Status(status) = self.inner.kind { Some(status) } else { None }
    }

    /// Returns the reason why there is no response, if there is none.
    pub fn failure(&self) -> Option<&Failure> {
        if let Kind::Failure(failure) = &self.inner.kind { Some(failure) } else { None }
    }

    /// Returns the side whose fault the error is.
    pub fn party(&self) -> Party {
        match &self.inner.kind {
            Kind::Builder(_) | Kind::TooLarge(_) => Party::Program,
            Kind::Failure(failure) => match failure {
                Failure::Invalid(_)
                | Failure::Body(_)
                | Failure::TooManyWaiting
                | Failure::TooManyConnections
                | Failure::NoMemory
                | Failure::ShuttingDown
                | Failure::TimedOut(Stage::Pool) => Party::Program,
                Failure::Proxy(_) => Party::Proxy,
                _ => Party::Server,
            },
            _ => Party::Server,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(url) = &self.inner.url {
            // The query may have secrets.
            let authority = url.authority().map_or("", |authority| authority.as_str());
            write!(f, "{}://{authority}{}: ", url.scheme_str().unwrap_or(""), url.path())?;
        }
        match &self.inner.kind {
            Kind::Builder(text) | Kind::Redirect(text) | Kind::Decode(text) => f.write_str(text),
            Kind::Failure(failure) => write!(f, "{failure}"),
            Kind::TimedOut => f.write_str("the time for the request has passed"),
            Kind::Body(error) => f.write_str(why_response_failed(*error)),
            Kind::TooLarge(most) => write!(f, "the response's body has more than {most} bytes"),
            Kind::Status(status) => write!(f, "the server responds with {status}"),
        }
    }
}

/// Returns the reason why a response's body was not received. The text of [`BodyError`] itself is about a request's
/// body.
pub(crate) fn why_response_failed(error: BodyError) -> &'static str {
    match error {
        BodyError::CutShort => "the response's body was cut short",
        BodyError::TooLarge => "the response's body is too large when it is decoded",
        BodyError::TooSlow => "the response's body came too slowly",
        BodyError::NoMemory => "the memory budget has no room for the response's body",
        BodyError::Undecodable => "the response's body does not match its coding",
        _ => "the response's body was not received",
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.inner.kind {
            Kind::Failure(failure) => Some(failure),
            Kind::Body(error) => Some(error),
            _ => None,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        tracing::warn!(error = %self, "a request to another server has failed");
        let status = if self.is_timeout() { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
        Response::error(status, format!("{}\n", status.canonical_reason().unwrap_or("error")))
    }
}
