//! How does an axum router run on Highwire, beside other routes?

use axum::extract::Path;
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router, middleware};
use highwire::{App, tower};
use std::collections::BTreeMap;

/// What is there already, unchanged: handlers, extractors, layers.
fn router() -> Router {
    Router::new().route("/users/{id}", get(async |Path(id): Path<u32>| Json(BTreeMap::from([("id", id)])))).layer(
        middleware::map_response(async |mut response: Response| {
            response.headers_mut().insert("x-served-by", HeaderValue::from_static("axum"));
            response
        }),
    )
}

/// The routes: what Highwire has no route for goes to the router.
pub(crate) fn app() -> App {
    App::new().get("/health", || "fine\n").fallback(tower::service(router()))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
