//! The client's side of the opening handshake: a request of the [client](crate::client) that proposes the protocol, by
//! `Upgrade` over HTTP/1.1 (RFC 6455 section 4.1) or by an extended CONNECT over HTTP/2 (RFC 8441 section 5).

use super::WebSocket;
use super::deflate::{Codec, Deflate};
use super::upgrade::Settings;
use crate::client::{self, Client, Redirects};
use crate::{HeaderName, HeaderValue, IntoResponse, Response, StatusCode, header};
use bytes::BytesMut;
use highwire_engine::time::timeout;
use highwire_io::random;
use highwire_proto::ws::deflate::{Agreement, extensions, offer};
use highwire_proto::ws::{Bounds, Connection, handshake};
use http::Version;
use std::cell::Cell;
use std::fmt;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

/// The time limit to look up the name, connect, and shake hands, unless another is set.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Connects to a WebSocket with the default settings. See [`Connect`].
///
/// # Errors
/// As [`Connect::connect`].
///
/// # Panics
/// Panics if no worker runs on this thread.
pub async fn connect(url: &str) -> Result<WebSocket, ConnectError> {
    Connect::new(url)?.connect().await
}

/// A builder of an outgoing WebSocket connection. The connection belongs to the worker whose task opens it, like the
/// worker's incoming connections. A handler's time is limited, so open a connection that lasts longer in a task of
/// [`spawn`](crate::spawn).
///
/// ```
/// use highwire::App;
/// use highwire::ws::{Connect, Message};
///
/// let app = App::new().get("/relay", async || {
///     let mut socket = match Connect::new("ws://127.0.0.1:8080/echo")?.protocols(["echo.v1"]).connect().await {
///         Ok(socket) => socket,
///         Err(error) => return Err(error),
///     };
///     let _ = socket.send("hello").await;
///     match socket.recv().await {
///         Some(Ok(Message::Text(text))) => Ok(text.to_string()),
///         _ => Ok("no answer".to_string()),
///     }
/// });
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Connect {
    /// The URL with the scheme `http` or `https`.
    url: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    protocols: Vec<String>,
    deflate: Option<Deflate>,
    /// `None` until it is set.
    timeout: Option<Duration>,
    bounds: Bounds,
    ping_interval: Option<Duration>,
    client: Option<Result<Client, String>>,
}

impl Connect {
    /// Creates a builder for a URL such as `ws://example.com/chat?room=1` or `wss://example.com`.
    ///
    /// # Errors
    /// Returns [`ConnectError::Url`] if the URL is invalid or has another scheme.
    pub fn new(url: &str) -> Result<Connect, ConnectError> {
        let (scheme, rest) = url.split_once(':').ok_or(ConnectError::Url)?;
        let scheme = match scheme {
            scheme if scheme.eq_ignore_ascii_case("ws") => "http",
            scheme if scheme.eq_ignore_ascii_case("wss") => "https",
            _ => return Err(ConnectError::Url),
        };
        let (parsed, credentials) = client::url::parse(&format!("{scheme}:{rest}")).map_err(|_| ConnectError::Url)?;
        if credentials.is_some() || url.contains('#') {
            return Err(ConnectError::Url);
        }
        Ok(Connect {
            url: format!("{}{}", parsed.origin(), parsed.target()),
            fields: Vec::new(),
            protocols: Vec::new(),
            deflate: None,
            timeout: None,
            bounds: Bounds::default(),
            ping_interval: Some(super::upgrade::PING_INTERVAL),
            client: None,
        })
    }

