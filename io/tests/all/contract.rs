//! Tests that the real drivers keep the contract of `highwire_io::driver`. They need a real kernel, which causes the
//! short sends, full buffers, resets and cancelled receives that the drivers must handle.
//!
//! `highwire_io::testing` plays the programs, over TCP on the loopback interface and over unix sockets: first programs
//! that have found mistakes, then random ones from seeds.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use highwire_io::file::{File, Files, Folder, Open};
use highwire_io::random::Seeded;
use highwire_io::sim::Arrived;
use highwire_io::testing::{Peers, Traits, run};
use highwire_io::{Address, Driver, Instant, Listener, Options, Readiness};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The most seeded programs of a test. Each is played over both transports.
const PROGRAMS: u64 = 100;

/// The time for all programs of a test. Once it has passed, the remaining seeded programs are skipped.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest wait for an expected event. It is much longer than the kernel's timers that may delay the event.
const STUCK: Duration = Duration::from_secs(10);

/// The buffer size in bytes that is set on sockets. It is small, so that the buffers are often full.
const BUFFER_BYTES: usize = 8 * 1024;

/// An upper bound of the number of bytes that the kernel holds for one direction. It leaves room for the buffers of
/// both ends, which may be larger than requested, and for a segment of 64 KiB that the kernel may take beyond each.
const CAPACITY: u64 = 512 * 1024;

/// The longest wait of a turn.
const TURN: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Unix,
}

/// Creates a listener on a free address, with small buffers, which its TCP connections inherit.
fn listen(transport: Transport, path: &PathBuf) -> Socket {
    let (domain, address) = match transport {
        Transport::Tcp => (Domain::IPV4, SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))),
        Transport::Unix => (Domain::UNIX, SockAddr::unix(path).unwrap()),
    };
    let listener = Socket::new(domain, Type::STREAM, None).unwrap();
    listener.set_send_buffer_size(BUFFER_BYTES).unwrap();
    listener.set_recv_buffer_size(BUFFER_BYTES).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(64).unwrap();
    listener
}

fn unix_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("highwire-contract-{}-{name}", std::process::id()))
}

/// A driver with one listener, and its non-blocking clients.
struct Real<D> {
    driver: D,
    transport: Transport,
    address: SockAddr,
    /// Listeners for the driver to connect to, by the numbers of their clients.
    expecting: HashMap<usize, Socket>,
    clients: Vec<Option<Socket>>,
    /// True for each client whose send has failed.
    refused: Vec<bool>,
    paths: Vec<PathBuf>,
    waiting: std::time::Instant,
}

impl<D: Driver> Real<D> {
    fn new(mut driver: D, transport: Transport, name: &str) -> Real<D> {
        let paths = vec![unix_path(name)];
        let listener = listen(transport, &paths[0]);
        let address = listener.local_addr().unwrap();
        let inherited = Address::Inherited(listener.into_raw_fd());
        driver.listen(Listener::bind(&inherited, &Options::default()).unwrap()).unwrap();
        let (clients, refused, waiting) = (Vec::new(), Vec::new(), std::time::Instant::now());
        Real { driver, transport, address, expecting: HashMap::new(), clients, refused, paths, waiting }
    }

    fn add(&mut self, client: Socket) {
        client.set_nonblocking(true).unwrap();
        self.clients.push(Some(client));
        self.refused.push(false);
    }
}

