//! Cookies of requests and responses (RFC 6265, and its successor as far as browsers implement it).
//!
//! A new [`Cookie`] has safe attributes by default: browsers send it only over https, hide it from scripts, and omit it
//! from the requests of other sites, except navigation. It is valid for all paths of the host.

#[cfg(feature = "cookies")]
mod keys;

#[cfg(feature = "cookies")]
pub use keys::{KeyError, Keys, Private, Signed};

use crate::message::media::{hex, is_token};
use crate::message::request::{FromRequest, Request};
use crate::{IntoResponseParts, Response};
use http::{HeaderValue, StatusCode, header};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;

/// The length in bytes up to which browsers must accept a `Set-Cookie` value (RFC 6265 section 6.1). Browsers may
/// silently drop a longer one.
pub const MOST_BYTES: usize = 4096;

/// The requests from other sites with which a browser sends a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SameSite {
    /// None of them.
    Strict,
    /// Only navigation to this site, such as following a link.
    #[default]
    Lax,
    /// All of them. The cookie must be [`secure`](Cookie::secure).
    None,
}

/// A cookie that a response sets.
///
/// By default, the cookie is valid for the whole host (`Path=/`), sent over https only (`Secure`), hidden from scripts
/// (`HttpOnly`), `SameSite=Lax`, and kept until the browser is closed.
///
/// ```
/// use highwire::cookie::{Cookie, CookieError, SameSite};
/// use std::time::Duration;
///
/// let cookie = Cookie::new("theme", "dark blue").max_age(Duration::from_secs(86_400)).http_only(false);
/// assert_eq!(cookie.header()?, "theme=dark%20blue; Path=/; Max-Age=86400; SameSite=Lax; Secure");
/// // A cookie whose name begins with `__Host-` must have the path `/`.
/// let cookie = Cookie::new("__Host-id", "1").path("/shop").same_site(SameSite::Strict);
/// assert_eq!(cookie.header(), Err(CookieError::Unsafe));
/// # Ok::<(), CookieError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    name: Cow<'static, str>,
    value: String,
    path: Cow<'static, str>,
    domain: Option<Cow<'static, str>>,
    max_age: Option<Duration>,
    secure: bool,
    http_only: bool,
    same_site: SameSite,
}

/// The reason why a cookie cannot be sent, which is a mistake in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CookieError {
    /// The name is not a token (RFC 9110 section 5.6.2).
    Name,
    /// The path or the domain has a semicolon, a control character or a character outside ASCII.
    Attribute,
    /// The cookie is not `Secure`, although its name begins with `__Host-` or `__Secure-` or [`SameSite::None`] is set.
    /// Or its name begins with `__Host-`, although the cookie has a domain or a path other than `/`.
    Unsafe,
    /// The value of `Set-Cookie` is longer than [`MOST_BYTES`].
    TooLong,
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CookieError::Name => "a cookie's name is not a token (RFC 9110 section 5.6.2)",
            CookieError::Attribute => "a cookie's path or domain has a semicolon, control or non-ASCII character",
            CookieError::Unsafe => "a __Host-, __Secure- or SameSite=None cookie lacks required attributes",
            CookieError::TooLong => "a cookie with its attributes is longer than 4096 bytes; browsers may drop it",
        })
    }
}

impl std::error::Error for CookieError {}

impl Cookie {
    /// Creates a cookie. Bytes that a cookie's value cannot contain are percent-encoded, and [`Cookies::get`] decodes
    /// them.
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Cookie {
        Cookie {
            name: name.into(),
            value: value.into(),
            path: Cow::Borrowed("/"),
            domain: None,
            max_age: None,
            secure: true,
            http_only: true,
            same_site: SameSite::default(),
        }
    }

    /// Sets how long the browser keeps the cookie (`Max-Age`, in whole seconds).
    #[must_use]
    #[doc(alias = "lasting")]
    pub fn max_age(mut self, lifetime: Duration) -> Cookie {
        self.max_age = Some(lifetime);
        self
    }

    /// Sets the path. The browser sends the cookie with requests for this path and all paths below it.
    #[must_use]
    #[doc(alias = "under")]
    pub fn path(mut self, path: impl Into<Cow<'static, str>>) -> Cookie {
        self.path = path.into();
        self
    }

