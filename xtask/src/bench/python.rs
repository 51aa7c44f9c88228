//! `cargo xtask bench python`: compares servers of Python applications.

use std::path::Path;
use std::process::Command;

use super::Plan;
use crate::process::{self, GCC, LIBURING, WRK};
use crate::{Error, Result, python};

const OPENING: &str = "\
# Servers of Python applications side by side

`cargo xtask bench python` made this page: bench/python/run.py, with the newest Python that is here. Each figure is the median of the
rounds, with the smallest and the largest. The server runs on CPU 0 with one worker, and the generator on CPU 1. The CPU time is that of
all processes of the server.
";

const OUTPUT: &str = "bench/python.md";

/// The other servers.
const REQUIREMENTS: &str = "bench/python/requirements.txt";

pub(super) fn prepare(_: &Path) -> Result<()> {
    [GCC, LIBURING, WRK].iter().try_for_each(|tool| tool.ensure()).map_err(Error::Failed)
}

pub(super) fn run(root: &Path, plan: &Plan) -> Result<()> {
    let python = python::install_newest(root, REQUIREMENTS)?;
    let seconds = plan.seconds.round().max(1.0).to_string();
    let mut command = Command::new(python);
    command.current_dir(root).args([
        "bench/python/run.py",
        "--rounds",
        &plan.rounds.to_string(),
        "--seconds",
        &seconds,
    ]);
    let table = process::output(&mut command)?;
    print!("{table}");
    let page = format!("{OPENING}\n{}\n\n{table}", plan.machine.trim_end());
    std::fs::write(root.join(OUTPUT), page).map_err(|error| Error::doing(OUTPUT, error))
}
