//! Runs an axum router on Highwire, beside other routes. Its WebSocket needs the features `hyper` and `tokio` of Highwire.

use axum::extract::Path;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Json, Router, middleware};
use highwire::{App, tower};
use std::collections::BTreeMap;

/// Returns an ordinary axum router with a handler, an extractor, a WebSocket and a layer.
fn router() -> Router {
    Router::new()
        .route("/users/{id}", get(async |Path(id): Path<u32>| Json(BTreeMap::from([("id", id)]))))
        // Over HTTP/2 a WebSocket is opened with CONNECT, so `get` would not be enough.
        .route("/echo", any(async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(echo)))
        .layer(middleware::map_response(async |mut response: Response| {
            response.headers_mut().insert("x-served-by", HeaderValue::from_static("axum"));
            response
        }))
}

/// Sends each message back.
async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Returns the app. The router answers requests that have no route in Highwire.
pub(crate) fn app() -> App {
    App::new().get("/health", || "fine\n").fallback(tower::service(router()))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
