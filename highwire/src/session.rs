//! Sessions: what a server remembers of a visitor from one request to the next.
//!
//! A session is known by a *token*, the value of a cookie. [`SessionStore`] says what a token stands for. By default it is
//! the session itself, encrypted: nothing is kept on the server, any number of servers share the keys, and the price is
//! that a session has to fit a cookie and that the server cannot end it early for somebody who has kept a copy. A store
//! of your own keeps sessions under tokens that say nothing.

use crate::cookie::{Cookie, CookieError, Cookies, Keys};
use crate::request::{FromRequest, Request};
use crate::{IntoResponse, Response};
use highwire_engine::context;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long a session lasts after it was last saved: a day at work, and the evening.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The cookie's name: browsers take it from this host alone, under TLS.
const COOKIE: &str = "__Host-session";

/// Cookies of the session's name that are looked at: a visitor has one, and whoever serves a host beside this one can
/// add others.
const MOST_TOKENS: usize = 4;

/// What a store says when it cannot do its work.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// What a store promises.
pub type StoreFuture<'s, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 's>>;

/// Where sessions are kept.
///
/// ```
/// use highwire::session::{SessionStore, StoreFuture, Sessions, new_token};
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// /// In the memory of one process, and without an end: for tests.
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
    /// The data that a token stands for; none where it stands for nothing, or for what has expired. A token is what a client
    /// says: up to some kilobytes of anything.
    fn load<'s>(&'s self, token: &'s str) -> StoreFuture<'s, Option<Vec<u8>>>;

    /// Keeps data for a while, and says under which token: the one that it has had, or a new one where it has had none,
    /// which nobody can guess ([`new_token`]).
    fn save<'s>(&'s self, token: Option<&'s str>, data: Vec<u8>, lifetime: Duration) -> StoreFuture<'s, String>;

    /// Forgets what a token stands for.
    fn remove<'s>(&'s self, token: &'s str) -> StoreFuture<'s, ()>;
}

/// A token for a store: 256 random bits as text.
///
/// # Errors
/// Where the system gives no random bytes.
pub fn new_token() -> Result<String, StoreError> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| "the system gives no random bytes")?;
    Ok(crate::base64::encode_url(&bytes))
}

/// Keeps each session inside its own token, encrypted: its expiry in seconds since 1970, then its data.
struct InCookies {
    keys: Arc<Keys>,
    /// What they are encrypted for.
    purpose: String,
    now: fn() -> u64,
}

