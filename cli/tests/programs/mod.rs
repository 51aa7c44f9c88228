//! What tests with other people's programs share: finding one and running it to its end, a folder for its files, a test for each
//! engine.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test program uses a part of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes a test of each function for each engine, whose name it is given.
macro_rules! on_every_engine {
    ($($engine:ident),*: $tests:tt) => { $(on_every_engine!(@ $engine $tests);)* };
    (@ $engine:ident [$($test:ident),*]) => {
        mod $engine {
            $(#[test] fn $test() { super::$test(stringify!($engine)); })*
        }
    };
}
pub(crate) use on_every_engine;

/// Where a program is; none, and a line that says so, where this machine does not have it.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let found = found.into_iter().find(|file| file.is_file());
    if found.is_none() {
        not_run(&format!("{} is not installed", names.join(" or ")));
    }
    found
}

/// Says what was not run, to standard error itself: what a passing test prints is not shown.
pub(crate) fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {why}");
}

/// An empty folder that goes with its test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("highwire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind in the folder for temporary files harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program to its end: what it printed.
pub(crate) fn output(program: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().expect("a program that starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(4096)]);
    assert!(output.status.success(), "{program:?} {arguments:?}: {}\n{errors}\n{printed}", output.status);
    output.stdout
}

pub(crate) fn output_text(program: &Path, arguments: &[&str]) -> String {
    String::from_utf8(output(program, arguments)).expect("text")
}

/// Runs a program to its end, which need not be a good one, with something on its standard input: whether it succeeded,
/// and all that it said.
pub(crate) fn attempt(program: &Path, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program that starts");
    // It may have ended already.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let output = child.wait_with_output().expect("a program that ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
