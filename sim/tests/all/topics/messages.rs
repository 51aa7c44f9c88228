//! Topics in virtual time: WebSockets and event streams that subscribe, slow readers, resumed histories, and a broker
//! that stalls.

use crate::peer::plain;
use crate::peer::seen::{see, seen};
use crate::peer::websocket::{Client, KEY, request};
use bytes::Bytes;
use highwire::sse::LastEventId;
use highwire::topics::{Broker, BrokerError, Link, SlowReader, Start, Topic, Topics};
use highwire::ws::{Deflate, Message, WebSocket, WebSocketUpgrade};
use highwire::{App, State};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// An app whose WebSocket subscribes to a filter. Text of the peer is published to the topic `a/b`.
fn app(topics: &Topics, filter: &'static str, start: Start, deflate: bool) -> App {
    let accept = move |upgrade: WebSocketUpgrade, State(topics): State<Topics>| {
        let upgrade = if deflate { upgrade.deflate(Deflate::new()) } else { upgrade };
        upgrade.on_upgrade(async move |mut socket: WebSocket| {
            socket.subscribe(&topics, filter, start).expect("a valid filter");
            while let Some(message) = socket.recv().await {
                match message {
                    Ok(message @ Message::Text(_)) => drop(topics.publish("a/b", message).expect("published")),
                    Ok(_) => {}
                    Err(error) => see(error.to_string()),
                }
            }
        })
    };
    App::new().state(topics.clone()).get("/", accept)
}

#[test]
fn a_message_reaches_all_subscribers_whose_filter_matches() {
    let topics = Topics::new();
    for deflate in [false, true] {
        let mut exact = Client::of(|| app(&topics, "a/b", Start::Next, deflate), deflate);
        let mut wild = Client::of(|| app(&topics, "a/#", Start::Next, deflate), deflate);
        let mut other = Client::of(|| app(&topics, "a/+/c", Start::Next, deflate), deflate);
        exact[0].1.say(|ws, out| ws.send_text("hello", out));
        let long = "again and ".repeat(100);
        topics.publish("a/b/c", &long[..]).expect("published");
        let deflated: &[&str] = if deflate { &["deflated", "1000 bytes"] } else { &["1000 bytes"] };
        for (name, client) in exact.iter_mut().chain(&mut wild).chain(&mut other) {
            client.tunnel.pass(0);
            see(format!("{name}: {:?}", client.hear()));
        }
        let expected = [vec!["hello"], [&["hello"], deflated].concat(), deflated.to_vec()];
        let expected = expected.iter().flat_map(|heard| ["HTTP/1", "HTTP/2"].map(|name| format!("{name}: {heard:?}")));
        assert_eq!(seen(), expected.collect::<Vec<_>>());
    }
    assert_eq!(topics.counts().last().map(|counts| (counts.published, counts.dropped)), Some((4, 0)));
}

#[test]
fn a_client_that_reconnects_resumes_where_it_was() {
    let format = |_: &str, id: highwire::topics::MessageId, message: &Message| {
        let Message::Text(text) = message else { return message.clone() };
        Message::text(format!("{id} {text}"))
    };
    let topics = Topics::builder().topic("a/b", Topic::new().history(5).format(format)).build();
    for number in 1..=3 {
        topics.publish("a/b", number.to_string()).expect("published");
    }
    let mut first = Client::of(|| app(&topics, "a/b", Start::Last(2), false), false);
    let mut id = None;
    for (name, client) in &mut first {
        let heard = client.hear();
        let texts: Vec<_> = heard.iter().filter_map(|message| message.split_once(' ')).collect();
        assert_eq!(texts.iter().map(|(_, text)| *text).collect::<Vec<_>>(), ["2", "3"], "{name}");
        id = texts[0].0.parse().ok();
        client.tunnel.end();
    }
    let id = id.expect("the ID of the second message");
    topics.publish("a/b", "4").expect("published");
    for (name, mut client) in Client::of(|| app(&topics, "a/b", Start::After(id), false), false) {
        topics.publish("a/b", "live").expect("published");
        client.tunnel.pass(0);
        let texts: Vec<_> = client.hear().iter().filter_map(|text| Some(text.split_once(' ')?.1.to_owned())).collect();
        assert_eq!(texts[..2], ["3", "4"], "{name}");
        assert_eq!(texts.last().map(String::as_str), Some("live"), "{name}");
    }
}

