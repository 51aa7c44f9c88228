//! Opens connections for a client: directly, to a unix socket, or through a proxy.

use super::builder::Settings;
use super::error::{Error, Kind};
use super::proxy::{ProxyKind, Via};
use super::url::Url;
use crate::RawStream;
use highwire_engine::client::{Failure, Open, Opened, OpeningTimes, Origin, Pool, Protocol, Stage};
use highwire_engine::connect::{connect, connect_any};
use highwire_engine::context;
use highwire_engine::time::timeout;
use highwire_io::Address;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A client's state on one worker.
pub(super) struct Here {
    pub(super) pool: Pool,
    /// The origins of the last requests, because most clients send all their requests to a few.
    recent: RefCell<Vec<Recent>>,
}

/// The most origins in [`Here::recent`]. They are searched one after the other, so there are few.
const RECENT: usize = 8;

struct Recent {
    needs_http1: bool,
    /// The scheme and the authority of its URL.
    prefix: Box<str>,
    place: Place,
}

/// The origin of a request, and the value of its Host field.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) origin: Rc<Origin>,
    pub(super) host: Rc<str>,
    /// The proxy that gets the request in absolute form.
    pub(super) proxy: Option<Arc<Via>>,
}

impl Here {
    pub(super) fn new(settings: &Settings) -> Here {
        Here { pool: Pool::new(&settings.timeouts, settings.bounds.clone()), recent: RefCell::default() }
    }

    /// Returns the origin of a URL. For a request that proposes another protocol (`upgrades`), a client that chooses
    /// the version by ALPN has separate HTTP/1.1 connections, because few servers take other protocols over HTTP/2.
    pub(super) fn place(&self, url: &Rc<Url>, settings: &Arc<Settings>, upgrades: bool) -> Result<Place, Error> {
        let is_secure = url.is_secure();
        let needs_http1 = upgrades && is_secure && settings.protocol == Protocol::Auto;
        let known = self
            .recent
            .borrow()
            .iter()
            .find(|recent| *recent.prefix == *url.origin() && recent.needs_http1 == needs_http1)
            .map(|recent| recent.place.clone());
        if let Some(place) = known.filter(|place| place.origin.is_alive()) {
            return Ok(place);
        }
        if settings.https_only && !is_secure {
            return Err(Error::new(Kind::Builder("only https: URLs are allowed".to_string()), Some(url)));
        }
        if is_secure && cfg!(not(feature = "tls")) {
            return Err(Error::new(Kind::Builder("an https: URL needs the feature `tls`".to_string()), Some(url)));
        }
        let (host, port) = (url.host(), url.port());
        let via = settings.proxies.iter().find_map(|proxy| proxy.intercepts(url)).cloned();
        let via = via.filter(|_| settings.unix.is_none());
        let whole = via.clone().filter(|via| via.takes_whole_urls(url));
        let scheme = if is_secure { "https" } else { "http" };
        let key = match (&whole, &via) {
            (Some(via), _) => format!("proxy {:p}", Arc::as_ptr(via)),
            (None, Some(via)) => format!("{scheme} {host} {port} {:p}", Arc::as_ptr(via)),
            (None, None) => format!("{scheme} {host} {port}"),
        };
        let key = if needs_http1 { key + " 1" } else { key };
        let protocol = match settings.protocol {
            Protocol::Auto if needs_http1 => Protocol::Http11,
            // Without TLS, there is no ALPN.
            Protocol::Auto if !is_secure => Protocol::Http11,
            protocol => protocol,
        };
        let target = Target { host: host.to_string(), port, is_secure, via, needs_http1 };
        let origin = self.pool.origin(&key, protocol, || open(target, settings.clone()));
        let place = Place { origin, host: url.authority().into(), proxy: whole };
        if place.proxy.is_none() {
            let mut recent = self.recent.borrow_mut();
            recent.retain(|recent| recent.place.origin.is_alive());
            if recent.len() == RECENT {
                recent.remove(0);
            }
            recent.push(Recent { needs_http1, prefix: url.origin().into(), place: place.clone() });
        }
        Ok(place)
    }
}

/// The destination of an origin's connections.
struct Target {
    host: String,
    port: u16,
    is_secure: bool,
    via: Option<Arc<Via>>,
    /// True if the connections will carry other protocols, so HTTP/2 must not be offered.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS has an offer"))]
    needs_http1: bool,
}

