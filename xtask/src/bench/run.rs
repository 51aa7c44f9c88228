//! Performs one measurement: starts a server, runs a generator against it, and reads the figures.
//!
//! Most scenarios compare servers by CPU time per request. Requests per second also depend on the generator, which
//! usually runs on another core.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::idle::{self, Client};
use super::memory;
use super::sample::{CPU, Figure, REQUESTS, START, Sample, field, generator_cpu, pinned};
use super::scenario::{Load, Protocol, Server};
use super::tls;
use crate::process::{self, Running};
use crate::{Error, Result};

/// The interval between checks of a server that does not listen yet.
const GLANCE: Duration = Duration::from_millis(20);

/// A file with the header lines that bench/scripts/pipeline_headers.lua sends, too.
const HEADERS: &str = "bench/scripts/headers.txt";

/// The latencies at a constant rate: their names in the generator's output, and the names of the figures.
const PERCENTILES: &[(&str, &str)] =
    &[("p50", "p50 µs"), ("p90", "p90 µs"), ("p99", "p99 µs"), ("p999", "p99.9 µs"), ("max", "max µs")];

/// A load with its concrete parameters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Drive<'a> {
    Closed { connections: u32, depth: u32, headers: bool, seconds: f64 },
    Rate { connections: u32, rate: f64, seconds: f64 },
    Post { connections: u32, file: &'a str, seconds: f64 },
    Echo { connections: u32, bytes: u32, seconds: f64 },
    Ab(&'a str),
    H2load { options: &'a str, tls: bool },
    Handshakes { resumed: bool, seconds: f64 },
    Download { version: &'a str },
    Idle { connections: u32, warm_up: u32, protocol: Protocol },
    Upload { bytes: u64 },
    SlowReaders { connections: u32, seconds: f64 },
}

impl Drive<'static> {
    /// Returns the drive of a load, or `None` for a constant rate, which has one drive per percentage.
    pub(super) fn of(load: Load, seconds: f64) -> Option<Self> {
        match load {
            Load::Closed { connections, depth, headers } => Some(Self::Closed { connections, depth, headers, seconds }),
            Load::Post { connections, file } => Some(Self::Post { connections, file, seconds }),
            Load::Echo { connections, bytes } => Some(Self::Echo { connections, bytes, seconds }),
            Load::Ab(options) => Some(Self::Ab(options)),
            Load::H2load { options, tls } => Some(Self::H2load { options, tls }),
            Load::Handshakes { resumed } => Some(Self::Handshakes { resumed, seconds }),
            Load::Download { version } => Some(Self::Download { version }),
            Load::Idle { connections, warm_up, protocol } => Some(Self::Idle { connections, warm_up, protocol }),
            Load::Upload { bytes } => Some(Self::Upload { bytes }),
            Load::SlowReaders { connections } => Some(Self::SlowReaders { connections, seconds }),
            Load::Rate { .. } => None,
        }
    }
}

impl Drive<'_> {
    /// Returns the generator's command line, or `None` if xtask itself is the client.
    pub(super) fn line(&self, port: u16, path: &str) -> Option<Vec<String>> {
        let line = match *self {
            Self::Closed { connections, depth, headers, seconds } => {
                let headers = if headers { format!(" {HEADERS}") } else { String::new() };
                format!("bench/bin/load {port} {path} {connections} {depth} {seconds}{headers}")
            }
            Self::Rate { connections, rate, seconds } => {
                format!("bench/bin/load {port} {path} {connections} 1 {seconds} --rate {rate:.0}")
            }
            Self::Post { connections, file, seconds } => {
                format!("bench/bin/load {port} {path} {connections} 1 {seconds} --post {file}")
            }
            Self::Echo { connections, bytes, seconds } => {
                format!("bench/bin/wsload {port} {path} {connections} {bytes} {seconds}")
            }
            Self::Ab(options) => format!("ab {options} http://127.0.0.1:{port}{path}"),
            Self::H2load { options, tls } => {
                let scheme = if tls { "https" } else { "http" };
                format!("h2load {options} {scheme}://127.0.0.1:{port}{path}")
            }
            Self::Handshakes { resumed, seconds } => tls::handshakes_line(port, path, resumed, seconds),
            Self::Download { version } => tls::download_line(port, path, version),
            Self::Upload { .. } => memory::upload_line(port, path),
            Self::Idle { .. } | Self::SlowReaders { .. } => return None,
        };
        Some(line.split(' ').map(str::to_owned).collect())
    }
}

/// Starts the server, runs the load and stops the server.
pub(super) fn measure(root: &Path, server: &Server, port: u16, path: &str, drive: Drive<'_>) -> Result<Sample> {
    let running = start(root, server, port)?;
    match drive {
        Drive::Idle { connections, warm_up, protocol } => {
            idle::measure(running.id(), Client { protocol, port, path }, connections, warm_up)
        }
        Drive::SlowReaders { connections, seconds } => {
            memory::measure_readers(running.id(), port, path, connections, seconds)
        }
        _ => {
            let line = drive.line(port, path).unwrap_or_default();
            // The first download, which is not measured, brings the file into memory if the server sends one.
            if let Drive::Download { .. } = drive {
                generate(root, &line, running.id())?;
            }
            if let Drive::Upload { bytes } = drive {
                memory::make_upload(root, bytes)?;
            }
            let (said, cpu_seconds) = generate(root, &line, running.id())?;
            match drive {
                Drive::Upload { bytes } => memory::read_upload(&said, cpu_seconds, bytes, running.id()),
                _ => read_sample(&said, cpu_seconds, drive),
            }
        }
    }
}

/// Runs a load that needs nothing but the generator against a running server.
pub(super) fn drive(root: &Path, running: &Served, port: u16, path: &str, drive: Drive<'_>) -> Result<Sample> {
    let (said, cpu_seconds) = generate(root, &drive.line(port, path).unwrap_or_default(), running.id())?;
    read_sample(&said, cpu_seconds, drive)
}

fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Returns the first of these ports without a listener. With SO_REUSEPORT, two servers on one port would share the
/// connections.
pub(super) fn free_port(mut ports: impl Iterator<Item = u16>) -> Result<u16> {
    ports
        .find(|&port| !listens(port))
        .ok_or_else(|| Error::Failed("other programs listen on all ports for servers; end them".into()))
}

pub(super) fn start(root: &Path, server: &Server, port: u16) -> Result<Served> {
    let folder = Folder::for_server(root, server, port)?;
    let line: Vec<String> = server.line(port).iter().map(|word| word.replace("DIR", &folder.shown())).collect();
    let mut command = pinned(root, server.cpus.as_deref(), &line);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut running = Running::new(child.map_err(|error| Error::doing(&server.name, error))?);
    let until = Instant::now() + START;
    while !listens(port) {
        if running.has_ended() || Instant::now() > until {
            let mut said = String::new();
            if running.has_ended()
                && let Some(stderr) = &mut running.child().stderr
            {
                let _ = stderr.read_to_string(&mut said);
            }
            let last = said.lines().last().unwrap_or("no message");
            return Err(Error::Failed(format!("the server ended, or did not listen within 20 s: {last}")));
        }
        sleep(GLANCE);
    }
    // Reads and drops further messages, so that the server cannot block on a full pipe.
    if let Some(stderr) = running.child().stderr.take() {
        std::thread::spawn(move || std::io::copy(&mut BufReader::new(stderr), &mut std::io::sink()));
    }
    Ok(Served { running, _folder: folder })
}

/// A running server and its folder.
pub(super) struct Served {
    running: Running,
    _folder: Folder,
}

impl Served {
    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }
}

