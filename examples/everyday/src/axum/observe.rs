//! Metrics for Prometheus, and log lines of a request that have its ID.

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use axum_prometheus::PrometheusMetricLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;

pub fn app() -> Router {
    let (metrics, handle) = PrometheusMetricLayer::pair();
    let trace = TraceLayer::new_for_http().make_span_with(|request: &Request| {
        let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
        tracing::info_span!("request", method = %request.method(), path = request.uri().path(), id)
    });
    Router::new()
        .route("/", get(async || "hello"))
        .route("/metrics", get(async move || handle.render()))
        .layer(metrics)
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(trace)
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
}
