//! The promise about memory: in a process limited to its budget and 64 MiB, no peer can kill the server, and whoever behaves
//! is answered.
//!
//! Needs a real kernel: the limit is the kernel's, and so are the buffers that fill up.
#![cfg(target_os = "linux")]

mod demo;
mod programs;

use demo::{Demo, HIGHWIRE, until, until_within};
use programs::program;
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What the server may hold for its peers.
const BUDGET_MIB: usize = 64;

/// What its process may have beside: code, stacks, rings, what the allocator keeps.
const BESIDE_MIB: usize = 64;

/// Greedy clients in each run; an engine has two.
const CLIENTS: usize = 2500;

/// Threads that play them, and how many clients each has open at a time: together well below the 1,024 descriptors that a
/// process usually may have.
const THREADS: usize = 4;
const CLIENTS_A_THREAD: usize = 50;

/// Times that a client sends as much as it can, before it goes.
const ROUNDS: usize = 12;

/// How long a client looks for an answer in a round: its slowness.
const GLANCE: Duration = Duration::from_millis(3);

/// What a client sends at most: of large pieces some megabytes, of small ones as many as a server built without
/// optimization works through in a moment, which is still thousands.
const LARGE_BYTES: usize = 4 * 1024 * 1024;
const SMALL_BYTES: usize = 128 * 1024;

/// How long the client that behaves waits for an answer, and how long it tries again where it is turned away.
const PATIENCE: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(30);

/// How long the last connections may stay when their clients are gone. Mostly no time at all; but the kernel may lose the
/// end of one that is reset in the midst of what it sends (seen on 6.18; axboe/liburing#1549 is of that kind), and then only
/// the deadline of what it waits for ends it, for a body twice ten seconds.
const RELEASE: Duration = Duration::from_secs(25);

/// How often descriptors are counted to begin with.
const LOOKS: usize = 50;

/// One way to be greedy: what is sent first, and what is sent again and again after that.
struct Greed {
    name: &'static str,
    first: &'static str,
    again: &'static [u8],
    end: End,
}

/// How a client goes.
#[derive(Clone, Copy)]
enum End {
    Close,
    Reset,
    /// It ends its own direction only, and looks for an answer for some more rounds.
    Half,
}

static LETTERS: [u8; 64 * 1024] = [b'x'; 64 * 1024];

const fn greed(name: &'static str, first: &'static str, again: &'static [u8], end: End) -> Greed {
    Greed { name, first, again, end }
}

