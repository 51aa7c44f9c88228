//! The opening handshake (RFC 6455 section 4.2, RFC 8441).

use super::deflate::{Codec, Deflate};
use super::message::{Error, Message};
use super::receiver::Callbacks;
use super::socket::{WebSocket, WebSocketSender};
use super::together::Together;
use crate::message::request::{FromRequest, Request};
use crate::middleware::Forwarded;
use crate::{Peer, Response, Upgrade};
use highwire_engine::request::Caller;
use highwire_io::SocketId;
use highwire_proto::ws::deflate::{Agreement, extensions, is_list_of_extensions};
use highwire_proto::ws::{Bounds, Connection, handshake};
use highwire_proto::{Head, Version};
use http::{HeaderName, HeaderValue, StatusCode, header};
use std::future::Future;
use std::time::Duration;

/// The time after which a silent peer gets a Ping frame, unless the handler sets another.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The settings of a connection.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) bounds: Bounds,
    pub(super) ping_interval: Option<Duration>,
    pub(super) subprotocol: Option<String>,
}

/// The origins of pages that may open the connection.
#[derive(Clone, Debug)]
enum Origins {
    /// Only that of the request's own host.
    Own,
    These(Vec<String>),
    Any,
}

/// An extractor of requests that open a WebSocket. [`on_upgrade`](Self::on_upgrade) accepts the request.
///
/// It responds with 405 to a method other than GET, with 426 to a request without `Upgrade: websocket` or with a
/// `Sec-WebSocket-Version` other than 13, and with 400 to an invalid `Sec-WebSocket-Key`. The same handler serves
/// HTTP/2, where CONNECT with `:protocol` opens a WebSocket on a stream (RFC 8441); it is routed as GET.
///
/// ```
/// use highwire::ws::{Message, WebSocket, WebSocketUpgrade};
/// use highwire::{App, Path, Response};
///
/// async fn echo(mut socket: WebSocket) {
///     while let Some(Ok(message)) = socket.recv().await {
///         if let Message::Text(_) | Message::Binary(_) = message {
///             if socket.send(message).await.is_err() {
///                 return;
///             }
///         }
///     }
/// }
///
/// let app = App::new()
///     .get("/echo/{name}", |upgrade: WebSocketUpgrade, Path(_): Path<String>| -> Response {
///         upgrade.protocols(["echo.v2", "echo.v1"]).max_message_size(64 * 1024).on_upgrade(echo)
///     })
///     // The same with default settings:
///     .ws("/echo", echo);
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
pub struct WebSocketUpgrade {
    upgrade: Upgrade,
    /// The value of `Sec-WebSocket-Accept`; `None` on HTTP/2.
    accept: Option<[u8; handshake::ACCEPT_BYTES]>,
    proposed: Vec<String>,
    origin: Option<Vec<u8>>,
    authority: String,
    /// The hosts for which proxies have received the request.
    forwarded: Vec<String>,
    /// True if the browser says that the page is of the same origin (`Sec-Fetch-Site`, which no page can set).
    is_same_origin: bool,
    peer: Peer,
    origins: Origins,
    /// The values of `Sec-WebSocket-Extensions`, joined by commas.
    extensions: Vec<u8>,
    deflate: Option<(Deflate, Agreement)>,
    settings: Settings,
    /// The connection of the request, if it is shared with other requests.
    shared: Option<SocketId>,
}

const VERSION: HeaderName = header::SEC_WEBSOCKET_VERSION;

impl FromRequest for WebSocketUpgrade {
    fn from_request(request: &mut Request<'_>) -> Result<WebSocketUpgrade, Response> {
        let opening = Opening { head: request.head, window: request.window, caller: request.caller };
        let mut upgrade = opening.read()?;
        upgrade.forwarded.extend(request.extension::<Forwarded>().and_then(|forwarded| forwarded.host.clone()));
        Ok(upgrade)
    }
}

/// A request that may open a WebSocket.
#[derive(Clone, Copy)]
struct Opening<'r> {
    head: &'r Head,
    window: &'r [u8],
    caller: Caller<'r>,
}

