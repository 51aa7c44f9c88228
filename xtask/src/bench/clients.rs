//! `cargo xtask bench clients`: compares clients by the CPU time that a request costs them, against the same server.

use std::path::Path;

use super::run::{free_port, generate, start};
use super::sample::{CPU, Figure, REQUESTS, Sample};
use super::scenario::Server;
use super::table;
use super::{FIRST_PORT, PORTS_TRIED, Plan, cargo_build, folder};
use crate::{Error, Result};

const OUTPUT: &str = "bench/clients.md";

const OPENING: &str = "\
# Clients side by side

`cargo xtask bench clients` made this page. Each figure is the median of the rounds, with the smallest and the largest. The
server, Highwire with one worker, runs on CPU 0 and the client on the last CPU. Each client has one thread, opens its connections
before the clock starts, and reads each body whole. The CPU time is the client's own. The floor knows the length of the response
and parses nothing. The first client ran twice; ignore differences smaller than that between its two rows.
";

const HIGHWIRE: (&str, &str) = ("highwire", "target/release/examples/client_cost URL REQUESTS CONNECTIONS");
const HIGHWIRE_AGAIN: (&str, &str) = ("highwire again", HIGHWIRE.1);
const HYPER: (&str, &str) = ("hyper", "bench/peers/target/release/hyper-client URL REQUESTS CONNECTIONS");
const REQWEST: (&str, &str) = ("reqwest", "bench/peers/target/release/reqwest-client URL REQUESTS CONNECTIONS");
const FLOOR: (&str, &str) = ("floor (io_uring)", "bench/bin/floor_client PORT REQUESTS CONNECTIONS");

/// What the clients do.
struct Task {
    name: &'static str,
    what: &'static str,
    path: &'static str,
    requests: u32,
    connections: u32,
    /// The number of requests at the same time on each connection, over HTTP/2.
    streams: Option<u32>,
    clients: &'static [(&'static str, &'static str)],
}

const TASKS: &[Task] = &[
    Task {
        name: "keep-alive",
        what: "64 connections, one request in flight on each, HTTP/1.1, 13-byte bodies",
        path: "/hello",
        requests: 300_000,
        connections: 64,
        streams: None,
        clients: &[HIGHWIRE, HIGHWIRE_AGAIN, FLOOR, HYPER, REQWEST],
    },
    Task {
        name: "HTTP/2",
        what: "16 connections, 32 requests in flight on each, HTTP/2, 13-byte bodies",
        path: "/hello",
        requests: 500_000,
        connections: 16,
        streams: Some(32),
        clients: &[HIGHWIRE, HIGHWIRE_AGAIN, HYPER],
    },
    Task {
        name: "large bodies",
        what: "100 connections, one request in flight on each, HTTP/1.1, bodies of 2 MB",
        path: "/2m.bin",
        requests: 1_000,
        connections: 100,
        streams: None,
        clients: &[HIGHWIRE, HIGHWIRE_AGAIN, HYPER, REQWEST],
    },
];

/// Returns the server; its folder has the files of the tasks.
fn server() -> Server {
    Server::new("highwire", "target/release/highwire serve DIR/www --listen 127.0.0.1:PORT --workers 1", Some("0"))
}

pub(super) fn prepare(root: &Path) -> Result<()> {
    folder::write_files(root)?;
    super::build_programs(root)?;
    let target = ["--release", "--target-dir"];
    cargo_build(root, &["build", "-p", "highwire-cli", target[0], target[1], "target"])?;
    cargo_build(
        root,
        &[
            "build",
            "-p",
            "highwire",
            "--features",
            "client",
            "--example",
            "client_cost",
            target[0],
            target[1],
            "target",
        ],
    )?;
    let peers = ["--manifest-path", "bench/peers/Cargo.toml"];
    cargo_build(root, &["build", "-p", "clients", peers[0], peers[1], target[0], target[1], "bench/peers/target"])
}

pub(super) fn run(root: &Path, plan: &Plan) -> Result<()> {
    let mut sections = Vec::new();
    for task in TASKS {
        println!("\n## {}\n{}", task.name, task.what);
        let names: Vec<&str> = task.clients.iter().map(|(name, _)| *name).collect();
        let rows = super::in_rounds(&names, plan.rounds, |index| measure(root, task, task.clients[index].1));
        let table = table::render("client", &rows);
        println!("\n{table}");
        let lines = task
            .clients
            .iter()
            .map(|(name, command)| format!("- {name}: `{}`\n", line(task, command, FIRST_PORT).join(" ")));
        let server = server().line(FIRST_PORT).join(" ");
        let body = format!(
            "{}.\n\n{}\n\n{table}\nClients, with the server `{server}`:\n\n{}",
            task.what,
            plan.machine,
            lines.collect::<String>()
        );
        sections.push((task.name.to_owned(), body));
        let page = table::merge(&std::fs::read_to_string(root.join(OUTPUT)).unwrap_or_default(), OPENING, &sections);
        std::fs::write(root.join(OUTPUT), page).map_err(|error| Error::doing(OUTPUT, error))?;
    }
    println!("wrote {OUTPUT}");
    Ok(())
}

/// Returns a client's command line.
fn line(task: &Task, command: &str, port: u16) -> Vec<String> {
    let command = command
        .replace("URL", &format!("http://127.0.0.1:{port}{}", task.path))
        .replace("PORT", &port.to_string())
        .replace("REQUESTS", &task.requests.to_string())
        .replace("CONNECTIONS", &task.connections.to_string());
    let streams = task.streams.map(|streams| format!(" {streams}")).unwrap_or_default();
    format!("{command}{streams}").split(' ').map(str::to_owned).collect()
}

/// Starts the server, runs the client, and reads what it prints.
fn measure(root: &Path, task: &Task, command: &str) -> Result<Sample> {
    let port = free_port((FIRST_PORT..).take(PORTS_TRIED))?;
    let served = start(root, &server(), port)?;
    let (said, _) = generate(root, &line(task, command, port), served.id())?;
    read(&said).ok_or_else(|| Error::Failed(format!("the client printed no figures: {said}")))
}

/// Parses `N requests/s, X us CPU a request, …`.
fn read(said: &str) -> Option<Sample> {
    let (rate, rest) = said.trim().split_once(" requests/s, ")?;
    let (cpu, _) = rest.split_once(" us CPU a request")?;
    let figure = |name, text: &str| Some(Figure { name, value: text.trim().parse().ok()? });
    Some(Sample { figures: vec![figure(REQUESTS, rate)?, figure(CPU, cpu)?], errors: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_clients_print() {
        let sample = read("170000 requests/s, 5.250 us CPU a request, 13000 bytes, 64 connections\n").expect("figures");
        assert_eq!((sample.value(REQUESTS), sample.value(CPU)), (Some(170_000.0), Some(5.25)));
        assert!(read("error: no server").is_none());
    }

    #[test]
    fn clients_are_called_as_they_ask_to_be() {
        let line = |command| line(&TASKS[1], command, 80).join(" ");
        assert_eq!(line(HYPER.1), "bench/peers/target/release/hyper-client http://127.0.0.1:80/hello 500000 16 32");
        assert_eq!(line("a PORT"), "a 80 32");
    }
}
