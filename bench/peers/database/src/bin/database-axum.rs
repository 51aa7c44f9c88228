//! `database-axum`: the application on axum, with a tokio runtime of as many threads as there are workers.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use database::{Arguments, Redis};
use sqlx::postgres::PgPool;
use std::sync::Arc;
use tokio::net::TcpListener;

#[derive(Clone)]
struct Shared {
    pool: PgPool,
    redis: Arc<Redis>,
}

fn main() {
    let arguments = Arguments::read();
    let mut builder = match arguments.workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(arguments.workers).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let shared =
            Shared { pool: database::pool(arguments.postgresql), redis: Arc::new(Redis::new(arguments.redis)) };
        let app = Router::new()
            .route("/hello", get(async || "Hello, World!"))
            .route("/row", get(async |State(shared): State<Shared>| database::row(&shared.pool).await))
            .route("/ping", get(async |State(shared): State<Shared>| shared.redis.ping().await))
            .with_state(shared);
        let listener = TcpListener::bind(("127.0.0.1", arguments.port)).await.expect("a listener");
        axum::serve(listener, app).await.expect("a server");
    });
}
