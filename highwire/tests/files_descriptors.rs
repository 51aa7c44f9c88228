//! Tests serving files with few descriptors, or with none left. Needs a real kernel, which counts descriptors. The
//! limit applies to the process, so these tests are a separate program and run one after another.

mod engines;
mod folder;

use folder::{Place, bytes};
use highwire::App;
use highwire::server::Handle;
use highwire::testing::Client;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Locked while a test changes the limit of the process.
static LIMIT: Mutex<()> = Mutex::new(());

const PATIENCE: Duration = Duration::from_secs(20);

/// The limit of descriptors when the server starts.
const DESCRIPTORS: usize = 256;

/// The limit after the start of the server, which is enough for both sides of all connections.
const MORE_DESCRIPTORS: usize = 1024;

/// The number of open files that the server allows, which is a fourth of the descriptors at its start.
const OPEN_FILES: usize = DESCRIPTORS / 4;

/// Sets the soft limit of descriptors. Returns false if that fails, and prints that if `prlimit` is not installed.
fn limit(most: usize) -> bool {
    let id = std::process::id().to_string();
    let status = Command::new("prlimit").args(["--pid", &id, &format!("--nofile={most}:")]).status();
    if status.is_err() {
        let _ = writeln!(std::io::stderr(), "not run: prlimit is not installed");
    }
    status.is_ok_and(|status| status.success())
}

/// Calls `act` while this process cannot open a descriptor. A shell that was started earlier restores the limit,
/// because this process cannot start a program without descriptors.
fn without_descriptors(act: impl FnOnce()) {
    let limit = format!("prlimit --pid {} --nofile", std::process::id());
    let script = format!("{limit}=3: && echo none; read line; {limit}={MORE_DESCRIPTORS}: && echo some");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("a shell");
    let mut lines = BufReader::new(shell.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "none");
    act();
    drop(shell.stdin.take());
    assert_eq!(next(), "some");
    shell.wait().expect("the shell ends");
}

/// GETs a target and reads no more than the head of the answer.
fn ask(handle: &Handle, target: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(&handle.addresses()[0]).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("the server reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    (stream, String::from_utf8(head).expect("text"))
}

#[test]
fn clients_that_take_nothing_of_large_files_leave_descriptors_to_others() {
    let _limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("slow");
    place.write("small", bytes(100));
    // The large file is larger than all buffers between the server and the client.
    place.write("large", b"");
    let large = std::fs::File::options().write(true).open(place.root().join("large")).expect("a file");
    large.set_len(64 << 20).expect("a sparse file");
    for engine in engines::available(engines::ALL) {
        if !limit(DESCRIPTORS) {
            return;
        }
        let app = App::new().files("/", place.files().cache_bytes(0)).configure(|config| {
            config.engine = engine;
            config.workers = 1;
            config.limits.connection_threads = 2 * OPEN_FILES;
        });
        let handle = app.listen("127.0.0.1:0").expect("a free port").start().expect("the server starts");
        assert!(limit(MORE_DESCRIPTORS));
        let mut slow = Vec::new();
        for number in 0..OPEN_FILES {
            let (stream, head) = ask(&handle, "/large");
            assert!(head.starts_with("HTTP/1.1 200 "), "{engine:?}, number {number}: {head}");
            slow.push(stream);
        }
        let (_, head) = ask(&handle, "/large");
        assert!(head.starts_with("HTTP/1.1 503 ") && head.to_lowercase().contains("\r\nretry-after: 1"), "{head}");
        let (_, head) = ask(&handle, "/small");
        assert!(head.starts_with("HTTP/1.1 200 "), "{engine:?}: {head}");
        drop(slow);
        let end = Instant::now() + PATIENCE;
        while !ask(&handle, "/large").1.starts_with("HTTP/1.1 200 ") {
            assert!(Instant::now() < end, "{engine:?}: files of clients that are gone stay open");
            std::thread::yield_now();
        }
        handle.shutdown();
    }
}

/// Runs in virtual time.
#[test]
fn kept_files_are_sent_for_a_while_where_there_are_no_descriptors() {
    let _limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    if !limit(MORE_DESCRIPTORS) {
        return;
    }
    let place = Place::new("none");
    place.write("small", bytes(100));
    place.write("large", bytes(100_000));
    let mut client = Client::new(App::new().files("/", place.files())).expect("an app");
    let mut check = |after, expected: u16| {
        client.advance(Duration::from_secs(after));
        for path in ["/small", "/large"] {
            let answer = client.get(path).send();
            assert_eq!(answer.status().as_u16(), expected, "{path}, {after} seconds later");
        }
    };
    check(0, 200);
    without_descriptors(|| {
        check(1, 200);
        check(58, 200);
        check(2, 503);
    });
    check(0, 200);
}
