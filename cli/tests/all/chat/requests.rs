//! Tests the chat of `highwire demo`: two clients of one process, and two processes that share rooms through a real
//! Redis or NATS, which is killed and started again, as are the processes.

use crate::demo::{Demo, PATIENCE};
use crate::programs::{Folder, program};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::ports::free_port;
use tungstenite::{Message, WebSocket};

/// A member of a room.
struct Member {
    socket: WebSocket<TcpStream>,
    /// The messages that were received and not asked for yet.
    inbox: Vec<String>,
    /// The ID of the last received message.
    last: String,
    address: String,
    name: String,
    /// How often the server has closed the connection and the member has resumed.
    resumed: usize,
}

impl Member {
    fn enter(demo: &Demo, name: &str, after: &str) -> Member {
        let (address, name) = (demo.addresses[0].clone(), name.to_string());
        let socket = Member::connect(&address, &name, after);
        Member { socket, inbox: Vec::new(), last: after.into(), address, name, resumed: 0 }
    }

    fn connect(address: &str, name: &str, after: &str) -> WebSocket<TcpStream> {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let after = if after.is_empty() { String::new() } else { format!("&after={after}") };
        let url = format!("ws://{address}/chat/ws?room=lobby&name={name}{after}");
        let deadline = Instant::now() + PATIENCE;
        let mut handshake = tungstenite::client(url, stream);
        loop {
            match handshake {
                Ok((socket, _)) => return socket,
                Err(tungstenite::HandshakeError::Interrupted(middle)) if Instant::now() < deadline => {
                    handshake = middle.handshake();
                }
                Err(error) => panic!("a handshake: {error}"),
            }
        }
    }

    /// Connects again, as the page does after a Close frame.
    fn resume(&mut self) {
        self.socket = Member::connect(&self.address, &self.name, &self.last);
        self.resumed += 1;
    }

    fn say(&mut self, text: &str) {
        if self.socket.send(Message::text(text)).is_err() {
            self.resume();
            self.socket.send(Message::text(text)).expect("a message that is sent");
        }
    }

    /// Reads what has arrived. Returns false after 100 ms without a message.
    fn read(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Text(text)) => {
                let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                let found = if let Some(said) = value["text"].as_str() {
                    self.last = value["id"].as_str().expect("an ID").into();
                    said.into()
                } else if let Some(name) = value["joined"].as_str() {
                    format!("+{name}")
                } else if let Some(name) = value["left"].as_str() {
                    format!("-{name}")
                } else {
                    value.to_string()
                };
                self.inbox.push(found);
                true
            }
            Ok(Message::Close(_)) => {
                self.resume();
                true
            }
            Ok(_) => true,
            Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    /// Waits until a message has arrived that satisfies a condition.
    fn wait(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.inbox.iter().position(|text| holds(text)) {
                self.inbox.remove(at);
                return;
            }
            let newest = &self.inbox[self.inbox.len().saturating_sub(10)..];
            assert!(Instant::now() < deadline, "no message {what}; the newest are {newest:?}");
            self.read();
        }
    }

    fn wait_for(&mut self, text: &str) {
        self.wait(text, |found| found == text);
    }

    /// Returns the numbers among the received messages, in their order, after 300 ms without a message.
    fn numbers(&mut self) -> Vec<u32> {
        while self.read() || self.read() || self.read() {}
        self.inbox.iter().filter_map(|text| text.parse().ok()).collect()
    }
}