/// Runs the generator to its end. Returns the generator's output and the server's CPU time meanwhile, in seconds.
///
/// Our generator prints `Connections: N` when all connections are established, and then starts its clock. The CPU time
/// counts from that line, so it does not contain the time to accept the connections. With other generators, the CPU
/// time and the printed figures both contain that time.
pub(super) fn generate(root: &Path, line: &[String], server: u32) -> Result<(String, f64)> {
    let mut command = pinned(root, Some(&generator_cpu()), line);
    let child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| Error::doing(&line[0], error))?;
    let mut running = Running::new(child);
    let stderr = running.child().stderr.take();
    let complaints = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    });
    let mut before = process::cpu_seconds(server);
    let mut after = before;
    let mut said = String::new();
    if let Some(stdout) = running.child().stdout.take() {
        for text in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
            if text.starts_with("Connections:") {
                before = process::cpu_seconds(server);
            } else if text.starts_with("Requests/sec:") {
                after = process::cpu_seconds(server);
            }
            said.push_str(&text);
            said.push('\n');
        }
    }
    if after == before {
        after = process::cpu_seconds(server);
    }
    let status = running.child().wait().map_err(|error| Error::doing(&line[0], error))?;
    let complaints = complaints.join().unwrap_or_default();
    if status.success() {
        Ok((said, after - before))
    } else {
        let last = complaints.lines().last().unwrap_or("the generator printed no reason");
        Err(Error::Failed(last.to_owned()))
    }
}

