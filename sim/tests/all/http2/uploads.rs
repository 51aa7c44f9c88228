//! Many uploads and answers on one HTTP/2 connection, in virtual time: their memory, their completeness, and the memory
//! that the peer's end frees.

use crate::peer::plain;
use crate::peer::{Play, SECOND, Weather, in_all_weathers};
use highwire::App;
use highwire::middleware::{Next, from_fn};
use highwire_proto::h2::Bounds;
use testkit::frames::{
    self, ACK, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, window_update,
};

const MIB: usize = 1 << 20;

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/large", || vec![b'x'; 4 * MIB])
        .get("/answer", || vec![b'x'; 64 * 1024])
        .post("/answer", |_: bytes::Bytes| vec![b'x'; 64 * 1024])
        .post("/whole", |body: bytes::Bytes| body.len().to_string())
}

#[test]
fn many_uploads_hold_little_and_all_arrive() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        let sizes = (0..100).map(|number| 60_000 + 1_000 * number);
        let streams: Vec<_> = sizes.map(|size| (size, play.peers[0].post("/whole", vec![b'x'; size]))).collect();
        for (size, stream) in streams {
            play.seconds_until(|play| play.peers[0].is_over(stream));
            assert_eq!(play.peers[0].answer(stream).whole(), (200, size.to_string()));
        }
        assert!(play.most < 4 * MIB, "the account reached {} bytes", play.most);
        play.end();
    });
}

#[test]
fn uploads_without_an_end_hold_little() {
    in_all_weathers(|weather| {
        let mut play = Play::with_peer(app(), weather);
        for _ in 0..100 {
            let stream = play.peers[0].ask("POST", "/whole", &[], false);
            play.peers[0].push(stream, vec![b'x'; 900_000], false);
        }
        play.pass(1);
        // The server may let one body arrive completely.
        assert!(play.most < 5 * MIB, "the account reached {} bytes", play.most);
        let stream = play.peers[0].post("/whole", vec![b'x'; 10]);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).whole(), (200, "10".to_string()), "others are served meanwhile");
    });
}

#[test]
fn answers_that_wait_for_windows_begin_and_all_arrive() {
    in_all_weathers(|weather| {
        let mut play = Play::new(app(), weather);
        let bounds = Bounds { stream_window: 0, connection_window: 1 << 30, ..Bounds::default() };
        play.connect(bounds);
        let peer = &mut play.peers[0];
        // The requests have a body or none, and get answers of 64 KiB.
        let asked: Vec<_> = (0..60)
            .map(|number| match number % 2 {
                0 => peer.get("/answer"),
                _ => peer.post("/answer", vec![b'x'; 100]),
            })
            .collect();
        play.settle();
        // All heads arrive before any body, because a client may send all requests before it opens windows.
        assert!(asked.iter().all(|stream| play.peers[0].answer(*stream).status == 200));
        for &stream in &asked {
            play.peers[0].credit(Some(stream), 64 * 1024);
            play.settle();
        }
        for stream in asked {
            assert_eq!(play.peers[0].answer(stream).whole().1.len(), 64 * 1024);
        }
        play.end();
    });
}

/// Encodes POST `/whole` without its body.
fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, b"\x83\x86\x04\x06/whole\x01\x01a")
}

/// Encodes GET `/large`.
fn get_large(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, b"\x82\x86\x04\x06/large\x01\x01a")
}

fn opening(acknowledges: bool) -> Vec<u8> {
    let acknowledgement = if acknowledges { frame(SETTINGS, ACK, 0, b"") } else { Vec::new() };
    [frames::opening(), acknowledgement].concat()
}

#[test]
fn the_peers_end_frees_unfinished_bodies_and_loses_no_answer() {
    let mut play = plain::Play::new(app());
    let idle = play.worker.account();
    let requests =
        [opening(true), post(1), post(3), frame(DATA, END_STREAM, 3, b"abc"), frame(DATA, 0, 1, &[b'x'; 16_000])]
            .concat();
    play.send(&requests);
    assert!(play.worker.account() > idle + 16_000, "the body is held");
    play.client.shutdown();
    play.settle(true);
    assert!(
        play.received.ends_with(b"3")
            || play.received.windows(10).any(|bytes| bytes == frame(DATA, END_STREAM, 3, b"3"))
    );
    assert!(play.worker.account() <= idle, "{} bytes are held for a peer that is gone", play.worker.account());
}

