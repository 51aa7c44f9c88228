//! `cargo xtask bench models`: compares servers that send the same small answer but wait for their sockets in different
//! ways.

use std::path::Path;

use super::plot::{Chart, svg};
use super::run::Drive;
use super::sample::REQUESTS;
use super::scenario::Server;
use super::table::{self, Row};
use super::{Plan, measure_all};
use crate::{Error, Result};

/// The name and the command (with `PORT`) of each server. Each has two workers and shares all CPUs with the generator.
const MODELS: &[(&str, &str)] = &[
    (
        "a thread for each connection (highwire)",
        "target/release/highwire demo --listen 127.0.0.1:PORT --workers 2 --engine threads",
    ),
    (
        "acceptor hands over (highwire)",
        "target/release/highwire demo --listen 127.0.0.1:PORT --workers 2 --engine readiness --balance handoff",
    ),
    (
        "a listener for each worker (highwire)",
        "target/release/highwire demo --listen 127.0.0.1:PORT --workers 2 --engine readiness",
    ),
    ("io_uring (highwire)", "target/release/highwire demo --listen 127.0.0.1:PORT --workers 2 --engine uring"),
    ("epoll over blocking sockets", "bench/bin/blocking_epoll PORT 2"),
    ("libevent", "bench/bin/libevent PORT 2"),
];

const CONNECTIONS: &[u32] = &[64, 512, 10_000];

const OPENING: &str = "\
# I/O models side by side

`cargo xtask bench models` made this page and its chart, models.svg. Every server answers the same small request with two workers,
one request in flight on each connection; all connections are established before the clock starts. Server and generator share the
machine's CPUs, so requests/s depend on both; CPU time per request is the server's own. If a model leaves connections without an
answer, the column errors shows that, and the model's requests/s are those of the connections that it served.

![Requests per second of each model](models.svg)
";

pub(super) fn run(root: &Path, plan: &Plan) -> Result<()> {
    let servers: Vec<Server> = MODELS.iter().map(|(name, command)| Server::new(name, command, None)).collect();
    let mut sections = Vec::new();
    let mut groups = Vec::new();
    for &connections in CONNECTIONS {
        let title = format!("{} connections", table::grouped(&connections.to_string()));
        println!("\n## {title}");
        let drive = Drive::Closed { connections, depth: 1, headers: false, seconds: plan.seconds };
        let rows = measure_all(root, &servers, "/hello", drive, plan.rounds);
        let body = format!("{}\n\n{}", plan.machine, table::render("server", &rows));
        println!("\n{}", table::render("server", &rows));
        sections.push((title.clone(), body));
        groups.push((title, rows.iter().map(|row: &Row| row.median(REQUESTS)).collect()));
    }
    let chart = Chart {
        title: "Requests per second by I/O model",
        axis: "requests/s, median",
        series: MODELS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        groups,
    };
    for (file, text) in [("bench/models.md", table::merge("", OPENING, &sections)), ("bench/models.svg", svg(&chart))] {
        std::fs::write(root.join(file), text).map_err(|error| Error::doing(file, error))?;
        println!("wrote {file}");
    }
    Ok(())
}
