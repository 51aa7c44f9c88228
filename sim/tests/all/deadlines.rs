//! Slow and greedy HTTP/1 peers, in virtual time. Most tests check that a wait ends after its documented timeout.

use crate::peer::SECOND;
use crate::peer::plain::Play;
use highwire::{App, Body, Reply, Response, StatusCode, Upgrade, body};
use highwire_io::sim::Arrived;

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .post("/whole", |body: bytes::Bytes| body)
        .post("/parts", async |body: Body| {
            body.collect(1 << 30).await.map(|bytes| bytes.len().to_string()).map_err(|_| StatusCode::BAD_REQUEST)
        })
        .get("/never", async || std::future::pending::<&str>().await)
        .get("/forgotten", |reply: Reply| drop(reply))
        .get("/kept", |reply: Reply| std::mem::forget(reply))
        .get("/endless", || {
            let (mut sender, receiver) = body::channel();
            highwire::spawn(async move { while sender.send(vec![b'x'; 8192]).await.is_ok() {} });
            Response::stream(receiver)
        })
}

#[test]
fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let mut play = Play::new(app());
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert_eq!((seconds, play.received.len(), play.ended), (15, 0, Some(Arrived::End)));
}

#[test]
fn a_head_that_drips_in_gets_408_however_often_a_byte_comes() {
    let mut play = Play::new(app());
    let seconds = play.seconds_to_the_end(true, |play| play.send(b"x"));
    assert_eq!((seconds, play.status()), (15, "408"));
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_not_before() {
    let mut play = Play::new(app());
    play.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert_eq!((seconds, play.status(), play.ended.clone()), (75, "200", Some(Arrived::End)));
}

#[test]
fn a_body_that_stops_or_drips_gets_408() {
    for path in ["/whole", "/parts"] {
        for drip in [&b""[..], b"x"] {
            let mut play = Play::new(app());
            play.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\nabc").as_bytes());
            let seconds = play.seconds_to_the_end(true, |play| play.send(drip));
            assert_eq!((seconds, play.status()), (30, "408"), "{path} {drip:?}");
        }
    }
}

#[test]
fn a_slow_body_that_is_fast_enough_arrives() {
    let mut play = Play::new(app());
    play.send(b"POST /whole HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 60000\r\n\r\n");
    let mut left = 60_000;
    play.seconds_to_the_end(true, |play| {
        let part = 600.min(left);
        left -= part;
        play.send(&vec![b'x'; part]);
    });
    assert_eq!(play.status(), "200");
}

#[test]
fn a_handler_that_never_answers_is_503() {
    for path in ["/never", "/kept"] {
        let mut play = Play::new(app());
        play.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let seconds = play.seconds_to_the_end(true, |_| {});
        assert_eq!((seconds, play.status()), (60, "503"), "{path}");
    }
}

#[test]
fn a_reply_that_is_dropped_is_500() {
    let mut play = Play::new(app());
    play.send(b"GET /forgotten HTTP/1.1\r\nHost: a\r\n\r\n");
    play.settle(true);
    assert_eq!(play.status(), "500");
}

#[test]
fn a_peer_that_does_not_read_is_cut_and_its_producer_stopped() {
    let mut play = Play::new(app());
    play.client.send(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    let seconds = play.seconds_to_the_end(false, |_| {});
    assert_eq!(seconds, 60);
    play.settle(false);
    assert_eq!(play.worker.tasks(), 0, "the task that wrote the body has ended");
}

#[test]
fn a_peer_that_reads_slowly_is_served_to_the_end() {
    let mut play = Play::new(app());
    play.client.send(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..300 {
        play.settle(false);
        let Some(Arrived::Bytes(_)) = play.client.receive(500) else { panic!("the server cut the connection") };
        play.network.advance(SECOND);
    }
    assert_eq!(play.worker.connections(), 1);
}

#[test]
fn a_tunnel_that_flows_has_no_end_and_one_that_stands_has() {
    let app = App::new().get("/flood", |upgrade: Upgrade| {
        upgrade.accept("flood", async |mut stream| while stream.write(vec![b'x'; 65_536]).await.is_ok() {})
    });
    let mut play = Play::new(app);
    // The link takes the driver's bytes at once whenever the client has read some, so the driver never keeps unsent
    // bytes.
    play.network.hold(128 * 1024);
    play.client.send(b"GET /flood HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: flood\r\n\r\n");
    for second in 0..150 {
        play.settle(false);
        if second % 2 == 0 {
            let taken = play.client.receive(65_536);
            assert!(matches!(taken, Some(Arrived::Bytes(_))), "{taken:?} after {second} seconds");
        }
        play.network.advance(SECOND);
    }
    assert_eq!(play.seconds_to_the_end(false, |_| {}), 59);
}

#[test]
fn pipelining_without_reading_stops_the_reading_and_memory_stays_bounded() {
    let mut play = Play::new(app());
    let requests = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let mut most = 0;
    for _ in 0..200 {
        play.client.send(&requests);
        play.settle(false);
        most = most.max(play.worker.account());
    }
    assert!(most < 256 * 1024, "the account reached {most} bytes");
}

#[test]
fn answers_that_the_peer_does_not_take_are_in_the_account() {
    for ends in [false, true] {
        let mut play = Play::new(app());
        // These are enough requests for one turn, on a link that holds only a few answers.
        let asked = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n".repeat(80);
        assert_eq!(play.client.send(&asked), asked.len());
        play.network.hold(1024);
        if ends {
            play.client.shutdown();
        }
        play.settle(false);
        let account = play.worker.account();
        // The network holds the bytes on the link; the server holds all others.
        let Some(Arrived::Bytes(on_the_way)) = play.client.receive(usize::MAX) else { panic!("nothing arrived") };
        play.settle(true);
        assert_eq!((play.received.len() + on_the_way.len()) % 80, 0, "not 80 equal answers");
        assert!(play.received.len() > 8 * 1024, "too few bytes waited in the server: {}", play.received.len());
        assert!(account >= play.received.len(), "{account} bytes for {} bytes, ended: {ends}", play.received.len());
    }
}

#[test]
fn a_stream_of_any_length_passes_through_a_small_budget() {
    let app = app().configure(|config| config.memory = Some(256 * 1024)).get("/long", || {
        let (mut sender, receiver) = body::channel();
        highwire::spawn(async move {
            for _ in 0..1000 {
                if sender.send(vec![b'x'; 20_000]).await.is_err() {
                    return;
                }
            }
            sender.finish();
        });
        Response::stream(receiver)
    });
    let mut play = Play::new(app);
    play.client.send(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..1000 {
        play.settle(true);
    }
    assert_eq!(play.ended, None);
    assert!(play.received.len() > 1000 * 20_000, "only {} bytes arrived", play.received.len());
    assert!(play.received.ends_with(b"\r\n0\r\n\r\n"));
}

#[test]
fn a_body_that_nobody_takes_does_not_end_the_handler_that_works() {
    let app = app().configure(|config| config.limits.unread_body_bytes = 1000).post("/slow", async || {
        highwire::time::sleep(30 * SECOND).await;
        "done"
    });
    let mut play = Play::new(app);
    play.send(b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..10 {
        play.send(&[b"400\r\n".to_vec(), vec![b'x'; 0x400], b"\r\n".to_vec()].concat());
    }
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert_eq!((play.status(), seconds), ("200", 30), "{}", String::from_utf8_lossy(&play.received));
}

#[test]
fn an_error_behind_a_head_request_has_its_body() {
    let mut play = Play::new(app());
    play.send(b"HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    play.settle(true);
    play.received.clear();
    play.send(b"GET nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    play.settle(true);
    let text = String::from_utf8_lossy(&play.received).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    assert!(
        head.to_ascii_lowercase().contains(&format!("content-length: {}", body.len())) && !body.is_empty(),
        "{text}"
    );
}

#[test]
fn bodies_that_handlers_hold_are_in_the_account() {
    for path in ["/hold", "/hold-parts"] {
        let app = app()
            .post("/hold", async |_: bytes::Bytes| std::future::pending::<&str>().await)
            .post("/hold-parts", async |_body: Body| std::future::pending::<&str>().await);
        let mut play = Play::new(app);
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n").into_bytes();
        play.send(&[head, vec![b'x'; 9000]].concat());
        play.settle(true);
        assert!(play.worker.account() >= 9000, "{path}: {}", play.worker.account());
    }
}

#[test]
fn what_does_not_fit_the_budget_is_refused_and_given_back() {
    let app = app().configure(|config| {
        config.memory = Some(256 * 1024);
        config.limits.body_bytes = 1 << 30;
    });
    let mut play = Play::new(app);
    play.send(b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    play.settle(true);
    assert_eq!(play.status(), "413", "a body that can never fit");
    let mut play = Play::new(self::app().configure(|config| {
        config.memory = Some(256 * 1024);
        config.limits.body_bytes = 1 << 30;
    }));
    play.send(b"POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat();
    for _ in 0..40 {
        play.send(&chunk);
    }
    play.settle(true);
    assert_eq!(play.status(), "503", "a body that does not fit now");
    assert!(String::from_utf8_lossy(&play.received).contains("retry-after: 1"));
    play.client.shutdown();
    for _ in 0..10 {
        play.network.advance(SECOND);
        play.settle(true);
    }
    assert_eq!((play.worker.connections(), play.worker.account()), (0, 0));
}

#[test]
fn a_peer_with_too_many_connections_is_told_so() {
    let app = app().configure(|config| config.limits.connections_a_peer = 0);
    let mut play = Play::new(app);
    play.settle(true);
    assert_eq!(play.status(), "503");
}
