//! Sessions: data about a visitor that lasts from one request to the next.
//!
//! A cookie contains the session's *token*. With [`Sessions::in_cookies`], the token is the encrypted session, so the
//! server stores nothing, and any number of servers can share the keys. However, the session must fit into a cookie,
//! and the server cannot end it early for a client that has kept a copy. With [`Sessions::in_store`], a
//! [`SessionStore`] of your own keeps the session, and the token is only the session's key in that store.

use crate::cookie::{Cookie, CookieError, Cookies, Keys};
use crate::message::provided::Provided;
use crate::message::request::{FromRequest, Request};
use crate::{IntoResponse, IntoResponseParts, Response, State};
use highwire_engine::context;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The default lifetime of a session after it was last saved: one day.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The default name of the cookie. Browsers accept a `__Host-` cookie only from the host itself, and usually only over
/// TLS.
const COOKIE: &str = "__Host-session";

/// The most cookies with the session's name that are tried. A visitor has one, but a server on another host of the same
/// domain can add others, if the name does not begin with `__Host-`.
const MOST_TOKENS: usize = 4;

/// An error of a [`SessionStore`].
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// A future that a [`SessionStore`] returns.
pub type StoreFuture<'s, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 's>>;

/// A place to store sessions, such as a database.
///
/// ```
/// use highwire::session::{SessionStore, StoreFuture, Sessions, new_token};
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// /// Keeps sessions in the memory of one process and never expires them. For tests only.
/// #[derive(Default)]
/// struct Memory(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl SessionStore for Memory {
///     fn load<'s>(&'s self, token: &'s str) -> StoreFuture<'s, Option<Vec<u8>>> {
///         Box::pin(async move { Ok(self.0.lock().unwrap().get(token).cloned()) })
///     }
///
///     fn save<'s>(&'s self, token: Option<&'s str>, data: Vec<u8>, _: Duration) -> StoreFuture<'s, String> {
///         Box::pin(async move {
///             let token = token.map_or_else(new_token, |token| Ok(token.to_string()))?;
///             self.0.lock().unwrap().insert(token.clone(), data);
///             Ok(token)
///         })
///     }
///
///     fn remove<'s>(&'s self, token: &'s str) -> StoreFuture<'s, ()> {
///         Box::pin(async move {
///             self.0.lock().unwrap().remove(token);
///             Ok(())
///         })
///     }
/// }
///
/// let app = highwire::App::new().state(Sessions::in_store(Memory::default()));
/// # let _ = app;
/// ```
pub trait SessionStore: Send + Sync + 'static {
    /// Returns the data for a token, or `None` if the token is unknown or the session has expired. Do not trust the
    /// token, because a client can send any text, up to several kilobytes long.
    fn load<'s>(&'s self, token: &'s str) -> StoreFuture<'s, Option<Vec<u8>>>;

    /// Stores data for `lifetime`, and returns its token. This is the given token, or, if that is `None`, a new one
    /// that a client cannot guess ([`new_token`]).
    fn save<'s>(&'s self, token: Option<&'s str>, data: Vec<u8>, lifetime: Duration) -> StoreFuture<'s, String>;

    /// Deletes the data for a token.
    fn remove<'s>(&'s self, token: &'s str) -> StoreFuture<'s, ()>;
}

/// Returns a new token for a store, which is 256 random bits as text.
///
/// # Errors
/// Returns an error if the system has no random bytes.
pub fn new_token() -> Result<String, StoreError> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| "the system has no random bytes")?;
    Ok(crate::message::base64::encode_url(&bytes))
}

/// Keeps each session encrypted in its token. The plaintext is the expiry in seconds since 1970 (8 bytes, big-endian),
/// then the data.
struct InCookies {
    keys: Keys,
    /// The name that the encryption authenticates. It contains the name of the sessions' cookie.
    purpose: String,
    now: fn() -> u64,
}