    /// Adds a header field to the request, such as `Authorization` or `Origin`. Fields of the handshake are ignored.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Connect {
        let is_own = name == crate::header::HOST || name == crate::header::UPGRADE;
        if !is_own && !name.as_str().starts_with("sec-websocket-") {
            self.fields.push((name, value));
        }
        self
    }

    /// Proposes subprotocols, in the order of preference. [`WebSocket::protocol`] returns the one that the server has
    /// selected, if any.
    pub fn protocols<P: Into<String>>(mut self, protocols: impl IntoIterator<Item = P>) -> Connect {
        self.protocols = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Offers permessage-deflate. [`Deflate::client_context_takeover`] and
    /// [`client_max_window_bits`](Deflate::client_max_window_bits) concern the messages that this program sends.
    pub fn deflate(mut self, settings: Deflate) -> Connect {
        self.deflate = Some(settings);
        self
    }

    /// Sets the time limit for the lookup of the name, the connection and the handshakes, in place of the client's
    /// limit for a whole request. The default is 30 seconds, or the client's limit if that is shorter.
    pub fn timeout(mut self, timeout: Duration) -> Connect {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the most bytes of a received message. The default is 1 MiB. A longer message ends the connection with the
    /// code 1009.
    pub fn max_message_size(mut self, bytes: u64) -> Connect {
        self.bounds.message_bytes = bytes;
        self
    }

    /// Sets the time after which a silent server gets a Ping frame, 30 seconds by default, as
    /// [`WebSocketUpgrade::ping_interval`](super::WebSocketUpgrade::ping_interval) does.
    pub fn ping_interval(mut self, interval: impl Into<Option<Duration>>) -> Connect {
        self.ping_interval = interval.into();
        self
    }

    /// Sets the client that opens the connection, with its TLS settings, proxies, time limits and version of HTTP. The
    /// default is a client with the default settings, over HTTP/1.1. A client that chooses the version by ALPN uses
    /// HTTP/1.1, too. One with [`http2_prior_knowledge`](crate::client::ClientBuilder::http2_prior_knowledge) opens the
    /// WebSocket as a stream of a connection that it shares with other requests (RFC 8441), if the server allows that.
    /// Redirects are not followed.
    ///
    /// ```
    /// use highwire::client::Client;
    /// use highwire::ws::{Connect, ConnectError, WebSocket};
    ///
    /// async fn connect(client: &Client) -> Result<WebSocket, ConnectError> {
    ///     Connect::new("wss://example.com/chat")?.client(client).connect().await
    /// }
    /// ```
    pub fn client(mut self, client: &Client) -> Connect {
        self.client = Some(Ok(client.clone()));
        self
    }

    /// Sets the TLS configuration for `wss:`, which decides whose certificates are trusted. The default trusts the
    /// system's roots. A configuration of rustls 0.23 with other roots:
    ///
    /// ```
    /// use highwire::tls::ClientConfig;
    /// use highwire::ws::{Connect, ConnectError, WebSocket};
    /// use std::sync::Arc;
    ///
    /// async fn connect(roots: rustls::RootCertStore) -> Result<WebSocket, ConnectError> {
    ///     let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    ///     Connect::new("wss://example.com/chat")?.tls(Arc::new(config)).connect().await
    /// }
    /// ```
    ///
    /// This and [`client`](Connect::client) replace each other. Each call of `tls` makes a client: for many
    /// connections, make one client and use that.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Connect {
        let client = own_client(|builder| builder.tls_config(config));
        self.client = Some(client.map_err(|error| error.to_string()));
        self
    }

    /// Connects, and performs the handshakes.
    ///
    /// # Errors
    /// Returns an error that says which step has failed.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub async fn connect(self) -> Result<WebSocket, ConnectError> {
        timeout(self.timeout.unwrap_or(HANDSHAKE), self.shake_hands()).await.unwrap_or(Err(ConnectError::TimedOut))
    }

    async fn shake_hands(&self) -> Result<WebSocket, ConnectError> {
        let client = match &self.client {
            Some(Ok(client)) => client,
            Some(Err(error)) => return Err(ConnectError::Tls(error.clone())),
            None => default_client()?,
        };
        let key = handshake::key(random_key());
        let response = self.request(client, &key)?.send().await.map_err(ConnectError::Request)?;
        let subprotocol = self.check(&response, &key)?;
        let all = |name| response.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        let agreed = self.agreement(&all(header::SEC_WEBSOCKET_EXTENSIONS).join(&b','))?;
        let settings = Settings { bounds: self.bounds, ping_interval: self.ping_interval, subprotocol };
        let codec = agreed.map(|(deflate, agreed)| Codec::client(&deflate, agreed, self.bounds.message_bytes));
        let connection = Connection::client(self.bounds, codec.is_some(), mask);
        let (reader, writer) = response.upgrade().ok_or(ConnectError::Handshake(NOT_UPGRADED))?.split();
        Ok(WebSocket::of_halves(reader, writer, connection, codec, &settings, BytesMut::new()))
    }

    /// Returns the request that proposes the protocol.
    fn request(&self, client: &Client, key: &[u8]) -> Result<client::RequestBuilder, ConnectError> {
        let mut request = client.get(&self.url).upgrade("websocket");
        request = request.header(header::SEC_WEBSOCKET_VERSION, handshake::VERSION);
        // HTTP/2 needs no key, but the version is known only after the connection is open. Servers ignore it.
        request = request.header(header::SEC_WEBSOCKET_KEY, key);
        if !self.protocols.is_empty() {
            request = request.header(header::SEC_WEBSOCKET_PROTOCOL, self.protocols.join(", "));
        }
        if let Some(deflate) = &self.deflate {
            request = request.header(header::SEC_WEBSOCKET_EXTENSIONS, offer(deflate.wishes));
        }
        for (name, value) in &self.fields {
            request = request.header(name, value);
        }
        if let Some(timeout) = self.timeout {
            // Replaces the client's limit, and is longer than ours, so that ours ends the attempt.
            request = request.timeout(timeout.saturating_add(Duration::from_secs(1)));
        }
        Ok(request)
    }

    /// Checks that the server has accepted the protocol. Returns the subprotocol that it has selected.
    fn check(&self, response: &client::Response, key: &[u8]) -> Result<Option<String>, ConnectError> {
        let all = |name| response.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        let is_http2 = response.version() == Version::HTTP_2;
        let status = response.status();
        if if is_http2 { !status.is_success() } else { status != StatusCode::SWITCHING_PROTOCOLS } {
            return Err(ConnectError::Status(status));
        }
        if !is_http2 {
            let is_upgrade = all(header::CONNECTION).iter().any(|value| {
                let mut tokens = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                tokens.any(|token| token.eq_ignore_ascii_case(b"upgrade"))
            });
            if !is_upgrade || response.version() != Version::HTTP_11 {
                return Err(ConnectError::Handshake(NOT_UPGRADED));
            }
            let is_websocket = matches!(&all(header::UPGRADE)[..], [value] if value.eq_ignore_ascii_case(b"websocket"));
            let is_accepted =
                handshake::accept(key).is_some_and(|accept| all(header::SEC_WEBSOCKET_ACCEPT) == [&accept[..]]);
            if !is_websocket || !is_accepted {
                return Err(ConnectError::Handshake("the server has not accepted the key"));
            }
        }
        match &all(header::SEC_WEBSOCKET_PROTOCOL)[..] {
            [] => Ok(None),
            [name] => match self.protocols.iter().find(|proposed| proposed.as_bytes() == *name) {
                Some(protocol) => Ok(Some(protocol.clone())),
                None => Err(ConnectError::Handshake("the server has selected a subprotocol that was not proposed")),
            },
            _ => Err(ConnectError::Handshake("the server has selected several subprotocols")),
        }
    }

    fn agreement(&self, answer: &[u8]) -> Result<Option<(Deflate, Agreement)>, ConnectError> {
        const WRONG: ConnectError =
            ConnectError::Handshake("the server has accepted an extension that was not offered");
        if answer.is_empty() {
            return Ok(None);
        }
        let deflate = self.deflate.ok_or(WRONG)?;
        let mut answers = extensions(answer, false);
        match (answers.next().and_then(|answer| answer.agreed(deflate.wishes)), answers.next()) {
            (Some(agreed), None) if !answer.contains(&b',') => Ok(Some((deflate, agreed))),
            _ => Err(WRONG),
        }
    }
}

