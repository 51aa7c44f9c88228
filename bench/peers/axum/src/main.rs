//! The peer `peer-axum PORT`: axum on one thread.

use std::{collections::BTreeMap, env, io, net::Ipv4Addr};

use axum::extract::Query;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpSocket;

#[derive(Serialize)]
struct Echo {
    query: BTreeMap<String, String>,
}

fn main() -> io::Result<()> {
    let port: u16 = env::args()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .expect("usage: peer-axum PORT");
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(port))
}

async fn serve(port: u16) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let listener = socket.listen(4096)?.tap_io(|stream| {
        // Usually fails only if the client has already closed the connection.
        let _ = stream.set_nodelay(true);
    });
    let app = Router::new()
        .route("/hello", get(hello))
        .route("/echo", get(echo))
        .route("/json", post(json));
    axum::serve(listener, app).await
}

async fn hello() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain")], "Hello, World!")
}

async fn echo(Query(query): Query<BTreeMap<String, String>>) -> Json<Echo> {
    Json(Echo { query })
}

async fn json(Json(value): Json<serde_json::Value>) -> Json<serde_json::Value> {
    Json(value)
}
