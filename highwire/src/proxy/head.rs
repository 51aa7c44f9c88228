//! The head of a request on its way to an upstream, and of a response on its way back.

use crate::client::is_idempotent;
use crate::client::url::Url;
use crate::message::request::{FromRequest, text};
use crate::middleware::{REQUEST_ID, RequestId};
use crate::{BodyUse, InterimResponses, Peer, Request, Response, StatusCode};
use bytes::Bytes;
use highwire_engine::OnDisconnect;
use highwire_engine::client::Answer;
use highwire_io::{SocketId, random};
use highwire_proto::ws::handshake;
use highwire_proto::{Head, Length};
use http::{HeaderName, HeaderValue, Method, header};
use std::net::IpAddr;

/// How upstreams learn the client's address, scheme and host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`, `-Proto` and `-Host` in place of those that the client has sent, which it may have forged. This
    /// is right for the first proxy.
    #[default]
    Replace,
    /// The client's address behind those in `X-Forwarded-For`; the client's `-Proto` and `-Host` stay. This is right
    /// behind another proxy that is trusted.
    Append,
    /// `Forwarded` (RFC 7239) in place of all these fields.
    Standard,
    /// None of these fields.
    Off,
}

/// A request that is to be passed on.
pub(super) struct Incoming {
    pub(super) method: Method,
    is_secure: bool,
    peer: Option<IpAddr>,
    /// The bytes of the head, of which the values are parts.
    window: Bytes,
    head: Head,
    pub(super) length: Length,
    /// The protocols that the request proposes.
    pub(super) upgrade: Option<HeaderValue>,
    version: http::Version,
    /// The way to pass interim responses on; `None` to a client of HTTP/1.0, which knows none.
    interims: Option<InterimResponses>,
    /// The connection of the client, if it carries several requests at the same time.
    connection: Option<SocketId>,
    /// One less than the value of Max-Forwards of OPTIONS and TRACE.
    forwards: Option<u32>,
    /// The identifier that this server has given the request.
    request_id: Option<HeaderValue>,
}

impl FromRequest for Incoming {
    const BODY: BodyUse = BodyUse::None;

    fn from_request(request: &mut Request<'_>) -> Result<Incoming, Response> {
        if request.method() == "CONNECT" && request.head.protocol.is_empty() {
            return Err(Response::error(StatusCode::METHOD_NOT_ALLOWED, "this proxy makes no tunnels\n"));
        }
        let is_connect = !request.head.protocol.is_empty();
        let method = if is_connect { Ok(Method::GET) } else { Method::from_bytes(request.method().as_bytes()) };
        let method = method.map_err(|_| Response::error(StatusCode::BAD_REQUEST, "the method is invalid\n"))?;
        let proposed = match (is_connect, request.head.upgrade) {
            (true, _) => Some(request.head.protocol.of(request.window).to_vec()),
            (false, true) => {
                let named = request.head.named(request.window, b"upgrade").collect::<Vec<_>>();
                Some(named.join(&b", "[..]))
            }
            (false, false) => None,
        };
        let peer = match request.peer() {
            Peer::Internet(address, _) => Some(address),
            Peer::Local => None,
        };
        // The upstream should stop working on the request as soon as the client has left.
        request.hooks.disconnect().set(OnDisconnect::CancelAtOnce);
        let interims = match request.version() {
            http::Version::HTTP_10 => None,
            _ => Some(InterimResponses::from_request(request)?),
        };
        let request_id = request.extension::<RequestId>().map(|id| id.0.clone());
        Ok(Incoming {
            method,
            is_secure: request.is_secure(),
            peer,
            window: Bytes::copy_from_slice(request.window),
            head: request.head.to_kept(),
            // The bytes of an extended CONNECT are not a body.
            length: if is_connect { Length::Empty } else { request.head.length },
            upgrade: proposed.and_then(|proposed| HeaderValue::from_bytes(&proposed).ok()),
            version: request.version(),
            interims,
            connection: request.connection().filter(|_| request.version() == http::Version::HTTP_2),
            forwards: None,
            request_id,
        })
    }
}

