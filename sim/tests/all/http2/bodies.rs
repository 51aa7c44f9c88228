//! Bodies of HTTP/2 requests against the whole server, in virtual time. They pass through windows, or are too large,
//! too slow or not read. Several tests check that the connection's window opens again.

use crate::peer::{Play, SECOND, in_all_weathers};
use highwire::{App, Body, StatusCode};

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .post("/whole", |body: bytes::Bytes| body)
        .post("/parts", async |body: Body| {
            body.collect(1 << 30).await.map(|bytes| bytes.len().to_string()).map_err(|_| StatusCode::BAD_REQUEST)
        })
        .post("/slow", async |mut body: Body| {
            let (mut count, mut sum, mut pauses) = (0_usize, 0_u64, 10);
            while let Some(part) = body.next().await {
                let part = part.map_err(|_| StatusCode::BAD_REQUEST)?;
                count += part.len();
                sum += part.iter().map(|&byte| u64::from(byte)).sum::<u64>();
                if pauses > 0 {
                    pauses -= 1;
                    highwire::time::sleep(3 * SECOND).await;
                }
            }
            Ok::<_, StatusCode>(format!("{count} {sum}"))
        })
        .post("/asleep", async |body: Body| {
            highwire::time::sleep(45 * SECOND).await;
            body.collect(1 << 30).await.map(|bytes| bytes.len().to_string()).map_err(|_| StatusCode::BAD_REQUEST)
        })
        .post("/unread", || "not read")
        .post("/late-unread", async || {
            highwire::time::sleep(5 * SECOND).await;
            "not read"
        })
        .post("/very-late-unread", async || {
            highwire::time::sleep(45 * SECOND).await;
            "not read"
        })
        .post("/never", async || std::future::pending::<&str>().await)
        .post("/first-part", async |mut body: Body| {
            let first = body.next().await.map(|part| part.map_or(0, |part| part.len()));
            if first.unwrap_or(0) > 0 { "seen enough" } else { "nothing" }
        })
        .configure(|config| config.limits.body_bytes = 300_000)
}

#[test]
fn bodies_arrive_whole() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let (whole, parts) = (play.peers[0].post("/whole", body.clone()), play.peers[0].post("/parts", body.clone()));
        let empty = play.peers[0].post("/whole", Vec::new());
        play.settle();
        assert!(play.peers[0].answer(whole).body == body, "the body came back changed");
        assert_eq!(play.peers[0].answer(parts).whole(), (200, "200000".to_string()));
        assert_eq!(play.peers[0].answer(empty).whole(), (200, String::new()));
        play.end();
    });
}

#[test]
fn a_handler_that_reads_slowly_closes_the_peers_window_and_loses_nothing() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app().configure(|config| config.memory = Some(1 << 20)), weather);
        let body: Vec<u8> = (0..150_000_u32).map(|at| (at % 251) as u8).collect();
        let sum: u64 = body.iter().map(|&byte| u64::from(byte)).sum();
        let stream = play.peers[0].post("/slow", body);
        play.settle();
        assert!(play.peers[0].unsent() >= 150_000 - 128 * 1024, "the window did not close");
        let seconds = play.seconds_until(|play| play.peers[0].is_over(stream));
        assert_eq!(play.peers[0].answer(stream).whole(), (200, format!("150000 {sum}")));
        assert!(seconds >= 9, "{seconds} seconds");
        assert!(play.most < 1 << 20, "the account reached {} bytes", play.most);
        play.end();
    });
}

#[test]
fn a_peer_is_not_too_slow_where_the_handler_does_not_read() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let stream = play.peers[0].post("/asleep", vec![b'x'; 150_000]);
        play.seconds_until(|play| play.peers[0].is_over(stream));
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "150000".to_string()));
        play.end();
    });
}

#[test]
fn a_body_that_is_too_large_is_413_and_its_connection_goes_on() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        for announced in [true, false].repeat(20) {
            let length = [("content-length", "400000")];
            let stream = play.peers[0].ask("POST", "/whole", if announced { &length } else { &[] }, false);
            play.peers[0].push(stream, vec![b'x'; 400_000], true);
            play.settle();
            play.pass(11 * u64::from(!play.peers[0].is_over(stream)));
            let answer = play.peers[0].answer(stream);
            assert_eq!((answer.status, answer.ended), (413, true), "announced: {announced}");
            assert_eq!(play.get("/hello").status, 200);
        }
        let stream = play.peers[0].post("/whole", vec![b'x'; 200_000]);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).body.len(), 200_000, "the connection's window is smaller than before");
        play.end();
    });
}

#[test]
fn a_body_that_does_not_fit_the_memory_is_503_and_its_connection_goes_on() {
    in_all_weathers(|weather| {
        let app = app().configure(|config| {
            config.memory = Some(512 * 1024);
            config.limits.body_bytes = 1 << 30;
        });
        let mut play = Play::with_peer(app, weather);
        let streams = [0; 4].map(|_| play.peers[0].post("/whole", vec![b'x'; 200_000]));
        play.pass(1);
        if play.peers[0].goaways() == [(7, 11)] {
            // Even the bytes that wait for a stream did not fit, so the server closed the connection
            // (ENHANCE_YOUR_CALM).
            return play.end();
        }
        let statuses = streams.map(|stream| play.peers[0].answer(stream).status);
        assert!(statuses.contains(&503), "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
        assert!(play.most <= 512 * 1024, "the account reached {} bytes", play.most);
        assert_eq!((play.get("/hello").whole(), play.peers[0].ended.clone()), ((200, "hello".to_string()), None));
        let stream = play.peers[0].post("/whole", vec![b'x'; 100_000]);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).whole().1.len(), 100_000, "there is room again");
        play.end();
    });
}

