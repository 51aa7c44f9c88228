//! `cargo xtask conformance autobahn`: tests our WebSockets with the Autobahn test suite.
//!
//! The suite's fuzzing client plays its cases against `/ws` of `highwire demo`, which echoes messages, and its fuzzing
//! server against the program `conformance/programs/autobahn_client.rs`, which echoes them, too. The suite knows only HTTP/1;
//! for HTTP/2, the program `conformance/programs/websocket_bridge.rs` stands between its client and our server. A case passes if its behaviour and
//! its closing are `OK`. `NON-STRICT` counts as a failure. `INFORMATIONAL`, which the suite uses if the RFC leaves the
//! behaviour open, is a failure unless the case is listed here with a reason.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::conformance::{BUILD, GLANCE, NO_URING, REPORTS, START, create, read, serve};
use crate::process::Running;
use crate::{Error, Result, process};

/// The test suite with a fixed version, so that the cases stay the same, and the last virtualenv for Python 2.
const SUITE: &str = "autobahntestsuite==25.10.1";
const VIRTUALENV: &str = "virtualenv==20.15.1";

const FOLDER: &str = "target/tools/autobahntestsuite-25.10.1";

const ENGINES: [&str; 2] = ["readiness", "uring"];

/// The number of the suite's cases.
const COUNT: usize = 517;

/// The sections about compression. Each has the same 18 sizes of messages. Of these the tests play the first six, every
/// other one on each engine, because compression is the same on both: all sizes would take an hour.
const COMPRESSED: [&str; 12] =
    ["12.1", "12.2", "12.3", "12.4", "12.5", "13.1", "13.2", "13.3", "13.4", "13.5", "13.6", "13.7"];
const SIZES: std::ops::RangeInclusive<usize> = 1..=18;
const SHORT_SIZES: usize = 6;

/// The cases to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// All but most of the compressed messages.
    Short,
}

impl Scope {
    /// Returns the cases that are left out on an engine, by its place in [`ENGINES`].
    fn excluded(self, engine: usize) -> Vec<String> {
        if self == Scope::All {
            return Vec::new();
        }
        let sizes = SIZES.filter(|size| *size > SHORT_SIZES || size % ENGINES.len() != engine);
        sizes.flat_map(|size| COMPRESSED.iter().map(move |section| format!("{section}.{size}"))).collect()
    }
}

/// Cases that the suite does not judge, with our behaviour and its reason. The check also fails if a row is not needed.
const INFORMATIONAL: &[(&str, &str)] = &[
    (
        "7.1.6",
        "a Close frame directly behind a message of 256 KiB: the echo is sent, then the answer to the Close frame",
    ),
    ("7.13.1", "a Close frame with the code 5000, which no specification defines: answered with the code 1002"),
    ("7.13.2", "a Close frame with the code 65535, which no specification defines: answered with the code 1002"),
];

/// The time limit of a run. A good run of all cases takes eight minutes.
const RUN: Duration = Duration::from_secs(25 * 60);

/// Returns a message if the suite is missing. With `install`, tries to install it first.
pub(crate) fn missing(root: &Path, install: bool) -> Option<String> {
    let program = program(root);
    if !program.is_file()
        && install
        && let Some(python) = process::find_program("python2.7")
    {
        println!("installing {SUITE}");
        let (folder, virtualenv) = (root.join(FOLDER), root.join("target/tools/virtualenv-20.15.1"));
        let python2 = |arguments: &[&str]| {
            let mut command = Command::new(&python);
            // pyenv's python2.7 needs to know the version if another one is the default.
            command.args(arguments).env("PYENV_VERSION", "2.7.18").env("PYTHONPATH", &virtualenv);
            command
        };
        let (into, at) = (virtualenv.display().to_string(), folder.display().to_string());
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", SUITE]);
        let until = Instant::now() + BUILD;
        for mut command in [
            python2(&["-m", "pip", "install", "--quiet", "--target", &into, VIRTUALENV]),
            python2(&["-m", "virtualenv", "--quiet", &at]),
            pip,
        ] {
            if let Err(error) = process::run_until(&mut command, until) {
                println!("{}", error.reason());
            }
        }
    }
    let how = format!("Python 2.7 with {VIRTUALENV}, and in {FOLDER} `pip install {SUITE}`");
    (!program.is_file()).then(|| format!("the Autobahn test suite is missing ({how})"))
}

fn program(root: &Path) -> PathBuf {
    root.join(FOLDER).join("bin/wstest")
}

