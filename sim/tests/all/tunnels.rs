//! Tunnels of other protocols, in virtual time, opened in four ways: Upgrade and CONNECT over HTTP/1, CONNECT and
//! extended CONNECT over HTTP/2. Most tests play all four.

use crate::peer::seen::{see, seen};
use crate::peer::tunnel::Peer;
use crate::peer::{SECOND, plain};
use highwire::{App, Ended, Method, RawStream, Upgrade};
use std::future::Future;
use std::time::Duration;

/// Returns an app that accepts a protocol for GET `/` and for CONNECT.
fn app<Fut: Future<Output = ()> + 'static>(task: fn(RawStream) -> Fut) -> App {
    let accept = move |upgrade: Upgrade| upgrade.accept("test", task);
    App::new().configure(|config| config.timeouts.tunnel = 20 * SECOND).get("/", accept).route(
        Method::CONNECT,
        "/",
        accept,
    )
}

/// Records the bytes that it reads and the reason for each end.
async fn tell(stream: RawStream) {
    let (mut reader, writer) = stream.split();
    loop {
        match reader.read().await {
            Ok(Some(bytes)) => see(String::from_utf8_lossy(&bytes)),
            Ok(None) => see(format!("{:?}", reader.ended())),
            Err(_) => see("broken"),
        }
        if matches!(reader.ended(), Some(Ended::Peer | Ended::Broken)) {
            break drop(writer);
        }
    }
}

#[test]
fn one_direction_ends_before_the_other() {
    async fn task(stream: RawStream) {
        let (mut reader, mut writer) = stream.split();
        writer.write("first and last").await.expect("a successful write");
        drop(writer);
        while let Ok(Some(bytes)) = reader.read().await {
            see(String::from_utf8_lossy(&bytes));
        }
        see(format!("{:?}", reader.ended()));
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        assert_eq!(peer.heard(), (b"first and last".to_vec(), Some("end")), "{name}");
        assert!(seen().is_empty(), "{name}");
        for part in ["one", "two"] {
            peer.pass(15);
            peer.say(part.as_bytes());
            assert_eq!(seen(), [part], "{name}");
        }
        peer.end();
        assert_eq!(seen(), ["Some(Peer)"], "{name}");
        assert_eq!(peer.heard().1, Some("end"), "{name}");
    }
}

#[test]
fn the_other_direction_goes_on_after_the_peers_end() {
    async fn task(mut stream: RawStream) {
        while let Ok(Some(_)) = stream.read().await {}
        see(format!("{:?}", stream.ended()));
        for _ in 0..100 {
            stream.write(vec![b'x'; 1000]).await.expect("a successful write");
        }
        stream.flush().await.expect("a successful flush");
        see("flushed");
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.say(b"question");
        peer.end();
        peer.pass(3);
        assert_eq!(seen(), ["Some(Peer)", "flushed"], "{name}");
        assert_eq!((peer.heard().0.len(), peer.heard().1), (100_000, Some("end")), "{name}");
    }
}

#[test]
fn small_and_large_writes_keep_their_order() {
    async fn task(mut stream: RawStream) {
        for number in 0..200_u32 {
            let length = if number % 50 == 49 { 40_000 } else { number as usize };
            stream.write(vec![number as u8; length]).await.expect("a successful write");
        }
        stream.flush().await.expect("a successful flush");
        see("flushed");
        let _ = stream.read().await;
    }
    let expected: Vec<u8> = (0..200_u32)
        .flat_map(|number| vec![number as u8; if number % 50 == 49 { 40_000 } else { number as usize }])
        .collect();
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.pass(2);
        let (heard, end) = peer.heard();
        assert!(heard == expected && end.is_none(), "{name}: {} of {} bytes, {end:?}", heard.len(), expected.len());
    }
    assert_eq!(seen(), ["flushed"; 4]);
}

