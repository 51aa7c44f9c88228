//! HTTP/2: each of our roles against the other role of the crate `h2`, over pipes in memory, from seeds. Each side must
//! see the messages that the plans let the other side send.

use crate::oracle::ours::Ours;
use crate::oracle::theirs::{Settings, TheirClient, TheirServer};
use crate::oracle::{Pipe, Plan, Random, Reset};
use highwire_proto::Role;
use highwire_proto::h2::{Bounds, Code};
use std::collections::BTreeMap;

/// The number of idle turns in a row after which a test fails. No side has a reason to wait so long, because a later
/// change of settings is made after fewer turns.
const MOST_IDLE_TURNS: usize = 1_000;

/// The choices of a seed.
struct Choice {
    plans: Vec<Plan>,
    bounds: Bounds,
    settings: Settings,
    pipe: Pipe,
}

impl Choice {
    fn from_seed(seed: u64) -> Choice {
        let mut random = Random(seed);
        let stream_window = random.of(&[1, 50, 1_000, 20_000, 65_536, 1 << 20]);
        let settings = Settings::random(&mut random);
        // Large bodies and a window of a few bytes would count as an attack.
        let narrow = stream_window.min(settings.window) < 1_000;
        let (most_body, most_count) = if narrow { (300, 3) } else { (100_000, 40) };
        let count = random.of(&[1, 3, 12, 40]).min(most_count);
        let bounds = Bounds {
            stream_window,
            streams: random.of(&[2, 100]),
            connection_window: random.of(&[65_535, 256 * 1024]),
            table_bytes: random.of(&[0, 100, 4096]),
            ..Bounds::default()
        };
        let plans = (0..count).map(|at| Plan::random(&mut random, at, most_body)).collect();
        let piece = if narrow { random.of(&[1, 9, 100, 20_000]) } else { 20_000 };
        Choice { plans, bounds, settings, pipe: Pipe::new(seed, piece) }
    }
}

fn check(seed: u64, plans: &[Plan], server: &BTreeMap<usize, Vec<String>>, client: &BTreeMap<usize, Vec<String>>) {
    for plan in plans {
        assert_eq!(
            server.get(&plan.at),
            Some(&plan.asked()),
            "seed {seed}: the events that the server saw of {plan:?}"
        );
        let (mut expected, saw) = (plan.answered(), client.get(&plan.at).cloned().unwrap_or_default());
        // A reset drops the events that are not sent yet, so the client may miss some.
        if plan.reset == Reset::Server {
            expected.drain(saw.len().saturating_sub(1)..expected.len() - 1);
        }
        assert_eq!(saw, expected, "seed {seed}: the events that the client saw of {plan:?}");
    }
}

#[test]
fn our_server_and_their_client_see_the_same() {
    for seed in 0..64 {
        let Choice { plans, bounds, settings, pipe } = Choice::from_seed(seed);
        let mut ours = Ours::new(Role::Server, bounds, &plans, &pipe);
        let mut theirs = TheirClient::new(&plans, settings, &pipe);
        let mut idle = 0;
        while !(theirs.is_done() && ours.is_done() && pipe.is_empty()) {
            let busy = ours.turn();
            theirs.turn();
            idle = if busy { 0 } else { idle + 1 };
            assert!(idle < MOST_IDLE_TURNS, "seed {seed} does not end: {}", ours.told());
            assert_eq!(ours.failure, None, "seed {seed}");
        }
        check(seed, &plans, &ours.seen, &theirs.seen.borrow());
    }
}

#[test]
fn our_client_and_their_server_see_the_same() {
    for seed in 0..64 {
        let Choice { plans, bounds, settings, pipe } = Choice::from_seed(seed);
        let mut ours = Ours::new(Role::Client, bounds, &plans, &pipe);
        let mut theirs = TheirServer::new(&plans, settings, &pipe);
        let mut idle = 0;
        while !(ours.waiting.is_empty() && theirs.is_done() && ours.is_done() && pipe.is_empty()) {
            let busy = ours.turn();
            theirs.turn();
            idle = if busy { 0 } else { idle + 1 };
            assert!(idle < MOST_IDLE_TURNS, "seed {seed} does not end: {}", ours.told());
            assert_eq!(ours.failure, None, "seed {seed}");
        }
        check(seed, &plans, &theirs.seen.borrow(), &ours.seen);
    }
}

