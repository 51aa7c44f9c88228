//! Plays seeded faults between a client and a server: each runs on a simulated network of its own, and the test carries
//! the bytes between them in pieces, late, or not to the end. With a proxy between them, there are three networks.
//!
//! Checked of each run: (1) Each request has exactly one result, and a response is the right one and whole. (2) The
//! server has received no request more often than its method allows: a POST at most once, others at most once for each
//! attempt. (3) If no link was cut, each request succeeds. (4) Nothing leaks: at the end no connection of the client is
//! busy, and no memory is charged after they have closed.

use highwire::client::{Body, Bounds, Client, Error, Timeouts};
use highwire::proxy::Proxy;
use highwire::server::{Listen, Worker};
use highwire::{App, Path, Response, State, StatusCode};
use highwire_io::sim::{self, Arrived, Faults, Network, Simulated};
use highwire_io::{Address, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most turns of a run. A run that needs more hangs.
const MOST_TURNS: u64 = 60_000;

/// The most further attempts of the client.
const RETRIES: usize = 3;

/// The most further attempts of the proxy for each attempt of the client.
const PROXY_RETRIES: u64 = 2;

/// The address of the server, as the client sees it.
const SERVER: &str = "10.0.0.1:80";

/// What has happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of requests.
    pub requests: u64,
    /// The number of responses.
    pub responses: u64,
    /// The number of links that were cut.
    pub cut: u64,
    /// The number of turns.
    pub turns: u64,
}

/// A sequence of pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }
}

/// What the tasks of the client and the handlers of the server record.
#[derive(Default)]
struct Record {
    /// How often the server has received each request completely, by its number and true for a POST.
    received: BTreeMap<(u64, bool), u64>,
    /// The result of each request.
    results: BTreeMap<u64, Vec<Result<(), String>>>,
    /// The number of requests whose futures were dropped.
    dropped: u64,
}

type Shared = Arc<Mutex<Record>>;

fn locked(record: &Shared) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the body of the response to a request.
fn response_body(number: u64) -> Vec<u8> {
    let length = [0, 10, 3_000, 300_000][(number % 4) as usize];
    (0..length).map(|at| (number as usize * 31 + at) as u8).collect()
}

/// Returns the body of a request.
fn request_body(number: u64) -> Vec<u8> {
    let length = [1, 2_000, 250_000][(number % 3) as usize];
    (0..length).map(|at| (number as usize * 17 + at) as u8).collect()
}

fn server(record: &Shared) -> App {
    let note = |record: &Shared, number: u64, is_post: bool| {
        *locked(record).received.entry((number, is_post)).or_default() += 1;
        let body = response_body(number);
        if number.is_multiple_of(5) {
            let (mut sender, receiver) = highwire::body::channel();
            highwire::spawn(async move {
                for part in body.chunks(20_000) {
                    if sender.send(part.to_vec()).await.is_err() {
                        return;
                    }
                }
                sender.finish();
            });
            return Response::stream(receiver);
        }
        Response::bytes("text/plain", body)
    };
    let whole = move |is_post: bool| {
        move |State(record): State<Shared>, Path(number): Path<u64>, body: bytes::Bytes| {
            if body != request_body(number) {
                return Response::error(StatusCode::BAD_REQUEST, "another body\n");
            }
            note(&record, number, is_post)
        }
    };
    App::new()
        .state(record.clone())
        .get("/{number}", move |State(record): State<Shared>, Path(number): Path<u64>| note(&record, number, false))
        .put("/{number}", whole(false))
        .post("/{number}", whole(true))
}

/// The task of the client's worker: which requests it sends.
struct Orders {
    record: Shared,
    client: Client,
    requests: u64,
    /// One in so many requests is dropped after a time.
    drops: u64,
    seed: u64,
}

/// Returns the app of the client's worker, whose only handler begins the requests.
fn client(orders: Orders) -> App {
    App::new().state(orders).get("/begin", async |State(orders): State<Orders>| {
        let mut random = Random(orders.seed ^ 0xc11e);
        for number in 0..orders.requests {
            let (record, client) = (orders.record.clone(), orders.client.clone());
            let patience = random.one_in(orders.drops).then(|| Duration::from_millis(random.below(40)));
            let delay = Duration::from_millis(random.below(30));
            let kind = random.below(4);
            highwire::spawn(async move {
                highwire::time::sleep(delay).await;
                let request = ask(&client, number, kind);
                let result = match patience {
                    None => request.await,
                    Some(patience) => match highwire::time::timeout(patience, request).await {
                        Ok(result) => result,
                        Err(_) => {
                            locked(&record).dropped += 1;
                            Ok(())
                        }
                    },
                };
                locked(&record).results.entry(number).or_default().push(result);
            });
        }
        "begun"
    })
}