#[test]
fn an_event_stream_has_the_same_messages_and_resumes() {
    for (last, expected) in [
        (None, &["n6", "n7"][..]),
        (Some(4), &["n6", "n7"]),
        (Some(6), &[]),
        (Some(0), &["missed", "n3", "n4", "n5", "n6", "n7"]),
        (Some(99), &["n6", "n7"]),
    ] {
        let topics = Topics::builder().topic("news", Topic::new().history(5)).build();
        let ids = [1, 2, 3, 4, 5, 6, 7].map(|number| topics.publish("news", format!("n{number}")).expect("published"));
        let id = last.map(|at| ids.get(at).map_or("nonsense".into(), ToString::to_string)).unwrap_or_default();
        let events = |State(topics): State<Topics>, last: LastEventId| topics.events("news", Start::Last(2), last).ok();
        let mut play = plain::Play::new(App::new().state(topics.clone()).get("/", events));
        play.send(format!("GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: {id}\r\n\r\n").as_bytes());
        play.settle(true);
        topics.publish("news", "live").expect("published");
        play.settle(true);
        let text = String::from_utf8_lossy(&play.received).into_owned();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: ").or(line.strip_prefix("event: ")));
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, [expected, &["live"]].concat(), "after {last:?}");
    }
}

/// Opens a WebSocket whose client does not read.
fn silent(topics: &Topics) -> plain::Play {
    let mut play = plain::Play::new(app(topics, "a/b", Start::Next, false));
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    play
}

/// Returns the numbers at the beginnings of the received messages of 1,000 bytes, and the text behind the last of them.
fn numbers(play: &plain::Play) -> (Vec<usize>, String) {
    let text = String::from_utf8_lossy(&play.received).into_owned();
    let (_, frames) = text.split_once("\r\n\r\n").expect("a head");
    let parts: Vec<_> = frames.split('<').skip(1).collect();
    let numbers = parts.iter().map(|part| part[..5].parse().expect("a number")).collect();
    (
        numbers,
        parts
            .last()
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit() || c == 'x').into())
            .unwrap_or_default(),
    )
}

#[test]
fn slow_readers_are_treated_as_the_topic_says() {
    const MESSAGES: usize = 3000;
    const QUEUE: usize = 10;
    for policy in [SlowReader::DropOldest, SlowReader::DropNewest, SlowReader::LatestOnly, SlowReader::Disconnect] {
        let topics = Topics::builder().topic("a/#", Topic::new().queue(QUEUE).slow_reader(policy)).build();
        let mut play = silent(&topics);
        let mut most = 0;
        for number in 0..MESSAGES {
            topics.publish("a/b", format!("<{number:05}{}", "x".repeat(994))).expect("published");
            play.settle(false);
            most = most.max(play.worker.account());
        }
        assert!(most < 400_000, "{policy:?}: {most} bytes are held for a peer that does not read");
        play.settle(true);
        let (numbers, rest) = numbers(&play);
        let counts = topics.counts().swap_remove(0);
        assert_eq!(counts.published, MESSAGES as u64);
        let sent = numbers.iter().zip(0..).take_while(|(number, expected)| **number == *expected).count();
        let late = &numbers[sent..];
        match policy {
            SlowReader::DropOldest => {
                assert_eq!(late, (MESSAGES - QUEUE..MESSAGES).collect::<Vec<_>>());
                assert_eq!(counts.dropped as usize, MESSAGES - numbers.len());
            }
            SlowReader::DropNewest => {
                assert!(late.is_empty() && sent > QUEUE, "{late:?}");
                assert_eq!(counts.dropped as usize, MESSAGES - sent);
            }
            SlowReader::LatestOnly => {
                assert_eq!(late, [MESSAGES - 1]);
                assert_eq!(counts.dropped as usize, MESSAGES - numbers.len());
            }
            SlowReader::Disconnect => {
                assert!(late.is_empty(), "{late:?}");
                assert_eq!((counts.dropped, counts.disconnected), (0, 1));
                assert!(rest.contains("messages are read too slowly"), "{rest:?}");
            }
            other => panic!("no expectation for {other:?}"),
        }
    }
}

