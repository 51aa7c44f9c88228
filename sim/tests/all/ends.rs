//! How connections end, in virtual time: when the server stops, after an upgraded protocol, and when memory runs out.

use crate::peer;
use crate::peer::plain::Play;
use crate::peer::{SECOND, Weather};
use bytes::Bytes;
use highwire::{App, RawStream, Response, State, Upgrade, blocking, spawn_blocking};
use highwire_io::sim::Arrived;
use highwire_proto::h2::Bounds;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The size of a large answer in bytes. It is more than a link holds, more than the server copies after a head, and
/// nearly a multiple of the number of bytes that the server passes to the driver at once.
const LARGE: usize = 260_000;

async fn echo(mut stream: RawStream) {
    while let Ok(Some(bytes)) = stream.read().await {
        if stream.write(bytes).await.is_err() {
            return;
        }
    }
    let _ = stream.write("end").await;
}

fn app() -> App {
    // These tests are about clients that have only ended their direction.
    App::new()
        .configure(|config| config.timeouts.disconnect = Duration::ZERO)
        .get("/large", || Response::bytes("text/plain", vec![b'x'; LARGE]))
        .get("/late", async |upgrade: Upgrade| {
            highwire::time::sleep(2 * SECOND).await;
            upgrade.accept("echo", echo)
        })
        .get("/chat", |upgrade: Upgrade| {
            upgrade.accept("chat", async |mut stream: RawStream| {
                let _ = stream.write(vec![b'x'; LARGE]).await;
                echo(stream).await;
            })
        })
        .get("/flood", |upgrade: Upgrade| {
            upgrade.accept("flood", async |mut stream: RawStream| {
                let _ = stream.write(vec![b'x'; LARGE]).await;
            })
        })
}

fn upgrade(path: &str, protocol: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n").into_bytes()
}

#[test]
fn a_stop_does_not_wait_for_more_requests_behind_an_answer_that_is_taken_slowly() {
    let mut play = Play::new(app());
    play.client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    play.settle(false);
    play.worker.shutdown();
    play.settle(false);
    assert_eq!(play.worker.connections(), 1, "the answer is on its way");
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert!(seconds <= 3, "{seconds} seconds");
    assert!(play.received.len() > LARGE && play.ended == Some(Arrived::End), "{:?}", play.ended);
    assert_eq!(play.worker.stats().cut, 0);
}

