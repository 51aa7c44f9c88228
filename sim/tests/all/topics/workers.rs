//! Topics of one process on several workers, in virtual time: members that come, publish, read slowly and leave, on networks
//! that split and delay what they carry. A simple account of what was published says what each member must hear.

use crate::peer::SECOND;
use crate::peer::websocket::{KEY, request};
use highwire::server::Worker;
use highwire::topics::{Start, Topics};
use highwire::ws::{Message, WebSocket, WebSocketUpgrade};
use highwire::{App, Path, State};
use highwire_io::random::Seeded;
use highwire_io::sim::{Arrived, Client, Faults, Network, Simulated};
use highwire_proto::ws::{Bounds, Connection, Event};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of rooms. Each is a topic of its own.
const ROOMS: usize = 3;

/// The numbers of the messages that each member has published, in their order.
#[derive(Clone, Default)]
struct Account(Arc<Mutex<HashMap<usize, Vec<usize>>>>);

impl Account {
    fn note(&self, member: usize, number: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(member).or_default().push(number);
    }

    fn of(&self, member: usize) -> Vec<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&member).cloned().unwrap_or_default()
    }
}

/// Members open `/{room}/{member}`. The handler subscribes, sends `ready`, and publishes each message of the member unchanged:
/// the member, a colon, the number of the message, and filler.
fn app(topics: &Topics, account: &Account) -> App {
    let account = account.clone();
    let accept =
        move |upgrade: WebSocketUpgrade, Path((room, member)): Path<(String, usize)>, topics: State<Topics>| {
            let (State(topics), account) = (topics, account.clone());
            upgrade.on_upgrade(async move |mut socket: WebSocket| {
                socket.subscribe(&topics, &room, Start::Next).expect("a valid filter");
                // A room of thousands has more members than presence counts.
                let _membership = topics.join(&room, &member.to_string(), "").ok();
                let _ = socket.send("ready").await;
                while let Some(Ok(message)) = socket.recv().await {
                    if let Message::Text(text) = &message {
                        let (_, number) = parse(text);
                        topics.publish(&room, message).expect("published");
                        account.note(member, number);
                    }
                }
            })
        };
    App::new().state(topics.clone()).get("/{room}/{member}", accept).get("/hello", || "hello")
}

/// Returns the member and the number of a message.
fn parse(text: &str) -> (usize, usize) {
    let mut parts = text.split(':').map(|part| part.parse().expect("a number"));
    (parts.next().expect("a member"), parts.next().expect("a number"))
}

struct Member {
    name: usize,
    room: usize,
    client: Client,
    ws: Connection,
    window: Vec<u8>,
    text: Vec<u8>,
    /// What waits for the link.
    unsent: Vec<u8>,
    has_head: bool,
    is_ready: bool,
    /// True if the member never stopped reading, so that it must hear everything.
    always_reads: bool,
    reads: bool,
    next: usize,
    heard: BTreeMap<usize, Vec<usize>>,
    ended: bool,
}

impl Member {
    fn new(name: usize, room: usize, client: Client) -> Member {
        let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
        let unsent = request(&fields).replacen("GET / ", &format!("GET /room{room}/{name} "), 1).into_bytes();
        let ws = Connection::client(Bounds::default(), false, || [1, 2, 3, 4]);
        let (window, text, heard) = (Vec::new(), Vec::new(), BTreeMap::new());
        Member {
            name,
            room,
            client,
            ws,
            window,
            text,
            unsent,
            has_head: false,
            is_ready: false,
            always_reads: true,
            reads: true,
            next: 0,
            heard,
            ended: false,
        }
    }

    fn publish(&mut self, filler: usize) {
        let text = format!("{}:{}:{}", self.name, self.next, "0".repeat(filler.max(1)));
        self.next += 1;
        self.ws.send_text(&text, &mut self.unsent).expect("the socket is open");
    }

    /// Sends and receives. Returns true if anything moved.
    fn act(&mut self) -> bool {
        let sent = self.client.send(&self.unsent);
        self.unsent.drain(..sent);
        let mut any = sent > 0;
        while self.reads && !self.ended {
            match self.client.receive(usize::MAX) {
                None => break,
                Some(Arrived::Bytes(bytes)) => self.window.extend_from_slice(&bytes),
                Some(Arrived::End | Arrived::Reset) => self.ended = true,
            }
            any = true;
            self.parse();
        }
        any
    }

