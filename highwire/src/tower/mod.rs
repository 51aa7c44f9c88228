//! Services of the `tower` family as handlers of an app, and an app as such a service. Requires the feature `tower`.
//!
//! [`service`] makes a handler of an axum `Router` or any other `Service` of `http` requests, which runs on Highwire
//! unchanged:
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
//! [`into_service`] turns an app into a service, for use in axum, hyper or tonic, and behind layers:
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
//! Bodies pass through a bounded channel between threads, because services require `Send` bodies. It holds
//! [`CROSSING_BYTES`] of a response's body, which one part may exceed, and only one part of a request's body.

mod app;
mod handler;

pub use app::{AppService, into_service};
pub use handler::{Incoming, Parts, service};
pub use highwire_engine::call::{CROSSING_BYTES, ResponseBody, ResponseFuture};
