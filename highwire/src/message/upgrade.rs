//! Other protocols on the same connection or HTTP/2 stream: after `Upgrade` or CONNECT, a handler gets the raw bytes.

use crate::Response;
use crate::message::request::{FromRequest, Request};
use highwire_engine::raw::Switch;
pub use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter};
use highwire_engine::response::Content;
use highwire_proto::Head;
use http::{HeaderValue, StatusCode, header};
use std::future::Future;

/// An extractor for requests that propose another protocol. The handler accepts the protocol, or sends another
/// response.
///
/// The same handler serves HTTP/2, where a client proposes a protocol with CONNECT and `:protocol` (RFC 8441). Such a
/// request is routed as a `GET` and accepted with 200. The raw bytes are then those of the request's stream.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Upgrade};
///
/// let app = App::new().get("/echo", |upgrade: Upgrade| {
///     upgrade.accept("echo", async |mut stream| {
///         while let Ok(Some(bytes)) = stream.read().await {
///             if stream.write(bytes).await.is_err() {
///                 break;
///             }
///         }
///     })
/// });
/// // A request without `Upgrade` gets 426 Upgrade Required.
/// assert_eq!(Client::new(app)?.get("/echo").send().status(), 426);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    proposed: Vec<String>,
    tunnel: bool,
}

impl Upgrade {
    /// Returns the protocols that the request proposes, in the request's order of preference. Empty if it proposes
    /// none, or is CONNECT for a tunnel.
    pub fn proposed(&self) -> &[String] {
        &self.proposed
    }

    /// Returns true if the request is CONNECT for a tunnel to the request's authority.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }

    /// Accepts a protocol with 101 (200 on HTTP/2), or a tunnel with 200; `start` is then called with the raw bytes. If
    /// the request has not proposed the protocol, returns a 426 Upgrade Required that names the protocol.
    pub fn accept<F, Fut>(self, protocol: &'static str, start: F) -> Response
    where
        F: FnOnce(RawStream) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let name = HeaderValue::from_static(protocol);
        if !self.tunnel && !self.proposed.iter().any(|proposed| proposed.eq_ignore_ascii_case(protocol)) {
            return Response::error(StatusCode::UPGRADE_REQUIRED, format!("this needs an upgrade to {protocol}\n"))
                .with_header(header::UPGRADE, name);
        }
        let mut response = Response::new(if self.tunnel { StatusCode::OK } else { StatusCode::SWITCHING_PROTOCOLS });
        if !self.tunnel {
            response.add_header(header::UPGRADE, name);
        }
        *response.content_mut() = Content::Switch(Box::new(Switch::new(start)));
        response
    }
}

impl Upgrade {
    /// Returns what a request proposes.
    pub(crate) fn of(head: &Head, window: &[u8]) -> Upgrade {
        let protocol = head.protocol.of(window);
        let tunnel = head.method == highwire_proto::Method::Connect && protocol.is_empty();
        if !protocol.is_empty() {
            return Upgrade { proposed: vec![String::from_utf8_lossy(protocol).into_owned()], tunnel };
        }
        let mut proposed = Vec::new();
        if head.upgrade && !tunnel {
            for value in head.named(window, b"upgrade") {
                let names = value
                    .split(|&byte| byte == b',')
                    .map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned());
                proposed.extend(names.filter(|name| !name.is_empty()));
            }
        }
        Upgrade { proposed, tunnel }
    }
}

impl FromRequest for Upgrade {
    fn from_request(request: &mut Request<'_>) -> Result<Upgrade, Response> {
        Ok(Upgrade::of(request.head, request.window))
    }
}
