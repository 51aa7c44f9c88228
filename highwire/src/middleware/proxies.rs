//! Proxies that may say who asked them (RFC 7239, and the fields before it).

use super::Middleware;
use super::limit::peer_address;
use crate::request::FromRequest;
use crate::{Request, Response};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Fields of forwarded requests that are looked at, from the last one on: proxies in a row beyond this are not trusted.
pub const FORWARDED_STEPS: usize = 32;

/// Believes what proxies at known addresses say: the client's address, its scheme and the host that it asked for. Handlers
/// and other middleware take them as [`ClientAddress`] and [`Forwarded`].
///
/// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are read, or instead of them `Forwarded`
/// ([`by_forwarded`](Self::by_forwarded)), and never both: most proxies write the one and pass on of the other what the
/// client says. From the last entry on, entries are skipped as long as they are trusted proxies themselves: the first other
/// one is the client. A request from anywhere else says what it likes, and nobody listens.
///
/// Of the fields that are read, have the proxy write or remove each, scheme and host as well: what it passes on as it came
/// is the client's word.
///
/// ```
/// use highwire::App;
/// use highwire::middleware::{ClientAddress, TrustedProxies};
///
/// let proxies = TrustedProxies::new(["10.0.0.0/8", "::1"])?;
/// let app = App::new().get("/", |client: ClientAddress| client.to_string()).with(proxies);
/// # let _ = app;
/// # Ok::<(), highwire::middleware::NotANetwork>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TrustedProxies {
    networks: Vec<Network>,
    local: bool,
    standard: bool,
}

/// An address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: u128,
    bits: u32,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotANetwork(String);

impl fmt::Display for NotANetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no network: 192.0.2.0/24, 2001:db8::/32, or an address", self.0)
    }
}

impl std::error::Error for NotANetwork {}

/// IPv4 as a part of IPv6 (RFC 4291 section 2.5.5.2), so that both spellings of an address are the same.
fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Network {
    type Err = NotANetwork;
    fn from_str(text: &str) -> Result<Network, NotANetwork> {
        let error = || NotANetwork(text.to_string());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse::<u32>).map_err(|_| error())?;
        if bits > most {
            return Err(error());
        }
        Ok(Network { address: wide(address), bits: bits + 128 - most })
    }
}

impl Network {
    fn has(self, address: IpAddr) -> bool {
        let differ = self.address ^ wide(address);
        self.bits == 0 || differ >> (128 - self.bits) == 0
    }
}

impl TrustedProxies {
    /// Proxies by their networks or addresses.
    ///
    /// # Errors
    /// The first text that is no network.
    pub fn new<'t>(networks: impl IntoIterator<Item = &'t str>) -> Result<TrustedProxies, NotANetwork> {
        let networks = networks.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(TrustedProxies { networks, local: false, standard: false })
    }

    /// Whoever comes through a unix socket, too.
    pub fn and_local(mut self) -> TrustedProxies {
        self.local = true;
        self
    }

    /// Reads `Forwarded` (RFC 7239), and nothing of `X-Forwarded-*`: for proxies that write it.
    pub fn by_forwarded(mut self) -> TrustedProxies {
        self.standard = true;
        self
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.has(address))
    }

    /// What the request's proxies say, if they are to be believed.
    fn forwarded(&self, request: &Request<'_>) -> Forwarded {
        let peer = peer_address(request);
        let mut known = Forwarded { address: peer, ..Forwarded::default() };
        if !peer.map_or(self.local, |peer| self.trusts(peer)) {
            return known;
        }
        let mut steps = if self.standard { standard(request) } else { traditional(request) };
        if steps.is_empty() {
            // Nobody says who it was: the proxy itself, then.
            steps.push(known.clone());
        }
        for step in steps.into_iter().rev().take(FORWARDED_STEPS) {
            // Each proxy says of whom it has the request, and how that one asked.
            known = Forwarded { address: step.address, https: step.https, host: step.host };
            match known.address {
                Some(address) if self.trusts(address) => {}
                _ => break,
            }
        }
        known
    }
}

/// What is known of a client behind trusted proxies: an extractor; without [`TrustedProxies`], what the socket says.
///
/// ```
/// use highwire::App;
/// use highwire::middleware::{Forwarded, TrustedProxies};
/// use highwire::testing::Client;
///
/// let app = App::new()
///     .get("/", |known: Forwarded| format!("{:?} {:?}", known.https, known.host))
///     .with(TrustedProxies::new(["10.0.0.0/8"])?.by_forwarded());
/// let call = "for=192.0.2.1;proto=https;host=example.com";
/// assert_eq!(Client::new(app)?.get("/").header("forwarded", call).send().text(), "Some(true) Some(\"example.com\")");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarded {
    /// Its address, if it has one and does not hide it.
    pub address: Option<IpAddr>,
    /// Whether it asked under TLS; none where nobody says so.
    pub https: Option<bool>,
    /// The authority that it asked for; none where nobody says so.
    pub host: Option<String>,
}

/// The client's address: an extractor. 400 where it has none, such as through a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromRequest for Forwarded {
    fn from_request(request: &mut Request<'_>) -> Result<Forwarded, Response> {
        let known = request.extensions().get::<Forwarded>().cloned();
        Ok(known.unwrap_or_else(|| Forwarded { address: peer_address(request), ..Forwarded::default() }))
    }
}