const GREEDS: &[Greed] = &[
    greed("a head without end", "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: ", &LETTERS, End::Close),
    greed(
        "fields without end",
        "GET /hello HTTP/1.1\r\nHost: x\r\n",
        b"X-Field: some value of some length\r\n",
        End::Close,
    ),
    greed("a target without end", "GET /", &LETTERS, End::Reset),
    greed("answers that nobody reads", "", b"GET /stream?bytes=1000000 HTTP/1.1\r\nHost: x\r\n\r\n", End::Close),
    greed("small answers that nobody reads", "", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", End::Reset),
    greed("one answer of a terabyte", "GET /stream?bytes=1000000000000 HTTP/1.1\r\nHost: x\r\n\r\n", b"", End::Reset),
    greed(
        "echoes that nobody reads",
        "",
        b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n",
        End::Close,
    ),
    greed(
        "the largest body that is held",
        "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n",
        &LETTERS,
        End::Close,
    ),
    greed(
        "a body of a terabyte, to be held",
        "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
        &LETTERS,
        End::Close,
    ),
    greed(
        "a body of a terabyte, in parts",
        "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
        &LETTERS,
        End::Reset,
    ),
    greed(
        "a body for who wants none",
        "GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
        &LETTERS,
        End::Close,
    ),
    greed(
        "chunks without end, to be held",
        "POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n",
        End::Half,
    ),
    greed(
        "chunks without end",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n",
        End::Close,
    ),
    greed(
        "one chunk of an exabyte",
        "POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
        &LETTERS,
        End::Close,
    ),
    greed(
        "a chunk's extension without end",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
        &LETTERS,
        End::Reset,
    ),
    greed(
        "trailers without end",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-Field: some value\r\n",
        End::Close,
    ),
    greed(
        "a body that waits to be wanted",
        "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
        b"",
        End::Half,
    ),
    greed("many that sleep", "", b"GET /sleep?ms=300 HTTP/1.1\r\nHost: x\r\n\r\n", End::Close),
    greed("many that block", "", b"GET /block?ms=1 HTTP/1.1\r\nHost: x\r\n\r\n", End::Close),
    greed("garbage", "\u{0}\u{1}\u{2} garbage \u{7f}", &LETTERS, End::Close),
    greed("empty lines", "", b"\r\n", End::Close),
    greed("nothing", "", b"", End::Close),
    greed("a reset at once", "", b"", End::Reset),
    greed("half a request, then the end", "GET /hello HTTP/1.1\r\nHo", b"", End::Half),
];

/// One client's connection, and what it has still to send of a piece.
struct Client {
    stream: TcpStream,
    greed: &'static Greed,
    /// What is sent again, so often that a piece is not small.
    again: Vec<u8>,
    sent: usize,
    is_open: bool,
}

impl Client {
    /// A client that has connected; none where the system refuses, which is an answer too.
    fn connect(address: &SocketAddr, greed: &'static Greed) -> Option<Client> {
        let stream = TcpStream::connect_timeout(address, Duration::from_secs(1)).ok()?;
        stream.set_nonblocking(true).expect("an option");
        let again = match greed.again.len() {
            0 => Vec::new(),
            length => greed.again.repeat(LETTERS.len().div_ceil(length)),
        };
        Some(Client { stream, greed, again, sent: 0, is_open: true })
    }

    /// Sends until the socket takes no more, or enough is out.
    fn send(&mut self) {
        let most = if self.greed.again.len() < LETTERS.len() { SMALL_BYTES } else { LARGE_BYTES };
        while self.is_open && self.sent < most {
            let bytes = match self.sent.checked_sub(self.greed.first.len()) {
                None => &self.greed.first.as_bytes()[self.sent..],
                Some(_) if self.again.is_empty() => return,
                Some(sent) => &self.again[sent % self.again.len()..],
            };
            match self.stream.write(bytes) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_open = false,
            }
        }
    }

    /// Looks whether anything has come, for a moment, and leaves it there.
    fn glance(&mut self) {
        let looked = self
            .stream
            .set_nonblocking(false)
            .and_then(|()| self.stream.set_read_timeout(Some(GLANCE)))
            .and_then(|()| self.stream.peek(&mut [0]))
            .map(|_| ());
        let waited = |error: &std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        self.is_open &= looked.err().is_none_or(|error| waited(&error));
        self.stream.set_nonblocking(true).expect("an option");
    }

    fn end(&mut self) {
        // Where the server has ended the connection already, there is nothing to do.
        match self.greed.end {
            End::Close => {}
            End::Half => drop(self.stream.shutdown(Shutdown::Write)),
            End::Reset => drop(SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))),
        }
    }
}

/// Plays clients, a thread's share at a time, until there are none left or the server is gone. The next share waits until
/// somebody was answered after this one: else all would only stand in the kernel's queue.
fn play(address: &SocketAddr, next: &AtomicUsize, played: &[AtomicUsize], gone: &AtomicBool) {
    while !gone.load(Ordering::Relaxed) {
        let first = next.fetch_add(CLIENTS_A_THREAD, Ordering::Relaxed);
        if first >= CLIENTS {
            return;
        }
        // All of a kind: together they want most of one thing.
        let kind = first / CLIENTS_A_THREAD % GREEDS.len();
        let clients = (0..CLIENTS_A_THREAD).filter_map(|_| Client::connect(address, &GREEDS[kind]));
        let mut clients: Vec<Client> = clients.collect();
        played[kind].fetch_add(clients.len(), Ordering::Relaxed);
        for round in 0..ROUNDS {
            for client in &mut clients {
                client.send();
            }
            if !clients.is_empty() {
                let seen = round % clients.len();
                clients[seen].glance();
            }
        }
        for client in &mut clients {
            client.end();
        }
        drop(clients);
        // Whether that was a good answer is judged elsewhere.
        let _ = hello(address);
    }
}

