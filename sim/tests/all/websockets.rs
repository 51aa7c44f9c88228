//! WebSockets over HTTP/1 and HTTP/2, in virtual time: the handshake, messages, and slow, silent, rude and vanishing
//! peers.

use crate::peer::seen::{see, seen};
use crate::peer::tunnel::Peer;
use crate::peer::websocket::{Client, KEY, deflated, request};
use crate::peer::{SECOND, plain};
use highwire::ws::{Deflate, Message, WebSocket, WebSocketUpgrade};
use highwire::{App, Disconnect};
use highwire_proto::ws::{self, Bounds, Connection};

async fn echo(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        match message {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                if let Err(error) = socket.send(message).await {
                    return see(error.to_string());
                }
            }
            Ok(Message::Close(frame)) => see(format!("close {frame:?}")),
            Ok(_) => {}
            Err(error) => see(error.to_string()),
        }
    }
    see("over");
}

#[test]
fn messages_are_echoed_and_pings_answered() {
    for (name, mut client) in Client::all(echo) {
        client.say(|ws, out| ws.send_text("héllo", out));
        client.say(|ws, out| ws.send_part(ws::Kind::Binary, b"one ", false, out));
        client.say(|ws, out| ws.send_ping(b"there?", out));
        client.say(|ws, out| ws.send_part(ws::Kind::Binary, b"two", true, out));
        client.say(|ws, out| ws.send_binary(&[b'x'; 90_000], out));
        client.say(|ws, out| ws.send_text("", out));
        assert_eq!(client.hear(), ["héllo", "pong there?", "one two", "90000 bytes", ""], "{name}");
        client.say(|ws, out| ws.send_close(Some(3000), "bye", out));
        assert_eq!(client.hear(), ["close 3000 ", "end"], "{name}");
        assert_eq!(seen(), ["close Some(CloseFrame { code: 3000, reason: \"bye\" })", "over"], "{name}");
    }
}

#[test]
fn messages_are_deflated_if_the_peers_agree() {
    let long = "again and ".repeat(100);
    for takeover in [false, true] {
        let settings = Deflate::new().server_context_takeover(takeover).client_context_takeover(takeover);
        for (name, mut client) in Client::with(echo, Some(settings)) {
            // The second message does not refer to the first one, which is permitted, too.
            client.say(|ws, out| ws.send_deflated(ws::Kind::Text, &deflated(long.as_bytes()), out));
            assert_eq!(client.hear(), ["deflated", "1000 bytes"], "{name}");
            client.say(|ws, out| ws.send_text("short", out));
            client.say(|ws, out| ws.send_ping(b"", out));
            client.say(|ws, out| ws.send_deflated(ws::Kind::Text, &deflated(b""), out));
            assert_eq!(client.hear(), ["short", "pong ", ""], "{name}: these are not deflated");
        }
    }
}

#[test]
fn compressed_messages_that_are_invalid_or_too_large_are_answered_by_a_close_code() {
    let bomb = deflated(&[0; 300_000]);
    assert!(bomb.len() < 1000);
    for (message, code) in [
        (&bomb[..], "close 1009 a message is too large"),
        (&[0xff; 8], "close 1007 a message is not in the deflate format"),
        (&deflated(b"\xff"), "close 1007 a text is not UTF-8"),
        (&[3, 0].repeat(100), "close 1008 a message has too many final blocks of deflate"),
    ] {
        for (name, mut client) in Client::with(echo, Some(Deflate::new())) {
            client.say(|ws, out| ws.send_deflated(ws::Kind::Text, message, out));
            assert_eq!(client.hear(), [code, "end"], "{name}");
            assert_eq!(seen().len(), 2, "{name}: an error and the end");
        }
    }
}

