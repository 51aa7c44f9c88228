//! Extractors that do not need the request's body, and those of `Option` and `Result`.

use crate::message::request::{FromRequest, Request};
use crate::{Method, Response};
use highwire_engine::{Stats, rate_limited};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// An extractor of a value that [`App::state`](crate::App::state) has set, which all workers share. It dereferences to
/// the value; its field is the `Arc`. Responds with 500 if the app has no such state.
///
/// ```
/// use highwire::{App, State};
/// use std::sync::Mutex;
///
/// struct Notes {
///     all: Mutex<Vec<String>>,
/// }
///
/// let notes = Notes { all: Mutex::default() };
/// let app = App::new().get("/", |notes: State<Notes>| notes.all.lock().unwrap().join("\n")).state(notes);
/// # let _ = app;
/// ```
#[derive(Debug)]
pub struct State<T>(pub Arc<T>);

impl<T> Deref for State<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

fn missing<T>(by: &str) -> Response {
    if rate_limited::allows(rate_limited::Kind::Mistake) {
        tracing::error!(kind = std::any::type_name::<T>(), "a handler takes a value that {by} has not set");
    }
    Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
}

impl<T: Send + Sync + 'static> FromRequest for State<T> {
    fn from_request(request: &mut Request<'_>) -> Result<State<T>, Response> {
        request.values().get::<T>().map(State).ok_or_else(|| missing::<T>("App::state"))
    }
}

/// An extractor of a worker's own value, made by [`App::per_worker`](crate::App::per_worker). Responds with 500 if the
/// app makes no such value.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, PerWorker};
/// use std::cell::Cell;
///
/// let app = App::new().per_worker(|| Cell::new(0_u32)).get("/", |asked: PerWorker<Cell<u32>>| {
///     asked.set(asked.get() + 1);
///     format!("this worker was asked {} times", asked.get())
/// });
/// assert_eq!(Client::new(app)?.get("/").send().text(), "this worker was asked 1 times");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Debug)]
#[doc(alias = "Local")]
pub struct PerWorker<T>(pub Rc<T>);

impl<T> Deref for PerWorker<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: 'static> FromRequest for PerWorker<T> {
    fn from_request(request: &mut Request<'_>) -> Result<PerWorker<T>, Response> {
        let found = request.locals.get(&std::any::TypeId::of::<T>()).cloned();
        found.and_then(|value| value.downcast().ok()).map(PerWorker).ok_or_else(|| missing::<T>("App::per_worker"))
    }
}

/// An extractor of a value that middleware has left in [`Request::extensions`]. Responds with 500 if there is none.
///
/// ```
/// use highwire::middleware::before;
/// use highwire::testing::Client;
/// use highwire::{App, Extension, Request, StatusCode};
///
/// let language = before(|request: &mut Request<'_>| {
///     let wants = request.header("accept-language").unwrap_or_default().starts_with(b"de");
///     request.extensions().insert(if wants { "de" } else { "en" });
///     Ok::<(), StatusCode>(())
/// });
/// let app = App::new().get("/", |Extension(language): Extension<&'static str>| language).with(language);
/// assert_eq!(Client::new(app)?.get("/").header("accept-language", "de-CH").send().text(), "de");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequest for Extension<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Extension<T>, Response> {
        request.extension::<T>().cloned().map(Extension).ok_or_else(|| missing::<T>("middleware"))
    }
}

/// An extractor of the address of the peer, which is the client or a proxy.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Peer};
///
/// let app = App::new().get("/", |peer: Peer| match peer {
///     Peer::Internet(address, _) => format!("from {address}"),
///     Peer::Local => "from this machine".to_string(),
/// });
/// assert!(Client::new(app)?.get("/").send().text().starts_with("from 10."));
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::Peer;

impl FromRequest for Peer {
    fn from_request(request: &mut Request<'_>) -> Result<Peer, Response> {
        Ok(request.peer())
    }
}

