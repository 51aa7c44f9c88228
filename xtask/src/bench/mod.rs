//! `cargo xtask bench`: measures Highwire side by side with floors (minimal servers) and peers (other servers).
//!
//! Figures from different days or machines cannot be compared, so every round runs each server once, in rotated order.

mod bindings;
mod clients;
mod database;
mod folder;
mod idle;
mod memory;
mod models;
mod plot;
mod proxies;
mod python;
mod run;
mod sample;
mod scenario;
mod table;
mod tls;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use self::run::Drive;
use self::sample::{REQUESTS, Sample};
use self::scenario::{Load, Protocol, Rivals, SCENARIOS, Scenario, Server};
use self::table::Row;
use crate::args::Args;
use crate::process::{self, AB, CURL, GCC, H2LOAD, H2O, LIBEVENT, LIBURING, NGINX, OPENSSL, Tool};
use crate::{Error, Result};

pub(crate) const HELP: &str = "\
Measures Highwire side by side with floors (servers that parse nothing), peers (other servers) and other I/O models.

Usage: cargo xtask bench http   [--scenario NAME]... [--peers NAME,... | --against FILE] [--output FILE] [options]
       cargo xtask bench models [options]
       cargo xtask bench clients [--rounds N]
       cargo xtask bench proxies [--rounds N] [--seconds S]
       cargo xtask bench bindings [--rounds N] [--seconds S]
       cargo xtask bench python [--rounds N] [--seconds S]
       cargo xtask bench database [--rounds N] [--seconds S]
       cargo xtask bench --list

  http     runs the scenarios; writes bench/http.md
  models   compares ways to wait for sockets, with 64, 512 and 10,000 connections; writes bench/models.md and
           bench/models.svg
  clients  compares clients: Highwire's, a floor, hyper and reqwest; writes bench/clients.md
  proxies  compares reverse proxies: Highwire, nginx and HAProxy; writes bench/proxies.md
  bindings compares a hello in C and other languages with that in Rust, and allocators; writes bench/bindings.md
  python   compares servers of Python applications: Highwire, granian, uvicorn and FastPySGI; writes bench/python.md
  database compares handlers with queries to PostgreSQL and Redis on axum and Highwire; writes bench/database.md

Options:
  --rounds N        number of rounds; each runs every server once, in rotated order (default 5)
  --seconds S       how long each measurement lasts, except with ab, h2load and curl (default 3)
  --scenario NAME   a scenario or a group of scenarios (default all); may be given several times
  --peers NAME,...  other servers to run as well: hyper, axum, actix, ntex, may, nginx
  --against FILE    compare two builds: run only Highwire, in turn with the program `highwire` at FILE, which runs twice
  --output FILE     the file of the tables; keeps its sections of other scenarios (default bench/http.md)
  --list            show the scenarios and run nothing

In `http`, the server runs on CPU 0 and the generator on the last CPU, and the first server runs twice: ignore differences
smaller than that between its two rows. If root runs the command, it sets the congestion control to cubic during the run,
because bbr paces even on loopback. Compare CPU time per request.
";

const OPENING: &str = "\
# Highwire side by side

`cargo xtask bench http` made this page. Each figure is the median of the rounds, with the smallest and the largest. The first server
is the floor, if the scenario has one: a program that makes the same system calls and parses nothing. The first server ran twice;
ignore differences smaller than that between its two rows. Compare CPU time per request: requests/s also depend on the generator.
";

/// The folders of the C sources. Each of their .c files is the source of one program.
const PROGRAM_FOLDERS: &[&str] = &["bench/floors", "bench/load", "bench/models"];
/// The folder of the compiled programs.
const PROGRAMS: &str = "bench/bin";

/// The linker flags that a program needs if its source contains the text.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("<liburing.h>", &["-luring"]),
    ("<event2/", &["-levent_core", "-levent_pthreads"]),
    ("<pthread.h>", &["-pthread"]),
    ("<math.h>", &["-lm"]),
];

/// The first port for servers. It is above the usual ports of services and below those of outgoing connections.
const FIRST_PORT: u16 = 18_100;

/// The number of ports to try for a server, because other programs may use some.
const PORTS_TRIED: usize = 64;

