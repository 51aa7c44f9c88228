//! The scripted upstream of an attack on the proxy: a server that lies, stalls or floods.
//!
//! It is a process of its own with the lowest priority. It outlives the attackers, so that a proxy that does not cancel the
//! requests of clients that have left shows open connections, and its CPU time counts as the attackers'.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::spec::Pace;
use crate::process::{self, Running};
use crate::{Error, Result};

/// The name of the hidden subcommand.
pub(super) const UPSTREAM: &str = "upstream";

/// The start of the line that the process prints once it listens.
const LISTENING: &str = "listening on ";

const STACK_BYTES: usize = 64 * 1024;

/// How long the end of a request is awaited before an upstream that does not read resets the connection.
const PEEK: Duration = Duration::from_millis(200);

/// How long an upstream waits for the next request on a connection, so that the connections which a proxy keeps for
/// further requests are gone soon after an attack. Those whose requests the proxy should have cancelled remain.
const IDLE: Duration = Duration::from_secs(1);

/// How long an upstream keeps a connection that it does not read. It is longer than a server may take to release
/// descriptors after an attack.
const UNREAD: Duration = Duration::from_secs(20);

/// The behaviour of an upstream on each of its connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upstream {
    /// Returns the bytes that it sends when a request has arrived.
    pub(super) answer: fn() -> Vec<u8>,
    /// Returns the bytes that it then repeats until a write fails, or nothing.
    pub(super) repeated: fn() -> Vec<u8>,
    pub(super) pace: Pace,
    pub(super) then: Finally,
}

/// The defaults: reads requests and answers nothing.
pub(super) const SILENT: Upstream =
    Upstream { answer: Vec::new, repeated: Vec::new, pace: Pace::Flood, then: Finally::Hold };

/// The action of an upstream when it has sent its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finally {
    /// Reads until the proxy closes the connection, and answers nothing more.
    Hold,
    /// Reads nothing more, and closes after [`UNREAD`].
    Unread,
    /// Answers the next request on the connection in the same way.
    Again,
    Close,
    /// Leaves the request unread and closes, for which the kernel sends RST.
    Reset,
}

/// The measuring process's handle of the upstream.
#[derive(Debug)]
pub(super) struct UpstreamProcess {
    running: Running,
    pub(super) address: SocketAddr,
}

impl UpstreamProcess {
    /// Starts the upstream of the attack with this name and waits until it listens.
    pub(super) fn start(root: &Path, attack: &str) -> Result<Self> {
        let me = std::env::current_exe().map_err(|error| Error::doing("cannot find the path of xtask", error))?;
        let mut command = Command::new("setpriv");
        command.current_dir(root).args(["--pdeathsig", "KILL", "nice", "-n", "19"]).arg(me);
        command.args(["attack", UPSTREAM, attack]).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| Error::doing(process::shown(&command), error))?;
        let mut running = Running::new(child);
        let stdout = running.child().stdout.take();
        let lines = stdout.map(|stdout| BufReader::new(stdout).lines());
        let mut said = lines.into_iter().flatten().map_while(std::result::Result::ok);
        let address = said.find_map(|line| line.strip_prefix(LISTENING)?.parse().ok());
        let address = address.ok_or_else(|| Error::Failed("the upstream ended too early".into()))?;
        Ok(Self { running, address })
    }

    /// Returns the CPU time of the process in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        process::cpu_seconds(self.running.id())
    }
}

/// Runs `attack upstream NAME`: prints the address and serves connections until the process is stopped.
pub(super) fn run(upstream: &'static Upstream) -> Result<()> {
    let fail = |error| Error::doing("the upstream cannot listen", error);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    println!("{LISTENING}{}", listener.local_addr().map_err(fail)?);
    let bytes = Arc::new(Bytes { answer: (upstream.answer)(), repeated: (upstream.repeated)() });
    for stream in listener.incoming() {
        let bytes = bytes.clone();
        // Accepting fails if descriptors run out. Then the proxy's connections wait, like those to a busy server.
        let started = stream.and_then(|stream| {
            let serve = move || drop(serve(stream, upstream, &bytes));
            thread::Builder::new().stack_size(STACK_BYTES).spawn(serve)
        });
        if started.is_err() {
            sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// The bytes that all connections send.
struct Bytes {
    answer: Vec<u8>,
    repeated: Vec<u8>,
}

fn serve(mut stream: TcpStream, upstream: &Upstream, bytes: &Bytes) -> io::Result<()> {
    stream.set_nodelay(true)?;
    while upstream.then == Finally::Reset || read_head(&mut stream)? {
        if upstream.then == Finally::Reset {
            peek_head(&stream)?;
        }
        stream.write_all(&bytes.answer)?;
        while !bytes.repeated.is_empty() {
            stream.write_all(&bytes.repeated)?;
            if let Pace::Every(milliseconds) = upstream.pace {
                sleep(Duration::from_millis(milliseconds));
            }
        }
        match upstream.then {
            Finally::Again => {}
            Finally::Hold => {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer)? > 0 {}
                return Ok(());
            }
            Finally::Unread => {
                sleep(UNREAD);
                return Ok(());
            }
            Finally::Close | Finally::Reset => return Ok(()),
        }
    }
    Ok(())
}

/// Reads up to the end of a request's head, and what has arrived behind it. Returns false if the connection has ended.
fn read_head(stream: &mut TcpStream) -> io::Result<bool> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(IDLE))?;
    while !ends_head(&head) {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(false);
        }
        head.extend_from_slice(&buffer[..count]);
    }
    stream.set_read_timeout(None)?;
    Ok(true)
}

/// Waits until the head of a request has arrived and leaves it unread.
fn peek_head(stream: &TcpStream) -> io::Result<()> {
    let (until, mut buffer) = (Instant::now() + PEEK, [0; 4096]);
    loop {
        let count = stream.peek(&mut buffer)?;
        if count == 0 || ends_head(&buffer[..count]) || Instant::now() > until {
            return Ok(());
        }
        sleep(Duration::from_millis(1));
    }
}

fn ends_head(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|window| window == b"\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a request to an upstream and compares what it sends until it closes the connection.
    fn check(upstream: Upstream, expected: &[u8]) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (stream, _) = listener.accept().expect("a connection");
        let server = thread::spawn(move || {
            let bytes = Bytes { answer: (upstream.answer)(), repeated: (upstream.repeated)() };
            serve(stream, &upstream, &bytes)
        });
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a write");
        client.shutdown(std::net::Shutdown::Write).expect("a half close");
        let mut said = Vec::new();
        // A reset is an error after the bytes.
        let _ = client.read_to_end(&mut said);
        assert_eq!(said, expected);
        server.join().expect("no panic").expect("no error");
    }

    #[test]
    fn an_upstream_does_what_its_script_says() {
        for (then, expected) in
            [(Finally::Hold, "ok"), (Finally::Again, "ok"), (Finally::Close, "ok"), (Finally::Reset, "")]
        {
            let answer = if then == Finally::Reset { Vec::new } else { || b"ok".to_vec() };
            check(Upstream { answer, then, ..SILENT }, expected.as_bytes());
        }
    }
}