#[test]
fn a_flood_of_pings_from_a_peer_that_reads_nothing_is_answered_up_to_a_bound() {
    const PINGS: usize = 200_000;
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let mut play = plain::Play::new(App::new().ws("/", echo));
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    let mut ws = Connection::client(Bounds::default(), false, || [1, 2, 3, 4]);
    let mut out = Vec::new();
    for number in 0..PINGS {
        ws.send_ping(format!("{number:06}").as_bytes(), &mut out).expect("a ping");
    }
    let mut rest = &out[..];
    let mut most = 0;
    while !rest.is_empty() {
        let sent = play.client.send(rest);
        rest = &rest[sent..];
        play.settle(false);
        most = most.max(play.worker.account());
        if sent == 0 {
            break;
        }
    }
    assert!(most < 1024 * 1024, "{most} bytes are held for a peer that does not read");
    play.settle(true);
    let text = String::from_utf8_lossy(&play.received).into_owned();
    assert!(text.contains("000000") && text.contains("000001"), "the first pings are answered");
}

#[test]
fn what_breaks_the_protocol_is_answered_by_a_close_code() {
    let masked = |head: &[u8], payload: &[u8]| [head, &[0; 4], payload].concat();
    for (frames, code) in [
        (vec![0x81, 0x01, b'a'], "close 1002 a frame from a client is not masked"),
        (masked(&[0x83, 0x80], b""), "close 1002 a frame has an opcode that is not defined"),
        (masked(&[0x91, 0x80], b""), "close 1002 a frame has a reserved bit that no extension uses"),
        (masked(&[0xc1, 0x80], b""), "close 1002 a frame has a reserved bit that no extension uses"),
        (masked(&[0x80, 0x80], b""), "close 1002 a frame continues a message, but none has begun"),
        (masked(&[0x09, 0x80], b""), "close 1002 a control frame is fragmented"),
        (masked(&[0x88, 0x81], b"x"), "close 1002 a Close frame has a single byte"),
        (masked(&[0x88, 0x82], &1005_u16.to_be_bytes()), "close 1002 a Close frame has a code that must not be sent"),
        (masked(&[0x81, 0x81], b"\xff"), "close 1007 a text is not UTF-8"),
        (masked(&[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0x86, 0xa1], b""), "close 1009 a message is too large"),
        (
            masked(&[0x02, 0x80], b"").repeat(1).into_iter().chain(masked(&[0x00, 0x80], b"").repeat(2000)).collect(),
            "close 1008 a message has too many small frames",
        ),
    ] {
        for (name, mut client) in Client::all(echo) {
            client.tunnel.say(&frames);
            assert_eq!(client.hear(), [code, "end"], "{name}");
            assert_eq!(seen().len(), 2, "{name}: an error and the end");
        }
    }
}

#[test]
fn silent_peers_get_a_ping_and_are_let_go() {
    for (name, mut client) in Client::all(echo) {
        client.tunnel.pass(29);
        assert!(client.hear().is_empty(), "{name}");
        client.tunnel.pass(2);
        assert_eq!(client.hear(), ["ping "], "{name}");
        client.say(|ws, out| ws.send_pong(b"", out));
        client.tunnel.pass(29);
        client.say(|ws, out| ws.send_text("a", out));
        client.tunnel.pass(29);
        assert_eq!(client.hear(), ["a"], "{name}: it was heard 29 seconds ago");
        client.tunnel.pass(2);
        assert_eq!(client.hear(), ["ping "], "{name}");
        client.tunnel.pass(27);
        assert!(client.hear().is_empty(), "{name}");
        client.tunnel.pass(4);
        assert_eq!(client.hear()[..1], ["close 1000 "], "{name}");
        assert_eq!(seen(), ["the peer is silent and does not answer Ping or Close frames", "over"], "{name}");
    }
}

