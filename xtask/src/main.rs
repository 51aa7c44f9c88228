//! `cargo xtask`: the commands for developers of the project. The command for users is in `cli/`.
//!
//! Each command is a module with a function `run(root, args)` and a text `HELP`. This file dispatches to them.

mod args;
mod attack;
mod autobahn;
mod bench;
mod conformance;
mod fuzz;
mod install;
mod openapi;
mod portability;
mod process;
mod python;
mod redbot;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::Args;

const HELP: &str = "\
The commands for developers of Highwire.

Usage: cargo xtask COMMAND [OPTIONS]

Commands:
  tidy          check the invariants that a program can check
  test          run the tests and checks of the project, and print a summary
  conformance   test Highwire with third-party conformance programs and data
  fuzz          run each fuzz target for ten minutes, or for a given time
  install       build and install libhighwire, the library for C
  portability   type-check the libraries for macOS, FreeBSD and Windows
  attack        attack a server on loopback and measure the effect on other clients
  bench         measure Highwire beside minimal servers and other servers

`cargo xtask COMMAND --help` shows a command's options.
";

/// The reason why a command failed. The exit code is 2 for `Usage` and 1 for `Failed`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The command line is invalid.
    Usage(String),
    /// The command ran and failed.
    Failed(String),
}

impl Error {
    /// Returns `Failed` with the failed action (or its file) and the error.
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

/// A command: its name, its help, and the function that runs it in the project's root.
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
    Command { name: "install", help: install::HELP, run: install::run },
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
        return Err(Error::Usage(format!("unknown command `{name}`; `cargo xtask --help` lists the commands")));
    };
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", command.help);
        return Ok(());
    }
    (command.run)(&root()?, Args::new(command.name, words))
}

/// Returns the project's root: the current folder or its nearest ancestor that contains `Cargo.toml` and
/// `xtask/Cargo.toml`.
fn root() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|error| Error::doing("cannot find the current folder", error))?;
    here.ancestors()
        .find(|folder| folder.join("Cargo.toml").is_file() && folder.join("xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            Error::Usage(
                "run this inside the project; neither the current folder nor one above it contains Cargo.toml and xtask/Cargo.toml"
                    .into(),
            )
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
