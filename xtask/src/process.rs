//! Functions that find or install programs, run them, read their CPU time and memory, and stop them with their
//! descendants.
//!
//! For system calls that the standard library lacks, xtask runs small programs and shell commands (`kill`, `taskset`,
//! `setpriv`, `ulimit`). It therefore needs neither `unsafe` nor an external crate.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The interval between checks whether a program has ended. The delay is not noticeable, and the checks cost little.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a program may take to end after SIGTERM before it gets SIGKILL.
const FAREWELL: Duration = Duration::from_secs(3);

/// A program, header or file that a step needs, and the Debian package that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// How to find the tool: as a program, as a C header, or as a file with this path.
    pub(crate) probe: Probe,
    pub(crate) package: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Program,
    Header(&'static str),
    File(&'static str),
    /// A shared library that the loader finds by this name.
    Library(&'static str),
}

pub(crate) const GCC: Tool = Tool { name: "gcc", probe: Probe::Program, package: "gcc" };
pub(crate) const GXX: Tool = Tool { name: "g++", probe: Probe::Program, package: "g++" };
pub(crate) const CLANG: Tool = Tool { name: "clang", probe: Probe::Program, package: "clang" };
pub(crate) const LUAJIT: Tool = Tool { name: "luajit", probe: Probe::Program, package: "luajit" };
pub(crate) const MONO: Tool = Tool { name: "mcs", probe: Probe::Program, package: "mono-mcs" };
pub(crate) const VALGRIND: Tool = Tool { name: "valgrind", probe: Probe::Program, package: "valgrind" };
pub(crate) const WRK: Tool = Tool { name: "wrk", probe: Probe::Program, package: "wrk" };
pub(crate) const AB: Tool = Tool { name: "ab", probe: Probe::Program, package: "apache2-utils" };
pub(crate) const BROTLI: Tool = Tool { name: "brotli", probe: Probe::Program, package: "brotli" };
pub(crate) const ZSTD: Tool = Tool { name: "zstd", probe: Probe::Program, package: "zstd" };
pub(crate) const CURL: Tool = Tool { name: "curl", probe: Probe::Program, package: "curl" };
pub(crate) const WGET: Tool = Tool { name: "wget", probe: Probe::Program, package: "wget" };
pub(crate) const NGINX: Tool = Tool { name: "nginx", probe: Probe::Program, package: "nginx-light" };
pub(crate) const H2O: Tool = Tool { name: "h2o", probe: Probe::Program, package: "h2o" };
pub(crate) const HAPROXY: Tool = Tool { name: "haproxy", probe: Probe::Program, package: "haproxy" };
pub(crate) const APACHE: Tool = Tool { name: "apache2", probe: Probe::Program, package: "apache2-bin" };
pub(crate) const NODE: Tool = Tool { name: "node", probe: Probe::Program, package: "nodejs" };
pub(crate) const GO: Tool = Tool { name: "go", probe: Probe::Program, package: "golang-go" };
pub(crate) const H2LOAD: Tool = Tool { name: "h2load", probe: Probe::Program, package: "nghttp2-client" };
pub(crate) const OPENSSL: Tool = Tool { name: "openssl", probe: Probe::Program, package: "openssl" };
pub(crate) const STRACE: Tool = Tool { name: "strace", probe: Probe::Program, package: "strace" };
pub(crate) const PRLIMIT: Tool = Tool { name: "prlimit", probe: Probe::Program, package: "util-linux" };
pub(crate) const CHROMIUM: Tool = Tool { name: "chromium", probe: Probe::Program, package: "chromium" };
/// The database of the tutorial and of the benchmark of databases.
pub(crate) const POSTGRESQL: Tool = Tool { name: "psql", probe: Probe::Program, package: "postgresql" };
/// Brokers that topics share.
pub(crate) const REDIS: Tool = Tool { name: "redis-server", probe: Probe::Program, package: "redis-server" };
pub(crate) const NATS: Tool = Tool { name: "nats-server", probe: Probe::Program, package: "nats-server" };
/// An HTTP client for Debian's Python.
pub(crate) const HTTPX: Tool =
    Tool { name: "httpx", probe: Probe::File("/usr/lib/python3/dist-packages/httpx"), package: "python3-httpx" };
/// The package with which httpx supports HTTP/2.
pub(crate) const HYPER_H2: Tool =
    Tool { name: "h2", probe: Probe::File("/usr/lib/python3/dist-packages/h2"), package: "python3-h2" };
/// An HTTP client for Debian's Python.
pub(crate) const REQUESTS: Tool = Tool {
    name: "requests",
    probe: Probe::File("/usr/lib/python3/dist-packages/requests"),
    package: "python3-requests",
};
/// The package with which `requests` can decode `br`.
pub(crate) const PYTHON_BROTLI: Tool = Tool {
    name: "brotli for Python",
    probe: Probe::File("/usr/lib/python3/dist-packages/brotli.py"),
    package: "python3-brotli",
};
pub(crate) const LIBURING: Tool =
    Tool { name: "liburing", probe: Probe::Header("liburing.h"), package: "liburing-dev" };
pub(crate) const LIBUV: Tool = Tool { name: "libuv", probe: Probe::Header("uv.h"), package: "libuv1-dev" };
pub(crate) const CJSON: Tool = Tool { name: "cJSON", probe: Probe::Header("cjson/cJSON.h"), package: "libcjson-dev" };
pub(crate) const LIBEVENT: Tool =
    Tool { name: "libevent", probe: Probe::Header("event2/event.h"), package: "libevent-dev" };

impl Tool {
    pub(crate) fn is_here(&self) -> bool {
        match self.probe {
            Probe::Program => find_program(self.name).is_some(),
            Probe::File(path) => Path::new(path).exists(),
            Probe::Library(file) => {
                ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib"]
                    .iter()
                    .any(|folder| Path::new(folder).join(file).exists())
            }
            // Debian keeps architecture-dependent headers in a subfolder.
            Probe::Header(path) => [
                "/usr/include",
                "/usr/local/include",
                "/usr/include/x86_64-linux-gnu",
                "/usr/include/aarch64-linux-gnu",
            ]
            .iter()
            .any(|folder| Path::new(folder).join(path).exists()),
        }
    }

    /// Installs the package if the tool is missing and xtask runs as root with apt-get.
    ///
    /// # Errors
    /// Returns a message with the command to install the tool if it is still missing.
    pub(crate) fn ensure(&self) -> std::result::Result<(), String> {
        if self.is_here() {
            return Ok(());
        }
        if is_root() && find_program("apt-get").is_some() {
            println!("installing {} for {}", self.package, self.name);
            install(self.package);
        }
        if self.is_here() {
            Ok(())
        } else {
            Err(format!("{} is missing (`apt-get install {}`)", self.name, self.package))
        }
    }
}

/// Looks for a program in PATH and then in two sbin folders, which contain servers, and returns its path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

pub(crate) fn is_root() -> bool {
    read_field(Path::new("/proc/self/status"), "Uid:").and_then(|ids| ids.split_whitespace().nth(1).map(|id| id == "0"))
        == Some(true)
}

/// Installs a package with apt-get. Ignores errors, because the caller checks for the tool again.
///
/// The package of a daemon usually starts the daemon, which would occupy port 80 and a core during measurements. A
/// temporary `policy-rc.d` script forbids that, unless the machine already has such a script.
fn install(package: &str) {
    const SCRIPT: &str = r#"
        export DEBIAN_FRONTEND=noninteractive
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            printf '#!/bin/sh\nexit 101\n' > $policy && chmod +x $policy
            trap 'rm -f $policy' EXIT
        fi
        apt-get install -qq --no-install-recommends "$1" >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1; apt-get install -qq --no-install-recommends "$1" >/dev/null; }
    "#;
    let _ = Command::new("sh").args(["-c", SCRIPT, "sh", package]).stdin(Stdio::null()).status();
}

/// Runs a program and returns its standard output. If the program fails, the error contains its standard output and
/// standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| Error::doing(&shown, error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(Error::Failed(format!("{shown}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr))))
    }
}

