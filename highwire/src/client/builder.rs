//! The settings of a client.

use super::Client;
use super::error::Error;
use super::middleware::Middleware;
use super::proxy::Proxy;
use super::redirect::Redirects;
use super::url::{self, Url};
use crate::{HeaderMap, HeaderName, HeaderValue};
use highwire_engine::Engine;
use highwire_engine::client::{Bounds, Names, Protocol, Timeouts};
#[cfg(feature = "tls")]
use highwire_engine::tls::{ClientConfig, ClientTls, ServerName};
use highwire_io::resolve::Resolve;
use http::header;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::sync::OnceLock;
use std::time::Duration;

/// The most bytes of a body that [`Response::bytes`](super::Response::bytes) collects by default.
const MOST_BODY_BYTES: usize = 64 * 1024 * 1024;

/// The most retries after lost connections, by default.
const RETRIES: usize = 3;

pub(super) struct Settings {
    pub(super) base: Option<Url>,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) protocol: Protocol,
    pub(super) timeouts: Timeouts,
    pub(super) bounds: Bounds,
    pub(super) resolve_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) pool_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) redirects: Redirects,
    pub(super) retries: usize,
    pub(super) engine: Engine,
    pub(super) proxies: Vec<Proxy>,
    pub(super) names: Names,
    pub(super) known: HashMap<String, Vec<IpAddr>>,
    pub(super) unix: Option<PathBuf>,
    pub(super) https_only: bool,
    pub(super) max_body_bytes: usize,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    #[cfg(feature = "cookie-jar")]
    pub(super) cookies: Option<super::CookieJar>,
    /// The app of this process that answers the requests.
    #[cfg(feature = "tower")]
    pub(super) app: Option<Arc<dyn super::local::Local>>,
    #[cfg(feature = "compress")]
    pub(super) decodes: bool,
    #[cfg(feature = "tls")]
    pub(super) tls: Tls,
}

/// The TLS settings, and the configurations.
#[cfg(feature = "tls")]
#[derive(Default)]
pub(super) struct Tls {
    pub(super) settings: ClientTls,
    /// The configuration that the program has set, if any.
    pub(super) given: Option<Arc<ClientConfig>>,
    /// The configuration for all connections, made for the first one.
    pub(super) config: OnceLock<Arc<ClientConfig>>,
    /// The same for connections that must speak HTTP/1.1, because they will carry another protocol.
    pub(super) config_http1: OnceLock<Arc<ClientConfig>>,
    pub(super) name: Option<ServerName<'static>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            base: None,
            fields: Vec::new(),
            protocol: Protocol::Auto,
            timeouts: Timeouts::default(),
            bounds: Bounds::default(),
            resolve_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            pool_timeout: Duration::from_secs(30),
            timeout: None,
            redirects: Redirects::default(),
            retries: RETRIES,
            engine: Engine::Auto,
            proxies: Vec::new(),
            names: Names::default(),
            known: HashMap::new(),
            unix: None,
            https_only: false,
            max_body_bytes: MOST_BODY_BYTES,
            middleware: Vec::new(),
            #[cfg(feature = "cookie-jar")]
            cookies: None,
            #[cfg(feature = "tower")]
            app: None,
            #[cfg(feature = "compress")]
            decodes: true,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }
}

/// A builder of a [`Client`].
#[must_use]
pub struct ClientBuilder {
    pub(super) settings: Settings,
    pub(super) error: Option<Error>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientBuilder")
    }
}

impl Default for ClientBuilder {
    fn default() -> ClientBuilder {
        ClientBuilder::new()
    }
}

impl ClientBuilder {
    /// Begins with the default settings.
    pub fn new() -> ClientBuilder {
        ClientBuilder { settings: Settings::default(), error: None }
    }

