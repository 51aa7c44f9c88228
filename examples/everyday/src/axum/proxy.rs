//! Another server behind a prefix.

use axum::Router;
use axum::routing::get;
use axum_reverse_proxy::ReverseProxy;

pub fn app(upstream: &str) -> Router {
    let proxy: Router = ReverseProxy::new("/api", upstream).into();
    Router::new().route("/", get(async || "own")).merge(proxy)
}
