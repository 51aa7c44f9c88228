//! Highwire: an HTTP/1 and HTTP/2 server for services that must handle much traffic with few cores and little memory.
//!
//! ```no_run
//! use highwire::{App, Path};
//!
//! fn main() -> highwire::Result<()> {
//!     App::new()
//!         .get("/hello", || "Hello, World!")
//!         .get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"))
//!         .get("/later", async || {
//!             highwire::time::sleep(std::time::Duration::from_secs(1)).await;
//!             "done"
//!         })
//!         .listen("127.0.0.1:8080")?
//!         .run()
//! }
//! ```
//!
//! A handler is a plain function, an `async` function, or a function in [`blocking`]. Its arguments are extractors
//! ([`FromRequest`]), and it returns a value that implements [`IntoResponse`]. Plain functions run on the worker that
//! owns the connection and must not block; an async function's future stays on that worker and need not be `Send`.
//!
//! # Features
//!
//! | feature | contents |
//! |---|---|
//! | `json` (default) | `Json`, `Query`, `Form` and typed `Path` |
//! | `tls` (default) | `tls`, `Server::listen_tls`; with `client`, `ws::Connect::tls` |
//! | `client` | `client`, `ws::connect`, and `proxy`: the reverse proxy |
//! | `testing` | `testing`: tests of an app without sockets; includes `client`; with `self-signed`, `testing::Client::https` |
//! | `self-signed` | `TlsConfig::self_signed`: certificates for development; includes `tls` |
//! | `compress` | `compress`: compression of responses, decompression of request bodies |
//! | `cookies` | signed and private cookies; with `json` the module `session` |
//! | `cookie-jar` | `client::CookieJar`: a client that keeps cookies; includes `client` |
//! | `garde` | `Valid` and `Checked`: extracted values that keep the rules of the crate garde; includes `json` |
//! | `headers` | `TypedHeader`: header fields as the types of the crate `headers` |
//! | `nats`, `redis` | `topics::Nats`, `topics::Redis`: topics that several machines share |
//! | `openapi` | `openapi`: an OpenAPI document of the app's routes, from the types of their handlers; includes `json` |
//! | `templates` | `templates`: pages from templates in the language of Jinja2 |
//! | `tower` | `tower`: axum routers and other tower services inside an app, or an app inside them; with `client`, the client on tokio, as a service, and to an app of the same process |
//! | `axum` | with `tower::serve`, axum's `ConnectInfo`; includes `hyper`, `tokio` and `tower` |
//! | `hyper` | such services can take over a connection through hyper's upgrades; axum's WebSocket needs this and `tokio` |
//! | `tokio` | each worker runs inside a tokio runtime of its thread, for libraries that need one; raw streams are tokio's `AsyncRead` and `AsyncWrite` |
// docs.rs builds with nightly: each item that needs a feature shows it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(all(test, not(feature = "testing")))]
compile_error!("the tests of this crate use the test client: run them with `--features testing` or `--all-features`");

pub mod body;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "compress")]
pub mod compress;
pub mod cookie;
pub mod form;
pub mod middleware;
#[cfg(feature = "openapi")]
pub mod openapi;
#[cfg(feature = "client")]
pub mod proxy;
pub mod server;
#[cfg(all(feature = "cookies", feature = "json"))]
pub mod session;
pub mod sse;
pub mod task;
#[cfg(feature = "templates")]
pub mod templates;
#[cfg(not(feature = "templates"))]
#[path = "no_templates.rs"]
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod topics;
#[cfg(feature = "tower")]
pub mod tower;

mod app;
mod files;
mod handler;
mod message;
mod metrics;
mod router;
pub mod ws;

pub use app::App;
pub use app::https::Https;
pub use app::spawn_blocking::{SpawnBlockingError, spawn_blocking};
pub use body::Body;
pub use files::Files;
#[cfg(feature = "json")]
pub use form::Form;
pub use form::Multipart;
#[doc(hidden)]
pub use handler::Directly;
#[doc(hidden)]
pub use handler::check as __check;
pub use handler::{Blocking, Direct, Handler, With, blocking, direct};
/// The crate whose types [`TypedHeader`] has.
#[cfg(feature = "headers")]
pub use headers;
/// TLS: settings, certificates and sessions. The example makes a server with TLS:
///
/// ```
/// use highwire::tls::{TlsConfig, Versions};
///
/// // In production, use `certificate_files("/etc/tls/site.pem", "/etc/tls/site.key")`, which reloads changed files.
/// let settings = TlsConfig::new().self_signed(["localhost"]).versions(Versions::Tls13);
/// let server = highwire::App::new().get("/", || "hello").server()?.listen_tls("127.0.0.1:0", settings.clone())?;
/// // The rustls configuration alone, for another server:
/// let config = settings.build()?.current();
/// # let _ = (server, config);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "tls")]
#[doc(inline)]
pub use highwire_engine::tls;
pub use highwire_engine::{Error, Result};
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
pub use message::async_request::AsyncFromRequest;
pub use message::auth::{Basic, Bearer, Realm};
pub use message::extract::{Authority, Extension, MatchedPath, Peer, PerWorker, RawQuery, Scheme, State, Tls, Version};
pub use message::negotiate::Accept;
pub use message::problem::Problem;
pub use message::provided::Provided;
pub use message::redirect::{Html, Redirect};
pub use message::reply::{Disconnect, InterimResponses, OnDisconnect, Reply};
pub use message::request::{BodyUse, FromRequest, OptionalFromRequest, Request};
pub use message::response::{IntoResponse, IntoResponseParts, Response, Status};
#[cfg(feature = "json")]
pub use message::typed::{Json, Path, Query};
#[cfg(feature = "headers")]
pub use message::typed_header::TypedHeader;
pub use message::upgrade::{Ended, RawReader, RawStream, RawWriter, Upgrade};
#[cfg(feature = "garde")]
pub use message::valid::{Broken, Checkable, Checked, Valid};
pub use router::{Params, PatternError};
pub use server::Server;
pub use task::spawn;

/// The programs of the pages in `docs/`, as tests.
#[cfg(all(
    doctest,
    unix,
    feature = "axum",
    feature = "compress",
    feature = "cookie-jar",
    feature = "cookies",
    feature = "openapi",
    feature = "redis",
    feature = "templates",
    feature = "testing"
))]
mod pages {
    macro_rules! pages {
        ($($name:ident: $file:literal)*) => {$(
            #[doc = include_str!(concat!("../../docs/", $file))]
            struct $name;
        )*};
    }

    pages! {
        Authentication: "authentication.md"
        Client: "client.md"
        Compression: "compression.md"
        Embedding: "embedding.md"
        Errors: "errors.md"
        Files: "files.md"
        FromActix: "from-actix.md"
        FromAxum: "from-axum.md"
        Limits: "limits.md"
        Metrics: "metrics.md"
        Middleware: "middleware.md"
        OpenApi: "openapi.md"
        Proxy: "proxy.md"
        QuickStart: "quick-start.md"
        Templates: "templates.md"
        Testing: "testing.md"
        Tls: "tls.md"
        Tokio: "tokio.md"
        Topics: "topics.md"
        WebSocket: "websocket.md"
    }
}
