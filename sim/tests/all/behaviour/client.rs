//! The behaviour suite with our own client: every case that it can send, on every engine and between two simulated
//! networks, over HTTP/1 and HTTP/2, in cleartext and under TLS.

use crate::play::Real;
use highwire::client::{Client, block_on};
use highwire::server::Engine;
use highwire::{App, State};
use sim::asks::{self, Ask, Reason};
use sim::corpus_http2::{Case, Step};
use sim::nodes::{Chaos, NEXT, NEXT_TLS, Nodes, Random};
use sim::translate::{Outcome, translate};
use sim::web::Site;
use sim::{app, corpus, corpus_http2, web};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A request with the name of its case.
type Named = (String, Ask);

/// The turns after which a simulated run has failed.
const MOST_TURNS: u64 = 400_000;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance").join(name)
}

/// Returns the cases of a folder in HTTP/2's form. Those that have no such form are left out.
fn cases(name: &str) -> Vec<Case> {
    if name == "http2" {
        return corpus_http2::read(&folder(name));
    }
    let translated = |case: &corpus::Case| {
        let (requests, expect) = translate(case).ok()?;
        let steps = requests.into_iter().map(Step::Ask).collect();
        Some(Case { name: case.name.clone(), steps, expect, ..Case::default() })
    };
    corpus::read(&folder(name)).iter().filter_map(translated).collect()
}

/// Returns the requests of the cases of a folder, and the number of requests that the client cannot make, by reason.
fn asks(name: &str) -> (Vec<Named>, BTreeMap<Reason, usize>) {
    let (mut named, mut reasons) = (Vec::new(), BTreeMap::new());
    for case in cases(name) {
        // Other bytes between the requests are frames, which the client writes itself.
        let requests = case.steps.iter().filter_map(|step| match step {
            Step::Ask(request) => Some(request),
            Step::Bytes(_) => None,
        });
        let has_frames = case.steps.iter().any(|step| matches!(step, Step::Bytes(_))) || case.fails.is_some();
        for (request, outcome) in requests.zip(&case.expect) {
            // The server gives the request up because this client has ended its direction, which ours does not.
            let has_left = case.eof && matches!(outcome, Outcome::Reset(_));
            let has_frames = has_frames || has_left;
            match asks::ask(request, outcome).and_then(|ask| if has_frames { Err(Reason::Framing) } else { Ok(ask) }) {
                Ok(ask) => named.push((case.name.clone(), ask)),
                Err(reason) => *reasons.entry(reason).or_default() += 1,
            }
        }
    }
    (named, reasons)
}

fn client(is_http2: bool) -> Client {
    let builder = asks::settings();
    let builder = if is_http2 { builder.http2_prior_knowledge() } else { builder.http1_only() };
    builder.build().expect("a client")
}

/// Sends all requests in turn, and returns the failures.
async fn play(asks: &[Named], client: &Client, origin: &str, is_http2: bool) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, ask) in asks.iter().filter(|(_, ask)| ask.is_for(is_http2)) {
        // HTTP/2 does not count `Host` as a field.
        if name == if is_http2 { "limit-fields-101" } else { "h2-limit-fields-100" } {
            continue;
        }
        if let Err(error) = ask.play(client, origin, is_http2).await {
            failures.push(format!("{name} at {origin}, HTTP/2: {is_http2}: {error}"));
        }
    }
    failures
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} requests failed:\n{}", failures.len(), failures.join("\n\n"));
}

fn on_engine(engine: Engine, app: App, names: &[&str]) {
    let Some(real) = Real::start(engine, app) else { return };
    let mut failures = Vec::new();
    for name in names {
        let (asks, _) = asks(name);
        for (listener, address) in real.addresses().into_iter().enumerate() {
            let origin = format!("{}://{address}", ["http", "https"][listener]);
            for is_http2 in [false, true] {
                let client = client(is_http2);
                failures.extend(block_on(play(&asks, &client, &origin, is_http2)).expect("a worker"));
            }
        }
    }
    real.stop();
    report(&failures);
}

const CORE: &[&str] = &["http1", "http2"];

/// Needs a real kernel, because it tests the io_uring driver.
#[test]
fn every_case_on_uring() {
    on_engine(Engine::Uring, app::app(), CORE);
}

/// Needs a real kernel, because it tests the readiness driver.
#[test]
fn every_case_on_readiness() {
    on_engine(Engine::Readiness, app::app(), CORE);
}

/// Needs a real kernel, because the engine uses blocking sockets. The engine has no TLS.
#[test]
fn every_case_on_threads() {
    on_engine(Engine::Threads, app::app(), CORE);
}

/// Needs a real kernel, because the handlers use the blocking pool.
#[test]
fn every_case_of_the_framework() {
    on_engine(Engine::Auto, web::app(&Site::new("client")), &["web"]);
}

/// The failures of a simulated run, once it has ended.
type Ended = Arc<Mutex<Option<Vec<String>>>>;

/// The client and the server have a simulated network each, and the bytes between them arrive in pieces and late.
#[test]
fn every_case_on_the_simulator() {
    for (is_http2, is_tls) in [(false, false), (true, false), (false, true), (true, true)] {
        let ended = Ended::default();
        // The client is made on its worker.
        let begin = App::new().state(ended.clone()).get("/begin", move |State(ended): State<Ended>| {
            highwire::spawn(async move {
                let origin = if is_tls { format!("https://{NEXT_TLS}") } else { format!("http://{NEXT}") };
                let named: Vec<Named> = CORE.iter().flat_map(|name| asks(name).0).collect();
                let failures = play(&named, &client(is_http2), &origin, is_http2).await;
                *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(failures);
            });
            "begun"
        });
        let mut nodes = Nodes::new(vec![begin, app::app()], 14, true).expect("two workers");
        let connection = nodes.connect();
        connection.send(b"GET /begin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (mut random, mut quiet) = (Random(14), 0);
        let failures = loop {
            if let Some(failures) = ended.lock().unwrap_or_else(PoisonError::into_inner).take() {
                break failures;
            }
            assert!(nodes.turns < MOST_TURNS, "the requests have not ended");
            let any = nodes.step(&mut random, Chaos { stall: 3, cut: 0 }).expect("a turn");
            quiet = if any { 0 } else { quiet + 1 };
            if quiet > 3 {
                nodes.advance();
            }
        };
        report(&failures);
    }
}

/// Counts the requests that the client cannot make, by reason, so that no case is left out unnoticed.
#[test]
fn what_the_client_sends_and_what_not() {
    let count = |name| {
        let (asks, reasons) = asks(name);
        (asks.len(), reasons.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(
        count("http1"),
        (
            557,
            vec![
                (Reason::Pseudo, 22),
                (Reason::Target, 36),
                (Reason::Framing, 65),
                (Reason::Space, 2),
                (Reason::Host, 19)
            ]
        )
    );
    assert_eq!(
        count("http2"),
        (
            180,
            vec![
                (Reason::Pseudo, 70),
                (Reason::Target, 26),
                (Reason::Framing, 69),
                (Reason::Name, 5),
                (Reason::Space, 9),
                (Reason::Host, 12),
                (Reason::Tunnel, 1),
                (Reason::NoAnswer, 4)
            ]
        )
    );
    assert_eq!(count("web"), (285, vec![]));
}