/// Plays the cases of the tests. See [`autobahn`].
pub(crate) fn short(root: &Path) -> Result<()> {
    autobahn(root, Scope::Short)
}

/// Plays all cases. See [`autobahn`].
pub(crate) fn all(root: &Path) -> Result<()> {
    autobahn(root, Scope::All)
}

/// Plays the cases on each engine, against our server and against our client. Returns an error that lists the failed
/// cases.
pub(crate) fn autobahn(root: &Path, cases: Scope) -> Result<()> {
    process::build_checked(root)?;
    // The suite plays one case after the other and waits most of the time, so the engines share the machine's cores.
    let wrong = thread::scope(|scope| {
        let engines: Vec<_> = ENGINES
            .iter()
            .enumerate()
            .map(|(place, engine)| scope.spawn(move || play_sides(root, engine, &cases.excluded(place))))
            .collect();
        let found = |engine: ScopedJoinHandle<'_, Result<Vec<String>>>| {
            let result = engine.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result.unwrap_or_else(|error| vec![error.reason()])
        };
        engines.into_iter().flat_map(found).collect::<Vec<_>>()
    });
    if wrong.is_empty() { Ok(()) } else { Err(Error::Failed(wrong.join("\n"))) }
}

/// Plays the cases on one engine. Returns the problems.
fn play_sides(root: &Path, engine: &str, excluded: &[String]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    // The client fails without io_uring, so the server is started first.
    let mut is_available = true;
    let sides = [("server", play_server as Play), ("server over HTTP/2", play_server_http2), ("client", play_client)];
    for (side, play) in sides {
        let folder = format!("autobahn-{side}-{engine}").replace(' ', "-");
        let reports = root.join(REPORTS).join(folder);
        // The reports of an earlier run must not be taken for those of this one.
        let _ = fs::remove_dir_all(&reports);
        fs::create_dir_all(&reports).map_err(|error| Error::doing(reports.display(), error))?;
        let name = format!("{side} on {engine}");
        is_available = is_available && play(root, engine, &reports, excluded)?;
        if !is_available {
            println!("autobahn, {name}: {NO_URING}");
            continue;
        }
        let report = read(&reports.join("index.json"))?;
        let results = results(&report);
        let found = judge(&results, COUNT - excluded.len());
        println!("autobahn, {name}: {} cases, {} wrong", results.len(), found.len());
        wrong.extend(found.into_iter().map(|found| format!("{name}: {found}")));
    }
    Ok(wrong)
}

/// Plays the cases on an engine, and writes the report to a folder. Returns false if the engine is unavailable.
type Play = fn(&Path, &str, &Path, &[String]) -> Result<bool>;

/// Returns the suite's command in one of its modes, with this specification.
fn suite(root: &Path, mode: &str, reports: &Path, excluded: &[String], more: &str) -> Result<Command> {
    let specification = reports.join("specification.json");
    let text = format!(
        "{{\"outdir\": {:?}, {more}, \"cases\": [\"*\"], \"exclude-cases\": {excluded:?}, \
         \"exclude-agent-cases\": {{}}}}",
        reports.display().to_string()
    );
    fs::write(&specification, text).map_err(|error| Error::doing(specification.display(), error))?;
    let mut command = Command::new(program(root));
    command.current_dir(reports).args(["--mode", mode, "--spec"]).arg(&specification);
    command.stdout(create(&reports.join("wstest.log"))?);
    Ok(command)
}

fn play_server(root: &Path, engine: &str, reports: &Path, excluded: &[String]) -> Result<bool> {
    let log = reports.join("server.log");
    let Some((_running, port)) = start_server(root, engine, &log)? else { return Ok(false) };
    play_cases(root, port, reports, excluded)?;
    Ok(true)
}

fn play_server_http2(root: &Path, engine: &str, reports: &Path, excluded: &[String]) -> Result<bool> {
    let log = reports.join("server.log");
    let Some((_running, server)) = start_server(root, engine, &log)? else { return Ok(false) };
    let port = testkit::ports::free_port();
    let mut bridge = Command::new(root.join(process::CHECKED).join("websocket_bridge"));
    bridge.args([port, server].map(|port| port.to_string())).stderr(create(&reports.join("bridge.errors"))?);
    let _bridge = start(bridge, "the bridge", port)?;
    play_cases(root, port, reports, excluded)?;
    Ok(true)
}

