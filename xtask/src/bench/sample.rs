//! The figures of a measurement, and the command with which measurements start programs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time limit for a server to start listening, and for a client to receive bytes.
pub(super) const START: Duration = Duration::from_secs(20);

/// The limit of open files, which is enough for 10,000 connections and a server's other files. If the system forbids
/// this limit, the program gets the hard limit.
const OPEN_FILES: u32 = 100_000;

/// A figure of a measurement. The name contains the unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: f64,
}

pub(super) const REQUESTS: &str = "requests/s";
pub(super) const CPU: &str = "CPU µs/request";
pub(super) const MEMORY: &str = "bytes/connection";

/// The result of one measurement: figures, which have the same names for the same drive, and errors, such as those that
/// the generator counted.
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

/// Returns a command that runs `line` on these CPUs (`None` allows all) with a raised limit of open files. The kernel
/// kills the process if xtask ends.
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

/// Returns the generator's CPU, which is the last one.
pub(super) fn generator_cpu() -> String {
    std::thread::available_parallelism().map_or(0, |count| count.get() - 1).to_string()
}

/// Returns the rest of the first line that begins with `label`, without surrounding whitespace.
pub(super) fn field<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim)
}