#[test]
fn a_message_that_arrives_too_slowly_is_given_up() {
    for (name, mut client) in Client::all(echo) {
        client.say(|ws, out| ws.send_part(ws::Kind::Binary, &[1; 1000], false, out));
        for _ in 0..4 {
            client.tunnel.pass(7);
            client.say(|ws, out| ws.send_part(ws::Kind::Binary, &[1; 1000], false, out));
            assert!(client.hear().is_empty(), "{name}");
        }
        client.tunnel.pass(4);
        assert_eq!(client.hear()[..1], ["close 1008 a message arrives too slowly"], "{name}");
        assert_eq!(seen().last().map(String::as_str), Some("over"), "{name}");
    }
    for (name, mut client) in Client::all(echo) {
        // Half of a header. Complete messages do not count.
        client.say(|ws, out| ws.send_text("a", out));
        client.tunnel.say(&[0x81]);
        client.tunnel.pass(32);
        assert_eq!(client.hear()[..2], ["a", "close 1008 a message arrives too slowly"], "{name}");
        seen();
    }
    for (name, mut client) in Client::all(echo) {
        // 1 KB per second is enough for a message of any length.
        for _ in 0..90 {
            client.say(|ws, out| ws.send_part(ws::Kind::Binary, &[1; 1000], false, out));
            client.tunnel.pass(1);
        }
        client.say(|ws, out| ws.send_part(ws::Kind::Binary, b"", true, out));
        assert_eq!(client.hear(), ["90000 bytes"], "{name}");
    }
}

#[test]
fn a_close_from_another_task_has_its_deadline_although_the_receiver_waits() {
    async fn closes_later(socket: WebSocket) {
        let (mut sender, mut receiver) = socket.split();
        highwire::spawn(async move {
            highwire::time::sleep(29 * SECOND).await;
            sender.close(4000, "enough").await.expect("a successful close");
            // The sender stays.
            highwire::time::sleep(1000 * SECOND).await;
            drop(sender);
        });
        while let Some(message) = receiver.recv().await {
            see(format!("{message:?}"));
        }
        see("over");
    }
    for (name, mut client) in Client::all(closes_later) {
        client.tunnel.pass(30);
        assert_eq!(client.hear(), ["close 4000 enough"], "{name}");
        client.tunnel.pass(7);
        assert!(seen().is_empty(), "{name}: the peer has ten seconds to answer");
        client.tunnel.pass(4);
        assert_eq!(seen(), ["Err(Silent)", "over"], "{name}");
    }
}

#[test]
fn a_ping_behind_answers_that_fill_the_buffer_is_answered_when_there_is_room() {
    for (name, mut client) in Client::all(echo) {
        let mut out = Vec::new();
        for _ in 0..63 {
            client.ws.send_binary(&[b'x'; 980], &mut out).expect("a message");
        }
        client.ws.send_ping(b"last", &mut out).expect("a ping");
        client.tunnel.say(&out);
        client.tunnel.pass(1);
        let heard = client.hear();
        assert_eq!((heard.len(), heard.last().map(String::as_str)), (64, Some("pong last")), "{name}");
    }
}

#[test]
fn a_peer_that_vanishes_ends_the_handler() {
    for (name, mut client) in Client::all(echo) {
        client.say(|ws, out| ws.send_part(ws::Kind::Text, b"half", false, out));
        client.tunnel.end();
        assert_eq!(seen(), ["the connection ended without a Close frame", "over"], "{name}");
        assert_eq!(client.hear(), ["close 1000 ", "end"], "{name}");
    }
}

