//! Work after the response, for which a shutdown waits.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;

async fn order(State(tasks): State<TaskTracker>) -> StatusCode {
    tasks.spawn(async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tracing::info!("the mail is sent");
    });
    StatusCode::ACCEPTED
}

async fn stopped() {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

pub async fn run() -> std::io::Result<()> {
    let tasks = TaskTracker::new();
    let app = Router::new().route("/orders", post(order)).with_state(tasks.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;
    tasks.close();
    let _ = tokio::time::timeout(Duration::from_secs(30), tasks.wait()).await;
    Ok(())
}
