//! The peer `peer-ntex PORT`: ntex with one worker on ntex's own io_uring runtime, which always sets TCP_NODELAY.

use std::{collections::BTreeMap, env, io};

use ntex::SharedCfg;
use ntex::http::HttpServiceConfig;
use ntex::time::Seconds;
use ntex::web::types::{Json, Query};
use ntex::web::{self, App, HttpResponse, HttpServer};
use serde::Serialize;

#[derive(Serialize)]
struct Echo {
    query: BTreeMap<String, String>,
}

#[ntex::main]
async fn main() -> io::Result<()> {
    let port: u16 = env::args()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .expect("usage: peer-ntex PORT");
    HttpServer::new(async || {
        App::new()
            .route("/hello", web::get().to(hello))
            .route("/echo", web::get().to(echo))
    })
    .workers(1)
    .backlog(4096)
    // nginx's default, too. ntex's default of 5 s would close connections that an open-loop run seldom uses.
    .config(SharedCfg::new("peer").add(HttpServiceConfig::new().set_keepalive(Seconds(75))))
    // Lets SIGTERM end the process at once, without waiting for the generator's connections.
    .disable_signals()
    .bind(("127.0.0.1", port))?
    .run()
    .await
}

async fn hello() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain")
        .body("Hello, World!")
}

async fn echo(Query(query): Query<BTreeMap<String, String>>) -> Json<Echo> {
    Json(Echo { query })
}
