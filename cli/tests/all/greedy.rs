//! Tests the promise about memory with many kinds of greedy clients: in a process limited to the memory budget plus
//! 64 MiB, they do not kill the server, and a well-behaved client still gets answers.
//!
//! Needs a real kernel, which enforces the limit and provides the socket buffers that fill up.

use crate::demo::{Demo, HIGHWIRE, until, until_within};
use crate::programs::program;
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The memory budget of the server (`--memory`), in MiB.
const BUDGET_MIB: usize = 64;

/// Address space that the process may use in addition, in MiB: code, stacks, rings and the allocator's reserve.
const BESIDE_MIB: usize = 64;

/// The number of greedy clients in each run. Each engine has two runs.
const CLIENTS: usize = 2500;

/// The number of threads that play clients.
const THREADS: usize = 4;
/// The largest number of clients that a thread has open at a time. All threads together have far fewer clients than
/// 1,024, the usual limit of descriptors.
const CLIENTS_A_THREAD: usize = 50;

/// The number of times that a client sends as much as it can before it leaves.
const ROUNDS: usize = 12;

/// How long one client of a batch waits for received bytes in each round, which makes all clients of the batch slow.
const GLANCE: Duration = Duration::from_millis(3);

/// The number of bytes after which a client stops sending if it repeats a large unit.
const LARGE_BYTES: usize = 4 * 1024 * 1024;
/// The number of bytes after which a client stops sending if it repeats a small unit. A server built without
/// optimization handles these thousands of units in reasonable time.
const SMALL_BYTES: usize = 128 * 1024;

/// How long the well-behaved client waits for received bytes.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the well-behaved client tries again if it is refused.
const RETRY: Duration = Duration::from_secs(30);

/// How long the last connections may stay open after their clients are gone. The server usually closes them at once.
/// However, the kernel may not report the end of a connection that is reset while the server sends (seen on 6.18;
/// axboe/liburing#1549 is similar). In this case only a timeout closes the connection, which takes up to 20 s for a
/// body.
const RELEASE: Duration = Duration::from_secs(25);

/// How often the test counts descriptors at the start. The smallest count is the baseline.
const LOOKS: usize = 50;

/// A kind of greedy client: the bytes it sends first, the bytes it then repeats, and how it ends.
struct Greed {
    name: &'static str,
    first: &'static str,
    again: &'static [u8],
    end: End,
}

/// How a client ends its connection.
#[derive(Clone, Copy)]
enum End {
    Close,
    Reset,
    /// Shuts down its sending direction before it closes.
    Half,
}

static LETTERS: [u8; 64 * 1024] = [b'x'; 64 * 1024];

const fn greed(name: &'static str, first: &'static str, again: &'static [u8], end: End) -> Greed {
    Greed { name, first, again, end }
}

const GREEDS: &[Greed] = &[
    greed("an endless head", "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: ", &LETTERS, End::Close),
    greed(
        "endless fields",
        "GET /hello HTTP/1.1\r\nHost: x\r\n",
        b"X-Field: some value of some length\r\n",
        End::Close,
    ),
    greed("an endless target", "GET /", &LETTERS, End::Reset),
    greed("answers that are not read", "", b"GET /stream?bytes=1000000 HTTP/1.1\r\nHost: x\r\n\r\n", End::Close),
    greed("small answers that are not read", "", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", End::Reset),
    greed("one answer of a terabyte", "GET /stream?bytes=1000000000000 HTTP/1.1\r\nHost: x\r\n\r\n", b"", End::Reset),
    greed(
        "echoes that are not read",
        "",
        b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n",
        End::Close,
    ),
    greed(
        "the largest body that is taken whole",
        "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n",
        &LETTERS,
        End::Close,
    ),
    greed(
        "a body of a terabyte, to be taken whole",
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
        "a body for a handler that takes none",
        "GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
        &LETTERS,
        End::Close,
    ),
    greed(
        "endless chunks, to be taken whole",
        "POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n",
        End::Half,
    ),
    greed(
        "endless chunks",
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
        "an endless chunk extension",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
        &LETTERS,
        End::Reset,
    ),
    greed(
        "endless trailers",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-Field: some value\r\n",
        End::Close,
    ),
    greed(
        "a body that waits for 100 (Continue)",
        "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
        b"",
        End::Half,
    ),
    greed("many handlers that sleep", "", b"GET /sleep?ms=300 HTTP/1.1\r\nHost: x\r\n\r\n", End::Close),
    greed("many handlers that block", "", b"GET /block?ms=1 HTTP/1.1\r\nHost: x\r\n\r\n", End::Close),
    greed("garbage", "\u{0}\u{1}\u{2} garbage \u{7f}", &LETTERS, End::Close),
    greed("empty lines", "", b"\r\n", End::Close),
    greed("nothing", "", b"", End::Close),
    greed("a reset at once", "", b"", End::Reset),
    greed("half a request, then the end", "GET /hello HTTP/1.1\r\nHo", b"", End::Half),
];

/// A greedy client's connection and the number of bytes it has sent.
struct Client {
    stream: TcpStream,
    greed: &'static Greed,
    /// The repeated bytes, copied often enough to fill a piece of about 64 KiB.
    again: Vec<u8>,
    sent: usize,
    is_open: bool,
}

impl Client {
    /// Connects a client. Returns `None` if the server or the system refuses, which the test allows.
    fn connect(address: &SocketAddr, greed: &'static Greed) -> Option<Client> {
        let stream = TcpStream::connect_timeout(address, Duration::from_secs(1)).ok()?;
        stream.set_nonblocking(true).expect("an option");
        let again = match greed.again.len() {
            0 => Vec::new(),
            length => greed.again.repeat(LETTERS.len().div_ceil(length)),
        };
        Some(Client { stream, greed, again, sent: 0, is_open: true })
    }

    /// Sends until the socket buffer is full, the client has no more to send, or a write fails.
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

    /// Waits briefly for received bytes, and leaves them unread.
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
        // Errors are ignored, because the server may already have closed the connection.
        match self.greed.end {
            End::Close => {}
            End::Half => drop(self.stream.shutdown(Shutdown::Write)),
            End::Reset => drop(SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))),
        }
    }
}

