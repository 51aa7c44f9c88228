//! Tests hyper's upgrades through the tower adapter over real sockets: axum's own WebSocket with the client of another
//! project over HTTP/1 and HTTP/2, tunnels by CONNECT, refusals, and ends of either side.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use crate::engines;
use axum::Router;
use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use bytes::Bytes;
use highwire::server::{Engine, Handle};
use highwire::{App, tower};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::Role;
use tungstenite::{Message as Theirs, WebSocket as Client};

/// The longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Echoes messages, and reports the end.
async fn echo(mut socket: WebSocket, ended: Sender<()>) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            break;
        }
    }
    let _ = ended.send(());
}

/// Returns a server whose fallback is an axum router, and the reports of ended WebSockets.
fn serve(engine: Engine) -> (Handle, Receiver<()>) {
    let (ended, ends) = channel();
    let router = Router::new()
        .route(
            "/ws",
            any(move |upgrade: WebSocketUpgrade| {
                let ended = ended.clone();
                async move { upgrade.protocols(["chat"]).on_upgrade(move |socket| echo(socket, ended)) }
            }),
        )
        .route("/refuse", any(async |_: WebSocketUpgrade| axum::http::StatusCode::FORBIDDEN))
        .route("/greet", any(greet))
        // CONNECT has no path, so axum calls the fallback.
        .fallback(greet);
    let app = App::new().fallback(tower::service(router)).configure(|config| {
        config.engine = engine;
        config.workers = 1;
        config.timeouts.shutdown = Duration::from_secs(1);
    });
    (app.listen("127.0.0.1:0").unwrap().start().unwrap(), ends)
}

/// Switches to a protocol of our own: writes a greeting at once, then each byte plus one, until the peer ends.
async fn greet(mut request: Request) -> axum::response::Response {
    let is_tunnel = request.method() == axum::http::Method::CONNECT;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut stream = hyper_util::rt::TokioIo::new(upgraded);
        let _ = stream.write_all(b"hi").await;
        let mut buffer = vec![0; 5000];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            buffer[..count].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            if stream.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"bye").await;
    });
    let response = axum::response::Response::builder();
    match is_tunnel {
        true => response.status(200),
        false => response.status(101).header("connection", "upgrade").header("upgrade", "greeting"),
    }
    .body(axum::body::Body::empty())
    .unwrap()
}

fn tcp(handle: &Handle) -> TcpStream {
    let stream = TcpStream::connect(handle.addresses()[0].to_string()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn connect(handle: &Handle) -> Client<TcpStream> {
    let mut request = format!("ws://{}/ws", handle.addresses()[0]).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "other, chat".parse().unwrap());
    let (client, response) = tungstenite::client(request, tcp(handle)).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
    client
}

/// Sends bytes and returns all bytes of the response up to the end of its head.
fn head(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn the_websocket_of_axum_echoes_messages_of_all_sizes() {
    for engine in engines::available(engines::ALL) {
        let (handle, ends) = serve(engine);
        let mut client = connect(&handle);
        for length in [0, 1, 125, 126, 4096, 65_535, 65_536, 300_000, 1 << 20] {
            let message = Theirs::binary((0..length).map(|at| (at % 251) as u8).collect::<Vec<_>>());
            client.send(message.clone()).unwrap();
            assert!(client.read().unwrap() == message, "{engine:?}: {length} bytes");
        }
        client.close(None).unwrap();
        while client.read().is_ok() {}
        ends.recv_timeout(PATIENCE).unwrap();
        handle.shutdown();
        assert_eq!(handle.join().unwrap().cut, 0, "{engine:?}");
    }
}

#[test]
fn the_websocket_of_axum_runs_over_http2() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let (handle, ends) = serve(engine);
        let address = handle.addresses()[0].to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let play = async {
            let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
            let (client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let mut client = client.ready().await.unwrap();
            while !client.is_extended_connect_protocol_enabled() {
                tokio::task::yield_now().await;
            }
            let mut request = http::Request::builder()
                .method("CONNECT")
                .uri(format!("http://{address}/ws"))
                .version(http::Version::HTTP_2)
                .header("sec-websocket-version", "13")
                .body(())
                .unwrap();
            request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
            let (response, mut sending) = client.send_request(request, false).unwrap();
            // A masked text frame with the mask 0.
            sending.send_data(Bytes::from_static(b"\x81\x85\0\0\0\0hello"), false).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200);
            let mut body = response.into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), &b"\x81\x05hello"[..]);
            sending.send_data(Bytes::from_static(b"\x88\x80\0\0\0\0"), true).unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), &b"\x88\x00"[..]);
            while let Some(bytes) = body.data().await {
                assert_eq!(bytes.unwrap(), "", "only the empty frame with END_STREAM follows");
            }
        };
        runtime.block_on(async { tokio::time::timeout(PATIENCE, play).await }).unwrap();
        ends.recv_timeout(PATIENCE).unwrap();
        handle.shutdown();
    }
}

