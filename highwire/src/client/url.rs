//! URLs of requests: parsed strictly, resolved against each other, and compared by origin.

use super::error::Error;
use http::Uri;
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::OnceLock;
use url::Position;

/// The URL of a request: absolute, `http:` or `https:`, without credentials and fragment.
#[derive(Clone)]
pub(crate) struct Url {
    text: String,
    is_secure: bool,
    /// The positions of the host, without brackets, and of the end of the authority.
    host: Range<usize>,
    authority_end: usize,
    port: u16,
    uri: OnceLock<Uri>,
}

/// The characters of a URL, by what they mean for [`fast`].
const PLAIN: u8 = 0;
const HOST: u8 = 1;
const OTHER: u8 = 2;

/// The class of each byte: of a host name in lower case, of the rest of a URI, or of what needs a closer look.
static CLASS: [u8; 256] = {
    let mut class = [OTHER; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        class[byte] = match byte as u8 {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#' => OTHER,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => HOST,
            _ => PLAIN,
        };
        byte += 1;
    }
    class
};

/// Parses the URL of a request. A URL with characters that a URI does not have is encoded as browsers do it.
pub(crate) fn parse(text: &str) -> Result<(Url, Credentials), Error> {
    match fast(text) {
        Some(url) => Ok((url, None)),
        None => slow(text, &url::Url::parse(text).map_err(|error| Error::url(text, &error.to_string()))?),
    }
}

/// Resolves a reference, such as that of a Location field, against the URL of the request.
pub(crate) fn join(base: &Url, reference: &str) -> Result<(Url, Credentials), Error> {
    let base = url::Url::parse(&base.text).map_err(|error| Error::url(reference, &error.to_string()))?;
    let joined = base.join(reference).map_err(|error| Error::url(reference, &error.to_string()))?;
    slow(reference, &joined)
}

/// Parses a URL as most programs write it. Returns `None` if it needs the whole algorithm.
fn fast(text: &str) -> Option<Url> {
    let (is_secure, begin) = match text.as_bytes() {
        [b'h', b't', b't', b'p', b':', b'/', b'/', ..] => (false, 7),
        [b'h', b't', b't', b'p', b's', b':', b'/', b'/', ..] => (true, 8),
        _ => return None,
    };
    let rest = &text.as_bytes()[begin..];
    let length = rest.iter().position(|&byte| CLASS[usize::from(byte)] != HOST).unwrap_or(rest.len());
    let (mut at, mut port) = (length, if is_secure { 443 } else { 80 });
    if rest.get(at) == Some(&b':') {
        let digits = &rest[at + 1..];
        let count = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
        let number = text[begin + at + 1..begin + at + 1 + count].parse::<u16>().ok()?;
        // A default port is left out, and so are zeros before it.
        if number == port || digits[0] == b'0' {
            return None;
        }
        (at, port) = (at + 1 + count, number);
    }
    let path = &rest[at..];
    // A host whose last label begins with a digit may be an address in one of several forms.
    let host = &text[begin..begin + length];
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_name = last.as_bytes().first().is_some_and(u8::is_ascii_lowercase) || host.parse::<Ipv4Addr>().is_ok();
    let is_simple = path.iter().all(|&byte| CLASS[usize::from(byte)] != OTHER)
        && matches!(path.first(), None | Some(b'/'))
        && !path.windows(2).any(|pair| pair == b"/." || pair == b"%2");
    (is_name && is_simple && text.len() <= MOST_BYTES).then(|| Url {
        text: text.to_string(),
        is_secure,
        host: begin..begin + length,
        authority_end: begin + at,
        port,
        uri: OnceLock::new(),
    })
}

/// The most bytes of a URL. `http` allows no more.
const MOST_BYTES: usize = 65_000;

fn slow(text: &str, url: &url::Url) -> Result<(Url, Credentials), Error> {
    let is_secure = match url.scheme() {
        "http" => false,
        "https" => true,
        scheme => return Err(Error::url(text, &format!("the scheme {scheme} is not http or https"))),
    };
    let mut url = url.clone();
    url.set_fragment(None);
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let has_any = !url.username().is_empty() || url.password().is_some();
    let credentials = has_any.then(|| (decode(url.username()), decode(url.password().unwrap_or_default())));
    if url.set_username("").and_then(|()| url.set_password(None)).is_err() || !url.has_host() {
        return Err(Error::url(text, "it has no host"));
    }
    if url.port() == Some(0) {
        return Err(Error::url(text, "its port is not a number from 1 to 65535"));
    }
    if url.as_str().len() > MOST_BYTES {
        return Err(Error::url(text, "it is too long"));
    }
    let (host, authority) = (&url[Position::BeforeHost..Position::AfterHost], &url[..Position::AfterPort]);
    let begin = url[..Position::BeforeHost].len();
    let is_bracketed = host.starts_with('[');
    let url = Url {
        is_secure,
        host: begin + usize::from(is_bracketed)..begin + host.len() - usize::from(is_bracketed),
        authority_end: authority.len(),
        port: url.port_or_known_default().unwrap_or(80),
        uri: OnceLock::new(),
        text: url.to_string(),
    };
    Ok((url, credentials))
}

