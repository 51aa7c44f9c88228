//! HTTP/2 connections during shutdown, in virtual time: their GOAWAY frames and their ends.

use crate::peer::{Play, SECOND, in_all_weathers};
use highwire::{App, Body, StatusCode};
use highwire_io::sim::Arrived;
use highwire_proto::h2::{Bounds, Code};

/// The last stream id of the first GOAWAY, which only announces a second one (RFC 9113 section 6.8).
const EVERY_STREAM: u32 = 0x7fff_ffff;

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/letters", || vec![b'x'; 1_000_000])
        .get("/later", async || {
            highwire::time::sleep(5 * SECOND).await;
            "later"
        })
        .post("/early", || "early")
        .get("/never", async || std::future::pending::<&str>().await)
        .post("/parts", async |body: Body| {
            body.collect(1 << 30).await.map(|bytes| bytes.len().to_string()).map_err(|_| StatusCode::BAD_REQUEST)
        })
}

#[test]
fn who_is_idle_is_told_twice_and_let_go() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        assert_eq!(play.get("/hello").status, 200);
        play.worker.shutdown();
        let seconds = play.seconds_to_the_stop();
        assert!(seconds <= 3, "{seconds} seconds");
        assert_eq!(play.peers[0].goaways(), [(EVERY_STREAM, 0), (1, 0)]);
        assert_eq!((play.peers[0].ended.clone(), play.worker.stats().cut), (Some(Arrived::End), 0));
        play.end();
    });
}

#[test]
fn streams_under_way_are_finished() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let later = play.peers[0].get("/later");
        let body = play.peers[0].ask("POST", "/parts", &[], false);
        play.settle();
        play.worker.shutdown();
        play.settle();
        assert_eq!(play.peers[0].goaways(), [(EVERY_STREAM, 0)]);
        play.peers[0].push(body, vec![b'x'; 100_000], false);
        play.pass(2);
        assert_eq!(play.peers[0].goaways(), [(EVERY_STREAM, 0), (body.number, 0)], "the second names the last stream");
        play.peers[0].push(body, vec![b'x'; 100_000], true);
        let seconds = play.seconds_to_the_stop();
        assert!(seconds <= 6, "{seconds} seconds after the first two");
        assert_eq!(play.peers[0].answer(later).whole(), (200, "later".to_string()));
        assert_eq!(play.peers[0].answer(body).whole(), (200, "200000".to_string()));
        assert_eq!((play.peers[0].ended.clone(), play.worker.stats().cut), (Some(Arrived::End), 0));
        play.end();
    });
}

#[test]
fn requests_whose_answers_are_complete_are_not_waited_for() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let before = play.peers[0].ask("POST", "/early", &[], false);
        play.settle();
        assert_eq!(play.peers[0].answer(before).whole(), (200, "early".to_string()));
        play.worker.shutdown();
        let during = play.peers[0].ask("POST", "/early", &[], false);
        let seconds = play.seconds_to_the_stop();
        assert!(seconds <= 3, "{seconds} seconds, although only bodies that nobody reads are open");
        // The answer, and behind its end a reset, so that the client does not send the rest (RFC 9113 section 8.1).
        for stream in [before, during] {
            let answer = play.peers[0].answer(stream);
            assert_eq!((answer.text(), answer.ended, answer.reset), ("early".to_string(), true, Some(Code::NoError)));
        }
        assert_eq!((play.peers[0].ended.clone(), play.worker.stats().cut), (Some(Arrived::End), 0));
        play.end();
    });
}

#[test]
fn the_last_stream_is_told_while_a_download_trickles() {
    in_all_weathers(|weather| {
        let mut play = Play::new(app(), weather);
        play.connect(Bounds { stream_window: 1 << 22, connection_window: 1 << 22, ..Bounds::default() });
        play.settle();
        play.peers[0].takes = 0;
        let download = play.peers[0].get("/letters");
        play.settle();
        play.worker.shutdown();
        for _ in 0..20 {
            play.peers[0].takes = 10_000;
            play.pass(1);
        }
        assert_eq!(play.peers[0].goaways(), [(EVERY_STREAM, 0), (download.number, 0)]);
        assert!(!play.peers[0].is_over(download));
        play.peers[0].takes = usize::MAX;
        play.seconds_to_the_stop();
        assert_eq!(play.peers[0].answer(download).whole().1.len(), 1_000_000);
        assert_eq!((play.peers[0].ended.clone(), play.worker.stats().cut), (Some(Arrived::End), 0));
        play.end();
    });
}

#[test]
fn a_stream_that_was_on_its_way_is_served() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        assert_eq!(play.get("/hello").status, 200);
        play.worker.shutdown();
        play.worker.turn(Some(play.network.now())).expect("a turn");
        // The client has not received the GOAWAY yet.
        let stream = play.peers[0].get("/later");
        let seconds = play.seconds_to_the_stop();
        assert!((5..=8).contains(&seconds), "{seconds} seconds");
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "later".to_string()));
        assert_eq!(play.peers[0].goaways(), [(EVERY_STREAM, 0), (stream.number, 0)]);
        play.end();
    });
}

#[test]
fn one_that_becomes_http2_meanwhile_is_let_go_too() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), &weather.shared());
        let start = std::mem::take(&mut play.peers[0].out);
        play.settle();
        assert_eq!(play.worker.connections(), 1);
        play.worker.shutdown();
        play.worker.turn(Some(play.network.now())).expect("a turn");
        play.peers[0].out = start;
        let stream = play.peers[0].get("/hello");
        let seconds = play.seconds_to_the_stop();
        assert!(seconds <= 3, "{seconds} seconds");
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "hello".to_string()));
        play.end();
    });
}

#[test]
fn what_never_ends_is_cut_when_the_time_is_up() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.peers[0].get("/never");
        play.settle();
        play.worker.shutdown();
        assert_eq!(play.seconds_to_the_stop(), 30);
        assert_eq!((play.peers[0].ended.clone(), play.worker.stats().cut), (Some(Arrived::Reset), 1));
        play.end();
    });
}

#[test]
fn an_immediate_stop_waits_for_nothing() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.connect(Bounds::default());
        play.peers[0].get("/later");
        play.settle();
        play.worker.abort();
        assert_eq!(play.seconds_to_the_stop(), 0);
        assert_eq!(play.worker.stats().cut, 1, "only the busy connection was cut");
        play.end();
    });
}

#[test]
fn a_connection_that_has_served_its_requests_is_let_go() {
    in_all_weathers(|weather| {
        let app = app().configure(|config| config.limits.requests_a_connection = 3);
        let mut play = Play::with_peer(app, weather);
        let streams = ["/hello", "/later", "/hello"].map(|path| play.peers[0].get(path));
        let seconds = play.seconds_until(|play| play.peers[0].ended.is_some());
        assert!((5..=8).contains(&seconds), "{seconds} seconds");
        for stream in streams {
            assert_eq!(play.peers[0].answer(stream).status, 200);
        }
        assert_eq!(play.peers[0].goaways().last(), Some(&(5, 0)));
        play.end();
    });
}