fn unix_seconds() -> u64 {
    context::time_of_day().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl InCookies {
    /// Creates the store for sessions in a cookie. A token is not valid in a cookie of another name, even under the
    /// same keys. A private cookie is not valid as a token either, because a cookie's name has no space and the purpose
    /// does.
    fn of(keys: Keys, cookie: &Cookie) -> InCookies {
        InCookies { keys, purpose: format!("highwire session {}", cookie.name()), now: unix_seconds }
    }

    fn open(&self, token: &str) -> Option<Vec<u8>> {
        let mut opened = self.keys.open(&self.purpose, token)?;
        let expires = u64::from_be_bytes(*opened.first_chunk()?);
        (expires > (self.now)()).then(|| opened.split_off(size_of::<u64>()))
    }
}

impl SessionStore for InCookies {
    fn load<'s>(&'s self, token: &'s str) -> StoreFuture<'s, Option<Vec<u8>>> {
        Box::pin(std::future::ready(Ok(self.open(token))))
    }

    fn save<'s>(&'s self, _: Option<&'s str>, data: Vec<u8>, lifetime: Duration) -> StoreFuture<'s, String> {
        let expires = (self.now)().saturating_add(lifetime.as_secs());
        let sealed = self.keys.seal(&self.purpose, &[&expires.to_be_bytes()[..], &data].concat());
        Box::pin(std::future::ready(sealed.ok_or_else(|| "cannot encrypt a session".into())))
    }

    fn remove<'s>(&'s self, _: &'s str) -> StoreFuture<'s, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The configuration of sessions, to be passed to [`App::state`](crate::App::state).
///
/// ```
/// use highwire::App;
/// use highwire::cookie::{Cookie, Keys};
/// use highwire::session::Sessions;
/// use std::time::Duration;
///
/// // Sessions for a week, without https. The name must not begin with `__Host-`, because the cookie is not secure.
/// let sessions = Sessions::in_cookies(Keys::new(&[b"from a file of 32 random bytes .."])?)
///     .max_age(Duration::from_secs(7 * 86_400))
///     .with_cookie(Cookie::new("session", "").secure(false));
/// let app = App::new().state(sessions);
/// # let _ = app;
/// # Ok::<(), highwire::cookie::KeyError>(())
/// ```
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    /// The keys, for sessions in cookies.
    keys: Option<Keys>,
    cookie: Cookie,
    lifetime: Duration,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("cookie", &self.cookie)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Keeps sessions in cookies, which only servers with these keys can make and read.
    pub fn in_cookies(keys: Keys) -> Sessions {
        let cookie = Cookie::new(COOKIE, "");
        Sessions { store: Arc::new(InCookies::of(keys.clone(), &cookie)), keys: Some(keys), cookie, lifetime: LIFETIME }
    }

    /// Keeps sessions in a store.
    pub fn in_store(store: impl SessionStore) -> Sessions {
        Sessions { store: Arc::new(store), keys: None, cookie: Cookie::new(COOKIE, ""), lifetime: LIFETIME }
    }

    /// Sets the lifetime of a session after it was last saved; the default is one day.
    #[must_use]
    pub fn max_age(mut self, lifetime: Duration) -> Sessions {
        self.lifetime = lifetime;
        self
    }

    /// Sets the cookie's name, path and other attributes; its value and `Max-Age` are replaced. The default is
    /// `__Host-session` with the default attributes of [`Cookie::new`]; this cookie needs https, or `http://localhost`
    /// in most browsers. Changing the name ends the existing sessions.
    #[must_use]
    pub fn with_cookie(mut self, cookie: Cookie) -> Sessions {
        if let Some(keys) = &self.keys {
            self.store = Arc::new(InCookies::of(keys.clone(), &cookie));
        }
        self.cookie = cookie;
        self
    }
}

/// An error of a [`Session`]. It converts into a response with status 500; the conversion logs the error.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// The store failed.
    Store(StoreError),
    /// The value cannot be written as JSON.
    Value(serde_json::Error),
    /// The cookie is invalid. If sessions are kept in cookies, the session may be too large.
    Cookie(CookieError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Store(error) => write!(f, "the session store failed: {error}"),
            SessionError::Value(error) => write!(f, "a session's value cannot be written as JSON: {error}"),
            SessionError::Cookie(error) => write!(f, "a session's cookie cannot be sent: {error}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl IntoResponse for SessionError {
    fn into_response(self) -> Response {
        highwire_engine::log!(Mistake, error, error = %self, "a session failed; the response is 500");
        Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
    }
}

/// A visitor's session, with a value of type `T`. This is an extractor; a handler must return it in a tuple before the
/// rest of the response, so that the response sets the session's cookie.
///
/// ```
/// use highwire::cookie::Keys;
/// use highwire::session::{Session, SessionError, Sessions};
/// use highwire::{App, testing::Client};
///
/// #[derive(Default, serde::Deserialize, serde::Serialize)]
/// struct Cart {
///     items: Vec<String>,
/// }
///
/// let add = async |mut session: Session<Cart>, item: String| {
///     let mut cart = session.load().await?.unwrap_or_default();
///     cart.items.push(item);
///     session.save(&cart).await?;
///     Ok::<_, SessionError>((session, cart.items.join(" and ")))
/// };
/// let app = App::new().state(Sessions::in_cookies(Keys::random()?)).post("/cart", add);
/// let mut client = Client::new(app)?;
/// let answer = client.post("/cart").body("tea").send();
/// let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_string();
/// assert_eq!(client.post("/cart").header("cookie", &cookie).body("milk").send().text(), "tea and milk");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Call [`renew`](Self::renew) when a visitor logs in, and then [`save`](Self::save). Otherwise, an attacker who has
/// planted a token in the visitor's browser shares the session (session fixation).
///
/// If the session was loaded, saved, renewed or ended, the response is for one visitor only, and gets
/// `Cache-Control: no-store` unless the handler has set `Cache-Control`.
pub struct Session<T> {
    sessions: Arc<Sessions>,
    tokens: Vec<String>,
    /// The token of the session that was loaded or saved.
    token: Option<String>,
    cookies: Cookies,
    /// True if the session was loaded, saved, renewed or ended.
    was_used: bool,
    value: PhantomData<fn(T) -> T>,
}

/// Shows nothing of the session, so that no token reaches a log.
impl<T> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl<T: 'static> FromRequest for Session<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Session<T>, Response> {
        let Some(sessions) = request.values().shared::<Sessions>() else {
            highwire_engine::log!(
                Mistake,
                error,
                "a handler takes a `Session`, but the app has no `Sessions`; pass them to `App::state`"
            );
            return Err(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"));
        };
        let sent = Cookies::from_request(request)?;
        let tokens = sent.all(sessions.cookie.name()).take(MOST_TOKENS).map(|token| token.into_owned()).collect();
        Ok(Session { sessions, tokens, token: None, cookies: Cookies::default(), was_used: false, value: PhantomData })
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        State::<Sessions>::check(provided)
    }
}

impl<T: DeserializeOwned + Serialize> Session<T> {
    /// Returns the value, or `None` if there is no session, it has expired, or its data is no value of type `T`.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn load(&mut self) -> Result<Option<T>, SessionError> {
        self.was_used = true;
        for token in std::mem::take(&mut self.tokens) {
            let Some(data) = self.sessions.store.load(&token).await.map_err(SessionError::Store)? else { continue };
            self.tokens = vec![token.clone()];
            self.token = Some(token);
            match serde_json::from_slice(&data) {
                Ok(value) => return Ok(Some(value)),
                Err(error) => {
                    highwire_engine::log!(Mistake, warn, %error, "a session's data does not fit the handler's type")
                }
            }
            return Ok(None);
        }
        Ok(None)
    }

    /// Saves a value in the session that was [loaded](Self::load), or else in a new one. The session's lifetime starts
    /// again.
    ///
    /// # Errors
    /// Returns an error if the store fails, the value cannot be written as JSON, or the cookie is invalid or too long.
    pub async fn save(&mut self, value: &T) -> Result<(), SessionError> {
        self.was_used = true;
        let data = serde_json::to_vec(value).map_err(SessionError::Value)?;
        let Sessions { store, cookie, lifetime, .. } = &*self.sessions;
        let token = store.save(self.token.as_deref(), data, *lifetime).await.map_err(SessionError::Store)?;
        let cookie = cookie.clone().with_value(token.clone()).max_age(*lifetime);
        cookie.header().map_err(SessionError::Cookie)?;
        self.cookies.add(cookie);
        self.tokens = vec![token.clone()];
        self.token = Some(token);
        Ok(())
    }

    /// Deletes the visitor's session from the store, so that the next [`save`](Self::save) makes a new token. Call this
    /// when a visitor logs in.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn renew(&mut self) -> Result<(), SessionError> {
        self.was_used = true;
        let known = self.token.take().into_iter().chain(std::mem::take(&mut self.tokens));
        for token in known.collect::<std::collections::BTreeSet<_>>() {
            self.sessions.store.remove(&token).await.map_err(SessionError::Store)?;
        }
        Ok(())
    }

    /// Ends the session. Deletes it from the store, and makes the client delete the cookie.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn end(&mut self) -> Result<(), SessionError> {
        self.cookies.remove(self.sessions.cookie.clone());
        self.renew().await
    }
}