/// A user and a password.
pub(crate) type Credentials = Option<(String, String)>;

impl Url {
    /// Returns true if the scheme is `https`.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the host without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.text[self.host.clone()]
    }

    /// Returns the port, or the scheme's.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the host, and the port if it is not the scheme's, for a Host field.
    pub(crate) fn authority(&self) -> &str {
        &self.text[if self.is_secure { 8 } else { 7 }..self.authority_end]
    }

    /// Returns the scheme and the authority.
    pub(crate) fn origin(&self) -> &str {
        &self.text[..self.authority_end]
    }

    /// Returns the path and the query for a request line.
    pub(crate) fn target(&self) -> &str {
        match &self.text[self.authority_end..] {
            "" => "/",
            target => target,
        }
    }

    /// Returns the URL in the type of the crate `http`.
    pub(crate) fn uri(&self) -> &Uri {
        self.uri.get_or_init(|| self.text.parse().unwrap_or_default())
    }

    /// Returns true if both URLs have the same scheme, host and port.
    pub(crate) fn is_same_origin(&self, other: &Url) -> bool {
        self.origin() == other.origin()
    }

    /// Returns the URL with more pairs in its query.
    #[cfg(feature = "json")]
    pub(crate) fn with_query(&self, more: &str) -> Result<Url, Error> {
        let separator = match self.target().split_once('?') {
            None => "?",
            Some((_, "")) => "",
            Some(_) => "&",
        };
        parse(&format!("{}{}{separator}{more}", self.origin(), self.target())).map(|(url, _)| url)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
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
            ("http://a:80/", Some("http://a/")),
            ("http://127.1/", Some("http://127.0.0.1/")),
            ("http://127.0.0.1:81", Some("http://127.0.0.1:81/")),
            ("HTTP://a?b", Some("http://a/?b")),
            ("http://a\r\nb/", Some("http://ab/")),
            ("http://a b/", None),
            ("", None),
        ] {
            let got = parse(text).ok().map(|(url, _)| url.uri().to_string());
            assert_eq!(got.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn both_ways_to_read_a_url_agree() {
        for text in ["http://a", "https://a.example:81/b?c=d&e", "http://a-b_c.example/%41", "http://127.0.0.1:8080/x?"]
        {
            let quick = fast(text).expect("a simple URL");
            let (whole, _) = slow(text, &url::Url::parse(text).expect("a URL")).expect("a URL");
            let facts = |url: &Url| {
                (url.is_secure, url.host().to_string(), url.port, url.authority().to_string(), url.target().to_string())
            };
            assert_eq!(facts(&quick), facts(&whole), "{text}");
        }
        for text in [
            "http://A/",
            "http://a:80/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://u@a/",
            "http://a/../b",
            "http://a/%2e%2e/b",
            "http://a:08/",
            "http://0x7f.0.0.0xa/",
            "http://0xa9fea9fe/",
            "http://a/#",
            "http://1/",
        ] {
            assert!(fast(text).is_none(), "{text}");
        }
    }

    #[test]
    fn references_are_resolved_against_the_request() {
        let (base, _) = parse("https://a.example/x/y?z").expect("a URL");
        for (reference, expected) in [
            ("/n", "https://a.example/n"),
            ("n", "https://a.example/x/n"),
            ("../n?m#f", "https://a.example/n?m"),
            ("//b.example/n", "https://b.example/n"),
            ("http://c.example", "http://c.example/"),
            ("?q", "https://a.example/x/y?q"),
        ] {
            assert_eq!(join(&base, reference).expect("a URL").0.text, expected, "{reference}");
        }
        assert!(join(&base, "javascript:alert(1)").is_err());
    }

    #[test]
    fn credentials_leave_the_url() {
        let (url, credentials) = parse("http://us%20er:p%40ss@a:81/b").expect("a URL");
        assert_eq!((&*url.text, url.authority(), url.port()), ("http://a:81/b", "a:81", 81));
        assert_eq!(credentials, Some(("us er".to_string(), "p@ss".to_string())));
    }
}
