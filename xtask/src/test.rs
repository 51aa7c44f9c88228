//! `cargo xtask test`: runs the tests and checks of the project in order and prints a summary.
//!
//! The steps are rows of a table. A step that cannot run on this machine prints the reason and counts as skipped. The
//! steps after a failed one still run, so one run can show several failures.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::process::{
    self, AB, APACHE, BROTLI, CHROMIUM, CJSON, CLANG, CURL, GCC, GO, GXX, H2LOAD, H2O, HAPROXY, HTTPX, HYPER_H2,
    LIBEVENT, LIBURING, LIBUV, LUAJIT, MONO, NATS, NGINX, NODE, OPENSSL, POSTGRESQL, PRLIMIT, PYTHON_BROTLI, REDIS,
    REQUESTS, STRACE, Tool, VALGRIND, WGET, WRK, ZSTD,
};
use crate::{Error, Result, attack, autobahn, bench, conformance, fuzz, openapi, portability, python, redbot, tidy};

pub(crate) const HELP: &str = "\
Runs the tests and checks of the project in order and prints a summary. Steps after a failed one still run.

Usage: cargo xtask test [--long] [--seeds N] [--minutes N] [--only STEP]... [--list]

Options:
  --long        also run what takes long: Miri, fuzzing, all cases of Autobahn, other systems and more seeds; needs hours
  --seeds N     number of seeds for the simulator (default 300, with --long 10000)
  --minutes N   after N minutes, stop a running command and start no further step; these steps fail (default 42, with
                --long 300)
  --only STEP   run only this step; may be given several times
  --list        show the steps and run nothing

The step `tools` installs most missing tools with apt-get (as root), go and pip. With --long the others are installed, too,
with rustup and cargo. If a step still lacks a tool, it is
`not run`, and the missing tool is printed. The last line counts the steps: `N passed, N failed, N skipped`.
";

/// A step of the command.
struct Step {
    name: &'static str,
    when: When,
    needs: &'static [Need],
    action: Action,
}

/// The runs that have a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Not with `--long`, in which another step does more of the same.
    Short,
    /// Only with `--long`.
    Long,
}

