//! HTTP/2 against the whole server, in virtual time: many streams on a connection, bodies in both directions through
//! windows, and timeouts, on networks with and without faults.

use crate::peer::{Play, SECOND, in_all_weathers};
use highwire::{App, Body, InterimResponses, Reply, Response, StatusCode, body, header};
use highwire_io::sim::Arrived;
use highwire_proto::h2::{Bounds, Code};
use http::{HeaderName, HeaderValue};
use std::time::Duration;
use testkit::frames::window_update;

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/later/{seconds}", async |highwire::Path(seconds): highwire::Path<u64>| {
            highwire::time::sleep(seconds as u32 * SECOND).await;
            format!("after {seconds}")
        })
        .get("/never", async || std::future::pending::<&str>().await)
        .get("/kept", |reply: Reply| std::mem::forget(reply))
        .get("/forgotten", |reply: Reply| drop(reply))
        .get("/reply", |reply: Reply| {
            highwire::spawn(async move {
                highwire::time::sleep(2 * SECOND).await;
                reply.send("replied");
            });
        })
        .get("/letters/{bytes}", |highwire::Path(bytes): highwire::Path<usize>| vec![b'x'; bytes])
        .get("/reset", || (StatusCode::RESET_CONTENT, "content"))
        .get("/reset/long", || long(100_000).with_status(StatusCode::RESET_CONTENT))
        .get("/unchanged", || (StatusCode::NOT_MODIFIED, "content"))
        .get("/endless", endless)
        .get("/long/{bytes}", |highwire::Path(bytes): highwire::Path<usize>| long(bytes))
        .get("/trailers", || {
            long(5).with_trailers(|| vec![(HeaderName::from_static("x-sum"), HeaderValue::from_static("5"))])
        })
        .get("/early", |interim: InterimResponses| {
            interim.send(StatusCode::EARLY_HINTS, [(header::LINK, HeaderValue::from_static("</a.css>; rel=preload"))]);
            "hints"
        })
        .get("/panic", panics)
        .get("/late-panic", async || {
            highwire::time::sleep(Duration::from_millis(1)).await;
            panics()
        })
        .post("/trailers", async |mut body: Body| {
            while let Some(part) = body.next().await {
                part.map_err(|_| StatusCode::BAD_REQUEST)?;
            }
            let trailers = body.trailers().into_iter();
            let line = |(name, value): (HeaderName, HeaderValue)| format!("{name}={}", value.to_str().unwrap_or("?"));
            Ok::<_, StatusCode>(trailers.map(line).collect::<Vec<_>>().join(";"))
        })
}

fn panics() -> &'static str {
    // Skips the panic hook, which would print a message for each call.
    std::panic::resume_unwind(Box::new("on purpose"))
}

fn endless() -> Response {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move { while sender.send(vec![b'x'; 8192]).await.is_ok() {} });
    Response::stream(receiver)
}

fn long(bytes: usize) -> Response {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(7000);
            left -= part;
            if sender.send(vec![b'x'; part]).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    Response::stream(receiver)
}

fn windows(stream: u32) -> Bounds {
    Bounds { stream_window: stream, ..Bounds::default() }
}

#[test]
fn every_kind_of_handler_answers() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let paths = ["/hello", "/later/1", "/reply", "/letters/100000", "/long/100000", "/early", "/forgotten", "/no"];
        let streams = paths.map(|path| play.peers[0].get(path));
        play.pass(3);
        let answers = streams.map(|stream| play.peers[0].answer(stream));
        let whole = answers.each_ref().map(|answer| answer.whole());
        for (at, expected) in [(0, "hello"), (1, "after 1"), (2, "replied"), (5, "hints")] {
            assert_eq!(whole[at], (200, expected.to_string()), "{}", paths[at]);
        }
        assert_eq!((whole[3].1.len(), whole[4].1.len()), (100_000, 100_000));
        assert_eq!((answers[5].interim.as_slice(), whole[6].0, whole[7].0), (&[103][..], 500, 404));
        assert_eq!(answers[0].field("content-length"), Some("5"));
        assert!(answers[0].field("date").is_some() && answers[4].field("content-length").is_none());
        play.end();
    });
}

