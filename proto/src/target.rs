//! Parses request targets in all four forms (RFC 9112 section 3.2), and checks the `Host` field's value.

use crate::scan::{self, HOST, QUERY, Scanner, TARGET};
use crate::{Error, Method, Span};

/// The form of a request target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://authority/path?query`
    Absolute,
    /// `host:port`, with CONNECT only
    Authority,
    /// `*`, with OPTIONS only
    Asterisk,
}

/// A request target's form, and the spans of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The form.
    pub form: Form,
    /// The whole target.
    pub whole: Span,
    /// The path as sent, neither decoded nor normalized. Empty in authority and asterisk form, and in absolute form if
    /// no slash follows the authority (the request is then for `/`).
    pub path: Span,
    /// The part after the first `?`, if there is one.
    pub query: Option<Span>,
    /// The authority of an absolute or authority form, or HTTP/2's `:authority`. In absolute form it also replaces the
    /// value of `Host` in the head's fields (RFC 9112 section 3.2.2).
    pub authority: Span,
    /// True if the scheme of an absolute form, or HTTP/2's `:scheme`, is https.
    pub https: bool,
    /// True if the path contains a percent sign, so decoding changes it.
    pub encoded: bool,
}

/// Parses a target that begins at `start` into `target`. Returns the index of the space that ends it, or `None` if the
/// bytes end first. The target is written in place, because returning a struct of this size copies it by loads that do
/// not match the preceding stores, for which the processor waits (measured: 10 ns).
#[inline(always)]
pub(crate) fn parse<S: Scanner>(
    bytes: &[u8],
    start: usize,
    method: Method,
    target: &mut Target,
) -> Result<Option<usize>, Error> {
    let mut encoded = false;
    let mut query_at = None;
    let mut at = start;
    loop {
        at = S::target_end(bytes, at);
        let Some(&byte) = bytes.get(at) else { return Ok(None) };
        match byte {
            b' ' => break,
            b'?' if query_at.is_none() => query_at = Some(at),
            // Browsers send a percent sign in a query as it is (WHATWG URL), and no framing depends on it.
            b'%' if query_at.is_some() => {}
            b'%' => {
                let Some(digits) = bytes.get(at + 1..at + 3) else {
                    let short = bytes.get(at + 1).is_some_and(|digit| !digit.is_ascii_hexdigit());
                    return if short { Err(Error::InvalidPercentEncoding) } else { Ok(None) };
                };
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Error::InvalidPercentEncoding);
                }
                if digits == b"00" {
                    return Err(Error::InvalidTarget);
                }
                encoded = true;
            }
            _ if query_at.is_some() && scan::is(QUERY, byte) => {}
            b'\r' | b'\n' => return Err(Error::InvalidVersion),
            _ => return Err(Error::InvalidTarget),
        }
        at += 1;
    }
    target.whole = Span::new(start, at);
    target.encoded = encoded;
    target.form = Form::Origin;
    target.https = false;
    target.authority = Span::default();
    let path_end = query_at.unwrap_or(at);
    target.query = query_at.map(|query| Span::new(query + 1, at));
    if bytes[start] == b'/' && method != Method::Connect {
        target.path = Span::new(start, path_end);
        return Ok(Some(at));
    }
    target.path = Span::default();
    other_form(bytes, start, path_end, at, method, target)?;
    target.encoded = target.path.of(bytes).contains(&b'%');
    Ok(Some(at))
}

#[cold]
fn other_form(
    bytes: &[u8],
    start: usize,
    path_end: usize,
    end: usize,
    method: Method,
    target: &mut Target,
) -> Result<(), Error> {
    let text = &bytes[start..end];
    if method == Method::Connect {
        if !is_host_and_port(text) {
            return Err(Error::InvalidTarget);
        }
        target.form = Form::Authority;
        target.authority = target.whole;
        return Ok(());
    }
    if text == b"*" {
        if method != Method::Options {
            return Err(Error::InvalidTarget);
        }
        target.form = Form::Asterisk;
        return Ok(());
    }
    let scheme_is = |scheme: &[u8]| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme));
    let scheme = if scheme_is(b"http://") {
        7
    } else if scheme_is(b"https://") {
        target.https = true;
        8
    } else {
        return Err(Error::InvalidTarget);
    };
    let authority = start + scheme;
    let slash = bytes[authority..path_end].iter().position(|&byte| byte == b'/');
    let authority_end = slash.map_or(path_end, |slash| authority + slash);
    // An empty host and user information are errors in an http URI (RFC 9110 sections 4.2.1 and 4.2.4).
    if !is_host(&bytes[authority..authority_end]) {
        return Err(Error::InvalidTarget);
    }
    target.form = Form::Absolute;
    target.authority = Span::new(authority, authority_end);
    target.path = Span::new(authority_end, path_end);
    Ok(())
}

/// Returns true if the bytes are a host and a port, as in the target of CONNECT (RFC 9110 section 9.3.6).
pub(crate) fn is_host_and_port(text: &[u8]) -> bool {
    let Some(port) = text.iter().rposition(|&byte| byte == b':') else { return false };
    let digits = &text[port + 1..];
    port > 0 && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && is_host(text)
}

