//! A request that we send, and the response to it.

use super::failure::Failure;
use crate::body::Body;
use crate::message::response::Content;
use crate::raw::RawStream;
use bytes::Bytes;
use highwire_proto::{Event, Head, Length, Limits, Role, Version, h1};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::fmt;
use std::rc::Rc;

/// A request for a server.
pub struct Request {
    /// The method.
    pub method: Method,
    /// The target: a path with its query, a whole URL for a proxy, `*`, or the authority for CONNECT.
    pub target: String,
    /// The scheme, for HTTP/2.
    pub scheme: &'static str,
    /// The value of `Host` or `:authority`.
    pub authority: Rc<str>,
    /// The other header fields, without those that frame the message: `Connection`, `Content-Length`,
    /// `Transfer-Encoding`.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub content: Content,
    /// The protocol that the request proposes by `Upgrade` or, over HTTP/2, by an extended CONNECT (RFC 8441).
    pub upgrade: Option<HeaderValue>,
    /// True if the requester takes interim responses from [`Asked::poll_interim`](super::Asked::poll_interim).
    pub wants_interims: bool,
    /// True if the connection shall end after the response.
    pub closes: bool,
    /// True if only some 16 KiB of the response shall be received before the reader of its body has used them, because the
    /// reader may be slow. It costs two operations, and is done over HTTP/1 without TLS.
    pub is_sparing: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("method", &self.method).field("target", &self.target).finish_non_exhaustive()
    }
}

impl Request {
    /// Returns a request without fields and body for a target of a server.
    pub fn new(method: Method, scheme: &'static str, authority: Rc<str>, target: String) -> Request {
        Request {
            method,
            target,
            scheme,
            authority,
            fields: Vec::new(),
            content: Content::Bytes(Bytes::new()),
            upgrade: None,
            wants_interims: false,
            closes: false,
            is_sparing: false,
        }
    }
}

/// A response from a server.
#[derive(Debug)]
pub struct Answer {
    /// The head, with spans into `window`.
    pub head: Head,
    /// The bytes from which the head was read.
    pub window: Bytes,
    /// The body.
    pub body: AnswerBody,
}

impl Answer {
    /// Returns a response that was not received from a connection, with a body. Its head is written as HTTP/1 and parsed,
    /// because the types of `http` can hold responses that are not valid.
    ///
    /// # Errors
    /// Returns an error if the head is not valid.
    pub fn of(response: &http::response::Parts, body: AnswerBody) -> Result<Answer, Failure> {
        let mut window = format!("HTTP/1.1 {} \r\n", response.status.as_u16()).into_bytes();
        for (name, value) in response.headers.iter().filter(|(name, _)| **name != header::TRANSFER_ENCODING) {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                window.extend_from_slice(part);
            }
        }
        window.extend_from_slice(b"\r\n");
        let mut http = h1::Connection::new(Role::Client);
        let request = h1::Request {
            method: "GET",
            target: "/",
            version: Version::Http11,
            length: Length::Empty,
            keep_alive: true,
            upgrade: false,
        };
        let mut head = Head::default();
        let sent = http.send_request(request, &mut Vec::new(), |writer| writer.field(b"Host", b"app"));
        sent.and_then(|()| http.send_end(&mut Vec::new(), |_| {})).map_err(Failure::Invalid)?;
        let received = http.receive(&window, &mut head, &Limits::default()).map_err(Failure::Malformed)?;
        if !matches!(received.event, Event::Head(_)) {
            return Err(Failure::Unsupported("the response is not a final one"));
        }
        Ok(Answer { head, window: window.into(), body })
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the version of the response.
    pub fn version(&self) -> Version {
        self.head.version
    }
}

/// The body of a response.
#[derive(Debug)]
pub enum AnswerBody {
    /// There is none.
    Empty,
    /// It was received with the head.
    Whole(Bytes),
    /// It is being received.
    Parts(Body),
    /// The server has accepted another protocol.
    Tunnel(RawStream),
}

/// An interim response: its status and its fields.
#[derive(Debug)]
pub struct Interim {
    /// The status, 1xx.
    pub status: StatusCode,
    /// The fields.
    pub fields: Vec<(HeaderName, HeaderValue)>,
}
