//! Other protocols on HTTP/2 streams (RFC 8441, RFC 9113 section 8.5), in virtual time: bytes in both directions,
//! back-pressure, and the ways in which a tunnel ends.

use crate::peer::{Play, SECOND, Weather, in_all_weathers};
use highwire::{App, Method, RawStream, Upgrade};
use highwire_proto::h2::{Bounds, Code};
use std::cell::RefCell;
use std::rc::Rc;

async fn echo(mut stream: RawStream) {
    while let Ok(Some(bytes)) = stream.read().await {
        if stream.write(bytes).await.is_err() {
            return;
        }
    }
}

/// The events that the tasks of tunnels have recorded, in order.
type Seen = Rc<RefCell<Vec<String>>>;

thread_local! {
    static SEEN: Seen = Seen::default();
}

fn see(what: impl Into<String>) {
    SEEN.with(|seen| seen.borrow_mut().push(what.into()));
}

fn seen() -> Vec<String> {
    SEEN.with(|seen| std::mem::take(&mut *seen.borrow_mut()))
}

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/echo", |upgrade: Upgrade| upgrade.accept("echo", echo))
        .get("/late", async |upgrade: Upgrade| {
            highwire::time::sleep(2 * SECOND).await;
            upgrade.accept("echo", echo)
        })
        .get("/deaf", |upgrade: Upgrade| {
            upgrade.accept("echo", async |stream| {
                std::future::pending::<()>().await;
                drop(stream);
            })
        })
        .get("/flood", |upgrade: Upgrade| {
            upgrade.accept("echo", async |mut stream| while stream.write(vec![b'x'; 9000]).await.is_ok() {})
        })
        .get("/tells", |upgrade: Upgrade| {
            upgrade.accept("echo", async |mut stream| {
                loop {
                    match stream.read().await {
                        Ok(Some(bytes)) => see(String::from_utf8_lossy(&bytes)),
                        Ok(None) => break see("end"),
                        Err(_) => break see("broken"),
                    }
                }
            })
        })
        .get("/flushes", |upgrade: Upgrade| {
            upgrade.accept("echo", async |mut stream| {
                let _ = stream.write("one").await;
                see(format!("{:?}", stream.flush().await));
            })
        })
        .get("/panics", |upgrade: Upgrade| {
            upgrade.accept("echo", async |_| std::panic::resume_unwind(Box::new("on purpose")))
        })
        .route(Method::CONNECT, "/", |upgrade: Upgrade| {
            see(format!("tunnel {}", upgrade.is_tunnel()));
            upgrade.accept("any", echo)
        })
}

/// Returns bytes that vary with their position, so that a lost or moved byte is noticed.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

#[test]
fn bytes_pass_both_ways_beside_other_requests() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.settle();
        let protocols = ["/echo", "/late"].map(|path| play.peers[0].connect(Some("echo"), path));
        let tunnel = play.peers[0].connect(None, "");
        // The client sends before it has an answer.
        for stream in protocols {
            play.peers[0].push(stream, pattern(300_000), false);
        }
        play.peers[0].push(tunnel, pattern(10_000), true);
        play.pass(4);
        assert_eq!(play.get("/hello").whole(), (200, "hello".to_string()));
        for stream in protocols {
            let answer = play.peers[0].answer(stream);
            assert!(answer.status == 200 && !answer.ended && answer.body == pattern(300_000));
            assert!(answer.field("content-length").is_none() && answer.field("upgrade").is_none());
            play.peers[0].push(stream, b"and on".to_vec(), true);
        }
        play.settle();
        for stream in protocols {
            let answer = play.peers[0].answer(stream);
            assert!(answer.ended && answer.body.ends_with(b"and on") && answer.body.len() == 300_006);
        }
        let answer = play.peers[0].answer(tunnel);
        assert!(answer.status == 200 && answer.ended && answer.body == pattern(10_000));
        assert_eq!(seen(), ["tunnel true"]);
        play.end();
    });
}

#[test]
fn what_is_not_proposed_is_not_accepted() {
    let mut play = Play::with_peer(app(), &Weather::fair());
    play.settle();
    let cases = [("/echo", "other", 426), ("/hello", "echo", 501), ("/nothing", "echo", 404)];
    let streams = cases.map(|(path, protocol, _)| play.peers[0].connect(Some(protocol), path));
    let without = play.peers[0].get("/echo");
    play.settle();
    for (stream, (path, _, status)) in streams.into_iter().zip(cases) {
        assert_eq!(play.peers[0].answer(stream).status, status, "{path}");
    }
    assert_eq!(play.peers[0].answer(without).whole().0, 426, "a GET proposes nothing on HTTP/2");
    play.end();
}