/// Parses the figures in a generator's output.
fn read_sample(said: &str, cpu_seconds: f64, drive: Drive<'_>) -> Result<Sample> {
    match drive {
        Drive::Handshakes { resumed, .. } => tls::read_handshakes(said, cpu_seconds, resumed),
        Drive::Download { version } => tls::read_download(said, cpu_seconds, version),
        _ => read_requests(said, cpu_seconds, drive),
    }
}

/// Parses the output of generators that count requests.
fn read_requests(said: &str, cpu_seconds: f64, drive: Drive<'_>) -> Result<Sample> {
    let number = |label: &str| field(said, label).and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    let rate = number("Requests/sec:").or_else(|| number("Requests per second:")).or_else(|| h2load_rate(said));
    let rate = rate.ok_or_else(|| Error::Failed("the generator printed no requests/s".into()))?;
    let requests = match drive {
        Drive::Closed { seconds, .. }
        | Drive::Post { seconds, .. }
        | Drive::Echo { seconds, .. }
        | Drive::Rate { seconds, .. } => rate * seconds,
        Drive::H2load { .. } => number("requests:").unwrap_or(0.0),
        _ => number("Complete requests:").unwrap_or(0.0),
    };
    let mut sample = Sample::default();
    let mut add = |name, value| sample.figures.push(Figure { name, value });
    add(REQUESTS, rate);
    if let Drive::Rate { .. } = drive {
        let latency = field(said, "Latency us:").unwrap_or_default();
        for (word, name) in PERCENTILES {
            let value =
                latency.split_whitespace().find_map(|pair| pair.strip_prefix(word)?.strip_prefix('=')?.parse().ok());
            add(name, value.unwrap_or(f64::NAN));
        }
    }
    add(CPU, cpu_seconds / requests.max(1.0) * 1e6);

    for label in ["Socket errors:", "Non-2xx answers:", "Non-2xx responses:", "Failed requests:", "Unanswered:"] {
        if let Some(count) = number(label).filter(|&count| count > 0.0) {
            sample.errors.push(format!("{} {count:.0}", label.to_lowercase()));
        }
    }
    if let Drive::H2load { .. } = drive
        && let Some(counts) = field(said, "requests:").filter(|counts| !counts.contains(" 0 failed"))
    {
        sample.errors.push(counts.to_owned());
    }
    // If the generator was later than this, it may have caused the latencies.
    const LAG_US_MAX: f64 = 10_000.0;
    if let Some(lag) = number("Generator lag us: max=").filter(|&lag| lag > LAG_US_MAX) {
        sample.errors.push(format!("generator late by {lag:.0} µs"));
    }
    if let (Some(asked), Some(served)) = (number("Connections:"), number("Served connections:"))
        && served < asked
    {
        sample.errors.push(format!("{:.0} of {asked:.0} connections starved", asked - served));
    }
    Ok(sample)
}

