//! A query with defaults, and pages.

use highwire::{App, Json, Query};

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

fn list(Query(Page { page, size }): Query<Page>) -> Json<Vec<usize>> {
    Json((0..100).skip(page * size).take(size).collect())
}

pub fn app() -> App {
    App::new().get("/numbers", list)
}
