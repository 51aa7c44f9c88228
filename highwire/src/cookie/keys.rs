//! Signed cookies, which only the server can make, and private cookies, which only the server can make and read.
//!
//! A signed value is an HMAC-SHA256 in base64url, a dot, and the value. The HMAC is over the name, a zero byte and the
//! value. A private value is, in base64url, 12 random bytes (the nonce), the ciphertext, and a tag of 16 bytes. It is
//! encrypted by AES-256-GCM-SIV, which also authenticates the name. Neither is valid in a cookie of another name.
//!
//! GCM-SIV is used instead of GCM, because several machines may share a key, and all choose nonces at random. If a
//! nonce repeated under GCM, an attacker could forge values.

use super::{Cookie, Cookies};
use crate::message::base64::{decode_url, encode_url};
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use std::fmt;
use std::sync::Arc;

/// The length of the shortest accepted secret in bytes, which is also the length of the keys derived from it.
const LEAST_SECRET_BYTES: usize = 32;

/// Keys that sign and encrypt cookies, the newest first. The newest key makes cookies; all keys verify and decrypt
/// them. To rotate, put a new secret in front, and remove the last secret when the cookies made with it have expired.
///
/// Servers with the same secrets accept each other's cookies.
///
/// ```
/// use highwire::cookie::{Cookie, Cookies, Keys};
/// use highwire::{App, State, testing::Client};
///
/// // In production, read the secrets from files that only the server can read, made by `openssl rand 32`.
/// let keys = Keys::new(&[b"the newest secret, 32 bytes long", b"the one before: 32 bytes as well"])?;
/// let app = App::new()
///     .state(keys)
///     .post("/login", |keys: State<Keys>, mut cookies: Cookies| {
///         cookies.private(&keys).add(Cookie::new("user", "ada"));
///         (cookies, "welcome")
///     })
///     .get("/", |keys: State<Keys>, mut cookies: Cookies| cookies.private(&keys).get("user").unwrap_or_default());
/// let mut client = Client::new(app)?;
/// let answer = client.post("/login").send();
/// let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_string();
/// assert!(!cookie.contains("ada"));
/// assert_eq!(client.get("/").header("cookie", &cookie).send().text(), "ada");
/// assert_eq!(client.get("/").header("cookie", "user=ada").send().text(), "");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keys {
    keys: Arc<[Key]>,
}

struct Key {
    signing: hmac::Key,
    sealing: LessSafeKey,
}

/// Shows only the number of keys, so that no key reaches a log.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("count", &self.keys.len()).finish_non_exhaustive()
    }
}

/// An error of [`Keys::new`] or [`Keys::random`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// No secret was given, or one has fewer than 32 bytes.
    Short,
    /// The system has no random bytes, or the cryptography library failed.
    Refused,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::Short => "a secret for cookies is missing or has fewer than 32 bytes",
            KeyError::Refused => "cannot make keys for cookies: no random bytes, or the cryptography library failed",
        })
    }
}

/// Writes the same text as `Display`, because a `main` that returns an error prints it by `Debug`.
impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for KeyError {}

/// The purpose of a derived key that signs (the `info` of HKDF). [`SEALING`] is that of a key that encrypts.
const SIGNING: &[u8] = b"highwire cookies, signed";
const SEALING: &[u8] = b"highwire cookies, private";

impl Keys {
    /// Derives a key from each secret, the newest secret first. A secret must be random and have at least 32 bytes; do
    /// not use a password.
    ///
    /// # Errors
    /// Returns an error if there is no secret, one is too short, or the cryptography library fails.
    pub fn new<S: AsRef<[u8]>>(secrets: &[S]) -> Result<Keys, KeyError> {
        if secrets.is_empty() {
            return Err(KeyError::Short);
        }
        let keys = secrets.iter().map(|secret| Key::new(secret.as_ref())).collect::<Result<_, _>>()?;
        Ok(Keys { keys })
    }