impl<D> Drop for Real<D> {
    fn drop(&mut self) {
        for path in &self.paths {
            // A run over TCP creates no socket files, so there may be none to remove.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl<D: Driver> Peers for Real<D> {
    type Driver = D;

    fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    fn traits(&self) -> Traits {
        Traits {
            resets_show: self.transport == Transport::Tcp,
            capacity: CAPACITY,
            connects_fail: false,
            most: 3 * CAPACITY,
        }
    }

    fn connect(&mut self) -> Option<u16> {
        let client = Socket::new(self.address.domain(), Type::STREAM, None).unwrap();
        client.set_recv_buffer_size(BUFFER_BYTES).unwrap();
        client.set_send_buffer_size(BUFFER_BYTES).unwrap();
        client.connect(&self.address).unwrap();
        let port = client.local_addr().unwrap().as_socket().map(|address| address.port());
        self.add(client);
        port
    }

    fn expect(&mut self) -> Address {
        let client = self.clients.len();
        let path = unix_path(&format!("{}-{client}", self.driver.name()));
        let listener = listen(self.transport, &path);
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        self.paths.push(path.clone());
        self.expecting.insert(client, listener);
        self.clients.push(None);
        self.refused.push(false);
        at.as_socket().map_or(Address::Unix(path), Address::Tcp)
    }

    fn is_accepted(&mut self, client: usize) -> bool {
        if let Some(Ok((socket, _))) = self.expecting.get(&client).map(Socket::accept) {
            socket.set_nonblocking(true).unwrap();
            self.clients[client] = Some(socket);
        }
        self.clients[client].is_some()
    }

    fn send(&mut self, client: usize, bytes: &[u8]) -> usize {
        let Some(mut socket) = self.clients[client].as_ref() else { return 0 };
        match socket.write(bytes) {
            Ok(count) => count,
            Err(error) => {
                self.refused[client] |= error.kind() != ErrorKind::WouldBlock;
                0
            }
        }
    }

    fn receive(&mut self, client: usize, most: usize) -> Option<Arrived> {
        let mut socket = self.clients[client].as_ref()?;
        let mut buffer = vec![0; most];
        match socket.read(&mut buffer) {
            // The kernel reports a reset only once, and the client's send got that report.
            Ok(0) if self.refused[client] && self.transport == Transport::Tcp => Some(Arrived::Reset),
            Ok(0) => Some(Arrived::End),
            Ok(count) => {
                buffer.truncate(count);
                Some(Arrived::Bytes(buffer))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(Arrived::Reset),
        }
    }

    fn shutdown(&mut self, client: usize) {
        // This fails if the loop has already reset the connection.
        let _ = self.clients[client].as_ref().map(|client| client.shutdown(std::net::Shutdown::Write));
    }

    fn reset(&mut self, client: usize) {
        if let Some(client) = self.clients[client].take() {
            client.set_linger(Some(Duration::ZERO)).unwrap();
        }
    }

    fn close(&mut self, client: usize) {
        self.clients[client] = None;
    }

    fn is_gone(&mut self, client: usize) -> bool {
        let Some(client) = &self.clients[client] else { return true };
        let mut poll = libc::pollfd { fd: client.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: the pointer is to one pollfd, and the count is 1.
        let polled = unsafe { libc::poll(&mut poll, 1, 0) };
        polled == 1 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }

    fn is_broken(&self, client: usize) -> bool {
        self.clients[client].is_none()
    }

    fn file(&self, content: &[u8]) -> Arc<dyn File> {
        // All programs need the same content.
        static FILE: OnceLock<Arc<Open>> = OnceLock::new();
        let make = || {
            let path = unix_path("file");
            std::fs::write(&path, content).unwrap();
            let name = path.file_name().unwrap().as_encoded_bytes();
            let file = Folder::open(path.parent().unwrap()).unwrap().open(name).unwrap();
            std::fs::remove_file(&path).unwrap();
            Arc::new(file)
        };
        FILE.get_or_init(make).clone()
    }

    fn until(&mut self) -> Instant {
        self.driver.now() + TURN
    }

    fn pass(&mut self, _: Duration) -> bool {
        false
    }

    fn sockets(&self) -> Option<usize> {
        None
    }

    fn begin_to_wait(&mut self) {
        self.waiting = std::time::Instant::now();
    }

    fn is_patient(&mut self) -> bool {
        self.waiting.elapsed() < STUCK
    }
}

/// Programs that have found mistakes, and are named for them. Each step has three bytes, which `highwire_io::testing`
/// decodes.
const CASES: &[(&str, &[u8])] = &[
    // SendBytes of many bytes, then the client resets.
    ("a reset looks like an end while bytes wait", &[32, 0, 0, 63, 0, 0, 51, 0, 255, 44, 0, 0]),
    // The client resets, then Send of one byte.
    ("a reset looks like an end after a send", &[32, 0, 0, 63, 0, 0, 12, 0, 0, 46, 0, 0]),
    // SendBytes of one byte and Send of many bytes in one turn.
    ("Drained is reported while bytes wait", &[32, 0, 0, 63, 0, 0, 19, 0, 0, 46, 0, 255]),
    // Send and Shutdown in one turn.
    ("Drained is reported though no bytes waited", &[32, 0, 0, 63, 0, 0, 14, 0, 0, 57, 0, 0]),
    // Four Sends in one turn, the last three of many bytes.
    ("Blocked is not reported", &[32, 0, 0, 63, 0, 0, 14, 0, 0, 14, 0, 255, 14, 0, 255, 46, 0, 255, 63, 0, 0]),
    // The client ends its direction and resets, then Send and SendBytes in one turn.
    ("bytes sent after the end neither drain nor fail", &[32, 0, 0, 63, 0, 0, 43, 0, 0, 12, 0, 0, 14, 0, 0, 51, 0, 0]),
    // Two SendBytes of many bytes, then Close and Send in one turn.
    ("a closed socket sends more", &[32, 0, 0, 63, 0, 0, 19, 0, 255, 51, 0, 255, 26, 0, 0, 46, 0, 255]),
    // Two Sends of many bytes and Abort in one turn.
    ("an abort waits for the client to read", &[32, 0, 0, 63, 0, 0, 14, 0, 255, 14, 0, 255, 59, 0, 0]),
    // SendBytes and Abort in one turn.
    ("an abort looks like an end", &[32, 0, 0, 63, 0, 0, 19, 0, 64, 59, 0, 0]),
    // Two SendBytes of many bytes in two turns, and Abort in a third one.
    ("an abort looks like an end while bytes wait", &[32, 0, 0, 63, 0, 0, 51, 0, 255, 51, 0, 255, 59, 0, 0]),
    // SendShortFile of more than the socket takes, and Send in the same turn.
    ("bytes that wait behind a file that is too short leave", &[32, 0, 0, 63, 0, 0, 23, 0, 255, 46, 0, 9]),
    // After 25,601 bytes: SendShortFile of bytes that the file does not have, and Send, Close or Shutdown in one turn.
    ("bytes queued behind a file that is too short leave", &behind_a_short_file([46, 0, 9])),
    ("a file that is too short ends like a whole one", &behind_a_short_file([58, 0, 0])),
    ("our direction ends behind a file that is too short", &behind_a_short_file([57, 0, 0])),
    // The driver connects to a client that sends 180,001 bytes and closes.
    ("an end behind many bytes is not reported", &[35, 0, 0, 4, 0, 222, 13, 0, 0]),
];

/// The loop sends 25,601 bytes, which the client reads. Then it sends a file range of which the file has no bytes, and
/// performs the step `last` in the same turn.
const fn behind_a_short_file(last: [u8; 3]) -> [u8; 60] {
    let mut steps = [0; 60];
    let mut at = 0;
    while at < 60 {
        let step = match at {
            0 => [32, 0, 0],
            3 => [63, 0, 0],
            6 => [51, 0, 153],
            54 => [23, 0, 255],
            57 => last,
            _ => [40, 0, 255],
        };
        (steps[at], steps[at + 1], steps[at + 2]) = (step[0], step[1], step[2]);
        at += 3;
    }
    steps
}

/// Prints the driver, the transport and the name of the program if a test panics.
struct Named<'a>(&'a str, Transport, &'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} over {:?}: {}", self.0, self.1, self.2);
        }
    }
}

fn check<D: Driver>(make: impl Fn() -> std::io::Result<D>) {
    let begun = std::time::Instant::now();
    let play = |case: &str, transport: Transport, program: &[u8]| match make() {
        Ok(driver) => {
            let name = driver.name();
            let _named = Named(name, transport, case);
            run(program, Real::new(driver, transport, name));
        }
        Err(error) => println!("not run: {error}"),
    };
    for (name, program) in CASES {
        play(name, Transport::Tcp, program);
        play(name, Transport::Unix, program);
    }
    for seed in 0..PROGRAMS {
        let mut random = Seeded::new(seed);
        let length = 6 + random.below(240);
        let program: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        play(&format!("seed {seed}"), Transport::Tcp, &program);
        play(&format!("seed {seed}"), Transport::Unix, &program);
        if begun.elapsed() > PATIENCE {
            return println!("out of time after {} seeded programs", seed + 1);
        }
    }
}

#[test]
fn readiness_keeps_the_contract() {
    check(Readiness::new);
}

#[cfg(target_os = "linux")]
#[test]
fn uring_keeps_the_contract() {
    check(highwire_io::Uring::new);
}
