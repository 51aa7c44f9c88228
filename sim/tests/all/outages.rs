//! Upstreams of a proxy, and servers of the client, that go away, hang, and come back, in virtual time.

use highwire::client::{Client, Timeouts};
use highwire::proxy::{HealthCheck, Proxy};
use highwire::server::Worker;
use highwire::{App, StatusCode};
use highwire_io::Address;
use highwire_io::sim::{Arrived, Client as Socket, Faults, Host, Network, Simulated};
use sim::answers;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time of a step in milliseconds.
const STEP: u64 = 10;

/// What an upstream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Up,
    /// It refuses connections, and has reset those that were open.
    Down,
    /// It accepts connections and requests, and answers nothing.
    Hung,
    /// Nothing comes back from it, as from a machine without power.
    Silent,
}

/// A connection to an upstream: what was received, and when the answer is due.
struct Link {
    client: Socket,
    received: Vec<u8>,
    due: Option<u64>,
    answered: Option<u64>,
}

/// An upstream of HTTP/1, played by the test.
struct Upstream {
    address: String,
    is: Is,
    host: Option<Host>,
    links: Vec<Link>,
    /// The time that an answer takes, in milliseconds.
    delay: u64,
    /// The fields of its answers.
    fields: &'static str,
    /// The time in milliseconds after which it resets a connection on which another request comes.
    keeps: Option<u64>,
    /// The moments of its answers, in milliseconds.
    answers: Vec<u64>,
    /// The first lines of the requests that it has received.
    seen: Vec<String>,
}

impl Upstream {
    fn new(number: usize) -> Upstream {
        Upstream {
            address: format!("10.0.0.{}:80", number + 1),
            is: Is::Down,
            host: None,
            links: Vec::new(),
            delay: 2 * STEP,
            fields: "",
            keeps: None,
            answers: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn change(&mut self, is: Is, network: &Network) {
        self.is = is;
        if is == Is::Down {
            self.links.drain(..).for_each(|link| link.client.reset());
            self.host = None;
        } else if self.host.is_none() {
            self.host = Some(network.listen(Address::parse(&self.address).expect("an address")));
        }
        self.host.iter().for_each(|host| host.set_silent(is == Is::Silent));
    }

    fn act(&mut self, now: u64) {
        let Some(host) = &self.host else { return };
        while let Some(client) = host.accept() {
            self.links.push(Link { client, received: Vec::new(), due: None, answered: None });
        }
        self.links.retain_mut(|link| {
            loop {
                match link.client.receive(usize::MAX) {
                    Some(Arrived::Bytes(bytes)) => link.received.extend(bytes),
                    Some(_) => return false,
                    None => break,
                }
            }
            if link.due.is_none() && link.received.windows(4).any(|four| four == b"\r\n\r\n") {
                let text = String::from_utf8(std::mem::take(&mut link.received)).expect("text");
                if self.keeps.zip(link.answered).is_some_and(|(keeps, answered)| now >= answered + keeps) {
                    link.client.reset();
                    return false;
                }
                self.seen.push(text.lines().next().expect("a request line").to_string());
                // An upload is not answered before its end.
                link.due = (!text.contains("/upload")).then_some(now + self.delay);
            }
            if self.is == Is::Up && link.due.is_some_and(|due| due <= now) {
                (link.due, link.answered) = (None, Some(now));
                self.answers.push(now);
                let answer = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok", self.fields);
                link.client.send(answer.as_bytes());
            }
            true
        });
    }
}

/// A client of the proxy, which waits a while between the answer to a request and the next request.
struct Asker {
    client: Socket,
    received: Vec<u8>,
    asked: Option<u64>,
    next: u64,
}

/// An answer: when it came, its status, and how long it took, both times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Answer {
    at: u64,
    status: u16,
    took: u64,
}

struct Play {
    network: Network,
    worker: Worker<Simulated>,
    upstreams: Vec<Upstream>,
    askers: Vec<Asker>,
    answers: Vec<Answer>,
    now: u64,
    method: &'static str,
    /// The time between an answer and the next request, in milliseconds.
    pause: u64,
    asked: usize,
}

impl Play {
    /// Starts an app and these upstreams, which are up, and so many clients.
    fn new(app: App, upstreams: usize, clients: usize) -> Play {
        let network = Network::new(7, Faults::default());
        let driver = Simulated::new(network.clone()).expect("a driver");
        let worker = app.server().expect("an app").into_worker(driver).expect("a worker");
        let mut upstreams: Vec<_> = (0..upstreams).map(Upstream::new).collect();
        upstreams.iter_mut().for_each(|upstream| upstream.change(Is::Up, &network));
        let asker =
            |at| Asker { client: network.connect(), received: Vec::new(), asked: None, next: at as u64 * 7 % 90 };
        let askers = (0..clients).map(asker).collect();
        let (answers, now) = (Vec::new(), 0);
        Play { network, worker, upstreams, askers, answers, now, method: "GET", pause: 50, asked: 0 }
    }

