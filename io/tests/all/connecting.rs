//! Tests connection attempts of the real drivers: refused, answered, cancelled. Their results depend on the kernel, so
//! the tests need a real one.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use highwire_io::{Address, Completion, Driver, Instant, Op, Queue, Readiness, Sink, SocketId};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant as Moment};

/// The longest wait for an expected event.
const STUCK: Duration = Duration::from_secs(10);

/// The completions of the attempts and of their connections.
#[derive(Debug, Default)]
struct Seen {
    connected: Vec<(u64, SocketId)>,
    failed: Vec<(u64, ErrorKind)>,
    received: Vec<u8>,
    /// The attempt that the sink starts after the first failure.
    next: Option<(u64, Address)>,
    /// The attempt with which the sink answers every failure, if `next` is empty.
    always: Option<(u64, Address)>,
    /// Tokens of attempts. At the first connection, the sink cancels those of the other attempts.
    race: Vec<u64>,
    /// The number of `Drained` completions that the sink still answers with another send. If it is not 0, the sink also
    /// sends on each new connection.
    sends: usize,
}

impl Sink for Seen {
    fn begin(&mut self, _: Instant) {}

    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        match completion {
            Completion::Connected { token, socket } => {
                self.connected.push((token, socket));
                for token in std::mem::take(&mut self.race).into_iter().filter(|&other| other != token) {
                    queue.push(Op::CancelConnect { token });
                }
                if self.sends > 0 {
                    queue.push(Op::SendBytes { socket, bytes: bytes::Bytes::from_static(b"x") });
                }
            }
            Completion::Drained { socket } if self.sends > 0 => {
                self.sends -= 1;
                queue.push(Op::SendBytes { socket, bytes: bytes::Bytes::from_static(b"x") });
            }
            Completion::ConnectFailed { token, error } => {
                self.failed.push((token, error.kind()));
                if let Some((token, address)) = self.next.take().or_else(|| self.always.clone()) {
                    queue.push(Op::Connect { token, address });
                }
            }
            Completion::Received { bytes, .. } => self.received.extend(bytes),
            _ => {}
        }
    }
}

struct Test<D> {
    driver: D,
    queue: Queue,
    seen: Seen,
}

impl<D: Driver> Test<D> {
    fn new(driver: D) -> Test<D> {
        Test { driver, queue: Queue::new(), seen: Seen::default() }
    }

    fn connect(&mut self, token: u64, address: &Address) {
        self.queue.push(Op::Connect { token, address: address.clone() });
    }

    fn turn(&mut self) {
        let until = self.driver.now() + Duration::from_millis(1);
        self.driver.turn(Some(until), &mut self.queue, &mut self.seen).unwrap();
    }

    fn wait(&mut self, what: &str, done: impl Fn(&Seen) -> bool) {
        let until = Moment::now() + STUCK;
        while !done(&self.seen) {
            assert!(Moment::now() < until, "{}: did not happen in time: {what}: {:?}", self.driver.name(), self.seen);
            self.turn();
        }
    }
}

/// Runs a test on each driver that is available.
macro_rules! each {
    ($test:ident) => {
        $test(Test::new(Readiness::new().unwrap()));
        #[cfg(target_os = "linux")]
        match highwire_io::Uring::new() {
            Ok(driver) => $test(Test::new(driver)),
            Err(error) => println!("not run: {error}"),
        }
    };
}

/// Returns a listener with a full backlog, so that the kernel does not answer further attempts. Also returns the
/// listener's address and the connections in the backlog.
fn silent() -> (Socket, SocketAddr, Vec<TcpStream>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let waiting: Vec<_> = std::iter::repeat_with(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        .map_while(Result::ok)
        .collect();
    assert!(!waiting.is_empty(), "the kernel must accept some connections into the backlog");
    (listener, address, waiting)
}

/// Returns the number of attempts to connect to a port that have no answer yet (SYN_SENT, 02 in the kernel's table). The table
/// may list a socket twice if others open and close sockets meanwhile.
#[cfg(target_os = "linux")]
fn tries(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let peer = format!(":{port:04X}");
    let local = |line: &'_ str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next()?.to_owned();
        (words.next()?.ends_with(&peer) && words.next() == Some("02")).then_some(local)
    };
    table.lines().filter_map(local).collect::<std::collections::HashSet<_>>().len()
}

#[cfg(target_os = "linux")]
fn cancel(mut test: Test<impl Driver>) {
    let (_listener, address, _waiting) = silent();
    test.connect(7, &Address::Tcp(address));
    test.turn();
    assert_eq!(tries(address.port()), 1, "{}: one attempt must be in progress", test.driver.name());
    test.queue.push(Op::CancelConnect { token: 7 });
    let until = Moment::now() + STUCK;
    while tries(address.port()) > 0 {
        assert!(Moment::now() < until, "{}: the cancelled attempt is still in progress", test.driver.name());
        test.turn();
    }
    // The token is free again, and cancelling it without an attempt does nothing.
    test.queue.push(Op::CancelConnect { token: 7 });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    test.connect(7, &Address::Tcp(listener.local_addr().unwrap()));
    test.wait("the second attempt ends", |seen| !seen.connected.is_empty());
    assert_eq!((test.seen.connected[0].0, &test.seen.failed[..]), (7, &[][..]));
}

#[cfg(target_os = "linux")]
#[test]
fn a_cancelled_attempt_is_gone_and_never_answered() {
    each!(cancel);
}