#[test]
fn a_subscriber_that_vanishes_is_forgotten() {
    let topics = Topics::new();
    let (_, mut client) =
        Client::of(|| app(&topics, "a/b", Start::Next, false), false).into_iter().next().expect("two");
    client.tunnel.end();
    client.tunnel.pass(20);
    topics.publish("a/b", "nobody is here").expect("published");
    client.tunnel.pass(0);
    assert_eq!(client.hear(), ["close 1000 ", "end"]);
}

#[test]
fn presence_is_told_to_subscribers() {
    let topics = Topics::new();
    let mut watcher = Client::of(|| app(&topics, "$presence/room", Start::Next, false), false);
    let ann = topics.join("room", "ann", "1").expect("joined");
    let again = topics.join("room", "ann", "1").expect("joined");
    let bob = topics.join("room", "bob", "").expect("joined");
    drop((ann, bob));
    assert_eq!(topics.members("room").len(), 1);
    drop(again);
    assert!(topics.members("room").is_empty());
    for (name, client) in &mut watcher {
        client.tunnel.pass(0);
        let expected = [
            r#"{"joined":"ann","info":"1"}"#,
            r#"{"joined":"bob","info":""}"#,
            r#"{"left":"bob"}"#,
            r#"{"left":"ann"}"#,
        ];
        assert_eq!(client.hear(), expected, "{name}");
    }
}

/// A broker in memory, which moves messages only when the test says so.
#[derive(Clone, Default)]
struct Bus {
    state: Arc<Mutex<BusState>>,
}

#[derive(Default)]
struct BusState {
    machines: Vec<Machine>,
    queue: VecDeque<(String, Bytes, usize)>,
    kept: HashMap<String, Vec<Vec<u8>>>,
    is_down: bool,
}

struct Machine {
    link: Link,
    filters: Vec<(String, bool)>,
}