impl Incoming {
    /// Keeps only the proposed protocols that are allowed. Returns false if the request needs another one.
    pub(super) fn limit_upgrade(&mut self, allowed: &[String]) -> bool {
        let Some(proposed) = self.upgrade.take() else { return true };
        let proposed = String::from_utf8_lossy(proposed.as_bytes()).into_owned();
        let is_allowed = |name: &&str| allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
        let kept = proposed.split(',').map(str::trim).filter(is_allowed).collect::<Vec<_>>().join(", ");
        self.upgrade = HeaderValue::try_from(kept).ok().filter(|kept| !kept.is_empty());
        // Without the protocol, an HTTP/1.1 request is an ordinary one (RFC 9110 section 7.8).
        self.upgrade.is_some() || self.head.protocol.is_empty()
    }

    /// Returns true if the request has proposed this protocol.
    pub(super) fn has_proposed(&self, protocol: &[u8]) -> bool {
        let proposed = self.upgrade.iter().flat_map(|proposed| proposed.as_bytes().split(|&byte| byte == b','));
        proposed.map(<[u8]>::trim_ascii).any(|proposed| proposed.eq_ignore_ascii_case(protocol.trim_ascii()))
    }

    /// Returns an error if an upstream could read the path as another one.
    pub(super) fn check_path(&self, allows_unusual: bool) -> Result<(), &'static str> {
        check(self.whole_path(), allows_unusual)
    }

    /// Returns the path of the request.
    pub(super) fn whole_path(&self) -> &str {
        text(self.head.target.path.of(&self.window))
    }

    /// Counts the passing on in Max-Forwards of OPTIONS and TRACE (RFC 9110 section 7.6.2). Returns the answer to a request
    /// that must not be passed on.
    pub(super) fn forward_once(&mut self) -> Option<Response> {
        if self.method != Method::OPTIONS && self.method != Method::TRACE {
            return None;
        }
        // Digits only, and no sign.
        let value = self.header("max-forwards").filter(|value| value.iter().all(u8::is_ascii_digit));
        let forwards = value.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u32>().ok());
        self.forwards = Some(match forwards? {
            0 if self.method == Method::OPTIONS => return Some(Response::new(StatusCode::NO_CONTENT)),
            0 => return Some(Response::error(StatusCode::METHOD_NOT_ALLOWED, "this proxy answers no TRACE\n")),
            forwards => forwards - 1,
        });
        None
    }

    /// Returns the connection of the client, if it carries several requests at the same time.
    pub(super) fn shared_connection(&self) -> Option<SocketId> {
        self.connection
    }

    /// Takes the way to pass interim responses on.
    pub(super) fn take_interims(&mut self) -> Option<InterimResponses> {
        self.interims.take()
    }

    /// Returns the path for an upstream, without the prefix, or the reason why that is not possible.
    pub(super) fn path(&self, prefix: &str) -> Result<&str, &'static str> {
        let path = text(self.head.target.path.of(&self.window));
        match path.strip_prefix(prefix) {
            _ if path == "*" => Ok(path),
            Some("") => Ok("/"),
            Some(rest) if rest.starts_with('/') => Ok(rest),
            // The route has matched, so the prefix is written in another way.
            _ => Err("the beginning of the path is encoded in an unusual way"),
        }
    }

    /// Returns the query without the question mark.
    pub(super) fn query(&self) -> Option<&str> {
        self.head.target.query.map(|query| text(query.of(&self.window)))
    }

    /// Returns the host that the client has asked for, if it has named one.
    pub(super) fn host(&self) -> Option<&str> {
        Some(text(self.head.authority(&self.window))).filter(|host| !host.is_empty())
    }

    /// Returns the address of the client.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Returns the value of the first field of this name.
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.field(&self.window, name.as_bytes())
    }

    /// Returns true if the effect of several equal requests is that of one (RFC 9110 section 9.2.2).
    pub(super) fn is_idempotent(&self) -> bool {
        is_idempotent(&self.method)
    }

    /// Returns true if the request opens a WebSocket over HTTP/2 (RFC 8441).
    pub(super) fn is_http2_websocket(&self) -> bool {
        self.head.protocol.of(&self.window).eq_ignore_ascii_case(b"websocket")
    }

    /// Returns true if the request came over HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.version == http::Version::HTTP_2
    }

    /// Returns the fields for an upstream.
    pub(super) fn fields(&self, forwarding: Forwarding, keeps_underscores: bool) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields = Vec::with_capacity(self.head.fields.len() + 4);
        let named = connection_names(&self.head, &self.window);
        let mut before = None;
        for (sent, value) in each(&self.head, &self.window) {
            // CGI programs read an underscore as a hyphen.
            let has_underscore = sent.as_str().contains('_');
            let name = match has_underscore {
                true => HeaderName::try_from(sent.as_str().replace('_', "-")).unwrap_or_else(|_| sent.clone()),
                false => sent.clone(),
            };
            let is_forwarded = is_forwarded(&name);
            if name == header::TE {
                if value.as_bytes().eq_ignore_ascii_case(b"trailers") {
                    fields.push((name, value));
                }
            } else if let Some(forwards) = self.forwards.filter(|_| name == header::MAX_FORWARDS) {
                fields.push((name, HeaderValue::from(forwards)));
            } else if is_of_connection(&name) || named.iter().any(|other| *other == name.as_str()) {
                // It is for this connection only.
            } else if name == REQUEST_ID && self.request_id.is_some() {
                // Ours is added below.
            } else if name == header::HOST || name == header::EXPECT || is_of_proxy(name.as_str()) {
                // It is for this server. CGI programs read `Proxy` as the address of a proxy for their own requests.
            } else if has_underscore && (!keeps_underscores || is_forwarded) {
                // A CGI program could read it as another field.
            } else if is_forwarded && forwarding == Forwarding::Append && name == "x-forwarded-for" {
                before = Some(match before {
                    None => value,
                    Some(before) => joined(&before, value.as_bytes()),
                });
            } else if !is_forwarded || (forwarding == Forwarding::Append && name != "forwarded") {
                fields.push((sent, value));
            }
        }
        self.forward(forwarding, before, &mut fields);
        let is_websocket = self.upgrade.as_ref().is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"));
        if is_websocket && self.is_http2() && self.header("sec-websocket-key").is_none() {
            // Over HTTP/2 there is no key, and the upstream needs one (RFC 8441 section 5).
            let random = u128::from(random::system()) << 64 | u128::from(random::system());
            if let Ok(key) = HeaderValue::from_bytes(&handshake::key(random.to_be_bytes())) {
                fields.push((header::SEC_WEBSOCKET_KEY, key));
            }
        }
        let version = match self.version {
            http::Version::HTTP_2 => "2 highwire",
            http::Version::HTTP_10 => "1.0 highwire",
            _ => "1.1 highwire",
        };
        fields.push((header::VIA, HeaderValue::from_static(version)));
        fields.extend(self.request_id.clone().map(|id| (REQUEST_ID, id)));
        fields
    }

    /// Adds the fields about the client.
    fn forward(
        &self,
        forwarding: Forwarding,
        before: Option<HeaderValue>,
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) {
        let scheme = if self.is_secure { "https" } else { "http" };
        let authority = self.window.slice_ref(self.head.authority(&self.window));
        let host = HeaderValue::from_maybe_shared(authority).ok().filter(|host| !host.is_empty());
        match forwarding {
            Forwarding::Off => {}
            Forwarding::Standard => {
                let address = match self.peer {
                    Some(IpAddr::V6(peer)) => format!("\"[{peer}]\""),
                    Some(IpAddr::V4(peer)) => peer.to_string(),
                    None => "unknown".to_string(),
                };
                let mut value = format!("for={address};proto={scheme}");
                if let Some(host) = self.host() {
                    value += &format!(";host=\"{host}\"");
                }
                if let Ok(value) = HeaderValue::try_from(value) {
                    fields.push((header::FORWARDED, value));
                }
            }
            Forwarding::Replace | Forwarding::Append => {
                let peer = self.peer.map_or(HeaderValue::from_static("unknown"), address);
                let addresses = match before {
                    Some(before) => joined(&before, peer.as_bytes()),
                    None => peer,
                };
                fields.push((HeaderName::from_static("x-forwarded-for"), addresses));
                let lacks =
                    |fields: &[(HeaderName, HeaderValue)], name: &str| !fields.iter().any(|(known, _)| known == name);
                if lacks(fields, "x-forwarded-proto") {
                    fields.push((HeaderName::from_static("x-forwarded-proto"), HeaderValue::from_static(scheme)));
                }
                if lacks(fields, "x-forwarded-host")
                    && let Some(host) = host
                {
                    fields.push((HeaderName::from_static("x-forwarded-host"), host));
                }
            }
        }
    }
}