/// The settings of a run.
struct Plan {
    rounds: u32,
    seconds: f64,
    /// A description of the machine, the code and the settings, for the page.
    machine: String,
}

/// Makes the programs of a comparison.
type Prepare = fn(&Path) -> Result<()>;

/// Runs a comparison, and writes its page.
type Compare = fn(&Path, &Plan) -> Result<()>;

/// The comparisons that have no choices.
const PAGES: [(&str, Prepare, Compare); 6] = [
    ("models", |root| prepare(root, &[], &Rivals::Peers(&[])), models::run),
    ("clients", clients::prepare, clients::run),
    ("proxies", proxies::prepare, proxies::run),
    ("bindings", bindings::prepare, bindings::run),
    ("python", python::prepare, python::run),
    ("database", database::prepare, database::run),
];

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let list = args.flag("--list");
    let rounds = args.value("--rounds")?.unwrap_or(5).max(1);
    let seconds = args.value("--seconds")?.unwrap_or(3.0);
    let names = args.values("--scenario")?;
    let peers: Vec<String> = args
        .values("--peers")?
        .iter()
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let output: Option<String> = args.value("--output")?;
    let against: Option<String> = args.value("--against")?;
    let kind = args.word();
    if list {
        args.finish()?;
        for scenario in SCENARIOS {
            println!("{:<20} {}", scenario.name, scenario.what);
        }
        println!("{:<20} pipe1 to pipe128, with and without headers", "pipe1..128");
        return Ok(());
    }
    let plan = || Plan { rounds, seconds, machine: machine(root, rounds, seconds) };
    if let Some((name, prepare, run)) = PAGES.iter().find(|(name, ..)| Some(*name) == kind.as_deref()) {
        args.finish()?;
        if !names.is_empty() || !peers.is_empty() || output.is_some() || against.is_some() {
            return Err(Error::Usage(format!("`bench {name}` accepts --rounds and --seconds only")));
        }
        prepare(root)?;
        let _cubic = Cubic::set();
        return run(root, &plan());
    }
    match kind.as_deref() {
        Some("http") => {
            args.finish()?;
            let chosen = scenario::chosen(&names).map_err(|name| {
                Error::Usage(format!("unknown scenario `{name}`; `cargo xtask bench --list` shows them"))
            })?;
            let rivals = match against {
                None => Rivals::Peers(&peers),
                Some(_) if !peers.is_empty() => {
                    return Err(Error::Usage("`bench http` accepts --peers or --against, but not both".into()));
                }
                Some(file) => Rivals::Build(file),
            };
            prepare(root, &chosen, &rivals)?;
            let _cubic = Cubic::set();
            http(root, &plan(), &chosen, &rivals, output.as_deref().unwrap_or("bench/http.md"))
        }
        Some(client @ (idle::HOLD | memory::SIP)) => {
            let usage = || Error::Usage(format!("usage: bench {client} PORT PATH COUNT"));
            let mut next = || args.word().ok_or_else(usage);
            let (port, path, count) = (next()?, next()?, next()?);
            let (port, count) = (port.parse().map_err(|_| usage())?, count.parse().map_err(|_| usage())?);
            if client == idle::HOLD {
                idle::hold_connections(port, &path, count)
            } else {
                memory::sip(port, &path, count)
            }
        }
        _ => Err(Error::Usage(
            "`bench` needs `http`, `models`, `clients`, `proxies`, `bindings`, `python` or `database`; see `cargo xtask bench --help`".into(),
        )),
    }
}

fn http(root: &Path, plan: &Plan, scenarios: &[&Scenario], rivals: &Rivals<'_>, output: &str) -> Result<()> {
    let mut sections = Vec::new();
    for scenario in scenarios {
        println!("\n## {}\n{}", scenario.name, scenario.what);
        let servers = scenario::servers(scenario.entrants, rivals);
        let mut body = format!("{}.\n\n{}\n", scenario.what, plan.machine);
        for (title, drive) in drives(root, scenario, &servers, plan)? {
            let table = table::render("server", &measure_all(root, &servers, scenario.path, drive, plan.rounds));
            println!("\n{title}{table}");
            body.push_str(&format!("\n{title}{table}"));
            if let Some(line) = drive.line(FIRST_PORT, scenario.path) {
                body.push_str(&format!("\nGenerator: `{}`\n", line.join(" ")));
            }
        }
        body.push_str("\nServers:\n\n");
        for server in &servers {
            body.push_str(&format!("- {}: `{}`\n", server.name, server.line(FIRST_PORT).join(" ")));
        }
        sections.push((scenario.name.to_owned(), body));
        // Written after each scenario, so that an interrupted run keeps its results.
        let file = root.join(output);
        let page = table::merge(&std::fs::read_to_string(&file).unwrap_or_default(), OPENING, &sections);
        std::fs::write(&file, page).map_err(|error| Error::doing(output, error))?;
    }
    println!("wrote {output}");
    Ok(())
}

