//! Uploads over HTTP/2 from far away, in virtual time: how many round trips they take, and how far a peer may send ahead.

use crate::peer;
use crate::peer::{Play, Weather};
use bytes::Bytes;
use highwire::{App, Body, Upgrade};
use highwire_proto::h2::{Bounds, StreamRef};
use std::time::Duration;

/// A round trip to the other side of the world.
const ROUND_TRIP: Duration = Duration::from_millis(300);

fn app() -> App {
    App::new()
        .configure(|config| config.limits.body_bytes = 1 << 30)
        .post("/upload", peer::count)
        .post("/whole", |body: Bytes| body.len().to_string())
        .post("/unread", async |body: Body| {
            std::future::pending::<()>().await;
            drop(body);
        })
        .get("/echo", |upgrade: Upgrade| {
            upgrade.accept("echo", async |mut stream| {
                while let Ok(Some(bytes)) = stream.read().await {
                    if stream.write(bytes).await.is_err() {
                        return;
                    }
                }
            })
        })
        .post("/first", async |mut body: Body| {
            let _ = body.next().await;
            std::future::pending::<()>().await;
            drop(body);
        })
}

fn upload(play: &mut Play, peer: usize, path: &str, bytes: usize, is_announced: bool) -> StreamRef {
    let length = bytes.to_string();
    let fields: &[(&str, &str)] = if is_announced { &[("content-length", &length)] } else { &[] };
    let stream = play.peers[peer].ask("POST", path, fields, false);
    play.peers[peer].push(stream, vec![b'u'; bytes], true);
    stream
}

/// Returns the number of round trips until an upload is answered.
fn round_trips(play: &mut Play, stream: StreamRef, bytes: usize) -> usize {
    for count in 1..1000 {
        play.round_trip(ROUND_TRIP);
        let answer = play.peers[0].answer(stream);
        if answer.ended {
            assert_eq!(answer.whole(), (200, bytes.to_string()));
            return count;
        }
    }
    panic!("{} bytes are not sent", play.peers[0].unsent());
}

fn play() -> Play {
    let mut play = Play::new(app(), &Weather::fair());
    play.connect(Bounds::default());
    play
}

#[test]
fn an_announced_upload_takes_few_round_trips() {
    for path in ["/upload", "/whole"] {
        for (bytes, most) in [(10_000, 3), (2_000_000, 4), (8_000_000, 4), (64_000_000, 7)] {
            // The first request of a connection, whose client does not know our settings, and the next one.
            let mut play = play();
            for request in 1..=2 {
                let stream = upload(&mut play, 0, path, bytes, true);
                let count = round_trips(&mut play, stream, bytes);
                assert!(count <= most, "{path}: request {request} of {bytes} bytes took {count} round trips");
            }
            play.end();
        }
    }
}

#[test]
fn the_window_of_an_upload_of_unknown_length_grows_quickly() {
    for (path, bytes, most) in [("/upload", 2_000_000, 6), ("/upload", 8_000_000, 6), ("/whole", 2_000_000, 6)] {
        let mut play = play();
        let stream = upload(&mut play, 0, path, bytes, false);
        let count = round_trips(&mut play, stream, bytes);
        assert!(count <= most, "{path}: {bytes} bytes took {count} round trips");
        play.end();
    }
}

#[test]
fn uploads_side_by_side_take_few_round_trips_too() {
    let mut play = play();
    let streams: Vec<_> = (0..20).map(|_| upload(&mut play, 0, "/upload", 400_000, true)).collect();
    let counts: Vec<_> = streams.into_iter().map(|stream| round_trips(&mut play, stream, 400_000)).collect();
    let all: usize = counts.iter().sum();
    assert!(all <= 25, "{all} round trips");
    play.end();
}