#[test]
fn two_clients_of_one_process_chat() {
    let Some(demo) = Demo::start("auto", &["--listen", "127.0.0.1:0", "--workers", "2"]) else { return };
    let mut ann = Member::enter(&demo, "ann", "");
    ann.wait_for(r#"{"members":["ann"]}"#);
    ann.say("hello");
    ann.wait_for("hello");
    let last = ann.last.clone();
    ann.say("anybody?");
    let mut bob = Member::enter(&demo, "bob", "");
    bob.wait_for("hello");
    bob.wait_for("anybody?");
    ann.wait_for("+bob");
    drop(bob);
    ann.wait_for("-bob");
    ann.say("<b>a & \"b\"</b>");
    let mut bob = Member::enter(&demo, "bob", &last);
    bob.wait_for("anybody?");
    bob.wait_for("<b>a & \"b\"</b>");
    assert!(!bob.inbox.contains(&"hello".to_string()), "{:?}", bob.inbox);
}

/// A broker's server, which can be killed and started again on the same port.
struct Broker {
    program: PathBuf,
    arguments: Vec<String>,
    port: u16,
    child: Option<Child>,
    _folder: Folder,
}

impl Broker {
    fn redis() -> Option<Broker> {
        let (program, folder, port) = (program(&["redis-server"])?, Folder::new("redis"), free_port());
        let path = folder.0.display().to_string();
        // The log of commands is written at once, so that a killed server loses nothing.
        let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", &path];
        let log = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
        let arguments = arguments.iter().chain(&log).map(ToString::to_string).collect();
        Some(Broker { program, arguments, port, child: None, _folder: folder })
    }

    fn nats() -> Option<Broker> {
        let (program, folder, port) = (program(&["nats-server"])?, Folder::new("nats"), free_port());
        let arguments = ["--addr", "127.0.0.1", "--port", &port.to_string()].map(ToString::to_string).to_vec();
        Some(Broker { program, arguments, port, child: None, _folder: folder })
    }

    fn start(&mut self) {
        let mut command = Command::new(Path::new(&self.program));
        command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("a broker"));
        let deadline = Instant::now() + PATIENCE;
        while !testkit::http1::listens(("127.0.0.1", self.port)) {
            assert!(Instant::now() < deadline, "the broker does not start");
            std::thread::yield_now();
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a process to kill");
            child.wait().expect("a process that ends");
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts two processes and returns them with a member in each, when the members see each other.
fn joined(url: &str) -> Option<[(Demo, Member); 2]> {
    let start = |name: &str| {
        let mut demo = Demo::start("auto", &["--listen", "127.0.0.1:0", "--workers", "1", "--broker", url])?;
        demo.wait_for("connected to the broker", 1);
        let member = Member::enter(&demo, name, "");
        Some((demo, member))
    };
    let mut both = [start("ann")?, start("bob")?];
    both[0].1.wait_for("+bob");
    both[1].1.wait("with ann", |text| text == "+ann" || text == r#"{"members":["ann","bob"]}"#);
    Some(both)
}

/// Publishes a message again and again until it arrives at another member, because it may get lost while the broker's
/// connections are made.
fn until_it_arrives(from: &mut Member, to: &mut Member, text: &str) {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        from.say(text);
        for _ in 0..5 {
            to.read();
        }
        if to.inbox.iter().any(|found| found == text) {
            return;
        }
        assert!(Instant::now() < deadline, "{text} does not arrive; there are {:?}", to.inbox);
    }
}

/// Says numbers in turn, and kills and starts the broker in between. Returns the numbers that were accepted.
fn say_while_the_broker_restarts(broker: &mut Broker, both: [&mut Demo; 2], from: &mut Member) -> BTreeSet<u32> {
    let [here, there] = both;
    for number in 0..600 {
        if number == 200 {
            broker.kill();
        }
        if number == 400 {
            broker.start();
            here.wait_for("connected to the broker", 2);
            there.wait_for("connected to the broker", 2);
        }
        from.say(&number.to_string());
        // Its echo, or an error.
        from.read();
    }
    let own: BTreeSet<u32> = from.numbers().into_iter().collect();
    let refused = from.inbox.iter().filter(|text| text.contains("the broker is not connected")).count();
    assert!(refused >= 100, "the publisher learns that the broker is down, but only {refused} times");
    own
}

#[test]
fn processes_that_share_a_redis_lose_nothing_that_it_has_kept() {
    let Some(mut broker) = Broker::redis() else { return };
    broker.start();
    let url = format!("redis://127.0.0.1:{}", broker.port);
    let Some([(mut here, mut ann), (mut there, mut bob)]) = joined(&url) else { return };
    ann.say("hello");
    bob.wait_for("hello");
    bob.say("hello yourself");
    ann.wait_for("hello yourself");

    let own = say_while_the_broker_restarts(&mut broker, [&mut here, &mut there], &mut ann);
    let others = bob.numbers();
    assert!(others.windows(2).all(|two| two[0] < two[1]), "each message arrives once and in order");
    assert_eq!(others.iter().copied().collect::<BTreeSet<_>>(), own, "both processes deliver the same messages");
    // Only messages that were on their way when the broker was killed may be lost.
    assert!(own.range(..190).count() == 190 && own.range(400..).count() == 200, "{own:?}");
    assert_eq!((ann.resumed, bob.resumed), (0, 0), "no connection was closed");

    // A process is killed. Its member resumes in the other one, which has the same messages.
    let last = bob.last.clone();
    drop(bob);
    ann.wait_for("-bob");
    drop(there);
    for number in 1000..1050 {
        ann.say(&number.to_string());
    }
    ann.wait_for("1049");
    let mut bob = Member::enter(&here, "bob", &last);
    bob.wait_for("1049");
    assert_eq!(bob.numbers(), (1000..1049).collect::<Vec<_>>());
}

#[test]
fn processes_that_share_a_nats_go_on_after_it_was_restarted() {
    let Some(mut broker) = Broker::nats() else { return };
    broker.start();
    let url = format!("nats://127.0.0.1:{}", broker.port);
    let Some([(mut here, mut ann), (mut there, mut bob)]) = joined(&url) else { return };
    ann.say("hello");
    bob.wait_for("hello");
    let own = say_while_the_broker_restarts(&mut broker, [&mut here, &mut there], &mut ann);
    until_it_arrives(&mut ann, &mut bob, "still here");
    let others = bob.numbers();
    assert!(others.windows(2).all(|two| two[0] < two[1]), "each message arrives at most once and in order");
    assert!(own.range(..190).count() == 190 && own.range(500..).count() == 100, "{own:?}");
    assert!(others.iter().filter(|number| **number < 190).count() == 190, "{others:?}");
    // NATS keeps no messages. The chat therefore closed both clients' sockets, and both clients resumed.
    assert!(ann.resumed > 0 && bob.resumed > 0);
}
