//! The attacked server: the release build of `highwire demo` with default settings, or `highwire serve` as a proxy in
//! front of it, and its memory, descriptors and CPU time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::bystander::Bystander;
use super::frames::{self, END_STREAM, GET_HELLO};
use super::programs::Programs;
use super::spec::{Attack, Protocol, Target};
use super::tls;
use super::upstream::UpstreamProcess;
use crate::conformance::{create, read};
use crate::process::{self, Running};
use crate::{Error, Result};

/// The time limit for the server to start listening.
const START: Duration = Duration::from_secs(20);

/// The interval between checks of a server that starts or recovers.
const GLANCE: Duration = Duration::from_millis(20);

/// The interval between samples of the server's memory during an attack.
const SAMPLE: Duration = Duration::from_millis(10);

/// The time limit to connect and for an answer, and how long [`Server::answers`] tries again.
const ANSWER: Duration = Duration::from_secs(5);

/// The number of requests of each kind before the first measurement.
const WARM_UP: u32 = 64;

pub(super) struct Server {
    running: Running,
    address: SocketAddr,
    tls_address: SocketAddr,
    behind: Behind,
}

/// The processes that the server needs. They are stopped after the server.
#[derive(Default)]
struct Behind {
    /// The demo behind a proxy.
    demo: Option<Box<Server>>,
    /// The scripted upstream behind a proxy.
    upstream: Option<UpstreamProcess>,
    /// Redis, the broker of the demo. Kept only to stop it.
    _redis: Option<Running>,
}

impl Server {
    /// Starts the server that this attack measures with free ports, and the servers behind it. Waits until it listens.
    /// Its log goes to the folder `logs`.
    pub(super) fn start(root: &Path, programs: &Programs, engine: &str, attack: &Attack, logs: &Path) -> Result<Self> {
        let log = |what: &str| logs.join(format!("{}{what}.log", attack.name));
        let demo = |program: &Path, options: &[String], log: &Path, behind: Behind| {
            let options = [vec!["demo".into()], options.to_vec()].concat();
            Self::start_one(root, program, &options, engine, log, behind)
        };
        let upstream = match attack.target {
            Target::Demo => return demo(&programs.plain, &[], &log(""), Behind::default()),
            Target::Broker => {
                let program = programs.with_redis.as_ref().map_err(|reason| Error::Failed(reason.clone()))?;
                let (redis, url) = start_redis(logs, &log("-redis"))?;
                let behind = Behind { _redis: Some(redis), ..Behind::default() };
                return demo(program, &["--broker".into(), url], &log(""), behind);
            }
            Target::Proxy(upstream) => upstream,
        };
        let upstream = upstream.map(|_| UpstreamProcess::start(root, attack.name)).transpose()?;
        let server = demo(&programs.plain, &[], &log("-demo"), Behind::default())?;
        // The folder is not served, because the path / goes to the demo.
        let mut options = vec!["serve".to_owned(), logs.display().to_string()];
        for (path, address) in
            [("/evil", upstream.as_ref().map(|upstream| upstream.address)), ("/", Some(server.address))]
        {
            options
                .extend(address.into_iter().flat_map(|address| ["--proxy".into(), format!("{path}=http://{address}")]));
        }
        let behind = Behind { demo: Some(Box::new(server)), upstream, _redis: None };
        Self::start_one(root, &programs.plain, &options, engine, &log(""), behind)
    }

    /// Starts one process of the command and waits until it listens. Its log goes to the file `log`.
    fn start_one(
        root: &Path,
        program: &Path,
        options: &[String],
        engine: &str,
        log: &Path,
        behind: Behind,
    ) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.current_dir(root).args(["--pdeathsig", "KILL"]);
        if process::is_root() {
            // The server gets a higher priority than the attackers, because real attackers use other machines.
            command.args(["nice", "-n", "-19"]);
        }
        command.arg(program).args(options).args(["--engine", engine]);
        command.args(["--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-self-signed"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(create(log)?);
        let shown = process::shown(&command);
        let mut running = Running::new(command.spawn().map_err(|error| Error::doing(&shown, error))?);
        let until = Instant::now() + START;
        loop {
            let said = read(log)?;
            if let (Some(address), Some(tls_address)) = (address_in(&said, "http://"), address_in(&said, "https://")) {
                return Ok(Self { running, address, tls_address, behind });
            }
            if running.has_ended() || Instant::now() > until {
                return Err(Error::Failed(format!("`{shown}` ended, or did not listen within 20 s\n{said}")));
            }
            sleep(GLANCE);
        }
    }

    pub(super) fn address(&self, protocol: Protocol) -> SocketAddr {
        if protocol == Protocol::Tls { self.tls_address } else { self.address }
    }

    /// Sends so many requests of each kind that every worker probably serves some, so that the measurements contain no
    /// allocations on first use.
    pub(super) fn warm_up(&self) -> Result<()> {
        for _ in 0..WARM_UP {
            let asked =
                Bystander::new(self.address).ask().and_then(|()| self.ask_http2()).and_then(|()| self.ask_tls());
            asked.map_err(|error| Error::doing("the server does not answer before the attack", error))?;
        }
        Ok(())
    }

    /// Returns true if the process is running and answers new connections, with and without TLS. Tries again for up to
    /// [`ANSWER`], because an attack may have used up the client's ports.
    pub(super) fn answers(&mut self) -> bool {
        let until = Instant::now() + ANSWER;
        loop {
            if self.running.has_ended() {
                return false;
            }
            if Bystander::new(self.address).ask().and_then(|()| self.ask_tls()).is_ok() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            sleep(GLANCE);
        }
    }

    /// Sends an HTTP/2 request and waits for the first byte from the server.
    fn ask_http2(&self) -> io::Result<()> {
        let mut request = frames::opening(None);
        frames::headers(&mut request, END_STREAM, 1, GET_HELLO);
        exchange(self.address, &request).map(drop)
    }

    /// Sends a ClientHello, which the server must answer with a handshake record.
    fn ask_tls(&self) -> io::Result<()> {
        match exchange(self.tls_address, &tls::hello_record())? {
            22 => Ok(()),
            other => Err(io::Error::other(format!("a TLS record of type {other}"))),
        }
    }

    /// Returns the process's own resident memory in KiB, without pages of files such as the program, which the kernel
    /// may drop at any time.
    pub(super) fn memory_kib(&self) -> u64 {
        memory_kib(self.running.id())
    }

    /// Returns the number of open descriptors, without two kinds of connections to other servers: those that a proxy keeps
    /// open to the demo for further requests, and those that the kernel established only at the proxy's end, because too
    /// many already waited for the upstream to accept them (128, which Rust's library sets).
    pub(super) fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.running.id())).map_or(0, Iterator::count);
        let Some(demo) = &self.behind.demo else { return open };
        let tcp = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let half = self.behind.upstream.as_ref().map_or(0, |upstream| {
            let [at_proxy, at_upstream] = [End::Remote, End::Local].map(|end| established(end, upstream.address, &tcp));
            at_proxy.saturating_sub(at_upstream)
        });
        open.saturating_sub(established(End::Remote, demo.address, &tcp) + half)
    }

    /// Returns the CPU time of the scripted upstream in seconds, or 0 if there is none.
    pub(super) fn upstream_cpu_seconds(&self) -> f64 {
        self.behind.upstream.as_ref().map_or(0.0, UpstreamProcess::cpu_seconds)
    }

    /// Returns the server's CPU time in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        process::cpu_seconds(self.running.id())
    }

    /// Starts to sample the memory.
    pub(super) fn watch_memory(&self) -> MemoryWatch {
        let (id, stop) = (self.running.id(), Arc::new(AtomicBool::new(false)));
        let flag = stop.clone();
        let thread = thread::spawn(move || {
            let mut most = 0;
            while !flag.load(Relaxed) {
                most = most.max(memory_kib(id));
                sleep(SAMPLE);
            }
            most.max(memory_kib(id))
        });
        MemoryWatch { stop, thread }
    }
}

