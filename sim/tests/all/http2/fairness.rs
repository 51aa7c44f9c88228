//! Slow and greedy HTTP/2 peers beside honest ones, in virtual time: which streams and connections the server cuts or
//! answers with an error.

use crate::peer;
use crate::peer::{PING, Play, SECOND, Weather, in_all_weathers};
use bytes::Bytes;
use highwire::{App, Authority, Body, HeaderMap, HeaderName, Method, RawStream, Response, Upgrade, body};
use highwire_io::sim::Arrived;
use highwire_proto::h2::{Bounds, Code};
use std::cell::Cell;

/// The bounds of a client with wide windows.
fn wide() -> Bounds {
    Bounds { stream_window: 1 << 22, connection_window: 1 << 23, ..Bounds::default() }
}

fn play(app: App, weather: &Weather, bounds: Bounds) -> Play {
    let mut play = Play::new(app, weather);
    play.connect(bounds);
    play.settle();
    play
}

/// A WINDOW_UPDATE of one byte for the connection.
const A_BYTE_MORE: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];

async fn echo(mut stream: RawStream) {
    while let Ok(Some(bytes)) = stream.read().await {
        if stream.write(bytes).await.is_err() {
            return;
        }
    }
}

thread_local! {
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

struct Noticed;

impl Drop for Noticed {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

/// Returns a response with a body that never continues or ends.
fn hangs() -> Response {
    let (sender, receiver) = body::channel();
    std::mem::forget(sender);
    Response::stream(receiver)
}

fn empty() -> body::Receiver {
    let (sender, receiver) = body::channel();
    sender.finish();
    receiver
}

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/echo", |upgrade: Upgrade| upgrade.accept("echo", echo))
        .get("/letters/{bytes}", |highwire::Path(bytes): highwire::Path<usize>| vec![b'x'; bytes])
        .get("/slow", async || {
            highwire::time::sleep(200 * SECOND).await;
            "slow"
        })
        .get("/waits", async || {
            let _noticed = Noticed;
            highwire::time::sleep(200 * SECOND).await;
            "waited"
        })
        .post("/upload", peer::count)
        .post("/whole", |body: Bytes| body.len().to_string())
        .get("/hangs", hangs)
        .get("/empty", || Response::stream_of(0, empty()))
        .post("/empty", || Response::stream_of(0, empty()))
        .get("/trailing", || {
            Response::stream_of(0, empty())
                .with_trailers(|| vec![(HeaderName::from_static("x-a"), "b".parse().expect("a value"))])
        })
        .get("/panics-at-its-end", || {
            Response::stream(empty()).with_trailers(|| std::panic::resume_unwind(Box::new("on purpose")))
        })
}

#[test]
fn a_connection_with_live_streams_is_not_idle() {
    in_all_weathers(|weather| {
        let app = app().configure(|config| config.timeouts.handler = 1000 * SECOND);
        let mut play = play(app, weather, wide());
        let tunnel = play.peers[0].connect(Some("echo"), "/echo");
        let slow = play.peers[0].get("/slow");
        play.settle();
        // This answer is so large that the driver reports when it is sent.
        assert_eq!(play.get("/letters/300000").body.len(), 300_000);
        play.pass(205);
        assert_eq!(play.peers[0].answer(slow).whole(), (200, "slow".to_string()));
        play.peers[0].push(tunnel, b"still there".to_vec(), true);
        play.settle();
        assert_eq!(play.peers[0].answer(tunnel).whole(), (200, "still there".to_string()));
        play.end();
    });
}

#[test]
fn the_authority_is_the_hosts_name() {
    let named = App::new().get("/where", || "the host's own");
    let app = App::new()
        .get("/where", || "everybody's")
        .get("/who", |Authority(authority): Authority| authority)
        .get("/fields", |fields: HeaderMap| fields.get("host").map_or("none".to_string(), |host| format!("{host:?}")))
        .host("sim", named);
    let mut play = play(app, &Weather::fair(), wide());
    assert_eq!(play.get("/where").text(), "the host's own");
    assert_eq!((play.get("/who").text(), play.get("/fields").text()), ("sim".to_string(), "\"sim\"".to_string()));
    play.end();
}

#[test]
fn uploads_that_share_a_slow_line_arrive() {
    let mut play = play(app(), &Weather::fair(), wide());
    let streams: Vec<_> = (0..40).map(|_| play.peers[0].ask("POST", "/upload", &[], false)).collect();
    play.settle();
    let mut line: Vec<u8> = Vec::new();
    let mut turn = 0;
    // The client sends 30,000 bytes per second in whole frames, one stream after the other, so a stream's bytes arrive
    // less often than the server checks the stream's rate.
    for _ in 0..600 {
        while line.len() < 3000 {
            let peer = &mut play.peers[0];
            let stream = streams[turn % streams.len()];
            turn += 1;
            let sent = peer.http.send_data(stream, &[b'u'; 16_000], false, &mut line);
            assert!(sent.is_ok(), "the stream is closed");
        }
        let part: Vec<u8> = line.drain(..3000).collect();
        play.peers[0].out.extend(part);
        play.settle();
        play.network.advance(SECOND / 10);
    }
    assert!(streams.iter().all(|&stream| play.peers[0].answer(stream).status == 0), "a stream was cut");
    // When no more bytes arrive, all streams together are too slow and get 408.
    play.pass(40);
    assert!(streams.iter().all(|&stream| play.peers[0].answer(stream).status == 408));
    play.end();
}

#[test]
fn an_upload_beside_a_download_that_is_not_taken_goes_on() {
    in_all_weathers(|weather| {
        let mut play = play(app(), weather, wide());
        let upload = play.peers[0].ask("POST", "/upload", &[], false);
        play.settle();
        let download = play.peers[0].get("/letters/2000000");
        play.peers[0].reads = false;
        for second in 0..45 {
            play.peers[0].reads = second >= 25;
            play.peers[0].push(upload, vec![b'u'; 4000], second == 44);
            play.pass(1);
        }
        play.pass(1);
        assert_eq!(play.peers[0].answer(upload).whole(), (200, "180000".to_string()));
        assert_eq!(play.peers[0].answer(download).whole().1.len(), 2_000_000);
        play.end();
    });
}

#[test]
fn a_download_that_flows_has_its_time_and_one_that_stands_has_not() {
    let mut play = play(app(), &Weather::fair(), wide());
    // The link takes the driver's bytes at once whenever the client has read some, so the driver never keeps unsent
    // bytes.
    play.network.hold(128 * 1024);
    play.peers[0].takes = 0;
    let download = play.peers[0].get("/letters/8000000");
    for second in 0..150 {
        if second % 2 == 0 {
            play.peers[0].takes = 65_536;
        }
        play.pass(1);
        assert_eq!(play.peers[0].ended, None, "after {second} seconds");
    }
    assert!(play.peers[0].answer(download).body.len() > 70 * 65_536, "the download flowed");
    let seconds = play.seconds_until(|play| play.peers[0].ended.is_some());
    assert_eq!((seconds, play.peers[0].ended.clone()), (58, Some(Arrived::Reset)));
    play.end();
}

#[test]
fn who_takes_a_download_is_heard_meanwhile() {
    for link in [16 * 1024, 128 * 1024] {
        let mut play = play(app(), &Weather::fair(), wide());
        play.network.hold(link);
        play.peers[0].takes = 0;
        // The driver keeps unsent bytes of these small answers, and receives no more until they are sent.
        (0..12).for_each(|_| _ = play.peers[0].get("/letters/15000"));
        let download = play.peers[0].get("/letters/4000000");
        let take = |play: &mut Play, seconds: u64| {
            for _ in 0..seconds {
                play.peers[0].takes = 65_536;
                // These are as many WINDOW_UPDATE frames as a client may send for 64 KiB.
                (0..8).for_each(|_| play.peers[0].out.extend_from_slice(&A_BYTE_MORE));
                play.pass(1);
            }
        };
        take(&mut play, 10);
        for _ in 0..3 {
            let beside = play.peers[0].ask("GET", "/hello", &[("priority", "u=1")], true);
            take(&mut play, 5);
            assert_eq!(play.peers[0].answer(beside).whole(), (200, "hello".to_string()), "over {link} bytes");
        }
        assert!(!play.peers[0].is_over(download));
        play.peers[0].reset(download);
        take(&mut play, 10);
        let received = play.peers[0].received;
        assert!(received < 2_300_000, "{received} bytes arrived of a download that was reset halfway");
        play.end();
    }
}

#[test]
fn handlers_have_their_time_and_no_more_while_a_download_trickles() {
    in_all_weathers(|weather| {
        let app = app().configure(|config| config.timeouts.handler = 20 * SECOND);
        let mut play = play(app, weather, wide());
        DROPPED.set(0);
        let waiting: Vec<_> = (0..5).map(|_| play.peers[0].get("/waits")).collect();
        play.settle();
        let download = play.peers[0].get("/letters/2000000");
        play.peers[0].takes = 0;
        let seconds = play.seconds_until(|play| {
            play.peers[0].takes += 1000;
            DROPPED.get() == 5
        });
        assert!((19..=21).contains(&seconds), "{seconds} seconds");
        play.peers[0].takes = usize::MAX;
        play.settle();
        assert_eq!(play.peers[0].answer(download).whole().1.len(), 2_000_000);
        assert!(waiting.iter().all(|&stream| play.peers[0].answer(stream).whole().0 == 503));
        play.end();
    });
}

#[test]
fn a_window_that_opens_behind_what_is_not_taken_is_no_late_one() {
    in_all_weathers(|weather| {
        let narrow = Bounds { stream_window: 20_000, ..wide() };
        let mut play = play(app(), weather, narrow);
        play.peers[0].credits = false;
        let stream = play.peers[0].get("/letters/30000");
        play.settle();
        play.peers[0].takes = 0;
        let others: Vec<_> = (0..12).map(|_| play.peers[0].get("/letters/15000")).collect();
        play.settle();
        play.peers[0].credit(Some(stream), 20_000);
        for _ in 0..80 {
            play.peers[0].takes = 2000;
            play.pass(1);
        }
        play.peers[0].takes = usize::MAX;
        play.pass(1);
        for (stream, length) in others.iter().map(|&other| (other, 15_000)).chain([(stream, 30_000)]) {
            assert_eq!(play.peers[0].answer(stream).whole().1.len(), length);
        }
        play.end();
    });
}

#[test]
fn streams_that_share_a_window_flow_together_or_are_cut_together() {
    for (bytes, rate, is_cut) in [(1_u32, 500, true), (16_000, 500, false), (0, 0, true), (1, 0, false)] {
        let app = app().configure(|config| {
            (config.timeouts.idle, config.timeouts.body_rate) = (1000 * SECOND, rate);
        });
        let mut play = play(app, &Weather::fair(), Bounds { stream_window: 1 << 22, ..Bounds::default() });
        // The test sends the client's WINDOW_UPDATE frames itself.
        play.peers[0].parses = false;
        for _ in 0..20 {
            play.peers[0].get("/letters/300000");
        }
        for _ in 0..10 {
            play.pass(20);
            // A WINDOW_UPDATE for the connection.
            if bytes > 0 {
                play.peers[0].out.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0]);
                play.peers[0].out.extend_from_slice(&bytes.to_be_bytes());
            }
        }
        let cut = play.peers[0].resets().len();
        assert_eq!(
            (cut, play.peers[0].ended.is_some()),
            (if is_cut { 20 } else { 0 }, false),
            "{bytes} bytes, {rate} B/s"
        );
        play.end();
    }
}