/// Parses the rate in h2load's output: `finished in 1.03s, 290678.80 req/s, 9.98MB/s`.
fn h2load_rate(said: &str) -> Option<f64> {
    field(said, "finished in")?.split(',').find_map(|part| part.trim().strip_suffix("req/s")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: Drive<'_> = Drive::Closed { connections: 64, depth: 1, headers: false, seconds: 2.0 };
    const RATE: Drive<'_> = Drive::Rate { connections: 64, rate: 1000.0, seconds: 2.0 };

    /// Parses a generator's output, with 1 s of server CPU, and compares figures and errors.
    fn check(said: &str, drive: Drive<'_>, figures: &[(&str, f64)], errors: &[&str]) {
        let sample = read_sample(said, 1.0, drive).expect("a rate");
        let found: Vec<(&str, f64)> = sample.figures.iter().map(|figure| (figure.name, figure.value)).collect();
        assert_eq!(found, figures, "{said}");
        assert_eq!(sample.errors, errors, "{said}");
    }

    #[test]
    fn figures_are_read_from_what_generators_say() {
        check(
            "Connections: 64\nRequests/sec: 50000.00\nServed connections: 64\n",
            CLOSED,
            &[(REQUESTS, 50_000.0), (CPU, 10.0)],
            &[],
        );
        check(
            "Connections: 64\nRequests/sec: 1000\nLatency us: p50=40 p90=50 p99=60 p999=70 max=80\nGenerator lag us: max=12000\nUnanswered: 3\n",
            RATE,
            &[
                (REQUESTS, 1000.0),
                ("p50 µs", 40.0),
                ("p90 µs", 50.0),
                ("p99 µs", 60.0),
                ("p99.9 µs", 70.0),
                ("max µs", 80.0),
                (CPU, 500.0),
            ],
            &["unanswered: 3", "generator late by 12000 µs"],
        );
        check(
            "Complete requests:      40000\nFailed requests:        0\nRequests per second:    20000.50 [#/sec] (mean)\n",
            Drive::Ab(""),
            &[(REQUESTS, 20_000.5), (CPU, 25.0)],
            &[],
        );
        check(
            "Complete requests: 40000\nFailed requests: 7\nNon-2xx responses: 9\nRequests per second: 1 [#/sec]\n",
            Drive::Ab(""),
            &[(REQUESTS, 1.0), (CPU, 25.0)],
            &["non-2xx responses: 9", "failed requests: 7"],
        );
        check(
            "Connections: 64\nRequests/sec: 1\nServed connections: 60\nSocket errors: 2\n",
            CLOSED,
            &[(REQUESTS, 1.0), (CPU, 500_000.0)],
            &["socket errors: 2", "4 of 64 connections starved"],
        );
        assert!(read_sample("load: no answer", 1.0, CLOSED).is_err());
    }

    #[test]
    fn generators_are_called_as_they_ask_to_be() {
        for (drive, expected) in [
            (CLOSED, "bench/bin/load 80 /a 64 1 2"),
            (
                Drive::Closed { connections: 1, depth: 32, headers: true, seconds: 0.5 },
                "bench/bin/load 80 /a 1 32 0.5 bench/scripts/headers.txt",
            ),
            (RATE, "bench/bin/load 80 /a 64 1 2 --rate 1000"),
            (Drive::Ab("-q -n 1"), "ab -q -n 1 http://127.0.0.1:80/a"),
        ] {
            assert_eq!(drive.line(80, "/a").map(|line| line.join(" ")).as_deref(), Some(expected));
        }
    }
}
