//! Trusted proxies: the client's address, scheme and host from forwarding fields (RFC 7239, and `X-Forwarded-*`).

use super::Middleware;
use super::limit::{address_of, peer_address};
use crate::message::request::FromRequest;
use crate::{Request, Response};
use highwire_engine::Peer;
use highwire_proto::Head;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// How many entries of a list of forwarded addresses are considered at most, starting with the last entry. If all of
/// these are trusted proxies, the entry considered last counts as the client.
pub const FORWARDED_STEPS: usize = 32;

/// Takes the client's address, scheme and requested host from the forwarding fields of trusted proxies. Handlers and
/// middleware inside of this one get them as [`ClientAddress`] and [`Forwarded`].
///
/// It reads `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`, or instead of them `Forwarded`
/// ([`by_forwarded`](Self::by_forwarded)). It never reads both kinds, because most proxies write one kind and pass on
/// the other as the client sent it. It goes through the entries from the last one backwards and skips those that are
/// trusted proxies; the first other entry is the client. If the request's peer is not a trusted proxy, it ignores the
/// request's fields.
///
/// Configure the proxy to set or remove each field that is read, including the fields for scheme and host. A client can
/// forge any field that the proxy passes on unchanged.
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

/// A network: an address in IPv6 form, and the number of its leading bits that all addresses of the network share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: u128,
    bits: u32,
}

/// The error for a text that is neither a network nor an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotANetwork(String);

impl fmt::Display for NotANetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a network; examples are 192.0.2.0/24, 2001:db8::/32 and 192.0.2.1", self.0)
    }
}

impl std::error::Error for NotANetwork {}

