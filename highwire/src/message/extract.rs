//! Extractors that do not need the request's body, and those of `Option` and `Result`.

use crate::message::provided::{Provided, name_of};
use crate::message::request::{FromRequest, OptionalFromRequest, Request};
use crate::{Method, Response};
use highwire_engine::{Stats, rate_limited};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// An extractor of a value that [`App::state`](crate::App::state) has set, which all workers share: a clone of it, to which the
/// extractor dereferences. An app without such a value is an error when it is built.
///
/// ```
/// use highwire::{App, State};
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Clone, Default)]
/// struct Notes {
///     all: Arc<Mutex<Vec<String>>>,
/// }
///
/// let app = App::new().get("/", |notes: State<Notes>| notes.all.lock().unwrap().join("\n")).state(Notes::default());
/// # let _ = app;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

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

impl<T: Clone + Send + Sync + 'static> FromRequest for State<T> {
    fn from_request(request: &mut Request<'_>) -> Result<State<T>, Response> {
        State::from_request_optional(request)?.ok_or_else(|| missing::<T>("App::state"))
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        let text = || format!("State<{}> needs a value that `App::state` adds", name_of::<T>());
        if provided.has_state::<T>() { Ok(()) } else { Err(text()) }
    }
}

/// An extractor of a worker's own value, made by [`App::per_worker`](crate::App::per_worker). An app that makes no such value is
/// an error when it is built.
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
        PerWorker::from_request_optional(request)?.ok_or_else(|| missing::<T>("App::per_worker"))
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        let text = || format!("PerWorker<{}> needs a value that `App::per_worker` makes", name_of::<T>());
        if provided.has_per_worker::<T>() { Ok(()) } else { Err(text()) }
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
        Extension::from_request_optional(request)?.ok_or_else(|| missing::<T>("middleware"))
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

/// The template of the route's path, such as `/users/{id}`, with the prefixes of nested apps. A handler without a path, such as the
/// app's fallback, cannot take it, but it can take `Option<MatchedPath>`.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, MatchedPath};
///
/// let users = App::new().get("/{id}", |path: MatchedPath| path.as_str().to_string());
/// assert_eq!(Client::new(App::new().nest("/users", users))?.get("/users/7").send().text(), "/users/{id}");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatchedPath(Arc<str>);

impl MatchedPath {
    /// Returns the template.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromRequest for MatchedPath {
    fn from_request(request: &mut Request<'_>) -> Result<MatchedPath, Response> {
        let path = MatchedPath::from_request_optional(request)?;
        path.ok_or_else(|| Response::error(StatusCode::NOT_FOUND, "not found\n"))
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        provided.path().map(|_| ()).ok_or_else(|| "it has no path, which `MatchedPath` needs".to_string())
    }
}

impl OptionalFromRequest for MatchedPath {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<MatchedPath>, Response> {
        let path = request.shared.app.paths.get(request.route as usize);
        Ok(path.cloned().flatten().map(MatchedPath))
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

impl OptionalFromRequest for Tls {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Tls>, Response> {
        Ok(request.tls())
    }
}

impl<T: Clone + Send + Sync + 'static> OptionalFromRequest for State<T> {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<State<T>>, Response> {
        Ok(request.values().get::<T>().cloned().map(State))
    }
}

impl<T: 'static> OptionalFromRequest for PerWorker<T> {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<PerWorker<T>>, Response> {
        Ok(request.local::<T>().map(PerWorker))
    }
}

impl<T: Clone + Send + Sync + 'static> OptionalFromRequest for Extension<T> {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Extension<T>>, Response> {
        Ok(request.extension::<T>().cloned().map(Extension))
    }
}

impl<T: OptionalFromRequest> FromRequest for Option<T> {
    const BODY: crate::BodyUse = T::BODY;
    fn from_request(request: &mut Request<'_>) -> Result<Option<T>, Response> {
        T::from_request_optional(request)
    }
}

/// The value, or the response that the handler would not have been called for, for handlers that refuse in their own way.
impl<T: FromRequest> FromRequest for Result<T, Response> {
    const BODY: crate::BodyUse = T::BODY;
    fn from_request(request: &mut Request<'_>) -> Result<Result<T, Response>, Response> {
        let had_reply = request.hooks.reply.is_some();
        let found = T::from_request(request);
        if found.is_err() && !had_reply {
            // The handler answers, even if a part of what is refused was a `Reply`.
            request.hooks.reply = None;
        }
        Ok(found)
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        T::check(provided)
    }
}
