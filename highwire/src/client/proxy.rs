//! Proxies: which requests go through one, and how a connection is made through it.

use super::error::Error;
use super::request::basic;
use super::url::Url;
use crate::{HeaderValue, RawStream};
use highwire_engine::client::Failure;
use highwire_proto::{Event, Head, Length, Limits, Role, Version, h1};
use std::env;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The most bytes of a proxy's response to CONNECT.
const RESPONSE_BYTES: usize = 64 * 1024;

/// A proxy, and the requests that go through it.
///
/// ```
/// use highwire::client::{Client, Proxy};
///
/// let client = Client::builder()
///     .proxy(Proxy::https("http://user:password@proxy.example:3128")?.no_proxy("localhost,.internal,10.0.0.0/8"))
///     .proxy(Proxy::http("socks5h://127.0.0.1:1080")?)
///     .build()?;
/// # let _ = client;
/// # Ok::<(), highwire::client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Proxy {
    via: Arc<Via>,
    http: bool,
    https: bool,
    except: Vec<Exception>,
}

/// The address of a proxy, and the protocol that it speaks.
pub(super) struct Via {
    pub(super) kind: ProxyKind,
    pub(super) host: String,
    pub(super) port: u16,
    credentials: Option<(String, String)>,
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password must not get into logs.
        f.debug_struct("Via").field("kind", &self.kind).field("host", &self.host).field("port", &self.port).finish()
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// HTTP: absolute form for `http:`, CONNECT for `https:`.
    Http,
    /// SOCKS5 (RFC 1928). If the flag is set, the proxy looks up the names.
    Socks5(bool),
    /// The environment names a proxy that cannot be used. Requests through it fail, because sending them directly could
    /// be a leak.
    Unusable,
}

/// A host to which requests go without the proxy.
#[derive(Clone, Debug)]
enum Exception {
    All,
    /// A name and all names below it.
    Name(String),
    /// A network: its address and the number of its bits.
    Network(IpAddr, u8),
}

impl Proxy {
    fn new(address: &str, http: bool, https: bool) -> Result<Proxy, Error> {
        let address = if address.contains("://") { address.to_string() } else { format!("http://{address}") };
        let fail = |why: &str| Error::builder(format!("the address of a proxy is invalid: {why}"));
        let parsed = url::Url::parse(&address).map_err(|error| fail(&error.to_string()))?;
        let (kind, port) = match parsed.scheme() {
            "http" => (ProxyKind::Http, 80),
            "socks5" => (ProxyKind::Socks5(false), 1080),
            "socks5h" => (ProxyKind::Socks5(true), 1080),
            "https" => return Err(fail("TLS to the proxy itself is not supported; use http: or socks5:")),
            _ => return Err(fail("its scheme is not http, socks5 or socks5h")),
        };
        let host = parsed.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        if host.is_empty() {
            return Err(fail("it has no host"));
        }
        let port = parsed.port().unwrap_or(port);
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let has_any = !parsed.username().is_empty() || parsed.password().is_some();
        let credentials = has_any.then(|| (decode(parsed.username()), decode(parsed.password().unwrap_or_default())));
        Ok(Proxy { via: Arc::new(Via { kind, host, port, credentials }), http, https, except: Vec::new() })
    }

    /// Returns a proxy for requests to `http:` URLs. Its address has the scheme `http`, `socks5` or `socks5h` (then the
    /// proxy looks up the names), and may have a user and a password.
    ///
    /// # Errors
    /// Returns an error if the address is invalid.
    pub fn http(address: &str) -> Result<Proxy, Error> {
        Proxy::new(address, true, false)
    }

    /// Returns a proxy for requests to `https:` URLs. The TLS session is the server's own, inside a tunnel.
    ///
    /// # Errors
    /// Returns an error if the address is invalid.
    pub fn https(address: &str) -> Result<Proxy, Error> {
        Proxy::new(address, false, true)
    }

