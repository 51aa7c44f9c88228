//! The reasons why a request of ours has no response.

use highwire_proto::h2::Code;
use std::fmt;
use std::io;

/// A step of a request that has a time limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Waiting for a connection of the pool.
    Pool,
    /// The lookup of the name.
    Resolve,
    /// The connection to the server or to a proxy.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// The response's head, after the request was sent.
    Head,
    /// The response's body.
    Body,
    /// The request, which the server did not receive fast enough.
    Write,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Pool => "no connection became free",
            Stage::Resolve => "the name was not resolved",
            Stage::Connect => "the server did not accept the connection",
            Stage::Handshake => "the TLS handshake was not completed",
            Stage::Head => "the head of the response did not come",
            Stage::Body => "the body of the response came too slowly or not at all",
            Stage::Write => "the server did not take the request",
        })
    }
}

/// The reason why a request has no response.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The name of the server, or of a proxy, cannot be resolved.
    Resolve(io::Error),
    /// The server, or a proxy, cannot be reached.
    Connect(io::Error),
    /// The TLS handshake has failed. Contains the reason.
    Tls(String),
    /// A time limit has passed.
    TimedOut(Stage),
    /// A proxy has refused to connect to the server. Contains the reason.
    Proxy(String),
    /// The request cannot be sent because a part of it is invalid, for example a header field.
    Invalid(highwire_proto::Error),
    /// The body of the request has failed, or is not as long as announced. Contains the reason.
    Body(String),
    /// The server has sent bytes that are not HTTP or that exceed a limit.
    Malformed(highwire_proto::Error),
    /// The server has broken a rule of HTTP/2, or ended the connection with an error. Contains the code and the reason.
    Http2(Code, String),
    /// The server has reset the request's stream of HTTP/2.
    Reset(Code),
    /// The connection ended before the response's head was received. The server may have processed the request.
    Lost,
    /// The connection ended, or was going to end, before the request was sent. The server has not processed it.
    Unsent,
    /// The server does not support what the request needs. Contains the reason.
    Unsupported(&'static str),
    /// The pool has no room for the request, because too many requests wait for a connection.
    TooManyWaiting,
    /// The worker has no room for another connection.
    TooManyConnections,
    /// The memory budget has no room for the response.
    NoMemory,
    /// The worker or the server stops.
    ShuttingDown,
}

impl Failure {
    /// Returns true if the server has not processed the request, so that any request may be sent again.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Failure::Unsent | Failure::Reset(Code::Refused))
    }

    /// Returns true if the connection was lost, so that the server may have processed the request or not. An idempotent
    /// request may be sent again.
    pub fn is_lost(&self) -> bool {
        matches!(self, Failure::Lost)
    }

    /// Returns the reason as a value for another request that fails for the same reason.
    pub(crate) fn copy(&self) -> Failure {
        let of = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Failure::Resolve(error) => Failure::Resolve(of(error)),
            Failure::Connect(error) => Failure::Connect(of(error)),
            Failure::Tls(text) => Failure::Tls(text.clone()),
            Failure::TimedOut(stage) => Failure::TimedOut(*stage),
            Failure::Proxy(text) => Failure::Proxy(text.clone()),
            Failure::Invalid(error) => Failure::Invalid(*error),
            Failure::Body(text) => Failure::Body(text.clone()),
            Failure::Malformed(error) => Failure::Malformed(*error),
            Failure::Http2(code, text) => Failure::Http2(*code, text.clone()),
            Failure::Reset(code) => Failure::Reset(*code),
            Failure::Lost => Failure::Lost,
            Failure::Unsent => Failure::Unsent,
            Failure::Unsupported(text) => Failure::Unsupported(text),
            Failure::TooManyWaiting => Failure::TooManyWaiting,
            Failure::TooManyConnections => Failure::TooManyConnections,
            Failure::NoMemory => Failure::NoMemory,
            Failure::ShuttingDown => Failure::ShuttingDown,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Resolve(error) => write!(f, "cannot resolve the server's name: {error}"),
            Failure::Connect(error) => write!(f, "cannot connect to the server: {error}"),
            Failure::Tls(error) => write!(f, "cannot secure the connection: {error}"),
            Failure::TimedOut(stage) => write!(f, "too slow: {stage}"),
            Failure::Proxy(error) => write!(f, "the proxy does not connect to the server: {error}"),
            Failure::Invalid(error) => write!(f, "the request cannot be sent: {}", error.text()),
            Failure::Body(error) => write!(f, "the body of the request cannot be sent: {error}"),
            Failure::Malformed(error) => write!(f, "the server's response is wrong: {}", error.text()),
            Failure::Http2(code, text) if text.is_empty() => write!(f, "the HTTP/2 connection failed: {code:?}"),
            Failure::Http2(code, text) => write!(f, "the HTTP/2 connection failed: {code:?}, {text}"),
            Failure::Reset(code) => write!(f, "the server has reset the stream: {code:?}"),
            Failure::Lost => f.write_str("the server has ended the connection before its response"),
            Failure::Unsent => f.write_str("the connection ended before the request was sent"),
            Failure::Unsupported(text) => f.write_str(text),
            Failure::TooManyWaiting => f.write_str("too many requests wait for a connection to this server"),
            Failure::TooManyConnections => f.write_str("this worker has no room for another connection"),
            Failure::NoMemory => f.write_str("the memory budget has no room for the response"),
            Failure::ShuttingDown => f.write_str("this worker stops"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::Resolve(error) | Failure::Connect(error) => Some(error),
            _ => None,
        }
    }
}