#[test]
fn a_service_takes_over_the_connection_after_upgrade_and_connect() {
    for engine in engines::available(engines::ALL) {
        let (handle, _) = serve(engine);
        for (request, status) in [
            ("GET /greet HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: greeting\r\n\r\n", "101"),
            ("CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n", "200"),
        ] {
            let mut stream = tcp(&handle);
            let head = head(&mut stream, request);
            assert_eq!(&head[9..12], status, "{engine:?}: {head}");
            assert_eq!(head.matches("onnection").count(), usize::from(status == "101"), "{engine:?}: {head}");
            let bytes: Vec<u8> = (0..200_000).map(|at| (at % 251) as u8).collect();
            let mut writing = stream.try_clone().unwrap();
            let sent = std::thread::spawn({
                let bytes = bytes.clone();
                move || {
                    writing.write_all(&bytes).unwrap();
                    writing.shutdown(Shutdown::Write).unwrap();
                }
            });
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            sent.join().unwrap();
            let expected: Vec<u8> = bytes.iter().map(|byte| byte + 1).collect();
            assert!(all == [b"hi", &expected[..], b"bye"].concat(), "{engine:?}: {} bytes", all.len());
        }
        handle.shutdown();
    }
}

#[test]
fn an_upgrade_that_is_refused_leaves_the_connection_to_http() {
    for engine in engines::available(engines::ALL) {
        let (handle, _) = serve(engine);
        let mut stream = tcp(&handle);
        let fields = "host: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                      sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        for (path, status) in [("/refuse", "403"), ("/refuse", "403"), ("/ws", "101")] {
            let head = head(&mut stream, &format!("GET {path} HTTP/1.1\r\n{fields}"));
            assert_eq!(&head[9..12], status, "{engine:?}: {head}");
        }
        handle.shutdown();
    }
}

#[test]
fn a_service_learns_of_clients_that_vanish() {
    for engine in engines::available(engines::ALL) {
        let (handle, ends) = serve(engine);
        let clients: Vec<_> = (0..20).map(|_| connect(&handle)).collect();
        for client in &clients {
            socket2::SockRef::from(client.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
        }
        let count = clients.len();
        drop(clients);
        (0..count).for_each(|_| ends.recv_timeout(PATIENCE).unwrap());
        // A client that writes and never reads ends when the server does.
        let mut greedy = Client::from_raw_socket(connect(&handle).get_ref().try_clone().unwrap(), Role::Client, None);
        greedy.get_ref().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let message = Theirs::binary(vec![1; 1 << 20]);
        let mut sent = 0;
        while sent < 64 && greedy.send(message.clone()).is_ok() {
            sent += 1;
        }
        assert!(sent < 64, "{engine:?}: the server has taken 64 MiB for a client that does not read");
        handle.shutdown();
        ends.recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn a_service_that_answers_everything_accepts_no_tunnel() {
    for engine in engines::available(engines::ALL) {
        let router = Router::new().fallback(async || "fine");
        let app = App::new().fallback(tower::service(router)).configure(|config| config.engine = engine);
        let handle = app.listen("127.0.0.1:0").unwrap().start().unwrap();
        let head = head(&mut tcp(&handle), "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n");
        assert_eq!(&head[9..12], "501", "{engine:?}: {head}");
        handle.shutdown();
    }
}

/// Ends its direction first, and then drops the stream without reading.
async fn leave(mut request: Request) -> axum::response::Response {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
        // The worker sends the end before the stream is dropped.
        tokio::time::sleep(Duration::from_millis(100)).await;
    });
    let response = axum::response::Response::builder().status(101);
    response.header("connection", "upgrade").header("upgrade", "greeting").body(axum::body::Body::empty()).unwrap()
}

#[test]
fn the_connection_ends_when_the_service_drops_its_stream() {
    for engine in engines::available(engines::ALL) {
        let app = App::new().fallback(tower::service(Router::new().route("/leave", any(leave))));
        let app = app.configure(|config| {
            config.engine = engine;
            config.timeouts.linger = Duration::from_millis(100);
        });
        let handle = app.listen("127.0.0.1:0").unwrap().start().unwrap();
        let mut stream = tcp(&handle);
        head(&mut stream, "GET /leave HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: greeting\r\n\r\n");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"bye", "{engine:?}");
        // The client does not end its direction.
        let end = Instant::now() + PATIENCE;
        while handle.connections() > 0 {
            assert!(Instant::now() < end, "{engine:?}: the connection stays");
            std::thread::yield_now();
        }
        handle.shutdown();
    }
}