    /// Makes a random key. Cookies made with it are invalid in other processes, and after a restart of this one.
    ///
    /// # Errors
    /// Returns an error if the system has no random bytes, or the cryptography library fails.
    pub fn random() -> Result<Keys, KeyError> {
        let mut secret = [0; LEAST_SECRET_BYTES];
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| KeyError::Refused)?;
        Keys::new(&[secret])
    }

    pub(crate) fn sign(&self, name: &str, value: &str) -> Option<String> {
        let tag = hmac::sign(&self.keys.first()?.signing, &signed(name, value));
        Some(format!("{}.{value}", encode_url(tag.as_ref())))
    }

    pub(crate) fn verify<'v>(&self, name: &str, text: &'v str) -> Option<&'v str> {
        let (tag, value) = text.split_once('.')?;
        let (tag, message) = (decode_url(tag)?, signed(name, value));
        let genuine = self.keys.iter().any(|key| hmac::verify(&key.signing, &message, &tag).is_ok());
        genuine.then_some(value)
    }

    pub(crate) fn seal(&self, name: &str, value: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let (mut sealed, aad) = (value.to_vec(), Aad::from(name.as_bytes()));
        let key = &self.keys.first()?.sealing;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        Some(encode_url(&[&nonce[..], &sealed].concat()))
    }

    pub(crate) fn open(&self, name: &str, text: &str) -> Option<Vec<u8>> {
        let bytes = decode_url(text)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        self.keys.iter().find_map(|key| {
            let mut opened = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let length = key.sealing.open_in_place(nonce, Aad::from(name.as_bytes()), &mut opened).ok()?.len();
            opened.truncate(length);
            Some(opened)
        })
    }
}

/// Returns the message to sign. A zero byte separates name and value, because a valid name contains none.
fn signed(name: &str, value: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0", value.as_bytes()].concat()
}

impl Key {
    fn new(secret: &[u8]) -> Result<Key, KeyError> {
        if secret.len() < LEAST_SECRET_BYTES {
            return Err(KeyError::Short);
        }
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(secret);
        let derive = |purpose: &[u8]| {
            let mut key = [0; 32];
            let purpose = &[purpose];
            let derived = secret.expand(purpose, hkdf::HKDF_SHA256).and_then(|derived| derived.fill(&mut key));
            derived.map(|()| key).map_err(|_| KeyError::Refused)
        };
        let sealing = UnboundKey::new(&AES_256_GCM_SIV, &derive(SEALING)?).map_err(|_| KeyError::Refused)?;
        let signing = hmac::Key::new(hmac::HMAC_SHA256, &derive(SIGNING)?);
        Ok(Key { signing, sealing: LessSafeKey::new(sealing) })
    }
}

/// Cookies with signed values. A client can read the values; [`get`](Self::get) ignores values that it has changed.
#[derive(Debug)]
pub struct Signed<'c> {
    cookies: &'c mut Cookies,
    keys: &'c Keys,
}

/// Cookies with encrypted values. A client cannot read the values; [`get`](Self::get) ignores values that it has
/// changed.
#[derive(Debug)]
pub struct Private<'c> {
    cookies: &'c mut Cookies,
    keys: &'c Keys,
}

impl Cookies {
    /// Returns access to signed cookies.
    pub fn signed<'c>(&'c mut self, keys: &'c Keys) -> Signed<'c> {
        Signed { cookies: self, keys }
    }

    /// Returns access to encrypted cookies.
    pub fn private<'c>(&'c mut self, keys: &'c Keys) -> Private<'c> {
        Private { cookies: self, keys }
    }
}

impl Signed<'_> {
    /// Returns the value of the first cookie with that name and a valid signature.
    pub fn get(&self, name: &str) -> Option<String> {
        self.cookies.all(name).find_map(|value| self.keys.verify(name, &value).map(str::to_string))
    }

    /// Signs the value, and adds the cookie as [`Cookies::add`] does.
    pub fn add(&mut self, cookie: Cookie) {
        let value = self.keys.sign(&cookie.name, &cookie.value);
        put(self.cookies, cookie, value);
    }
}

impl Private<'_> {
    /// Returns the value of the first cookie with that name that one of the keys can decrypt.
    pub fn get(&self, name: &str) -> Option<String> {
        self.cookies.all(name).find_map(|value| String::from_utf8(self.keys.open(name, &value)?).ok())
    }

    /// Encrypts the value, and adds the cookie as [`Cookies::add`] does. Logs an error and adds nothing if encryption
    /// fails.
    pub fn add(&mut self, cookie: Cookie) {
        let value = self.keys.seal(&cookie.name, cookie.value.as_bytes());
        put(self.cookies, cookie, value);
    }
}

