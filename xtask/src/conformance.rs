//! `cargo xtask conformance`: tests Highwire with third-party programs (h2spec, REDbot, Autobahn, schemathesis) and third-party data
//! (http2jp/hpack-test-case).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::process::{self, Running};
use crate::{Error, Result, autobahn, openapi, redbot};

pub(crate) const HELP: &str = "\
Tests Highwire with third-party conformance programs and data.

Usage: cargo xtask conformance h2spec
       cargo xtask conformance redbot
       cargo xtask conformance autobahn
       cargo xtask conformance openapi
       cargo xtask conformance hpack FOLDER

  h2spec   runs h2spec 2.2.1 with its strict cases against `highwire demo`, with and without TLS, on the engines
           readiness and, if io_uring is available, uring. All 146 cases must pass in each run. Uses h2spec from
           target/tools or PATH, or builds it with Go. Its reports are kept in target/conformance
  redbot   checks files of `highwire serve`, compressed and not, with REDbot 2.7.1. Fails if an expected note is missing,
           or if a bad note or a warning is not among the exceptions in xtask/src/redbot.rs. Uses REDbot from
           target/tools, or installs it there with pip
  autobahn plays the 517 cases of the Autobahn test suite 25.10.1 for WebSockets against `highwire demo`, over HTTP/1
           and HTTP/2, and against our client, on the engines readiness and, if io_uring is available, uring. All must
           pass, except three that the suite does not judge and xtask/src/autobahn.rs explains. Uses the suite from
           target/tools, or installs it there with Python 2.7
  openapi  validates the OpenAPI document of the example `books` with openapi-spec-validator 0.9.0, and tests the running
           example against its document with schemathesis 4.32.5. Uses both from target/tools, or installs them there
           with pip
  hpack    decodes the header blocks of other encoders, and encodes their fields again. FOLDER must contain the data of
           http2jp/hpack-test-case

If such a program is missing and cannot be installed, the command prints `not run` and fails.
";

/// The folder of the h2spec that this command builds. The name contains the version.
const H2SPEC: &str = "target/tools/h2spec-2.2.1";
const H2SPEC_SOURCE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// The summary that h2spec 2.2.1 prints if every case has passed. Other versions may have another number of cases.
const ALL_PASSED: &str = "146 tests, 146 passed, 0 skipped, 0 failed";

/// The folder of the reports and logs.
pub(crate) const REPORTS: &str = "target/conformance";

/// The time limit of one run of h2spec or REDbot. A good run of h2spec takes a quarter of a second; a run in which
/// every case times out takes minutes.
pub(crate) const RUN: Duration = Duration::from_secs(60);

/// The time limit for the server to start listening.
pub(crate) const START: Duration = Duration::from_secs(20);

/// The interval between checks of a server that does not listen yet.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// The time limit to fetch and build or install a program.
pub(crate) const BUILD: Duration = Duration::from_secs(5 * 60);

/// HTTP/2 with or without TLS, and the options of `highwire demo` and h2spec for it.
struct Way {
    name: &'static str,
    demo: &'static [&'static str],
    h2spec: &'static [&'static str],
}

/// The cleartext port is for HTTP/2 only. A port for both protocols would treat an invalid preface as HTTP/1
/// (conformance/README.md).
const WAYS: &[Way] = &[
    Way { name: "tls", demo: &["--tls-listen", "127.0.0.1:0", "--tls-self-signed"], h2spec: &["-t", "-k"] },
    Way { name: "clear", demo: &["--listen", "127.0.0.1:0", "--http2-only"], h2spec: &[] },
];

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    match args.word().as_deref() {
        Some("h2spec") => {
            args.finish()?;
            match h2spec_missing(root, true) {
                Some(reason) => Err(Error::Failed(format!("not run: {reason}"))),
                None => h2spec(root),
            }
        }
        Some("redbot") => {
            args.finish()?;
            match redbot::missing(root, true) {
                Some(reason) => Err(Error::Failed(format!("not run: {reason}"))),
                None => redbot::redbot(root),
            }
        }
        Some("autobahn") => {
            args.finish()?;
            match autobahn::missing(root, true) {
                Some(reason) => Err(Error::Failed(format!("not run: {reason}"))),
                None => autobahn::autobahn(root, autobahn::Scope::All),
            }
        }
        Some("openapi") => {
            args.finish()?;
            match openapi::missing(root, true) {
                Some(reason) => Err(Error::Failed(format!("not run: {reason}"))),
                None => openapi::openapi(root),
            }
        }
        Some("hpack") => {
            let folder = args.word().ok_or_else(|| Error::Usage("`conformance hpack` needs a FOLDER".into()))?;
            args.finish()?;
            hpack(root, Path::new(&folder))
        }
        _ => Err(Error::Usage(
            "`conformance` needs one of `h2spec`, `redbot`, `autobahn`, `openapi` and `hpack`; see `cargo xtask conformance --help`".into(),
        )),
    }
}