impl FromRequest for ClientAddress {
    fn from_request(request: &mut Request<'_>) -> Result<ClientAddress, Response> {
        let text = "the client's address is not known\n";
        client_address(request).map(ClientAddress).ok_or_else(|| Response::error(crate::StatusCode::BAD_REQUEST, text))
    }
}

/// The address of the client, as far as it is known.
pub(super) fn client_address(request: &mut Request<'_>) -> Option<IpAddr> {
    match request.extensions().get::<Forwarded>() {
        Some(known) => known.address,
        None => peer_address(request),
    }
}

impl Middleware for TrustedProxies {
    type State = ();

    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        let known = self.forwarded(request);
        request.extensions().insert(known);
        Ok(())
    }

    fn after(&self, (): (), _: &mut Response) {}
}

/// The values of all fields of a name, in order, one after the other.
fn values<'r>(request: &Request<'r>, name: &str) -> String {
    let values = request.headers().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let values: Vec<String> = values.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect();
    values.join(",")
}

/// The steps of `Forwarded`.
fn standard(request: &Request<'_>) -> Vec<Forwarded> {
    let text = values(request, "forwarded");
    split(&text, ',')
        .into_iter()
        .map(|element| {
            let mut step = Forwarded::default();
            for pair in split(element, ';') {
                let Some((name, value)) = pair.split_once('=') else { continue };
                let value = value.trim().trim_matches('"');
                match name.trim() {
                    name if name.eq_ignore_ascii_case("for") => step.address = node(value),
                    name if name.eq_ignore_ascii_case("proto") => step.https = scheme(value),
                    name if name.eq_ignore_ascii_case("host") => step.host = host(value),
                    _ => {}
                }
            }
            step
        })
        .collect()
}

/// Returns the steps of the fields that proxies wrote before there was a standard. A list of schemes or hosts belongs to the
/// addresses entry by entry if both lists have the same length. Otherwise some proxy did not append to one of them, and only
/// the last entry, the nearest proxy's, has a known author: that entry then holds for every step.
fn traditional(request: &Request<'_>) -> Vec<Forwarded> {
    let (addresses, schemes, hosts) =
        (values(request, "x-forwarded-for"), values(request, "x-forwarded-proto"), values(request, "x-forwarded-host"));
    let (schemes, hosts) = (entries(&schemes), entries(&hosts));
    let addresses = entries(&addresses);
    let count = addresses.len();
    let mut steps: Vec<Forwarded> = (0..count.max(1))
        .map(|at| {
            let of = |list: &[&str]| {
                let entry = if list.len() == count { list.get(at) } else { list.last() };
                entry.map(|text| (*text).to_string())
            };
            Forwarded {
                address: addresses.get(at).and_then(|text| node(text)),
                https: of(&schemes).and_then(|text| scheme(&text)),
                host: of(&hosts).and_then(|text| host(&text)),
            }
        })
        .collect();
    if count == 0 {
        // Nobody says who it was: the proxy itself, then.
        steps[0].address = peer_address(request);
    }
    steps
}

/// Splits at a separator that stands outside of quotes, without empty parts. It is read from its end, where the nearest proxy
/// has written: a quote that somebody before it has left open must not swallow what it says.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut end, mut quoted) = (text.len(), false);
    for (at, character) in text.char_indices().rev() {
        match character {
            '"' if !(quoted && is_escaped(&text[..at])) => quoted = !quoted,
            _ if character == separator && !quoted => {
                parts.push(&text[at + separator.len_utf8()..end]);
                end = at;
            }
            _ => {}
        }
    }
    parts.push(&text[..end]);
    parts.into_iter().rev().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Whether what follows is escaped within quotes: by a backslash that is not escaped itself.
fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// The entries of a list that knows no quotes.
fn entries(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect()
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. IPv4 that is written
/// as a part of IPv6 is IPv4, so that its callers do not all count as one.
fn node(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let address: Option<IpAddr> = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').and_then(|(address, _)| address.parse().ok()),
        None => text.parse().ok().or_else(|| text.split_once(':').and_then(|(address, _)| address.parse().ok())),
    };
    address.map(|address| address.to_canonical())
}

fn scheme(text: &str) -> Option<bool> {
    match text {
        text if text.eq_ignore_ascii_case("https") => Some(true),
        text if text.eq_ignore_ascii_case("http") => Some(false),
        _ => None,
    }
}

fn host(text: &str) -> Option<String> {
    highwire_proto::is_host(text.as_bytes()).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("::ffff:10.1.0.0/112", "10.1.2.3", "10.2.0.0"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
        ] {
            let network: Network = network.parse().expect(network);
            assert!(network.has(inside.parse().expect(inside)), "{inside}");
            assert!(!network.has(outside.parse().expect(outside)), "{outside}");
        }
        let all: Network = "::/0".parse().expect("everything");
        assert!(all.has("1.2.3.4".parse().expect("an address")));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "a", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(wrong.parse::<Network>(), Err(NotANetwork(wrong.to_string())));
        }
    }
}