#[test]
fn a_handler_that_closes_waits_for_the_answer_but_not_for_ever() {
    async fn closes(mut socket: WebSocket) {
        socket.close(4000, "enough").await.expect("a successful close");
        let error = socket.send("more").await.expect_err("nothing follows a Close frame");
        see(error.to_string());
        echo(socket).await;
    }
    const SENT: &str = "the message cannot be sent: a Close frame was sent before";
    let clients = Client::all(closes);
    assert_eq!(seen(), [SENT, SENT]);
    for (name, mut client) in clients {
        assert_eq!(client.hear(), ["close 4000 enough"], "{name}");
        client.say(|ws, out| ws.send_close(Some(4000), "", out));
        assert_eq!(seen(), ["close Some(CloseFrame { code: 4000, reason: \"\" })", "over"], "{name}");
        assert_eq!(client.hear(), ["end"], "{name}");
    }
    let clients = Client::all(closes);
    seen();
    for (name, mut client) in clients {
        client.tunnel.pass(12);
        assert_eq!(seen(), ["the peer is silent and does not answer Ping or Close frames", "over"], "{name}");
        assert_eq!(client.hear(), ["close 4000 enough", "end"], "{name}");
    }
}

#[test]
fn a_stopping_server_says_that_it_goes_away() {
    for (name, mut client) in Client::all(echo) {
        client.tunnel.worker().shutdown();
        client.tunnel.pass(1);
        assert_eq!(client.hear(), ["close 1001 the server stops"], "{name}");
        client.say(|ws, out| ws.send_close(Some(1001), "", out));
        assert_eq!(seen(), ["close Some(CloseFrame { code: 1001, reason: \"\" })", "over"], "{name}");
    }
}

#[test]
fn tasks_of_a_handler_learn_that_the_client_has_left_when_the_connection_ends() {
    let app = || {
        App::new().get("/", |upgrade: WebSocketUpgrade, disconnect: Disconnect| {
            highwire::spawn(async move {
                disconnect.disconnected().await;
                see("left");
            });
            upgrade.on_upgrade(async |socket: WebSocket| {
                // The task of the connection ends, and its halves are used by another one.
                highwire::spawn(async move {
                    let (mut sender, mut receiver) = socket.split();
                    while let Some(Ok(message)) = receiver.recv().await {
                        let _ = sender.send(message).await;
                    }
                });
            })
        })
    };
    for (name, mut client) in Client::of(app, false) {
        client.say(|ws, out| ws.send_text("a", out));
        assert_eq!((client.hear(), seen().len()), (vec!["a".to_string()], 0), "{name}");
        client.tunnel.end();
        assert_eq!(seen(), ["left"], "{name}");
    }
    let panics = || {
        App::new().get("/", |upgrade: WebSocketUpgrade, disconnect: Disconnect| {
            highwire::spawn(async move {
                disconnect.disconnected().await;
                see("left");
            });
            upgrade.on_upgrade(async |mut socket: WebSocket| {
                socket.recv().await;
                panic!("on purpose");
            })
        })
    };
    for (name, mut client) in Client::of(panics, false) {
        assert!(seen().is_empty(), "{name}");
        client.say(|ws, out| ws.send_text("a", out));
        client.tunnel.pass(1);
        assert_eq!(seen(), ["left"], "{name}");
    }
}

#[test]
fn a_dropped_socket_closes_normally() {
    for (name, mut client) in Client::all(async |socket: WebSocket| drop(socket)) {
        assert_eq!(client.hear(), ["close 1000 ", "end"], "{name}");
    }
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    async fn sends(socket: WebSocket) {
        let (mut sender, mut receiver) = socket.split();
        for number in 0..1000 {
            if sender.send(vec![b'x'; 10_000]).await.is_err() {
                return;
            }
            see(number.to_string());
        }
        while receiver.recv().await.is_some() {}
    }
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let mut play = plain::Play::new(App::new().ws("/", sends));
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    let sent = seen().len();
    assert!((1..100).contains(&sent), "{sent} messages of 10 kB were taken, though the client reads nothing");
    play.settle(true);
    while play.received.len() < 10_000_000 {
        play.settle(true);
    }
    assert_eq!(seen().len(), 1000 - sent);
}