    /// Lets something in this process answer the requests, whose URLs begin with `base` unless they have another base.
    #[cfg(feature = "tower")]
    pub(crate) fn local(mut self, local: Result<Arc<dyn super::local::Local>, Error>, base: &str) -> ClientBuilder {
        match local {
            Ok(local) => self.settings.app = Some(local),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        if self.settings.base.is_none() { self.base_url(base) } else { self }
    }

    /// Returns the client.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid.
    pub fn build(self) -> Result<Client, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Client { settings: Arc::new(self.settings), owner: Arc::default() }),
        }
    }

    fn with_settings(mut self, set: impl FnOnce(&mut Settings)) -> ClientBuilder {
        set(&mut self.settings);
        self
    }

    /// Sets the URL against which the URLs of all requests are resolved. A path in it needs a final `/`: with the base
    /// `http://host/v1/`, `users` is `/v1/users`, and `/users` replaces the path.
    pub fn base_url(mut self, base: &str) -> ClientBuilder {
        match url::parse(base) {
            Ok((base, _)) => self.settings.base = Some(base),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Adds header fields to all requests that do not have them.
    pub fn default_headers(self, headers: &HeaderMap) -> ClientBuilder {
        self.with_settings(|settings| {
            settings.fields.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        })
    }

    /// Sets `User-Agent` of all requests. There is none by default.
    pub fn user_agent(self, name: HeaderValue) -> ClientBuilder {
        self.with_settings(|settings| settings.fields.push((header::USER_AGENT, name)))
    }

    /// Speaks HTTP/1.1 only.
    pub fn http1_only(self) -> ClientBuilder {
        self.with_settings(|settings| settings.protocol = Protocol::Http11)
    }

    /// Speaks HTTP/1.0 only.
    pub fn http10_only(self) -> ClientBuilder {
        self.with_settings(|settings| settings.protocol = Protocol::Http10)
    }

    /// Speaks HTTP/2 only, also without TLS.
    pub fn http2_prior_knowledge(self) -> ClientBuilder {
        self.with_settings(|settings| settings.protocol = Protocol::Http2)
    }

    /// Sets the time limits of connections.
    pub fn timeouts(self, timeouts: Timeouts) -> ClientBuilder {
        self.with_settings(|settings| settings.timeouts = timeouts)
    }

    /// Sets the time from the end of a request to the end of the response's head; see [`Timeouts::head`].
    pub fn head_timeout(self, timeout: Duration) -> ClientBuilder {
        self.with_settings(|settings| settings.timeouts.head = timeout)
    }

    /// Sets the limits on connections and pending requests, per worker.
    pub fn bounds(self, bounds: Bounds) -> ClientBuilder {
        self.with_settings(|settings| settings.bounds = bounds)
    }

    /// Sets the time limit for a whole request, from [`send`](super::RequestBuilder::send) to the end of the response's
    /// body. There is none by default.
    pub fn timeout(self, timeout: Duration) -> ClientBuilder {
        self.with_settings(|settings| settings.timeout = Some(timeout))
    }

    /// Sets the time limit to connect, without the TLS handshake; the default is 10 seconds. [`Timeouts::handshake`]
    /// limits the handshake.
    pub fn connect_timeout(self, timeout: Duration) -> ClientBuilder {
        self.with_settings(|settings| settings.connect_timeout = timeout)
    }

    /// Sets the time limit for the lookup of a name; the default is 10 seconds.
    pub fn resolve_timeout(self, timeout: Duration) -> ClientBuilder {
        self.with_settings(|settings| settings.resolve_timeout = timeout)
    }

    /// Sets the time for which a request may be pending until a connection, possibly a new one, takes it; the default
    /// is 30 seconds.
    pub fn pool_timeout(self, timeout: Duration) -> ClientBuilder {
        self.with_settings(|settings| settings.pool_timeout = timeout)
    }

    /// Sets which redirects are followed; the default is up to ten.
    pub fn redirects(self, redirects: Redirects) -> ClientBuilder {
        self.with_settings(|settings| settings.redirects = redirects)
    }

    /// Sets the most retries after lost connections; the default is 3.
    pub fn retries(self, retries: usize) -> ClientBuilder {
        self.with_settings(|settings| settings.retries = retries)
    }

    /// Sets the engine for the client's own thread ([`Background`](super::Background)) or its blocking calls
    /// ([`blocking`](super::blocking)). On a server's worker, the client uses the worker's engine.
    /// [`Threads`](Engine::Threads) counts as readiness.
    pub fn engine(self, engine: Engine) -> ClientBuilder {
        self.with_settings(|settings| settings.engine = engine)
    }

    /// Adds a proxy. The first one that is meant for a request is used.
    pub fn proxy(self, proxy: Proxy) -> ClientBuilder {
        self.with_settings(|settings| settings.proxies.push(proxy))
    }

    /// Adds the proxies that the environment names; see [`Proxy::from_environment`].
    pub fn proxies_from_environment(self) -> ClientBuilder {
        self.with_settings(|settings| settings.proxies.extend(Proxy::from_environment()))
    }

    /// Uses these addresses for a host, and does not look it up.
    pub fn resolve(self, host: &str, addresses: &[IpAddr]) -> ClientBuilder {
        self.with_settings(|settings| drop(settings.known.insert(host.to_ascii_lowercase(), addresses.to_vec())))
    }

    /// Looks names up with this resolver, and not with the system's.
    pub fn resolver(self, resolver: Arc<dyn Resolve>) -> ClientBuilder {
        self.with_settings(|settings| settings.names = Names::new(resolver))
    }

    /// Connects to this unix socket for all requests. Their URLs still name the host.
    pub fn unix_socket(self, path: impl AsRef<Path>) -> ClientBuilder {
        self.with_settings(|settings| settings.unix = Some(path.as_ref().to_path_buf()))
    }

    /// Refuses `http:` URLs, also in redirects.
    pub fn https_only(self) -> ClientBuilder {
        self.with_settings(|settings| settings.https_only = true)
    }

    /// Sets the most bytes of a body that [`Response::bytes`](super::Response::bytes), `text` and `json` collect, after
    /// decoding; the default is 64 MiB.
    pub fn max_body_bytes(self, bytes: usize) -> ClientBuilder {
        self.with_settings(|settings| settings.max_body_bytes = bytes)
    }

    /// Adds middleware. The first one that was added is the outermost.
    pub fn with(self, middleware: impl Middleware) -> ClientBuilder {
        self.with_settings(|settings| settings.middleware.push(Arc::new(middleware)))
    }

    /// Keeps cookies in this jar, and sends them. There is no jar by default.
    #[cfg(feature = "cookie-jar")]
    #[doc(alias = "cookie_provider")]
    pub fn cookie_jar(self, jar: super::CookieJar) -> ClientBuilder {
        self.with_settings(|settings| settings.cookies = Some(jar))
    }

    /// Neither asks for compressed bodies nor decodes them.
    #[cfg(feature = "compress")]
    pub fn without_decompression(self) -> ClientBuilder {
        self.with_settings(|settings| settings.decodes = false)
    }

    /// Sets the TLS settings: trusted certificates, the client's own certificate, pins.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: ClientTls) -> ClientBuilder {
        self.with_settings(|settings| settings.tls.settings = tls)
    }

    /// Sets a configuration of rustls in place of [`tls`](Self::tls). The client sets its ALPN.
    #[cfg(feature = "tls")]
    #[doc(alias = "use_preconfigured_tls")]
    pub fn tls_config(self, config: Arc<ClientConfig>) -> ClientBuilder {
        self.with_settings(|settings| settings.tls.given = Some(config))
    }

    /// Sets the name that TLS servers must prove and get as SNI, in place of the URL's host.
    #[cfg(feature = "tls")]
    pub fn tls_name(mut self, name: &str) -> ClientBuilder {
        match ServerName::try_from(name.to_string()) {
            Ok(name) => self.settings.tls.name = Some(name),
            Err(_) => self.error = self.error.or_else(|| Some(Error::builder("the TLS name is invalid"))),
        }
        self
    }
}