const NOT_UPGRADED: &str = "the server's response does not upgrade the connection";

/// Returns a client whose connections are used for WebSockets only.
fn own_client(with: impl FnOnce(client::ClientBuilder) -> client::ClientBuilder) -> Result<Client, client::Error> {
    // Browsers do not follow redirects here, and a response that is not a WebSocket needs no decoding.
    let builder = Client::builder().http1_only().redirects(Redirects::none());
    #[cfg(feature = "compress")]
    let builder = builder.without_decompression();
    with(builder).build()
}

/// Returns the client of WebSockets for which none was set.
fn default_client() -> Result<&'static Client, ConnectError> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    match CLIENT.get() {
        Some(client) => Ok(client),
        None => {
            own_client(|builder| builder).map(|client| CLIENT.get_or_init(|| client)).map_err(ConnectError::Request)
        }
    }
}

fn random_key() -> [u8; 16] {
    (u128::from(random::system()) << 64 | u128::from(random::system())).to_be_bytes()
}

/// Returns the masking key of a frame. One number from the system's generator makes two keys.
fn mask() -> [u8; 4] {
    thread_local! {
        static SPARE: Cell<Option<[u8; 4]>> = const { Cell::new(None) };
    }
    SPARE.take().unwrap_or_else(|| {
        let [one, two, three, four, rest @ ..] = random::system().to_be_bytes();
        SPARE.set(Some(rest));
        [one, two, three, four]
    })
}

/// The reason why a WebSocket could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid, or is neither `ws:` nor `wss:`.
    Url,
    /// The request has no response: the name cannot be looked up, the server cannot be reached, its certificate is not
    /// valid, its response is not HTTP, … [`client::Error`] tells which.
    Request(client::Error),
    /// The TLS settings cannot be used.
    Tls(String),
    /// The server has responded with another status than 101, or over HTTP/2 with another than 2xx.
    Status(StatusCode),
    /// The server's handshake is wrong.
    Handshake(&'static str),
    /// The time limit has passed.
    TimedOut,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Url => f.write_str("the URL is not a valid ws: or wss: URL"),
            ConnectError::Request(error) => error.fmt(f),
            ConnectError::Tls(error) => write!(f, "the TLS settings cannot be used: {error}"),
            ConnectError::Status(status) => write!(f, "the server has refused the WebSocket with {status}"),
            ConnectError::Handshake(reason) => f.write_str(reason),
            ConnectError::TimedOut => f.write_str("the time limit has passed"),
        }
    }
}

