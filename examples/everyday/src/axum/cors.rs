//! Scripts of another site may call, with cookies; browsers get the usual headers for safety.

use axum::Router;
use axum::http::{HeaderValue, Method, header};
use axum::routing::get;
use tower_http::cors::CorsLayer;
use tower_http::set_header::SetResponseHeaderLayer;

pub fn app() -> Router {
    let cors = CorsLayer::new()
        .allow_origin(HeaderValue::from_static("https://example.com"))
        .allow_methods([Method::GET, Method::POST])
        .allow_credentials(true);
    let set = |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
    Router::new()
        .route("/", get(async || "hello"))
        .layer(cors)
        .layer(set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(set(header::X_FRAME_OPTIONS, "DENY"))
        .layer(set(header::REFERRER_POLICY, "strict-origin-when-cross-origin"))
}