    /// Makes the cookie valid for a domain and all hosts below it, instead of this host only.
    #[must_use]
    #[doc(alias = "for_domain")]
    pub fn domain(mut self, domain: impl Into<Cow<'static, str>>) -> Cookie {
        self.domain = Some(domain.into());
        self
    }

    /// Sets whether the browser sends the cookie over https only; the default is true.
    #[must_use]
    #[doc(alias = "in_the_clear")]
    pub fn secure(mut self, secure: bool) -> Cookie {
        self.secure = secure;
        self
    }

    /// Sets whether the cookie is hidden from the page's scripts; the default is true.
    #[must_use]
    #[doc(alias = "for_scripts")]
    pub fn http_only(mut self, http_only: bool) -> Cookie {
        self.http_only = http_only;
        self
    }

    /// Sets the requests from other sites with which the browser sends the cookie; the default is [`SameSite::Lax`].
    #[must_use]
    pub fn same_site(mut self, same_site: SameSite) -> Cookie {
        self.same_site = same_site;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value, without percent-encoding.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Replaces the value.
    #[cfg(all(feature = "cookies", feature = "json"))]
    pub(crate) fn with_value(self, value: String) -> Cookie {
        Cookie { value, ..self }
    }

    /// Returns the cookie that makes a client delete this one.
    fn forgotten(self) -> Cookie {
        Cookie { value: String::new(), max_age: Some(Duration::ZERO), ..self }
    }

    /// Returns the value of the `Set-Cookie` field.
    ///
    /// # Errors
    /// Returns an error if the cookie is malformed, or if browsers might not keep it.
    pub fn header(&self) -> Result<HeaderValue, CookieError> {
        if !is_token(&self.name) {
            return Err(CookieError::Name);
        }
        let fits = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b';');
        if !fits(&self.path) || !self.domain.as_deref().is_none_or(fits) {
            return Err(CookieError::Attribute);
        }
        let named =
            |prefix: &str| self.name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        let is_host = self.path == "/" && self.domain.is_none();
        let is_safe = self.secure || !(named("__Secure-") || named("__Host-") || self.same_site == SameSite::None);
        if !is_safe || (named("__Host-") && !is_host) {
            return Err(CookieError::Unsafe);
        }
        let mut text = format!("{}={}; Path={}", self.name, Encoded(&self.value), self.path);
        if let Some(domain) = &self.domain {
            text.push_str("; Domain=");
            text.push_str(domain);
        }
        if let Some(max_age) = self.max_age {
            // Writing to a string cannot fail.
            let _ = write!(text, "; Max-Age={}", max_age.as_secs());
        }
        text.push_str(match self.same_site {
            SameSite::Strict => "; SameSite=Strict",
            SameSite::Lax => "; SameSite=Lax",
            SameSite::None => "; SameSite=None",
        });
        text.push_str(if self.secure { "; Secure" } else { "" });
        text.push_str(if self.http_only { "; HttpOnly" } else { "" });
        if text.len() > MOST_BYTES {
            return Err(CookieError::TooLong);
        }
        HeaderValue::from_str(&text).map_err(|_| CookieError::Attribute)
    }
}

/// Writes a value with percent-encoding of `%` and of the bytes that a cookie cannot contain.
struct Encoded<'v>(&'v str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'%' | b',' | b';' | b'\\' => write!(f, "%{byte:02X}")?,
                b'!'..=b'~' => f.write_char(char::from(byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// Decodes the percent-encoding of a value. Returns the value unchanged if its encoding or the decoded UTF-8 is
/// malformed.
fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains('%') {
        return Cow::Borrowed(value);
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.as_bytes();
    while let Some((&byte, rest)) = bytes.split_first() {
        let encoded = (byte == b'%').then(|| rest.get(..2).and_then(hex));
        match encoded {
            None => plain.push(byte),
            Some(Some(decoded)) => plain.push(decoded),
            Some(None) => return Cow::Borrowed(value),
        }
        bytes = if encoded.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8(plain).map_or(Cow::Borrowed(value), Cow::Owned)
}

/// Returns the names and values in a `Cookie` field, without malformed pairs.
pub(crate) fn parse(field: &str) -> impl Iterator<Item = (&str, &str)> {
    field.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim_ascii(), value.trim_ascii());
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        is_token(name).then_some((name, value))
    })
}