/// A thread that samples the memory and keeps the largest size.
pub(super) struct MemoryWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl MemoryWatch {
    /// Stops the thread and returns the largest size in KiB.
    pub(super) fn most_kib(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

fn memory_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let field = |label: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(label))?.split_whitespace().next()?.parse().ok()
    };
    ["RssAnon:", "RssShmem:"].into_iter().filter_map(field).sum()
}

/// The end of a connection that has an address, as its column in /proc/net/tcp.
#[derive(Clone, Copy)]
enum End {
    Local = 1,
    Remote = 2,
}

/// Returns the number of established connections with this address at this end, according to the text of /proc/net/tcp.
fn established(end: End, address: SocketAddr, tcp: &str) -> usize {
    const ESTABLISHED: &str = "01";
    const STATE: usize = 3;
    let port = format!(":{:04X}", address.port());
    let is_one = |line: &&str| {
        let word = |at| line.split_whitespace().nth(at).unwrap_or_default();
        word(STATE) == ESTABLISHED && word(end as usize).ends_with(&port)
    };
    tcp.lines().filter(is_one).count()
}

/// Starts Redis on a free port without files, and returns its URL.
fn start_redis(folder: &Path, log: &Path) -> Result<(Running, String)> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| Error::doing("no free port for Redis", error))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--port", &address.port().to_string(), "--dir"]).arg(folder);
    command.stdin(Stdio::null()).stdout(create(log)?).stderr(Stdio::null());
    let shown = process::shown(&command);
    let mut running = Running::new(command.spawn().map_err(|error| Error::doing(&shown, error))?);
    let until = Instant::now() + START;
    while TcpStream::connect(address).is_err() {
        if running.has_ended() || Instant::now() > until {
            return Err(Error::Failed(format!("`{shown}` ended, or did not listen within 20 s\n{}", read(log)?)));
        }
        sleep(GLANCE);
    }
    Ok((running, format!("redis://{address}")))
}

/// Sends bytes on a new connection and returns the first byte from the server.
fn exchange(address: SocketAddr, bytes: &[u8]) -> io::Result<u8> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(bytes)?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    Ok(first[0])
}

/// Returns the address in the first complete log line with this scheme, such as `listening on https://127.0.0.1:PORT/`.
fn address_in(said: &str, scheme: &str) -> Option<SocketAddr> {
    said.lines()
        .find_map(|line| line.split_once("listening on ")?.1.strip_prefix(scheme)?.strip_suffix('/')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_are_read_once_their_lines_are_whole() {
        let said = "INFO listening on http://127.0.0.1:80/\nINFO listening on https://127.0.0.1:443/\n";
        assert_eq!(address_in(said, "http://").map(|address| address.port()), Some(80));
        assert_eq!(address_in(said, "https://").map(|address| address.port()), Some(443));
        assert_eq!(address_in("INFO listening on http://127.0.0.1:8", "http://"), None);
    }

    #[test]
    fn established_connections_to_an_address_are_counted() {
        let line = |remote, state| format!("  0: 0100007F:9C40 0100007F:{remote} {state} 00000000:00000000 00:0 0\n");
        let text = ["1F90", "1F91", "1F90"].map(|port| line(port, "01")).concat() + &line("1F90", "08");
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(established(End::Remote, address(8080), &text), 2);
        assert_eq!(established(End::Local, address(8080), &text), 0);
        assert_eq!(established(End::Local, address(40_000), &text), 3);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(memory_kib(std::process::id()) > 0);
    }
}
