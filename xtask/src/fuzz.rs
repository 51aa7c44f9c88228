//! `cargo xtask fuzz`: runs the fuzz targets, one on each core, with cargo-fuzz on the nightly toolchain.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::args::Args;
use crate::process;
use crate::{Error, Result};

pub(crate) const HELP: &str = "\
Runs the fuzz targets of fuzz/Cargo.toml, one on each core, with cargo-fuzz on the nightly toolchain.

Usage: cargo xtask fuzz [--seconds N] [--target NAME]...

Options:
  --seconds N     how long each target runs, in seconds (default 600); below 60 it is built with less optimization
  --target NAME   only this target; may be given several times

A target FOO also reads fuzz/seeds/FOO/ and fuzz/dictionaries/FOO.dict if they exist.
cargo-fuzz keeps a failing input in fuzz/artifacts/FOO/. The end of its output is printed, with the command to repeat
the failure.
";

/// The default number of seconds per target. libFuzzer's coverage usually stops growing long before.
const SECONDS: u32 = 600;

/// The result of a target's run.
struct Report {
    target: String,
    seconds: f64,
    runs: Option<u64>,
    failure: Option<String>,
}

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let seconds = args.value("--seconds")?.unwrap_or(SECONDS);
    let chosen = args.values("--target")?;
    args.finish()?;
    if let Some(reason) = missing(true) {
        return Err(Error::Failed(reason));
    }
    fuzz(root, seconds, &chosen)
}

/// Returns a message if nightly or cargo-fuzz is missing. With `install`, tries to install cargo-fuzz first.
pub(crate) fn missing(install: bool) -> Option<String> {
    let works = |arguments: &[&str]| process::output(Command::new("cargo").args(arguments)).is_ok();
    if !works(&["+nightly", "--version"]) {
        return Some("the nightly toolchain is missing (`rustup toolchain install nightly`)".into());
    }
    if !works(&["+nightly", "fuzz", "--version"]) && install {
        println!("installing cargo-fuzz");
        let _ = process::output(Command::new("cargo").args(["install", "--quiet", "--locked", "cargo-fuzz"]));
    }
    (!works(&["+nightly", "fuzz", "--version"])).then(|| "cargo-fuzz is missing (`cargo install cargo-fuzz`)".into())
}

/// Builds and runs the chosen targets, or all if none is chosen. Returns an error if one of them fails.
pub(crate) fn fuzz(root: &Path, seconds: u32, chosen: &[String]) -> Result<()> {
    let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml"))
        .map_err(|error| Error::doing("cannot read fuzz/Cargo.toml", error))?;
    let mut targets = binaries(&manifest);
    if let Some(unknown) = chosen.iter().find(|name| !targets.contains(name)) {
        return Err(Error::Usage(format!("unknown fuzz target `{unknown}`; use one of {}", targets.join(", "))));
    }
    targets.retain(|target| chosen.is_empty() || chosen.contains(target));
    let mut build = cargo_fuzz(root, "build", seconds);
    build.args(if targets.len() == 1 { &targets[..] } else { &[] });
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(Error::Failed("cannot build the fuzz targets".into()));
    }
    let reports = all(root, &targets, seconds);
    println!("\n{:<28} {:>9} {:>14} {:>10}  result", "target", "seconds", "runs", "runs/s");
    for report in &reports {
        let runs = report.runs.map_or("?".to_owned(), |runs| runs.to_string());
        let rate = report.runs.map_or("?".to_owned(), |runs| format!("{:.0}", runs as f64 / report.seconds));
        println!(
            "{:<28} {:>9.1} {runs:>14} {rate:>10}  {}",
            report.target,
            report.seconds,
            if report.failure.is_some() { "FAILED" } else { "passed" }
        );
    }
    let failed: Vec<&str> =
        reports.iter().filter(|report| report.failure.is_some()).map(|report| report.target.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Failed(format!("fuzz targets failed: {}", failed.join(", ")))) }
}

/// Runs the targets, as many at the same time as the machine has cores. libFuzzer uses one core.
fn all(root: &Path, targets: &[String], seconds: u32) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let run = || {
        let taken = std::iter::from_fn(|| targets.get(next.fetch_add(1, Ordering::Relaxed)));
        taken.map(|target| one(root, target, seconds)).collect::<Vec<_>>()
    };
    let mut reports: Vec<Report> = thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    });
    reports.sort_by(|a, b| a.target.cmp(&b.target));
    reports
}

fn one(root: &Path, target: &str, seconds: u32) -> Report {
    println!("fuzzing {target} for {seconds} s");
    let mut command = cargo_fuzz(root, "run", seconds);
    command.arg(target);
    // libFuzzer writes new inputs to the first corpus folder and only reads the others.
    let seeds = format!("fuzz/seeds/{target}");
    if root.join(&seeds).is_dir() {
        command.args([&format!("fuzz/corpus/{target}"), &seeds]);
        let _ = std::fs::create_dir_all(root.join(format!("fuzz/corpus/{target}")));
    }
    command.args(["--", &format!("-max_total_time={seconds}"), "-print_final_stats=1"]);
    let dictionary = format!("fuzz/dictionaries/{target}.dict");
    if root.join(&dictionary).is_file() {
        command.arg(format!("-dict={dictionary}"));
    }
    let begun = Instant::now();
    let (said, failure) = match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let failure = (!output.status.success()).then(|| last_lines(&said, 60));
            (said, failure)
        }
        Err(error) => (String::new(), Some(error.to_string())),
    };
    if let Some(failure) = &failure {
        println!("{target} FAILED\n{failure}");
    }
    Report { target: target.to_owned(), seconds: begun.elapsed().as_secs_f64(), runs: executions(&said), failure }
}

/// Returns a command of cargo-fuzz. Short runs are built with less optimization, because the build takes longer than they do.
fn cargo_fuzz(root: &Path, subcommand: &str, seconds: u32) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["+nightly", "fuzz", subcommand]);
    if seconds < SECONDS / 10 {
        command.args(["--codegen-units", "16"]);
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    }
    command
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns the number of inputs that libFuzzer has run, from its output.
fn executions(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.trim().strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
}

/// Returns the names of a manifest's `[[bin]]` sections.
fn binaries(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut within = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            within = line.starts_with("[[bin]]");
        } else if let Some((key, value)) = line.split_once('=')
            && within
            && key.trim() == "name"
        {
            names.extend(value.split('"').nth(1).map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_come_from_the_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"head\"\npath = \"a.rs\"\n\n[[bin]]\ntest = false\nname=\"frame\"\n[lib]\nname = \"x\"\n";
        assert_eq!(binaries(manifest), ["head", "frame"]);
    }

    #[test]
    fn the_count_of_runs_is_read() {
        assert_eq!(executions("#2 INITED\nstat::number_of_executed_units: 2097152\nDone"), Some(2_097_152));
        assert_eq!(executions("==1== ERROR: libFuzzer"), None);
    }
}
