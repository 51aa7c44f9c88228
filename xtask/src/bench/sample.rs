//! What all measurements share: the figures that they give, and how programs are started for them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a server may take to listen.
pub(super) const START: Duration = Duration::from_secs(20);

/// Room for 10,000 connections and what else a server opens; a machine that forbids it gives what it allows.
const OPEN_FILES: u32 = 100_000;

/// One figure of one measurement. A name ends with its unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: f64,
}

pub(super) const REQUESTS: &str = "requests/s";
pub(super) const CPU: &str = "CPU µs/request";
pub(super) const MEMORY: &str = "bytes/connection";

/// What one measurement gave: figures, always the same for the same drive, and what the generator complained of.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) figures: Vec<Figure>,
    pub(super) errors: Vec<String>,
}

impl Sample {
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }
}

/// A command on some CPUs, with room for many connections, that dies when xtask does.
pub(super) fn pinned(root: &Path, cpus: Option<&str>, line: &[String]) -> Command {
    let raise = format!("ulimit -n {OPEN_FILES} 2>/dev/null || ulimit -n \"$(ulimit -Hn)\"; exec \"$@\"");
    let mut command = Command::new("sh");
    command.current_dir(root).args(["-c", &raise, "sh", "setpriv", "--pdeathsig", "KILL"]);
    if let Some(cpus) = cpus {
        command.args(["taskset", "-c", cpus]);
    }
    command.args(line).stdin(Stdio::null());
    command
}

/// The generator's CPU: the last one.
pub(super) fn generator_cpu() -> String {
    std::thread::available_parallelism().map_or(0, |count| count.get() - 1).to_string()
}

/// The rest of the line that begins with `label`.
pub(super) fn field<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim)
}
