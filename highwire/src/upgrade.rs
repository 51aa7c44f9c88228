//! Other protocols on the same connection, or on a stream of HTTP/2: `Upgrade` and CONNECT hand a handler the raw bytes.

use crate::Response;
use crate::request::{FromRequest, Request};
use highwire_engine::raw::Switch;
pub use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter};
use highwire_engine::response::Content;
use http::{HeaderValue, StatusCode, header};
use std::future::Future;

/// What a request proposes: an extractor. The handler accepts, or answers something else.
///
/// The same handler serves HTTP/2, where a CONNECT with `:protocol` proposes (RFC 8441): it finds the route that a `GET` with
/// `Upgrade` finds, is answered with 200, and the bytes are those of its stream.
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
/// // Whoever does not propose it is told to.
/// assert_eq!(Client::new(app)?.get("/echo").send().status(), 426);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    proposed: Vec<String>,
    tunnel: bool,
}

impl Upgrade {
    /// The protocols that the request proposes, in its order of preference. Empty for CONNECT, and where the request
    /// proposes none.
    pub fn proposed(&self) -> &[String] {
        &self.proposed
    }

    /// Whether the request is CONNECT for a tunnel, to the authority that it names.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }

    /// Accepts a protocol (101; 200 on HTTP/2), or the tunnel (200) where the request is CONNECT: `start` then owns the bytes. Where the
    /// request did not propose that protocol, the answer is 426 Upgrade Required and names it.
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

impl FromRequest for Upgrade {
    fn from_request(request: &mut Request<'_>) -> Result<Upgrade, Response> {
        let protocol = request.head.protocol.of(request.window);
        let tunnel = request.head.method == highwire_proto::Method::Connect && protocol.is_empty();
        if !protocol.is_empty() {
            return Ok(Upgrade { proposed: vec![String::from_utf8_lossy(protocol).into_owned()], tunnel });
        }
        let mut proposed = Vec::new();
        if request.head.upgrade && !tunnel {
            for value in request.head.named(request.window, b"upgrade") {
                let names = value
                    .split(|&byte| byte == b',')
                    .map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned());
                proposed.extend(names.filter(|name| !name.is_empty()));
            }
        }
        Ok(Upgrade { proposed, tunnel })
    }
}
