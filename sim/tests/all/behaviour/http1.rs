//! The behaviour suite of HTTP/1: every case of the corpus on every engine and on the simulator, in cleartext and,
//! except on the engine `threads`, under TLS, with the client's bytes split in many places.
//!
//! The engines need a real kernel, and only the simulator plays a split at each place of a case. Under TLS fewer splits
//! are played, because a record cannot be decrypted before its last byte, and a handshake costs more than a case.

use crate::play::http1::Client;
use crate::play::{Layer, Real, Stage, Talk, Tally};
use highwire::server::Engine;
use highwire_io::Driver;
use highwire_io::sim::{Faults, Network, Simulated};
use sim::corpus::Case;
use sim::tls::{Http, Version};
use sim::{app, corpus};
use std::path::Path;

fn cases() -> Vec<Case> {
    corpus::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/http1"))
}

/// Returns the splits of a case for the simulator: none, splits after all bytes, and a single split after each byte. In
/// cases of more than 2,048 bytes a single split is made after every 97th byte only; 97 is a prime, so the places vary
/// within repeated parts.
fn cuts(send: &[u8]) -> Vec<Vec<usize>> {
    let every = if send.len() <= 2048 { 1 } else { 97 };
    let mut cuts = vec![vec![], (1..send.len()).collect()];
    cuts.extend((1..send.len()).step_by(every).map(|at| vec![at]));
    cuts
}

/// Returns a client that plays the case.
fn client(case: &Case) -> Box<dyn Talk + '_> {
    Box::new(Client::new(case))
}

/// Plays every case on the simulator, with the splits that `cuts` returns.
fn on_the_simulator(name: &str, cuts: impl Fn(usize, &Case) -> Vec<(Layer, Vec<usize>)>) {
    let mut tally = Tally::new(name);
    for (number, case) in cases().iter().enumerate() {
        let ways = cuts(number, case).into_iter().map(|(layer, cut)| (Http::One, layer, cut));
        tally.on_stage(Stage::new(app::app()), &case.name, ways, |_| client(case));
    }
    tally.report();
}

#[test]
fn every_case_on_the_simulator_in_every_cut() {
    on_the_simulator("sim", |_, case| cuts(&case.send).into_iter().map(|cut| (Layer::Plain, cut)).collect());
}

/// Plays each case without splits, with splits after all bytes up to a bound, and with single splits at places that
/// depend on the case, within the handshake and the records after it.
#[test]
fn every_case_under_tls_on_the_simulator() {
    on_the_simulator("sim under TLS", |number, case| {
        let (this, other) =
            if number % 2 == 0 { (Version::Tls13, Version::Tls12) } else { (Version::Tls12, Version::Tls13) };
        // About the number of bytes that the client sends: a resumed handshake and the case in records.
        let bytes = 700 + case.send.len();
        let mut plays = vec![(this, vec![]), (other, vec![]), (this, (1..bytes.min(4000)).collect())];
        plays.extend((0..4).map(|part| (other, vec![1 + (number * 7 + part * bytes / 4) % bytes])));
        plays.into_iter().map(|(version, cut)| (Layer::Tls(version), cut)).collect()
    });
}

fn on_engine(engine: Engine, name: &str, layers: &[Layer]) {
    let Some(real) = Real::start(engine, app::app()) else { return };
    let mut tally = Tally::new(name);
    for case in cases() {
        let half = case.send.len() / 2 + 1;
        let ways = layers.iter().flat_map(|&layer| {
            let pieces = match layer {
                Layer::Tls(_) => vec![usize::MAX],
                Layer::Plain if case.send.len() < 2000 => vec![usize::MAX, 1, half],
                Layer::Plain => vec![usize::MAX, half],
            };
            pieces.into_iter().map(move |piece| (Http::One, layer, piece))
        });
        tally.through(&real, &case.name, ways, |_| client(&case));
    }
    real.stop();
    tally.report();
}

/// Needs a real kernel, because it tests the io_uring driver.
#[test]
fn every_case_on_uring() {
    on_engine(Engine::Uring, "uring", &[Layer::Plain, Layer::Tls(Version::Tls13)]);
}

/// Needs a real kernel, because it tests the readiness driver.
#[test]
fn every_case_on_readiness() {
    on_engine(Engine::Readiness, "readiness", &[Layer::Plain, Layer::Tls(Version::Tls12)]);
}

/// Needs a real kernel, because the engine uses blocking sockets. The engine has no TLS.
#[test]
fn every_case_on_threads() {
    on_engine(Engine::Threads, "threads", &[Layer::Plain]);
}

#[test]
fn drivers_have_names() {
    let network = Network::new(1, Faults::default());
    assert_eq!(Simulated::new(network).expect("a notifier").name(), "sim");
}