/// Returns a message if h2spec is missing. With `install`, tries to build it first.
pub(crate) fn h2spec_missing(root: &Path, install: bool) -> Option<String> {
    if find_h2spec(root).is_none() && install && process::find_program("go").is_some() {
        println!("building h2spec");
        let mut go = Command::new("go");
        go.current_dir(root).args(["install", H2SPEC_SOURCE]).env("GOBIN", root.join(H2SPEC));
        if let Err(error) = process::run_until(&mut go, Instant::now() + BUILD) {
            println!("{}", error.reason());
        }
    }
    find_h2spec(root)
        .is_none()
        .then(|| format!("h2spec is missing (with Go, `GOBIN=$PWD/{H2SPEC} go install {H2SPEC_SOURCE}`)"))
}

fn find_h2spec(root: &Path) -> Option<PathBuf> {
    let ours = root.join(H2SPEC).join("h2spec");
    if ours.is_file() { Some(ours) } else { process::find_program("h2spec") }
}

/// Runs h2spec in each of [`WAYS`] on the engines `uring` and `readiness`. Returns an error if a run fails. Without
/// io_uring, prints that the runs on `uring` were not run, and does not fail because of them.
pub(crate) fn h2spec(root: &Path) -> Result<()> {
    let program = find_h2spec(root).ok_or_else(|| Error::Failed("h2spec is missing".into()))?;
    process::build_checked(root)?;
    fs::create_dir_all(root.join(REPORTS)).map_err(|error| Error::doing(REPORTS, error))?;
    let mut failed = Vec::new();
    for engine in ["uring", "readiness"] {
        for way in WAYS {
            let name = format!("h2spec-{engine}-{}", way.name);
            match one(root, &program, engine, way, &root.join(REPORTS).join(&name)) {
                Ok(said) => println!("{name}: {said}"),
                Err(error) => {
                    println!("{name}: FAILED\n{}", error.reason());
                    failed.push(name);
                }
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Failed(format!("these runs failed: {}", failed.join(", ")))) }
}

/// Runs h2spec once. Returns its summary, or a text if io_uring is unavailable. `files` is the path of the log and the
/// report without an extension.
fn one(root: &Path, program: &Path, engine: &str, way: &Way, files: &Path) -> Result<&'static str> {
    let (log, report) = (files.with_extension("log"), files.with_extension("txt"));
    let arguments = [&["demo", "--workers", "1"], way.demo].concat();
    let Some((_running, port)) = serve(root, engine, &arguments, &log)? else { return Ok(NO_URING) };
    let file = create(&report)?;
    let copy = file.try_clone().map_err(|error| Error::doing(report.display(), error))?;
    let mut command = Command::new(program);
    command.args(["-S", "-h", "127.0.0.1", "-p", &port.to_string()]).args(way.h2spec).stdout(file).stderr(copy);
    let status = process::run_until(&mut command, Instant::now() + RUN)?;
    match status {
        Some(status) => verdict(&read(&report)?, status.success()),
        None => Err(Error::Failed(format!("h2spec was stopped after {} s", RUN.as_secs()))),
    }
}