/// Returns an address as a value. That of IPv4 is written by hand, because the formatting of the standard library is a
/// twentieth of the cost of a request (measured).
fn address(peer: IpAddr) -> HeaderValue {
    let value = match peer {
        IpAddr::V4(peer) => {
            let (mut text, mut length) = ([b'.'; "255.255.255.255.".len()], 0);
            for byte in peer.octets() {
                let digits = [byte / 100, byte / 10 % 10, byte % 10].map(|digit| b'0' + digit);
                let digits = &digits[if byte >= 100 { 0 } else { 1 + usize::from(byte < 10) }..];
                text[length..length + digits.len()].copy_from_slice(digits);
                length += digits.len() + 1;
            }
            HeaderValue::from_maybe_shared(Bytes::copy_from_slice(&text[..length - 1]))
        }
        IpAddr::V6(_) => HeaderValue::from_maybe_shared(Bytes::from(peer.to_string())),
    };
    value.unwrap_or(HeaderValue::from_static("unknown"))
}

/// Returns two values as a list.
fn joined(before: &HeaderValue, after: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(&[before.as_bytes(), b", ", after].concat()).unwrap_or_else(|_| before.clone())
}

/// Returns the fields of a response for the client. `upstream` is the URL of the upstream, and `prefix` what was removed from
/// the path of the request.
pub(super) fn response_fields(answer: &Answer, upstream: &Url, prefix: &str) -> Vec<(HeaderName, HeaderValue)> {
    let named = connection_names(&answer.head, &answer.window);
    // A 426 must name the protocol that it requires (RFC 9110 section 15.5.22).
    let keeps_upgrade = answer.head.status == 426;
    let passes = |(name, _): &(HeaderName, HeaderValue)| {
        (keeps_upgrade && *name == header::UPGRADE)
            || (!is_of_connection(name) && name != header::TE && !named.iter().any(|other| *other == name.as_str()))
    };
    let mut fields = Vec::with_capacity(answer.head.fields.len());
    for (name, value) in each(&answer.head, &answer.window).filter(passes) {
        let is_location = name == header::LOCATION || name == header::CONTENT_LOCATION;
        let here = if is_location { location(&value, upstream, prefix) } else { None };
        fields.push((name, here.unwrap_or(value)));
    }
    fields
}