    /// A proxy to these upstreams, and its clients.
    fn proxied(upstreams: usize, clients: usize, set: impl Fn(Proxy) -> Proxy) -> Play {
        let urls = (0..upstreams).map(|number| format!("http://10.0.0.{}", number + 1));
        let proxy = set(Proxy::to(urls).expect("a proxy"));
        let app = App::new().proxy("/", proxy);
        Play::new(app, upstreams, clients)
    }

    fn set(&mut self, upstream: usize, is: Is) {
        self.upstreams[upstream].change(is, &self.network);
    }

    /// Plays until a moment in milliseconds.
    fn until(&mut self, end: u64) {
        while self.now < end {
            for _ in 0..8 {
                self.worker.turn(Some(self.network.now())).expect("a turn");
                self.upstreams.iter_mut().for_each(|upstream| upstream.act(self.now));
                self.ask();
            }
            self.network.advance(Duration::from_millis(STEP));
            self.now += STEP;
        }
    }

    fn ask(&mut self) {
        for asker in &mut self.askers {
            let Some(asked) = asker.asked else {
                if asker.next <= self.now {
                    let request =
                        format!("{} /{} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", self.method, self.asked);
                    self.asked += 1;
                    assert_eq!(asker.client.send(request.as_bytes()), request.len());
                    asker.asked = Some(self.now);
                }
                continue;
            };
            loop {
                match asker.client.receive(usize::MAX) {
                    Some(Arrived::Bytes(bytes)) => asker.received.extend(bytes),
                    Some(end) => panic!("the proxy has closed a client's connection: {end:?}"),
                    None => break,
                }
            }
            let Ok(Some((answer, length))) = answers::read(&asker.received, false, false) else { continue };
            asker.received.drain(..length);
            let took = self.now - asked;
            self.answers.push(Answer { at: self.now, status: answer.status, took });
            (asker.asked, asker.next) = (None, self.now + self.pause);
        }
    }

    /// Returns the answers that are not 200 and came at or after a moment.
    fn failed(&self, since: u64) -> Vec<Answer> {
        self.answers.iter().copied().filter(|answer| answer.status != 200 && answer.at >= since).collect()
    }