/// Converts an address into IPv6 form. An IPv4 address is mapped (RFC 4291 section 2.5.5.2), so that it equals its
/// mapped spelling.
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
    /// Creates the middleware, which trusts proxies in these networks and at these single addresses.
    ///
    /// # Errors
    /// Returns an error with the first text that is neither a network nor an address.
    pub fn new<'t>(networks: impl IntoIterator<Item = &'t str>) -> Result<TrustedProxies, NotANetwork> {
        let networks = networks.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(TrustedProxies { networks, local: false, standard: false })
    }

    /// Also trusts all peers on unix sockets.
    pub fn and_local(mut self) -> TrustedProxies {
        self.local = true;
        self
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-*`. Use it if the proxies write that field.
    pub fn by_forwarded(mut self) -> TrustedProxies {
        self.standard = true;
        self
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.has(address))
    }

    /// Returns the client as the proxies report it, if the peer is trusted; otherwise only the peer's address. It is for services
    /// of the engine that are no [`App`](crate::App).
    #[doc(hidden)]
    #[must_use]
    pub fn client_of(&self, head: &Head, window: &[u8], peer: Peer) -> Forwarded {
        let fields = || head.fields.iter().map(|field| (field.name.of(window), field.value.of(window)));
        self.forwarded(address_of(peer), |name| joined(fields(), name))
    }

    /// Returns the client as the proxies report it, if the peer is trusted; otherwise only the peer's address. `values` returns
    /// the joined values of all fields with a name.
    fn forwarded(&self, peer: Option<IpAddr>, values: impl Fn(&str) -> String) -> Forwarded {
        let mut known = Forwarded { address: peer, ..Forwarded::default() };
        if !peer.map_or(self.local, |peer| self.trusts(peer)) {
            return known;
        }
        let mut steps = if self.standard { standard(&values) } else { traditional(peer, &values) };
        if steps.is_empty() {
            // Without entries, the proxy itself counts as the client.
            steps.push(known.clone());
        }
        for step in steps.into_iter().rev().take(FORWARDED_STEPS) {
            // Each entry describes the peer of one proxy: the peer's address, and the scheme and host of the peer's
            // request.
            known = Forwarded { address: step.address, https: step.https, host: step.host };
            match known.address {
                Some(address) if self.trusts(address) => {}
                _ => break,
            }
        }
        known
    }
}

/// The client as trusted proxies report it: an extractor. If the middleware [`TrustedProxies`] is missing or does not
/// trust the socket's peer, only the peer's address is known.
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
    /// The client's address; `None` if it is unknown, such as if a proxy hides it or the peer is on a unix socket.
    pub address: Option<IpAddr>,
    /// True if the client used https, false if it used http; `None` if the scheme is unknown.
    pub https: Option<bool>,
    /// The authority that the client requested; `None` if it is unknown.
    pub host: Option<String>,
}

/// The client's address: an extractor. Responds with 400 if the address is unknown, such as on a unix socket without a
/// trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromRequest for Forwarded {
    fn from_request(request: &mut Request<'_>) -> Result<Forwarded, Response> {
        let known = request.extension::<Forwarded>().cloned();
        Ok(known.unwrap_or_else(|| Forwarded { address: peer_address(request), ..Forwarded::default() }))
    }
}

impl FromRequest for ClientAddress {
    fn from_request(request: &mut Request<'_>) -> Result<ClientAddress, Response> {
        let text = "the client's address is not known\n";
        client_address(request).map(ClientAddress).ok_or_else(|| Response::error(crate::StatusCode::BAD_REQUEST, text))
    }
}

/// Returns the address of the client, if it is known.
pub(super) fn client_address(request: &mut Request<'_>) -> Option<IpAddr> {
    match request.extension::<Forwarded>() {
        Some(known) => known.address,
        None => peer_address(request),
    }
}

impl Middleware for TrustedProxies {
    type State = ();

    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        let known = self.forwarded(peer_address(request), |name| values(request, name));
        request.extensions().insert(known);
        Ok(())
    }

    fn after(&self, (): (), _: &mut Response) {}
}

fn values(request: &Request<'_>, name: &str) -> String {
    joined(request.headers().map(|(known, value)| (known.as_bytes(), value)), name)
}

/// Joins the values of all fields with this name, in order and with commas.
fn joined<'r>(fields: impl Iterator<Item = (&'r [u8], &'r [u8])>, name: &str) -> String {
    let values = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
    let values: Vec<String> = values.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect();
    values.join(",")
}

/// Returns the entries of the `Forwarded` fields.
fn standard(values: impl Fn(&str) -> String) -> Vec<Forwarded> {
    let text = values("forwarded");
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

/// Returns the entries of the `X-Forwarded-*` fields. If the list of schemes or hosts is as long as the list of
/// addresses, its entries belong to the addresses in the same order. Otherwise, some proxy did not append to one of the
/// two lists. Of the schemes or hosts, only the last entry then has a known author, the nearest proxy, so that entry is
/// used for every address.
fn traditional(peer: Option<IpAddr>, values: impl Fn(&str) -> String) -> Vec<Forwarded> {
    let (addresses, schemes, hosts) =
        (values("x-forwarded-for"), values("x-forwarded-proto"), values("x-forwarded-host"));
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
        // Without addresses, the proxy itself counts as the client.
        steps[0].address = peer;
    }
    steps
}

/// Splits a text at a separator outside of quotes and drops empty parts. Reads from the end, because the nearest proxy
/// has written the last part, and a quote that an earlier sender left open must not hide that part.
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

/// Returns true if a text ends with a backslash that is not escaped itself, and so escapes the next character.
fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Returns the entries of a list that is separated by commas and has no quoted entries.
fn entries(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect()
}

/// Parses an address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. An
/// IPv4-mapped IPv6 address becomes IPv4, because all mapped addresses share one /64 and would count as one caller.
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
        // Some proxies name the scheme of a WebSocket.
        text if text.eq_ignore_ascii_case("https") || text.eq_ignore_ascii_case("wss") => Some(true),
        text if text.eq_ignore_ascii_case("http") || text.eq_ignore_ascii_case("ws") => Some(false),
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
        let all: Network = "::/0".parse().expect("a network");
        assert!(all.has("1.2.3.4".parse().expect("an address")));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "a", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(wrong.parse::<Network>(), Err(NotANetwork(wrong.to_string())));
        }
    }
}