/// Returns the function that opens the connections of an origin.
fn open(target: Target, settings: Arc<Settings>) -> Box<Open> {
    let target = Rc::new(target);
    Box::new(move || {
        let (target, settings) = (target.clone(), settings.clone());
        Box::pin(async move {
            // The system's certificates may have to be read first.
            #[cfg(feature = "tls")]
            let tls = if target.is_secure { Some(tls(&target, &settings).await?) } else { None };
            let mut times = OpeningTimes::default();
            Ok(Opened {
                stream: reach(&target, &settings, &mut times).await?,
                times,
                #[cfg(feature = "tls")]
                tls,
            })
        })
    })
}

/// Opens a connection to the server, if necessary through a proxy.
async fn reach(target: &Target, settings: &Settings, times: &mut OpeningTimes) -> Result<RawStream, Failure> {
    let (limit, begun) = (settings.connect_timeout, context::now());
    if let Some(path) = &settings.unix {
        let address = Address::Unix(path.clone());
        let stream = within(limit, Stage::Connect, async { connect(address).await.map_err(unreachable) }).await;
        times.connect = context::now() - begun;
        return stream;
    }
    let (host, port) = match &target.via {
        Some(via) if via.kind == ProxyKind::Unusable => {
            return Err(Failure::Proxy("its address in the environment cannot be used".to_string()));
        }
        Some(via) => (&via.host, via.port),
        None => (&target.host, target.port),
    };
    let addresses = look_up(host, port, settings).await?;
    // A local lookup of the server's name comes before the connection, which has its own time limit.
    let known = match target.via.as_deref() {
        Some(Via { kind: ProxyKind::Socks5(false), .. }) => {
            look_up(&target.host, target.port, settings).await?.first().map(SocketAddr::ip)
        }
        _ => None,
    };
    let resolved = context::now();
    let stream = within(limit, Stage::Connect, async {
        let mut stream = dial(&addresses).await?;
        match &target.via {
            Some(via) if matches!(via.kind, ProxyKind::Socks5(_)) => {
                via.socks(&mut stream, &target.host, known, target.port).await?;
            }
            Some(via) if target.is_secure => via.connect(&mut stream, &target.host, target.port).await?,
            _ => {}
        }
        Ok(stream)
    })
    .await;
    (times.resolve, times.connect) = (resolved - begun, context::now() - resolved);
    stream
}

async fn dial(addresses: &[SocketAddr]) -> Result<RawStream, Failure> {
    connect_any(addresses).await.map_err(unreachable)
}

/// Returns the reason why a connection was not opened. If this process cannot hold another one, that is not the
/// server's fault.
fn unreachable(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => Failure::TooManyConnections,
        _ => Failure::Connect(error),
    }
}

async fn look_up(host: &str, port: u16, settings: &Settings) -> Result<Vec<SocketAddr>, Failure> {
    if let Some(known) = settings.known.get(host) {
        return Ok(known.iter().map(|&ip| SocketAddr::new(ip, port)).collect());
    }
    let names = &settings.names;
    within(settings.resolve_timeout, Stage::Resolve, async {
        names.look_up(host, port).await.map_err(Failure::Resolve)
    })
    .await
}

async fn within<T>(
    limit: Duration,
    stage: Stage,
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(limit, future).await.unwrap_or(Err(Failure::TimedOut(stage)))
}

/// Returns the TLS configuration and the name of the server.
#[cfg(feature = "tls")]
async fn tls(
    target: &Target,
    settings: &Settings,
) -> Result<(Arc<highwire_engine::tls::ClientConfig>, highwire_engine::tls::ServerName<'static>), Failure> {
    use highwire_engine::tls::ServerName;
    let name = match &settings.tls.name {
        Some(name) => name.clone(),
        None => ServerName::try_from(target.host.clone())
            .map_err(|_| Failure::Tls(format!("{} is not a name for a certificate", target.host)))?,
    };
    let place = if target.needs_http1 { &settings.tls.config_http1 } else { &settings.tls.config };
    if let Some(config) = place.get() {
        return Ok((config.clone(), name));
    }
    let mut config = match &settings.tls.given {
        Some(given) => (**given).clone(),
        None => {
            let tls = settings.tls.settings.clone();
            let built =
                crate::spawn_blocking(move || tls.build()).await.map_err(|error| Failure::Tls(error.to_string()))?;
            built.map_err(|error| Failure::Tls(error.to_string()))?
        }
    };
    config.alpn_protocols = match settings.protocol {
        _ if target.needs_http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Http11 => vec![b"http/1.1".to_vec()],
        Protocol::Http10 => vec![b"http/1.0".to_vec()],
        _ => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok((place.get_or_init(|| Arc::new(config)).clone(), name))
}