#[test]
fn a_client_that_never_acknowledges_settings_has_a_deadline_for_its_bodies() {
    let mut play = plain::Play::new(app());
    play.send(&opening(false));
    for stream in [1, 3, 5, 7] {
        play.send(&post(stream));
        for _ in 0..4 {
            play.send(&frame(DATA, 0, stream, &[b'x'; 16_000]));
        }
    }
    assert!(play.worker.account() > 200_000);
    for _ in 0..80 {
        play.settle(true);
        play.network.advance(SECOND);
    }
    play.settle(true);
    assert!(play.worker.account() < 64_000, "{} bytes are held after 80 s of silence", play.worker.account());
}

/// Returns the initial windows of streams that the server has announced so far, in bytes.
fn announced_windows(received: &[u8]) -> Vec<u32> {
    let settings = frames::frames(received).into_iter().filter(|frame| (frame.0, frame.1) == (SETTINGS, 0));
    let entries = settings.flat_map(|frame| frame.3.chunks_exact(6));
    entries.filter(|entry| entry[..2] == [0, 4]).map(|entry| frames::number(&entry[2..])).collect()
}

#[test]
fn many_unfinished_bodies_narrow_the_windows_of_new_streams_once() {
    let mut play = plain::Play::new(app());
    play.send(&opening(true));
    // Bodies that are complete do not count.
    for stream in (1..40).step_by(2) {
        play.send(&[post(stream), frame(DATA, END_STREAM, stream, b"abc")].concat());
    }
    // The oldest body does not count. A quarter of 16 MiB, at most 1 MiB, is for the others: 15 with 64 KiB each leave room for
    // one more.
    for stream in (41..73).step_by(2) {
        play.send(&post(stream));
    }
    assert_eq!(announced_windows(&play.received), [64 * 1024]);
    for stream in (73..120).step_by(2) {
        play.send(&post(stream));
    }
    assert_eq!(announced_windows(&play.received), [64 * 1024, 4 * 1024]);
}

#[test]
fn bodies_that_are_read_in_parts_and_tunnels_get_wide_windows_on_a_narrowed_connection() {
    let parts = async |mut body: highwire::Body| while let Some(Ok(_)) = body.next().await {};
    let tunnel = |upgrade: highwire::Upgrade| {
        upgrade.accept("echo", async |mut stream| while let Ok(Some(_)) = stream.read().await {})
    };
    let mut play = plain::Play::new(app().post("/parts", parts).get("/tunnel", tunnel));
    play.send(&opening(true));
    for stream in (1..60).step_by(2) {
        play.send(&post(stream));
    }
    play.send(&frame(SETTINGS, ACK, 0, b""));
    assert_eq!(announced_windows(&play.received).len(), 2);
    let fields = [(":scheme", "http"), (":authority", "a")];
    let parts = [&[(":method", "POST"), (":path", "/parts")][..], &fields].concat();
    let tunnel = [&[(":method", "CONNECT"), (":protocol", "echo"), (":path", "/tunnel")][..], &fields].concat();
    play.send(&[frames::headers(0, 101, &parts), frames::headers(0, 103, &tunnel)].concat());
    for stream in [101, 103] {
        let updates =
            frames::frames(&play.received).into_iter().filter(|frame| (frame.0, frame.2) == (WINDOW_UPDATE, stream));
        let wider: Vec<u32> = updates.map(|frame| frames::number(frame.3)).collect();
        assert_eq!(wider, [60 * 1024], "stream {stream}");
    }
}

#[test]
fn a_client_that_never_acknowledges_the_second_settings_holds_little() {
    let mut play = plain::Play::new(app());
    play.send(&opening(true));
    let idle = play.worker.account();
    for stream in (1..100).step_by(2) {
        play.send(&post(stream));
    }
    assert_eq!(announced_windows(&play.received).len(), 2);
    // The client uses the wide windows of the last streams as far as the connection's window allows.
    let mut left: u32 = 65_535;
    let updates = |play: &plain::Play| {
        let frames = frames::frames(&play.received);
        let own = frames.iter().filter(|frame| (frame.0, frame.2) == (WINDOW_UPDATE, 0));
        own.map(|frame| frames::number(frame.3)).sum::<u32>()
    };
    left += updates(&play);
    for stream in (61..100).step_by(2).rev() {
        for _ in 0..4 {
            let part = left.min(16_000);
            if part > 0 {
                play.send(&frame(DATA, 0, stream, &vec![b'x'; part as usize]));
            }
            left -= part;
        }
    }
    assert_eq!(left, 0);
    assert!(updates(&play) < 256 * 1024, "the connection's window is not given back");
    let held = play.worker.account() - idle;
    assert!((256 * 1024..1024 * 1024).contains(&held), "{held} bytes are held");
    play.send(&frame(SETTINGS, ACK, 0, b""));
    assert!(updates(&play) > 256 * 1024, "the connection's window is given back");
    // The windows of the last streams are negative now, because no room is left to widen them.
    play.send(&frame(DATA, 0, 97, b"x"));
    assert!(
        frames::frames(&play.received).iter().any(|frame| (frame.0, frame.2) == (RST_STREAM, 97)),
        "no room is left"
    );
}