#[test]
fn a_body_that_handlers_do_not_read_gives_its_window_back_when_its_stream_ends() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        for _ in 0..12 {
            let stream = play.peers[0].ask("POST", "/asleep", &[], false);
            play.peers[0].push(stream, vec![b'x'; 50_000], false);
            play.settle();
            play.peers[0].reset(stream);
            play.settle();
        }
        let stream = play.peers[0].post("/whole", vec![b'x'; 200_000]);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).body.len(), 200_000, "the connection's window is smaller than before");
        play.end();
    });
}

#[test]
fn a_body_that_stops_or_drips_is_408_on_its_stream() {
    in_all_weathers(|weather| {
        for (path, drips) in [("/whole", false), ("/whole", true), ("/parts", false), ("/parts", true)] {
            let mut play = Play::with_peer(app(), weather);
            let stream = play.peers[0].ask("POST", path, &[], false);
            play.peers[0].push(stream, b"abc".to_vec(), false);
            let seconds = play.seconds_until(|play| {
                if drips && !play.peers[0].is_over(stream) {
                    play.peers[0].push(stream, b"x".to_vec(), false);
                }
                play.peers[0].is_over(stream)
            });
            assert_eq!((seconds, play.peers[0].answer(stream).status), (30, 408), "{path} {drips}");
            assert_eq!(play.get("/hello").status, 200);
            play.end();
        }
    });
}

#[test]
fn a_slow_body_that_is_fast_enough_arrives() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let stream = play.peers[0].ask("POST", "/whole", &[], false);
        for at in 0..100 {
            play.peers[0].push(stream, vec![b'x'; 600], at == 99);
            play.pass(1);
        }
        assert_eq!(play.peers[0].answer(stream).whole().1.len(), 60_000);
        play.end();
    });
}

#[test]
fn an_answer_may_come_before_the_body_has() {
    in_all_weathers(|weather| {
        for (path, text) in [("/unread", "not read"), ("/late-unread", "not read"), ("/first-part", "seen enough")] {
            for bytes in [50_000, 1_000_000] {
                let mut play = Play::with_peer(app(), weather);
                let stream = play.peers[0].ask("POST", path, &[], false);
                play.peers[0].push(stream, vec![b'x'; bytes], true);
                play.pass(6);
                let answer = play.peers[0].answer(stream);
                assert_eq!((answer.status, answer.text()), (200, text.to_string()), "{path} {bytes}");
                assert_eq!(play.peers[0].unsent(), 0, "{path} {bytes}");
                // The server reads and drops a short body. It resets the stream of a long one with NO_ERROR.
                let resets = play.peers[0].resets();
                let expected = if bytes > 64 * 1024 { &[(stream.number, 0)][..] } else { &[] };
                assert_eq!(resets, expected, "{path} {bytes}");
                assert_eq!(play.get("/hello").status, 200);
                let parts = play.peers[0].post("/parts", vec![b'x'; 300_000]);
                play.settle();
                assert_eq!(play.peers[0].answer(parts).text(), "300000", "the connection's window is smaller: {path}");
                play.end();
            }
        }
    });
}

#[test]
fn a_body_that_nobody_takes_does_not_end_the_handler_that_works() {
    in_all_weathers(|weather| {
        for (path, status, within) in [("/very-late-unread", 200, 45..=45), ("/never", 503, 60..=120)] {
            let mut play = Play::with_peer(app(), weather);
            let stream = play.peers[0].post(path, vec![b'x'; 400_000]);
            let seconds = play.seconds_until(|play| play.peers[0].is_over(stream));
            assert_eq!(play.peers[0].answer(stream).status, status, "{path}");
            assert!(within.contains(&seconds), "{path}: {seconds} seconds");
            play.settle();
            assert_eq!(play.peers[0].resets(), [(stream.number, 0)], "{path}");
            play.end();
        }
    });
}

#[test]
fn unread_bodies_of_slow_handlers_leave_the_connection_its_window() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        for _ in 0..8 {
            play.peers[0].post("/late-unread", vec![b'x'; 400_000]);
        }
        play.settle();
        let parts = play.peers[0].post("/parts", vec![b'x'; 300_000]);
        play.settle();
        assert_eq!(play.peers[0].answer(parts).text(), "300000");
        play.pass(30);
        assert_eq!(play.peers[0].unsent(), 0);
        play.end();
    });
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let stream = play.peers[0].ask("POST", "/whole", &[("expect", "100-continue")], false);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).interim, [100]);
        play.peers[0].push(stream, b"body".to_vec(), true);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "body".to_string()));
        play.end();
    });
}
