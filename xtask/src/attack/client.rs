//! The attacking process. It is separate from the measuring process, so that its CPU time can be measured. Each
//! connection has a thread that writes and, if the attack reads at the same time, a second thread that reads.
//!
//! The process has the lowest priority. With the same priority as the server, the results on a machine with two cores
//! would mostly show how the kernel shares the cores, and not the cost of the attack to the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ear::{Ear, Link};
use super::frames::{self, END_STREAM, PADDED, frame};
use super::spec::{Attack, Data, End, Pace, Payload, Reading, Then, WRITE_BYTES};
use super::tally::{Report, Tally};
use crate::process::{self, Running};
use crate::{Error, Result};

/// The name of the hidden subcommand.
pub(super) const CLIENT: &str = "client";

/// The line that the attacking process prints once it has started the threads of all connections.
const BEGUN: &str = "begun";

const STACK_BYTES: usize = 128 * 1024;

/// The pause between two connections of a thread, which limits the rate of new connections.
const PAUSE: Duration = Duration::from_millis(1);

/// The pause after a failed connect, because the client may have no free port for a while.
const REFUSED: Duration = Duration::from_millis(10);

/// How long a writer waits for windows or answers before it checks again.
const WAIT: Duration = Duration::from_millis(50);

const READ_BYTES: usize = 64 * 1024;

/// The largest number of bytes that a slow reader reads at once.
const SIP_BYTES: usize = 1024;
/// The pause of a slow reader after each read.
const SIP_EVERY: Duration = Duration::from_millis(100);

/// The number of bytes that [`Then::Drip`] sends on each stream at once.
const DRIP_BYTES: usize = 55;
/// The pause of [`Then::Drip`] before each write.
const DRIP_EVERY: Duration = Duration::from_secs(1);

/// The measuring process's handle of the attacking process.
pub(super) struct Attackers {
    running: Running,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Attackers {
    /// Starts the process and waits until it prints [`BEGUN`].
    pub(super) fn start(
        root: &Path,
        attack: &Attack,
        address: SocketAddr,
        connections: u32,
        seconds: f64,
    ) -> Result<Self> {
        let me = std::env::current_exe().map_err(|error| Error::doing("cannot find the path of xtask", error))?;
        let mut command = Command::new("setpriv");
        command.current_dir(root).args(["--pdeathsig", "KILL", "nice", "-n", "19"]).arg(me);
        command.args(["attack", CLIENT, attack.name, "--address", &address.to_string()]);
        command.args(["--connections", &connections.to_string(), "--seconds", &seconds.to_string()]);
        // A group of its own, so that the priority of all its threads can be changed.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| Error::doing(process::shown(&command), error))?;
        let mut running = Running::new(child);
        let stdout = running.child().stdout.take();
        let stdout = stdout.ok_or_else(|| Error::Failed("the attacking process has no standard output".into()))?;
        let mut attackers = Self { running, lines: BufReader::new(stdout).lines() };
        attackers.wait_for(|line| (line == BEGUN).then_some(()))?;
        Ok(attackers)
    }

    /// Waits until the process has ended and closed its connections, and returns its report. `left` is the time that the
    /// attack still takes.
    pub(super) fn finish(mut self, left: Duration) -> Result<Report> {
        thread::sleep(left);
        // With the lowest priority, the process could not end as long as the server uses all cores.
        let mut renice = Command::new("renice");
        renice.args(["-n", "0", "-g", &self.running.id().to_string()]);
        // Errors are ignored. Only root may raise priorities.
        let _ = renice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let report = self.wait_for(Report::read)?;
        self.running.child().wait().map_err(|error| Error::doing("cannot wait for the attacking process", error))?;
        Ok(report)
    }

    fn wait_for<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        let mut lines = self.lines.by_ref().map_while(std::result::Result::ok);
        let found = lines.find_map(|line| read(&line));
        found.ok_or_else(|| Error::Failed("the attacking process ended too early".into()))
    }
}

/// Runs `attack client NAME --address A --connections N --seconds S`: attacks for that time and prints the counts.
pub(super) fn run(attack: &'static Attack, address: SocketAddr, connections: u32, seconds: f64) -> Result<()> {
    let begun = Instant::now();
    let same = if let Payload::Same(bytes) = attack.payload { bytes() } else { Vec::new() };
    let attacker = Attacker { attack, address, opening: (attack.opening)(), same, tally: Tally::new() };
    // The threads are never joined. They end with the process.
    let attacker: &'static Attacker = Box::leak(Box::new(attacker));
    for _ in 0..connections {
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || attacker.attack());
        thread.map_err(|error| Error::doing("cannot start a thread", error))?;
    }
    println!("{BEGUN}");
    thread::sleep(Duration::from_secs_f64(seconds));
    println!("{}", attacker.tally.line(process::cpu_seconds(std::process::id()), begun.elapsed()));
    Ok(())
}

