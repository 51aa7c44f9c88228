//! [`Demo`], a running `highwire demo` process for tests. It starts the process, reads the log from standard error, and
//! kills the process when it is dropped.

use crate::programs::not_run;
use highwire::server::{Engine, Runtime};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The usual time limit of a wait. It is long enough for slow machines, and less than the head timeout (15 s), so that
/// a test fails if only that timeout ends a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);

/// The path of the command that Cargo built for the tests.
pub(crate) const HIGHWIRE: &str = env!("CARGO_BIN_EXE_highwire");

/// Sends a signal to a process. Returns false if it was not sent, such as to a process that has ended.
pub(crate) fn signal(id: u32, name: &str) -> bool {
    // `kill` is a built-in of every shell, but not every machine has the program of that name.
    let script = format!("kill -s {name} \"$0\"");
    let sent = Command::new("sh").args(["-c", &script, &id.to_string()]).status();
    sent.is_ok_and(|status| status.success())
}

/// The process, its log so far and its addresses.
pub(crate) struct Demo {
    engine: String,
    child: Child,
    log: Arc<Log>,
    /// Addresses in the order of `--listen`, without `http://`.
    pub(crate) addresses: Vec<String>,
    /// Addresses in the order of `--tls-listen`, without `https://`.
    pub(crate) tls_addresses: Vec<String>,
}

#[derive(Default)]
struct Log {
    said: Mutex<Said>,
    changed: Condvar,
}

#[derive(Default)]
struct Said {
    lines: Vec<String>,
    /// True if the process has closed its standard error, which happens when it ends.
    ended: bool,
}

impl Demo {
    /// Starts the demo on an engine and waits until it serves. Returns `None` and prints the reason if the machine does
    /// not support the engine.
    pub(crate) fn start(engine: &str, arguments: &[&str]) -> Option<Demo> {
        let mut command = Command::new(HIGHWIRE);
        command.args(["demo", "--engine", engine]).args(arguments);
        Demo::of(command, engine)
    }

