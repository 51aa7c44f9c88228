//! `cargo xtask tidy`: checks rules of the project that a program can check.
//!
//! A check is a row of `CHECKS`: its name, its reason, and a function that returns its findings in the project's files.
//! Exceptions are data with a reason (`exceptions`). An exception that is not needed is a violation, too.

mod checks;
mod circles;
mod documents;
mod exceptions;
mod source;
mod tree;

use std::path::Path;

use self::exceptions::{EXCEPTIONS, Exception};
use self::tree::Tree;
use crate::args::Args;
use crate::{Error, Result};

pub(crate) const HELP: &str = "\
Checks rules of the project, such as where `unsafe` and locks may appear, which crates may depend on which, how files
begin and are named, how long they may be, and whether documents and code agree.

Usage: cargo xtask tidy [--list]

Options:
  --list   show the checks and their exceptions, and check nothing

Prints each violation as `file:line: violation, reason` and exits with 1 if there are any.
Exceptions are in xtask/src/tidy/exceptions.rs, each with its reason.
";

/// A check.
struct Check {
    name: &'static str,
    why: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { name: "unsafe-place", why: "unsafe is allowed only in a few, reviewed places", run: checks::unsafe_place },
    Check {
        name: "unsafe-reason",
        why: "a reviewer checks the code against its SAFETY argument",
        run: checks::unsafe_reason,
    },
    Check { name: "layers", why: "a crate may use only the crates below it", run: checks::layers },
    Check {
        name: "circles",
        why: "files that import one another can only be understood together",
        run: circles::circles,
    },
    Check { name: "proto-alone", why: "proto does no I/O, reads no clock, starts no thread", run: checks::proto_alone },
    Check { name: "no-lock", why: "a connection belongs to one thread and never waits", run: checks::no_lock },
    Check { name: "no-arc", why: "requests must not pay for atomic reference counts", run: checks::no_arc },
    Check { name: "opening", why: "a file must begin with its purpose", run: checks::opening },
    Check { name: "length", why: "a file of more than 500 lines of code usually holds two ideas", run: checks::length },
    Check { name: "drawer", why: "a vague name attracts unrelated code", run: documents::drawer },
    Check { name: "unfinished", why: "unfinished code and skipped tests are not allowed", run: checks::unfinished },
    Check {
        name: "sleeping-test",
        why: "a test that sleeps is slow, and may fail on a slow machine",
        run: checks::sleeping_test,
    },
    Check {
        name: "limits",
        why: "limits must be documented with their reasons, and documented limits must exist",
        run: documents::limits,
    },
    Check { name: "format", why: "whitespace must not cause diffs", run: documents::format },
    Check { name: "links", why: "links must lead to existing files", run: documents::links },
    Check { name: "map", why: "ARCHITECTURE.md must mention every folder of the root", run: documents::map },
];

/// A finding of a check, before exceptions apply.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// The line, counted from 1.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let list = args.flag("--list");
    args.finish()?;
    if list {
        for check in CHECKS {
            println!("{}: {}", check.name, check.why);
            for exception in EXCEPTIONS.iter().filter(|exception| exception.check == check.name) {
                println!("    except {}: {}", exception.path, exception.reason);
            }
        }
        return Ok(());
    }
    let violations = violations(&Tree::read(root)?, CHECKS, EXCEPTIONS);
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        count => Err(Error::Failed(format!("{count} violations"))),
    }
}

/// Returns the lines to print, one per violation, sorted by file.
fn violations(tree: &Tree, checks: &[Check], exceptions: &[Exception]) -> Vec<String> {
    let mut found: Vec<(Finding, &str)> = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for check in checks {
        for finding in (check.run)(tree) {
            let covers = |exception: &Exception| exception.check == check.name && exception.covers(&finding.path);
            match exceptions.iter().position(covers) {
                Some(at) => used[at] = true,
                None => found.push((finding, check.why)),
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        let what = format!("{} needs no exception to the check `{}`", exception.path, exception.check);
        found.push((
            Finding::new("xtask/src/tidy/exceptions.rs", 1, what),
            "readers must be able to trust the list of exceptions",
        ));
    }
    found.sort();
    found.iter().map(|(finding, why)| format!("{}:{}: {}, {why}", finding.path, finding.line, finding.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[Check] = &[Check {
        name: "sample",
        why: "because",
        run: |tree| tree.texts.keys().map(|path| Finding::new(path, 7, "is here")).collect(),
    }];

    #[test]
    fn violations_read_file_line_what_why() {
        let tree = Tree::of(&[("b.rs", ""), ("a.rs", "")]);
        assert_eq!(violations(&tree, SAMPLE, &[]), ["a.rs:7: is here, because", "b.rs:7: is here, because"]);
    }

    #[test]
    fn an_exception_holds_for_its_path_and_must_be_needed() {
        let tree = Tree::of(&[("a/b.rs", "")]);
        for (path, expected) in [("a/b.rs", 0), ("a/", 0), ("a", 2), ("a/b", 2), ("c.rs", 2)] {
            let exceptions = [Exception { check: "sample", path, reason: "" }];
            assert_eq!(violations(&tree, SAMPLE, &exceptions).len(), expected, "{path}");
        }
    }

    #[test]
    fn every_exception_names_a_check_and_a_reason() {
        for exception in EXCEPTIONS {
            assert!(CHECKS.iter().any(|check| check.name == exception.check), "{}", exception.check);
            assert!(exception.reason.len() > 20, "{}: the reason `{}` is too short", exception.path, exception.reason);
        }
    }
}