fn unix_seconds() -> u64 {
    context::time_of_day().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl InCookies {
    /// Sessions in cookies of a name. One that is put into another cookie, of other sessions with the same keys, is
    /// none there. The blank is in no cookie's name, so that a private cookie is none either.
    fn of(keys: Arc<Keys>, cookie: &Cookie) -> InCookies {
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
        Box::pin(std::future::ready(sealed.ok_or_else(|| "a session cannot be encrypted".into())))
    }

    fn remove<'s>(&'s self, _: &'s str) -> StoreFuture<'s, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// How sessions are kept, for [`App::state`](crate::App::state).
///
/// ```
/// use highwire::App;
/// use highwire::cookie::{Cookie, Keys};
/// use highwire::session::Sessions;
/// use std::time::Duration;
///
/// // Without https, and for a week: a cookie that is less safe says so by its name.
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
    /// Of sessions in cookies.
    keys: Option<Arc<Keys>>,
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
    /// Sessions in cookies that only servers with these keys can make and read.
    pub fn in_cookies(keys: Keys) -> Sessions {
        let (keys, cookie) = (Arc::new(keys), Cookie::new(COOKIE, ""));
        Sessions { store: Arc::new(InCookies::of(keys.clone(), &cookie)), keys: Some(keys), cookie, lifetime: LIFETIME }
    }

    /// Sessions in a store.
    pub fn in_store(store: impl SessionStore) -> Sessions {
        Sessions { store: Arc::new(store), keys: None, cookie: Cookie::new(COOKIE, ""), lifetime: LIFETIME }
    }

    /// How long a session lasts after it was last saved. A day, where nothing else is said.
    #[must_use]
    pub fn max_age(mut self, lifetime: Duration) -> Sessions {
        self.lifetime = lifetime;
        self
    }

    /// The cookie, whose value is replaced: its name, path and other attributes. `__Host-session`, as safe as a cookie can
    /// be, where nothing else is said; it is for https, and for `http://localhost` in most browsers. A session in a
    /// cookie is encrypted for the cookie's name: where that changes, the sessions of before are over.
    #[must_use]
    pub fn with_cookie(mut self, cookie: Cookie) -> Sessions {
        if let Some(keys) = &self.keys {
            self.store = Arc::new(InCookies::of(keys.clone(), &cookie));
        }
        self.cookie = cookie;
        self
    }
}

/// Why a session could not be had: an answer as well, 500.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// The store has failed.
    Store(StoreError),
    /// The value cannot be written.
    Value(serde_json::Error),
    /// The token makes no cookie: of sessions in cookies, the session is too large for one.
    Cookie(CookieError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Store(error) => write!(f, "the store of sessions failed: {error}"),
            SessionError::Value(error) => write!(f, "a session's value cannot be written as JSON: {error}"),
            SessionError::Cookie(error) => write!(f, "a session's cookie cannot be sent: {error}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl IntoResponse for SessionError {
    fn into_response(self) -> Response {
        highwire_engine::log!(Mistake, error, error = %self, "a session failed");
        Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
    }
}

/// A visitor's session, with a value of one type: an extractor, and a part of the answer that carries its cookie.
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
/// A program that lets somebody in calls [`renew`](Self::renew): a token that an attacker has planted before is then worth
/// nothing.
///
/// An answer that is returned with a session which was loaded, saved or ended is for one visitor: it gets
/// `Cache-Control: no-store`, unless the handler has set that field.
pub struct Session<T> {
    sessions: Arc<Sessions>,
    tokens: Vec<String>,
    /// The token that the session has been loaded by.
    token: Option<String>,
    cookies: Cookies,
    /// It has been loaded, saved or ended.
    was_used: bool,
    value: PhantomData<fn(T) -> T>,
}

/// A token does not reach a log.
impl<T> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl<T: 'static> FromRequest for Session<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Session<T>, Response> {
        let Some(sessions) = request.shared.app.state::<Sessions>() else {
            highwire_engine::log!(
                Mistake,
                error,
                "a handler asks for a session, and no Sessions were given to App::state"
            );
            return Err(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"));
        };
        let sent = Cookies::from_request(request)?;
        let tokens = sent.all(sessions.cookie.name()).take(MOST_TOKENS).map(|token| token.into_owned()).collect();
        Ok(Session { sessions, tokens, token: None, cookies: Cookies::default(), was_used: false, value: PhantomData })
    }
}

impl<T: DeserializeOwned + Serialize> Session<T> {
    /// The value; none where there is no session, where it has expired, and where it is no such value (any more).
    ///
    /// # Errors
    /// Where the store fails.
    pub async fn load(&mut self) -> Result<Option<T>, SessionError> {
        self.was_used = true;
        for token in std::mem::take(&mut self.tokens) {
            let Some(data) = self.sessions.store.load(&token).await.map_err(SessionError::Store)? else { continue };
            self.tokens = vec![token.clone()];
            self.token = Some(token);
            match serde_json::from_slice(&data) {
                Ok(value) => return Ok(Some(value)),
                Err(error) => {
                    highwire_engine::log!(Mistake, warn, %error, "a session's value is of another shape")
                }
            }
            return Ok(None);
        }
        Ok(None)
    }

    /// Keeps a value: as the session that was [loaded](Self::load), else as a new one. It lasts from now.
    ///
    /// # Errors
    /// Where the store fails, and where the session does not fit its cookie.
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

    /// Leaves the session's token: its store forgets it, and what is saved next gets a new one. To be called where a visitor
    /// proves who they are.
    ///
    /// # Errors
    /// Where the store fails.
    pub async fn renew(&mut self) -> Result<(), SessionError> {
        self.was_used = true;
        let known = self.token.take().into_iter().chain(std::mem::take(&mut self.tokens));
        for token in known.collect::<std::collections::BTreeSet<_>>() {
            self.sessions.store.remove(&token).await.map_err(SessionError::Store)?;
        }
        Ok(())
    }

    /// Ends the session: its store forgets it, and so does the client.
    ///
    /// # Errors
    /// Where the store fails.
    pub async fn end(&mut self) -> Result<(), SessionError> {
        self.cookies.remove(self.sessions.cookie.clone());
        self.renew().await
    }
}

/// The answer, with the session's cookie where it was saved or ended. A cache that many share would give it to all of
/// them, or keep one visitor's page for the next (RFC 9111 section 7.3).
impl<T, R: IntoResponse> IntoResponse for (Session<T>, R) {
    fn into_response(self) -> Response {
        let mut response = self.0.cookies.put_into(self.1.into_response());
        if self.0.was_used && response.header(&header::CACHE_CONTROL).is_none() {
            response.add_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};

    fn now<T>(mut future: StoreFuture<'_, T>) -> T {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.expect("it does not fail"),
            Poll::Pending => panic!("a cookie is there at once"),
        }
    }

    #[test]
    fn a_session_in_a_cookie_expires() {
        static CLOCK: AtomicU64 = AtomicU64::new(1000);
        let keys = Keys::random().expect("random bytes");
        let other = keys.seal("other", b"\0\0\0\0\0\xff\0\0data").expect("sealed");
        let store = InCookies::of(Arc::new(keys), &Cookie::new("other", ""));
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
