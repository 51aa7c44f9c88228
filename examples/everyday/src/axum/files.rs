//! Files of a folder, compressed, with one page for all other paths.

use axum::Router;
use tower_http::compression::CompressionLayer;
use tower_http::services::{ServeDir, ServeFile};

pub fn app(folder: &str) -> Router {
    let page = ServeFile::new(format!("{folder}/index.html"));
    Router::new().fallback_service(ServeDir::new(folder).fallback(page)).layer(CompressionLayer::new())
}