/// An extractor of the TLS of the request's connection. Responds with 403 if the connection has no TLS; take
/// `Option<Tls>` to serve requests with and without TLS.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Tls};
///
/// let app = || App::new().get("/", |tls: Tls| format!("{} with {}", tls.version, tls.alpn.unwrap_or_default()));
/// assert_eq!(Client::https(app())?.get("/").send().text(), "TLSv1.3 with http/1.1");
/// assert_eq!(Client::new(app())?.get("/").send().status(), 403);
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::Tls;

impl FromRequest for Tls {
    fn from_request(request: &mut Request<'_>) -> Result<Tls, Response> {
        request.tls().ok_or_else(|| Response::error(StatusCode::FORBIDDEN, "this is served under https only\n"))
    }
}

/// The server's counts of connections and requests so far.
impl FromRequest for Stats {
    fn from_request(request: &mut Request<'_>) -> Result<Stats, Response> {
        Ok(Stats::of(request.shared.engine()))
    }
}

/// The scheme of the request: `https` if the connection has TLS or the target's scheme is `https`, else `http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme(pub &'static str);

impl FromRequest for Scheme {
    fn from_request(request: &mut Request<'_>) -> Result<Scheme, Response> {
        Ok(Scheme(if request.is_secure() || request.head.target.https { "https" } else { "http" }))
    }
}

/// The HTTP version of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub http::Version);

impl FromRequest for Version {
    fn from_request(request: &mut Request<'_>) -> Result<Version, Response> {
        Ok(Version(request.version()))
    }
}

/// The authority that the request is for, such as `example.com:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority(pub String);

impl FromRequest for Authority {
    fn from_request(request: &mut Request<'_>) -> Result<Authority, Response> {
        Ok(Authority(request.authority().to_string()))
    }
}

/// The query as it was sent, without the question mark; empty if there is none.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Authority, RawQuery, Scheme, Version};
///
/// let app = App::new().get("/", |scheme: Scheme, host: Authority, query: RawQuery, version: Version| {
///     format!("{}://{}/?{} by {:?}", scheme.0, host.0, query.0, version.0)
/// });
/// let answer = Client::new(app)?.get("/?a=%20").header("host", "example.com").send();
/// assert_eq!(answer.text(), "http://example.com/?a=%20 by HTTP/1.1");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawQuery(pub String);

impl FromRequest for RawQuery {
    fn from_request(request: &mut Request<'_>) -> Result<RawQuery, Response> {
        Ok(RawQuery(request.query().unwrap_or_default().to_string()))
    }
}

impl FromRequest for Method {
    fn from_request(request: &mut Request<'_>) -> Result<Method, Response> {
        Method::from_bytes(request.method().as_bytes())
            .map_err(|_| Response::error(StatusCode::NOT_IMPLEMENTED, "this method is not implemented here\n"))
    }
}

/// All header fields. If there is no `Host`, as in most HTTP/2 requests, the request's authority is added as one.
/// Making the map allocates memory; [`Request::header`] returns one field without an allocation.
impl FromRequest for HeaderMap {
    fn from_request(request: &mut Request<'_>) -> Result<HeaderMap, Response> {
        let mut map = HeaderMap::new();
        for (name, value) in request.headers() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
                map.append(name, value);
            }
        }
        if let http::header::Entry::Vacant(host) = map.entry(http::header::HOST)
            && let Ok(value) = HeaderValue::from_str(request.authority())
            && !value.is_empty()
        {
            host.insert(value);
        }
        Ok(map)
    }
}

impl<T: FromRequest> FromRequest for Option<T> {
    const BODY: crate::BodyUse = T::BODY;
    fn from_request(request: &mut Request<'_>) -> Result<Option<T>, Response> {
        Ok(T::from_request(request).ok())
    }
}

impl<T: FromRequest> FromRequest for Result<T, Response> {
    const BODY: crate::BodyUse = T::BODY;
    fn from_request(request: &mut Request<'_>) -> Result<Result<T, Response>, Response> {
        Ok(T::from_request(request))
    }
}