/// Returns the URL of an upstream as a path that the client can reach, if it is one of the upstream's own address.
fn location(value: &HeaderValue, upstream: &Url, prefix: &str) -> Option<HeaderValue> {
    let rest = value.to_str().ok()?.strip_prefix(upstream.origin())?;
    let path = match rest.as_bytes().first() {
        None => "/",
        Some(b'/') => rest,
        Some(b'?' | b'#') => return HeaderValue::try_from(format!("{prefix}/{rest}")).ok(),
        // The address only begins as the upstream's does.
        Some(_) => return None,
    };
    let path = path.strip_prefix(upstream.target().trim_end_matches('/')).unwrap_or(path);
    // Two slashes would begin a host.
    (!path.starts_with("//") || !prefix.is_empty()).then(|| HeaderValue::try_from(format!("{prefix}{path}")).ok())?
}

/// Returns true if the lengths that a response announces are valid and agree. A response without a body may announce
/// them, and they are then passed on.
pub(super) fn has_valid_length(answer: &Answer) -> bool {
    let mut known = None;
    answer.head.named(&answer.window, b"content-length").all(|value| {
        let is_number = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
        is_number && *known.get_or_insert(value) == value
    })
}

/// Returns the fields of a head. The values share the bytes of the window.
fn each<'h>(head: &'h Head, window: &'h Bytes) -> impl Iterator<Item = (HeaderName, HeaderValue)> + 'h {
    head.fields.iter().filter_map(|field| {
        let name = HeaderName::from_bytes(field.name.of(window)).ok()?;
        let value = window.slice_ref(field.value.of(window));
        Some((name, HeaderValue::from_maybe_shared(value).ok()?))
    })
}

/// Returns the names that the Connection fields list, in lower case.
fn connection_names(head: &Head, window: &[u8]) -> Vec<String> {
    let values = head.named(window, b"connection").flat_map(|value| value.split(|&byte| byte == b','));
    values.map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase()).collect()
}

/// Returns true for the header fields that concern one connection (RFC 9110 section 7.6.1). A proxy does not pass them on.
pub fn is_of_connection(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::CONTENT_LENGTH
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings")
}