    fn parse(&mut self) {
        if !self.has_head {
            let Some(end) = self.window.windows(4).position(|four| four == b"\r\n\r\n") else { return };
            assert!(self.window.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&self.window));
            self.window.drain(..end + 4);
            self.has_head = true;
        }
        loop {
            let received = self.ws.receive(&mut self.window).expect("the server's frames are valid");
            let mut is_over = false;
            match received.event {
                Event::NeedMore => is_over = true,
                Event::Data { bytes, is_last, .. } => {
                    self.text.extend_from_slice(bytes);
                    if is_last {
                        let text = String::from_utf8(std::mem::take(&mut self.text)).expect("text");
                        if text == "ready" {
                            self.is_ready = true;
                        } else {
                            let (from, number) = parse(&text);
                            self.heard.entry(from).or_default().push(number);
                        }
                    }
                }
                Event::Close { .. } => {}
                other => panic!("an unexpected event: {other:?}"),
            }
            let consumed = received.consumed;
            self.window.drain(..consumed);
            if is_over {
                return;
            }
        }
    }
}

struct Node {
    network: Network,
    worker: Worker<Simulated>,
    members: Vec<Member>,
}

/// Workers that share the topics of a process.
struct Play {
    nodes: Vec<Node>,
    account: Account,
    topics: Topics,
    names: usize,
    /// The rooms of all members, also of those that have left.
    rooms: Vec<usize>,
}

impl Play {
    fn new(workers: usize, seed: u64, faults: &Faults) -> Play {
        let (topics, account) = (Topics::new(), Account::default());
        let nodes = (0..workers).map(|at| {
            let network = Network::new(seed ^ at as u64, faults.clone());
            let driver = Simulated::new(network.clone()).expect("a driver");
            let worker = app(&topics, &account).server().expect("an app").into_worker(driver).expect("a worker");
            Node { network, worker, members: Vec::new() }
        });
        Play { nodes: nodes.collect(), account, topics, names: 0, rooms: Vec::new() }
    }

    fn join(&mut self, at: usize, room: usize) {
        let node = &mut self.nodes[at];
        node.members.push(Member::new(self.names, room, node.network.connect()));
        self.rooms.push(room);
        self.names += 1;
    }

    /// Runs a turn of each worker. Returns true if anything moved.
    fn step(&mut self) -> bool {
        let mut any = false;
        for node in &mut self.nodes {
            node.members.iter_mut().for_each(|member| any |= member.act());
            node.worker.turn(Some(node.network.now())).expect("a turn");
            any |= !node.worker.driver().is_idle();
        }
        any
    }

    /// Runs turns until nothing moves any more.
    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..100_000 {
            quiet = if self.step() { 0 } else { quiet + 1 };
            if quiet > 60 {
                return;
            }
        }
        panic!("the workers never become idle");
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.nodes.iter().flat_map(|node| &node.members)
    }

    /// Checks what every member that is still there has heard. `must` has the numbers of published messages of each member
    /// when another one was told that it is ready.
    fn check(&self, must: &HashMap<usize, Vec<usize>>) {
        for member in self.members().filter(|member| member.is_ready) {
            assert!(!member.ended, "member {} was closed", member.name);
            for (from, room) in self.rooms.iter().enumerate() {
                let published = self.account.of(from);
                let heard = member.heard.get(&from).cloned().unwrap_or_default();
                if *room != member.room {
                    assert!(heard.is_empty(), "member {} heard {from} of another room", member.name);
                    continue;
                }
                let before = must.get(&member.name).map_or(usize::MAX, |counts| counts.get(from).copied().unwrap_or(0));
                assert!(heard.is_sorted_by(|a, b| a < b), "member {} heard {from}: {heard:?}", member.name);
                assert!(heard.iter().all(|number| published.contains(number)));
                if member.always_reads {
                    let needed = published.len().saturating_sub(before);
                    assert!(
                        heard.len() >= needed && published.ends_with(&heard),
                        "member {} heard {heard:?} of {from}, which published {published:?}, the first {before} before",
                        member.name
                    );
                } else if before < published.len() {
                    assert_eq!(heard.last(), published.last(), "the newest message is never dropped");
                }
            }
        }
    }
}