/// The cookies of a request, and the changes that the response makes. This is an extractor; a handler that changes
/// cookies must return it in a tuple before the rest of the response.
///
/// ```
/// use highwire::cookie::{Cookie, Cookies};
/// use highwire::{App, testing::Client};
///
/// let count = |mut cookies: Cookies| {
///     let visits: u32 = cookies.get("visits").and_then(|visits| visits.parse().ok()).unwrap_or_default();
///     cookies.add(Cookie::new("visits", (visits + 1).to_string()));
///     (cookies, format!("visit {}", visits + 1))
/// };
/// let mut client = Client::new(App::new().get("/", count))?;
/// let answer = client.get("/").header("cookie", "theme=dark; visits=6").send();
/// assert_eq!(answer.text(), "visit 7");
/// assert_eq!(answer.header("set-cookie"), "visits=7; Path=/; SameSite=Lax; Secure; HttpOnly");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    sent: String,
    changed: Vec<Cookie>,
}

impl Cookies {
    /// Creates the cookies of a request with this `Cookie` field.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn sent_as(field: &str) -> Cookies {
        Cookies { sent: field.to_string(), changed: Vec::new() }
    }

    /// Returns the value of the first cookie with that name. Browsers send the cookie with the longest path first.
    ///
    /// Bytes that are not UTF-8 are replaced by U+FFFD. Do not trust the value, because a client can send any value, and a
    /// server on another host of the same domain can set a cookie with this name.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        self.all(name).next()
    }

    /// Returns the values of all cookies with that name, in the order of the request.
    pub fn all(&self, name: &str) -> impl Iterator<Item = Cow<'_, str>> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the names and values of all cookies that the client sent, in the order of the request.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        parse(&self.sent).map(|(name, value)| (name, decoded(value)))
    }

    /// Adds a cookie for the client to keep. The cookie replaces an earlier change with the same name, path and domain.
    pub fn add(&mut self, cookie: Cookie) {
        let same =
            |known: &Cookie| known.name == cookie.name && known.path == cookie.path && known.domain == cookie.domain;
        self.changed.retain(|known| !same(known));
        self.changed.push(cookie);
    }

    /// Makes the client delete the cookie with the same name, path and domain as `cookie`.
    pub fn remove(&mut self, cookie: Cookie) {
        self.add(cookie.forgotten());
    }

    /// Adds the changes to a response. If a cookie cannot be sent, logs the error and returns a response with status
    /// 500.
    pub(crate) fn put_into(&self, mut response: Response) -> Result<Response, Response> {
        for cookie in &self.changed {
            match cookie.header() {
                Ok(value) => response.add_header(header::SET_COOKIE, value),
                Err(error) => {
                    highwire_engine::log!(Mistake, error, %error, name = cookie.name(), "cannot send a cookie that a handler has set");
                    return Err(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"));
                }
            }
        }
        Ok(response)
    }
}

impl FromRequest for Cookies {
    fn from_request(request: &mut Request<'_>) -> Result<Cookies, Response> {
        let mut sent = String::new();
        for (_, value) in request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("cookie")) {
            sent.push_str(if sent.is_empty() { "" } else { "; " });
            sent.push_str(&String::from_utf8_lossy(value));
        }
        Ok(Cookies { sent, changed: Vec::new() })
    }
}