fn start_server(root: &Path, engine: &str, log: &Path) -> Result<Option<(Running, u16)>> {
    serve(root, engine, &["demo", "--workers", "1", "--listen", "127.0.0.1:0"], log)
}

/// Lets the suite's client play its cases against a port.
fn play_cases(root: &Path, port: u16, reports: &Path, excluded: &[String]) -> Result<()> {
    let servers = format!("\"servers\": [{{\"agent\": \"highwire\", \"url\": \"ws://127.0.0.1:{port}/ws\"}}]");
    let mut command = suite(root, "fuzzingclient", reports, excluded, &servers)?;
    process::run_until(&mut command, Instant::now() + RUN).map(drop)
}

/// Starts a program and waits until it listens.
fn start(mut command: Command, what: &str, port: u16) -> Result<Running> {
    let mut running = Running::new(command.spawn().map_err(|error| Error::doing(what, error))?);
    let until = Instant::now() + START;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if running.has_ended() || Instant::now() > until {
            return Err(Error::Failed(format!("{what} has ended, or did not listen within 20 s")));
        }
        sleep(GLANCE);
    }
    Ok(running)
}

fn play_client(root: &Path, engine: &str, reports: &Path, excluded: &[String]) -> Result<bool> {
    // Without `--webport 0`, the suite's server also listens on port 8080, to show its reports.
    let port = testkit::ports::free_port();
    let url = format!("\"url\": \"ws://127.0.0.1:{port}\"");
    let mut command = suite(root, "fuzzingserver", reports, excluded, &url)?;
    command.args(["--webport", "0"]).stderr(create(&reports.join("wstest.errors"))?);
    let _running = start(command, "the suite's server", port)?;
    let log = reports.join("client.log");
    let mut client = Command::new(root.join(process::CHECKED).join("autobahn_client"));
    client.args([&port.to_string(), engine]).stdout(create(&log)?).stderr(create(&reports.join("client.errors"))?);
    process::run_until(&mut client, Instant::now() + RUN)?;
    Ok(true)
}

/// A case, its behaviour, and its behaviour at the close.
type Case<'r> = (&'r str, &'r str, &'r str);

/// Returns the cases of a report, in which each name and each value has a line of its own.
fn results(report: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in report.lines() {
        let Some((name, value)) = line.trim().split_once(": ") else { continue };
        let (name, value) = (name.trim_matches('"'), value.trim_end_matches(',').trim_matches('"'));
        match (name, cases.last_mut()) {
            ("behavior", Some(case)) => case.1 = value,
            ("behaviorClose", Some(case)) => case.2 = value,
            _ if name.starts_with(|first: char| first.is_ascii_digit()) => cases.push((name, "", "")),
            _ => {}
        }
    }
    cases
}

/// Returns the problems in the results.
fn judge(results: &[Case<'_>], count: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    if results.len() != count {
        wrong.push(format!("{} cases were played instead of {count}", results.len()));
    }
    for &(name, behaviour, closing) in results {
        let is_listed = INFORMATIONAL.iter().any(|(listed, _)| *listed == name);
        let expected = if is_listed { "INFORMATIONAL" } else { "OK" };
        if (behaviour, closing) != (expected, expected) {
            wrong.push(format!("case {name} is {behaviour}, at the close {closing}, and not {expected}"));
        }
    }
    let unused = INFORMATIONAL.iter().filter(|(listed, _)| !results.iter().any(|(name, ..)| name == listed));
    wrong.extend(unused.map(|(listed, _)| format!("the row of case {listed} is not needed")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_from_the_report_and_judged() {
        let report = "{\n   \"highwire\": {\n      \"1.1.1\": {\n         \"behavior\": \"OK\",\n         \
                      \"behaviorClose\": \"OK\",\n         \"duration\": 1\n      },\n      \"7.13.1\": {\n         \
                      \"behavior\": \"INFORMATIONAL\",\n         \"behaviorClose\": \"FAILED\"\n      }\n   }\n}\n";
        let cases = results(report);
        assert_eq!(cases, [("1.1.1", "OK", "OK"), ("7.13.1", "INFORMATIONAL", "FAILED")]);
        let wrong = judge(&cases, COUNT - Scope::Short.excluded(0).len());
        assert_eq!(wrong[0], "2 cases were played instead of 337");
        assert_eq!(wrong[1], "case 7.13.1 is INFORMATIONAL, at the close FAILED, and not INFORMATIONAL");
        assert_eq!(wrong.len(), 4, "two rows of the list were not played: {wrong:?}");
    }
}