#[test]
fn a_peer_that_does_little_things_for_long_is_served() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.settle();
        let stream = play.peers[0].get("/later/50");
        for _ in 0..49 {
            // These frames have an unknown type. In total they are more than the server allows at once.
            (0..5).for_each(|_| play.peers[0].out.extend([0, 0, 0, 0x77, 0, 0, 0, 0, 0]));
            play.pass(1);
        }
        play.pass(2);
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "after 50".to_string()));
        play.end();
    });
}

#[test]
fn many_streams_are_answered_as_they_are_ready() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.settle();
        let peer = &mut play.peers[0];
        let streams: Vec<_> = (0..100).map(|at| peer.get(&format!("/later/{}", 50 - at / 2))).collect();
        play.pass(9);
        let late = streams.iter().filter(|&&stream| !play.peers[0].is_over(stream)).count();
        assert_eq!(late, 82, "two streams wait for each of 10 to 50 seconds");
        assert_eq!(play.get("/hello").whole(), (200, "hello".to_string()), "beside the waiting streams");
        play.pass(42);
        for (at, &stream) in streams.iter().enumerate() {
            assert_eq!(play.peers[0].answer(stream).whole(), (200, format!("after {}", 50 - at / 2)));
        }
        let order = &play.peers[0].order;
        let at = |number| order.iter().position(|&other| other == number).expect("the stream has ended");
        assert!(at(streams[99].number) < at(streams[90].number), "the later request was ready first");
        play.end();
    });
}

#[test]
fn streamed_answers_pass_through_small_windows() {
    in_all_weathers(|weather| {
        for window in [1, 10, 1000] {
            let mut play = Play::new(app().configure(|config| config.memory = Some(1 << 20)), weather);
            play.connect(windows(window));
            let bytes = 300 * window as usize;
            let paths = ["long", "letters"].map(|kind| format!("/{kind}/{bytes}"));
            let streams = paths.map(|path| play.peers[0].get(&path));
            play.settle();
            for stream in streams {
                assert_eq!(play.peers[0].answer(stream).whole().1.len(), bytes);
            }
            play.end();
        }
    });
}

#[test]
fn a_peer_that_never_opens_a_window_loses_that_stream_only() {
    in_all_weathers(|weather| {
        for path in ["/endless", "/letters/100000"] {
            let mut play = Play::new(app(), weather);
            play.connect(windows(100));
            play.peers[0].credits = false;
            let stuck = play.peers[0].get(path);
            play.settle();
            let tasks = play.worker.tasks();
            let seconds = play.seconds_until(|play| {
                // These answers are smaller than a stream's window.
                assert_eq!(play.get("/hello").whole(), (200, "hello".to_string()));
                play.peers[0].is_over(stuck)
            });
            let answer = play.peers[0].answer(stuck);
            assert_eq!((seconds, answer.reset, answer.body.len()), (60, Some(Code::Cancel), 100), "{path}");
            assert_eq!((tasks, play.worker.tasks()), (usize::from(path == "/endless"), 0), "its producer has ended");
            assert_eq!((play.peers[0].ended.clone(), play.worker.stats().cut), (None, 1));
            play.end();
        }
    });
}

#[test]
fn a_stream_that_waits_for_its_turn_is_not_cut_while_the_peer_reads() {
    in_all_weathers(|weather| {
        let mut play = Play::new(app(), weather);
        play.connect(Bounds { stream_window: 8 << 20, connection_window: 65_535, ..Bounds::default() });
        play.peers[0].credits = false;
        let (first, second) = (play.peers[0].get("/letters/4000000"), play.peers[0].get("/letters/1000"));
        let mut seconds = 0;
        play.seconds_until(|play| {
            // The peer opens the connection's window by half of its size per second. The first stream uses these bytes,
            // because it was first.
            play.peers[0].credit(None, 32 * 1024);
            seconds += 1;
            play.peers[0].is_over(second) || seconds > 120
        });
        assert_eq!(play.peers[0].answer(second).reset, None, "after {seconds} seconds");
        play.peers[0].credit(None, 1 << 24);
        play.settle();
        let lengths = [first, second].map(|stream| play.peers[0].answer(stream).body.len());
        assert_eq!(lengths, [4_000_000, 1000]);
        play.end();
    });
}

