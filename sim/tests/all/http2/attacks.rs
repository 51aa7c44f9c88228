//! HTTP/2 peers that request much and read little: the server's memory for them is bounded, and it still serves others.

use crate::peer;
use crate::peer::{Play, SECOND, Weather, in_all_weathers};
use bytes::Bytes;
use highwire::{App, Body, HeaderMap, StatusCode};
use highwire_proto::h2::Bounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The error code ENHANCE_YOUR_CALM (RFC 9113 section 7).
const ENHANCE_YOUR_CALM: u32 = 11;

/// Counts handlers: those that run now, the largest number at the same time, and all so far.
#[derive(Clone, Default)]
struct Gauge {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    ever: Arc<AtomicUsize>,
}

impl Gauge {
    fn hold(&self) -> Held {
        self.most.fetch_max(self.now.fetch_add(1, Relaxed) + 1, Relaxed);
        self.ever.fetch_add(1, Relaxed);
        Held { gauge: self.clone() }
    }

    fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    fn most(&self) -> usize {
        self.most.load(Relaxed)
    }
}

/// Counts as a running handler in its gauge until it is dropped.
struct Held {
    gauge: Gauge,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.now.fetch_sub(1, Relaxed);
    }
}

/// The memory budget of the server, in bytes.
const BUDGET: usize = 4 << 20;

const LARGE: usize = 512 * 1024;

fn app(gauge: &Gauge) -> App {
    let handlers = gauge.clone();
    App::new()
        .get("/hello", || "hello")
        .get("/later", move || {
            let held = handlers.hold();
            async move {
                highwire::time::sleep(30 * SECOND).await;
                drop(held);
                "later"
            }
        })
        .get("/large", || vec![b'x'; LARGE])
        .get("/fields", |fields: HeaderMap| {
            fields.iter().flat_map(|(_, value)| value.as_bytes().to_vec()).collect::<Vec<u8>>()
        })
        .post("/asleep", async |body: Body| {
            highwire::time::sleep(20 * SECOND).await;
            body.collect(1 << 30).await.map(|bytes| bytes.len().to_string()).map_err(|_| StatusCode::BAD_REQUEST)
        })
        .post("/whole", |body: Bytes| body.len().to_string())
        .configure(|config| {
            config.memory = Some(BUDGET);
            config.http2.stream_window = 64 * 1024;
        })
}

/// Starts a server with the attacker (client 0, with this window for each stream) and a client that must not be
/// affected.
fn play(gauge: &Gauge, weather: &Weather, window: u32) -> Play {
    let mut play = Play::new(app(gauge), weather);
    play.connect(Bounds { stream_window: window, connection_window: 1 << 30, ..Bounds::default() });
    play.connect(Bounds::default());
    play.settle();
    play
}

/// Asserts that the other client gets an answer.
fn others_are_served(play: &mut Play) {
    if play.peers[1].http.peer_goes_away().is_some() {
        // The server is closing this client's idle connection.
        let again = play.connect(Bounds::default());
        play.peers.swap_remove(1);
        assert_eq!(again, play.peers.len());
    }
    let stream = play.peers[1].get("/hello");
    play.settle();
    assert_eq!(play.peers[1].answer(stream).whole(), (200, "hello".to_string()));
}

#[test]
fn rapid_resets_leave_no_handlers_behind_and_end() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, 65_535);
        for _ in 0..100 {
            if play.peers[0].ended.is_some() || play.peers[0].http.peer_goes_away().is_some() {
                break;
            }
            for _ in 0..50 {
                let stream = play.peers[0].get("/later");
                play.peers[0].reset(stream);
            }
            others_are_served(&mut play);
            assert_eq!(gauge.now(), 0, "the handler of a reset stream still runs");
        }
        assert_eq!(play.peers[0].goaways().last().map(|&(_, code)| code), Some(ENHANCE_YOUR_CALM));
        assert!(gauge.most() <= 128, "{} handlers at once", gauge.most());
        assert!(gauge.ever.load(Relaxed) <= 400, "{} handlers in all", gauge.ever.load(Relaxed));
        others_are_served(&mut play);
        play.end();
    });
}

#[test]
fn no_more_handlers_run_than_streams_may_be_open() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, 65_535);
        play.peers[0].parses = false;
        for at in 0..129 {
            play.peers[0].get_raw(2 * at + 1, "/later");
        }
        others_are_served(&mut play);
        assert_eq!((gauge.now(), play.peers[0].resets()), (128, vec![(257, 7)]));
        play.pass(31);
        let answers = play.peers[0].frames.iter().filter(|frame| frame.kind == peer::HEADERS).count();
        assert_eq!((gauge.now(), answers), (0, 128));
        play.end();
    });
}

#[test]
fn large_answers_behind_windows_of_a_byte_stay_in_the_budget() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, 1);
        play.peers[0].credits = false;
        let streams: Vec<_> = (0..100).map(|_| play.peers[0].get("/large")).collect();
        others_are_served(&mut play);
        assert!(play.most <= BUDGET, "the account reached {} bytes", play.most);
        let held = |play: &Play| {
            let answers = streams.iter().map(|&stream| play.peers[0].answer(stream));
            answers.filter(|answer| answer.status == 200 && answer.reset.is_none()).count() * LARGE
        };
        // One connection gets a share of the budget, not all of it.
        assert!((BUDGET / 4..=BUDGET / 2).contains(&held(&play)), "answers hold {} bytes", held(&play));
        assert!(held(&play) <= play.worker.account());
        // Windows that open byte by byte keep the answers in memory, but the server holds no further answers.
        for _ in 0..20 {
            for &stream in &streams {
                if !play.peers[0].is_over(stream) {
                    play.peers[0].credit(Some(stream), 1);
                }
            }
            play.pass(1);
        }
        assert!(play.most <= BUDGET, "the account reached {} bytes", play.most);
        // One connection gets a share of the budget, not all of it.
        assert!((BUDGET / 4..=BUDGET / 2).contains(&held(&play)), "answers hold {} bytes", held(&play));
        assert!(held(&play) <= play.worker.account());
        play.pass(100);
        assert_eq!(held(&play), 0, "a stream that takes nothing was not cut");
        others_are_served(&mut play);
        play.end();
    });
}

