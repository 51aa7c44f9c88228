//! What a peer has sent before it resets the connection is received, even if a send finds the reset first. A server that
//! answers an upload early and closes with unread bytes causes this.

use bytes::Bytes;
use highwire_io::{
    Address, Completion, Driver, Instant, Listener, Op, Options, Queue, Readiness, Sink, SocketId, Uring,
};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Default)]
struct Seen {
    socket: Option<SocketId>,
    events: Vec<String>,
}

impl Sink for Seen {
    fn begin(&mut self, _: Instant) {}
    fn complete(&mut self, completion: Completion<'_>, _: &mut Queue) {
        match completion {
            Completion::Accepted { socket, .. } => self.socket = Some(socket),
            Completion::ReceivedInto { buffer, .. } => self.events.push(String::from_utf8_lossy(&buffer).into_owned()),
            Completion::Received { bytes, .. } => self.events.push(String::from_utf8_lossy(bytes).into_owned()),
            Completion::Ended { .. } => self.events.push("ended".into()),
            Completion::Failed { .. } => self.events.push("failed".into()),
            _ => {}
        }
    }
}

/// Lets the driver listen, and returns the address.
fn listen(driver: &mut impl Driver) -> SocketAddr {
    let address = Address::parse("127.0.0.1:0").expect("an address");
    let listener = Listener::bind(&address, &Options::default()).expect("a port");
    let Address::Tcp(address) = listener.address().clone() else { panic!("an internet address") };
    driver.listen(listener).expect("room");
    address
}

/// Plays a client that sends an answer and resets the connection, and then sends with the driver. If `lends` is true, the
/// driver has a buffer for the answer.
fn play(mut driver: impl Driver, shares: bool, lends: bool) {
    let address = listen(&mut driver);
    let (mut queue, mut seen) = (Queue::new(), Seen::default());
    let mut client = TcpStream::connect(address).expect("a connection");
    let socket = loop {
        driver.turn(None, &mut queue, &mut seen).expect("a turn");
        if let Some(socket) = seen.socket {
            break socket;
        }
    };
    // The client closes with an unread byte, which resets the connection. Over loopback, that takes no time.
    queue.output.extend_from_slice(b"x");
    queue.push(Op::Send { socket, start: 0, end: 1, more: false });
    driver.turn(Some(Instant::default()), &mut queue, &mut seen).expect("a turn");
    if lends {
        queue.push(Op::ReceiveInto { socket, buffer: Vec::with_capacity(100), room: 100 });
        driver.turn(Some(Instant::default()), &mut queue, &mut seen).expect("a turn");
    }
    while client.peek(&mut [0]).expect("a byte") == 0 {}
    client.write_all(b"answer").expect("an open connection");
    drop(client);
    if shares {
        queue.push(Op::SendBytes { socket, bytes: Bytes::from(vec![0; 100_000]) });
    } else {
        queue.output.extend_from_slice(&[0; 1000]);
        queue.push(Op::Send { socket, start: 0, end: 1000, more: false });
    }
    for _ in 0..1000 {
        let until = driver.now() + Duration::from_millis(10);
        driver.turn(Some(until), &mut queue, &mut seen).expect("a turn");
        if seen.events.iter().any(|event| event == "failed") {
            break;
        }
    }
    assert_eq!(seen.events, ["answer", "failed"], "{}, {shares}, {lends}", driver.name());
}

#[test]
fn what_arrived_before_a_reset_is_received() {
    for (shares, lends) in [(false, false), (true, false), (false, true), (true, true)].repeat(10) {
        play(Readiness::new().expect("a driver"), shares, lends);
        match Uring::new() {
            Ok(driver) => play(driver, shares, lends),
            Err(error) => eprintln!("not run: this system has no io_uring ({error})"),
        }
    }
}

/// Counts the open connections, and closes those that have ended.
#[derive(Default)]
struct Open(usize);

impl Sink for Open {
    fn begin(&mut self, _: Instant) {}
    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        match completion {
            Completion::Accepted { .. } => self.0 += 1,
            Completion::Ended { socket } | Completion::Failed { socket, .. } => {
                self.0 -= 1;
                queue.push(Op::Close { socket });
            }
            Completion::AcceptFailed { listener, .. } => queue.push(Op::ResumeAccept { listener }),
            _ => {}
        }
    }
}

/// Counts the connections that stay open although their clients have sent a part of a request and reset them at once.
fn reset_at_once(mut driver: impl Driver) -> usize {
    const CLIENTS: usize = 30_000;
    let address = listen(&mut driver);
    let clients = std::thread::spawn(move || {
        for _ in 0..CLIENTS {
            let mut client = TcpStream::connect(address).expect("a connection");
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("an option");
            client.write_all(b"GET / HTTP/1.1\r\nHost").expect("an open connection");
        }
    });
    let (mut queue, mut open) = (Queue::new(), Open::default());
    let mut turn = |open: &mut Open| {
        let until = driver.now() + Duration::from_millis(5);
        driver.turn(Some(until), &mut queue, open).expect("a turn");
    };
    while !clients.is_finished() {
        turn(&mut open);
    }
    clients.join().expect("clients");
    for _ in 0..200 {
        if open.0 > 0 {
            turn(&mut open);
        }
    }
    open.0
}

/// A regression test: a multishot receive of io_uring said nothing of a reset that came while it was armed. One or two of so many
/// clients stayed until their deadline.
#[test]
fn clients_that_reset_at_once_are_noticed() {
    assert_eq!(reset_at_once(Readiness::new().expect("a driver")), 0);
    match Uring::new() {
        Ok(driver) => assert_eq!(reset_at_once(driver), 0),
        Err(error) => eprintln!("not run: this system has no io_uring ({error})"),
    }
}
