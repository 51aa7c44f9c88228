//! Helpers for tests with third-party programs: finding and running a program, a temporary folder, and a macro that
//! makes a test for each engine.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test program uses a part of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Makes a test for each pair of an engine and a function. The function gets the engine's name as its argument.
macro_rules! on_every_engine {
    ($($engine:ident),*: $tests:tt) => { $(on_every_engine!(@ $engine $tests);)* };
    (@ $engine:ident [$($test:ident),*]) => {
        mod $engine {
            $(#[test] fn $test() { super::$test(stringify!($engine)); })*
        }
    };
}
pub(crate) use on_every_engine;

/// Returns the path of the first of the named programs that is installed. Reports the test as not run if none is.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let found = found.into_iter().find(|file| file.is_file());
    if found.is_none() {
        not_run(&format!("{} is not installed", names.join(" or ")));
    }
    found
}

/// Returns the first Python with these modules. Tries /usr/bin/python3 too, because packages of Debian install modules
/// only for that Python.
pub(crate) fn python_with(modules: &str) -> Option<PathBuf> {
    let pythons = program(&["python3"]).into_iter().chain([PathBuf::from("/usr/bin/python3")]);
    let mut found = pythons.filter(|python| Path::is_file(python));
    found.find(|python| attempt(python, &["-c", &format!("import {modules}")], b"").0)
}

/// Ends a program by SIGTERM, so that it ends its own processes, too; by SIGKILL if it has not ended after ten seconds.
pub(crate) fn stop(child: &mut Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let begun = Instant::now();
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if begun.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::yield_now();
    }
}

/// Prints why a test was not run. Writes directly to standard error, because the test harness captures printed text of
/// passing tests.
pub(crate) fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {why}");
}

/// A temporary folder. Dropping the value removes the folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Makes a folder that no other test of this process has, even with the same name.
    pub(crate) fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("highwire-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An error is ignored. The folder then stays in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns pseudo-random bytes: the high bytes of a linear congruential generator that begins with `state`.
pub(crate) fn random_bytes(length: usize, mut state: u64) -> Vec<u8> {
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    next.take(length).collect()
}

/// Runs a program, asserts that it succeeds, and returns its standard output.
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

/// Runs a program with this standard input. Returns true if it succeeded, and its standard output and error.
pub(crate) fn attempt(program: &Path, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program that starts");
    // May fail, because the program may already have ended.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let output = child.wait_with_output().expect("a program that ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