fn refuse(mut test: Test<impl Driver>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let free = Address::Tcp(listener.local_addr().unwrap());
    drop(listener);
    let answering = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // The sink starts an attempt with the token of the attempt that has just failed.
    test.seen.next = Some((1, Address::Tcp(answering.local_addr().unwrap())));
    test.connect(1, &free);
    test.wait("the sink's attempt succeeds", |seen| !seen.connected.is_empty());
    assert_eq!(test.seen.failed, [(1, ErrorKind::ConnectionRefused)]);
    let (mut peer, _) = answering.accept().unwrap();
    peer.write_all(b"hello").unwrap();
    test.wait("the peer's bytes arrive", |seen| seen.received == b"hello");
    let socket = test.seen.connected[0].1;
    test.queue.output.extend(b"bye");
    test.queue.push(Op::Send { socket, start: 0, end: 3, more: false });
    test.queue.push(Op::Close { socket });
    test.turn();
    test.turn();
    let mut sent = String::new();
    peer.set_read_timeout(Some(STUCK)).unwrap();
    peer.read_to_string(&mut sent).unwrap();
    assert_eq!(sent, "bye");
}

#[test]
fn a_refused_attempt_fails_and_the_sink_may_try_another() {
    each!(refuse);
}

fn misuse(mut test: Test<impl Driver>) {
    let (_listener, address, _waiting) = silent();
    test.connect(1, &Address::Tcp(address));
    test.connect(1, &Address::Tcp(address));
    #[cfg(unix)]
    {
        test.connect(2, &Address::Inherited(0));
        test.connect(3, &Address::Unix("/nowhere/to/be/found".into()));
    }
    // The driver refuses this attempt at once, and the loop cancels it before that is reported.
    test.connect(4, &Address::Inherited(0));
    test.queue.push(Op::CancelConnect { token: 4 });
    test.turn();
    test.turn();
    let mut expected = vec![(1, ErrorKind::AlreadyExists)];
    expected.extend(cfg!(unix).then_some((2, ErrorKind::InvalidInput)));
    expected.extend(cfg!(unix).then_some((3, ErrorKind::NotFound)));
    assert_eq!(test.seen.failed, expected, "{}", test.driver.name());
    assert!(test.seen.connected.is_empty());
}

#[test]
fn an_attempt_that_cannot_begin_is_reported_as_failed() {
    each!(misuse);
}

fn early_data(mut test: Test<impl Driver>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    test.connect(1, &Address::Tcp(listener.local_addr().unwrap()));
    test.turn();
    // The peer's bytes arrive before the driver checks the connection again.
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"hello").unwrap();
    drop(peer);
    test.wait("bytes that arrive with the connection are received", |seen| seen.received == b"hello");
    assert_eq!(test.seen.connected.len(), 1);
}

#[test]
fn bytes_that_arrive_before_the_connection_is_reported_are_received() {
    each!(early_data);
}

fn race(mut test: Test<impl Driver>) {
    for _ in 0..20 {
        test.seen = Seen { race: vec![1, 2], ..Seen::default() };
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        for (token, listener) in [1, 2].into_iter().zip(&listeners) {
            test.connect(token, &Address::Tcp(listener.local_addr().unwrap()));
        }
        test.wait("one of them wins", |seen| !seen.connected.is_empty());
        let (winner, socket) = test.seen.connected[0];
        // The driver closes the connection of the other attempt, whose token is free at once.
        let (mut lost, _) = listeners[2 - winner as usize].accept().unwrap();
        test.turn();
        lost.set_read_timeout(Some(STUCK)).unwrap();
        assert!(matches!(lost.read(&mut [0]), Ok(0) | Err(_)));
        test.connect(3 - winner, &Address::Tcp(listeners[0].local_addr().unwrap()));
        test.wait("its token is used again", |seen| seen.connected.len() > 1);
        assert_eq!(test.seen.connected[1].0, 3 - winner);
        for socket in [socket, test.seen.connected[1].1] {
            test.queue.push(Op::Abort { socket });
        }
        test.turn();
        assert_eq!((test.seen.connected.len(), test.seen.failed.len()), (2, 0), "{:?}", test.seen);
    }
}

#[test]
fn of_two_attempts_in_a_race_the_loser_is_never_reported() {
    each!(race);
}

#[cfg(unix)]
fn endless(mut test: Test<impl Driver>) {
    let nowhere = Address::Unix("/nowhere/to/be/found".into());
    test.seen.always = Some((1, nowhere.clone()));
    test.connect(1, &nowhere);
    for _ in 0..5 {
        test.turn();
    }
    let count = test.seen.failed.len();
    assert!((3..=6).contains(&count), "{}: {count} failures in five turns", test.driver.name());
}

#[cfg(unix)]
#[test]
fn attempts_that_fail_at_once_do_not_keep_a_turn_from_its_end() {
    each!(endless);
}

#[cfg(target_os = "linux")]
fn armed(mut test: Test<impl Driver>) {
    let descriptor = test.driver.descriptor().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    test.seen.sends = 5;
    test.connect(1, &Address::Tcp(listener.local_addr().unwrap()));
    let until = Moment::now() + STUCK;
    // Waits for the descriptor as an embedding loop does. The timeout of a second only keeps a failing test from
    // hanging.
    while test.seen.sends > 0 {
        assert!(Moment::now() < until, "{}: the descriptor hides a report", test.driver.name());
        test.driver.turn(Some(Instant { nanoseconds: 0 }), &mut test.queue, &mut test.seen).unwrap();
        while !test.queue.ops.is_empty() {
            test.driver.turn(Some(Instant { nanoseconds: 0 }), &mut test.queue, &mut test.seen).unwrap();
        }
        test.driver.arm(None).unwrap();
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer describes one pollfd.
        unsafe { libc::poll(&mut poll, 1, 1000) };
    }
    assert!(Moment::now() < until - STUCK / 2, "{}: the descriptor is late", test.driver.name());
}

#[cfg(target_os = "linux")]
#[test]
fn the_descriptor_for_a_foreign_loop_shows_reports_that_wait() {
    each!(armed);
}