/// Returns the drives of a scenario, each with a title. For constant rates, first measures the peak of every server;
/// the rates are percentages of the lowest peak.
fn drives(root: &Path, scenario: &Scenario, servers: &[Server], plan: &Plan) -> Result<Vec<(String, Drive<'static>)>> {
    let seconds = plan.seconds;
    let Load::Rate { connections, percents } = scenario.load else {
        return Ok(Drive::of(scenario.load, seconds).map(|drive| (String::new(), drive)).into_iter().collect());
    };
    println!("measuring the peak of each server first");
    let closed = Drive::Closed { connections, depth: 1, headers: false, seconds };
    let rows = measure_all(root, servers, scenario.path, closed, 1);
    let slowest = rows.iter().filter_map(|row| row.median(REQUESTS)).fold(f64::INFINITY, f64::min);
    if !slowest.is_finite() {
        return Err(Error::Failed(format!("{}: no server could be measured", scenario.name)));
    }
    let drive = |percent: &u32| {
        let rate = slowest * f64::from(*percent) / 100.0;
        let title = format!("{percent} % of the slowest's peak, {} requests/s:\n\n", table::number(rate));
        (title, Drive::Rate { connections, rate, seconds })
    };
    Ok(percents.iter().map(drive).collect())
}

/// A page with a table for each task.
struct Comparison<'a> {
    root: &'a Path,
    plan: &'a Plan,
    output: &'a str,
    opening: &'a str,
    sections: Vec<(String, String)>,
}

impl<'a> Comparison<'a> {
    fn new(root: &'a Path, plan: &'a Plan, output: &'a str, opening: &'a str) -> Self {
        Self { root, plan, output, opening, sections: Vec::new() }
    }

    /// Measures the servers of a task by turns, and writes the page. `kind` is what the table calls a server, and `title` comes
    /// before the list of their commands.
    #[expect(clippy::too_many_arguments, reason = "they are the columns of the callers' tables of tasks")]
    fn add(
        &mut self,
        name: &str,
        what: &str,
        kind: &str,
        servers: &[Server],
        path: &str,
        drive: Drive<'_>,
        title: &str,
        measure: impl Fn(&Path, &Server, u16, &str, Drive<'_>) -> Result<Sample>,
    ) -> Result<()> {
        println!("\n## {name}\n{what}");
        let rows = by_turns(servers, self.plan.rounds, |server, port| measure(self.root, server, port, path, drive));
        let table = table::render(kind, &rows);
        println!("\n{table}");
        let generator = drive.line(FIRST_PORT, path).unwrap_or_default().join(" ");
        let lines =
            servers.iter().map(|server| format!("- {}: `{}`\n", server.name, server.line(FIRST_PORT).join(" ")));
        let body = format!(
            "{what}.\n\n{}\n\n{table}\nGenerator: `{generator}`\n\n{title}:\n\n{}",
            self.plan.machine,
            lines.collect::<String>()
        );
        self.sections.push((name.to_owned(), body));
        // Written after each task, so that an interrupted run keeps its results.
        let file = self.root.join(self.output);
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, table::merge(&before, self.opening, &self.sections))
            .map_err(|error| Error::doing(self.output, error))
    }
}

/// Runs every server once per round, in rotated order. A server that fails is left out of the next rounds, and the
/// reason is kept.
fn measure_all(root: &Path, servers: &[Server], path: &str, drive: Drive<'_>, rounds: u32) -> Vec<Row> {
    by_turns(servers, rounds, |server, port| run::measure(root, server, port, path, drive))
}

