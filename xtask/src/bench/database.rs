//! `cargo xtask bench database`: compares the same application with queries to PostgreSQL and Redis on axum and on Highwire.

use std::path::Path;
use std::process::Command;

use super::run::{self, Drive};
use super::scenario::Server;
use super::{Comparison, FIRST_PORT, Plan, cargo_build};
use crate::process::{self, POSTGRESQL, REDIS};
use crate::{Error, Result};
use testkit::postgresql::Postgresql;

const OUTPUT: &str = "bench/database.md";

const OPENING: &str = "\
# Queries to databases, and the same router, on axum and on Highwire

`cargo xtask bench database` made this page. Each figure is the median of the rounds, with the smallest and the largest. The servers
run the same queries by the same library, sqlx or a socket of tokio, with a pool of 32 connections (bench/peers/database). With one
worker, the server runs on CPU 0 and the generator on the last CPU; with two, all programs share the CPUs. The CPU time is the
server's own, without that of the databases. The first server ran twice; ignore differences smaller than that between its two rows.
";

const POSTGRESQL_PORT: u16 = FIRST_PORT - 2;
const REDIS_PORT: u16 = FIRST_PORT - 3;

/// The body of a request with JSON.
const ORDER: &str = "bench/scripts/order.json";

/// What the clients request.
struct Task {
    name: &'static str,
    what: &'static str,
    path: &'static str,
    workers: u16,
}

const TASKS: &[Task] = &[
    Task { name: "hello", what: "no query, 64 connections, one worker", path: "/hello", workers: 1 },
    Task { name: "ping", what: "a PING to Redis, 64 connections, one worker", path: "/ping", workers: 1 },
    Task { name: "row", what: "a SELECT of one row, 64 connections, one worker", path: "/row", workers: 1 },
    Task {
        name: "row of two workers",
        what: "a SELECT of one row, 64 connections, two workers",
        path: "/row",
        workers: 2,
    },
];

fn server(name: &str, program: &str, workers: u16) -> Server {
    let command =
        format!("bench/peers/target/release/database-{program} PORT {workers} {POSTGRESQL_PORT} {REDIS_PORT}");
    Server::new(name, &command, (workers == 1).then_some("0"))
}

/// Starts PostgreSQL with a table.
fn start_postgresql() -> Result<Postgresql> {
    let failed = |error: std::io::Error| Error::Failed(error.to_string());
    let postgresql = Postgresql::start(POSTGRESQL_PORT).map_err(failed)?;
    let mut psql = Command::new("psql");
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", &postgresql.url(), "-c"]);
    psql.arg(
        "CREATE TABLE messages (id int PRIMARY KEY, message text NOT NULL); \
         INSERT INTO messages SELECT n, 'message ' || n FROM generate_series(1, 1000) n; ANALYZE messages",
    );
    process::output(&mut psql)?;
    Ok(postgresql)
}

pub(super) fn prepare(root: &Path) -> Result<()> {
    for tool in [POSTGRESQL, REDIS] {
        tool.ensure().map_err(Error::Failed)?;
    }
    super::build_programs(root)?;
    cargo_build(root, &["build", "--release", "--manifest-path", "bench/peers/Cargo.toml", "-p", "database"])
}

pub(super) fn run(root: &Path, plan: &Plan) -> Result<()> {
    let redis = format!("redis-server --port {REDIS_PORT} --bind 127.0.0.1 --save  --appendonly no");
    let _postgresql = start_postgresql()?;
    let _redis = run::start(root, &Server::new("redis", &redis, None), REDIS_PORT)?;
    let mut comparison = Comparison::new(root, plan, OUTPUT, OPENING);
    let routers = [("axum::serve", "axum"), ("axum::serve again", "axum"), ("tower::serve", "highwire")];
    let routers = routers.map(|(name, program)| {
        Server::new(name, &format!("bench/peers/target/release/router-{program} PORT"), Some("0"))
    });
    for (name, what, path, drive) in [
        ("router hello", "a router of axum, 64 connections, one worker", "/hello", None),
        (
            "router JSON",
            "a router of axum that parses and writes JSON, 64 connections, one worker",
            "/json",
            Some(ORDER),
        ),
    ] {
        let drive = match drive {
            None => Drive::Closed { connections: 64, depth: 1, headers: false, seconds: plan.seconds },
            Some(file) => Drive::Post { connections: 64, file, seconds: plan.seconds },
        };
        comparison.add(name, what, "server", &routers, path, drive, "Servers", run::measure)?;
    }
    for task in TASKS {
        let servers = [("axum", "axum"), ("axum again", "axum"), ("highwire", "highwire")]
            .map(|(name, program)| server(name, program, task.workers));
        let drive = Drive::Closed { connections: 64, depth: 1, headers: false, seconds: plan.seconds };
        comparison.add(task.name, task.what, "server", &servers, task.path, drive, "Servers", run::measure)?;
    }
    println!("wrote {OUTPUT}");
    Ok(())
}
