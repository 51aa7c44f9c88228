//! `cargo xtask`: the project's own commands. What people install is in `cli/`; what only its makers run is here.
//!
//! Each command is a module with a `run(root, args)` and its own `HELP`; this file only chooses between them.

mod args;
mod attack;
mod bench;
mod conformance;
mod fuzz;
mod portability;
mod process;
mod redbot;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::Args;

const HELP: &str = "\
The project's own commands.

Usage: cargo xtask COMMAND [OPTIONS]

Commands:
  tidy          check the invariants that a program can check
  test          run every test of the project, in order, and sum up
  conformance   hold Highwire against what others wrote about its protocols
  fuzz          run every fuzz target for a while
  portability   type-check the libraries for macOS, FreeBSD and Windows
  attack        mount attacks on loopback and measure what a bystander sees
  bench         time Highwire side by side with its floors and peers

`cargo xtask COMMAND --help` tells a command's options.
";

/// Why a command did not succeed. The exit code tells the two apart: 2 for a wrong call, 1 for the rest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The caller asked for something that does not exist.
    Usage(String),
    /// What was asked for was done, or tried, and did not succeed.
    Failed(String),
}

impl Error {
    /// A failed system call or program, with what was being done.
    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }

    pub(crate) fn reason(self) -> String {
        match self {
            Self::Usage(reason) | Self::Failed(reason) => reason,
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// One command: its name, its help, and what it does in the project's root.
struct Command {
    name: &'static str,
    help: &'static str,
    run: fn(&Path, Args) -> Result<()>,
}

const COMMANDS: &[Command] = &[
    Command { name: "tidy", help: tidy::HELP, run: tidy::run },
    Command { name: "test", help: test::HELP, run: test::run },
    Command { name: "conformance", help: conformance::HELP, run: conformance::run },
    Command { name: "fuzz", help: fuzz::HELP, run: fuzz::run },
    Command { name: "portability", help: portability::HELP, run: portability::run },
    Command { name: "attack", help: attack::HELP, run: attack::run },
    Command { name: "bench", help: bench::HELP, run: bench::run },
];

fn main() -> ExitCode {
    let Err(error) = dispatch(std::env::args().skip(1).collect()) else { return ExitCode::SUCCESS };
    let code = if matches!(error, Error::Usage(_)) { 2 } else { 1 };
    eprintln!("xtask: {}", error.reason());
    ExitCode::from(code)
}

fn dispatch(mut words: Vec<String>) -> Result<()> {
    if words.is_empty() || matches!(words[0].as_str(), "--help" | "-h" | "help") {
        print!("{HELP}");
        return Ok(());
    }
    let name = words.remove(0);
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(Error::Usage(format!("there is no command `{name}`; `cargo xtask --help` lists them")));
    };
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", command.help);
        return Ok(());
    }
    (command.run)(&root()?, Args::new(command.name, words))
}

/// The project's root: the nearest folder upwards that holds both a workspace and this crate.
fn root() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|error| Error::doing("the current folder", error))?;
    here.ancestors()
        .find(|folder| folder.join("Cargo.toml").is_file() && folder.join("xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            Error::Usage("run this inside the project: no workspace with xtask/ is above this folder".into())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help_that_shows_its_call() {
        for command in COMMANDS {
            assert!(command.help.contains(&format!("cargo xtask {}", command.name)), "{}", command.name);
            assert!(HELP.contains(command.name), "{}", command.name);
        }
    }

    #[test]
    fn wrong_calls_are_usage_errors() {
        for words in [
            &["nothing"][..],
            &["tidy", "--colour"],
            &["attack", "other"],
            &["bench", "ftp"],
            &["conformance", "hpack"],
            &["fuzz", "--seconds", "soon"],
            &["portability", "--target", "pdp11"],
        ] {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(matches!(dispatch(words), Err(Error::Usage(_))));
        }
    }
}