#[test]
fn a_silent_peer_that_takes_nothing_is_let_go_before_the_write_timeout() {
    async fn sends(socket: WebSocket) {
        let (mut sender, mut receiver) = socket.split();
        highwire::spawn(async move { while sender.send(vec![b'x'; 10_000]).await.is_ok() {} });
        while let Some(message) = receiver.recv().await {
            see(format!("{message:?}"));
        }
    }
    let app = App::new().get("/", |upgrade: WebSocketUpgrade| upgrade.ping_interval(5 * SECOND).on_upgrade(sends));
    let mut play = plain::Play::new(app);
    play.client.send(request(&format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n")).as_bytes());
    let mut told_after = None;
    let mut seconds = 0;
    play.seconds_to_the_end(false, |_| {
        seconds += 1;
        if told_after.is_none() && seen() == ["Err(Silent)"] {
            told_after = Some(seconds);
        }
    });
    assert!(told_after.is_some_and(|seconds| (10..13).contains(&seconds)), "{told_after:?}");
}

#[test]
fn requests_that_open_nothing_say_why() {
    let version = "Sec-WebSocket-Version: 13\r\n";
    let key = format!("Sec-WebSocket-Key: {KEY}\r\n");
    let app = || App::new().ws("/", echo);
    for (fields, status, contains) in [
        (key.clone(), "426", "sec-websocket-version: 13\r\n"),
        (format!("{key}Sec-WebSocket-Version: 8\r\n"), "426", "sec-websocket-version: 13\r\n"),
        (version.to_string(), "400", "Sec-WebSocket-Key"),
        (format!("{version}Sec-WebSocket-Key: short\r\n"), "400", "Sec-WebSocket-Key"),
        (format!("{version}{key}{key}"), "400", "Sec-WebSocket-Key"),
        (format!("{version}{key}Sec-WebSocket-Version: 8\r\n"), "426", "sec-websocket-version: 13\r\n"),
        (format!("{version}{key}Origin: http://sim\r\nOrigin: https://evil.example\r\n"), "403", "origin"),
        (format!("{version}{key}Origin: https://evil.example\r\n"), "403", "origin"),
        (format!("{version}{key}Origin: null\r\n"), "403", "origin"),
        (format!("{version}{key}Sec-WebSocket-Protocol: a b\r\n"), "400", "tokens"),
        (format!("{version}{key}Origin: http://sim\r\n"), "101", "upgrade: websocket\r\n"),
    ] {
        let mut play = plain::Play::new(app());
        play.send(request(&fields).as_bytes());
        play.settle(true);
        let answer = String::from_utf8_lossy(&play.received).into_owned();
        assert_eq!(play.status(), status, "{fields}: {answer}");
        let found = answer.to_lowercase().contains(&contains.to_lowercase());
        assert!(found, "{fields}: {contains:?} is not in {answer}");
    }
    let mut play = plain::Play::new(app());
    play.send(b"GET / HTTP/1.1\r\nHost: sim\r\n\r\n");
    assert_eq!(play.status(), "426");
}

#[test]
fn the_first_known_subprotocol_is_agreed_on() {
    let app = || {
        App::new().get("/", |upgrade: WebSocketUpgrade| {
            upgrade.protocols(["v2", "v1"]).on_upgrade(async |mut socket: WebSocket| {
                let name = socket.protocol().unwrap_or_default();
                socket.send(name).await.expect("a successful send");
            })
        })
    };
    for (proposed, agreed) in [("v1, v2", "v2"), ("v1", "v1"), ("v3", "")] {
        let fields =
            format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: {proposed}\r\n");
        let (peer, head) = Peer::http1(app(), &request(&fields), "101");
        let line = format!("\r\nsec-websocket-protocol: {agreed}\r\n");
        assert_eq!(head.to_lowercase().contains(&line), !agreed.is_empty(), "{head}");
        let expected = [&[0x81, agreed.len() as u8][..], agreed.as_bytes()].concat();
        assert!(peer.heard().0.starts_with(&expected), "{proposed}: {:?}", peer.heard());
    }
}

#[test]
fn a_callback_gets_the_messages_and_waits_for_slow_readers() {
    let app = || {
        App::new().get("/", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket, message| match message {
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                    if let Err(error) = socket.try_send(message) {
                        see(error.to_string());
                    }
                }
                Ok(_) => {}
                Err(error) => see(error.to_string()),
            })
        })
    };
    for (name, mut client) in Client::of(app, false) {
        client.say(|ws, out| ws.send_text("a", out));
        client.say(|ws, out| ws.send_ping(b"", out));
        client.say(|ws, out| ws.send_text("b", out));
        assert_eq!(client.hear(), ["a", "pong ", "b"], "{name}");
        client.tunnel.end();
        assert_eq!(seen(), ["the connection ended without a Close frame"], "{name}");
    }
    // A peer that sends and does not read: its messages wait in the kernel, and none is lost.
    let fields = format!("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let mut play = plain::Play::new(app());
    play.client.send(request(&fields).as_bytes());
    play.settle(false);
    let mut ws = Connection::client(Bounds::default(), false, || [1, 2, 3, 4]);
    let mut out = Vec::new();
    for number in 0..2000 {
        ws.send_text(&format!("<{number:04}{}", "x".repeat(995)), &mut out).expect("a message");
    }
    let mut rest = &out[..];
    for _ in 0..100 {
        rest = &rest[play.client.send(rest)..];
        play.settle(false);
        assert!(play.worker.account() < 600_000, "{} bytes are held", play.worker.account());
    }
    assert!(!rest.is_empty(), "the server does not read on");
    while !rest.is_empty() {
        rest = &rest[play.client.send(rest)..];
        play.settle(true);
    }
    play.settle(true);
    let text = String::from_utf8_lossy(&play.received).into_owned();
    let numbers: Vec<usize> = text.split('<').skip(1).map(|part| part[..4].parse().expect("a number")).collect();
    assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    assert!(seen().is_empty());
}