/// Returns plans of requests without bodies and responses with bodies.
fn plain(count: usize) -> Vec<Plan> {
    let plan = |at| Plan {
        at,
        method: "GET",
        protocol: None,
        fields: Vec::new(),
        body: 0,
        trailers: false,
        interims: 0,
        status: 200,
        answer_fields: Vec::new(),
        answer: 1_000,
        answer_trailers: false,
        announced: true,
        reset: Reset::Nobody,
    };
    (0..count).map(plan).collect()
}

#[test]
fn their_client_hears_that_our_server_goes_away() {
    let (plans, pipe) = (plain(3), Pipe::new(1, 100_000));
    let mut ours = Ours::new(Role::Server, Bounds::default(), &plans, &pipe);
    let mut theirs = TheirClient::new(&plans[..2], Settings::default(), &pipe);
    while ours.seen.len() < 2 {
        theirs.turn();
        ours.turn();
    }
    // The third request is on its way when GOAWAY names the last stream.
    theirs.ask(&plans[2]);
    theirs.turn();
    ours.go_away();
    ours.go_away();
    for _ in 0..100 {
        ours.turn();
        theirs.turn();
    }
    assert!(theirs.is_done() && ours.is_done());
    check(1, &plans[..2], &ours.seen, &theirs.seen.borrow());
    assert_eq!((ours.seen.get(&2), ours.failure), (None, None));
    assert_eq!(theirs.seen.borrow()[&2], ["failed: went away NO_ERROR"]);
}

#[test]
fn our_client_hears_that_their_server_goes_away() {
    let (plans, pipe) = (plain(4), Pipe::new(1, 100_000));
    let mut ours = Ours::new(Role::Client, Bounds::default(), &plans, &pipe);
    let kept = ours.waiting.drain(..2).collect::<Vec<Plan>>();
    let mut theirs = TheirServer::new(&plans, Settings::default(), &pipe);
    while theirs.seen.borrow().len() < 2 {
        ours.turn();
        theirs.turn();
    }
    theirs.connection().graceful_shutdown();
    for _ in 0..100 {
        theirs.turn();
        ours.turn();
    }
    assert!(ours.is_done() && ours.going_away == 2, "two GOAWAY frames arrive");
    check(1, &plans[..2], &theirs.seen.borrow(), &ours.seen);
    ours.waiting = kept;
    ours.turn();
    assert_eq!(ours.waiting.len(), 2, "no more are sent");
    let away = ours.connection.peer_goes_away().expect("the server has sent GOAWAY");
    assert_eq!((away.last, away.code, ours.failure), (3, Code::NoError, None));
}

#[test]
fn our_client_knows_what_their_server_did_nothing_for() {
    let (plans, pipe) = (plain(4), Pipe::new(1, 100_000));
    let mut ours = Ours::new(Role::Client, Bounds::default(), &plans, &pipe);
    let late = ours.waiting.drain(..2).collect::<Vec<Plan>>();
    let mut theirs = TheirServer::new(&plans, Settings::default(), &pipe);
    while theirs.seen.borrow().len() < 2 {
        ours.turn();
        theirs.turn();
    }
    // The server ends at once, with two requests on their way.
    theirs.connection().abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
    ours.waiting = late;
    for _ in 0..100 {
        ours.turn();
        theirs.turn();
    }
    let away = ours.connection.peer_goes_away().expect("the server has sent GOAWAY");
    assert_eq!((away.last, away.code), (3, Code::EnhanceYourCalm));
    for plan in &plans[2..] {
        assert_eq!(ours.seen.get(&plan.at), Some(&vec!["reset 7".to_owned()]), "{plan:?}");
    }
}
