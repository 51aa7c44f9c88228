//! Cookies that a client keeps between its requests (RFC 6265).

use super::error::Error;
use super::url::Url;
use crate::HeaderValue;
use cookie_store::{Cookie, CookieStore, RawCookie};
use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most cookies of a jar, and of one domain in it. RFC 6265 section 6.1 asks for at least 3,000 and 50.
const MOST: usize = 3_000;
const MOST_OF_A_DOMAIN: usize = 180;

/// The most cookies that are read from one response. Each costs a search of the whole jar.
const MOST_OF_A_RESPONSE: usize = 50;

/// The most bytes of a cookie with its attributes (RFC 6265 section 6.1).
const MOST_BYTES: usize = 4_096;

/// A jar of cookies for [`ClientBuilder::cookie_jar`](super::ClientBuilder::cookie_jar). Clones share the cookies.
///
/// The client adds the cookies for a URL to each request that has no `Cookie` field, also after redirects, and keeps
/// those of each response. All requests of the clients share the jar, so in a server it serves for the server's own
/// login elsewhere, not for the cookies of its visitors.
///
/// The jar keeps no cookie for a public suffix such as `co.uk`, none that is `Secure` from an `http:` URL, and none that
/// breaks the rules of the prefixes `__Host-` and `__Secure-`. A cookie may have 4,096 bytes. The jar keeps 50 cookies of a
/// response, 180 of a domain and 3,000 in all. `SameSite` is ignored, because a program has no site of its own.
#[derive(Clone, Default)]
pub struct CookieJar {
    store: Arc<Mutex<CookieStore>>,
}

/// The first of 128 characters for private use, which stand for the bytes 0x80 to 0xff that are not UTF-8. The store of the cookies
/// has only text, but a server gets its bytes back as it has sent them.
const FIRST_BYTE: u32 = 0xf780;

fn as_text(bytes: &[u8]) -> String {
    let stands_for = |&byte: &u8| char::from_u32(FIRST_BYTE + u32::from(byte & 0x7f));
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match u32::from(character).checked_sub(FIRST_BYTE) {
                // One of these characters itself.
                Some(0..0x80) => {
                    text.extend(character.encode_utf8(&mut [0; 4]).as_bytes().iter().filter_map(stands_for))
                }
                _ => text.push(character),
            }
        }
        text.extend(chunk.invalid().iter().filter_map(stands_for));
    }
    text
}

fn as_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u32::from(character).checked_sub(FIRST_BYTE) {
            Some(byte @ 0..0x80) => bytes.push(0x80 | byte as u8),
            _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
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
        let pairs = cookies.iter().map(|cookie| as_bytes(&format!("{}={}", cookie.name(), cookie.value())));
        let all: Vec<Vec<u8>> = pairs.filter(|pair| HeaderValue::from_bytes(pair).is_ok()).collect();
        let mut value = HeaderValue::from_bytes(&all.join(&b"; "[..])).ok().filter(|value| !value.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Keeps the cookies of a response.
    pub(super) fn keep_all<'c>(&self, cookies: impl Iterator<Item = &'c [u8]>, url: &Url) {
        for cookie in cookies.take(MOST_OF_A_RESPONSE) {
            if !self.keep(&as_text(cookie), url) {
                tracing::debug!(?url, "a cookie is not kept");
            }
        }
    }

    /// Keeps a cookie of a response. Returns false if the jar does not take it.
    pub(super) fn keep(&self, cookie: &str, url: &Url) -> bool {
        let parsed = RawCookie::parse(cookie.to_string()).ok();
        let (Some(mut cookie), Some(full)) = (parsed.filter(|_| cookie.len() <= MOST_BYTES), full(url)) else {
            return false;
        };
        if !may_be_kept(&mut cookie, url) {
            return false;
        }
        let Ok(cookie) = Cookie::try_from_raw_cookie(&cookie, &full) else { return false };
        let cookie = cookie.into_owned();
        let (Some(domain), path) = (cookie.domain.as_cow(), String::from(&cookie.path)) else { return false };
        let mut store = self.store();
        // RFC 6265bis section 5.7: a connection without TLS, whose responses anybody may forge, changes no cookie of a
        // secure one.
        let shields = |known: &Cookie<'_>| {
            known.secure() == Some(true) && known.name() == cookie.name() && known.domain.matches(&full)
        };
        if !url.is_secure() && store.iter_unexpired().any(shields) {
            return false;
        }
        if !store.contains_any(&domain, &path, cookie.name()) && !make_room(&mut store, &domain) {
            return false;
        }
        store.insert(cookie.clone(), &full).is_ok()
    }
}

/// Makes room for another cookie of a domain, if necessary by evicting expired cookies, and then one of the domain that
/// has the most. Returns false if the domain itself has too many.
fn make_room(store: &mut CookieStore, domain: &str) -> bool {
    let name = |cookie: &Cookie<'_>| cookie.domain.as_cow().unwrap_or_default().into_owned();
    let of_domain = |store: &CookieStore| store.iter_any().filter(|known| name(known) == domain).count();
    if of_domain(store) >= MOST_OF_A_DOMAIN || store.iter_any().count() >= MOST {
        remove(store, |known| known.is_expired());
    }
    if store.iter_any().count() >= MOST {
        let mut counts: HashMap<String, usize> = HashMap::new();
        store.iter_any().for_each(|known| *counts.entry(name(known)).or_default() += 1);
        let largest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(domain, _)| domain);
        let mut is_first = true;
        remove(store, |known| Some(name(known)) == largest && std::mem::take(&mut is_first));
    }
    of_domain(store) < MOST_OF_A_DOMAIN
}

