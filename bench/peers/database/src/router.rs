//! A router of axum that both `axum::serve` and `highwire::tower::serve` serve.

use axum::Router;
use axum::routing::{get, post};

/// Returns the router: `/hello`, and `/json`, which returns a JSON value as it is.
pub fn router() -> Router {
    Router::new()
        .route("/hello", get(async || "Hello, World!"))
        .route("/json", post(async |axum::Json(value): axum::Json<serde_json::Value>| axum::Json(value)))
}
