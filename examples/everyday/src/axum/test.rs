//! A test of a handler that waits for half a minute.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::routing::post;
use axum::{Json, Router};
use std::time::Duration;
use tower::ServiceExt;

fn app() -> Router {
    Router::new().route(
        "/sum",
        post(async |Json(numbers): Json<Vec<u32>>| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Json(numbers.iter().sum::<u32>())
        }),
    )
}

pub async fn adds_slowly() {
    tokio::time::pause();
    let request = Request::post("/sum").header("content-type", "application/json");
    let response = app().oneshot(request.body(Body::from("[1,2,3]")).unwrap()).await.unwrap();
    assert_eq!(to_bytes(response.into_body(), usize::MAX).await.unwrap(), "6");
}