#[test]
fn an_answer_but_for_its_last_byte_is_still_all_there() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, LARGE as u32 - 1);
        play.peers[0].credits = false;
        let streams = [0; 30].map(|_| {
            let stream = play.peers[0].get("/large");
            play.settle();
            stream
        });
        let under_way = streams.iter().filter(|&&stream| !play.peers[0].is_over(stream)).count();
        assert!(under_way >= 3, "{under_way} answers in progress");
        assert!(play.worker.account() >= under_way * LARGE, "{} bytes for {under_way} answers", play.worker.account());
        others_are_served(&mut play);
        play.end();
    });
}

#[test]
fn short_requests_for_long_fields_behind_closed_windows_stay_in_the_budget() {
    // The network has no faults. On a slow network the server may cut other peers, too, because their unsent bytes do
    // not fit the budget.
    let weather = &Weather::fair();
    let gauge = Gauge::default();
    let mut play = play(&gauge, weather, 0);
    // After the first request each field is one byte on the wire, an index into the HPACK table.
    let value = "v".repeat(1500);
    let fields = [("x-a", value.as_str()); 8];
    for _ in 0..6 {
        play.connect(Bounds { stream_window: 0, ..Bounds::default() });
    }
    for at in [0, 2, 3, 4, 5, 6, 7] {
        for _ in 0..100 {
            play.peers[at].ask("GET", "/fields", &fields, true);
        }
    }
    others_are_served(&mut play);
    assert!(play.most <= BUDGET && play.most > 2 << 20, "the account reached {} bytes", play.most);
    others_are_served(&mut play);
    play.end();
}

#[test]
fn bodies_in_parts_of_a_byte_stay_in_the_budget() {
    let gauge = Gauge::default();
    let mut play = play(&gauge, &Weather::fair(), 65_535);
    let streams = [0; 8].map(|_| play.peers[0].ask("POST", "/asleep", &[], false));
    for _ in 0..2000 {
        for stream in streams {
            for _ in 0..10 {
                play.peers[0].out.extend_from_slice(&[0, 0, 1, 0, 0]);
                play.peers[0].out.extend_from_slice(&stream.number.to_be_bytes());
                play.peers[0].out.push(b'x');
            }
        }
    }
    play.settle();
    // The server joins the parts, so they cost little more than their bytes.
    assert!(play.most < 160_000 + (64 << 10), "the account reached {} bytes", play.most);
    others_are_served(&mut play);
    play.pass(40);
    others_are_served(&mut play);
    play.end();
}

#[test]
fn many_large_bodies_stay_in_the_budget_and_others_are_served() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, 65_535);
        for _ in 0..12 {
            // The bodies never end, and the server keeps them until they are too slow.
            let stream = play.peers[0].ask("POST", "/whole", &[], false);
            play.peers[0].push(stream, vec![b'x'; 900_000], false);
        }
        others_are_served(&mut play);
        assert!(play.most <= BUDGET && play.most > 1 << 20, "the account reached {} bytes", play.most);
        play.pass(100);
        others_are_served(&mut play);
        play.end();
    });
}

const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn pings_of_a_peer_that_reads_nothing_are_not_answered_without_end() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, 65_535);
        play.peers[0].reads = false;
        for _ in 0..300 {
            if play.peers[0].out.is_empty() {
                play.peers[0].out = PING.repeat(1000);
            }
            play.settle();
        }
        assert!(play.most < 128 * 1024, "the account reached {} bytes", play.most);
        others_are_served(&mut play);
        play.peers[0].reads = true;
        play.pass(5);
        assert!(play.peers[0].received < 8 * 1024, "{} bytes arrived", play.peers[0].received);
        assert_eq!(play.peers[0].goaways().last().map(|&(_, code)| code), Some(ENHANCE_YOUR_CALM));
        play.end();
    });
}

#[test]
fn requests_pay_for_pings_and_still_nothing_grows_where_nobody_reads() {
    in_all_weathers(|weather| {
        let gauge = Gauge::default();
        let mut play = play(&gauge, weather, 65_535);
        play.peers[0].reads = false;
        let mut next = 1;
        for _ in 0..300 {
            if play.peers[0].out.len() < 16 * 1024 {
                for _ in 0..100 {
                    play.peers[0].out.extend_from_slice(&PING.repeat(2));
                    play.peers[0].get_raw(next, "/hello");
                    next += 2;
                }
            }
            play.settle();
        }
        assert!(play.most < 384 * 1024, "the account reached {} bytes", play.most);
        others_are_served(&mut play);
        let seconds = play.seconds_until(|play| play.worker.connections() == 1);
        assert!(seconds <= 60, "{seconds} seconds until it is cut");
        others_are_served(&mut play);
        play.end();
    });
}