    /// Returns a proxy for all requests.
    ///
    /// # Errors
    /// Returns an error if the address is invalid.
    pub fn all(address: &str) -> Result<Proxy, Error> {
        Proxy::new(address, true, true)
    }

    /// Sends requests to these hosts without the proxy: names, which stand for all names below them too, IP addresses and
    /// networks such as `10.0.0.0/8`, separated by commas, or `*` for all hosts.
    pub fn no_proxy(mut self, hosts: &str) -> Proxy {
        for host in hosts.split([',', ' ', '\t']).filter(|host| !host.is_empty()) {
            let (address, bits) = host.split_once('/').unwrap_or((host, ""));
            // A port is ignored: the exception is for all ports.
            let has_port = address.matches(':').count() == 1 || address.contains("]:");
            let address = if has_port { address.rsplit_once(':').map_or(address, |(host, _)| host) } else { address };
            let address = address.trim_start_matches('[').trim_end_matches(']');
            if !bits.is_empty() && bits.parse::<u8>().is_err() {
                tracing::warn!(host, "a no_proxy entry is not a valid network");
                continue;
            }
            self.except.push(match (host, address.parse::<IpAddr>()) {
                ("*", _) => Exception::All,
                (_, Ok(ip)) => {
                    let most = if ip.is_ipv4() { 32 } else { 128 };
                    Exception::Network(ip, bits.parse().unwrap_or(most).min(most))
                }
                (_, Err(_)) => Exception::Name(address.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase()),
            });
        }
        self
    }

    /// Returns the proxies that `http_proxy`, `https_proxy` and `all_proxy` name in the environment, with the exceptions in
    /// `no_proxy`. Names in capitals work too, but a CGI program ignores `HTTP_PROXY`, because its client can set it. If an address
    /// cannot be used, requests that are meant for it fail.
    pub fn from_environment() -> Vec<Proxy> {
        Proxy::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Vec<Proxy> {
        let either = |name: &str| variable(name).or_else(|| variable(&name.to_ascii_uppercase()));
        let no_proxy = either("no_proxy").unwrap_or_default();
        let mut proxies = Vec::new();
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let http = variable("http_proxy").or_else(|| variable("HTTP_PROXY").filter(|_| !is_cgi));
        for (address, http, https) in
            [(http, true, false), (either("https_proxy"), false, true), (either("all_proxy"), true, true)]
        {
            let Some(address) = address.filter(|address| !address.is_empty()) else { continue };
            match Proxy::new(&address, http, https) {
                Ok(proxy) => proxies.push(proxy.no_proxy(&no_proxy)),
                Err(error) => {
                    tracing::warn!(%error, "a proxy of the environment cannot be used");
                    let via = Via { kind: ProxyKind::Unusable, host: String::new(), port: 0, credentials: None };
                    proxies.push(Proxy { via: Arc::new(via), http, https, except: Vec::new() }.no_proxy(&no_proxy));
                }
            }
        }
        proxies
    }

    /// Returns the way to the proxy if a request to this URL goes through it.
    pub(super) fn intercepts(&self, url: &Url) -> Option<&Arc<Via>> {
        let is_meant = if url.is_secure() { self.https } else { self.http };
        let host = url.host().trim_end_matches('.');
        let ip = host.parse::<IpAddr>().ok();
        let is_excepted = self.except.iter().any(|exception| match exception {
            Exception::All => true,
            Exception::Name(name) => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
            Exception::Network(network, bits) => ip.is_some_and(|ip| is_in(ip, *network, *bits)),
        });
        (is_meant && !is_excepted).then_some(&self.via)
    }
}

fn is_in(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let shift = 32 - u32::from(bits.min(32));
            u64::from(u32::from(ip)) >> shift == u64::from(u32::from(network)) >> shift
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let shift = 128 - u32::from(bits.min(128));
            shift == 128 || u128::from(ip) >> shift == u128::from(network) >> shift
        }
        _ => false,
    }
}

