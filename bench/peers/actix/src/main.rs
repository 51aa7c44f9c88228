//! The peer `peer-actix PORT`: actix-web with one worker and its accept thread.

use std::{collections::BTreeMap, env, io, net::Ipv4Addr, time::Duration};

use actix_web::web::{self, Json, Query};
use actix_web::{App, HttpResponse, HttpServer};
use serde::Serialize;

#[derive(Serialize)]
struct Echo {
    query: BTreeMap<String, String>,
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let port: u16 = env::args()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .expect("usage: peer-actix PORT");
    HttpServer::new(|| {
        App::new()
            .route("/hello", web::get().to(hello))
            .route("/echo", web::get().to(echo))
    })
    .workers(1)
    .backlog(4096)
    .tcp_nodelay(true)
    // nginx's default, too. actix-web's default of 5 s would close connections that an open-loop run seldom uses.
    .keep_alive(Duration::from_secs(75))
    // Lets SIGTERM end the process at once, without waiting for the generator's connections.
    .disable_signals()
    .bind((Ipv4Addr::LOCALHOST, port))?
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
