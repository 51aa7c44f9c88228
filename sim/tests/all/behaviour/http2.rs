//! The behaviour suite of HTTP/2: its own corpus, and the HTTP/1 cases that can be translated. The cases are played on
//! both engines that have HTTP/2 and on the simulator, in cleartext and under TLS.

use crate::play::http2::Client;
use crate::play::{Layer, Real, Stage, Talk, Tally};
use highwire::server::Engine;
use sim::corpus_http2::{Case, Step};
use sim::tls::{Http, Version};
use sim::translate::{Reason, translate};
use sim::{app, corpus, corpus_http2};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance").join(name)
}

fn own_cases() -> Vec<Case> {
    corpus_http2::read(&folder("http2"))
}

/// The HTTP/1 cases that exceed a limit in HTTP/1 only, because HTTP/2 does not count `Host` as a field.
const OTHER_MEASURE: &[&str] = &["limit-fields-101"];

fn translated(case: &corpus::Case) -> Result<Case, Reason> {
    if OTHER_MEASURE.contains(&&*case.name) {
        return Err(Reason::Measure);
    }
    let (requests, expect) = translate(case)?;
    let steps = requests.into_iter().map(Step::Ask).collect();
    Ok(Case { name: case.name.clone(), steps, expect, ..Case::default() })
}

fn translated_cases() -> Vec<Case> {
    corpus::read(&folder("http1")).iter().filter_map(|case| translated(case).ok()).collect()
}

/// Returns a client that plays the case.
fn client(case: &Case) -> Box<dyn Talk + '_> {
    Box::new(Client::new(case))
}

/// Plays cases on the simulator, with the splits that `cuts` returns for a case's number and length.
fn on_the_simulator(name: &str, cases: &[Case], cuts: impl Fn(usize, usize) -> Vec<(Layer, Vec<usize>)>) {
    let mut tally = Tally::new(name);
    for (number, case) in cases.iter().enumerate() {
        let cuts = cuts(number, client(case).begin().len());
        let ways = cuts.into_iter().map(|(layer, cut)| (Http::Two, layer, cut));
        tally.on_stage(Stage::new(app::app()), &case.name, ways, |_| client(case));
    }
    tally.report();
}

/// Returns the layers and splits of a case: none, splits after all bytes up to a bound, and single splits at intervals
/// of `every` bytes. Under TLS there are fewer single splits.
fn cuts(number: usize, bytes: usize, every: usize) -> Vec<(Layer, Vec<usize>)> {
    let (this, other) = match number % 2 {
        0 => (Layer::Tls(Version::Tls13), Layer::Tls(Version::Tls12)),
        _ => (Layer::Tls(Version::Tls12), Layer::Tls(Version::Tls13)),
    };
    // The client's part of a resumed handshake has about 700 bytes.
    let sealed = bytes + 700;
    let mut cuts = vec![(Layer::Plain, vec![]), (Layer::Plain, (1..bytes.min(4000)).collect())];
    cuts.extend((1 + number % every..bytes).step_by(every).map(|at| (Layer::Plain, vec![at])));
    cuts.extend([(this, vec![]), (other, vec![]), (this, (1..sealed.min(4000)).collect())]);
    cuts.extend((0..2).map(|part| (other, vec![1 + (number * 7 + part * sealed / 2) % sealed])));
    cuts
}

#[test]
fn every_case_on_the_simulator() {
    on_the_simulator("sim", &own_cases(), |number, bytes| cuts(number, bytes, if bytes < 2000 { 7 } else { 997 }));
}

#[test]
fn every_translated_case_on_the_simulator() {
    on_the_simulator("sim", &translated_cases(), |number, bytes| cuts(number, bytes, bytes / 4 + 1));
}

fn on_engine(engine: Engine, name: &str) {
    let Some(real) = Real::start(engine, app::app()) else { return };
    let mut tally = Tally::new(name);
    for (number, case) in own_cases().iter().chain(&translated_cases()).enumerate() {
        let half = client(case).begin().len() / 2 + number % 9;
        let version = if number % 2 == 0 { Version::Tls13 } else { Version::Tls12 };
        let ways = [(Layer::Plain, usize::MAX), (Layer::Plain, half), (Layer::Tls(version), usize::MAX)];
        let ways = ways.map(|(layer, piece)| (Http::Two, layer, piece));
        tally.through(&real, &case.name, ways, |_| client(case));
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

/// Counts the translated cases, and the others by reason, so that no case is left out unnoticed. A new case changes a
/// number.
#[test]
fn what_is_translated_and_what_is_not() {
    let mut reasons: BTreeMap<Option<Reason>, usize> = BTreeMap::new();
    for case in corpus::read(&folder("http1")) {
        *reasons.entry(translated(&case).err()).or_default() += 1;
    }
    let expected = BTreeMap::from([
        (None, 570),
        (Some(Reason::Lines), 69),
        (Some(Reason::Version), 25),
        (Some(Reason::TransferEncoding), 136),
        (Some(Reason::Upgrade), 23),
        (Some(Reason::Connect), 11),
        (Some(Reason::Old), 3),
        (Some(Reason::HostBesideTarget), 1),
        (Some(Reason::Measure), 1),
    ]);
    assert_eq!(reasons, expected);
    assert!(own_cases().len() >= 150, "{}", own_cases().len());
}