/// Returns true if the bytes are `uri-host [ ":" port ]` with a non-empty host (RFC 9110 section 7.2, RFC 3986 section
/// 3.2.2). Refuses user information (`@`).
pub fn is_host(bytes: &[u8]) -> bool {
    if bytes.first() == Some(&b'[') {
        let Some(close) = bytes.iter().position(|&byte| byte == b']') else { return false };
        return is_ip_literal(&bytes[1..close]) && is_port(&bytes[close + 1..]);
    }
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            byte if scan::is(HOST, byte) => at += 1,
            b'%' if bytes.len() > at + 2 && bytes[at + 1..at + 3].iter().all(u8::is_ascii_hexdigit) => at += 3,
            b':' => return at > 0 && is_port(&bytes[at..]),
            _ => return false,
        }
    }
    at > 0
}

fn is_port(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        None => true,
        Some((b':', digits)) => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) && port_fits(digits),
        Some(_) => false,
    }
}

fn port_fits(digits: &[u8]) -> bool {
    digits.iter().fold(0u32, |port, digit| port * 10 + u32::from(digit - b'0')) <= 65_535
}

fn is_ip_literal(bytes: &[u8]) -> bool {
    if let Some(b'v' | b'V') = bytes.first() {
        let Some(dot) = bytes.iter().position(|&byte| byte == b'.') else { return false };
        return dot > 1
            && bytes[1..dot].iter().all(u8::is_ascii_hexdigit)
            && dot + 1 < bytes.len()
            && bytes[dot + 1..].iter().all(|&byte| scan::is(HOST, byte) || byte == b':');
    }
    core::str::from_utf8(bytes).is_ok_and(|text| text.parse::<core::net::Ipv6Addr>().is_ok())
}

const _: () = assert!(scan::is(TARGET, b'[') && !scan::is(TARGET, b'?') && !scan::is(TARGET, b'%'));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::naive::Naive;

    fn check(method: Method, text: &str, expected: Result<(Form, &str, Option<&str>, &str), Error>) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(b' ');
        let mut target = Target::default();
        let got = parse::<Naive>(&bytes, 0, method, &mut target).map(|found| {
            let end = found.expect("a space ends the target");
            assert_eq!(end, text.len(), "{text}");
            let words = |span: Span| core::str::from_utf8(span.of(&bytes)).expect("ASCII").to_string();
            (target.form, words(target.path), target.query.map(words), words(target.authority))
        });
        let expected = expected.map(|(form, path, query, authority)| {
            (form, path.to_string(), query.map(str::to_string), authority.to_string())
        });
        assert_eq!(got, expected, "{text}");
    }

    use std::string::ToString;

    #[test]
    fn the_four_forms() {
        use Form::*;
        check(Method::Get, "/", Ok((Origin, "/", None, "")));
        check(Method::Get, "/a/b?c=d?e", Ok((Origin, "/a/b", Some("c=d?e"), "")));
        check(Method::Get, "/a?", Ok((Origin, "/a", Some(""), "")));
        check(Method::Get, "/a%2Fb|c", Ok((Origin, "/a%2Fb|c", None, "")));
        check(Method::Get, "/?a={b}`\\", Ok((Origin, "/", Some("a={b}`\\"), "")));
        check(Method::Get, "http://h:80/p?q", Ok((Absolute, "/p", Some("q"), "h:80")));
        check(Method::Get, "HTTP://h", Ok((Absolute, "", None, "h")));
        check(Method::Get, "http://h?q", Ok((Absolute, "", Some("q"), "h")));
        check(Method::Options, "*", Ok((Asterisk, "", None, "")));
        check(Method::Connect, "h:443", Ok((Authority, "", None, "h:443")));
        check(Method::Connect, "[::1]:443", Ok((Authority, "", None, "[::1]:443")));
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            "a",
            "a/b",
            "*",
            "/\"",
            "/<",
            "/#f",
            "/{",
            "/\\",
            "/\u{e9}",
            "ftp://h/",
            "http:///p",
            "http://u@h/",
            "/%00",
        ] {
            check(Method::Get, text, Err(Error::InvalidTarget));
        }
        for text in ["h", "/p", ":443", "h:", "h:443/p", "http://h/", "u@h:1"] {
            check(Method::Connect, text, Err(Error::InvalidTarget));
        }
        for text in ["/%", "/%4", "/%zz", "/%g1?", "/%1g"] {
            check(Method::Get, text, Err(Error::InvalidPercentEncoding));
        }
    }

    #[test]
    fn hosts() {
        for good in ["a", "a.b", "a:1", "a:", "127.0.0.1:65535", "[::1]", "[::1]:80", "[v1.a:b]", "a%20b", "x_y-z~"] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "", ":80", "a b", "a:b", "a:65536", "a:123456", "u@h", "[::1", "[:::1]", "[]", "a/b", "a,b?", "a%2",
            "[::1]x", "a:80:80", "h\u{e9}",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
