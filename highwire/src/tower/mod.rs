//! Services of the `tower` family as handlers of an app, and an app as such a service. Requires the feature `tower`.
//!
//! [`service`] makes a handler of an axum `Router` or another `Service` of `http` requests, which needs no change to
//! run on Highwire:
//!
//! ```
//! # use axum::{Router, routing::get};
//! use highwire::{App, tower};
//!
//! let router = Router::new().route("/hello", get(async || "from axum"));
//! let app = App::new().get("/own", || "from Highwire").fallback(tower::service(router));
//! # let _ = app;
//! ```
//!
//! [`nested`] puts a service below a prefix that it does not see, and [`layer`] puts a layer around an app's routes. [`serve`] serves such
//! a router alone, in place of `axum::serve`. [`into_service`] turns an app into a service, for use in axum, hyper or tonic:
//!
//! ```
//! use axum::Router;
//! use highwire::{App, Path, tower};
//!
//! let app = App::new().get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"));
//! let router: Router = Router::new().fallback_service(tower::into_service(app)?);
//! # let _ = router;
//! # Ok::<(), highwire::Error>(())
//! ```
//!
//! Because services require `Send` bodies, a service reads a request's body through a bounded channel, and the caller
//! of an app as a service reads the response's body through one. The channel of a request's body holds one part. The
//! channel of a response's body takes parts until it holds at least [`CROSSING_BYTES`], so the last part may take it above
//! that number.

mod app;
pub(crate) mod bodies;
#[cfg(feature = "client")]
mod client;
mod handler;
mod layer;
mod nested;
mod serve;
#[cfg_attr(not(feature = "hyper"), path = "no_upgrade.rs")]
mod upgrade;

pub use app::{AppService, into_service};
pub use handler::{Incoming, Parts, RequestService, service};
pub use highwire_engine::call::{CROSSING_BYTES, ResponseBody, ResponseFuture};
pub use layer::{Routes, RoutesBody, RoutesFuture, layer};
pub use nested::nested;
pub use serve::{Connection, IntoListener, OfConnections, OfRequests, ServeFuture, ServeService, Served, serve};