/// Calls `measure` with every server and a free port once per round, in rotated order.
fn by_turns(servers: &[Server], rounds: u32, measure: impl Fn(&Server, u16) -> Result<Sample>) -> Vec<Row> {
    let names: Vec<&str> = servers.iter().map(|server| &*server.name).collect();
    in_rounds(&names, rounds, |index| {
        // Each server gets another port, because connections of the previous server may linger.
        let ports = (FIRST_PORT + index as u16..).step_by(servers.len()).take(PORTS_TRIED);
        run::free_port(ports).and_then(|port| measure(&servers[index], port))
    })
}

/// Calls `measure` once for each name in every round, in rotated order, and prints the figures. A name whose measurement has
/// failed is not measured again.
fn in_rounds(names: &[&str], rounds: u32, mut measure: impl FnMut(usize) -> Result<Sample>) -> Vec<Row> {
    let row = |name: &&str| Row { name: (*name).to_owned(), samples: Vec::new(), failure: None };
    let mut rows: Vec<Row> = names.iter().map(row).collect();
    for round in 0..rounds as usize {
        for turn in 0..rows.len() {
            let index = (turn + round) % rows.len();
            let row = &mut rows[index];
            if row.failure.is_some() {
                continue;
            }
            match measure(index) {
                Ok(sample) => {
                    let figures =
                        sample.figures.iter().map(|figure| format!("{} {}", table::number(figure.value), figure.name));
                    println!(
                        "round {}: {}: {} {}",
                        round + 1,
                        row.name,
                        figures.collect::<Vec<_>>().join(", "),
                        sample.errors.join("; ")
                    );
                    row.samples.push(sample);
                }
                Err(error) => {
                    let reason = error.reason();
                    println!("round {}: {}: {reason}", round + 1, row.name);
                    row.failure = Some(reason);
                }
            }
        }
    }
    rows
}

/// Installs and builds the programs that the run needs.
fn prepare(root: &Path, scenarios: &[&Scenario], rivals: &Rivals<'_>) -> Result<()> {
    let needs = |tool: Tool| tool.ensure().map_err(Error::Failed);
    for tool in scenarios.iter().flat_map(|scenario| tools(scenario.load)) {
        needs(*tool)?;
    }
    let of_scenarios = || scenarios.iter().flat_map(|scenario| scenario.entrants).filter_map(|entrant| entrant.peer());
    // The requested peers, and those that the scenarios always contain.
    let mut peers: Vec<&str> = match rivals {
        Rivals::Peers(requested) => requested.iter().map(String::as_str).chain(of_scenarios()).collect(),
        Rivals::Build(_) => Vec::new(),
    };
    peers.sort_unstable();
    peers.dedup();
    if peers.contains(&"nginx") {
        needs(NGINX)?;
    }
    folder::write_files(root)?;
    build_programs(root)?;
    // The target folder is fixed, because the servers' command lines contain it.
    cargo_build(root, &["build", "--release", "--target-dir", "target"])?;
    let built: Vec<String> = peers
        .iter()
        .filter(|peer| **peer != "nginx")
        .flat_map(|peer| ["-p".to_owned(), format!("peer-{peer}")])
        .collect();
    if !built.is_empty() {
        let mut words = vec![
            "build",
            "--release",
            "--manifest-path",
            "bench/peers/Cargo.toml",
            "--target-dir",
            "bench/peers/target",
        ];
        words.extend(built.iter().map(String::as_str));
        cargo_build(root, &words)?;
    }
    Ok(())
}

/// Returns the system's programs that a load needs for its clients and servers.
fn tools(load: Load) -> &'static [Tool] {
    match load {
        Load::Ab(_) => &[AB],
        Load::H2load { .. } => &[H2LOAD, H2O, NGINX, OPENSSL],
        Load::Handshakes { .. } => &[NGINX, OPENSSL],
        Load::Download { .. } => &[CURL, NGINX, OPENSSL],
        Load::Idle { protocol: Protocol::Http1Tls | Protocol::Http2Tls, .. } => &[H2LOAD, NGINX, OPENSSL],
        Load::Upload { .. } => &[CURL],
        Load::Closed { .. }
        | Load::Post { .. }
        | Load::Echo { .. }
        | Load::Rate { .. }
        | Load::SlowReaders { .. }
        | Load::Idle { protocol: Protocol::Http1, .. } => &[],
    }
}

