//! The client's side of the opening handshake, over HTTP/1.1 (RFC 6455 section 4.1).

use super::WebSocket;
use super::deflate::{Codec, Deflate};
use super::upgrade::Settings;
use crate::{HeaderName, HeaderValue, IntoResponse, Response, StatusCode};
use bytes::BytesMut;
use highwire_engine::client::Names;
use highwire_engine::connect;
use highwire_engine::raw::{Ended, RawReader, RawStream, RawWriter};
use highwire_engine::time::timeout;
use highwire_io::random;
use highwire_proto::ws::deflate::{Agreement, extensions, offer};
use highwire_proto::ws::{Bounds, Connection, handshake};
use highwire_proto::{Event, Head, Length, Limits, Role, Version, h1};
use http::Uri;
use std::cell::Cell;
use std::fmt;
use std::io;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

/// The time limit to look up the name, connect, and shake hands, unless another is set.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// The most bytes of the server's response that are read.
const RESPONSE_BYTES: usize = 64 * 1024;

/// The most interim responses before the server's response.
const INTERIM: usize = 16;

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

/// A builder of a connection to a WebSocket. The connection belongs to the worker whose task opens it, as those that it
/// accepts do. A handler's time is limited, so a connection that lasts longer belongs into a task of
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
#[derive(Clone)]
#[must_use]
pub struct Connect {
    url: Uri,
    is_secure: bool,
    fields: Vec<(HeaderName, HeaderValue)>,
    protocols: Vec<String>,
    deflate: Option<Deflate>,
    timeout: Duration,
    bounds: Bounds,
    ping_interval: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Connect {
    /// Creates a builder for a URL such as `ws://example.com/chat?room=1` or `wss://example.com`.
    ///
    /// # Errors
    /// Returns [`ConnectError::Url`] if the URL is invalid or has another scheme.
    pub fn new(url: &str) -> Result<Connect, ConnectError> {
        let url: Uri = url.parse().map_err(|_| ConnectError::Url)?;
        let is_secure = match url.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(ConnectError::Url),
        };
        let authority = url.authority().map_or("", |authority| authority.as_str());
        // `http` accepts any digits as a port.
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        if url.host().is_none_or(str::is_empty) || authority.contains('@') || (has_port && url.port_u16().is_none()) {
            return Err(ConnectError::Url);
        }
        Ok(Connect {
            url,
            is_secure,
            fields: Vec::new(),
            protocols: Vec::new(),
            deflate: None,
            timeout: HANDSHAKE,
            bounds: Bounds::default(),
            ping_interval: Some(super::upgrade::PING_INTERVAL),
            #[cfg(feature = "tls")]
            tls: None,
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

    /// Sets the time limit for the lookup of the name, the connection and the handshakes; the default is 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Connect {
        self.timeout = timeout;
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

    /// Sets the TLS configuration for `wss:`, which decides whose certificates are trusted. The default trusts those that
    /// the system trusts ([`system_client`](highwire_engine::tls::system_client)). A configuration of rustls 0.23 with
    /// other roots:
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
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Connect {
        self.tls = Some(config);
        self
    }

    /// Connects and shakes hands.
    ///
    /// # Errors
    /// Returns an error that says which step has failed.
    ///
    /// # Panics
    /// Panics if no worker runs on this thread.
    pub async fn connect(self) -> Result<WebSocket, ConnectError> {
        timeout(self.timeout, self.attempt()).await.unwrap_or(Err(ConnectError::TimedOut))
    }

    async fn attempt(&self) -> Result<WebSocket, ConnectError> {
        let (host, port) = (self.host(), self.url.port_u16().unwrap_or(if self.is_secure { 443 } else { 80 }));
        // The system's certificates may have to be read first. The server must not wait for that.
        let tls = if self.is_secure { Some(self.tls_config().await?) } else { None };
        let stream = open(host.trim_start_matches('[').trim_end_matches(']'), port).await?;
        let stream = match tls {
            Some(config) => self.secure(stream, config).await?,
            None => stream,
        };
        self.shake_hands(stream).await
    }

    fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }

    /// Returns the configuration that was set, or the one with the system's certificates.
    #[cfg(feature = "tls")]
    async fn tls_config(&self) -> Result<Arc<rustls::ClientConfig>, ConnectError> {
        if let Some(config) = self.tls.clone().or_else(highwire_engine::tls::known_system_client) {
            return Ok(config);
        }
        let read = highwire_engine::spawn_blocking(highwire_engine::tls::system_client).await;
        let read = read.map_err(io::Error::other).flatten();
        read.map(|(config, _)| config).map_err(|error| ConnectError::Tls(error.to_string()))
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, stream: RawStream, config: Arc<rustls::ClientConfig>) -> Result<RawStream, ConnectError> {
        let name = self.host().trim_start_matches('[').trim_end_matches(']').to_string();
        let name = rustls::pki_types::ServerName::try_from(name).map_err(|_| ConnectError::Url)?;
        highwire_engine::tls::connect(stream, config, name).await.map_err(|error| ConnectError::Tls(error.to_string()))
    }

    #[cfg(not(feature = "tls"))]
    async fn tls_config(&self) -> Result<std::convert::Infallible, ConnectError> {
        Err(ConnectError::NoTls)
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, _: RawStream, config: std::convert::Infallible) -> Result<RawStream, ConnectError> {
        match config {}
    }

    async fn shake_hands(&self, stream: RawStream) -> Result<WebSocket, ConnectError> {
        let (mut reader, mut writer) = stream.split();
        let key = handshake::key(random_key());
        let mut http = h1::Connection::new(Role::Client);
        self.send_request(&mut http, &key, &mut writer)?;
        let (head, window, consumed) = response(&mut http, &mut reader).await?;
        let of = |name: &[u8]| head.named(&window, name).collect::<Vec<_>>();
        if head.status != 101 {
            return Err(ConnectError::Status(StatusCode::from_u16(head.status).unwrap_or_default()));
        }
        let is_upgrade = of(b"connection").iter().any(|value| {
            let mut tokens = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            tokens.any(|token| token.eq_ignore_ascii_case(b"upgrade"))
        });
        if !is_upgrade || head.version != Version::Http11 {
            return Err(ConnectError::Handshake("the server's response does not upgrade the connection"));
        }
        let is_websocket = matches!(&of(b"upgrade")[..], [value] if value.eq_ignore_ascii_case(b"websocket"));
        let is_accepted = handshake::accept(&key).is_some_and(|accept| of(b"sec-websocket-accept") == [&accept[..]]);
        if !is_websocket || !is_accepted {
            return Err(ConnectError::Handshake("the server has not accepted the key"));
        }
        let subprotocol = match &of(b"sec-websocket-protocol")[..] {
            [] => None,
            [name] => self.protocols.iter().find(|proposed| proposed.as_bytes() == *name).cloned(),
            _ => return Err(ConnectError::Handshake("the server has selected several subprotocols")),
        };
        if subprotocol.is_none() && !of(b"sec-websocket-protocol").is_empty() {
            return Err(ConnectError::Handshake("the server has selected a subprotocol that was not proposed"));
        }
        let agreed = self.agreement(&of(b"sec-websocket-extensions").join(&b','))?;
        let settings = Settings { bounds: self.bounds, ping_interval: self.ping_interval, subprotocol };
        let codec = agreed.map(|(deflate, agreed)| Codec::client(&deflate, agreed, self.bounds.message_bytes));
        let connection = Connection::client(self.bounds, codec.is_some(), mask);
        let rest = BytesMut::from(&window[consumed..]);
        Ok(WebSocket::of_halves(reader, writer, connection, codec, &settings, rest))
    }

    fn send_request(&self, http: &mut h1::Connection, key: &[u8], writer: &mut RawWriter) -> Result<(), ConnectError> {
        let target = self.url.path_and_query().map_or("/", |target| target.as_str());
        let target = if target.starts_with('/') { target.to_string() } else { format!("/{target}") };
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let request = h1::Request {
            method: "GET",
            target: &target,
            version: Version::Http11,
            length: Length::Empty,
            keep_alive: true,
            upgrade: true,
        };
        let mut out = Vec::new();
        let sent = http.send_request(request, &mut out, |fields| {
            fields.field(b"Host", authority.as_bytes());
            fields.field(b"Upgrade", b"websocket");
            fields.field(b"Sec-WebSocket-Version", handshake::VERSION.as_bytes());
            fields.field(b"Sec-WebSocket-Key", key);
            if !self.protocols.is_empty() {
                fields.field(b"Sec-WebSocket-Protocol", self.protocols.join(", ").as_bytes());
            }
            if let Some(deflate) = &self.deflate {
                fields.field(b"Sec-WebSocket-Extensions", offer(deflate.wishes).as_bytes());
            }
            self.fields.iter().for_each(|(name, value)| fields.field(name.as_str().as_bytes(), value.as_bytes()));
        });
        sent.and_then(|()| http.send_end(&mut out, |_| {}))
            .map_err(|_| ConnectError::Handshake("a header field of the request is invalid"))?;
        writer.queue(out.into()).map_err(|_| ConnectError::Handshake(ENDED))
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

const ENDED: &str = "the server has ended the connection during the handshake";

/// Reads the head of the response. Returns it with the received bytes and the number of those that it takes.
async fn response(http: &mut h1::Connection, reader: &mut RawReader) -> Result<(Head, Vec<u8>, usize), ConnectError> {
    let (mut head, mut window, mut interim) = (Head::default(), Vec::new(), 0);
    loop {
        let received = http
            .receive(&window, &mut head, &Limits::default())
            .map_err(|_| ConnectError::Handshake("the server's response is not HTTP/1.1"))?;
        let consumed = received.consumed;
        match received.event {
            Event::Head(_) => return Ok((head, window, consumed)),
            Event::Interim if interim == INTERIM => {
                return Err(ConnectError::Handshake("the server has sent too many interim responses"));
            }
            Event::Interim => {
                interim += 1;
                window.drain(..consumed);
            }
            _ => {
                window.drain(..consumed);
                if window.len() > RESPONSE_BYTES {
                    return Err(ConnectError::Handshake("the server's response is too large"));
                }
                match reader.read().await {
                    Ok(Some(bytes)) => window.extend_from_slice(&bytes),
                    // The worker stops, but the handler may go on until its deadline.
                    Ok(None) if reader.ended() == Some(Ended::Draining) => {}
                    _ => return Err(ConnectError::Handshake(ENDED)),
                }
            }
        }
    }
}

/// Connects to the first address of a host that answers.
async fn open(host: &str, port: u16) -> Result<RawStream, ConnectError> {
    let addresses = Names::default().look_up(host, port).await.map_err(ConnectError::Resolve)?;
    connect::connect_any(&addresses).await.map_err(ConnectError::Connect)
}

fn random_key() -> [u8; 16] {
    (u128::from(random::system()) << 64 | u128::from(random::system())).to_be_bytes()
}

/// Returns the key of a frame. One number from the system's generator makes two keys.
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
    /// The addresses of the host could not be looked up.
    Resolve(io::Error),
    /// No address of the host could be connected to.
    Connect(io::Error),
    /// The URL is `wss:`, but the feature `tls` is off.
    NoTls,
    /// The TLS handshake has failed, or the system's trusted certificates cannot be read.
    Tls(String),
    /// The server has responded with another status than 101.
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
            ConnectError::Resolve(error) => write!(f, "the host cannot be looked up: {error}"),
            ConnectError::Connect(error) => write!(f, "the server cannot be reached: {error}"),
            ConnectError::NoTls => f.write_str("a wss: URL needs the feature `tls`"),
            ConnectError::Tls(error) => write!(f, "the TLS handshake has failed: {error}"),
            ConnectError::Status(status) => write!(f, "the server has responded with {status} and not with 101"),
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
            ConnectError::Resolve(error) | ConnectError::Connect(error) => Some(error),
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