impl<'r> Opening<'r> {
    fn read(self) -> Result<WebSocketUpgrade, Response> {
        let Opening { head, window, caller } = self;
        let is_http2 = head.version == Version::Http2;
        if !is_http2 && head.method != highwire_proto::Method::Get {
            let response = self.refused(StatusCode::METHOD_NOT_ALLOWED, "a WebSocket is opened with GET\n");
            return Err(response.with_header(header::ALLOW, HeaderValue::from_static("GET")));
        }
        let upgrade = Upgrade::of(head, window);
        if !upgrade.proposed().iter().any(|name| name.eq_ignore_ascii_case("websocket")) {
            let response = self.refused(StatusCode::UPGRADE_REQUIRED, "this needs an upgrade to websocket\n");
            return Err(response.with_header(header::UPGRADE, HeaderValue::from_static("websocket")));
        }
        if self.only(VERSION.as_str()) != Some(handshake::VERSION.as_bytes()) {
            let response = self.refused(StatusCode::UPGRADE_REQUIRED, "Sec-WebSocket-Version must be 13\n");
            return Err(response.with_header(VERSION, HeaderValue::from_static(handshake::VERSION)));
        }
        let accept = if is_http2 { None } else { Some(self.accept()?) };
        let mut proposed = Vec::new();
        for value in head.named(window, b"sec-websocket-protocol") {
            for token in handshake::tokens(value) {
                let text = "Sec-WebSocket-Protocol is not a list of tokens\n";
                proposed.push(token.ok_or_else(|| self.refused(StatusCode::BAD_REQUEST, text))?.to_string());
            }
        }
        let extensions: Vec<_> = head.named(window, b"sec-websocket-extensions").collect();
        let (is_extended, extensions) = (!extensions.is_empty(), extensions.join(&b','));
        if is_extended && !is_list_of_extensions(&extensions) {
            return Err(self.refused(StatusCode::BAD_REQUEST, "Sec-WebSocket-Extensions is malformed\n"));
        }
        Ok(WebSocketUpgrade {
            upgrade,
            accept,
            proposed,
            // A repeated field becomes an empty origin, which is that of no host.
            origin: head.field(window, b"origin").map(|_| self.only("origin").unwrap_or_default().to_vec()),
            authority: String::from_utf8_lossy(head.authority(window)).into_owned(),
            forwarded: self.forwarded_hosts(),
            is_same_origin: self.only("sec-fetch-site") == Some(b"same-origin"),
            peer: caller.peer(),
            origins: Origins::Own,
            extensions,
            deflate: None,
            settings: Settings { bounds: Bounds::default(), ping_interval: Some(PING_INTERVAL), subprotocol: None },
            shared: caller.connection().filter(|_| is_http2),
        })
    }

    /// Returns the value of `Sec-WebSocket-Accept`, or the response to a missing, repeated or invalid key.
    fn accept(self) -> Result<[u8; handshake::ACCEPT_BYTES], Response> {
        self.only("sec-websocket-key").and_then(handshake::accept).ok_or_else(|| {
            let text = "Sec-WebSocket-Key must be 16 bytes in base64, once\n";
            self.refused(StatusCode::BAD_REQUEST, text)
        })
    }

    /// Logs that the request is refused, and returns the response.
    fn refused(self, status: StatusCode, text: &'static str) -> Response {
        let peer = self.caller.peer();
        highwire_engine::log!(Refused, info, %peer, %status, "a request to open a WebSocket is refused: {}", text.trim_ascii());
        Response::error(status, text)
    }

    /// Returns the hosts in `X-Forwarded-Host`. Here the peer need not be a trusted proxy: the origin is checked because a
    /// browser sends its cookies with requests of any page, and no page can set a field of such a request. A client that can
    /// set fields can also leave out `Origin`.
    fn forwarded_hosts(self) -> Vec<String> {
        let named = self.head.named(self.window, b"x-forwarded-host");
        let lists = named.filter_map(|value| std::str::from_utf8(value).ok());
        lists.flat_map(|list| list.split(',')).map(|host| host.trim_ascii().to_string()).collect()
    }

    /// Returns the value of a header field, unless the field is missing or repeated.
    fn only(self, name: &str) -> Option<&'r [u8]> {
        let mut values = self.head.named(self.window, name.as_bytes());
        values.next().filter(|_| values.next().is_none())
    }
}

impl WebSocketUpgrade {
    /// Reads a request of the engine, for a program with a [`Service`](highwire_engine::Service) of its own in place of an
    /// [`App`](crate::App).
    ///
    /// # Errors
    /// Returns the response to a request that does not open a WebSocket properly.
    #[doc(hidden)]
    pub fn of(head: &Head, window: &[u8], caller: Caller<'_>) -> Result<WebSocketUpgrade, Response> {
        Opening { head, window, caller }.read()
    }

