//! A running `highwire demo`: started as a user starts it, watched through what it writes to standard error, ended with the
//! test that started it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::programs::not_run;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long anything may take that is expected to happen: far more than it takes, so that a slow machine fails no test, and
/// less than the 15 seconds of a head's deadline, so that what only a deadline ends is noticed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);

/// What the tests run, as built for them.
pub(crate) const HIGHWIRE: &str = env!("CARGO_BIN_EXE_highwire");

/// The process, what it has said so far, and where it listens.
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
    /// The process has closed its standard error, which it does by ending.
    ended: bool,
}

impl Demo {
    /// Starts the demo on an engine and waits until it serves; none, and a line that says so, where the machine does not
    /// have that engine.
    pub(crate) fn start(engine: &str, arguments: &[&str]) -> Option<Demo> {
        let mut command = Command::new(HIGHWIRE);
        command.args(["demo", "--engine", engine]).args(arguments);
        Demo::of(command, engine)
    }

    /// As [`start`](Self::start), with a command that becomes the demo.
    pub(crate) fn of(mut command: Command, engine: &str) -> Option<Demo> {
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
        // The first answer may have come from another process that shares the port: the ring may still be on its way.
        let has_ring = || demo.descriptors().iter().any(|name| name.contains("io_uring"));
        let refused = || demo.log().contains("io_uring is not to be had");
        if engine == "uring" {
            assert!(until(|| has_ring() || refused()), "no ring, and no word why; {}", demo.said());
            if refused() {
                not_run(&format!("the engine uring: {}", demo.said()));
                return None;
            }
        }
        Some(demo)
    }

    /// The process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the first address's root is called.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses[0])
    }

    /// The same under TLS.
    pub(crate) fn tls_url(&self, path: &str) -> String {
        format!("https://{}{path}", self.tls_addresses[0])
    }

    /// All that it has said.
    pub(crate) fn log(&self) -> String {
        self.log.said.lock().expect("no panic while it is held").lines.join("\n")
    }

    /// The end of what it has said, for messages.
    pub(crate) fn said(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("the last of {} lines:\n{}", lines.len(), lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// The targets of its open descriptors.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(format!("/proc/{}/fd", self.id())) else { return Vec::new() };
        let targets = folder.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.map(|target| target.display().to_string()).collect()
    }

    /// Waits until so many lines hold a text.
    pub(crate) fn wait_for(&mut self, text: &str, times: usize) {
        let found = |said: &Said| said.lines.iter().filter(|line| line.contains(text)).count() >= times;
        if !self.log.wait(|said| found(said) || said.ended) || !self.log.holds(found) {
            let status = self.child.try_wait();
            panic!("{}: {text:?} was not said {times} times; status {status:?}, {}", self.engine, self.said());
        }
    }

    /// Sends SIGTERM, and waits until it is no longer pending, so that the next one is not merged with it.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
        let pending = || {
            let set = self.status("ShdPnd:");
            u64::from_str_radix(&set, 16).is_ok_and(|set| set != 0)
        };
        assert!(until(|| !pending()), "SIGTERM was not taken");
    }

    /// Does something while the process stands still, so that it finds the whole of it when it goes on.
    pub(crate) fn while_stopped(&self, act: impl FnOnce()) {
        self.signal("STOP");
        assert!(until(|| self.status("State:").starts_with('T')), "it does not stop");
        act();
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        // The shell has `kill` everywhere; the program of that name is not installed everywhere.
        let script = format!("kill -s {name} \"$0\"");
        let sent = Command::new("sh").args(["-c", &script, &self.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} was not sent");
    }

    /// What the system says of the process.
    fn status(&self, label: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default().trim().to_string()
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        assert!(self.log.wait(|said| said.ended), "{}: it did not end; {}", self.engine, self.said());
        self.child.wait().expect("a status")
    }

    /// Fails, with what is known about it, where the process has ended.
    pub(crate) fn check_alive(&mut self) {
        let status = self.child.try_wait().expect("a status");
        assert!(status.is_none(), "{}: it ended: {status:?}, {}", self.engine, self.said());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already.
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
        change(&mut self.said.lock().expect("no panic while it is held"));
        self.changed.notify_all();
    }

    /// Whether something holds for what was said, within the usual patience.
    fn wait(&self, holds: impl Fn(&Said) -> bool) -> bool {
        let said = self.said.lock().expect("no panic while it is held");
        let (said, _) =
            self.changed.wait_timeout_while(said, PATIENCE, |said| !holds(said)).expect("no panic while it is held");
        holds(&said)
    }

    fn holds(&self, holds: impl Fn(&Said) -> bool) -> bool {
        holds(&self.said.lock().expect("no panic while it is held"))
    }
}

/// Waits until a condition holds that nothing announces: whether it did within the usual patience.
pub(crate) fn until(holds: impl FnMut() -> bool) -> bool {
    until_within(PATIENCE, holds)
}

/// As [`until`], with a patience of its own.
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

/// GETs a path over a connection of its own: the whole answer. An answer that is no 200 is an error.
pub(crate) fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200 ") { Ok(answer) } else { Err(std::io::Error::other(answer)) }
}