impl Bus {
    fn with<T>(&self, work: impl FnOnce(&mut BusState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Delivers all messages.
    fn pump(&self) {
        while let Some((topic, payload, keep)) = self.with(|state| state.queue.pop_front()) {
            let targets = self.with(|state| {
                if keep > 0 {
                    let kept = state.kept.entry(topic.clone()).or_default();
                    kept.push(payload.to_vec());
                    kept.drain(..kept.len().saturating_sub(keep));
                }
                let machines = state.machines.iter();
                let targets = machines.flat_map(|machine| {
                    let filters = machine.filters.iter().map(|(filter, _)| filter);
                    filters
                        .filter(|filter| **filter == topic || **filter == "a/#")
                        .map(|filter| (machine.link.clone(), filter.clone()))
                });
                targets.collect::<Vec<_>>()
            });
            targets.iter().for_each(|(link, filter)| link.received(filter, &payload));
        }
    }

    fn fall(&self) {
        let links = self.with(|state| {
            (state.is_down, state.queue) = (true, VecDeque::new());
            state.machines.iter().map(|machine| machine.link.clone()).collect::<Vec<_>>()
        });
        links.iter().for_each(Link::disconnected);
    }

    fn rise(&self) {
        let links = self.with(|state| {
            state.is_down = false;
            let with_history = |machine: &Machine| {
                let filters = machine.filters.iter().filter(|(_, has_history)| *has_history);
                filters
                    .map(|(filter, _)| (filter.clone(), state.kept.get(filter).cloned().unwrap_or_default()))
                    .collect::<Vec<_>>()
            };
            state.machines.iter().map(|machine| (machine.link.clone(), with_history(machine))).collect::<Vec<_>>()
        });
        for (link, histories) in links {
            link.connected();
            histories.into_iter().for_each(|(topic, kept)| link.history(&topic, Some(kept)));
        }
    }
}

/// The end of a bus on one machine.
struct Port {
    bus: Bus,
    number: Mutex<usize>,
}

impl Port {
    fn number(&self) -> usize {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker for Port {
    fn start(&self, link: Link) {
        let number = self.bus.with(|state| {
            state.machines.push(Machine { link, filters: Vec::new() });
            state.machines.len() - 1
        });
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = number;
    }

    fn publish(&self, topic: &str, payload: Bytes, keep: usize) -> Result<(), BrokerError> {
        self.bus.with(|state| {
            if state.is_down {
                return Err(BrokerError::Unavailable);
            }
            state.queue.push_back((topic.into(), payload, keep));
            Ok(())
        })
    }

    fn subscribe(&self, filter: &str, has_history: bool) {
        self.bus.with(|state| state.machines[self.number()].filters.push((filter.into(), has_history)));
    }

    fn unsubscribe(&self, filter: &str) {
        self.bus.with(|state| state.machines[self.number()].filters.retain(|(known, _)| known != filter));
    }
}

fn machine(bus: &Bus) -> Topics {
    let port = Port { bus: bus.clone(), number: Mutex::new(0) };
    Topics::builder().topic("a/b", Topic::new().history(5)).broker(port).build()
}

#[test]
fn two_machines_share_topics_and_catch_up_after_the_broker_was_down() {
    let bus = Bus::default();
    let (here, there) = (machine(&bus), machine(&bus));
    bus.rise();
    let hear = |clients: &mut [(&str, Client)]| -> Vec<Vec<String>> {
        clients
            .iter_mut()
            .map(|(_, client)| {
                client.tunnel.pass(0);
                client.hear()
            })
            .collect()
    };
    there.publish("a/b", "before").expect("published");
    bus.pump();
    let mut exact = Client::of(|| app(&here, "a/b", Start::Last(5), false), false);
    let mut wild = Client::of(|| app(&here, "a/#", Start::Next, false), false);
    assert_eq!(hear(&mut exact), [[""; 0]; 2], "the broker has not answered");
    bus.rise();
    assert_eq!(hear(&mut exact), [["before"], ["before"]]);
    there.publish("a/b", "1").expect("published");
    assert_eq!(hear(&mut exact), [[""; 0]; 2], "the broker stalls");
    bus.pump();
    assert_eq!(hear(&mut exact), [["1"], ["1"]]);
    assert_eq!(hear(&mut wild), [["1"], ["1"]]);

    bus.fall();
    assert!(!here.is_connected() || here.publish("a/b", "lost").is_err());
    assert!(there.publish("a/b", "lost").is_err(), "a publisher learns that the broker is down");
    // The broker lives, but only `there` has reached it again.
    bus.with(|state| state.is_down = false);
    bus.with(|state| state.kept.entry("a/b".into()).or_default().clear());
    there.publish("a/b", "2").expect("published");
    bus.with(|state| {
        let (topic, payload, _) = state.queue.pop_front().expect("a message");
        state.kept.entry(topic).or_default().push(payload.to_vec());
    });
    bus.rise();
    // What the broker kept does not continue what was known, so the subscriber is told by `missed`; a WebSocket only
    // gets the message.
    assert_eq!(hear(&mut exact), [["2"], ["2"]]);
    assert_eq!(hear(&mut wild), [[""; 0]; 2], "without a history, what was missed is lost");
    there.publish("a/b", "3").expect("published");
    bus.pump();
    assert_eq!(hear(&mut exact), [["3"], ["3"]]);
    assert_eq!(hear(&mut wild), [["3"], ["3"]]);
    for (_, client) in exact.iter_mut().chain(&mut wild) {
        client.tunnel.end();
        client.tunnel.pass(20);
    }
    drop((exact, wild));
    assert!(bus.with(|state| state.machines.iter().all(|machine| machine.filters.is_empty())), "nobody listens");
}