#[test]
fn whoever_does_not_read_stops_the_other_side() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.settle();
        let deaf = play.peers[0].connect(Some("echo"), "/deaf");
        play.peers[0].push(deaf, pattern(4_000_000), false);
        play.pass(5);
        assert!(play.peers[0].unsent() > 2_000_000, "{} bytes are not sent", play.peers[0].unsent());
        assert_eq!(play.get("/hello").whole().0, 200, "the connection's window is open");
        let flood = play.peers[0].connect(Some("echo"), "/flood");
        play.peers[0].credits = false;
        play.pass(5);
        let got = play.peers[0].answer(flood).body.len();
        assert!((60_000..70_000).contains(&got), "{got} bytes");
        assert!(play.most < 3_000_000, "{} bytes were held", play.most);
        // A peer that takes nothing has the usual write timeout.
        play.pass(70);
        assert_eq!(play.peers[0].answer(flood).reset, Some(Code::Cancel));
        assert_eq!(play.peers[0].answer(deaf).reset, None);
        play.end();
    });
}

#[test]
fn a_protocol_has_no_deadline_where_that_is_turned_off() {
    let app = app().configure(|config| config.timeouts.tunnel = std::time::Duration::ZERO);
    let mut play = Play::with_peer(app, &Weather::fair());
    play.settle();
    let stream = play.peers[0].connect(Some("echo"), "/echo");
    play.pass(1000);
    play.peers[0].push(stream, b"still there".to_vec(), true);
    play.settle();
    assert_eq!(play.peers[0].answer(stream).whole(), (200, "still there".to_string()));
    play.end();
}

#[test]
fn every_end_is_seen() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        play.settle();
        let reset = play.peers[0].connect(Some("echo"), "/tells");
        play.peers[0].push(reset, b"a".to_vec(), false);
        play.settle();
        play.peers[0].reset(reset);
        play.settle();
        assert_eq!(seen(), ["a"], "the task ends with its stream");
        let flushes = play.peers[0].connect(Some("echo"), "/flushes");
        let panics = play.peers[0].connect(Some("echo"), "/panics");
        play.settle();
        assert_eq!((seen(), play.peers[0].answer(flushes).whole().1), (vec!["Ok(())".to_string()], "one".to_string()));
        assert_eq!(play.peers[0].answer(panics).reset, Some(Code::Internal));
        let stopped = play.peers[0].connect(Some("echo"), "/tells");
        play.settle();
        play.worker.shutdown();
        let seconds = play.seconds_to_the_stop();
        assert!(seconds <= 5, "{seconds} seconds");
        assert_eq!((seen(), play.peers[0].answer(stopped).ended), (vec!["end".to_string()], true));
    });
}

/// Returns true if the worker waits for an event or for a later moment.
fn is_waiting(play: &mut Play) -> bool {
    play.worker.turn(None).expect("a turn");
    play.worker.driver().until().is_none_or(|until| until > play.network.now())
}

#[test]
fn tunnels_that_wait_for_their_windows_leave_the_worker_idle() {
    in_all_weathers(|weather| {
        let mut play = Play::new(app(), weather);
        // As many streams as the connection may have, each with a window of 8 bytes.
        play.connect(Bounds { stream_window: 8, ..Bounds::default() });
        play.peers[0].credits = false;
        play.settle();
        let streams: Vec<_> = (0..100).map(|_| play.peers[0].connect(Some("echo"), "/echo")).collect();
        play.settle();
        assert!(is_waiting(&mut play));
        streams.iter().for_each(|stream| play.peers[0].push(*stream, pattern(20), false));
        play.settle();
        assert!(streams.iter().all(|stream| play.peers[0].answer(*stream).body == pattern(20)[..8]));
        assert!(is_waiting(&mut play));
        assert_eq!(play.get("/hello").status, 200);
        // The rest follows when the windows open.
        play.peers[0].credits = true;
        let returned: Vec<_> = streams.iter().map(|stream| (*stream, 8)).collect();
        for (stream, used) in returned {
            let peer = &mut play.peers[0];
            peer.http.used(stream, used, &mut peer.out);
        }
        play.settle();
        assert!(streams.iter().all(|stream| play.peers[0].answer(*stream).body == pattern(20)));
        play.end();
    });
}