fn cargo_build(root: &Path, words: &[&str]) -> Result<()> {
    process::run_shown(Command::new("cargo").current_dir(root).args(words))
}

/// Compiles each of the floors, the generator and the model servers that is missing or older than its source or a
/// header. Returns the names of all of these programs.
pub(crate) fn build_programs(root: &Path) -> Result<Vec<String>> {
    for tool in [GCC, LIBURING, LIBEVENT] {
        tool.ensure().map_err(Error::Failed)?;
    }
    let sources: Vec<String> = PROGRAM_FOLDERS
        .iter()
        .flat_map(|folder| {
            let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
            entries.map(move |entry| format!("{folder}/{}", entry.file_name().to_string_lossy()))
        })
        .collect();
    // All programs are rebuilt if any header changes, because there are few headers.
    let modified = |path: &str| std::fs::metadata(root.join(path)).and_then(|metadata| metadata.modified()).ok();
    let newest_header = sources.iter().filter(|path| path.ends_with(".h")).filter_map(|path| modified(path)).max();
    std::fs::create_dir_all(root.join(PROGRAMS)).map_err(|error| Error::doing(PROGRAMS, error))?;
    let mut names = Vec::new();
    for source in sources.iter().filter(|path| path.ends_with(".c")) {
        let name = source.rsplit('/').next().unwrap_or(source).trim_end_matches(".c");
        let program = format!("{PROGRAMS}/{name}");
        names.push(name.to_owned());
        if modified(&program) > modified(source).max(newest_header) {
            continue;
        }
        let text = std::fs::read_to_string(root.join(source)).map_err(|error| Error::doing(source, error))?;
        let mut command = Command::new("gcc");
        command.current_dir(root).args(["-O3", "-march=native", "-Wall", "-Wextra", source, "-o", &program]);
        for (include, flags) in LIBRARIES {
            if text.contains(include) {
                command.args(*flags);
            }
        }
        println!("{}", process::shown(&command));
        process::output(&mut command)?;
    }
    Ok(names)
}

/// Returns a description of the machine, the code and the length of the run.
fn machine(root: &Path, rounds: u32, seconds: f64) -> String {
    let cpu = process::read_field(Path::new("/proc/cpuinfo"), "model name").unwrap_or_default();
    let cpu = cpu.trim_start_matches([':', ' ', '\t']).to_owned();
    let first_line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let commit = process::output(Command::new("git").current_dir(root).args(["describe", "--always", "--dirty"]));
    format!(
        "{cpus} CPUs, {cpu}, Linux {}, {}; Highwire {}; {rounds} x {seconds} s, interleaved.",
        first_line("/proc/sys/kernel/osrelease"),
        first_line(CONGESTION),
        commit.map_or("of an unknown commit".into(), |text| text.trim().to_owned()),
    )
}

const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Sets the system's congestion control to cubic until the value is dropped, if root runs the command.
///
/// A shell process restores the old setting when its standard input ends, which also happens if a signal kills xtask.
struct Cubic {
    restorer: Option<Child>,
}

impl Cubic {
    fn set() -> Self {
        const RESTORE: &str = r#"trap "" INT TERM HUP; cat >/dev/null; echo "$1" > "$2""#;
        let old = std::fs::read_to_string(CONGESTION).unwrap_or_default().trim().to_owned();
        if old == "cubic" {
            return Self { restorer: None };
        }
        if !process::is_root() {
            println!(
                "congestion control: {old}; only root can change it. Figures of bbr and cubic must not be compared"
            );
            return Self { restorer: None };
        }
        let restorer = Command::new("sh")
            .args(["-c", RESTORE, "sh", &old, CONGESTION])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok();
        if restorer.is_some() && std::fs::write(CONGESTION, "cubic\n").is_ok() {
            println!("congestion control: cubic instead of {old} during the run");
        }
        Self { restorer }
    }
}

impl Drop for Cubic {
    fn drop(&mut self) {
        if let Some(restorer) = &mut self.restorer {
            drop(restorer.stdin.take());
            let _ = restorer.wait();
        }
    }
}