#[test]
fn members_on_several_workers_hear_everything_once_and_in_order() {
    let mut heard = 0;
    for seed in 0..30 {
        let faults = if seed % 3 == 0 {
            Faults::default()
        } else {
            Faults { split: true, short_send: 4, no_send: 8, stall: 3, late: 3, ..Faults::default() }
        };
        let mut random = Seeded::new(seed);
        let mut play = Play::new(1 + seed as usize % 4, seed, &faults);
        let mut must: HashMap<usize, Vec<usize>> = HashMap::new();
        for _ in 0..400 {
            let at = random.below(play.nodes.len());
            let count = play.nodes[at].members.len();
            match random.below(12) {
                0 | 1 if count < 6 => play.join(at, random.below(ROOMS)),
                2 if count > 0 => {
                    // Half of the members leave with a reset, and the others with an end.
                    let member = play.nodes[at].members.swap_remove(random.below(count));
                    if random.one_in(2) { member.client.reset() } else { member.client.shutdown() }
                }
                3 if count > 0 => {
                    let member = &mut play.nodes[at].members[random.below(count)];
                    (member.reads, member.always_reads) = (!member.reads, false);
                }
                4..8 if count > 0 => {
                    let member = &mut play.nodes[at].members[random.below(count)];
                    if member.is_ready {
                        let filler = if random.one_in(8) { 20_000 } else { 10 };
                        (0..=random.below(6)).for_each(|_| member.publish(filler));
                    }
                }
                _ => {}
            }
            play.step();
            let ready: Vec<usize> = play.members().filter(|member| member.is_ready).map(|member| member.name).collect();
            for name in ready {
                let counts = || (0..play.names).map(|from| play.account.of(from).len()).collect();
                must.entry(name).or_insert_with(counts);
            }
        }
        play.nodes.iter_mut().flat_map(|node| &mut node.members).for_each(|member| member.reads = true);
        play.settle();
        play.check(&must);
        heard += play.members().flat_map(|member| member.heard.values()).map(Vec::len).sum::<usize>();
        for room in 0..ROOMS {
            let mut here: Vec<_> = play.members().filter(|member| member.room == room && member.is_ready).collect();
            here.sort_by_key(|member| member.name.to_string());
            let mut members = play.topics.members(&format!("room{room}"));
            members.sort_by(|a, b| a.name.cmp(&b.name));
            let names: Vec<_> = here.iter().map(|member| member.name.to_string()).collect();
            assert_eq!(members.iter().map(|member| &member.name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
        }
        for node in &mut play.nodes {
            node.members.clear();
        }
        for _ in 0..20 {
            play.settle();
            play.nodes.iter().for_each(|node| node.network.advance(SECOND));
        }
        play.settle();
        assert!((0..ROOMS).all(|room| play.topics.members(&format!("room{room}")).is_empty()), "seed {seed}");
        assert!(play.nodes.iter().all(|node| node.worker.connections() == 0), "seed {seed}");
    }
    assert!(heard > 10_000, "only {heard} messages were heard");
}

#[test]
fn a_message_to_very_many_members_leaves_their_workers_time_for_others() {
    const MEMBERS: usize = 2_000;
    let mut play = Play::new(2, 1, &Faults::default());
    (0..2 * MEMBERS).for_each(|number| play.join(number % 2, 0));
    play.settle();
    assert!(play.members().all(|member| member.is_ready));
    for _ in 0..5 {
        play.nodes[0].members[0].publish(10);
    }
    // The workers have 40 turns of 256 deliveries before them.
    play.step();
    let guests: Vec<Client> = play.nodes.iter().map(|node| node.network.connect()).collect();
    for guest in &guests {
        guest.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let heard = |play: &Play| play.members().flat_map(|member| member.heard.values()).map(Vec::len).sum::<usize>();
    let (mut turns, mut before) = ([0; 2], heard(&play));
    for turn in 1..=40 {
        play.step();
        let now = heard(&play);
        // Some of the messages of the turn before are read only now.
        assert!(now - before <= 3 * 256, "{} messages were delivered in a turn", now - before);
        before = now;
        for (at, guest) in guests.iter().enumerate() {
            if turns[at] == 0 && matches!(guest.receive(usize::MAX), Some(Arrived::Bytes(_))) {
                turns[at] = turn;
            }
        }
    }
    assert!(turns.iter().all(|turns| (1..=3).contains(turns)), "{turns:?} turns");
    play.settle();
    assert_eq!(heard(&play), 5 * 2 * MEMBERS);
}

#[test]
fn a_flood_in_one_room_does_not_delay_the_others() {
    let mut play = Play::new(1, 1, &Faults::default());
    (0..1_500).for_each(|_| play.join(0, 0));
    (0..2).for_each(|_| play.join(0, 1));
    play.settle();
    // These have 300 turns of 256 deliveries before them.
    for member in 0..25 {
        (0..2).for_each(|_| play.nodes[0].members[member].publish(10));
    }
    play.step();
    let heard = |play: &Play| play.nodes[0].members[1_501].heard.get(&1_500).map_or(0, Vec::len);
    for message in 1..=20 {
        play.nodes[0].members[1_500].publish(10);
        let mut turns = 0;
        while heard(&play) < message {
            // One who publishes while much waits is held up for a millisecond at a time.
            play.nodes[0].network.advance(std::time::Duration::from_millis(1));
            play.step();
            turns += 1;
        }
        assert!(turns <= 6, "message {message} took {turns} turns");
    }
    let flood = |play: &Play| play.nodes[0].members[0].heard.values().map(Vec::len).sum::<usize>();
    assert!(flood(&play) < 50, "the flood is over, so nothing was measured");
    for _ in 0..1_000 {
        play.nodes[0].network.advance(std::time::Duration::from_millis(1));
        play.step();
    }
    assert_eq!(flood(&play), 50);
}