/// Plays a batch of up to [`CLIENTS_A_THREAD`] clients at a time until all batches have been played or the test has
/// failed. Each batch ends with a normal request, so that the next batch does not only fill the kernel's accept queue.
fn play(address: &SocketAddr, next: &AtomicUsize, played: &[AtomicUsize], gone: &AtomicBool) {
    while !gone.load(Ordering::Relaxed) {
        let first = next.fetch_add(CLIENTS_A_THREAD, Ordering::Relaxed);
        if first >= CLIENTS {
            return;
        }
        // One kind per batch, so that the clients of a batch exhaust the same resource.
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
        // The result is ignored, because `insist` checks answers. This request only waits.
        let _ = hello(address);
    }
}

/// Sends a normal request and returns the answer.
fn hello(address: &SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Repeats a request until it is answered 200. Returns how often it was refused, answered 503 or cut off before that.
/// Panics if that takes longer than [`RETRY`], or if the answer is another one.
fn insist(demo: &mut Demo, address: &SocketAddr) -> usize {
    let end = Instant::now() + RETRY;
    for refused in 0.. {
        demo.check_alive();
        match hello(address) {
            Ok(answer) if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("Hello, World!") => return refused,
            Ok(answer) if answer.is_empty() || answer.starts_with("HTTP/1.1 503 ") => {}
            Ok(answer) => panic!("unexpected answer to a normal request: {answer}"),
            Err(error) => assert!(Instant::now() < end, "no answer after {refused} times: {error}\n{}", demo.log()),
        }
        assert!(Instant::now() < end, "no answer after {refused} times\n{}", demo.said());
        std::thread::park_timeout(GLANCE);
    }
    unreachable!("the range is endless")
}

/// Returns the value of a name in `/proc/PID/status`, in MiB.
fn status_mib(demo: &mut Demo, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", demo.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    match kib {
        Some(kib) => kib / 1024,
        None => panic!("the process ended: {}, {}", demo.wait(), demo.said()),
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
    // Enough requests that each worker answers one and has opened its own descriptors.
    for _ in 0..32 {
        insist(&mut demo, &address);
    }
    let count = |demo: &Demo| demo.descriptors().len();
    // The least of several counts, because connections of the requests above may still be open.
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
        // If an assertion fails here, the threads must stop too, because `scope` waits for them.
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
        assert!(played.load(Ordering::Relaxed) > 0, "no client could connect for {}", greed.name);
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

/// The server has fewer descriptors than clients, so most clients wait in the accept queue, and each accepted client
/// can use much memory.
#[test]
fn uring_with_few_descriptors() {
    survive("uring", 64);
}

#[test]
fn readiness_with_few_descriptors() {
    survive("readiness", 64);
}

/// The server has more descriptors than clients, so it accepts all of them. Together they demand more than the budget.
#[test]
fn uring_with_many_descriptors() {
    survive("uring", 1024);
}

#[test]
fn readiness_with_many_descriptors() {
    survive("readiness", 1024);
}