fn remove(store: &mut CookieStore, mut is_removed: impl FnMut(&Cookie<'_>) -> bool) {
    let removed: Vec<_> = store
        .iter_any()
        .filter(|known| is_removed(known))
        .map(|known| {
            let domain = known.domain.as_cow().unwrap_or_default().into_owned();
            (domain, String::from(&known.path), known.name().to_string())
        })
        .collect();
    for (domain, path, name) in removed {
        store.remove(&domain, &path, &name);
    }
}

/// Checks the rules that do not depend on other cookies: public suffixes, `Secure`, and the prefixes of names (RFC 6265bis
/// section 5.6). Removes a `Domain` that is the host itself and a public suffix, so that only this host gets the cookie.
fn may_be_kept(cookie: &mut RawCookie<'static>, url: &Url) -> bool {
    if cookie.name().chars().chain(cookie.value().chars()).any(|letter| letter.is_control() || letter == ';') {
        return false;
    }
    let is_secure = cookie.secure() == Some(true);
    let name = cookie.name().to_ascii_lowercase();
    if is_secure && !url.is_secure() {
        return false;
    }
    if name.starts_with("__secure-") && !is_secure {
        return false;
    }
    if name.starts_with("__host-") && (!is_secure || cookie.domain().is_some() || cookie.path() != Some("/")) {
        return false;
    }
    let Some(domain) = cookie.domain() else { return true };
    let domain = domain.trim().trim_start_matches('.').to_ascii_lowercase();
    // Servers write the names of other letters in ASCII (`xn--`). Another spelling of a domain, also with a dot at its end,
    // could hide a public suffix.
    if !domain.is_ascii() || domain.ends_with('.') || domain.contains(|letter: char| letter.is_ascii_whitespace()) {
        return false;
    }
    if psl::suffix_str(&domain) == Some(&*domain) {
        if domain != url.host().to_ascii_lowercase() {
            return false;
        }
        cookie.unset_domain();
    }
    true
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
        ("https://a.co.uk/", "id=1; Domain=\u{ff43}\u{ff4f}.uk", "https://b.co.uk/", ""),
        ("https://a.co.uk/", "id=1; Domain=co\u{ad}.uk", "https://b.co.uk/", ""),
        ("https://a.co.uk/", "id=1; Domain=co.uk.", "https://b.co.uk/", ""),
        ("https://a.co.uk./", "id=1; Domain=co.uk.", "https://b.co.uk./", ""),
        ("https://github.io/", "id=1; Domain=github.io", "https://x.github.io/", ""),
        ("https://github.io/", "id=1; Domain=github.io", "https://github.io/", "id=1"),
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
        for number in 0..MOST - MOST_OF_A_DOMAIN {
            assert!(set("id=1", &format!("https://h{number}.example/")));
        }
        assert_eq!(jar.len(), MOST);
        // A new cookie evicts one of the domain that has the most.
        assert!(set("id=1", "https://login.example/"));
        assert_eq!((jar.len(), jar.get("https://login.example/").expect("a URL").is_some()), (MOST, true));
        jar.clear();
        assert!(jar.is_empty());
    }

    #[test]
    fn expired_cookies_make_room() {
        let jar = CookieJar::new();
        let set = |cookie: &str| jar.set(cookie, "https://a.example/").expect("a URL");
        for number in 0..10 * MOST_OF_A_DOMAIN {
            assert!(set(&format!("nonce{number}=1; Max-Age=60")), "{number}");
            assert!(set(&format!("nonce{number}=; Max-Age=0")), "{number}");
        }
        assert!(jar.is_empty());
    }

    /// Anybody on the path may forge a response without TLS.
    #[test]
    fn a_plain_connection_changes_no_secure_cookie() {
        let jar = CookieJar::new();
        let set = |cookie: &str, url: &str| jar.set(cookie, url).expect("a URL");
        assert!(set("id=good; Secure; Domain=a.example", "https://a.example/"));
        assert!(!set("id=evil", "http://a.example/"));
        assert!(!set("id=evil; Domain=a.example", "http://sub.a.example/"));
        assert!(set("other=1", "http://a.example/"));
        let cookies = jar.get("https://a.example/").expect("a URL").expect("cookies");
        assert_eq!(cookies, "id=good; other=1");
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

    #[test]
    fn bytes_that_are_not_utf8_come_back() {
        let (url, _) = crate::client::url::parse("http://a.example/").expect("a URL");
        let jar = CookieJar::new();
        let sent: [&[u8]; 3] = [b"name=M\xfcller; Path=/", "town=K\u{f6}ln\u{f7a5}".as_bytes(), b"n\x80=\xff\x80"];
        jar.keep_all(sent.into_iter(), &url);
        let back = jar.cookies(&url).expect("cookies");
        let expected: [&[u8]; 3] = [b"name=M\xfcller", b"n\x80=\xff\x80", "town=K\u{f6}ln\u{f7a5}".as_bytes()];
        assert_eq!(back.as_bytes(), expected.join(&b"; "[..]));
    }

    #[test]
    fn a_cookie_that_cannot_be_sent_harms_no_other() {
        let jar = CookieJar::new();
        jar.set("id=1", "http://a.example/").expect("a URL");
        jar.set("bad=a\nb", "http://a.example/").expect("a URL");
        let sent = jar.get("http://a.example/").expect("a URL").expect("a cookie");
        assert_eq!(sent.to_str().expect("text"), "id=1");
    }
}