    /// Returns the percentage of the answers since a moment that each upstream has given.
    fn shares(&self, since: u64) -> Vec<usize> {
        let counts = self.upstreams.iter().map(|upstream| upstream.answers.iter().filter(|at| **at >= since).count());
        let counts: Vec<_> = counts.collect();
        let all = counts.iter().sum::<usize>().max(1);
        counts.iter().map(|count| 100 * count / all).collect()
    }
}

/// Returns a function that adds a health check to a proxy if `has_check` is true.
fn checked_if(has_check: bool) -> impl Fn(Proxy) -> Proxy {
    move |proxy| if has_check { proxy.health_check(HealthCheck::new("/check")) } else { proxy }
}

#[test]
fn an_upstream_that_was_down_for_a_second_loses_nothing_and_has_its_share_again_within_two() {
    for has_check in [false, true] {
        let mut play = Play::proxied(2, 16, checked_if(has_check));
        play.until(1_000);
        play.set(0, Is::Down);
        play.until(2_200);
        play.set(0, Is::Up);
        play.until(8_000);
        assert!(play.failed(0).is_empty(), "{:?}", play.failed(0));
        assert!(play.shares(4_200).iter().all(|share| *share >= 45), "{:?}", play.shares(4_200));
        assert!(play.answers.len() > 1_000);
    }
}

#[test]
fn after_an_outage_of_all_upstreams_nothing_fails_and_each_has_its_share_within_two_seconds() {
    for has_check in [false, true] {
        let mut play = Play::proxied(2, 16, checked_if(has_check));
        play.until(1_000);
        (0..2).for_each(|upstream| play.set(upstream, Is::Down));
        play.until(1_900);
        play.set(0, Is::Up);
        play.until(2_200);
        play.set(1, Is::Up);
        play.until(8_000);
        let before = play.failed(0).len();
        assert!(before > 0 && play.failed(0).iter().all(|answer| answer.status == 502), "{:?}", play.failed(0));
        // One is back, but each worker learns it only with its next attempt, after 250 ms at most.
        assert!(play.failed(1_900 + 260).is_empty(), "{:?}", play.failed(1_900 + 260));
        assert!(play.shares(4_200).iter().all(|share| *share >= 45), "{:?}", play.shares(4_200));
    }
}

#[test]
fn a_burst_of_requests_leaves_few_connections_to_an_upstream_for_long() {
    let mut play = Play::proxied(1, 300, |proxy| proxy);
    play.upstreams[0].delay = 200;
    play.pause = 1_000_000;
    play.until(1_000);
    assert_eq!(play.answers.len(), 300);
    let before = play.upstreams[0].links.len();
    assert!(before > 200, "{before} connections");
    play.until(4_000);
    assert_eq!(play.upstreams[0].links.len(), 64);
    play.until(40_000);
    assert_eq!(play.upstreams[0].links.len(), 64);
}

#[test]
fn an_outage_of_a_minute_ends_ten_seconds_after_it_at_the_latest() {
    let mut play = Play::proxied(2, 4, |proxy| proxy);
    play.until(1_000);
    play.set(0, Is::Down);
    play.until(61_000);
    play.set(0, Is::Up);
    play.until(80_000);
    assert!(play.failed(0).is_empty(), "{:?}", play.failed(0));
    assert!(play.shares(71_500).iter().all(|share| *share >= 45), "{:?}", play.shares(71_500));
}

#[test]
fn a_slow_upload_does_not_keep_an_upstream_away_that_is_back() {
    let mut play = Play::proxied(2, 8, |proxy| proxy);
    play.until(1_000);
    play.set(0, Is::Down);
    play.until(2_200);
    play.set(0, Is::Up);
    // The uploads come first when the upstream is tried again.
    play.askers.iter_mut().for_each(|asker| asker.next = 4_000);
    play.pause = 1_500;
    play.until(3_500);
    let uploads = [(); 2].map(|()| {
        let client = play.network.connect();
        client.send(b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        play.until(play.now + STEP);
        client
    });
    play.pause = 50;
    while play.now < 8_000 {
        uploads.iter().for_each(|client| assert_eq!(client.send(&[b'x'; 100]), 100));
        play.until(play.now + 100);
    }
    let uploads = play.upstreams[0].seen.iter().filter(|line| line.contains("/upload")).count();
    assert!(uploads > 0, "no upload has tried the upstream");
    assert!(play.failed(0).is_empty(), "{:?}", play.failed(0));
    assert!(play.shares(6_000).iter().all(|share| *share >= 40), "{:?}", play.shares(6_000));
}

#[test]
fn all_requests_in_progress_at_an_upstream_that_dies_go_to_the_others() {
    let mut play = Play::proxied(3, 200, |proxy| proxy);
    play.upstreams.iter_mut().for_each(|upstream| upstream.delay = 500);
    play.until(2_000);
    let open = play.upstreams[0].links.iter().filter(|link| link.due.is_some()).count();
    assert!(open > 40, "{open} requests are in progress");
    play.set(0, Is::Down);
    play.until(10_000);
    assert!(play.failed(0).is_empty(), "{:?}", play.failed(0));
    assert!(play.shares(2_000)[1] > 45);
}

#[test]
fn connections_that_are_opened_for_clients_that_have_left_are_closed() {
    let mut play = Play::proxied(1, 100, |proxy| proxy);
    play.set(0, Is::Silent);
    play.until(200);
    play.askers.clear();
    play.set(0, Is::Up);
    play.until(2_000);
    assert!(
        !play.upstreams[0].links.is_empty() && play.upstreams[0].links.len() <= 9,
        "{}",
        play.upstreams[0].links.len()
    );
}

#[test]
fn a_request_that_may_have_effects_is_not_sent_to_another_upstream() {
    let mut play = Play::proxied(2, 20, |proxy| proxy);
    (play.method, play.upstreams[0].delay, play.upstreams[1].delay) = ("POST", 500, 500);
    play.until(1_200);
    play.set(0, Is::Down);
    play.until(4_000);
    assert!(!play.failed(0).is_empty() && play.failed(0).iter().all(|answer| answer.status == 502));
    let mut seen = BTreeMap::<&String, usize>::new();
    play.upstreams.iter().flat_map(|upstream| &upstream.seen).for_each(|line| *seen.entry(line).or_default() += 1);
    assert!(seen.len() > 50 && seen.values().all(|count| *count == 1), "{seen:?}");
}

fn delays_few_requests_and_fails_none(is: Is) {
    let mut play = Play::proxied(2, 16, |proxy| proxy);
    play.until(1_000);
    play.set(0, is);
    play.until(120_000);
    assert!(play.failed(0).is_empty(), "{:?}", play.failed(0));
    let slow: Vec<_> = play.answers.iter().filter(|answer| answer.took > 1_000).collect();
    let slowest = slow.iter().map(|answer| answer.took).max().expect("some were delayed");
    assert!((10_000..10_500).contains(&slowest), "{slow:?}");
    // The first of all clients, and then one at a time, less and less often.
    assert!(slow.len() < 16 + 16, "{} requests were slow", slow.len());
    assert!(play.answers.len() > 10_000, "{} answers", play.answers.len());
    play.set(0, Is::Down);
    play.set(0, Is::Up);
    play.until(150_000);
    assert!(play.shares(140_000).iter().all(|share| *share >= 45), "{:?}", play.shares(140_000));
}

#[test]
fn an_upstream_that_hangs_delays_few_requests_and_fails_none() {
    delays_few_requests_and_fails_none(Is::Hung);
}

#[test]
fn an_upstream_without_power_delays_few_requests_and_fails_none() {
    delays_few_requests_and_fails_none(Is::Silent);
}

#[test]
fn a_connection_is_not_used_for_longer_than_the_server_keeps_it() {
    for (fields, fails) in [("Keep-Alive: timeout=1\r\n", false), ("", true)] {
        let mut play = Play::proxied(1, 4, |proxy| proxy);
        (play.method, play.pause) = ("POST", 1_200);
        (play.upstreams[0].fields, play.upstreams[0].keeps) = (fields, Some(1_000));
        play.until(30_000);
        assert!(play.answers.len() > 50);
        assert_eq!(!play.failed(0).is_empty(), fails, "{fields}: {:?}", play.failed(0));
    }
}

/// A server of HTTP/2, played by the test: it answers the requests of a connection, or nothing but a SETTINGS frame.
#[derive(Default)]
struct Http2Link {
    received: Vec<u8>,
    has_preface: bool,
    pings: usize,
    requests: usize,
}

impl Http2Link {
    /// Takes what has arrived, and returns what to send.
    fn act(&mut self, bytes: &[u8], answers: bool) -> Vec<u8> {
        const PREFACE: usize = 24;
        self.received.extend_from_slice(bytes);
        let mut out = Vec::new();
        if !self.has_preface && self.received.len() >= PREFACE {
            self.received.drain(..PREFACE);
            self.has_preface = true;
            out.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        }
        while self.has_preface && self.received.len() >= 9 {
            let length = self.received[1] as usize * 256 + self.received[2] as usize;
            if self.received.len() < 9 + length {
                break;
            }
            let frame: Vec<u8> = self.received.drain(..9 + length).collect();
            match (frame[3], frame[4] & 1) {
                (1, _) => {
                    self.requests += 1;
                    if answers {
                        // HEADERS with END_STREAM and END_HEADERS, and the static entry of status 200.
                        out.extend([0, 0, 1, 1, 5]);
                        out.extend_from_slice(&frame[5..9]);
                        out.push(0x88);
                    }
                }
                (6, 0) => {
                    self.pings += 1;
                    if answers {
                        out.extend([0, 0, 8, 6, 1, 0, 0, 0, 0]);
                        out.extend_from_slice(&frame[9..]);
                    }
                }
                _ => {}
            }
        }
        out
    }
}

/// Asks an HTTP/2 server once a second for some time. Its first connection falls silent after three seconds; later ones
/// answer. Returns what each connection has received, and the statuses of the answers.
fn ask_a_server_that_falls_silent(seconds: u64) -> (Vec<Http2Link>, Vec<(u64, u16)>) {
    let timeouts = Timeouts::default().head(Duration::from_secs(60));
    let builder = Client::builder().http2_prior_knowledge().timeouts(timeouts).retries(0);
    let client = builder.timeout(Duration::from_secs(5)).build().expect("a client");
    let app = App::new().get("/{number}", move || {
        let client = client.clone();
        async move {
            match client.get("http://10.0.0.1/").send().await {
                Ok(response) => response.status(),
                Err(_) => StatusCode::GATEWAY_TIMEOUT,
            }
        }
    });
    let mut play = Play::new(app, 1, 1);
    (play.pause, play.upstreams[0].host) = (1_000, None);
    let host = play.network.listen(Address::parse("10.0.0.1:80").expect("an address"));
    let mut links: Vec<(Socket, Http2Link)> = Vec::new();
    while play.now < seconds * 1_000 {
        play.until(play.now + STEP);
        for _ in 0..3 {
            while let Some(socket) = host.accept() {
                links.push((socket, Http2Link::default()));
            }
            for (at, (socket, link)) in links.iter_mut().enumerate() {
                if let Some(Arrived::Bytes(bytes)) = socket.receive(usize::MAX) {
                    let out = link.act(&bytes, at > 0 || play.now < 3_000);
                    socket.send(&out);
                }
            }
        }
    }
    (links.into_iter().map(|(_, link)| link).collect(), play.answers.iter().map(|one| (one.at, one.status)).collect())
}

#[test]
fn a_silent_server_of_http2_is_asked_by_ping_and_leaves_the_pool() {
    let (links, answers) = ask_a_server_that_falls_silent(60);
    let failed = answers.iter().filter(|(_, status)| *status != 200).count();
    // The server falls silent after 3 seconds, a request waits for 5, and the PING for 2 more.
    assert!((1..=2).contains(&failed), "{answers:?}");
    assert!(answers.iter().filter(|(at, _)| *at > 20_000).all(|(_, status)| *status == 200), "{answers:?}");
    assert_eq!(links.len(), 2, "a connection that answers stays");
    assert_eq!((links[0].pings, links[1].pings), (1, 0));
    assert!(links[1].requests > 20);
}

#[test]
fn a_turn_begins_few_connections_to_an_upstream() {
    const CLIENTS: usize = 50;
    let mut play = Play::proxied(1, 0, |proxy| proxy);
    let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let clients: Vec<_> = (0..CLIENTS).map(|_| play.network.connect()).collect();
    clients.iter().for_each(|client| assert_eq!(client.send(upgrade), upgrade.len()));
    let (mut links, mut left) = (Vec::new(), 0);
    for _ in 0..100 {
        play.worker.turn(Some(play.network.now())).expect("a turn");
        let before = links.len();
        links.extend(std::iter::from_fn(|| play.upstreams[0].host.as_ref().expect("a host").accept()));
        assert!(links.len() - before <= 8, "{} connections were begun in one turn", links.len() - before);
        // Those who leave while they wait need no connection.
        if left == 0 && !links.is_empty() {
            left = CLIENTS / 2;
            clients[left..].iter().for_each(|client| client.reset());
        }
    }
    assert!((CLIENTS / 2..=CLIENTS / 2 + 8).contains(&links.len()), "{} connections", links.len());
}
