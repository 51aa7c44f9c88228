//! A connection that is closed while it is being made is gone: its descriptor, and the kernel's tries to reach the peer. This
//! needs the kernel's own table of connections, so it is of Linux.
#![cfg(target_os = "linux")]

use highwire_io::{Address, Completion, Driver, Instant, Op, Queue, Readiness, Sink};
use socket2::{Domain, SockAddr, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant as Moment};

/// What has to happen happens within this time.
const STUCK: Duration = Duration::from_secs(10);

struct Nobody;

impl Sink for Nobody {
    fn begin(&mut self, _: Instant) {}
    fn complete(&mut self, _: Completion<'_>, _: &mut Queue) {}
}

/// Connections of this machine to a port that wait for the first answer (SYN_SENT, 02 in the table).
fn tries(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
    let peer = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|word| word.ends_with(&peer)) && words.next() == Some("02")
    };
    table.lines().filter(is_one).count()
}

fn check(mut driver: impl Driver) {
    // Nobody accepts, and there is hardly room for whoever waits for that: the kernel leaves others without an answer.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    full.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).expect("a free port");
    full.listen(0).expect("it listens");
    let address = full.local_addr().expect("its address").as_socket().expect("of TCP");
    let waiting: Vec<_> = std::iter::repeat_with(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        .map_while(Result::ok)
        .collect();
    assert!(!waiting.is_empty(), "some are taken");
    let socket = driver.connect(&Address::Tcp(address)).expect("it begins");
    let mut queue = Queue::default();
    driver.turn(Some(Instant { nanoseconds: 0 }), &mut queue, &mut Nobody).expect("a turn");
    assert_eq!(tries(address.port()), 1, "{}: it is tried", driver.name());
    queue.push(Op::Close { socket });
    let until = Moment::now() + STUCK;
    while tries(address.port()) > 0 {
        assert!(Moment::now() < until, "{}: it is still tried", driver.name());
        driver.turn(Some(Instant { nanoseconds: 0 }), &mut queue, &mut Nobody).expect("a turn");
    }
}

#[test]
fn a_connection_that_is_closed_while_it_is_made_is_gone() {
    check(Readiness::new().expect("a driver"));
    match highwire_io::Uring::new() {
        Ok(driver) => check(driver),
        Err(error) => println!("not run: {error}"),
    }
}
