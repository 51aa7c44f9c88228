//! A time limit and a limit of bodies.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::post;
use std::time::Duration;
use tower_http::timeout::TimeoutLayer;

async fn slow(body: String) -> String {
    tokio::time::sleep(Duration::from_secs(body.len() as u64)).await;
    body
}

pub fn app() -> Router {
    Router::new()
        .route("/", post(slow))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(2)))
        .layer(DefaultBodyLimit::max(1000))
}