#[test]
fn pings_keep_no_connection_without_requests() {
    const A_PING: [u8; 17] = [0, 0, 8, PING, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    in_all_weathers(|weather| {
        let mut play = play(app(), weather, wide());
        for path in ["/hello", "/letters/300000", "/hello"] {
            assert_eq!(play.get(path).whole().0, 200);
            for _ in 0..7 {
                play.peers[0].out.extend_from_slice(&A_PING);
                play.pass(10);
                assert_eq!(play.peers[0].ended, None);
            }
        }
        let mut pings = 0;
        let seconds = play.seconds_until(|play| {
            pings += 1;
            assert!(pings < 100, "the connection stays open");
            play.peers[0].out.extend_from_slice(&A_PING);
            play.peers[0].ended.is_some()
        });
        assert!((4..=6).contains(&seconds), "{seconds} seconds after the first 70");
        assert_eq!((play.peers[0].ended.clone(), play.peers[0].goaways().len()), (Some(Arrived::End), 2));
        play.end();
    });
}

#[test]
fn a_client_is_not_judged_by_the_time_that_a_handler_took() {
    let app = App::new().post("/slow", async |mut body: Body| {
        let mut bytes = 0;
        highwire::time::sleep(21 * SECOND).await;
        bytes += body.next().await.map_or(0, |part| part.map_or(0, |part| part.len()));
        highwire::time::sleep(9 * SECOND + SECOND / 2).await;
        while let Some(part) = body.next().await {
            match part {
                Ok(part) => bytes += part.len(),
                Err(error) => return error.to_string(),
            }
        }
        bytes.to_string()
    });
    let mut play = Play::with_peer(app, &Weather::fair());
    play.settle();
    let stream = play.peers[0].ask("POST", "/slow", &[], false);
    play.peers[0].push(stream, vec![b'u'; 65_536], false);
    play.settle();
    let mut sent = 0;
    for _ in 0..1200 {
        let peer = &mut play.peers[0];
        if sent < 20_000 && peer.http.is_open(stream) {
            // The client sends a kilobyte per second, if the window allows it.
            sent += peer.http.send_data(stream, &[b'v'; 100], sent + 100 == 20_000, &mut peer.out).unwrap_or(0);
        }
        play.settle();
        play.network.advance(SECOND / 10);
        if play.peers[0].is_over(stream) {
            break;
        }
    }
    assert_eq!(play.peers[0].answer(stream).whole(), (200, "85536".to_string()));
    play.end();
}

#[test]
fn a_client_that_ends_its_direction_gets_all_answers() {
    for (path, count) in [("/letters/65536", 1), ("/letters/16000", 40)] {
        let mut play = play(app(), &Weather::fair(), wide());
        let mut streams: Vec<_> = (0..count).map(|_| play.peers[0].get(path)).collect();
        streams.push(play.peers[0].get("/hello"));
        let out = std::mem::take(&mut play.peers[0].out);
        assert_eq!(play.peers[0].client.send(&out), out.len());
        play.peers[0].client.shutdown();
        play.settle();
        let whole = streams.iter().filter(|&&stream| play.peers[0].answer(stream).ended).count();
        assert_eq!(whole, count + 1, "{path}");
        play.end();
    }
}

#[test]
fn a_body_that_hangs_is_cut_however_busy_its_connection_is() {
    in_all_weathers(|weather| {
        let app = app().configure(|config| config.timeouts.handler = 20 * SECOND);
        let mut play = play(app, weather, wide());
        let stream = play.peers[0].get("/hangs");
        play.settle();
        let seconds = play.seconds_until(|play| {
            play.peers[0].out.extend_from_slice(&A_BYTE_MORE);
            play.peers[0].is_over(stream)
        });
        assert!((19..=21).contains(&seconds), "{seconds} seconds");
        play.end();
    });
}

#[test]
fn one_connection_does_not_keep_the_others_from_memory() {
    let app = app().configure(|config| config.memory = Some(20_000_000));
    let mut play = play(app, &Weather::fair(), Bounds { stream_window: 0, ..Bounds::default() });
    play.connect(wide());
    play.settle();
    play.peers[0].credits = false;
    let greedy: Vec<_> = (0..100).map(|_| play.peers[0].get("/letters/300000")).collect();
    play.settle();
    for _ in 0..3 {
        // One byte per stream in 50 seconds is too slow.
        for &stream in &greedy {
            play.peers[0].credit(Some(stream), 1);
        }
        play.pass(50);
        let upload = play.peers[1].post("/whole", vec![b'b'; 900_000]);
        play.settle();
        assert_eq!(play.peers[1].answer(upload).whole(), (200, "900000".to_string()));
    }
    assert!(greedy.iter().all(|&stream| play.peers[0].is_over(stream)));
    play.end();
}

#[test]
fn parts_that_no_window_lets_out_stay_in_the_budget() {
    let app = App::new()
        .get("/parts", || {
            let (mut sender, receiver) = body::channel();
            highwire::spawn(async move {
                let _ = sender.send(vec![b'p'; 200_000]).await;
                std::future::pending::<()>().await;
            });
            Response::stream(receiver)
        })
        .get("/hello", || "hello")
        .configure(|config| config.memory = Some(2_000_000));
    let mut play = play(app, &Weather::fair(), Bounds { stream_window: 0, ..Bounds::default() });
    let streams: Vec<_> = (0..60).map(|_| play.peers[0].get("/parts")).collect();
    play.settle();
    let live = streams.iter().filter(|&&stream| !play.peers[0].is_over(stream)).count();
    assert!((1..=10).contains(&live), "{live} streams are live");
    assert!(play.worker.account() >= live * 200_000, "{} bytes are charged", play.worker.account());
}

#[test]
fn bodies_of_no_bytes_are_whole() {
    in_all_weathers(|weather| {
        let mut play = play(app(), weather, wide());
        assert_eq!(play.get("/empty").whole(), (200, String::new()));
        let open = play.peers[0].ask("POST", "/empty", &[], false);
        play.settle();
        assert_eq!(play.peers[0].answer(open).whole(), (200, String::new()));
        let trailing = play.get("/trailing");
        assert_eq!((trailing.whole().0, trailing.trailers), (200, vec![("x-a".to_string(), "b".to_string())]));
        play.end();
    });
}

#[test]
fn a_panic_in_one_stream_costs_no_other() {
    let mut play = play(app(), &Weather::fair(), wide());
    let waiting: Vec<_> = (0..5).map(|_| play.peers[0].get("/waits")).collect();
    play.settle();
    let stream = play.peers[0].get("/panics-at-its-end");
    play.settle();
    assert_eq!(play.peers[0].answer(stream).reset, Some(Code::Internal));
    assert_eq!((play.get("/hello").whole().0, DROPPED.get()), (200, 0));
    waiting.into_iter().for_each(|stream| play.peers[0].reset(stream));
    play.settle();
    assert_eq!(DROPPED.get(), 5);
    play.end();
}

#[test]
fn a_handler_may_let_the_connection_go() {
    let app = App::new().route(Method::GET, "/last", || Response::text("last").and_close()).get("/hello", || "hello");
    let mut play = play(app, &Weather::fair(), wide());
    let beside = play.peers[0].get("/hello");
    let last = play.peers[0].get("/last");
    play.settle();
    assert_eq!(
        (play.peers[0].answer(beside).whole().0, play.peers[0].answer(last).whole().1),
        (200, "last".to_string())
    );
    assert!(!play.peers[0].goaways().is_empty() && play.peers[0].ended.is_some());
    play.end();
}