/// Sends a request and checks its response.
async fn ask(client: &Client, number: u64, kind: u64) -> Result<(), String> {
    let url = format!("http://{SERVER}/{number}");
    let request = match kind {
        0 => client.put(&url).body(request_body(number)),
        1 => client.post(&url).body(request_body(number)),
        2 => {
            let (mut sender, body) = Body::channel();
            highwire::spawn(async move {
                for part in request_body(number).chunks(9_000) {
                    if sender.send(part.to_vec()).await.is_err() {
                        return;
                    }
                }
                sender.finish();
            });
            client.post(&url).body(body)
        }
        _ => client.get(&url),
    };
    let said = |error: Error| format!("failed: {error}");
    let response = request.send().await.map_err(said)?;
    let status = response.status();
    // A proxy says that its upstream has failed.
    if status.is_server_error() {
        return Err(format!("failed: {status}"));
    }
    if status != StatusCode::OK {
        return Err(format!("wrong: the status is {status}"));
    }
    let body = response.bytes().await.map_err(said)?;
    if body != response_body(number) { Err("wrong: another body".to_string()) } else { Ok(()) }
}

/// A link between two networks.
struct Link {
    ends: [sim::Client; 2],
    /// What each end has sent and the other has not taken, and true if it has ended.
    waiting: [Vec<u8>; 2],
    ended: [bool; 2],
    shut: [bool; 2],
    /// The number of bytes after which the link is cut.
    cut_after: Option<u64>,
    carried: u64,
    is_gone: bool,
}

/// How a cut link looks at its ends.
const RESET: u64 = 2;

impl Link {
    /// Carries some bytes. Returns true if anything moved.
    fn carry(&mut self, random: &mut Random, stall: u64, cut: &mut u64) -> bool {
        let mut any = false;
        for from in 0..2 {
            if random.one_in(stall) {
                continue;
            }
            if self.waiting[from].len() < 60_000 && !self.ended[from] {
                match self.ends[from].receive(1 + random.below(40_000) as usize) {
                    Some(Arrived::Bytes(bytes)) => {
                        self.waiting[from].extend_from_slice(&bytes);
                        any = true;
                    }
                    Some(Arrived::End) => (self.ended[from], any) = (true, true),
                    Some(Arrived::Reset) => {
                        self.ends[1 - from].reset();
                        self.is_gone = true;
                        return true;
                    }
                    None => {}
                }
            }
            let left = self.cut_after.map_or(u64::MAX, |after| after - self.carried);
            let most = self.waiting[from].len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let sent = self.ends[1 - from].send(&self.waiting[from][..most]);
            self.waiting[from].drain(..sent);
            self.carried += sent as u64;
            any |= sent > 0;
            if self.cut_after == Some(self.carried) {
                *cut += 1;
                self.is_gone = true;
                for end in &self.ends {
                    if random.one_in(RESET) { end.reset() } else { end.shutdown() }
                }
                return true;
            }
            if self.ended[from] && self.waiting[from].is_empty() && !self.shut[from] {
                self.ends[1 - from].shutdown();
                (self.shut[from], any) = (true, true);
            }
        }
        self.is_gone |= self.shut == [true, true];
        any
    }
}

/// A worker on its network, and the host to which it connects.
struct Node {
    network: Network,
    worker: Worker<Simulated>,
    host: Option<sim::Host>,
}

impl Node {
    fn new(app: App, seed: u64, has_host: bool) -> Result<Node, String> {
        let network = Network::new(seed, Faults { split: true, short_send: 4, stall: 3, late: 4, ..Faults::default() });
        let host = has_host.then(|| network.listen(Address::parse(SERVER).expect("an address")));
        let driver = Simulated::new(network.clone()).map_err(|error| error.to_string())?;
        let worker = app.server().and_then(|server| server.into_worker_with(driver, Listen::new()));
        Ok(Node { network, worker: worker.map_err(|error| error.to_string())?, host })
    }

    fn turn(&mut self) -> Result<(), String> {
        let now = self.network.now();
        self.worker.turn(Some(now)).map(drop).map_err(|error| error.to_string())
    }
}

