//! URLs of requests: parsed strictly, resolved against each other, and compared by origin.

use super::error::Error;
use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// Parses the URL of a request. A URL with characters that a URI does not have is encoded as browsers do it.
pub(super) fn parse(text: &str) -> Result<Uri, Error> {
    // `http` parses URIs only, but fast. Most URLs are URIs whose path has no dot segments.
    let is_simple = text.is_ascii() && !text.contains("/.") && !text.contains(['\\', ' ', '\t', '#']);
    let uri = match text.parse::<Uri>() {
        Ok(uri) if is_simple && uri.authority().is_some() => uri,
        _ => {
            let url = url::Url::parse(text).map_err(|error| Error::url(text, &error.to_string()))?;
            of_url(&url)?
        }
    };
    check(uri, text)
}

/// Resolves a reference, such as that of a Location field, against the URL of the request.
pub(super) fn join(base: &Uri, reference: &str) -> Result<Uri, Error> {
    let base = url::Url::parse(&base.to_string()).map_err(|error| Error::url(reference, &error.to_string()))?;
    let joined = base.join(reference).map_err(|error| Error::url(reference, &error.to_string()))?;
    check(of_url(&joined)?, reference)
}

fn of_url(url: &url::Url) -> Result<Uri, Error> {
    let mut url = url.clone();
    url.set_fragment(None);
    url.as_str().parse().map_err(|error: http::uri::InvalidUri| Error::url(url.as_str(), &error.to_string()))
}

fn check(uri: Uri, text: &str) -> Result<Uri, Error> {
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(scheme) => return Err(Error::url(text, &format!("the scheme {scheme} is not http or https"))),
        None => return Err(Error::url(text, "it has no scheme")),
    }
    let authority = uri.authority().map_or("", Authority::as_str);
    if uri.host().is_none_or(str::is_empty) {
        return Err(Error::url(text, "it has no host"));
    }
    // `http` accepts any digits as a port.
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port && uri.port_u16().is_none_or(|port| port == 0) {
        return Err(Error::url(text, "its port is not a number from 1 to 65535"));
    }
    Ok(uri)
}

/// Returns the user and the password in a URL, without them the URL, if it has any.
pub(super) fn take_credentials(uri: Uri) -> (Uri, Option<(String, String)>) {
    let Some((user, host)) = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return (uri, None);
    };
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let credentials = Some((decode(user), decode(password)));
    let host: Result<Authority, _> = host.parse();
    let mut parts = uri.clone().into_parts();
    match host {
        Ok(host) => parts.authority = Some(host),
        Err(_) => return (uri, credentials),
    }
    (Uri::from_parts(parts).unwrap_or(uri), credentials)
}

/// Returns true if the URL's scheme is `https`.
pub(super) fn is_secure(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// Returns the host without brackets.
pub(super) fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// Returns the port, or the scheme's.
pub(super) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if is_secure(uri) { 443 } else { 80 })
}

/// Returns the path and the query for a request line.
pub(super) fn target(uri: &Uri) -> String {
    let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if target.starts_with('/') { target.to_string() } else { format!("/{target}") }
}

/// Returns true if both URLs have the same scheme, host and port.
pub(super) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    is_secure(one) == is_secure(other) && port(one) == port(other) && host(one).eq_ignore_ascii_case(host(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_browsers_read_them_or_refused() {
        for (text, expected) in [
            ("http://a/b?c", Some("http://a/b?c")),
            ("https://A.example:8443", Some("https://a.example:8443/")),
            ("http://a/b/../c", Some("http://a/c")),
            ("http://a/b c", Some("http://a/b%20c")),
            ("http://bücher.example/ä", Some("http://xn--bcher-kva.example/%C3%A4")),
            ("http://[::1]:8080/", Some("http://[::1]:8080/")),
            ("http://a/b#fragment", Some("http://a/b")),
            ("ftp://a/", None),
            ("http://", None),
            ("/path", None),
            ("http://a:0/", None),
            ("http://a:99999/", None),
            ("http://a:b/", None),
            ("http://a\r\nb/", None),
            ("", None),
        ] {
            let got = parse(text).ok().map(|uri| uri.to_string());
            let same = got.as_deref().map(str::to_ascii_lowercase) == expected.map(str::to_ascii_lowercase);
            assert!(same, "{text:?}: {got:?}");
        }
    }

    #[test]
    fn references_are_resolved_against_the_request() {
        let base = parse("https://a.example/x/y?z").expect("a URL");
        for (reference, expected) in [
            ("/n", "https://a.example/n"),
            ("n", "https://a.example/x/n"),
            ("../n?m#f", "https://a.example/n?m"),
            ("//b.example/n", "https://b.example/n"),
            ("http://c.example", "http://c.example/"),
            ("?q", "https://a.example/x/y?q"),
        ] {
            assert_eq!(join(&base, reference).expect("a URL").to_string(), expected, "{reference}");
        }
        assert!(join(&base, "javascript:alert(1)").is_err());
    }

    #[test]
    fn credentials_leave_the_url() {
        let (url, credentials) = take_credentials(parse("http://us%20er:p%40ss@a:81/b").expect("a URL"));
        assert_eq!(url.to_string(), "http://a:81/b");
        assert_eq!(credentials, Some(("us er".to_string(), "p@ss".to_string())));
    }
}
