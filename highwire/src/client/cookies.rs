//! Cookies that a client keeps between its requests (RFC 6265).

use super::error::Error;
use super::url::Url;
use crate::HeaderValue;
use cookie_store::{CookieStore, RawCookie};
use std::fmt;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most cookies of a jar, and of one domain in it. RFC 6265 section 6.1 asks for at least 3,000 and 50.
const MOST: usize = 3_000;
const MOST_OF_A_DOMAIN: usize = 180;

/// The most cookies that are read from one response. Each costs a look at the whole jar.
const MOST_OF_A_RESPONSE: usize = 50;

/// The most bytes of a cookie with its attributes (RFC 6265 section 6.1).
const MOST_BYTES: usize = 4_096;

/// A jar of cookies for [`ClientBuilder::cookie_jar`](super::ClientBuilder::cookie_jar). Clones share the cookies.
///
/// The client adds the cookies for a URL to each request that has no `Cookie` field, also after redirects, and keeps those
/// of each response. It keeps no cookie for a public suffix such as `co.uk`, none that is `Secure` from an `http:` URL, none
/// that breaks the rules of the prefixes `__Host-` and `__Secure-`, and none above 4,096 bytes, 50 of a response, 180 of a domain or 3,000 in
/// all. Programs have no site of their own, so `SameSite` has no meaning.
#[derive(Clone, Default)]
pub struct CookieJar {
    store: Arc<Mutex<CookieStore>>,
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieJar").field("cookies", &self.store().iter_any().count()).finish()
    }
}

impl CookieJar {
    /// Creates an empty jar.
    pub fn new() -> CookieJar {
        CookieJar::default()
    }

    fn store(&self) -> MutexGuard<'_, CookieStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of cookies that have not expired.
    pub fn len(&self) -> usize {
        self.store().iter_unexpired().count()
    }

    /// Returns true if there are no cookies.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all cookies.
    pub fn clear(&self) {
        self.store().clear();
    }

    /// Keeps a cookie as if a response for this URL had it in `Set-Cookie`. Returns false if the jar does not take it.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid.
    pub fn set(&self, cookie: &str, url: &str) -> Result<bool, Error> {
        let (url, _) = super::url::parse(url)?;
        Ok(self.keep(cookie, &url))
    }

    /// Returns the value of `Cookie` for a URL, if there are cookies for it.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid.
    pub fn get(&self, url: &str) -> Result<Option<HeaderValue>, Error> {
        let (url, _) = super::url::parse(url)?;
        Ok(self.cookies(&url))
    }

    /// Writes the cookies that outlive the program as lines of JSON. They are secrets.
    ///
    /// # Errors
    /// Returns an error if they cannot be written.
    pub fn save(&self, to: &mut impl Write) -> Result<(), Error> {
        let saved = cookie_store::serde::json::save(&self.store(), to);
        saved.map_err(|error| Error::builder(format!("the cookies cannot be written: {error}")))
    }

    /// Reads a jar that [`save`](Self::save) has written.
    ///
    /// # Errors
    /// Returns an error if the cookies cannot be read.
    pub fn load(from: impl BufRead) -> Result<CookieJar, Error> {
        let store = cookie_store::serde::json::load(from);
        let store = store.map_err(|error| Error::builder(format!("the cookies cannot be read: {error}")))?;
        Ok(CookieJar { store: Arc::new(Mutex::new(store)) })
    }

