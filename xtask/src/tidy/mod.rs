//! `cargo xtask tidy`: the invariants that a program can check.
//!
//! A check is a row of `CHECKS`: its name, why it exists, and a function from the project's files to what it found. Exceptions are
//! data with a reason (`exceptions`), and one that no longer excepts anything is itself a violation.

mod checks;
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
Checks the invariants that a program can check: where unsafe and locks may appear, what crates may depend on, how files
open, how long they may be, what they may be called, whether documents and code agree.

Usage: cargo xtask tidy [--list]

Options:
  --list   show the checks and the exceptions to them, and check nothing

Prints each violation as `file:line: what, why` and exits with 1 if there is one.
Exceptions are in xtask/src/tidy/exceptions.rs, each with its reason.
";

/// One check.
struct Check {
    name: &'static str,
    why: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { name: "unsafe-place", why: "unsafe lives only where it can be reviewed whole", run: checks::unsafe_place },
    Check {
        name: "unsafe-reason",
        why: "a reviewer checks the argument, not the code alone",
        run: checks::unsafe_reason,
    },
    Check { name: "layers", why: "a crate knows those below it, and no others", run: checks::layers },
    Check { name: "proto-alone", why: "proto cannot do I/O, read a clock or start a thread", run: checks::proto_alone },
    Check { name: "no-lock", why: "a connection lives on one thread and waits for no other", run: checks::no_lock },
    Check { name: "no-arc", why: "a request pays for no counting across threads", run: checks::no_arc },
    Check { name: "opening", why: "a reader learns first what a file is for", run: checks::opening },
    Check { name: "length", why: "past 500 lines of code a file usually holds two ideas", run: checks::length },
    Check { name: "drawer", why: "a drawer for everything collects everything", run: documents::drawer },
    Check { name: "unfinished", why: "a stub or a skipped test is worse than a missing part", run: checks::unfinished },
    Check {
        name: "sleeping-test",
        why: "a test that sleeps is slow on good days and wrong on bad ones",
        run: checks::sleeping_test,
    },
    Check {
        name: "limits",
        why: "every bound is documented with its reason, and every documented bound exists",
        run: documents::limits,
    },
    Check { name: "format", why: "diffs show only what changed", run: documents::format },
    Check { name: "links", why: "a dead link is a truth that drifted", run: documents::links },
    Check { name: "map", why: "the root listing is the architecture", run: documents::map },
];

/// What a check found, before its exceptions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1.
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
                println!("    but {}: {}", exception.path, exception.reason);
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

/// Every violation as the line to print, in the order of the files.
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
        let what = format!("the exception of {} from `{}` excepts nothing", exception.path, exception.check);
        found.push((
            Finding::new("xtask/src/tidy/exceptions.rs", 1, what),
            "a list of exceptions is read as what is the case",
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
            assert!(exception.reason.len() > 20, "{}: say more than `{}`", exception.path, exception.reason);
        }
    }
}