impl IntoResponseParts for Cookies {
    fn add_to(self, response: Response) -> Result<Response, Response> {
        self.put_into(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IntoResponse;

    #[test]
    fn what_clients_send() {
        for (sent, expected) in [
            ("", &[][..]),
            ("a=b", &[("a", "b")]),
            ("a=b; c=d;e=f", &[("a", "b"), ("c", "d"), ("e", "f")]),
            ("a=; b", &[("a", "")]),
            ("a=b=c; \"d\"=e; =f; g h=i", &[("a", "b=c")]),
            ("a=\"b c\"; d=\"; e=\"\"", &[("a", "b c"), ("d", "\""), ("e", "")]),
            (
                "a=%41%c3%a9; b=%4; c=%ff; d=100%; e=%%41",
                &[("a", "A\u{e9}"), ("b", "%4"), ("c", "%ff"), ("d", "100%"), ("e", "%%41")],
            ),
            ("a=1; a=2", &[("a", "1"), ("a", "2")]),
        ] {
            let cookies = Cookies::sent_as(sent);
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| (name, value.into_owned())).collect();
            let expected: Vec<_> = expected.iter().map(|&(name, value)| (name, value.to_string())).collect();
            assert_eq!(pairs, expected, "{sent}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_harm_no_other_cookie() {
        let all = |cookies: Cookies| {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            pairs.join("; ")
        };
        let mut client = crate::testing::Client::new(crate::App::new().get("/", all)).expect("a client");
        for (sent, expected) in [
            (&b"id=1; city=Z\xfcrich; z=2"[..], "id=1; city=Z\u{fffd}rich; z=2"),
            (b"id=1; city=\xe2\x82; z=2", "id=1; city=\u{fffd}; z=2"),
            (b"id=1; c\xfc=1; z=2", "id=1; z=2"),
        ] {
            let answer = client.get("/").header("cookie", sent).header("cookie", "last=3").send();
            assert_eq!(answer.text(), format!("{expected}; last=3"));
        }
    }

    #[test]
    fn what_they_are_asked_to_keep() {
        let cookie = || Cookie::new("a", "b");
        for (cookie, expected) in [
            (cookie(), Ok("a=b; Path=/; SameSite=Lax; Secure; HttpOnly")),
            (
                Cookie::new("a", "x;y,\"z\\ \u{e9}%\n"),
                Ok("a=x%3By%2C%22z%5C%20%C3%A9%25%0A; Path=/; SameSite=Lax; Secure; HttpOnly"),
            ),
            (
                cookie().path("/x").domain("example.org").max_age(Duration::from_secs(60)).same_site(SameSite::Strict),
                Ok("a=b; Path=/x; Domain=example.org; Max-Age=60; SameSite=Strict; Secure; HttpOnly"),
            ),
            (cookie().secure(false).http_only(false), Ok("a=b; Path=/; SameSite=Lax")),
            (cookie().same_site(SameSite::None), Ok("a=b; Path=/; SameSite=None; Secure; HttpOnly")),
            (cookie().forgotten(), Ok("a=; Path=/; Max-Age=0; SameSite=Lax; Secure; HttpOnly")),
            (cookie().same_site(SameSite::None).secure(false), Err(CookieError::Unsafe)),
            (Cookie::new("a b", ""), Err(CookieError::Name)),
            (Cookie::new("", ""), Err(CookieError::Name)),
            (cookie().path("/; Domain=example.org"), Err(CookieError::Attribute)),
            (cookie().domain("example.org\r\nx: y"), Err(CookieError::Attribute)),
            (Cookie::new("__Host-a", "b"), Ok("__Host-a=b; Path=/; SameSite=Lax; Secure; HttpOnly")),
            (Cookie::new("__Host-a", "b").path("/x"), Err(CookieError::Unsafe)),
            (Cookie::new("__host-a", "b").domain("example.org"), Err(CookieError::Unsafe)),
            (Cookie::new("__Secure-a", "b").secure(false), Err(CookieError::Unsafe)),
            (Cookie::new("a", "b".repeat(MOST_BYTES)), Err(CookieError::TooLong)),
        ] {
            let header = cookie.header();
            assert_eq!(
                header.as_ref().map(|value| value.to_str().expect("text")),
                expected.as_ref().copied(),
                "{cookie:?}"
            );
        }
    }

    #[test]
    fn the_last_change_stays() {
        let mut cookies = Cookies::default();
        cookies.add(Cookie::new("a", "1"));
        cookies.add(Cookie::new("a", "2").path("/x"));
        cookies.remove(Cookie::new("a", "3"));
        let mut response = (cookies, "").into_response();
        let values: Vec<_> = response.own_headers().iter().map(|(_, value)| value.to_str().expect("text")).collect();
        let expected =
            ["a=2; Path=/x; SameSite=Lax; Secure; HttpOnly", "a=; Path=/; Max-Age=0; SameSite=Lax; Secure; HttpOnly"];
        assert_eq!(values, expected);
    }

    #[test]
    fn a_cookie_that_cannot_be_sent_is_no_answer() {
        let mut cookies = Cookies::default();
        cookies.add(Cookie::new("a\r\n", "1"));
        assert_eq!((cookies, "").into_response().status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