    /// Returns the value of `Cookie` for a URL. Cookies with longer paths come first (RFC 6265 section 5.4).
    pub(super) fn cookies(&self, url: &Url) -> Option<HeaderValue> {
        let store = self.store();
        let mut cookies = store.matches(&full(url)?);
        cookies.sort_by_key(|cookie| (std::cmp::Reverse(cookie.path.len()), cookie.name().to_string()));
        let all: Vec<String> = cookies.iter().map(|cookie| format!("{}={}", cookie.name(), cookie.value())).collect();
        let mut value = HeaderValue::try_from(all.join("; ")).ok().filter(|value| !value.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Keeps the cookies of a response.
    pub(super) fn keep_all(&self, cookies: &[&str], url: &Url) {
        for cookie in cookies.iter().take(MOST_OF_A_RESPONSE) {
            if !self.keep(cookie, url) {
                tracing::debug!(?url, "a cookie is not kept");
            }
        }
    }

    /// Keeps a cookie of a response. Returns false if the jar does not take it.
    pub(super) fn keep(&self, cookie: &str, url: &Url) -> bool {
        let parsed = RawCookie::parse(cookie.to_string()).ok();
        let (Some(cookie), Some(full)) = (parsed.filter(|_| cookie.len() <= MOST_BYTES), full(url)) else {
            return false;
        };
        if !may_be_kept(&cookie, url) {
            return false;
        }
        let mut store = self.store();
        let domain = cookie.domain().map_or_else(|| url.host().to_string(), str::to_ascii_lowercase);
        let domain = domain.trim_start_matches('.');
        let path = cookie.path().unwrap_or("/");
        let of_domain = store.iter_any().filter(|known| known.domain.as_cow().is_some_and(|of| of == domain)).count();
        let is_full = of_domain >= MOST_OF_A_DOMAIN || store.iter_any().count() >= MOST;
        if is_full && !store.contains_any(domain, path, cookie.name()) {
            return false;
        }
        store.insert_raw(&cookie, &full).is_ok()
    }
}

/// Checks the rules that do not depend on other cookies: public suffixes, `Secure`, and the prefixes of names (RFC 6265bis
/// section 5.6).
fn may_be_kept(cookie: &RawCookie<'_>, url: &Url) -> bool {
    if cookie.name().chars().chain(cookie.value().chars()).any(|letter| letter.is_control() || letter == ';') {
        return false;
    }
    let is_secure = cookie.secure() == Some(true);
    let (name, domain) =
        (cookie.name().to_ascii_lowercase(), cookie.domain().map(|domain| domain.trim_start_matches('.')));
    if is_secure && !url.is_secure() {
        return false;
    }
    if name.starts_with("__secure-") && !is_secure {
        return false;
    }
    if name.starts_with("__host-") && (!is_secure || domain.is_some() || cookie.path() != Some("/")) {
        return false;
    }
    // A host that is itself a public suffix, such as localhost, may have cookies of its own.
    let is_public = |domain: &str| psl::suffix_str(domain) == Some(domain) && !domain.eq_ignore_ascii_case(url.host());
    !domain.is_some_and(|domain| is_public(&domain.to_ascii_lowercase()))
}

fn full(url: &Url) -> Option<::url::Url> {
    ::url::Url::parse(&format!("{}{}", url.origin(), url.target())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has the URL of a response, a cookie, another URL, and the cookies that the client sends there.
    const ROWS: &[(&str, &str, &str, &str)] = &[
        ("https://a.example/", "id=1", "https://a.example/x", "id=1"),
        ("https://a.example/", "id=1", "https://b.example/", ""),
        ("https://a.example/", "id=1", "https://sub.a.example/", ""),
        ("https://a.example/", "id=1; Domain=a.example", "https://sub.a.example/", "id=1"),
        ("https://sub.a.example/", "id=1; Domain=.A.example", "https://a.example/", "id=1"),
        ("https://a.example/", "id=1; Domain=b.example", "https://b.example/", ""),
        ("https://a.example/", "id=1; Domain=sub.a.example", "https://sub.a.example/", ""),
        ("https://a.co.uk/", "id=1; Domain=co.uk", "https://b.co.uk/", ""),
        ("https://a.co.uk/", "id=1; Domain=.CO.UK", "https://b.co.uk/", ""),
        ("https://a.co.uk/", "id=1; Domain=a.co.uk", "https://b.a.co.uk/", "id=1"),
        ("https://x.github.io/", "id=1; Domain=github.io", "https://y.github.io/", ""),
        ("http://localhost/", "id=1", "http://localhost/", "id=1"),
        ("http://localhost/", "id=1; Domain=localhost", "http://localhost/", "id=1"),
        ("http://127.0.0.1/", "id=1", "http://127.0.0.1/", "id=1"),
        ("https://a.example/", "id=1; Secure", "http://a.example/", ""),
        ("http://a.example/", "id=1; Secure", "https://a.example/", ""),
        ("https://a.example/a/b", "id=1", "https://a.example/a/c", "id=1"),
        ("https://a.example/a/b", "id=1", "https://a.example/b", ""),
        ("https://a.example/", "id=1; Path=/a", "https://a.example/ab", ""),
        ("https://a.example/", "id=1; Path=/a", "https://a.example/a/b", "id=1"),
        ("https://a.example/", "id=1; Max-Age=0", "https://a.example/", ""),
        ("https://a.example/", "id=1; Max-Age=60", "https://a.example/", "id=1"),
        ("https://a.example/", "id=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "https://a.example/", ""),
        ("https://a.example/", "id=1; HttpOnly; SameSite=Strict", "https://a.example/", "id=1"),
        ("https://a.example/", "__Secure-id=1", "https://a.example/", ""),
        ("https://a.example/", "__Secure-id=1; Secure", "https://a.example/", "__Secure-id=1"),
        ("https://a.example/", "__Host-id=1; Secure; Path=/; Domain=a.example", "https://a.example/", ""),
        ("https://a.example/", "__Host-id=1; Secure", "https://a.example/", ""),
        ("https://a.example/", "__HOST-id=1; Path=/", "https://a.example/", ""),
        ("https://a.example/", "__Host-id=1; Secure; Path=/", "https://a.example/", "__Host-id=1"),
        ("https://a.example/", "=1", "https://a.example/", ""),
        ("https://a.example/", "nonsense", "https://a.example/", ""),
        ("https://a.example/", "id=a b\u{1}", "https://a.example/", ""),
    ];

    #[test]
    fn cookies_go_where_they_belong() {
        for (number, (from, cookie, to, expected)) in ROWS.iter().enumerate() {
            let jar = CookieJar::new();
            jar.set(cookie, from).expect("a URL");
            let cookies = jar.get(to).expect("a URL");
            let cookies = cookies.as_ref().map_or("", |cookies| cookies.to_str().expect("text"));
            assert_eq!(cookies, *expected, "row {number}: {cookie}");
        }
    }

    #[test]
    fn a_jar_is_bounded() {
        let jar = CookieJar::new();
        let set = |cookie: &str, url: &str| jar.set(cookie, url).expect("a URL");
        for number in 0..MOST_OF_A_DOMAIN {
            assert!(set(&format!("c{number}=1"), "https://a.example/"));
        }
        assert!(!set("more=1", "https://a.example/"));
        assert!(set("c0=2", "https://a.example/"), "a known cookie changes");
        assert!(!set(&format!("long={}", "x".repeat(MOST_BYTES)), "https://b.example/"));
        let mut taken = jar.len();
        for number in 0..MOST {
            taken += usize::from(set("id=1", &format!("https://h{number}.example/")));
        }
        assert_eq!((taken, jar.len()), (MOST, MOST));
        jar.clear();
        assert!(jar.is_empty());
    }

    #[test]
    fn longer_paths_come_first_and_lasting_cookies_are_saved() {
        let jar = CookieJar::new();
        for cookie in ["b=1; Path=/; Max-Age=600", "a=2; Path=/x", "c=3; Path=/x/y; Max-Age=600"] {
            assert!(jar.set(cookie, "https://a.example/").expect("a URL"));
        }
        let cookies = jar.get("https://a.example/x/y/z").expect("a URL").expect("cookies");
        assert_eq!(cookies, "c=3; a=2; b=1");
        assert!(cookies.is_sensitive());
        let mut saved = Vec::new();
        jar.save(&mut saved).expect("a vector");
        let again = CookieJar::load(&saved[..]).expect("what was saved");
        assert_eq!(again.get("https://a.example/x/y/z").expect("a URL").expect("cookies"), "c=3; b=1");
        assert!(CookieJar::load(&b"nonsense"[..]).is_err());
    }
}
