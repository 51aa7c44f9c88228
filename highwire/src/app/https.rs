//! Rules for sites with TLS: redirects of requests without TLS, and HSTS.

use crate::message::dot_segments::has_dot_segment;
use crate::{Response, StatusCode};
use highwire_proto::{Form, Head};
use http::{HeaderValue, header};
use std::time::Duration;

/// Requests below this path are not redirected, because certificate authorities send their challenges without TLS (RFC
/// 8555 section 8.3).
const ACME: &[u8] = b"/.well-known/acme-challenge/";

/// Redirects to https, and HSTS; an argument of [`App::https`](crate::App::https).
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Https};
/// use std::time::Duration;
///
/// let rules = Https::new().redirect(443).hsts(Duration::from_secs(180 * 86_400));
/// let app = || App::new().get("/", || "safe").https(rules.clone());
/// assert_eq!(Client::new(app())?.get("/a").send().header("location"), "https://test/a");
/// assert_eq!(Client::https(app())?.get("/").send().header("strict-transport-security"), "max-age=15552000");
/// // app().listen(":80")?.listen_tls(":443", TlsConfig::new().certificate_files("site.pem", "site.key"))?.run()
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// The rules consider only the connection to this server. Behind a proxy that terminates TLS and connects without TLS,
/// every request counts as one without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Https {
    redirect: Option<u16>,
    hsts: Option<(Duration, bool)>,
}

impl Https {
    /// Creates an empty set of rules.
    pub fn new() -> Https {
        Https::default()
    }

    /// Redirects requests without TLS to the same path and query under `https` at this port, with status 308. The app
    /// serves requests below `/.well-known/acme-challenge/` also without TLS. Requests without a host, CONNECT and
    /// `OPTIONS *` get 400.
    pub fn redirect(mut self, port: u16) -> Https {
        self.redirect = Some(port);
        self
    }

    /// Sends `Strict-Transport-Security` in responses under TLS. Browsers that receive it use only TLS for this host,
    /// for the time `max_age` (RFC 6797).
    pub fn hsts(mut self, max_age: Duration) -> Https {
        self.hsts = Some((max_age, false));
        self
    }

    /// Does the same as [`hsts`](Self::hsts), but for this host and all its subdomains.
    pub fn hsts_with_subdomains(mut self, max_age: Duration) -> Https {
        self.hsts = Some((max_age, true));
        self
    }

    /// Returns true if requests without TLS are redirected.
    pub(crate) fn redirects(&self) -> bool {
        self.redirect.is_some()
    }

    /// Returns the value of `Strict-Transport-Security`, if HSTS is set.
    pub(crate) fn strict_transport_security(&self) -> Option<HeaderValue> {
        let (max_age, with_subdomains) = self.hsts?;
        let suffix = if with_subdomains { "; includeSubDomains" } else { "" };
        HeaderValue::try_from(format!("max-age={}{suffix}", max_age.as_secs())).ok()
    }

    /// Returns the response to a request without TLS, or `None` if the app serves the request.
    pub(crate) fn redirected(&self, head: &Head, window: &[u8]) -> Option<Response> {
        let port = self.redirect?;
        let target = &head.target;
        let is_plain = matches!(target.form, Form::Origin | Form::Absolute);
        let (path, query) = (target.path.of(window), target.query.map(|query| query.of(window)));
        if path.starts_with(ACME) && !has_dot_segment(&path[ACME.len() - 1..], target.encoded) {
            return None;
        }
        let host = without_port(head.authority(window));
        if !is_plain || host.is_empty() {
            return Some(Response::error(StatusCode::BAD_REQUEST, "this is served under https only\n"));
        }
        let mut location = Vec::with_capacity(64);
        location.extend_from_slice(b"https://");
        location.extend_from_slice(host);
        if port != 443 {
            location.extend_from_slice(format!(":{port}").as_bytes());
        }
        location.extend_from_slice(if path.is_empty() { b"/" } else { path });
        if let Some(query) = query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let location = HeaderValue::from_bytes(&location).ok()?;
        let response = Response::error(StatusCode::PERMANENT_REDIRECT, "this is served under https\n");
        Some(response.with_header(header::LOCATION, location))
    }
}

/// Returns the host of an authority. Searches for the port's colon after `]`, because an IPv6 host contains colons, as
/// in `[::1]:80`.
fn without_port(authority: &[u8]) -> &[u8] {
    let from = authority.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    let colon = authority[from..].iter().position(|&byte| byte == b':');
    &authority[..colon.map_or(authority.len(), |colon| from + colon)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_proto::h1::Connection;
    use highwire_proto::{Event, Limits, Role};

    fn redirected(https: &Https, request: &str) -> Option<(u16, Option<String>)> {
        let mut head = Head::default();
        let mut http = Connection::new(Role::Server);
        let received = http.receive(request.as_bytes(), &mut head, &Limits::default()).expect("a request");
        assert!(matches!(received.event, Event::Head(_)), "{request}");
        let response = https.redirected(&head, request.as_bytes())?;
        let location = response.headers().find(|(name, _)| *name == header::LOCATION);
        let location = location.map(|(_, value)| str::from_utf8(value).expect("text").to_string());
        Some((response.status().as_u16(), location))
    }

    #[test]
    fn requests_in_the_clear_are_sent_to_the_same_place() {
        let https = Https::new().redirect(443);
        let elsewhere = Https::new().redirect(8443);
        for (https, request, location) in [
            (&https, "GET /a%20b?c=d HTTP/1.1\r\nHost: x.org\r\n\r\n", "https://x.org/a%20b?c=d"),
            (&https, "POST / HTTP/1.1\r\nHost: x.org:8080\r\n\r\n", "https://x.org/"),
            (&https, "GET http://y.org HTTP/1.1\r\nHost: y.org\r\n\r\n", "https://y.org/"),
            (&elsewhere, "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "https://[::1]:8443/"),
            (&elsewhere, "GET /? HTTP/1.1\r\nHost: [::1]\r\n\r\n", "https://[::1]:8443/?"),
        ] {
            assert_eq!(redirected(https, request), Some((308, Some(location.to_string()))), "{request}");
        }
        assert_eq!(redirected(&https, "GET / HTTP/1.0\r\n\r\n"), Some((400, None)));
        assert_eq!(redirected(&https, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), Some((400, None)));
        for path in ["../../secret", "%2e%2e/%2e%2e/secret", "./x"] {
            let request = format!("GET /.well-known/acme-challenge/{path} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(matches!(redirected(&https, &request), Some((308, Some(_)))), "{path}");
        }
        let acme = "GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!((redirected(&https, acme), redirected(&Https::new(), "GET / HTTP/1.0\r\n\r\n")), (None, None));
    }

    #[test]
    fn browsers_are_told_for_how_long() {
        let value =
            |https: Https| https.strict_transport_security().map(|value| value.to_str().unwrap_or("").to_string());
        assert_eq!(value(Https::new().hsts(Duration::from_secs(60))), Some("max-age=60".to_string()));
        let all = Https::new().hsts_with_subdomains(Duration::from_secs(1));
        assert_eq!(value(all), Some("max-age=1; includeSubDomains".to_string()));
        assert_eq!(value(Https::new()), None);
    }
}