#[test]
fn a_callback_waits_while_a_long_answer_is_deflated() {
    let app = || {
        App::new().get("/", |upgrade: WebSocketUpgrade| {
            upgrade.deflate(Deflate::new()).on_message(|socket, message| {
                if let Ok(message @ Message::Binary(_)) = message
                    && let Err(error) = socket.try_send(message)
                {
                    see(error.to_string());
                }
            })
        })
    };
    for (name, mut client) in Client::of(app, true) {
        client.say(|ws, out| {
            for _ in 0..4 {
                // They are short, so that all arrive at once.
                ws.send_deflated(ws::Kind::Binary, &deflated(&[b'x'; 90_000]), out)?;
            }
            Ok(())
        });
        assert_eq!(client.hear(), ["deflated", "90000 bytes"].repeat(4), "{name}");
        assert!(seen().is_empty(), "{name}");
    }
}

#[test]
fn messages_that_handlers_have_or_compress_are_in_the_account() {
    const LENGTH: usize = 90_000;
    let has = |mut socket: WebSocket| async move {
        let message = socket.recv().await;
        std::future::pending::<()>().await;
        drop((message, socket));
    };
    let compresses = |mut socket: WebSocket| async move {
        drop(socket.recv().await);
        let (sender, receiver) = socket.split();
        sender.try_send(vec![b'x'; LENGTH]).expect("there is room");
        std::future::pending::<()>().await;
        drop((sender, receiver));
    };
    for (deflates, clients) in [(false, Client::all(has)), (true, Client::with(compresses, Some(Deflate::new())))] {
        for (name, mut client) in clients {
            let before = client.tunnel.worker().account();
            client.say(|ws, out| ws.send_binary(&[b'x'; LENGTH], out));
            let held = client.tunnel.worker().account() - before;
            assert!((LENGTH..5 * LENGTH).contains(&held), "{name}, {deflates}: {held} bytes");
        }
    }
}