/// Adds a cookie with `value` in place of the cookie's own value, or logs an error if `value` is `None`.
fn put(cookies: &mut Cookies, cookie: Cookie, value: Option<String>) {
    match value {
        Some(value) => cookies.add(Cookie { value, ..cookie }),
        None => {
            highwire_engine::log!(
                Mistake,
                error,
                name = cookie.name(),
                "cannot sign or encrypt a cookie; it is not sent"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: [u8; 32] = [1; 32];
    const OLD: [u8; 32] = [2; 32];

    fn keys(secrets: &[[u8; 32]]) -> Keys {
        Keys::new(secrets).expect("secrets that are long enough")
    }

    /// Returns, for each character of a text, the text with that character changed.
    fn changed(text: &str) -> impl Iterator<Item = String> {
        (0..text.len()).map(move |at| {
            let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
            format!("{}{other}{}", &text[..at], &text[at + 1..])
        })
    }

    #[test]
    fn signatures() {
        let signed = keys(&[OLD]).sign("a", "value.x").expect("a signature");
        assert_eq!(keys(&[OLD]).verify("a", &signed), Some("value.x"));
        assert_eq!(keys(&[NEW, OLD]).verify("a", &signed), Some("value.x"), "an old key still verifies");
        assert_eq!(keys(&[NEW]).verify("a", &signed), None, "a removed key does not verify");
        assert_eq!(keys(&[OLD]).verify("b", &signed), None, "a value under another name is invalid");
        assert_ne!(keys(&[NEW, OLD]).sign("a", "value.x"), Some(signed.clone()), "the newest key signs");
        for changed in changed(&signed).chain(["".into(), ".".into(), "value.x".into()]) {
            assert_eq!(keys(&[OLD]).verify("a", &changed), None, "{changed}");
        }
    }

    #[test]
    fn encryption() {
        let sealed = keys(&[OLD]).seal("a", b"value").expect("a cookie");
        assert_eq!(keys(&[OLD]).open("a", &sealed).as_deref(), Some(&b"value"[..]));
        assert_eq!(keys(&[NEW, OLD]).open("a", &sealed).as_deref(), Some(&b"value"[..]), "an old key still decrypts");
        assert_eq!(keys(&[NEW]).open("a", &sealed), None, "a removed key does not decrypt");
        assert_eq!(keys(&[OLD]).open("b", &sealed), None, "a value under another name is invalid");
        assert_ne!(keys(&[OLD]).seal("a", b"value"), Some(sealed.clone()), "equal values have different ciphertexts");
        for changed in changed(&sealed).chain((0..sealed.len()).map(|end| sealed[..end].to_string())) {
            assert_eq!(keys(&[OLD]).open("a", &changed), None, "{changed}");
        }
    }

    #[test]
    fn secrets_that_are_none() {
        assert_eq!(Keys::new(&[[0; 31]]).err(), Some(KeyError::Short));
        assert_eq!(Keys::new::<[u8; 32]>(&[]).err(), Some(KeyError::Short));
        // A `main` that returns an error prints it by `Debug`, which must be readable.
        assert_eq!(format!("{:?}", KeyError::Short), KeyError::Short.to_string());
        let random = || Keys::random().expect("random bytes");
        let signed = random().sign("a", "b").expect("a signature");
        assert_eq!(random().verify("a", &signed), None, "random keys differ");
    }

    #[test]
    fn a_jar_finds_ours_among_others() {
        let keys = keys(&[NEW]);
        let (signed, sealed) = (keys.sign("a", "s").expect("signed"), keys.seal("a", b"p").expect("sealed"));
        let mut cookies = Cookies::sent_as(&format!("a=x; a={signed}; a={sealed}"));
        assert_eq!(cookies.signed(&keys).get("a").as_deref(), Some("s"));
        assert_eq!(cookies.private(&keys).get("a").as_deref(), Some("p"));
        assert_eq!(cookies.private(&keys).get("b"), None);
    }
}