/// Returns true for the fields between a client and its proxy.
fn is_of_proxy(name: &str) -> bool {
    name == "proxy" || name.starts_with("proxy-")
}

fn is_forwarded(name: &HeaderName) -> bool {
    *name == header::FORWARDED || name.as_str().starts_with("x-forwarded-") || name == "x-real-ip"
}

/// Returns an error for a path that an upstream could read as another one.
fn check(path: &str, allows_unusual: bool) -> Result<(), &'static str> {
    let bytes = path.as_bytes();
    if path.contains("//") && !allows_unusual {
        return Err("the path has an empty segment");
    }
    if !bytes.contains(&b'%') && !bytes.contains(&b'.') && !bytes.contains(&b'\\') {
        return Ok(());
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        let pair = behind.get(..2).filter(|_| first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                rest = &behind[2..];
            }
            None => {
                decoded.push(first);
                rest = behind;
            }
        }
    }
    if decoded.iter().any(|byte| matches!(byte, 0..=0x1f | 0x7f)) {
        return Err("the path has a control byte");
    }
    if decoded.contains(&b'\\') && !allows_unusual {
        return Err("the path has a backslash");
    }
    if decoded.windows(2).any(|pair| pair == b"//") && !allows_unusual {
        return Err("the path has an empty segment");
    }
    if decoded.split(|&byte| byte == b'/' || byte == b'\\').any(|segment| {
        let segment = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        segment == b"." || segment == b".."
    }) {
        return Err("the path has dot segments");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_writes_them() {
        for text in ["0.0.0.0", "1.20.255.9", "10.99.100.101", "255.255.255.255", "::1", "2001:db8::5"] {
            assert_eq!(address(text.parse().expect(text)), text);
        }
    }

    #[test]
    fn unusual_paths_pass_if_they_are_allowed() {
        for (path, is_fine) in [
            ("/a//b", true),
            ("/a%5cb", true),
            ("/a/%2fb", true),
            ("/a//../b", false),
            ("/a\\..\\b", false),
            ("/a%00b", false),
        ] {
            assert_eq!(check(path, true).is_ok(), is_fine, "{path}");
        }
    }

    #[test]
    fn a_location_of_the_upstream_is_one_here() {
        for (upstream, prefix, value, expected) in [
            ("http://127.0.0.1:9000", "", "http://127.0.0.1:9000/login?x", Some("/login?x")),
            ("http://127.0.0.1:9000", "/api", "http://127.0.0.1:9000/login", Some("/api/login")),
            ("http://127.0.0.1:9000/base", "/api", "http://127.0.0.1:9000/base/login", Some("/api/login")),
            ("http://127.0.0.1:9000", "", "http://127.0.0.1:9000", Some("/")),
            ("http://127.0.0.1:9000", "", "http://127.0.0.1:9000?a", Some("/?a")),
            ("http://127.0.0.1:9000", "", "http://127.0.0.1:90001/", None),
            ("http://127.0.0.1:9000", "", "http://127.0.0.1:9000//evil.example/", None),
            ("http://127.0.0.1:9000", "", "https://127.0.0.1:9000/", None),
            ("http://127.0.0.1:9000", "", "/login", None),
        ] {
            let (url, _) = crate::client::url::parse(upstream).expect("a URL");
            let here = location(&HeaderValue::from_static(value), &url, prefix);
            assert_eq!(here.as_ref().and_then(|here| here.to_str().ok()), expected, "{value}");
        }
    }

    #[test]
    fn paths_that_two_servers_could_read_differently_are_refused() {
        for (path, is_fine) in [
            ("/", true),
            ("/a/b.c", true),
            ("/a/...", true),
            ("/a%20b", true),
            ("/a%2Fb", true),
            ("/a/.hidden", true),
            ("/a%2F%2fb", false),
            ("/a/%2Fb", false),
            ("/a/..%5cb", false),
            ("//a", false),
            ("/a//b", false),
            ("/a/..", false),
            ("/a/../b", false),
            ("/./a", false),
            ("/%2e%2E/a", false),
            ("/.%2e/a", false),
            ("/a%2f..%2fb", false),
            ("/a/..;x=y/b", false),
            ("/a\\b", false),
            ("/a%5cb", false),
            ("/a%00b", false),
            ("/a%0d%0ab", false),
        ] {
            assert_eq!(check(path, false).is_ok(), is_fine, "{path}");
        }
    }
}