#[test]
fn a_connection_drops_4_mib_behind_its_last_answer_and_then_receives_nothing() {
    let mut play = Play::new(app());
    play.send(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    assert_eq!(play.status(), "400");
    let part = [0; 4096];
    let (mut dropped, most) = (0, 8 << 20);
    while dropped < most {
        match play.client.send(&part) {
            0 => break,
            sent => dropped += sent,
        }
        play.settle(true);
    }
    assert!((4 << 20..5 << 20).contains(&dropped), "{dropped} bytes");
    assert_eq!((play.ended.take(), play.worker.connections()), (Some(Arrived::End), 1));
    assert_eq!(play.seconds_to_the_end(false, |_| {}), 2);
}

#[test]
fn a_protocol_that_is_accepted_late_hears_of_the_end_behind_its_bytes() {
    let mut play = Play::new(app());
    play.client.send(&[upgrade("/late", "echo"), b"hello, ".to_vec()].concat());
    play.client.shutdown();
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert_eq!((seconds, play.ended.clone()), (2, Some(Arrived::End)));
    assert!(play.received.ends_with(b"\r\n\r\nhello, end"), "{}", String::from_utf8_lossy(&play.received));
}

#[test]
fn a_protocol_that_is_accepted_while_the_server_stops_is_told() {
    let mut play = Play::new(app());
    play.client.send(&upgrade("/late", "echo"));
    play.settle(true);
    play.worker.shutdown();
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert!(seconds <= 3, "{seconds} seconds");
    assert!(play.received.ends_with(b"\r\n\r\nend"), "{}", String::from_utf8_lossy(&play.received));
}

#[test]
fn a_protocol_whose_bytes_wait_when_the_server_stops_is_told() {
    let mut play = Play::new(app());
    play.client.send(&upgrade("/chat", "chat"));
    play.settle(false);
    play.worker.shutdown();
    play.settle(false);
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert!(seconds <= 3 && play.received.ends_with(b"xxend"), "{seconds} seconds, {} bytes", play.received.len());
    assert_eq!(play.worker.stats().cut, 0);
}

#[test]
fn a_peer_that_takes_its_answer_slowly_has_time_for_another_request_behind_it() {
    let app = app().configure(|config| config.timeouts.idle = 5 * SECOND);
    let mut play = peer::Play::new(app, &Weather::fair());
    play.connect(Bounds { stream_window: 1 << 20, connection_window: 1 << 20, ..Bounds::default() });
    play.settle();
    play.peers[0].takes = 0;
    let large = play.peers[0].get("/large");
    play.seconds_until(|play| {
        play.peers[0].takes = 5000;
        play.peers[0].answer(large).ended
    });
    play.peers[0].takes = usize::MAX;
    assert_eq!((play.peers[0].goaways(), play.peers[0].ended.clone()), (vec![], None));
    let seconds = play.seconds_until(|play| play.peers[0].ended.is_some());
    // The idle time began when the server had sent the last bytes.
    assert!((1..=5).contains(&seconds), "{seconds} seconds");
}

#[test]
fn what_a_protocol_leaves_behind_is_in_the_account_until_the_peer_has_it() {
    let mut play = Play::new(app());
    play.client.send(&upgrade("/flood", "flood"));
    play.settle(false);
    assert!(play.worker.account() > LARGE / 2, "{} bytes", play.worker.account());
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert!(play.received.len() > LARGE, "{} bytes in {seconds} seconds", play.received.len());
    play.client.shutdown();
    play.settle(true);
    assert_eq!((play.worker.connections(), play.worker.account()), (0, 0));
}

#[test]
fn http2_connections_that_do_not_fit_the_budget_are_forgotten() {
    const PEERS: usize = 100;
    let app = app().configure(|config| {
        (config.http1, config.memory) = (false, Some(64 * 1024));
        // Accepted connections stay open for the duration of the test.
        config.timeouts.head = 1000 * SECOND;
    });
    let mut play = peer::Play::new(app, &Weather::fair());
    // The peers send nothing, so the server has no other reason to handle them again.
    let mut peers: Vec<_> = (0..PEERS).map(|_| play.network.connect()).collect();
    play.settle();
    let mut ends = |peer: &mut highwire_io::sim::Client| loop {
        match peer.receive(usize::MAX) {
            Some(Arrived::Bytes(_)) => {}
            other => return other,
        }
    };
    let cut = peers.iter_mut().filter_map(&mut ends).filter(|end| *end == Arrived::Reset).count();
    assert!((1..PEERS).contains(&cut), "{cut} of {PEERS} were cut");
    assert_eq!(play.worker.connections(), PEERS - cut);
    play.worker.shutdown();
    let seconds = play.seconds_to_the_stop();
    assert!(seconds <= 3, "{seconds} seconds");
}

#[test]
fn a_job_that_the_pool_has_not_begun_with_goes_with_its_connection() {
    type Gate = Arc<Mutex<mpsc::Receiver<()>>>;
    let (release, gate) = mpsc::channel::<()>();
    let app = App::new()
        .state::<Gate>(Arc::new(Mutex::new(gate)))
        .configure(|config| config.limits.blocking_threads = 1)
        .get("/hold", async |State(gate): State<Gate>| {
            highwire::spawn(async {
                let _ = spawn_blocking(move || gate.lock().expect("no panic").recv()).await;
            });
        })
        .post("/job", blocking(|_: State<Gate>, _: Bytes| ()))
        .get("/count", |State(gate): State<Gate>| Arc::strong_count(&gate).to_string());
    let mut play = Play::new(app);
    let count = |play: &mut Play| {
        let asker = play.network.connect();
        asker.send(b"GET /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        play.settle(true);
        let Some(Arrived::Bytes(answer)) = asker.receive(usize::MAX) else { panic!("there is no answer") };
        asker.shutdown();
        play.settle(true);
        answer.last().copied().expect("a digit")
    };
    play.network.connect().send(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    play.settle(true);
    let before = count(&mut play);
    play.send(format!("POST /job HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n").as_bytes());
    play.send(&[b'x'; LARGE]);
    assert!(count(&mut play) > before && play.worker.account() > LARGE);
    play.client.reset();
    play.settle(true);
    assert!(play.worker.account() < LARGE);
    assert_eq!(count(&mut play), before, "the job still holds its request");
    drop(release);
}