#[test]
fn a_body_that_waits_for_its_handler_is_not_slow_while_windows_are_narrowed() {
    let late = async |mut body: highwire::Body| {
        highwire::time::sleep(std::time::Duration::from_secs(70)).await;
        let mut bytes = 0;
        while let Some(part) = body.next().await {
            bytes += part.expect("a part").len();
        }
        bytes.to_string()
    };
    let app =
        app().post("/late", late).configure(|config| config.timeouts.handler = std::time::Duration::from_secs(600));
    let mut play = plain::Play::new(app);
    play.send(&opening(true));
    play.send(&frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x04\x05/late\x01\x01a"));
    for _ in 0..4 {
        play.send(&frame(DATA, 0, 1, &[b'x'; 16 * 1024]));
    }
    let pass = |play: &mut plain::Play, seconds: u64| {
        for _ in 0..seconds {
            play.settle(true);
            play.network.advance(SECOND);
        }
        play.settle(true);
    };
    // The second period of 30 s in which a body is judged is nearly over.
    pass(&mut play, 59);
    // The client sends many bodies at once, and acknowledges the second SETTINGS late.
    for stream in (3..43).step_by(2) {
        play.send(&post(stream));
    }
    assert_eq!(announced_windows(&play.received).len(), 2);
    pass(&mut play, 3);
    play.send(&frame(SETTINGS, ACK, 0, b""));
    pass(&mut play, 10);
    play.send(&frame(DATA, END_STREAM, 1, b"end"));
    pass(&mut play, 1);
    let answer = (64 * 1024 + 3).to_string().into_bytes();
    let has = |kind: u8, payload: &[u8]| {
        frames::frames(&play.received).iter().any(|frame| (frame.0, frame.2, frame.3) == (kind, 1, payload))
    };
    assert!(has(DATA, &answer), "the late handler has read all");
}

#[test]
fn a_peer_that_neither_reads_nor_sends_keeps_no_worker_busy() {
    let mut play = plain::Play::new(app());
    play.client.send(&[opening(true), window_update(0, 1 << 30), post(1), get_large(3)].concat());
    play.client.send(&window_update(3, 1 << 30));
    for second in 0..30 {
        play.settle(false);
        play.worker.turn(None).expect("a turn");
        let (now, until) = (play.network.now(), play.worker.driver().until());
        assert!(until.is_none_or(|until| until > now), "at {second} s the worker does not wait");
        play.network.advance(SECOND);
    }
}

#[test]
fn an_answer_that_a_request_did_not_get_is_no_answer_to_the_next() {
    let through = async |request, next: Next| next.run(request).await;
    let mut play = plain::Play::new(app().with(from_fn(through)));
    play.send(
        b"PUT /hello HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 99999999\r\n\r\n",
    );
    play.settle(true);
    assert_eq!(play.status(), "413");
    let second = play.network.connect();
    second.send(b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
    play.settle(false);
    let Some(highwire_io::sim::Arrived::Bytes(answer)) = second.receive(usize::MAX) else { panic!("nothing arrived") };
    assert!(answer.starts_with(b"HTTP/1.1 404 "), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn connections_of_a_flood_that_are_cut_at_the_end_leave_no_hole() {
    let mut play = Play::new(app(), &Weather::fair());
    let clients: Vec<_> = (0..1500).map(|_| play.network.connect()).collect();
    play.settle();
    let kept = clients.into_iter().next();
    play.settle();
    assert_eq!(play.worker.connections(), 1);
    play.worker.abort();
    play.settle();
    assert_eq!(play.worker.connections(), 0);
    drop(kept);
}