    /// Sets the subprotocols that the handler speaks, in its order of preference. The first of them that the client
    /// proposes is agreed on. If there is none, the connection opens without a subprotocol, and most clients then close
    /// it.
    pub fn protocols<P: AsRef<str>>(mut self, protocols: impl IntoIterator<Item = P>) -> WebSocketUpgrade {
        let mut known = protocols.into_iter();
        self.settings.subprotocol = known
            .find(|known| self.proposed.iter().any(|name| name == known.as_ref()))
            .map(|name| name.as_ref().into());
        self
    }

    /// Returns the subprotocols that the client proposes, in its order of preference.
    pub fn proposed_protocols(&self) -> &[String] {
        &self.proposed
    }

    /// Returns the subprotocol that [`protocols`](Self::protocols) has found.
    pub fn selected_protocol(&self) -> Option<&str> {
        self.settings.subprotocol.as_deref()
    }

    /// Allows pages of an origin to open the connection, in place of those of the request's own host. The origin is
    /// spelled as browsers send it: `https://app.example`, in lower case, with a port unless it is the scheme's default.
    /// By default, only pages of the request's own host may open it, because a browser sends its cookies with the
    /// request of any page. The own host is that of `Host`, and behind a proxy that of `X-Forwarded-Host` or of `Forwarded`
    /// from a [trusted proxy](crate::middleware::TrustedProxies); a page is also of the own host if the browser says so in
    /// `Sec-Fetch-Site`. Requests without `Origin`, which are not from a page, are always allowed.
    pub fn origin(mut self, origin: impl Into<String>) -> WebSocketUpgrade {
        match &mut self.origins {
            Origins::These(origins) => origins.push(origin.into()),
            Origins::Any => {}
            Origins::Own => self.origins = Origins::These(vec![origin.into()]),
        }
        self
    }

    /// Allows pages of every origin to open the connection.
    pub fn any_origin(mut self) -> WebSocketUpgrade {
        self.origins = Origins::Any;
        self
    }

    /// Sets the most bytes of a received message. The default is 1 MiB. A longer message ends the connection with the
    /// code 1009.
    pub fn max_message_size(mut self, bytes: u64) -> WebSocketUpgrade {
        self.settings.bounds.message_bytes = bytes;
        self
    }

    /// Sets the time after which a silent peer gets a Ping frame, 30 seconds by default; after the same time again, the
    /// connection ends. Both times count in tenths of a second. `None` sends no Ping frames.
    /// [`Timeouts::tunnel`](crate::server::Timeouts::tunnel) applies, too.
    pub fn ping_interval(mut self, interval: impl Into<Option<Duration>>) -> WebSocketUpgrade {
        self.settings.ping_interval = interval.into();
        self
    }

    /// Compresses messages by permessage-deflate (RFC 7692) if the client offers it. By default, messages are not
    /// compressed, because it costs CPU time and, with context takeover, memory.
    pub fn deflate(mut self, mut settings: Deflate) -> WebSocketUpgrade {
        if self.shared.is_some_and(|connection| !Together::may_take_over(connection)) {
            settings = settings.server_context_takeover(false).client_context_takeover(false);
        }
        let agreed = extensions(&self.extensions, true).find_map(|offer| offer.accept(settings.wishes));
        self.deflate = agreed.map(|agreed| (settings, agreed));
        self
    }

    /// Returns true if messages will be compressed.
    pub fn is_deflated(&self) -> bool {
        self.deflate.is_some()
    }