#[test]
fn a_stop_leaves_time_for_a_last_word_and_its_answer() {
    async fn task(mut stream: RawStream) {
        while let Ok(Some(bytes)) = stream.read().await {
            see(String::from_utf8_lossy(&bytes));
        }
        see(format!("{:?}", stream.ended()));
        stream.write("goodbye").await.expect("a successful write");
        see(String::from_utf8_lossy(&stream.read().await.expect("no break").expect("an answer")));
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.say(b"hello");
        peer.worker().shutdown();
        peer.pass(1);
        assert_eq!(peer.heard(), (b"goodbye".to_vec(), None), "{name}");
        peer.say(b"and you");
        peer.pass(3);
        assert_eq!(seen(), ["hello", "Some(Draining)", "and you"], "{name}");
        assert_eq!(peer.heard().1, Some("end"), "{name}");
    }
}

#[test]
fn a_tunnel_through_which_nothing_passes_is_ended() {
    async fn task(mut stream: RawStream) {
        while let Ok(Some(bytes)) = stream.read().await {
            if stream.write(bytes).await.is_err() {
                return;
            }
        }
        see(format!("{:?}", stream.ended()));
        let _ = stream.write("idle").await;
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        for _ in 0..4 {
            peer.pass(15);
            peer.say(b".");
        }
        assert_eq!((peer.heard(), peer.worker().stats().cut), ((b"....".to_vec(), None), 0), "{name}");
        peer.pass(19);
        assert!(seen().is_empty(), "{name}");
        peer.pass(4);
        assert_eq!(seen(), ["Some(Idle)"], "{name}");
        assert_eq!(peer.heard(), (b"....idle".to_vec(), Some("end")), "{name}");
        assert!(peer.worker().stats().cut > 0, "{name}");
    }
}

#[test]
fn whoever_ignores_that_nothing_passes_is_cut() {
    async fn task(stream: RawStream) {
        std::future::pending::<()>().await;
        drop(stream);
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.pass(19);
        assert_eq!(peer.heard(), (Vec::new(), None), "{name}");
        peer.pass(4);
        assert!(peer.heard().1.is_some(), "{name}");
        assert_eq!(peer.worker().tasks(), 0, "{name}");
    }
}

#[test]
fn a_task_that_stays_after_the_peers_end_is_cut_too() {
    async fn task(mut stream: RawStream) {
        while let Ok(Some(_)) = stream.read().await {}
        see(format!("{:?}", stream.ended()));
        std::future::pending::<()>().await;
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.end();
        peer.pass(19);
        assert_eq!((peer.heard(), seen()), ((Vec::new(), None), vec!["Some(Peer)".into()]), "{name}");
        peer.pass(4);
        assert!(peer.heard().1.is_some(), "{name}");
        assert_eq!(peer.worker().tasks(), 0, "{name}");
    }
}

#[test]
fn without_linger_a_finished_tunnel_does_not_wait_for_the_peers_end() {
    async fn task(_: RawStream) {}
    for (name, mut peer) in Peer::all(|| app(task).configure(|config| config.timeouts.linger = Duration::ZERO)) {
        peer.pass(1);
        assert_eq!(peer.heard().1, Some("end"), "{name}");
        match &peer {
            Peer::Http1(play) => assert_eq!(play.worker.connections(), 0, "{name}"),
            Peer::Http2(play, stream) => assert!(play.peers[0].answer(*stream).reset.is_some(), "{name}"),
        }
    }
}

#[test]
fn bytes_that_nobody_reads_do_not_stop_the_writer() {
    async fn task(stream: RawStream) {
        let (reader, mut writer) = stream.split();
        drop(reader);
        for _ in 0..30 {
            highwire::time::sleep(SECOND).await;
            writer.write("tick ").await.expect("a successful write");
        }
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        for _ in 0..31 {
            peer.say(&[b'x'; 10_000]);
            peer.pass(1);
        }
        assert_eq!((peer.heard().0.len(), peer.heard().1), (150, Some("end")), "{name}");
    }
}

#[test]
fn a_task_goes_on_after_both_directions_have_ended() {
    async fn task(stream: RawStream) {
        let (mut reader, writer) = stream.split();
        drop(writer);
        while let Ok(Some(bytes)) = reader.read().await {
            see(String::from_utf8_lossy(&bytes));
        }
        see(format!("{:?}", reader.ended()));
        highwire::time::sleep(5 * SECOND).await;
        see("done");
        drop(reader);
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.say(b"one");
        peer.end();
        assert_eq!(seen(), ["one", "Some(Peer)"], "{name}");
        if let Peer::Http2(play, _) = &mut peer {
            // Other streams take the place of the closed one in the server's table.
            for _ in 0..3 {
                let stream = play.peers[0].connect(Some("test"), "/");
                play.peers[0].push(stream, b"two".to_vec(), false);
                play.settle();
                assert_eq!(seen(), ["two"], "{name}");
                play.peers[0].reset(stream);
                play.settle();
            }
        }
        peer.pass(6);
        assert_eq!(seen(), ["done"], "{name}");
        assert_eq!(peer.heard().1, Some("end"), "{name}");
    }
}