impl Via {
    /// Returns the value of `Proxy-Authorization`.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.credentials.as_ref().map(|(user, password)| basic(user, Some(password)))
    }

    /// Returns true if requests for this URL go to the proxy in absolute form, and not through a tunnel.
    pub(super) fn takes_whole_urls(&self, url: &Url) -> bool {
        self.kind == ProxyKind::Http && !url.is_secure()
    }

    /// Opens a tunnel through the proxy with CONNECT (RFC 9110 section 9.3.6).
    pub(super) async fn connect(&self, stream: &mut RawStream, host: &str, port: u16) -> Result<(), Failure> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        let target = format!("{host}:{port}");
        let mut http = h1::Connection::new(Role::Client);
        let mut out = Vec::new();
        let request = h1::Request {
            method: "CONNECT",
            target: &target,
            version: Version::Http11,
            length: Length::Empty,
            keep_alive: true,
            upgrade: true,
        };
        let sent = http.send_request(request, &mut out, |writer| {
            writer.field(b"Host", target.as_bytes());
            if let Some(authorization) = self.authorization() {
                writer.field(b"Proxy-Authorization", authorization.as_bytes());
            }
        });
        sent.and_then(|()| http.send_end(&mut out, |_| {})).map_err(Failure::Invalid)?;
        stream.write(out).await.map_err(|_| ended())?;
        let (mut head, mut window) = (Head::default(), Vec::new());
        loop {
            let received = http.receive(&window, &mut head, &Limits::default());
            let received = received.map_err(|error| Failure::Proxy(error.text().to_string()))?;
            match received.event {
                Event::Head(_) if !head.upgrade => {
                    return Err(Failure::Proxy(format!("it responds with the status {}", head.status)));
                }
                Event::Head(_) if received.consumed < window.len() => {
                    return Err(Failure::Proxy("it has sent bytes after its response".to_string()));
                }
                Event::Head(_) => return Ok(()),
                Event::Interim => drop(window.drain(..received.consumed)),
                Event::Folded => h1::unfold(&mut window),
                _ if window.len() > RESPONSE_BYTES => {
                    return Err(Failure::Proxy("its response is too large".to_string()));
                }
                _ => match stream.read().await {
                    Ok(Some(bytes)) => window.extend_from_slice(&bytes),
                    _ => return Err(ended()),
                },
            }
        }
    }

    /// Opens a connection through a SOCKS5 proxy (RFC 1928). `address` is the IP address if the client has looked it up.
    pub(super) async fn socks(
        &self,
        stream: &mut RawStream,
        host: &str,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<(), Failure> {
        let mut reader = Reader { stream, bytes: Vec::new() };
        let greeting: &[u8] = if self.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
        reader.write(greeting).await?;
        match (&*reader.take(2).await?, &self.credentials) {
            ([5, 0], _) => {}
            ([5, 2], Some((user, password))) => {
                // RFC 1929.
                let (user_length, length) = (u8::try_from(user.len()), u8::try_from(password.len()));
                let (Ok(user_length), Ok(length)) = (user_length, length) else {
                    return Err(Failure::Proxy("the user or the password is longer than 255 bytes".to_string()));
                };
                let mut login = vec![1, user_length];
                login.extend_from_slice(user.as_bytes());
                login.push(length);
                login.extend_from_slice(password.as_bytes());
                reader.write(&login).await?;
                if reader.take(2).await?[1] != 0 {
                    return Err(Failure::Proxy("it refuses the user or the password".to_string()));
                }
            }
            _ => return Err(Failure::Proxy("it takes none of the offered ways to log in".to_string())),
        }
        let mut request = vec![5, 1, 0];
        match address.or_else(|| host.parse().ok()) {
            Some(IpAddr::V4(ip)) => {
                request.push(1);
                request.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                request.push(4);
                request.extend_from_slice(&ip.octets());
            }
            None => {
                let length = u8::try_from(host.len());
                let length = length.map_err(|_| Failure::Proxy("the name is longer than 255 bytes".to_string()))?;
                request.extend_from_slice(&[3, length]);
                request.extend_from_slice(host.as_bytes());
            }
        }
        request.extend_from_slice(&port.to_be_bytes());
        reader.write(&request).await?;
        let response = reader.take(4).await?;
        let [version, reply, _, kind] = *response else { return Err(ended()) };
        if version != 5 || reply != 0 {
            let reason = match reply {
                1 => "a general failure",
                2 => "its rules do not allow the connection",
                3 => "the network is unreachable",
                4 => "the host is unreachable",
                5 => "the server refuses the connection",
                6 => "the time to live has expired",
                _ => "it does not support the request",
            };
            return Err(Failure::Proxy(reason.to_string()));
        }
        let length = match kind {
            1 => 4,
            4 => 16,
            3 => usize::from(reader.take(1).await?[0]),
            _ => return Err(Failure::Proxy("its response has an unknown kind of address".to_string())),
        };
        reader.take(length + 2).await?;
        if reader.bytes.is_empty() {
            return Ok(());
        }
        Err(Failure::Proxy("it has sent bytes after its response".to_string()))
    }
}