    /// Accepts the request: `start` is called with the connection when the response is sent, and the worker runs the
    /// returned future. The worker drops the future if the connection breaks, and when both halves of the connection
    /// are dropped, so clean up in a `Drop`. Returns a 403 if a page of a foreign origin sent the request.
    pub fn on_upgrade<F, Fut>(self, start: F) -> Response
    where
        F: FnOnce(WebSocket) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        if !self.origin.as_deref().is_none_or(|origin| self.allows(origin)) {
            let origin = String::from_utf8_lossy(self.origin.as_deref().unwrap_or_default()).into_owned();
            highwire_engine::log!(Refused, info, peer = %self.peer, origin, host = self.authority, "a request to open a WebSocket is refused: pages of this origin may not open it");
            return Response::error(StatusCode::FORBIDDEN, "pages of this origin may not open this WebSocket\n");
        }
        let (settings, subprotocol) = (self.settings.clone(), self.settings.subprotocol);
        let answer = self.deflate.map(|(_, agreed)| agreed.answer());
        let mut response = self.upgrade.accept("websocket", move |stream| {
            let codec =
                self.deflate.map(|(deflate, agreed)| Codec::server(&deflate, agreed, settings.bounds.message_bytes));
            let connection = Connection::server(settings.bounds, codec.is_some());
            let together = self.shared.and_then(Together::of);
            start(WebSocket::new(stream, connection, codec, &settings, together))
        });
        if let Some(accept) = self.accept.and_then(|accept| HeaderValue::from_bytes(&accept).ok()) {
            response.add_header(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(name) = subprotocol.and_then(|name| HeaderValue::from_str(&name).ok()) {
            response.add_header(header::SEC_WEBSOCKET_PROTOCOL, name);
        }
        if let Some(answer) = answer.and_then(|answer| HeaderValue::try_from(answer).ok()) {
            response.add_header(header::SEC_WEBSOCKET_EXTENSIONS, answer);
        }
        response
    }

    /// Accepts the request as [`on_upgrade`](Self::on_upgrade) does, for a handler that only reacts to messages: the
    /// worker calls `callback` for each of them, and for an error, which is the last call. There is no task for each
    /// connection, which saves memory. While 64 KiB or more wait for the peer, no message is received, so the callback can
    /// always answer with [`try_send`](WebSocketSender::try_send).
    ///
    /// ```
    /// use highwire::App;
    /// use highwire::ws::{Message, WebSocketUpgrade};
    ///
    /// let app = App::new().get("/echo", |upgrade: WebSocketUpgrade| {
    ///     upgrade.on_message(|socket, message| {
    ///         if let Ok(message @ (Message::Text(_) | Message::Binary(_))) = message {
    ///             let _ = socket.try_send(message);
    ///         }
    ///     })
    /// });
    /// # let _ = app;
    /// ```
    pub fn on_message<F>(self, callback: F) -> Response
    where
        F: FnMut(&WebSocketSender, Result<Message, Error>) + Unpin + 'static,
    {
        self.on_upgrade(|socket| Callbacks::new(socket, callback))
    }

    fn allows(&self, origin: &[u8]) -> bool {
        match &self.origins {
            Origins::Any => true,
            Origins::These(origins) => origins.iter().any(|known| known.as_bytes() == origin),
            Origins::Own => {
                if self.is_same_origin {
                    return true;
                }
                let mut hosts = std::iter::once(&self.authority).chain(&self.forwarded);
                hosts.any(|host| is_of_host(origin, host.as_bytes()))
            }
        }
    }
}

/// Returns true if an origin, such as `https://example.com`, is that of a host, such as `example.com:443`. The schemes are
/// not compared, because a proxy may have removed TLS.
fn is_of_host(origin: &[u8], authority: &[u8]) -> bool {
    let (host, port) = match (origin.strip_prefix(b"https://"), origin.strip_prefix(b"http://")) {
        (Some(host), _) => (host, &b":443"[..]),
        (_, Some(host)) => (host, &b":80"[..]),
        _ => return false,
    };
    let without_port = |host: &[u8]| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    !host.is_empty() && without_port(host) == without_port(authority)
}

#[cfg(test)]
mod tests {
    use super::is_of_host;

    #[test]
    fn an_origin_is_compared_with_the_host_without_the_default_port() {
        for (origin, authority, expected) in [
            ("https://example.com", "example.com", true),
            ("https://example.com", "Example.COM:443", true),
            ("http://example.com", "example.com:80", true),
            ("http://example.com:8080", "example.com:8080", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("http://example.com:8080", "example.com", false),
            ("https://example.com", "example.com:80", false),
            ("https://evil.example", "example.com", false),
            ("https://example.com.evil.example", "example.com", false),
            ("https://evil.example#example.com", "example.com", false),
            ("null", "null", false),
            ("https://", "", false),
            ("example.com", "example.com", false),
        ] {
            assert_eq!(is_of_host(origin.as_bytes(), authority.as_bytes()), expected, "{origin} for {authority}");
        }
    }
}
