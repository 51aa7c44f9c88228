//! The behaviour suite of the framework: extractors, forms, cookies, credentials, files, compression, middleware. Plays
//! every case on every engine and on the simulator, over HTTP/1 and HTTP/2, in cleartext and under TLS; on the engine
//! `threads` only over HTTP/1 in cleartext.

use crate::play::http1::Client as Client1;
use crate::play::http2::Client as Client2;
use crate::play::{Layer, Real, Stage, Talk, Tally};
use highwire::server::Engine;
use sim::corpus::{self, Case};
use sim::corpus_http2::{self, Step};
use sim::tls::{Http, Version};
use sim::translate::translate;
use sim::web::{Site, app};
use std::path::Path;

fn cases() -> Vec<Case> {
    corpus::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/web"))
}

/// Translates a case to HTTP/2. All web cases can be translated, because they use only features of both versions.
fn translated(case: &Case) -> corpus_http2::Case {
    let (requests, expect) = translate(case).unwrap_or_else(|reason| panic!("{}: {reason:?}", case.name));
    let steps = requests.into_iter().map(Step::Ask).collect();
    corpus_http2::Case { name: case.name.clone(), steps, expect, ..corpus_http2::Case::default() }
}

fn version(number: usize) -> Version {
    if number.is_multiple_of(2) { Version::Tls13 } else { Version::Tls12 }
}

/// Returns a client that plays the case in a version of HTTP.
fn client<'c>(case: &'c Case, translated: &'c corpus_http2::Case, http: Http) -> Box<dyn Talk + 'c> {
    match http {
        Http::One => Box::new(Client1::new(case)),
        Http::Two => Box::new(Client2::new(translated)),
    }
}

/// Plays each case without splits, with splits after all bytes up to a bound, and with a single split at a place that
/// depends on the case. Under TLS there are no splits.
#[test]
fn every_case_on_the_simulator() {
    let site = Site::new("sim");
    let mut tally = Tally::new("sim");
    for (number, case) in cases().iter().enumerate() {
        let other = translated(case);
        let talk = |http| client(case, &other, http);
        let ways = [Http::One, Http::Two].into_iter().flat_map(|http| {
            let bytes = talk(http).begin().len();
            let plain = [vec![], (1..bytes.min(1000)).collect(), vec![1 + number * 7 % bytes]];
            let plain = plain.into_iter().map(move |cut| (http, Layer::Plain, cut));
            plain.chain([(http, Layer::Tls(version(number)), vec![])])
        });
        tally.on_stage(Stage::new(app(&site)).patient(), &case.name, ways, talk);
    }
    tally.report();
}

fn on_engine(engine: Engine, name: &str) {
    let site = Site::new(name);
    let Some(real) = Real::start(engine, app(&site)) else { return };
    let mut tally = Tally::new(name);
    for (number, case) in cases().iter().enumerate() {
        let other = translated(case);
        let talk = |http| client(case, &other, http);
        let half = talk(Http::One).begin().len() / 2 + 1;
        let tls = Layer::Tls(version(number));
        let mut ways = vec![(Http::One, Layer::Plain, usize::MAX), (Http::One, Layer::Plain, half)];
        // The engine `threads` has neither TLS nor HTTP/2.
        if engine != Engine::Threads {
            ways.extend([(Http::One, tls, usize::MAX), (Http::Two, Layer::Plain, half), (Http::Two, tls, usize::MAX)]);
        }
        tally.through(&real, &case.name, ways, talk);
    }
    real.stop();
    tally.report();
}

/// Needs a real kernel, because it tests the io_uring driver.
#[test]
fn every_case_on_uring() {
    on_engine(Engine::Uring, "uring");
}

/// Needs a real kernel, because it tests the readiness driver.
#[test]
fn every_case_on_readiness() {
    on_engine(Engine::Readiness, "readiness");
}

/// Needs a real kernel, because the engine uses blocking sockets.
#[test]
fn every_case_on_threads() {
    on_engine(Engine::Threads, "threads");
}

#[test]
fn there_are_cases_for_each_part() {
    let all = cases();
    for part in ["value", "form", "who", "file", "coded", "around", "event"] {
        let count = all.iter().filter(|case| case.name.starts_with(&format!("{part}-"))).count();
        assert!(count >= 5, "{part}: {count}");
    }
}