/// The answer to a request that behaves, if it comes.
fn hello(address: &SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks until there is an answer: how often it was refused, told to come back or cut off before.
fn insist(demo: &mut Demo, address: &SocketAddr) -> usize {
    let end = Instant::now() + RETRY;
    for refused in 0.. {
        demo.check_alive();
        match hello(address) {
            Ok(answer) if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("Hello, World!") => return refused,
            Ok(answer) if answer.is_empty() || answer.starts_with("HTTP/1.1 503 ") => {}
            Ok(answer) => panic!("not an answer for who behaves: {answer}"),
            Err(error) => assert!(Instant::now() < end, "no answer after {refused} times: {error}\n{}", demo.log()),
        }
        assert!(Instant::now() < end, "no answer after {refused} times\n{}", demo.said());
        std::thread::park_timeout(GLANCE);
    }
    unreachable!("the numbers do not end")
}

/// Mebibytes behind a name in the process's status.
fn status_mib(demo: &mut Demo, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", demo.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    match kib {
        Some(kib) => kib / 1024,
        None => panic!("it ended: {}, {}", demo.wait(), demo.said()),
    }
}

fn survive(engine: &str, descriptors: usize) {
    let Some(prlimit) = program(&["prlimit"]) else { return };
    let limit_mib = BUDGET_MIB + BESIDE_MIB;
    let mut command = Command::new(prlimit);
    command.args([format!("--as={}", limit_mib << 20), format!("--nofile={descriptors}")]);
    command.args([HIGHWIRE, "demo", "--listen", "127.0.0.1:0", "--engine", engine, "--workers", "2"]);
    command.args(["--memory", &format!("{BUDGET_MIB}M")]);
    let Some(mut demo) = Demo::of(command, engine) else { return };
    let address: SocketAddr = demo.addresses[0].parse().expect("an address");
    // So many that each worker answers one, and has all that it opens for itself.
    for _ in 0..32 {
        insist(&mut demo, &address);
    }
    let count = |demo: &Demo| demo.descriptors().len();
    // The least of some looks: connections of the answers before are still on their way out.
    let (mut baseline, mut looks) = (count(&demo), 0);
    until(|| {
        baseline = baseline.min(count(&demo));
        looks += 1;
        looks == LOOKS
    });

    let (next, gone) = (AtomicUsize::new(0), AtomicBool::new(false));
    let played: Vec<AtomicUsize> = GREEDS.iter().map(|_| AtomicUsize::new(0)).collect();
    let (mut answers, mut refused) = (0, 0);
    let stormed = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| play(&address, &next, &played, &gone));
        }
        // Whatever ends this early ends the clients too.
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while answers == 0 || next.load(Ordering::Relaxed) < CLIENTS {
                refused += insist(&mut demo, &address);
                answers += 1;
            }
        }));
        gone.store(true, Ordering::Relaxed);
        watched
    });
    if let Err(panic) = stormed {
        std::panic::resume_unwind(panic);
    }
    for _ in 0..10 {
        refused += insist(&mut demo, &address);
    }
    for (greed, played) in GREEDS.iter().zip(&played) {
        assert!(played.load(Ordering::Relaxed) > 0, "nobody could connect to be greedy with {}", greed.name);
    }
    let released = until_within(RELEASE, || count(&demo) <= baseline);
    demo.check_alive();
    assert!(released, "{engine}: {baseline} descriptors before, now {:?}\n{}", demo.descriptors(), demo.said());
    let (peak, address_space) = (status_mib(&mut demo, "VmHWM"), status_mib(&mut demo, "VmPeak"));
    assert!(peak <= limit_mib, "{engine}: {peak} MiB resident of {limit_mib}");
    println!(
        "{engine}, {descriptors} descriptors: {answers} answers in the storm, {refused} refused, at most {peak} MiB resident, \
         {address_space} MiB of address space"
    );
    demo.check_alive();
    demo.terminate();
    let status = demo.wait();
    assert_eq!(status.code(), Some(0), "{engine}: {}", demo.said());
    assert!(!demo.log().contains("panicked"), "{engine}: {}", demo.said());
}

/// Fewer descriptors than clients: most of them wait outside, and whoever is inside can be as greedy as one can.
#[test]
fn uring_with_few_descriptors() {
    survive("uring", 64);
}

#[test]
fn readiness_with_few_descriptors() {
    survive("readiness", 64);
}

/// More descriptors than clients: all of them are inside, and together they want more than there is.
#[test]
fn uring_with_many_descriptors() {
    survive("uring", 1024);
}

#[test]
fn readiness_with_many_descriptors() {
    survive("readiness", 1024);
}
