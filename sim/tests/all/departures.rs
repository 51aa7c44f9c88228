//! Clients that leave while their requests are handled or while messages wait for them, servers that are full, and streams and heads that a shutdown meets,
//! in virtual time.

use crate::peer;
use crate::peer::plain::Play;
use crate::peer::seen::{see, seen};
use crate::peer::websocket::{KEY, request};
use crate::peer::{SECOND, in_all_weathers};
use highwire::sse::{self, Event};
use highwire::ws::{Message, WebSocket, WebSocketUpgrade};
use highwire::{App, Disconnect, OnDisconnect, blocking, time};
use highwire_io::sim::{Arrived, Client};

/// Records its end.
struct Guard(&'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        see(format!("the {} ends", self.0));
    }
}

fn app() -> App {
    App::new()
        .get("/hello", || "hello")
        .get("/never", async || {
            let _guard = Guard("handler");
            std::future::pending::<&str>().await
        })
        .get("/goes-on", async |disconnect: Disconnect| {
            disconnect.set(OnDisconnect::GoOn);
            time::sleep(3 * SECOND).await;
            "it is done"
        })
        .get("/hears", async |disconnect: Disconnect| {
            disconnect.disconnected().await;
            assert!(disconnect.is_disconnected());
            "you have left"
        })
        .get("/at-once", async |disconnect: Disconnect| {
            let _guard = Guard("handler");
            disconnect.set(OnDisconnect::CancelAtOnce);
            std::future::pending::<&str>().await
        })
        .get("/events", || {
            let (mut events, response) = sse::channel();
            highwire::spawn(async move {
                let _guard = Guard("stream");
                let _ = events.send(Event::new("first")).await;
                // Ends when the client is gone.
                while events.send(Event::new("another")).await.is_ok() {
                    time::sleep(50 * SECOND).await;
                }
            });
            response
        })
}

const FIELDS: &[u8] = b" HTTP/1.1\r\nHost: a\r\n\r\n";

fn get(path: &str) -> Vec<u8> {
    [b"GET ", path.as_bytes(), FIELDS].concat()
}

/// Sends a request, ends the client's direction, and returns the seconds until the connection ends, and the response.
fn leave(path: &str) -> (u64, String) {
    let mut play = Play::new(app());
    play.send(&get(path));
    play.client.shutdown();
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert_eq!((play.worker.connections(), play.worker.tasks()), (0, 0), "{path}");
    (seconds, String::from_utf8_lossy(&play.received).into_owned())
}

#[test]
fn a_handler_whose_client_has_ended_its_direction_is_cancelled_after_a_second() {
    let (seconds, response) = leave("/never");
    assert_eq!((seconds, &response[..13]), (1, "HTTP/1.1 499 "));
    assert_eq!(seen(), ["the handler ends"]);
}

#[test]
fn what_is_ready_is_still_sent() {
    let (seconds, response) = leave("/hello");
    assert!(seconds == 0 && response.ends_with("\r\n\r\nhello"), "{seconds} seconds: {response}");
}

#[test]
fn a_handler_chooses_what_happens_when_its_client_leaves() {
    let (seconds, response) = leave("/goes-on");
    assert!(seconds == 3 && response.ends_with("it is done"), "{seconds} seconds: {response}");
    let (seconds, response) = leave("/hears");
    assert!(seconds == 0 && response.ends_with("you have left"), "{seconds} seconds: {response}");
    let (seconds, response) = leave("/at-once");
    assert_eq!((seconds, &response[..13]), (0, "HTTP/1.1 499 "));
    assert_eq!(seen(), ["the handler ends"]);
}

#[test]
fn a_silent_stream_ends_when_its_client_has_left() {
    let mut play = Play::new(app());
    play.send(&get("/events"));
    play.client.shutdown();
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert_eq!((seconds, play.status()), (1, "200"));
    // Its task learns of it with the next event.
    play.network.advance(50 * SECOND);
    play.settle(true);
    assert_eq!(seen(), ["the stream ends"]);
}

#[test]
fn a_blocking_job_that_has_not_begun_does_not_begin_when_its_client_has_left() {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let ran = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = ran.clone();
    let app = App::new().configure(|config| config.limits.blocking_threads = 1).get(
        "/job",
        blocking(move || {
            let _ = gate.lock().expect("no panic").recv();
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            "done"
        }),
    );
    let mut play = Play::new(app);
    let first = play.network.connect();
    first.send(&get("/job"));
    play.settle(true);
    // The only thread has begun the first job, at the latest when it is released.
    play.send(&get("/job"));
    play.client.shutdown();
    let seconds = play.seconds_to_the_end(true, |_| {});
    assert!(seconds <= 1 && play.status() == "499", "{seconds} seconds, {}", play.status());
    release.send(()).expect("the first job waits");
    // `Work` that was given up holds no gate: the pool is idle when the first answer has come.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let answer = loop {
        play.settle(true);
        match first.receive(usize::MAX) {
            Some(Arrived::Bytes(bytes)) => break bytes,
            _ => assert!(std::time::Instant::now() < until, "no answer"),
        }
    };
    assert!(answer.ends_with(b"done"));
    drop(release);
    assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn the_end_of_an_http2_connection_ends_its_requests_at_once() {
    in_all_weathers(|weather| {
        let mut play = peer::Play::with_peer(app(), weather);
        play.settle();
        let (ready, never) = (play.peers[0].get("/hello"), play.peers[0].get("/never"));
        play.settle();
        assert!(play.peers[0].answer(ready).ended && !play.peers[0].answer(never).ended);
        play.peers[0].client.shutdown();
        play.settle();
        assert_eq!(seen(), ["the handler ends"]);
        assert_eq!(play.worker.connections(), 0);
    });
}