#[test]
fn whoever_is_not_read_sends_no_further_ahead() {
    for is_announced in [true, false] {
        let mut play = play();
        upload(&mut play, 0, "/unread", 4_000_000, is_announced);
        (0..20).for_each(|_| play.round_trip(ROUND_TRIP));
        let sent = 4_000_000 - play.peers[0].unsent();
        assert!(sent <= 64 * 1024, "{sent} bytes were sent");
        play.end();
    }
}

#[test]
fn all_peers_together_may_send_a_bounded_number_of_bytes_ahead() {
    // A sixteenth of this is 16 MiB.
    let app = app().configure(|config| (config.workers, config.memory) = (1, Some(256 * 1024 * 1024)));
    let mut play = Play::new(app, &Weather::fair());
    play.connect(Bounds::default());
    for number in 0..100 {
        let peer = if number == 0 { 0 } else { play.connect(Bounds::default()) };
        upload(&mut play, peer, "/first", 4_000_000, true);
    }
    (0..20).for_each(|_| play.round_trip(ROUND_TRIP));
    let sent: usize = play.peers.iter().map(|peer| 4_000_000 - peer.unsent()).sum();
    // The reader has taken up to a window of each, and another one may wait.
    assert!(sent <= 100 * 2 * 64 * 1024 + 16 * 1024 * 1024, "{sent} bytes were sent");
    assert!(play.most <= sent + 100 * 64 * 1024, "{} bytes are charged", play.most);
    play.end();
}

#[test]
fn tunnels_whose_peers_take_nothing_send_little_ahead() {
    const TUNNELS: usize = 8;
    let mut play = play();
    let deaf = play.connect(Bounds { stream_window: 0, ..Bounds::default() });
    (0..2).for_each(|_| play.round_trip(ROUND_TRIP));
    let tunnels: Vec<_> = (0..TUNNELS).map(|_| play.peers[deaf].connect(Some("echo"), "/echo")).collect();
    play.round_trip(ROUND_TRIP);
    // As long as little is written, the readers keep up.
    for _ in 0..40 {
        tunnels.iter().for_each(|tunnel| play.peers[deaf].push(*tunnel, vec![b't'; 40_000], false));
        play.round_trip(ROUND_TRIP);
    }
    let sent = TUNNELS * 40 * 40_000 - play.peers[deaf].unsent();
    // The connection's window, what it may be wider, and what the tasks have taken to write it.
    let most = (256 + 1024 + TUNNELS * (64 + 40)) * 1024;
    assert!(sent <= most, "{sent} bytes were sent");
    assert!(sent > 1024 * 1024, "only {sent} bytes were sent");
    play.end();
}

#[test]
fn a_reader_that_stops_does_not_keep_the_window_of_others() {
    // The second body has not ended when it fills its window.
    for bytes in [4_000_000, 40_000_000] {
        let mut play = play();
        upload(&mut play, 0, "/first", bytes, true);
        (0..5).for_each(|_| play.round_trip(ROUND_TRIP));
        assert!(bytes - play.peers[0].unsent() > 3_000_000, "the windows were not widened");
        let stream = upload(&mut play, 0, "/upload", 1_000_000, true);
        let count = round_trips(&mut play, stream, 1_000_000);
        assert!(count <= 30, "{bytes} bytes that are not read: {count} round trips");
        play.end();
    }
}

#[test]
fn a_newcomer_gets_its_part_of_what_one_peer_uses() {
    // The first body is read all the time, or not at all after its first part.
    for path in ["/upload", "/first"] {
        let mut play = play();
        let second = play.connect(Bounds::default());
        upload(&mut play, 0, path, 300_000_000, true);
        (0..3).for_each(|_| play.round_trip(ROUND_TRIP));
        let mut rounds = Vec::new();
        for _ in 0..2 {
            let stream = upload(&mut play, second, "/upload", 8_000_000, true);
            rounds.push((1..100).find(|_| {
                play.round_trip(ROUND_TRIP);
                play.peers[second].answer(stream).ended
            }));
        }
        assert!(rounds.iter().all(|count| count.is_some_and(|count| count <= 8)), "{path}: {rounds:?}");
        play.end();
    }
}