/// Plays a seed.
///
/// # Errors
/// Returns the first broken rule.
pub fn play(seed: u64) -> Result<Outcome, String> {
    let mut random = Random(seed);
    let record = Shared::default();
    let is_http2 = random.one_in(2);
    let has_proxy = random.one_in(3);
    let cuts = if random.one_in(3) { 0 } else { 1 + random.below(6) };
    let (requests, drops) = (1 + random.below(24), if random.one_in(2) { 0 } else { 2 + random.below(6) });
    let stall = [0, 2, 3][random.below(3) as usize];
    let bounds = Bounds {
        connections: 1 + random.below(4) as usize,
        streams: 1 + random.below(9) as usize,
        ..Bounds::default()
    };
    let client_of = |retries: usize| {
        let builder = Client::builder().bounds(bounds.clone()).retries(retries);
        let builder = if is_http2 { builder.http2_prior_knowledge() } else { builder };
        builder.timeouts(Timeouts { idle: Duration::from_secs(5), ..Timeouts::default() })
    };
    let orders = Orders {
        record: record.clone(),
        client: client_of(RETRIES).build().map_err(|error| error.to_string())?,
        requests,
        drops,
        seed,
    };
    let mut nodes = vec![Node::new(client(orders), seed, true)?];
    if has_proxy {
        let proxy =
            Proxy::with_client([format!("http://{SERVER}")], || client_of(0)).map_err(|error| error.to_string())?;
        nodes.push(Node::new(App::new().proxy("/", proxy), seed ^ 1, true)?);
    }
    nodes.push(Node::new(server(&record), seed ^ 2, false)?);
    let begin = nodes[0].network.connect();
    begin.send(b"GET /begin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let before = nodes[0].worker.account();
    let (mut links, mut outcome) = (Vec::<Link>::new(), Outcome { requests, ..Outcome::default() });
    let mut quiet = 0;
    while locked(&record).results.len() < requests as usize {
        outcome.turns += 1;
        if outcome.turns > MOST_TURNS {
            let missing: Vec<u64> =
                (0..requests).filter(|number| !locked(&record).results.contains_key(number)).collect();
            return Err(format!("the requests {missing:?} have no result after {MOST_TURNS} turns"));
        }
        let any = step(&mut nodes, &mut links, &mut random, (stall, cuts), &mut outcome)?;
        quiet = if any { 0 } else { quiet + 1 };
        if quiet > 3 {
            // Nothing is left to do at this moment.
            advance(&mut nodes);
        }
    }
    check(&record, &outcome)?;
    outcome.responses = locked(&record).results.values().flatten().filter(|result| result.is_ok()).count() as u64;
    // All connections close when they have been idle for long enough.
    drop(begin);
    for _ in 0..3_000 {
        // An attempt to connect, whose request was dropped, is charged and is no connection yet.
        if nodes[0].worker.connections() == 0 && nodes[0].worker.account() <= before {
            break;
        }
        step(&mut nodes, &mut links, &mut random, (0, 0), &mut outcome)?;
        advance(&mut nodes);
    }
    let (connections, account) = (nodes[0].worker.connections(), nodes[0].worker.account());
    if connections > 0 || account > before {
        return Err(format!("{connections} connections and {account} bytes are left (before: {before})"));
    }
    Ok(outcome)
}

/// Runs a turn of each worker, and carries bytes. Returns true if anything moved.
fn step(
    nodes: &mut [Node],
    links: &mut Vec<Link>,
    random: &mut Random,
    (stall, cuts): (u64, u64),
    outcome: &mut Outcome,
) -> Result<bool, String> {
    let mut any = false;
    for node in nodes.iter_mut() {
        node.turn()?;
        any |= !node.worker.driver().is_idle();
    }
    for at in 0..nodes.len() {
        while let Some(end) = nodes[at].host.as_ref().and_then(sim::Host::accept) {
            // Most cuts come early, in the first request and its response.
            let most = if random.one_in(2) { 400 } else { 200_000 };
            let cut_after = (cuts > 0 && random.one_in(cuts)).then(|| random.below(most));
            let other = nodes[at + 1].network.connect();
            links.push(Link {
                ends: [end, other],
                waiting: [Vec::new(), Vec::new()],
                ended: [false; 2],
                shut: [false; 2],
                cut_after,
                carried: 0,
                is_gone: false,
            });
            any = true;
        }
    }
    for link in links.iter_mut() {
        any |= link.carry(random, stall, &mut outcome.cut);
    }
    links.retain(|link| !link.is_gone);
    Ok(any)
}

/// Advances all clocks to the next timer or deadline.
fn advance(nodes: &mut [Node]) {
    let now = nodes[0].network.now();
    let next = nodes.iter().filter_map(|node| node.worker.next_timer()).filter(|timer| *timer > now).min();
    let most = now + Duration::from_millis(100);
    let to = next.map_or(most, |next: Instant| next.min(most));
    nodes.iter().for_each(|node| node.network.advance_to(to));
}

fn check(record: &Shared, outcome: &Outcome) -> Result<(), String> {
    let record = locked(record);
    for (number, results) in &record.results {
        let [result] = &results[..] else { return Err(format!("request {number} has {} results", results.len())) };
        match result {
            Err(error) if error.starts_with("wrong") => return Err(format!("request {number}: {error}")),
            Err(error) if outcome.cut == 0 => return Err(format!("request {number}, without a fault: {error}")),
            _ => {}
        }
    }
    for ((number, is_post), times) in &record.received {
        let most = if *is_post { 1 } else { (1 + RETRIES as u64) * (1 + PROXY_RETRIES) };
        if *times > most {
            return Err(format!("request {number} was received {times} times, and may be {most} times"));
        }
    }
    Ok(())
}