#[test]
fn a_handler_that_takes_too_long_is_503_on_its_stream() {
    in_all_weathers(|weather| {
        for path in ["/never", "/kept"] {
            let mut play = Play::with_peer(app(), weather);
            let stream = play.peers[0].get(path);
            let seconds = play.seconds_until(|play| {
                assert_eq!(play.get("/hello").status, 200);
                play.peers[0].is_over(stream)
            });
            let answer = play.peers[0].answer(stream);
            assert_eq!((seconds, answer.whole().0, answer.field("retry-after")), (60, 503, Some("1")), "{path}");
            assert_eq!((play.get("/hello").status, play.worker.stats().cut), (200, 1));
            play.end();
        }
    });
}

#[test]
fn an_idle_connection_is_told_and_closed_after_its_time() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        assert_eq!(play.get("/hello").status, 200);
        let seconds = play.seconds_until(|play| play.peers[0].ended.is_some());
        assert_eq!((seconds, play.peers[0].ended.clone()), (75, Some(Arrived::End)));
        assert_eq!(play.peers[0].goaways(), [(0x7fff_ffff, 0), (1, 0)]);
        play.end();
    });
}

#[test]
fn a_connection_whose_peer_still_takes_the_last_answer_is_not_idle() {
    const SECONDS: usize = 120;
    in_all_weathers(|weather| {
        for gives_back in [true, false] {
            let mut play = Play::new(app(), weather);
            // The kernels take the whole answer.
            play.network.hold(256 * 1024);
            play.connect(Bounds { stream_window: 1 << 20, connection_window: 1 << 20, ..Bounds::default() });
            play.peers[0].credits = false;
            let stream = play.peers[0].get(&format!("/long/{}", SECONDS * 1000));
            play.peers[0].act();
            for _ in 0..SECONDS {
                play.peers[0].takes = 1000;
                if gives_back {
                    play.peers[0].out.extend(window_update(0, 1000));
                }
                play.pass(1);
            }
            play.peers[0].takes = usize::MAX;
            play.settle();
            assert_eq!(play.peers[0].ended.is_none(), gives_back);
            assert!(!gives_back || play.peers[0].answer(stream).ended, "the answer is whole");
            // The window may be widened further, but this does not keep the connection.
            let seconds = play.seconds_until(|play| {
                if play.peers[0].ended.is_none() {
                    play.peers[0].out.extend(window_update(0, 100_000));
                }
                play.peers[0].ended.is_some()
            });
            assert!(seconds <= 75 * 5, "{seconds} seconds");
            play.end();
        }
    });
}

#[test]
fn a_connection_that_says_no_more_than_the_preface_is_closed() {
    in_all_weathers(|weather| {
        for length in 0..=24 {
            let mut play = Play::with_peer(app(), weather);
            play.peers[0].out.truncate(length);
            play.peers[0].parses = false;
            let seconds = play.seconds_until(|play| play.peers[0].ended.is_some() || play.worker.connections() == 0);
            assert!(seconds <= 75, "after {length} bytes: {seconds} seconds");
            play.end();
        }
    });
}

#[test]
fn a_peer_that_reads_nothing_is_cut_and_its_producers_stopped() {
    in_all_weathers(|weather| {
        let mut play = Play::new(app().configure(|config| config.memory = Some(2 << 20)), weather);
        play.connect(Bounds { stream_window: 1 << 30, connection_window: 1 << 30, ..Bounds::default() });
        play.peers[0].reads = false;
        for _ in 0..5 {
            play.peers[0].get("/endless");
        }
        let seconds = play.seconds_until(|play| play.worker.connections() == 0);
        assert_eq!((seconds, play.worker.tasks(), play.worker.stats().cut), (60, 0, 1));
        assert!(play.most < 1 << 20, "the account reached {} bytes", play.most);
        play.end();
    });
}

