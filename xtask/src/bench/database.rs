//! `cargo xtask bench database`: compares the same application with queries to PostgreSQL and Redis on axum and on Highwire.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::run::{self, Drive};
use super::scenario::Server;
use super::{Comparison, FIRST_PORT, Plan, cargo_build};
use crate::process::{self, POSTGRESQL, REDIS, Running};
use crate::{Error, Result};

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

/// The folder of PostgreSQL's programs, which Debian keeps out of the path.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.pop().ok_or_else(|| Error::Failed("PostgreSQL's programs are not in /usr/lib/postgresql".to_owned()))
}

/// PostgreSQL with a table, in a folder of its own that is removed at the end.
struct Postgresql {
    folder: PathBuf,
    running: Option<run::Served>,
}

impl Drop for Postgresql {
    fn drop(&mut self) {
        self.running = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Postgresql {
    fn start(root: &Path) -> Result<Postgresql> {
        let (programs, folder) =
            (programs()?, std::env::temp_dir().join(format!("highwire-postgresql-{}", std::process::id())));
        let mut postgresql = Postgresql { folder, running: None };
        let folder = postgresql.folder.display().to_string();
        // PostgreSQL refuses to run as root.
        let is_root = process::output(Command::new("id").arg("-u"))?.trim() == "0";
        let user = if is_root { "setpriv --reuid postgres --regid postgres --clear-groups " } else { "" };
        std::fs::create_dir_all(&postgresql.folder).map_err(|error| Error::doing(&folder, error))?;
        if is_root {
            process::output(Command::new("chown").args(["postgres", &folder]))?;
        }
        let line = format!("{user}{}/initdb -D {folder}/data -A trust -U bench", programs.display());
        let words: Vec<&str> = line.split(' ').collect();
        process::output(Command::new(words[0]).args(&words[1..]).current_dir(&postgresql.folder))?;
        let command = format!(
            "{user}{}/postgres -D {folder}/data -k {folder} -p {POSTGRESQL_PORT} -c listen_addresses=127.0.0.1 -c fsync=off",
            programs.display()
        );
        postgresql.running = Some(run::start(root, &Server::new("postgresql", &command, None), POSTGRESQL_PORT)?);
        let script = "CREATE DATABASE bench; \\c bench \\\\ CREATE TABLE messages (id int PRIMARY KEY, message text NOT NULL); \
                      INSERT INTO messages SELECT n, 'message ' || n FROM generate_series(1, 1000) n; ANALYZE";
        let mut psql = Command::new("psql");
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "bench", "-d", "postgres", "-p"]);
        psql.arg(POSTGRESQL_PORT.to_string()).stdin(Stdio::piped());
        feed(psql, &script.replace("\\c bench \\\\", "\n\\c bench\n"))?;
        Ok(postgresql)
    }
}

/// Runs a program with this input.
fn feed(mut command: Command, input: &str) -> Result<()> {
    use std::io::Write;
    let mut running = Running::new(command.spawn().map_err(|error| Error::doing("psql", error))?);
    if let Some(mut stdin) = running.child().stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(|error| Error::doing("psql", error))?;
    }
    let status = running.child().wait().map_err(|error| Error::doing("psql", error))?;
    if status.success() { Ok(()) } else { Err(Error::Failed(format!("psql: {status}"))) }
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
    let _postgresql = Postgresql::start(root)?;
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
