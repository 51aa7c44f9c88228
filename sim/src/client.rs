//! Plays seeded faults between a client and a server: each runs on a simulated network of its own, and the test carries
//! the bytes between them in pieces, late, or not to the end. With a proxy between them, there are three networks. One run in
//! four has TLS to the server.
//!
//! Checked of each run: (1) Each request has exactly one result, and a response is the right one and whole. (2) The
//! server has received no request more often than its method allows: a POST at most once, others at most once for each
//! attempt. (3) If no link was cut, each request succeeds. (4) Nothing leaks: at the end no connection of the client is
//! busy, and no memory is charged after they have closed.

use crate::nodes::{Chaos, NEXT, NEXT_TLS, Nodes, Random};
use crate::tls::{Clients, Http, Resumption, Version};
use highwire::client::{Body, Bounds, Client, Error, Timeouts};
use highwire::proxy::Proxy;
use highwire::{App, Path, Response, State, StatusCode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most turns of a run. A run that needs more hangs.
const MOST_TURNS: u64 = 60_000;

/// The most further attempts of the client.
const RETRIES: usize = 3;

/// The most further attempts of the proxy for each attempt of the client.
const PROXY_RETRIES: u64 = 2;

/// The origin of the proxy, as the client sees it.
const PROXY: &str = "http://10.0.0.1:80";

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
#[derive(Clone)]
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
    let url = format!("/{number}");
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

/// Plays a seed.
///
/// # Errors
/// Returns the first broken rule.
pub fn play(seed: u64) -> Result<Outcome, String> {
    let mut random = Random(seed);
    let record = Shared::default();
    let is_http2 = random.one_in(2);
    // Between the last two workers.
    let is_tls = random.one_in(4);
    let has_proxy = random.one_in(3);
    let cuts = if random.one_in(3) { 0 } else { 1 + random.below(6) };
    let (requests, drops) = (1 + random.below(24), if random.one_in(2) { 0 } else { 2 + random.below(6) });
    let chaos = Chaos { stall: [0, 2, 3][random.below(3) as usize], cut: cuts };
    let origin = if is_tls { format!("https://{NEXT_TLS}") } else { format!("http://{NEXT}") };
    let bounds = Bounds::default().connections(1 + random.below(4) as usize).streams(1 + random.below(9) as usize);
    // Without resumption, so that a run does not depend on how the tickets of connections follow each other.
    let tls = Clients::new(Resumption::disabled());
    let client_of = |retries: usize| {
        let builder = Client::builder().bounds(bounds.clone()).retries(retries);
        let builder = if is_http2 { builder.http2_prior_knowledge() } else { builder.http1_only() };
        // A client that makes its configuration itself does so on the blocking pool, for which virtual time does not wait.
        let builder = builder.tls_config(tls.config(Version::Tls13, Http::Two));
        builder.timeouts(Timeouts::default().idle(Duration::from_secs(5)))
    };
    let orders = Orders {
        record: record.clone(),
        client: client_of(RETRIES)
            // The proxy is reached without TLS.
            .base_url(if has_proxy { PROXY } else { &origin })
            .build().map_err(|error| error.to_string())?,
        requests,
        drops,
        seed,
    };
    let mut apps = vec![client(orders)];
    if has_proxy {
        let proxy = Proxy::with_client([origin], || client_of(0)).map_err(|error| error.to_string())?;
        apps.push(App::new().proxy("/", proxy));
    }
    apps.push(server(&record));
    let mut nodes = Nodes::new(apps, seed, true)?;
    let begin = nodes.connect();
    begin.send(b"GET /begin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let before = nodes.first().account();
    let mut quiet = 0;
    while locked(&record).results.len() < requests as usize {
        if nodes.turns > MOST_TURNS {
            let missing: Vec<u64> =
                (0..requests).filter(|number| !locked(&record).results.contains_key(number)).collect();
            return Err(format!("the requests {missing:?} have no result after {MOST_TURNS} turns"));
        }
        let any = nodes.step(&mut random, chaos)?;
        quiet = if any { 0 } else { quiet + 1 };
        if quiet > 3 {
            // Nothing is left to do at this moment.
            nodes.advance();
        }
    }
    let mut outcome = Outcome { requests, responses: 0, cut: nodes.cut, turns: nodes.turns };
    check(&record, &outcome)?;
    outcome.responses = locked(&record).results.values().flatten().filter(|result| result.is_ok()).count() as u64;
    // All connections close when they have been idle for long enough.
    drop(begin);
    for _ in 0..3_000 {
        // An attempt to connect, whose request was dropped, is charged and is no connection yet.
        if nodes.first().connections() == 0 && nodes.first().account() <= before {
            break;
        }
        nodes.step(&mut random, Chaos::default())?;
        nodes.advance();
    }
    let (connections, account) = (nodes.first().connections(), nodes.first().account());
    if connections > 0 || account > before {
        return Err(format!("{connections} connections and {account} bytes are left (before: {before})"));
    }
    Ok(outcome)
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