#[test]
fn trailers_go_both_ways() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let stream = play.peers[0].ask("POST", "/trailers", &[], false);
        play.peers[0].push_with_trailers(stream, vec![b'x'; 20_000], &[("x-a", "1"), ("x-b", "2")]);
        let answer = play.get("/trailers");
        assert_eq!((answer.whole().1, answer.trailers), ("xxxxx".to_string(), vec![("x-sum".into(), "5".into())]));
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "x-a=1;x-b=2".to_string()));
        play.end();
    });
}

#[test]
fn head_has_the_fields_and_no_body() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        for (path, length) in [("/letters/50000", Some("50000")), ("/endless", None), ("/hello", Some("5"))] {
            let stream = play.peers[0].ask("HEAD", path, &[], true);
            play.settle();
            let answer = play.peers[0].answer(stream);
            assert_eq!((answer.whole(), answer.field("content-length")), ((200, String::new()), length), "{path}");
        }
        assert_eq!(play.worker.tasks(), 0, "bodies that are not sent are not produced");
        play.end();
    });
}

#[test]
fn a_status_that_forbids_content_has_none_whatever_its_handler_returns() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        for (path, status, length) in
            [("/reset", 205, Some("0")), ("/reset/long", 205, Some("0")), ("/unchanged", 304, None)]
        {
            let answer = play.get(path);
            assert_eq!((answer.whole(), answer.field("content-length")), ((status, String::new()), length), "{path}");
        }
        assert_eq!(play.worker.tasks(), 0, "bodies that are not sent are not produced");
        play.end();
    });
}

#[test]
fn a_panic_is_500_on_its_stream() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let paths = ["/later/3", "/panic", "/late-panic", "/hello"];
        let streams = paths.map(|path| play.peers[0].get(path));
        play.pass(4);
        let statuses = streams.map(|stream| play.peers[0].answer(stream).whole().0);
        assert_eq!(statuses, [200, 500, 500, 200]);
        play.end();
    });
}

#[test]
fn the_urgent_come_before_those_in_the_background() {
    in_all_weathers(|weather| {
        let mut play = Play::new(app(), weather);
        play.connect(Bounds { stream_window: 1 << 20, connection_window: 65_535, ..Bounds::default() });
        play.peers[0].credits = false;
        let ask =
            |play: &mut Play, priority| play.peers[0].ask("GET", "/letters/200000", &[("priority", priority)], true);
        let background = ask(&mut play, "u=7");
        let usual = ask(&mut play, "u=3");
        let urgent = ask(&mut play, "u=0");
        play.settle();
        // The connection's window was used up by the first part of one answer.
        play.peers[0].credit(None, 400_000);
        play.settle();
        let lengths = |play: &Play| [urgent, usual, background].map(|stream| play.peers[0].answer(stream).body.len());
        let [first, second, third] = lengths(&play);
        assert_eq!((first, second, third), (200_000, 200_000, 65_535));
        play.peers[0].credit(None, 400_000);
        play.settle();
        assert_eq!(lengths(&play), [200_000; 3]);
        assert_eq!(play.peers[0].order, [urgent.number, usual.number, background.number]);
        play.end();
    });
}

#[test]
fn a_peer_that_ends_its_direction_gets_what_is_ready() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let streams = ["/later/5", "/long/300000", "/hello"].map(|path| play.peers[0].get(path));
        // The client can send no WINDOW_UPDATE after its end, so the current windows limit the answers.
        play.peers[0].credits = false;
        play.settle();
        play.peers[0].client.shutdown();
        play.pass(6);
        // A client of HTTP/2 keeps its direction open, so nobody waits for what is not ready.
        assert_eq!(play.peers[0].answer(streams[0]).reset, Some(Code::Cancel));
        assert_eq!(play.peers[0].answer(streams[2]).whole().0, 200);
        assert_eq!(play.peers[0].answer(streams[1]).body.len(), 65_536, "a whole stream window");
        let seconds = play.seconds_until(|play| play.peers[0].ended.is_some());
        assert!(seconds <= 60, "{seconds} seconds until the server gives up");
        play.end();
    });
}