fn ended() -> Failure {
    Failure::Proxy("it has ended the connection".to_string())
}

/// Reads whole messages of SOCKS.
struct Reader<'s> {
    stream: &'s mut RawStream,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write(bytes.to_vec()).await.map_err(|_| ended())
    }

    /// Returns the next `count` bytes.
    async fn take(&mut self, count: usize) -> Result<Box<[u8]>, Failure> {
        while self.bytes.len() < count {
            match self.stream.read().await {
                Ok(Some(bytes)) => self.bytes.extend_from_slice(&bytes),
                _ => return Err(ended()),
            }
        }
        Ok(self.bytes.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::url::parse;
    use super::*;

    fn goes(proxy: &Proxy, url: &str) -> bool {
        proxy.intercepts(&parse(url).expect("a URL").0).is_some()
    }

    #[test]
    fn exceptions_are_names_with_those_below_them_addresses_and_networks() {
        let proxy =
            Proxy::all("proxy:3128").expect("a proxy").no_proxy("a.example, .b.example,10.0.0.0/8,::1,192.0.2.7");
        for (url, through) in [
            ("http://a.example/", false),
            ("http://x.a.example/", false),
            ("http://xa.example/", true),
            ("https://B.example/", false),
            ("http://10.200.3.4/", false),
            ("http://11.0.0.1/", true),
            ("http://[::1]:80/", false),
            ("http://[::2]/", true),
            ("http://192.0.2.7/", false),
            ("http://192.0.2.8/", true),
        ] {
            assert_eq!(goes(&proxy, url), through, "{url}");
        }
        assert!(!goes(&Proxy::all("p").expect("a proxy").no_proxy("*"), "http://a/"));
        assert!(!goes(&Proxy::https("p").expect("a proxy"), "http://a/"));
        assert!(Proxy::all("ftp://p").is_err() && Proxy::all("https://p").is_err());
    }

    #[test]
    fn the_environment_names_proxies() {
        let variables = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        };
        let proxies = Proxy::from_variables(variables(&[
            ("http_proxy", "http://one:1"),
            ("HTTPS_PROXY", "socks5://two"),
            ("all_proxy", "not a proxy"),
            ("NO_PROXY", "a.example"),
        ]));
        let via = |url: &str| {
            let (uri, _) = parse(url).expect("a URL");
            proxies.iter().find_map(|proxy| proxy.intercepts(&uri)).map(|via| (via.host.clone(), via.port))
        };
        assert_eq!(via("http://b/"), Some(("one".to_string(), 1)));
        assert_eq!(via("https://b/"), Some(("two".to_string(), 1080)));
        assert_eq!(via("https://a.example/"), None);
        // A CGI program's client can set HTTP_PROXY with a header field `Proxy`.
        let cgi = Proxy::from_variables(variables(&[("HTTP_PROXY", "http://evil"), ("REQUEST_METHOD", "GET")]));
        assert!(cgi.is_empty());
    }
}
