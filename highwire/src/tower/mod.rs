//! Services of the `tower` family: as handlers of an app, and an app as one of them. Behind the feature `tower`.
//!
//! [`service`] makes a handler of an axum `Router`, or of anything else that is a `Service` of `http` requests; it runs on
//! Highwire unchanged:
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
//! [`into_service`] makes a service of an app, which can then stand behind axum, hyper or tonic, and behind layers:
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
//! Bodies cross threads by a bounded channel, since services want theirs to be `Send`: [`CROSSING_BYTES`] of an answer at
//! most wait in it, and of a request's body the part that the service waits for.

mod app;
mod handler;

pub use app::{AppService, into_service};
pub use handler::{Incoming, Parts, service};
pub use highwire_engine::call::{CROSSING_BYTES, ResponseBody, ResponseFuture};
