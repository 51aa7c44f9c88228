//! A query with defaults, and pages.

use axum::extract::Query;
use axum::routing::get;
use axum::{Json, Router};

#[derive(serde::Deserialize)]
#[serde(default)]
struct Page {
    page: usize,
    size: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page { page: 0, size: 3 }
    }
}

async fn list(Query(Page { page, size }): Query<Page>) -> Json<Vec<usize>> {
    Json((0..100).skip(page * size).take(size).collect())
}

pub fn app() -> Router {
    Router::new().route("/numbers", get(list))
}
