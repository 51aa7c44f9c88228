//! WebSockets of the test client.

use highwire::testing::Client;
use highwire::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use highwire::{App, Response, time};
use std::time::Duration;

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Sends three messages over a minute, and then closes.
async fn slowly(mut socket: WebSocket) {
    for second in [0, 20, 40] {
        if socket.send(Message::text(format!("second {second}"))).await.is_err() {
            return;
        }
        time::sleep(Duration::from_secs(20)).await;
    }
    let _ = socket.send(Message::Close(Some(CloseFrame { code: 1001, reason: "the minute is over".into() }))).await;
}

fn app() -> App {
    App::new()
        .ws("/echo", echo)
        .ws("/slowly", slowly)
        .get("/protocol", |upgrade: WebSocketUpgrade| -> Response { upgrade.protocols(["v2", "v1"]).on_upgrade(echo) })
}

#[test]
fn messages_of_every_size_come_back_in_the_clear_and_under_tls() {
    #[cfg(feature = "tls")]
    let clients = [Client::new(app()).expect("an app"), Client::https(app()).expect("an app")];
    #[cfg(not(feature = "tls"))]
    let clients = [Client::new(app()).expect("an app")];
    for mut client in clients {
        let mut socket = client.get("/echo").websocket();
        for bytes in [0, 1, 125, 126, 65_535, 65_536, 300_000] {
            let (text, binary) = (Message::text("é".repeat(bytes / 2)), Message::binary(vec![7; bytes]));
            socket.send(&mut client, text.clone());
            socket.send(&mut client, binary.clone());
            assert_eq!((socket.recv(&mut client), socket.recv(&mut client)), (Some(text), Some(binary)), "{bytes}");
        }
        socket.send(&mut client, Message::Ping((&b"p"[..]).into()));
        assert_eq!(socket.received(&mut client), [Message::Pong((&b"p"[..]).into())]);
        socket.send(&mut client, Message::Close(None));
        assert_eq!((socket.recv(&mut client), socket.recv(&mut client)), (Some(Message::Close(None)), None));
    }
}

#[test]
fn time_passes_while_a_message_is_awaited() {
    let mut client = Client::new(app()).expect("an app");
    let mut socket = client.get("/slowly").websocket();
    let mut texts = Vec::new();
    let end = loop {
        match socket.recv(&mut client) {
            Some(Message::Text(text)) => texts.push(text.to_string()),
            Some(Message::Ping(_)) => {}
            other => break other,
        }
    };
    assert_eq!(texts, ["second 0", "second 20", "second 40"]);
    assert_eq!(end, Some(Message::Close(Some(CloseFrame { code: 1001, reason: "the minute is over".into() }))));
    assert_eq!(socket.recv(&mut client), None);
}

#[test]
fn responses_are_those_of_the_handshake() {
    let mut client = Client::new(app()).expect("an app");
    let socket = client.get("/protocol").header("sec-websocket-protocol", "v1, v3").websocket();
    assert_eq!(socket.response().header("sec-websocket-protocol"), "v1");
    let refused = client.get("/echo").header("origin", "https://elsewhere.example").try_websocket();
    assert_eq!(refused.expect_err("another site").status(), 403);
    assert_eq!(client.get("/nothing").try_websocket().expect_err("no route").status(), 404);
}

#[test]
fn a_socket_that_is_dropped_ends_its_handler() {
    let (sender, ended) = std::sync::mpsc::channel();
    let app = App::new().ws("/", move |mut socket: WebSocket| {
        let sender = sender.clone();
        async move {
            let last = socket.recv().await;
            sender.send(matches!(last, None | Some(Err(_)))).expect("a test");
        }
    });
    let mut client = Client::new(app).expect("an app");
    drop(client.get("/").websocket());
    client.advance(Duration::from_secs(1));
    assert_eq!(ended.try_recv(), Ok(true));
}
