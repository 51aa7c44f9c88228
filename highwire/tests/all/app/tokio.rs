//! Tests libraries that need tokio, inside handlers: a database query through sqlx, and a request through reqwest to
//! the server itself.
//!
//! Needs a real kernel, because tokio has its own sockets, threads and timers.

use crate::engines;
use highwire::server::Engine;
use highwire::testing::Client;
use highwire::{App, Authority, PerWorker};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use std::net::TcpStream;
use std::time::Duration;
use testkit::http1::{self, Http1};

/// The longest time that a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of connections at once. There are more connections than workers, so handlers of one worker wait at the
/// same time.
const CONNECTIONS: usize = 8;

/// The number of requests of each kind on each connection.
const ROUNDS: usize = 5;

/// Returns a database in memory. It lasts only as long as its connection, so the pool keeps exactly one connection.
fn database() -> SqlitePool {
    let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    options.connect_lazy("sqlite::memory:").expect("an address that sqlx accepts")
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client")
}

/// Writes some rows and sums them up, in a transaction that is rolled back.
async fn sum(PerWorker(database): PerWorker<SqlitePool>) -> String {
    let mut transaction = database.begin().await.expect("a transaction");
    sqlx::query("create table numbers (number integer)").execute(&mut *transaction).await.expect("a table");
    for number in 1..=10_i64 {
        let insert = sqlx::query("insert into numbers values (?)").bind(number);
        insert.execute(&mut *transaction).await.expect("a row");
    }
    let sum: i64 =
        sqlx::query_scalar("select sum(number) from numbers").fetch_one(&mut *transaction).await.expect("a sum");
    transaction.rollback().await.expect("an end");
    sum.to_string()
}

async fn fetch(PerWorker(client): PerWorker<reqwest::Client>, Authority(authority): Authority) -> String {
    let answer = client.get(format!("http://{authority}/hello")).send().await.expect("an answer");
    format!("{} {}", answer.status().as_u16(), answer.text().await.expect("its body"))
}

/// Sends a request to `/sum`, which queries the database.
async fn fetch_sum(PerWorker(client): PerWorker<reqwest::Client>, Authority(authority): Authority) -> String {
    let answer = client.get(format!("http://{authority}/sum")).send().await.expect("an answer");
    answer.text().await.expect("its body")
}

async fn spawned() -> String {
    let task = tokio::spawn(async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        "spawned"
    });
    task.await.expect("a task that ends").to_string()
}

fn app() -> App {
    // The pool and the client are made on the worker's thread, so they find the runtime that is entered there.
    App::new()
        .per_worker(database)
        .per_worker(client)
        .get("/hello", || "Hello, World!")
        .get("/sum", sum)
        .get("/fetch", fetch)
        .get("/fetch-sum", fetch_sum)
        .get("/spawned", spawned)
}

/// GETs a path on a persistent connection. Returns the body.
fn get(client: &mut Http1<TcpStream>, path: &str) -> String {
    let host = client.stream().peer_addr().expect("a connected socket");
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).expect("the server reads");
    let response = client.response().expect("a response");
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.text().to_string()
}

fn check(engine: Engine, workers: usize) {
    let app = app().configure(|config| {
        config.engine = engine;
        config.workers = workers;
    });
    let handle = app.listen("127.0.0.1:0").and_then(|server| server.start()).expect("a server that starts");
    let address = handle.addresses()[0].clone();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = Http1::new(http1::connect(&address));
                for _ in 0..ROUNDS {
                    assert_eq!(get(&mut client, "/sum"), "55");
                    assert_eq!(get(&mut client, "/fetch"), "200 Hello, World!");
                    assert_eq!(get(&mut client, "/fetch-sum"), "55");
                    assert_eq!(get(&mut client, "/spawned"), "spawned");
                }
            });
        }
    });
    handle.shutdown();
    handle.join().expect("a server that ends");
}

/// With one worker, the worker sends requests to itself, so it must not block while it waits.
#[test]
fn on_readiness() {
    check(Engine::Readiness, 1);
    check(Engine::Readiness, 2);
}

#[test]
fn on_threads() {
    check(Engine::Threads, 1);
}

#[test]
fn under_test_also_within_a_runtime() {
    let ask = || {
        let mut client = Client::new(app()).expect("an app");
        assert_eq!(client.get("/sum").send().text(), "55");
        assert_eq!(client.get("/spawned").send().text(), "spawned");
    };
    ask();
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(async { ask() });
}

#[test]
fn on_uring() {
    if engines::has(Engine::Uring) {
        check(Engine::Uring, 1);
        check(Engine::Uring, 2);
    }
}