/// The folder of the programs that [`build_checked`] builds, relative to the project's root.
pub(crate) const CHECKED: &str = "target/checks";

/// Builds the programs that the tests ask and attack: `highwire`, the simulator and those between Highwire and other suites. One
/// command builds them with the profile `checks`, so that they share their libraries.
pub(crate) fn build_checked(root: &Path) -> Result<()> {
    let packages = ["--package", "highwire-cli", "--package", "sim", "--package", "conformance"];
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["build", "--profile", "checks", "--target-dir", "target"]).args(packages);
    run_shown(&mut command)
}

/// Builds `highwire` in release mode, as `target/release/highwire`, with further options for Cargo.
pub(crate) fn build_server_with(root: &Path, options: &[&str]) -> Result<()> {
    let build = ["build", "--release", "--package", "highwire-cli", "--target-dir", "target"];
    run_shown(Command::new("cargo").current_dir(root).args(build).args(options))
}

/// Prints a command line and runs it with inherited output. Returns an error if it fails.
pub(crate) fn run_shown(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    println!("{shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Failed(format!("{shown}: {status}"))),
        Err(error) => Err(Error::doing(shown, error)),
    }
}

/// Runs a program with inherited output. If it is still running at the deadline, stops it and returns `None`.
pub(crate) fn run_until(command: &mut Command, deadline: Instant) -> Result<Option<ExitStatus>> {
    let mut child = command.stdin(Stdio::null()).spawn().map_err(|error| Error::doing(shown(command), error))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if Instant::now() < deadline => sleep(GLANCE),
            Ok(None) => {
                stop(&mut child);
                return Ok(None);
            }
            Err(error) => return Err(Error::doing(shown(command), error)),
        }
    }
}