/// Returns the summary if all cases passed. Otherwise returns an error with the failed cases, or with the whole output
/// if it does not list any.
fn verdict(said: &str, success: bool) -> Result<&'static str> {
    if success && said.lines().any(|line| line == ALL_PASSED) {
        return Ok(ALL_PASSED);
    }
    Err(Error::Failed(said.split_once("Failures:").map_or(said, |(_, failures)| failures).trim().to_owned()))
}

/// The result of a run that needs io_uring on a machine without it.
pub(crate) const NO_URING: &str = "not run: io_uring is unavailable";

/// Starts `highwire` with these arguments, which select port 0, waits until it listens, and returns the port. Returns `None`
/// if the engine is io_uring and the machine lacks it. The kernel kills the process if xtask ends.
pub(crate) fn serve(root: &Path, engine: &str, arguments: &[&str], log: &Path) -> Result<Option<(Running, u16)>> {
    let program = format!("{}/highwire", process::CHECKED);
    let arguments = [arguments, &["--engine", engine]].concat();
    match start(root, &program, &arguments, log) {
        Err(_) if engine == "uring" && read(log)?.contains("io_uring is unavailable") => Ok(None),
        started => started.map(Some),
    }
}

/// Starts a server that writes where it listens into its log, and returns it with its port.
pub(crate) fn start(root: &Path, program: &str, arguments: &[&str], log: &Path) -> Result<(Running, u16)> {
    let mut command = Command::new("setpriv");
    command.current_dir(root).args(["--pdeathsig", "KILL"]).arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(create(log)?);
    let shown = process::shown(&command);
    let mut running = Running::new(command.spawn().map_err(|error| Error::doing(&shown, error))?);
    let until = Instant::now() + START;
    loop {
        let said = read(log)?;
        if let Some(port) = port_in(&said) {
            return Ok((running, port));
        }
        if running.has_ended() || Instant::now() > until {
            return Err(Error::Failed(format!("`{shown}` ended, or did not listen within 20 s\n{said}")));
        }
        sleep(GLANCE);
    }
}

/// Returns the port in the first complete log line such as `listening on https://127.0.0.1:PORT/`.
fn port_in(said: &str) -> Option<u16> {
    said.lines()
        .find_map(|line| line.split_once("listening on ")?.1.strip_suffix('/')?.rsplit_once(':')?.1.parse().ok())
}

pub(crate) fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| Error::doing(path.display(), error))
}

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::doing(path.display(), error))
}

/// Runs the test `hpack_stories`, which reads the folder from the environment variable `HPACK_STORIES`.
fn hpack(root: &Path, folder: &Path) -> Result<()> {
    let folder = folder.canonicalize().map_err(|error| Error::doing(folder.display(), error))?;
    let mut command = Command::new("cargo");
    command.current_dir(root).args([
        "test",
        "--package",
        "highwire-proto",
        "--test",
        "hpack_stories",
        "--",
        "--nocapture",
    ]);
    command.env("HPACK_STORIES", folder);
    process::run_shown(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_h2spec_passes_or_what_failed_is_said() {
        let failures = "3. Starting\n    × 2: Sends it\n\n146 tests, 145 passed, 0 skipped, 1 failed";
        for (said, success, expected) in [
            (format!("Finished in 0.1 seconds\n{ALL_PASSED}\n"), true, Ok(ALL_PASSED)),
            (format!("Failures: \n\n{failures}\n"), false, Err(failures)),
            (
                "94 tests, 94 passed, 0 skipped, 0 failed\n".into(),
                true,
                Err("94 tests, 94 passed, 0 skipped, 0 failed"),
            ),
            (format!("{ALL_PASSED}\n"), false, Err(ALL_PASSED)),
            ("connection refused\n".into(), false, Err("connection refused")),
        ] {
            assert_eq!(verdict(&said, success), expected.map_err(|reason| Error::Failed(reason.into())), "{said}");
        }
    }

    #[test]
    fn the_port_is_read_once_its_line_is_whole() {
        for (said, expected) in [
            ("", None),
            ("INFO listening on https://127.0.0.1:43", None),
            ("WARN a word\nINFO listening on https://127.0.0.1:43211/\n", Some(43211)),
        ] {
            assert_eq!(port_in(said), expected, "{said}");
        }
    }
}