/// Returns true if a client has got an answer, and reads what has come.
fn is_answered(client: &Client) -> bool {
    matches!(client.receive(usize::MAX), Some(Arrived::Bytes(bytes)) if bytes.starts_with(b"HTTP/1.1 200 "))
}

#[test]
fn a_full_server_closes_the_connections_that_are_idle_for_the_longest_time() {
    let mut play = Play::new(app().configure(|config| config.limits.connections = Some(3)));
    play.send(&get("/hello"));
    let others = [(); 2].map(|()| {
        play.network.advance(SECOND);
        let client = play.network.connect();
        client.send(&get("/never"));
        play.settle(true);
        client
    });
    let late = play.network.connect();
    late.send(&get("/hello"));
    play.settle(true);
    assert!(is_answered(&late), "the newcomer is served");
    assert_eq!(play.ended, Some(Arrived::End), "the idle connection is closed");
    assert!(others.iter().all(|client| client.receive(usize::MAX).is_none()), "those that wait for an answer stay");
    // Nobody has been idle for a second.
    let later = play.network.connect();
    later.send(&get("/hello"));
    play.settle(true);
    assert!(later.receive(usize::MAX).is_none() && play.worker.connections() == 3);
    play.network.advance(SECOND);
    play.settle(true);
    play.network.advance(SECOND);
    play.settle(true);
    assert!(is_answered(&later));
}

#[test]
fn a_shutdown_ends_event_streams_and_waits_little_for_heads() {
    let mut play = Play::new(app());
    play.send(&get("/events"));
    let half = play.network.connect();
    half.send(b"GET /hello HTTP/1.1\r\nHo");
    play.settle(true);
    play.worker.shutdown();
    play.settle(true);
    assert!(play.received.ends_with(b"0\r\n\r\n"), "the stream has an end");
    let mut seconds = 0;
    while play.worker.connections() > 0 && seconds < 30 {
        play.network.advance(SECOND);
        play.settle(true);
        seconds += 1;
    }
    assert!(seconds <= 4, "{seconds} seconds");
}

/// A peer that ends its direction and takes nothing more once kept what was queued for it for the write timeout. (Linux lets a
/// socket that was closed with a window of zero answer probes of the window for a minute.)
#[test]
fn what_waits_for_a_peer_that_has_ended_its_direction_is_dropped() {
    async fn floods(socket: WebSocket) {
        let (sender, mut receiver) = socket.split();
        while sender.try_send(Message::binary(vec![b'x'; 10_000])).is_ok() {}
        while let Some(Ok(_)) = receiver.recv().await {}
    }
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let mut play = Play::new(App::new().ws("/", floods));
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    assert!(play.worker.account() > 10_000, "messages wait for the client");
    play.client.shutdown();
    assert!(play.seconds_to_the_end(false, |_| {}) <= 3);
    assert_eq!(play.worker.account(), 0);
}

/// An earlier alarm of the task, such as that of a Ping, once counted as the deadline of such a peer.
#[test]
fn a_peer_that_has_ended_its_direction_has_its_time_beside_the_alarms_of_the_task() {
    async fn floods(socket: WebSocket) {
        let (sender, mut receiver) = socket.split();
        // More than the link takes, and few enough for one send, after which receiving is paused.
        for _ in 0..30 {
            sender.try_send(Message::binary(vec![b'x'; 1_000])).expect("room for it");
        }
        while let Some(Ok(_)) = receiver.recv().await {}
    }
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let upgrade = |upgrade: WebSocketUpgrade| upgrade.ping_interval(SECOND / 2).on_upgrade(floods);
    let mut play = Play::new(App::new().get("/", upgrade));
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    play.client.shutdown();
    assert_eq!(play.seconds_to_the_end(false, |_| {}), 2);
}

/// Such a peer is found, too, if receiving is paused because more waits for the handler than the server keeps for it.
#[test]
fn a_peer_that_has_ended_its_direction_is_found_behind_what_is_not_received() {
    async fn floods(mut socket: WebSocket) {
        while socket.send(Message::binary(vec![b'x'; 10_000])).await.is_ok() {}
    }
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let mut play = Play::new(App::new().ws("/", floods));
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    let mut sent = 0;
    loop {
        // A masked text frame with the mask 0.
        let taken = play.client.send(&b"\x81\x82\0\0\0\0hi".repeat(1000));
        play.settle(false);
        sent += taken;
        if taken == 0 {
            break;
        }
    }
    assert!(sent > 65_536, "receiving is paused");
    assert!(play.worker.account() > 65_536, "messages wait in both directions");
    play.client.shutdown();
    assert!(play.seconds_to_the_end(false, |_| {}) <= 3);
    assert_eq!(play.worker.account(), 0);
}

/// A peer that ends its direction behind its message still gets the reply.
#[test]
fn a_peer_that_has_ended_its_direction_and_reads_gets_what_was_sent_before() {
    async fn replies(mut socket: WebSocket) {
        while let Some(Ok(message)) = socket.recv().await {
            if let Message::Text(_) = message
                && socket.send(Message::binary(vec![b'x'; 300_000])).await.is_err()
            {
                return;
            }
        }
    }
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let mut play = Play::new(App::new().ws("/", replies));
    play.client.send(request(&fields).as_bytes());
    play.settle(true);
    // A masked text frame with the mask 0.
    play.client.send(b"\x81\x82\0\0\0\0hi");
    play.client.shutdown();
    // The client reads slowly, but it reads.
    let mut received = 0;
    play.seconds_to_the_end(true, |play| received = play.received.len());
    assert!(received.max(play.received.len()) > 300_000);
}
