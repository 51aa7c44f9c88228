//! One request a second for each address, with bursts of five.

use axum::Router;
use axum::routing::get;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

pub fn app() -> Router {
    let config = GovernorConfigBuilder::default().per_second(1).burst_size(5).finish().unwrap();
    Router::new().route("/", get(async || "hello")).layer(GovernorLayer::new(config))
}