    /// Does the same as [`start`](Self::start), with a command that executes `highwire`.
    pub(crate) fn of(mut command: Command, engine: &str) -> Option<Demo> {
        if engine == "uring"
            && let Err(error) = Runtime::choose(Engine::Uring)
        {
            not_run(&error.to_string());
            return None;
        }
        let listens = ["--listen", "--tls-listen"];
        let listeners = command.get_args().filter(|argument| listens.iter().any(|option| argument == option)).count();
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process");
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let log = Arc::new(Log::default());
        let its = log.clone();
        std::thread::spawn(move || its.read(errors));
        let (addresses, tls_addresses) = (Vec::new(), Vec::new());
        let mut demo = Demo { engine: engine.to_string(), child, log, addresses, tls_addresses };
        demo.wait_for("listening on ", listeners);
        let log = demo.log();
        for line in log.lines() {
            let Some((_, address)) = line.split_once("listening on ") else { continue };
            let address = address.trim_end_matches('/');
            match address.strip_prefix("https://") {
                Some(address) => demo.tls_addresses.push(address.to_string()),
                None => demo.addresses.push(address.trim_start_matches("http://").to_string()),
            }
        }
        if let Some(address) = demo.addresses.iter().find(|address| !address.starts_with("unix:")) {
            get(address, "/hello").expect("an answer to the first request");
        }
        // Another process that shares the port may have answered, so this process may not have made its ring yet.
        let has_ring = || demo.descriptors().iter().any(|name| name.contains("io_uring"));
        assert!(engine != "uring" || until(has_ring), "no ring; {}", demo.said());
        Some(demo)
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the URL of a path at the first cleartext address.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses[0])
    }

    /// Returns the URL of a path at the first TLS address.
    pub(crate) fn tls_url(&self, path: &str) -> String {
        format!("https://{}{path}", self.tls_addresses[0])
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        self.log.said.lock().expect("an unpoisoned lock").lines.join("\n")
    }

    /// Returns the last 20 lines of the log, for messages.
    pub(crate) fn said(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("the last of {} lines:\n{}", lines.len(), lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Returns the link targets of the process's open descriptors.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(format!("/proc/{}/fd", self.id())) else { return Vec::new() };
        let targets = folder.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.map(|target| target.display().to_string()).collect()
    }

    /// Waits until `times` lines of the log contain `text`.
    ///
    /// # Panics
    /// Panics if that takes longer than [`PATIENCE`] or the process ends before.
    pub(crate) fn wait_for(&mut self, text: &str, times: usize) {
        let found = |said: &Said| said.lines.iter().filter(|line| line.contains(text)).count() >= times;
        if !self.log.wait(|said| found(said) || said.ended) || !self.log.holds(found) {
            let status = self.child.try_wait();
            panic!("{}: {text:?} is not {times} times in the log; {status:?}, {}", self.engine, self.said());
        }
    }

    /// Sends SIGTERM, and waits until the signal is no longer pending, so that the kernel does not merge the next
    /// SIGTERM with this one.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
        let pending = || {
            let set = self.status("ShdPnd:");
            u64::from_str_radix(&set, 16).is_ok_and(|set| set != 0)
        };
        assert!(until(|| !pending()), "SIGTERM was not taken");
    }

    /// Suspends the process during `act`, so that it finds all data that `act` sends at once when it continues.
    pub(crate) fn while_stopped(&self, act: impl FnOnce()) {
        self.signal("STOP");
        assert!(until(|| self.status("State:").starts_with('T')), "the process does not stop");
        act();
        self.signal("CONT");
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(signal(self.id(), name), "SIG{name} was not sent");
    }

    /// Returns the value after a label in `/proc/PID/status`.
    fn status(&self, label: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default().trim().to_string()
    }

    /// Waits until the process has ended, and returns its exit status.
    ///
    /// # Panics
    /// Panics if that takes longer than [`PATIENCE`].
    pub(crate) fn wait(&mut self) -> ExitStatus {
        assert!(self.log.wait(|said| said.ended), "{}: the process did not end; {}", self.engine, self.said());
        self.child.wait().expect("a status")
    }

    /// Panics with the exit status and the log if the process has ended.
    pub(crate) fn check_alive(&mut self) {
        let status = self.child.try_wait().expect("a status");
        assert!(status.is_none(), "{}: the process ended: {status:?}, {}", self.engine, self.said());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Ignores errors, because the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Log {
    fn read(&self, errors: impl BufRead) {
        for line in errors.split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            self.change(|said| said.lines.push(line));
        }
        self.change(|said| said.ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said.lock().expect("an unpoisoned lock"));
        self.changed.notify_all();
    }

    /// Waits until a condition holds for the log. Returns false if it does not within [`PATIENCE`].
    fn wait(&self, holds: impl Fn(&Said) -> bool) -> bool {
        let said = self.said.lock().expect("an unpoisoned lock");
        let (said, _) =
            self.changed.wait_timeout_while(said, PATIENCE, |said| !holds(said)).expect("an unpoisoned lock");
        holds(&said)
    }

    fn holds(&self, holds: impl Fn(&Said) -> bool) -> bool {
        holds(&self.said.lock().expect("an unpoisoned lock"))
    }
}

/// Polls until a condition holds. Returns false if it does not within [`PATIENCE`].
pub(crate) fn until(holds: impl FnMut() -> bool) -> bool {
    until_within(PATIENCE, holds)
}

/// Does the same as [`until`], with another time limit.
pub(crate) fn until_within(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    true
}

/// Sends GET over a new connection and returns the whole answer.
///
/// # Errors
/// Returns an error if the connection fails or the status is not 200.
pub(crate) fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200 ") { Ok(answer) } else { Err(std::io::Error::other(answer)) }
}