/// Returns the command line for messages: environment variables that are set, the program, and its arguments without
/// quotes.
pub(crate) fn shown(command: &Command) -> String {
    let mut line = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(line, "{}='{}' ", key.to_string_lossy(), value.to_string_lossy());
        }
    }
    line.push_str(&command.get_program().to_string_lossy());
    for word in command.get_args() {
        line.push(' ');
        line.push_str(&word.to_string_lossy());
    }
    line
}

/// A child process. If the process is still running when the value is dropped, the drop stops the process and its
/// descendants.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        Self { child }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Stops a process and its descendants with SIGTERM, and after [`FAREWELL`] with SIGKILL. Does nothing if the process
/// has already ended.
fn stop(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let members = freeze(&[child.id()]);
    signal("TERM", &members);
    signal("CONT", &members);
    let until = Instant::now() + FAREWELL;
    while Instant::now() < until && members.iter().any(Identity::is_alive) {
        let _ = child.try_wait();
        sleep(GLANCE);
    }
    let left: Vec<u32> = members.iter().filter(|member| member.is_alive()).map(|member| member.pid).collect();
    signal("KILL", &freeze(&left));
    let _ = child.wait();
}

/// Suspends processes and their descendants with SIGSTOP and returns them. A suspended process starts no children, so
/// the search is complete when it finds no further process.
fn freeze(pids: &[u32]) -> Vec<Identity> {
    let mut members: Vec<Identity> = Vec::new();
    loop {
        let found = pids.iter().flat_map(|&pid| family(pid)).filter_map(Identity::of);
        let fresh: Vec<Identity> = found.filter(|identity| !members.contains(identity)).collect();
        if fresh.is_empty() {
            return members;
        }
        signal("STOP", &fresh);
        members.extend(fresh);
    }
}

/// A process, identified by its id and start time, because the kernel may reuse the id.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    pid: u32,
    started_ticks: u64,
}

impl Identity {
    fn of(pid: u32) -> Option<Self> {
        let (state, numbers) = stat(pid)?;
        // A zombie has ended, but its parent has not collected the exit status yet.
        (state != "Z").then_some(Self { pid, started_ticks: *numbers.get(STARTED)? })
    }

    fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

fn signal(name: &str, family: &[Identity]) {
    let alive: Vec<String> = family.iter().filter(|id| id.is_alive()).map(|id| id.pid.to_string()).collect();
    if !alive.is_empty() {
        let _ = Command::new("kill").arg(format!("-{name}")).args(alive).stderr(Stdio::null()).status();
    }
}

/// Returns the process id and the ids of the process's descendants, except those whose parent has ended.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        for task in tasks(found[next]) {
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        next += 1;
    }
    found
}