#[test]
fn halves_in_tasks_of_their_own_hear_that_nothing_passes() {
    async fn task(stream: RawStream) {
        let (mut reader, mut writer) = stream.split();
        let read = async move {
            while let Ok(Some(_)) = reader.read().await {}
            see(format!("{:?}", reader.ended()));
            writer.write("last").await.expect("a successful write");
        };
        highwire::spawn(read);
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.pass(23);
        assert_eq!(seen(), ["Some(Idle)"], "{name}");
        assert_eq!(peer.heard(), (b"last".to_vec(), Some("end")), "{name}");
    }
}

#[test]
fn a_flush_that_waits_for_a_slow_peer_costs_no_polls() {
    thread_local! {
        static POLLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    async fn task(mut stream: RawStream) {
        stream.write(vec![b'x'; 300_000]).await.expect("a successful write");
        let mut flush = std::pin::pin!(stream.flush());
        std::future::poll_fn(|cx| {
            POLLS.set(POLLS.get() + 1);
            flush.as_mut().poll(cx)
        })
        .await
        .expect("a successful flush");
        see("flushed");
        std::future::pending::<()>().await;
    }
    let mut play = plain::Play::new(app(task));
    play.client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n");
    play.settle(false);
    play.settle(false);
    assert!(seen().is_empty() && (1..20).contains(&POLLS.get()), "{} polls", POLLS.get());
    play.settle(true);
    assert_eq!((seen(), play.received.ends_with(&[b'x'; 15_000])), (vec!["flushed".to_string()], true));
}

#[test]
fn small_writes_are_not_far_ahead_of_a_peer_that_does_not_read() {
    thread_local! {
        static WRITTEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    async fn task(mut stream: RawStream) {
        while stream.write("a few bytes").await.is_ok() {
            WRITTEN.set(WRITTEN.get() + 11);
        }
    }
    let mut play = plain::Play::new(app(task));
    play.client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n");
    play.settle(false);
    play.settle(false);
    let (written, waiting) = (WRITTEN.get(), play.worker.account());
    assert!(written < 600_000 && (10_000..400_000).contains(&waiting), "{written} bytes written, {waiting} wait");
}

#[test]
fn the_reader_hears_of_each_end_once() {
    for (name, mut peer) in Peer::all(|| app(tell)) {
        peer.say(b"one");
        peer.worker().shutdown();
        peer.pass(1);
        peer.say(b"two");
        peer.end();
        assert_eq!(seen(), ["one", "Some(Draining)", "two", "Some(Peer)"], "{name}");
        peer.pass(3);
        assert_eq!(peer.heard().1, Some("end"), "{name}");
    }
}

#[test]
fn incomplete_bytes_are_followed_by_a_reset() {
    async fn task(stream: RawStream) {
        let (mut reader, mut writer) = stream.split();
        writer.write("a part").await.expect("a successful write");
        writer.cut_when_dropped(true);
        let _ = reader.read().await;
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        assert_eq!(peer.heard(), (b"a part".to_vec(), None), "{name}");
        peer.say(b"go");
        assert_eq!(peer.heard(), (b"a part".to_vec(), Some("reset")), "{name}");
        assert_eq!(peer.worker().tasks(), 0, "{name}");
    }
}

#[test]
fn bytes_that_were_just_written_arrive_before_an_end() {
    async fn task(stream: RawStream) {
        let (mut reader, mut writer) = stream.split();
        let _ = reader.read().await;
        writer.cut_when_dropped(true);
        writer.write("last words").await.expect("a successful write");
    }
    for (name, mut peer) in Peer::all(|| app(task)) {
        peer.say(b"go");
        assert_eq!(peer.heard(), (b"last words".to_vec(), Some("end")), "{name}");
    }
}