/// The data that all threads share.
struct Attacker {
    attack: &'static Attack,
    address: SocketAddr,
    opening: Vec<u8>,
    /// The bytes of [`Payload::Same`]; empty for other payloads.
    same: Vec<u8>,
    tally: Tally,
}

/// The side that ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The server closed the connection, or a write failed.
    ByServer,
    ByUs,
}

impl Attacker {
    /// Runs one connection after the other until the process ends.
    fn attack(&'static self) {
        loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => {
                    let number = self.tally.opened.fetch_add(1, Relaxed) as u32;
                    // Without TCP_NODELAY, small writes may wait for acknowledgements.
                    let _ = stream.set_nodelay(true);
                    if self.converse(stream, number) == Ended::ByServer {
                        self.tally.closed.fetch_add(1, Relaxed);
                    }
                    thread::sleep(PAUSE);
                }
                Err(_) => {
                    self.tally.refused.fetch_add(1, Relaxed);
                    thread::sleep(REFUSED);
                }
            }
        }
    }

    /// Runs one connection from start to end.
    fn converse(&'static self, mut stream: TcpStream, number: u32) -> Ended {
        let step = if let Payload::Streams { step, .. } = self.attack.payload { step } else { 1 };
        let link = Arc::new(Link::new(thread::current(), step));
        let reader = if self.attack.reads_beside() { self.start_reader(&stream, &link) } else { None };
        let opening = [(self.attack.numbered_opening)(number), self.opening.clone()].concat();
        let sent = self.write(&mut stream, &opening).and_then(|()| self.pour(&mut stream, &link));
        let ended = match sent {
            Ok(()) => self.end(&mut stream, &link, reader.is_some()),
            Err(_) => Ended::ByServer,
        };
        if let Some(reader) = reader {
            // Ends the reader after it has read the bytes that have already arrived.
            let _ = stream.shutdown(Shutdown::Both);
            let _ = reader.join();
        }
        ended
    }

    /// Sends the payload. Returns an error if a write fails, usually because the server has closed the connection.
    fn pour(&self, stream: &mut TcpStream, link: &Link) -> io::Result<()> {
        match self.attack.payload {
            Payload::Nothing => Ok(()),
            Payload::Same(_) => loop {
                self.write(stream, &self.same)?;
                self.pause();
            },
            Payload::Numbered(fill) => {
                let mut out = Vec::with_capacity(WRITE_BYTES);
                for round in 0.. {
                    out.clear();
                    fill(round, &mut out);
                    if out.is_empty() {
                        break;
                    }
                    self.write(stream, &out)?;
                    self.pause();
                }
                Ok(())
            }
            Payload::Streams { open, step, request } => self.pour_streams(stream, link, open, |number, out| {
                // Clients' streams have odd numbers.
                request(1 + 2 * step * number, out);
            }),
            Payload::Data(data) => self.pour_data(stream, link, data),
        }
    }

    /// Sends requests on new streams until the connection ends. At most `open` requests are unanswered at a time.
    fn pour_streams(
        &self,
        stream: &mut TcpStream,
        link: &Link,
        open: u32,
        request: impl Fn(u32, &mut Vec<u8>),
    ) -> io::Result<()> {
        let (mut out, mut made) = (Vec::with_capacity(WRITE_BYTES), 0_u32);
        loop {
            let answered = link.answered.load(Relaxed);
            while u64::from(made).saturating_sub(answered) < u64::from(open) && out.len() < WRITE_BYTES {
                request(made, &mut out);
                made += 1;
            }
            if !out.is_empty() {
                self.write(stream, &out)?;
                out.clear();
            } else if link.ended.load(Relaxed) {
                return Ok(());
            } else {
                thread::park_timeout(WAIT);
            }
        }
    }

    /// Sends DATA on each stream in turn, as the windows allow, until each stream has its content or is reset. Then
    /// calls [`Self::finish_data`].
    fn pour_data(&self, stream: &mut TcpStream, link: &Link, data: Data) -> io::Result<()> {
        let unit = data_frame(&data);
        // Everything except the frame header counts against the windows (RFC 9113 section 6.9.1).
        let cost = (unit.len() - HEAD_BYTES) as i64;
        let content = (data.content)().len() as u64;
        let mut left = vec![data.most; data.streams as usize];
        let mut out = Vec::with_capacity(WRITE_BYTES);
        loop {
            let before = out.len();
            link.acknowledge(&mut out);
            for (index, left) in left.iter_mut().enumerate() {
                if *left > 0 && link.take(index, cost) {
                    push_numbered(&mut out, &unit, index);
                    *left = left.saturating_sub(content);
                }
            }
            let grew = out.len() > before;
            if out.len() >= WRITE_BYTES || !grew && !out.is_empty() {
                self.write(stream, &out)?;
                out.clear();
            } else if !grew {
                let is_done = |(index, left): (usize, &u64)| *left == 0 || link.is_reset(index);
                if link.ended.load(Relaxed) {
                    return Ok(());
                }
                if left.iter().enumerate().all(is_done) {
                    return self.finish_data(stream, link, &data);
                }
                thread::park_timeout(WAIT);
            }
        }
    }

    /// Finishes the payload as `data.then` specifies: ends the streams that are not reset and waits for the answers, or
    /// sends more content slowly until the connection ends.
    fn finish_data(&self, stream: &mut TcpStream, link: &Link, data: &Data) -> io::Result<()> {
        let mut out = Vec::new();
        let open = |index: &usize| !link.is_reset(*index);
        let streams = data.streams as usize;
        if data.then == Then::Finish {
            for index in (0..streams).filter(open) {
                frame(&mut out, frames::DATA, END_STREAM, number(index), b"");
            }
            self.write(stream, &out)?;
            while !link.ended.load(Relaxed) && link.answered.load(Relaxed) < u64::from(data.streams) {
                thread::park_timeout(WAIT);
            }
            return Ok(());
        }
        while !link.ended.load(Relaxed) {
            thread::sleep(DRIP_EVERY);
            out.clear();
            link.acknowledge(&mut out);
            for index in (0..streams).filter(open) {
                if link.take(index, DRIP_BYTES as i64) {
                    frame(&mut out, frames::DATA, 0, number(index), &[b'x'; DRIP_BYTES]);
                }
            }
            self.write(stream, &out)?;
        }
        Ok(())
    }

    /// Ends the connection after the payload, as the attack's `end` specifies.
    fn end(&self, stream: &mut TcpStream, link: &Link, is_read: bool) -> Ended {
        match self.attack.end {
            End::Close => Ended::ByUs,
            End::CloseAfter(milliseconds) => {
                thread::sleep(Duration::from_millis(milliseconds));
                if link.ended.load(Relaxed) { Ended::ByServer } else { Ended::ByUs }
            }
            End::Answer => {
                let mut buffer = vec![0; READ_BYTES];
                match stream.read(&mut buffer) {
                    Ok(count @ 1..) => {
                        self.hear(&buffer[..count], &mut Ear::new(self.attack.protocol), None);
                        Ended::ByUs
                    }
                    _ => Ended::ByServer,
                }
            }
            End::Reset => match self.peek(stream) {
                Some(_) => Ended::ByUs,
                None => Ended::ByServer,
            },
            End::Hold | End::HalfClose => {
                if self.attack.end == End::HalfClose {
                    let _ = stream.shutdown(Shutdown::Write);
                }
                if is_read {
                    while !link.ended.load(Relaxed) {
                        thread::park_timeout(WAIT);
                    }
                } else if self.peek(stream).is_some() {
                    // Unread bytes hide the end of the connection, so this thread waits for the end of the process.
                    loop {
                        thread::park();
                    }
                }
                Ended::ByServer
            }
        }
    }

    /// Waits for bytes and counts the reaction in them, but leaves them unread. Returns `None` if the connection ends
    /// first.
    fn peek(&self, stream: &TcpStream) -> Option<()> {
        let mut buffer = [0; 64];
        let count = stream.peek(&mut buffer).ok().filter(|&count| count > 0)?;
        Ear::new(self.attack.protocol).hear(&buffer[..count], &self.tally, None);
        Some(())
    }

    fn hear(&self, bytes: &[u8], ear: &mut Ear, link: Option<&Link>) {
        self.tally.received.fetch_add(bytes.len() as u64, Relaxed);
        ear.hear(bytes, &self.tally, link);
    }

    fn start_reader(&'static self, stream: &TcpStream, link: &Arc<Link>) -> Option<JoinHandle<()>> {
        let (stream, link) = (stream.try_clone().ok()?, link.clone());
        thread::Builder::new().stack_size(STACK_BYTES).spawn(move || self.read(stream, &link)).ok()
    }

    /// Reads until the connection ends.
    fn read(&self, mut stream: TcpStream, link: &Link) {
        let is_slow = self.attack.reading == Reading::Slowly;
        let mut buffer = vec![0; if is_slow { SIP_BYTES } else { READ_BYTES }];
        let mut ear = Ear::new(self.attack.protocol);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            self.hear(&buffer[..count], &mut ear, Some(link));
            link.writer.unpark();
            if is_slow {
                thread::sleep(SIP_EVERY);
            }
        }
        link.ended.store(true, Relaxed);
        link.writer.unpark();
    }

    fn write(&self, stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = stream.write(bytes)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.tally.sent.fetch_add(count as u64, Relaxed);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn pause(&self) {
        if let Pace::Every(milliseconds) = self.attack.pace {
            thread::sleep(Duration::from_millis(milliseconds));
        }
    }
}