/// A requirement of a step.
#[derive(Clone, Copy)]
enum Need {
    /// A file of the project.
    File(&'static str),
    /// A program or library of the system.
    Tool(Tool),
    /// The standard library of another target.
    Target(&'static str),
    /// The oldest compiler that the libraries support: the `rust-version` of the workspace.
    OldestCompiler,
    /// The nightly toolchain with Miri.
    Miri,
    /// h2spec, which is built with Go.
    H2spec,
    /// REDbot, which is installed with pip.
    Redbot,
    /// openapi-spec-validator and schemathesis, which are installed with pip.
    OpenApi,
    /// A Python that the package for Python supports.
    Python,
    /// The Autobahn test suite, which is installed with pip for Python 2.7.
    Autobahn,
    /// The Rust compiler with the source of its standard library that [`portability`] uses.
    Portability,
    /// The nightly toolchain with cargo-fuzz.
    Fuzz,
    /// A cargo command that is not installed automatically, because building it takes too long.
    CargoCommand(&'static str),
}

/// The action of a step.
enum Action {
    /// A command line, in which `{seeds}` stands for the number of seeds and `{oldest}` for the oldest compiler, and additional
    /// environment variables.
    Run(&'static str, &'static [(&'static str, &'static str)]),
    /// A function that gets the project's root.
    Do(fn(&Path) -> Result<()>),
    /// One of the programs of [`process::build_checked`], with arguments as those of `Run`.
    Checked(&'static str),
}

const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// The number of seconds per fuzz target, which is enough to find obvious bugs. `cargo xtask fuzz` runs longer by
/// default.
const FUZZ_SECONDS: u32 = 10;

/// The steps in the order in which they run. Cheap and informative ones usually come first.
const STEPS: &[Step] = &[
    Step { name: "tools", when: When::Always, needs: &[], action: Action::Do(fetch_tools) },
    Step { name: "format", when: When::Always, needs: &[], action: Action::Run("cargo fmt --all --check", &[]) },
    Step {
        name: "tidy",
        when: When::Always,
        needs: &[],
        action: Action::Do(|root| tidy::run(root, Args::new("tidy", Vec::new()))),
    },
    Step {
        name: "clippy",
        when: When::Always,
        needs: &[],
        action: Action::Run("cargo clippy --workspace --all-targets --all-features -- -D warnings", &[]),
    },
    Step {
        name: "documentation",
        when: When::Always,
        needs: &[],
        // Documents only libraries, because the command and the library, both named `highwire`, would write the same
        // pages.
        action: Action::Run("cargo doc --workspace --all-features --no-deps --lib", &[("RUSTDOCFLAGS", "-D warnings")]),
    },
    Step {
        name: "tests",
        when: When::Always,
        needs: &[],
        action: Action::Run("cargo test --workspace --all-features --no-fail-fast", &[]),
    },
    Step {
        name: "without features",
        when: When::Always,
        needs: &[],
        action: Action::Run("cargo clippy -p highwire-engine -p highwire --no-default-features -- -D warnings", &[]),
    },
    Step {
        name: "default features",
        when: When::Always,
        needs: &[],
        action: Action::Run("cargo clippy -p highwire -- -D warnings", &[]),
    },
    Step {
        name: "proto without std",
        when: When::Always,
        needs: &[],
        action: Action::Run("cargo check -p highwire-proto --no-default-features", &[]),
    },
    Step {
        name: "proto on aarch64",
        when: When::Long,
        needs: &[Need::Target(AARCH64)],
        action: Action::Run("cargo check -p highwire-proto --target aarch64-unknown-linux-gnu", &[]),
    },
    Step {
        name: "oldest compiler",
        when: When::Always,
        needs: &[Need::OldestCompiler],
        // All features but `nats`, whose client needs 1.89.
        action: Action::Run(
            "cargo +{oldest} check --locked -p highwire -p highwire-cli -p highwire-c --features \
             highwire/axum,highwire/compress,highwire/cookie-jar,highwire/cookies,highwire/garde,highwire/headers,\
             highwire/openapi,highwire/redis,highwire/templates",
            &[],
        ),
    },
    Step {
        name: "packages",
        when: When::Short,
        needs: &[],
        action: Action::Run("cargo publish --dry-run --workspace --allow-dirty --no-verify", &[]),
    },
    Step {
        name: "packages: built as published",
        when: When::Long,
        needs: &[],
        action: Action::Run("cargo publish --dry-run --workspace --allow-dirty", &[]),
    },
    Step { name: "other systems", when: When::Long, needs: &[Need::Portability], action: Action::Do(portability::all) },
    Step { name: "simulator", when: When::Always, needs: &[], action: Action::Checked("sim --seeds {seeds}") },
    Step { name: "h2spec", when: When::Always, needs: &[Need::H2spec], action: Action::Do(conformance::h2spec) },
    Step { name: "attacks", when: When::Always, needs: &[], action: Action::Do(attack::short) },
    Step { name: "python", when: When::Short, needs: &[Need::Python], action: Action::Do(python::newest) },
    Step { name: "python: all versions", when: When::Long, needs: &[Need::Python], action: Action::Do(python::all) },
    Step { name: "redbot", when: When::Always, needs: &[Need::Redbot], action: Action::Do(redbot::redbot) },
    Step { name: "openapi", when: When::Always, needs: &[Need::OpenApi], action: Action::Do(openapi::openapi) },
    Step { name: "autobahn", when: When::Short, needs: &[Need::Autobahn], action: Action::Do(autobahn::short) },
    Step { name: "autobahn: all cases", when: When::Long, needs: &[Need::Autobahn], action: Action::Do(autobahn::all) },
    Step {
        name: "bench programs",
        when: When::Always,
        needs: &[Need::Tool(GCC), Need::Tool(LIBURING), Need::Tool(LIBEVENT)],
        action: Action::Do(|root| bench::build_programs(root).map(drop)),
    },
    Step {
        name: "miri: proto",
        when: When::Long,
        needs: &[Need::Miri],
        // Runs the tests of the code in proto that contains `unsafe`: scanning and WebSocket masking. The skipped test
        // took nine minutes. It compares more byte values than other tests, but does not read memory in other ways.
        action: Action::Run(
            "cargo +nightly miri test -p highwire-proto --lib -- scan mask --skip every_byte_at_every_place",
            MIRI,
        ),
    },
    Step {
        name: "miri: io",
        when: When::Long,
        needs: &[Need::Miri],
        // Runs the tests of io that use only memory and eventfd. Miri cannot run those with sockets or io_uring.
        action: Action::Run("cargo +nightly miri test -p highwire-io --lib -- wake slots outgoing", MIRI),
    },
    Step {
        name: "fuzz targets",
        when: When::Long,
        needs: &[Need::File("fuzz/Cargo.toml"), Need::Fuzz],
        action: Action::Do(|root| fuzz::fuzz(root, FUZZ_SECONDS, &[])),
    },
    Step {
        name: "licences and sources",
        when: When::Always,
        needs: &[Need::CargoCommand("deny")],
        // Does not check advisories, which need the network and can appear without a change in this project.
        action: Action::Run("cargo deny check licenses bans sources", &[]),
    },
];

/// Third-party programs and Python packages that tests use. A test that lacks one usually prints that it was not run.
const CLIENTS: &[Tool] = &[
    GCC,
    GXX,
    CLANG,
    CJSON,
    LIBEVENT,
    LIBUV,
    LUAJIT,
    MONO,
    VALGRIND,
    CURL,
    WGET,
    AB,
    WRK,
    H2LOAD,
    OPENSSL,
    HTTPX,
    HYPER_H2,
    REQUESTS,
    PYTHON_BROTLI,
    STRACE,
    POSTGRESQL,
    PRLIMIT,
    CHROMIUM,
    REDIS,
    NATS,
    BROTLI,
    ZSTD,
    NGINX,
    H2O,
    HAPROXY,
    APACHE,
    NODE,
    GO,
];

fn fetch_tools(root: &Path) -> Result<()> {
    for tool in CLIENTS {
        if let Err(missing) = tool.ensure() {
            println!("not run: tests that need {}; {missing}", tool.name);
        }
    }
    if let Some(missing) = conformance::h2spec_missing(root, true) {
        println!("not run: tests that need h2spec; {missing}");
    }
    if let Some(missing) = redbot::missing(root, true) {
        println!("not run: tests that need redbot; {missing}");
    }
    if let Some(missing) = openapi::missing(root, true) {
        println!("not run: tests that need schemathesis; {missing}");
    }
    if let Some(missing) = autobahn::missing(root, true) {
        println!("not run: tests that need autobahn; {missing}");
    }
    Ok(())
}

/// The environment for Miri. Without isolation, property tests can look for past failures in the current folder.
/// Property tests run few cases, because Miri is some hundred times slower than native code.
const MIRI: &[(&str, &str)] = &[("MIRIFLAGS", "-Zmiri-disable-isolation"), ("PROPTEST_CASES", "4")];

/// The time limit of a step that runs a command: about twice the time of the longest step on two slow cores. A step
/// that hangs must not use up the time of the other steps.
const STEP: Duration = Duration::from_secs(20 * 60);

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    NotRun(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "passed"),
            Self::Failed(reason) => write!(f, "FAILED: {}", first_line(reason)),
            Self::NotRun(reason) => write!(f, "not run: {}", first_line(reason)),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The options that apply to all steps.
struct Options {
    long: bool,
    seeds: u32,
    deadline: Instant,
}

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let long = args.flag("--long");
    let list = args.flag("--list");
    let seeds = args.value("--seeds")?.unwrap_or(if long { 10_000 } else { 300 });
    let minutes: u64 = args.value("--minutes")?.unwrap_or(if long { 300 } else { 42 });
    let only = args.values("--only")?;
    args.finish()?;
    if let Some(unknown) = only.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        return Err(Error::Usage(format!("unknown step `{unknown}`; `cargo xtask test --list` shows the steps")));
    }
    if list {
        for step in STEPS {
            let line = match step.action {
                Action::Run(line, _) | Action::Checked(line) => line,
                Action::Do(_) => "(in xtask)",
            };
            let when = match step.when {
                When::Always => "",
                When::Short => "   (not with --long)",
                When::Long => "   (with --long)",
            };
            println!("{:<24} {line}{when}", step.name);
        }
        return Ok(());
    }
    let options = Options { long, seeds, deadline: Instant::now() + Duration::from_secs(minutes * 60) };
    let mut ends = Vec::new();
    let is_chosen = |step: &&Step| match only.is_empty() {
        true => step.when != if long { When::Short } else { When::Long },
        false => only.iter().any(|name| name == step.name),
    };
    for step in STEPS.iter().filter(is_chosen) {
        println!("\n==== {}", step.name);
        let begun = Instant::now();
        let outcome = perform(root, step, &options);
        let seconds = begun.elapsed().as_secs_f64();
        println!("==== {}: {outcome} ({seconds:.1} s)", step.name);
        ends.push((step.name, outcome, seconds));
    }
    println!("\n{:<24} {:>8}  result", "step", "seconds");
    for (name, outcome, seconds) in &ends {
        println!("{name:<24} {seconds:>8.1}  {outcome}");
    }
    let (summary, ok) = sum_up(ends.iter().map(|(_, outcome, _)| outcome));
    println!("{summary}");
    // Exits without another message, so that the summary stays the last line. The table above shows the failures.
    if ok { Ok(()) } else { std::process::exit(1) }
}

/// Returns the last line of the output, and true if no step failed.
fn sum_up<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> (String, bool) {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for outcome in outcomes {
        match outcome {
            Outcome::Passed => passed += 1,
            Outcome::Failed(_) => failed += 1,
            Outcome::NotRun(_) => skipped += 1,
        }
    }
    (format!("{passed} passed, {failed} failed, {skipped} skipped"), failed == 0)
}

fn perform(root: &Path, step: &Step, options: &Options) -> Outcome {
    if Instant::now() >= options.deadline {
        return Outcome::Failed("no time was left (--minutes)".into());
    }
    for need in step.needs {
        if let Err(reason) = need.ensure(root, options.long) {
            return Outcome::NotRun(reason);
        }
    }
    let ended = match &step.action {
        Action::Do(work) => work(root).map_err(Error::reason),
        Action::Run(line, environment) => run_line(root, line, environment, options),
        Action::Checked(line) => process::build_checked(root)
            .map_err(Error::reason)
            .and_then(|()| run_line(root, &format!("{}/{line}", process::CHECKED), &[], options)),
    };
    match ended {
        Ok(()) => Outcome::Passed,
        Err(reason) => Outcome::Failed(reason),
    }
}

/// Runs a command line with these additional environment variables. Returns the reason if it fails.
fn run_line(
    root: &Path,
    line: &str,
    environment: &[(&str, &str)],
    options: &Options,
) -> std::result::Result<(), String> {
    let oldest = portability::oldest_compiler(root).unwrap_or_default();
    let fill = |word: &str| word.replace("{seeds}", &options.seeds.to_string()).replace("{oldest}", &oldest);
    let words: Vec<String> = line.split(' ').map(fill).collect();
    let mut command = Command::new(&words[0]);
    command.current_dir(root).args(&words[1..]).envs(environment.iter().copied());
    println!("{}", process::shown(&command));
    match process::run_until(&mut command, options.deadline.min(Instant::now() + STEP)) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(status.to_string()),
        Ok(None) => Err("stopped after 20 minutes, or when the time of --minutes was over".into()),
        Err(error) => Err(error.reason()),
    }
}

impl Need {
    /// Checks the requirement. With `install`, first tries to install most kinds of missing tools.
    ///
    /// # Errors
    /// Returns a message if the requirement is not met, usually with the command to install the missing tool.
    fn ensure(self, root: &Path, install: bool) -> std::result::Result<(), String> {
        match self {
            Self::File(path) if root.join(path).exists() => Ok(()),
            Self::File(path) => Err(format!("{path} is missing")),
            Self::Tool(tool) if install => tool.ensure(),
            Self::Tool(tool) if tool.is_here() => Ok(()),
            Self::Tool(tool) => Err(format!("{} is missing (`apt-get install {}`)", tool.name, tool.package)),
            Self::Target(target) => {
                let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
                let library = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib");
                if library.is_dir() {
                    Ok(())
                } else {
                    Err(format!("no standard library for {target} (`rustup target add {target}`)"))
                }
            }
            Self::OldestCompiler => {
                let version = portability::oldest_compiler(root).ok_or("Cargo.toml has no `rust-version`")?;
                let works =
                    || process::output(Command::new("cargo").args([&format!("+{version}"), "--version"])).is_ok();
                if !works() && install {
                    let add = ["toolchain", "install", "--profile", "minimal", &version];
                    let _ = process::output(Command::new("rustup").args(add));
                }
                if works() {
                    Ok(())
                } else {
                    Err(format!("Rust {version} is missing (`rustup toolchain install --profile minimal {version}`)"))
                }
            }
            Self::Miri => {
                let works = || process::output(Command::new("cargo").args(["+nightly", "miri", "--version"])).is_ok();
                if !works() && install {
                    let add = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
                    let _ = process::output(Command::new("rustup").args(add));
                }
                if works() {
                    Ok(())
                } else {
                    Err("Miri is missing (`rustup component add --toolchain nightly miri rust-src`)".into())
                }
            }
            Self::H2spec => conformance::h2spec_missing(root, install).map_or(Ok(()), Err),
            Self::Redbot => redbot::missing(root, install).map_or(Ok(()), Err),
            Self::OpenApi => openapi::missing(root, install).map_or(Ok(()), Err),
            Self::Python => python::missing().map_or(Ok(()), Err),
            Self::Autobahn => autobahn::missing(root, install).map_or(Ok(()), Err),
            Self::Portability => portability::missing(root, install).map_or(Ok(()), Err),
            Self::Fuzz => fuzz::missing(install).map_or(Ok(()), Err),
            Self::CargoCommand(name) => {
                let works = process::output(Command::new("cargo").args([name, "--version"])).is_ok();
                if works { Ok(()) } else { Err(format!("cargo-{name} is missing (`cargo install cargo-{name}`)")) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_compiler_is_the_one_of_the_manifest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest");
        let oldest = portability::oldest_compiler(&root).expect("a version");
        assert!(manifest.contains(&format!("\nrust-version = \"{}\"\n", oldest.trim_end_matches(".0"))), "{oldest}");
        let step = STEPS.iter().find(|step| step.name == "oldest compiler").expect("the step");
        assert!(matches!(step.action, Action::Run(line, _) if line.contains("+{oldest} ")));
    }

    #[test]
    fn the_closing_line_counts_the_steps() {
        let (passed, failed, skipped) =
            (Outcome::Passed, Outcome::Failed(String::new()), Outcome::NotRun(String::new()));
        for (outcomes, expected, ok) in [
            (vec![], "0 passed, 0 failed, 0 skipped", true),
            (vec![&passed, &skipped, &passed], "2 passed, 0 failed, 1 skipped", true),
            (vec![&passed, &failed], "1 passed, 1 failed, 0 skipped", false),
        ] {
            assert_eq!(sum_up(outcomes.into_iter()), (expected.to_owned(), ok));
        }
    }

    /// Performs a step with these properties and checks that its printed result begins with `expected`.
    fn check(action: Action, needs: &'static [Need], seconds: u64, expected: &str) {
        let options = Options { long: false, seeds: 7, deadline: Instant::now() + Duration::from_secs(seconds) };
        let outcome = perform(Path::new("."), &Step { name: "sample", when: When::Always, needs, action }, &options);
        assert!(outcome.to_string().starts_with(expected), "{outcome}");
    }

    #[test]
    fn a_step_passes_fails_or_is_not_run() {
        check(Action::Run("true", &[]), &[], 60, "passed");
        check(Action::Run("false", &[]), &[], 60, "FAILED: exit status: 1");
        check(Action::Run("test {seeds} = 7", &[]), &[], 60, "passed");
        check(Action::Run("printenv IT", &[("IT", "1")]), &[], 60, "passed");
        check(Action::Run("no-such-program", &[]), &[], 60, "FAILED: no-such-program");
        check(Action::Do(|_| Err(Error::Failed("so\nand so".into()))), &[], 60, "FAILED: so");
        check(Action::Run("true", &[]), &[Need::File("gone")], 60, "not run: gone is missing");
        check(Action::Run("true", &[]), &[Need::Target("pdp11")], 60, "not run: no standard library for pdp11");
        check(Action::Run("true", &[]), &[], 0, "FAILED: no time was left");
    }

    #[test]
    fn names_of_steps_are_unique() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