/// Responds with 502, and logs the reason.
impl IntoResponse for ConnectError {
    fn into_response(self) -> Response {
        highwire_engine::log!(Failure, warn, error = %self, "a WebSocket could not be opened");
        Response::error(StatusCode::BAD_GATEWAY, "another server could not be reached\n")
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Request(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::App;
    use crate::testing::Client;
    use highwire_engine::connect::{alternate, race};
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;
    use std::time::Duration;

    /// The result of an attempt after a number of milliseconds.
    #[derive(Clone, Copy)]
    enum Host {
        Accepts(u64),
        Refuses(u64),
        Silent,
    }
    use Host::*;

    /// Notes when the attempt was dropped.
    struct Dropped {
        at: usize,
        begun: highwire_io::Instant,
        events: Rc<RefCell<Vec<String>>>,
    }

    impl Drop for Dropped {
        fn drop(&mut self) {
            let milliseconds = highwire_engine::context::now().since(self.begun).as_millis();
            self.events.borrow_mut().push(format!("{}-{milliseconds}", self.at));
        }
    }

    /// Races hosts in virtual time. Returns the result, the milliseconds that it took, and when each attempt ended.
    async fn play(hosts: &'static [Host]) -> String {
        let begun = highwire_engine::context::now();
        let events: Rc<RefCell<Vec<String>>> = Rc::default();
        let result = race(hosts.iter().enumerate(), |(at, host)| {
            let milliseconds = highwire_engine::context::now().since(begun).as_millis();
            events.borrow_mut().push(format!("{at}+{milliseconds}"));
            let dropped = Dropped { at, begun, events: events.clone() };
            async move {
                let _dropped = dropped;
                let milliseconds = match host {
                    Accepts(after) | Refuses(after) => *after,
                    Silent => 1_000_000,
                };
                crate::time::sleep(Duration::from_millis(milliseconds)).await;
                match host {
                    Accepts(_) => Ok(at),
                    Refuses(_) | Silent => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            }
        })
        .await;
        let result = result.map_or_else(|error| format!("{:?}", error.kind()), |at| at.to_string());
        format!("{result}: {}", events.borrow().join(" "))
    }

    #[test]
    fn the_next_address_is_tried_after_a_delay_or_a_failure() {
        for (hosts, expected) in [
            (&[][..], "NotFound: "),
            (&[Accepts(10), Silent], "0: 0+0 0-10"),
            // The first one is slow: the second one begins beside it.
            (&[Accepts(300), Silent], "0: 0+0 1+250 0-300 1-300"),
            (&[Silent, Accepts(20)], "1: 0+0 1+250 1-270 0-270"),
            (&[Silent, Silent, Accepts(20)], "2: 0+0 1+250 2+500 2-520 0-520 1-520"),
            // A failure begins the next one at once.
            (&[Refuses(5), Accepts(20)], "1: 0+0 0-5 1+5 1-25"),
            (&[Silent, Refuses(5), Accepts(20)], "2: 0+0 1+250 1-255 2+255 2-275 0-275"),
            (&[Refuses(5), Refuses(5)], "ConnectionRefused: 0+0 0-5 1+5 1-10"),
            (&[Refuses(400), Refuses(5)], "ConnectionRefused: 0+0 1+250 1-255 0-400"),
        ] {
            let app = App::new().get("/", async move || play(hosts).await);
            assert_eq!(Client::new(app).expect("an app").get("/").send().text(), expected);
        }
    }

    #[test]
    fn addresses_of_both_families_alternate() {
        let parse = |text: &str| -> Vec<std::net::SocketAddr> {
            let addresses = text.split_whitespace().map(|ip| format!("{ip}:1").parse().expect("an address"));
            addresses.collect()
        };
        for (given, expected) in [
            ("", ""),
            ("1.1.1.1 2.2.2.2", "1.1.1.1 2.2.2.2"),
            ("1.1.1.1 2.2.2.2 [::1]", "1.1.1.1 [::1] 2.2.2.2"),
            ("[::1] [::2] [::3] 1.1.1.1 2.2.2.2", "[::1] 1.1.1.1 [::2] 2.2.2.2 [::3]"),
        ] {
            assert_eq!(alternate(&parse(given)), parse(expected));
        }
    }
}