fn tasks(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// Returns the CPU time in seconds that the process and its descendants (see [`family`]) have used.
///
/// `schedstat` counts nanoseconds but omits threads that have ended. `stat` includes these threads but counts ticks of
/// 10 ms. Both are lower bounds, so this uses the larger one for each process. With `schedstat` alone, a server with a
/// thread per connection would seem to need almost no CPU.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let one = |pid| {
        let living: u64 = tasks(pid)
            .iter()
            .filter_map(|task| {
                fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse::<u64>().ok()
            })
            .sum();
        let (_, numbers) = stat(pid).unwrap_or_default();
        let ticks = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let all = (ticks(USER_TICKS) + ticks(SYSTEM_TICKS)) as f64 / TICKS_PER_SECOND;
        all.max(living as f64 / 1e9)
    };
    family(pid).into_iter().map(one).sum()
}

/// USER_HZ, which is 100 on all supported machines.
const TICKS_PER_SECOND: f64 = 100.0;

// Positions in /proc/PID/stat, counted from the field after the name, which is field 3 in proc(5).
const USER_TICKS: usize = 14 - 3;
const SYSTEM_TICKS: usize = 15 - 3;
const STARTED: usize = 22 - 3;

/// Returns the process's state, and the fields after its name in /proc/PID/stat as numbers. A field that is not a
/// number becomes 0. The name may contain spaces and parentheses.
fn stat(pid: u32) -> Option<(String, Vec<u64>)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = text.rsplit_once(')')?.1;
    let state = rest.split_whitespace().next()?.to_owned();
    Some((state, rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()))
}

/// Returns the sum of the resident memory of the process and its descendants (see [`family`]), in KiB.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS:")
}

/// Returns the sum of the peak resident memory of the process and of each descendant (see [`family`]), in KiB.
pub(crate) fn peak_resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmHWM:")
}

fn memory_kib(pid: u32, label: &str) -> u64 {
    family(pid)
        .into_iter()
        .filter_map(|pid| {
            read_field(Path::new(&format!("/proc/{pid}/status")), label)?.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// Returns the first line of a file that begins with `label`, without the label and surrounding whitespace.
pub(crate) fn read_field(file: &Path, label: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(label)).map(|rest| rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        Running::new(Command::new("sh").args(["-c", script]).spawn().expect("`sh` starts"))
    }

    /// Polls until a condition holds, then returns true. Returns false after 10 s.
    fn eventually(mut so: impl FnMut() -> bool) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if so() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn dropping_stops_the_whole_family_even_when_it_ignores_the_request() {
        for script in ["sleep 1000 & sleep 1000", "trap '' TERM; (sleep 1000) & while :; do sleep 1000; done"] {
            let running = shell(script);
            assert!(eventually(|| family(running.id()).len() > 1), "{script}");
            let members: Vec<Identity> = family(running.id()).into_iter().filter_map(Identity::of).collect();
            drop(running);
            assert!(eventually(|| members.iter().all(|member| !member.is_alive())), "{script}");
        }
    }

    #[test]
    fn time_and_memory_of_the_family_are_seen() {
        let running = shell("(while :; do :; done) & wait");
        assert!(eventually(|| cpu_seconds(running.id()) > 0.01));
        assert!(resident_kib(running.id()) > 0);
    }

    #[test]
    fn a_program_that_hangs_is_stopped_at_the_deadline() {
        let now = Instant::now();
        assert_eq!(run_until(Command::new("sleep").arg("1000"), now), Ok(None));
        assert!(now.elapsed() < Duration::from_secs(10));
        assert_eq!(
            run_until(&mut Command::new("false"), now + Duration::from_secs(60))
                .map(|end| end.map(|status| status.success())),
            Ok(Some(false))
        );
    }

    #[test]
    fn a_command_is_shown_as_typed() {
        assert_eq!(
            shown(Command::new("cargo").args(["doc", "--lib"]).env("RUSTDOCFLAGS", "-D warnings")),
            "RUSTDOCFLAGS='-D warnings' cargo doc --lib"
        );
    }
}