const HEAD_BYTES: usize = 9;

/// Returns a DATA frame with stream 0; `push_numbered` sets the stream.
fn data_frame(data: &Data) -> Vec<u8> {
    let mut content = (data.content)();
    let mut flags = 0;
    if let Some(padding) = data.padding {
        flags = PADDED;
        content.insert(0, padding);
        content.resize(content.len() + usize::from(padding), 0);
    }
    let mut out = Vec::new();
    frame(&mut out, frames::DATA, flags, 0, &content);
    out
}

/// Appends the frame `unit` and sets its stream number to that of the stream with this index.
fn push_numbered(out: &mut Vec<u8>, unit: &[u8], index: usize) {
    let at = out.len();
    out.extend_from_slice(unit);
    out[at + 5..at + HEAD_BYTES].copy_from_slice(&number(index).to_be_bytes());
}

/// Returns the number of the client's stream with this index.
fn number(index: usize) -> u32 {
    1 + 2 * index as u32
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_frame_of_data_is_padded_and_numbered() {
        let data = Data { streams: 2, content: || vec![b'x'], padding: Some(2), most: 1, then: Then::Drip };
        let mut out = Vec::new();
        push_numbered(&mut out, &data_frame(&data), 1);
        assert_eq!(out, [0, 0, 4, 0, PADDED, 0, 0, 0, 3, 2, b'x', 0, 0]);
    }

    /// Runs one connection to a server that sends `said` and closes. Compares the side that ended the connection, and
    /// the counts.
    fn check(name: &str, said: &'static [u8], expected: Ended, words: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(said);
        });
        let attack = table::find(name).expect(name);
        let same = if let Payload::Same(bytes) = attack.payload { bytes() } else { Vec::new() };
        let attacker = Attacker { attack, address, opening: (attack.opening)(), same, tally: Tally::new() };
        let attacker: &'static Attacker = Box::leak(Box::new(attacker));
        let ended = attacker.converse(TcpStream::connect(address).expect("a connection"), 0);
        server.join().expect("no panic");
        assert_eq!(ended, expected, "{name}");
        let line = attacker.tally.line(0.0, Duration::ZERO);
        assert!(line.ends_with(&format!("said={words}")), "{name}: {line}");
    }

    #[test]
    fn conversations_end_as_the_table_says() {
        check("http1-smuggling", b"HTTP/1.1 400 Bad Request\r\n\r\n", Ended::ByUs, "400:1");
        check("http1-smuggling", b"", Ended::ByServer, "");
        check("http1-missing-body", b"HTTP/1.1 408 Request Timeout\r\n\r\n", Ended::ByServer, "408:1");
        check("http1-connect-reset", b"HTTP/1.1 200 OK\r\n\r\n", Ended::ByUs, "200:1");
        check("websocket-reconnect", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", Ended::ByUs, "101:1");
        check("websocket-close", b"HTTP/1.1 101 X\r\n\r\n\x88\x02\x03\xe8", Ended::ByServer, "101:1,901:1");
        check("proxy-expect", b"HTTP/1.1 100 Continue\r\n\r\n", Ended::ByServer, "100:1");
        check("tls-hello-flood", &[21, 3, 3, 0, 2, 2, 40], Ended::ByUs, "680:1");
    }
}
