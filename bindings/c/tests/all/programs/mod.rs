//! Compiles C programs against the library of this build, starts them, and ends them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// The folder of this crate.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of the library that this build has made. It is that of the test program.
pub(crate) fn libraries() -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    program.parent().expect("a folder").to_path_buf()
}

/// How a program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) compiler: &'static str,
    pub(crate) standard: &'static str,
    /// Further options, such as sanitizers.
    pub(crate) options: &'static [&'static str],
}

pub(crate) const C99: Build = Build { compiler: "gcc", standard: "c99", options: &[] };

/// Every compiler and standard. A missing compiler is "not run".
pub(crate) const BUILDS: &[Build] = &[
    C99,
    Build { compiler: "g++", standard: "c++11", options: &[] },
    Build { compiler: "clang", standard: "c99", options: &[] },
    Build { compiler: "clang++", standard: "c++11", options: &[] },
];

/// Returns true if a program is installed, and prints that something is not run otherwise.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("not run: {program} is not installed");
    }
    found
}

/// The programs that this process has compiled. Tests run in parallel and share them, and a program that is being written
/// cannot be started.
static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The libraries that examples use, with a header of each.
const LIBRARIES: &[(&str, &str, &str)] = &[
    ("examples/json.c", "cjson/cJSON.h", "-lcjson"),
    ("examples/libevent_loop.c", "event2/event.h", "-levent"),
    ("examples/libuv_loop.c", "uv.h", "-luv"),
];

/// Returns true if the libraries of an example are installed, and prints that it is not run otherwise.
pub(crate) fn has_libraries(source: &str) -> bool {
    LIBRARIES.iter().filter(|(user, ..)| *user == source).all(|(_, header, _)| {
        let mut command = Command::new("gcc");
        command.args(["-E", "-include", header, "-x", "c", "/dev/null"]).stdout(Stdio::null()).stderr(Stdio::null());
        let found = command.status().is_ok_and(|status| status.success());
        if !found {
            println!("not run: {source}, because {header} is not installed");
        }
        found
    })
}

/// Compiles a source of this crate, unless this process has done so before. Warnings are errors. Returns the program.
pub(crate) fn compile(source: &str, build: Build) -> PathBuf {
    // Programs in different folders may have the same name.
    let name = Path::new(source).with_extension("").to_string_lossy().replace('/', "-");
    let options: String = build.options.concat().chars().filter(char::is_ascii_alphanumeric).collect();
    let out = libraries().join(format!("c-{name}-{}-{}{options}", build.compiler, build.standard));
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.contains(&out) {
        return out;
    }
    let mut command = Command::new(build.compiler);
    command.arg(format!("-std={}", build.standard));
    if build.standard.starts_with("c++") {
        command.args(["-x", "c++"]);
    }
    command.args(["-g", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D_GNU_SOURCE", "-U_GNU_SOURCE"]);
    command.args(["-D_POSIX_C_SOURCE=200809L", "-D_DEFAULT_SOURCE"]);
    command.args(build.options).arg(root().join(source)).args(["-x", "none"]);
    command.arg("-I").arg(root().join("include")).arg("-L").arg(libraries()).args(["-lhighwire_c", "-lpthread"]);
    command.args(LIBRARIES.iter().filter(|(user, ..)| *user == source).map(|(.., library)| library));
    // Cargo names the folder of an older build in LD_LIBRARY_PATH, which comes first without `--disable-new-dtags`.
    let path = format!("-Wl,--disable-new-dtags,-rpath,{}", libraries().display());
    command.arg(path).arg("-o").arg(&out);
    let output = command.output().expect("a compiler");
    assert!(output.status.success(), "{source} with {build:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    compiled.insert(out.clone());
    out
}

/// A running server program.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: String,
}

impl Running {
    /// Starts a program that prints `http://ADDRESS` first.
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        match line.trim().strip_prefix("http://") {
            Some(address) => Running { address: address.to_string(), child },
            None => {
                let mut said = String::new();
                let _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
                panic!("the program has printed {line:?}:\n{said}");
            }
        }
    }

    /// Ends the program's standard input, which must be a pipe.
    pub(crate) fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits at most two minutes for the end of the program, which must be a success. Returns what it has printed to standard
    /// error.
    pub(crate) fn end(mut self) -> String {
        let mut stderr = self.child.stderr.take().expect("a pipe");
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            let _ = sender.send(said);
        });
        // The pipe ends with the program.
        let said = ended.recv_timeout(Duration::from_secs(120)).expect("the end of the program");
        let status = self.child.wait().expect("a status");
        assert!(status.success(), "{status}:\n{said}");
        said
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) fn terminate(self) -> String {
        let killed = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failed assertion. A program that has ended is not affected.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