/// Adds the session's cookie to the response if the session was saved or ended. If it was used and the response has no
/// `Cache-Control`, forbids caching, because a shared cache could give one visitor's page or cookie to others (RFC 9111
/// section 7.3).
impl<T> IntoResponseParts for Session<T> {
    fn add_to(self, response: Response) -> Result<Response, Response> {
        let mut response = self.cookies.put_into(response)?;
        if self.was_used && response.header(&header::CACHE_CONTROL).is_none() {
            response.add_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};

    fn now<T>(mut future: StoreFuture<'_, T>) -> T {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.expect("a result of the store"),
            Poll::Pending => panic!("the store of sessions in cookies must not wait"),
        }
    }

    #[test]
    fn a_session_in_a_cookie_expires() {
        static CLOCK: AtomicU64 = AtomicU64::new(1000);
        let keys = Keys::random().expect("random bytes");
        let other = keys.seal("other", b"\0\0\0\0\0\xff\0\0data").expect("sealed");
        let store = InCookies::of(keys, &Cookie::new("other", ""));
        let store = InCookies { now: || CLOCK.load(Ordering::Relaxed), ..store };
        let token = now(store.save(None, b"data".to_vec(), Duration::from_secs(10)));
        assert_eq!(now(store.load(&token)).as_deref(), Some(&b"data"[..]));
        assert_eq!(now(store.load(&other)), None, "a private cookie is no session");
        assert_eq!(now(store.load("")), None);
        CLOCK.store(1009, Ordering::Relaxed);
        assert_eq!(now(store.load(&token)).as_deref(), Some(&b"data"[..]));
        CLOCK.store(1010, Ordering::Relaxed);
        assert_eq!(now(store.load(&token)), None);
    }

    #[test]
    fn tokens_cannot_be_guessed() {
        let tokens = [new_token().expect("random bytes"), new_token().expect("random bytes")];
        assert_ne!(tokens[0], tokens[1]);
        assert!(tokens.iter().all(|token| token.len() == 43), "{tokens:?}");
    }
}
