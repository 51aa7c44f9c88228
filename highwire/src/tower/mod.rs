//! Services of the `tower` family as handlers. Behind the feature `tower`.
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
//! Bodies cross threads by a bounded channel, since services want theirs to be `Send`: [`CROSSING_BYTES`] at most wait in it.

mod crossing;
mod handler;

pub use crossing::CROSSING_BYTES;
pub use handler::{Incoming, Parts, service};
