//! Tests the WebSocket client on the engines that can open connections: against tungstenite, against our own server with and without compression
//! and TLS, and against servers that refuse, lie, stall and vanish.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use crate::engines;
use crate::tls_peer;
use highwire::client::Client;
use highwire::server::{Engine, Handle};
use highwire::tls::TlsConfig;
use highwire::ws::{Connect, ConnectError, Deflate, Message, WebSocket, WebSocketUpgrade};
use highwire::{App, Query};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

/// Trusts a certificate of any name.
fn client_config() -> Arc<rustls::ClientConfig> {
    let schemes = [rustls::SignatureScheme::ECDSA_NISTP256_SHA256];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let verifier = testkit::tls::AcceptAny::new(&schemes);
    Arc::new(testkit::tls::client_config(provider, rustls::DEFAULT_VERSIONS, verifier))
}

/// Connects to a URL and sends messages of several sizes, which must come back. Returns a description of the result.
async fn visit(url: String) -> String {
    let takeover = url.contains("takeover");
    let deflate = Deflate::new().client_context_takeover(takeover).server_context_takeover(takeover);
    let connect = match Connect::new(&url) {
        Ok(connect) => connect.timeout(Duration::from_secs(3)).tls(client_config()).protocols(["a", "b"]),
        Err(error) => return error.to_string(),
    };
    let connect = if url.contains("http2") {
        let client = Client::builder().http2_prior_knowledge().tls_config(client_config());
        connect.client(&client.build().expect("a client"))
    } else if url.contains("auto") {
        // This one would choose HTTP/2 by ALPN for other requests.
        connect.client(&Client::builder().tls_config(client_config()).build().expect("a client"))
    } else {
        connect
    };
    let connect = if url.contains("deflate") { connect.deflate(deflate) } else { connect };
    let mut socket = match connect.connect().await {
        Ok(socket) => socket,
        Err(ConnectError::Request(error)) if error.to_string().contains("cannot connect") => return "refused".into(),
        Err(error) => return error.to_string(),
    };
    let protocol = socket.protocol().unwrap_or_default();
    for length in [0, 1, 125, 126, 5000, 65_535, 65_536, 500_000] {
        let text: String = "aé€😀".chars().cycle().take(length / 3).collect();
        for message in [Message::text(text), Message::binary(vec![7; length])] {
            if let Err(error) = socket.send(message.clone()).await {
                return error.to_string();
            }
            match socket.recv().await {
                Some(Ok(answer)) if answer == message => {}
                other => return format!("{length} bytes: {:.100}", format!("{other:?}")),
            }
        }
    }
    let _ = socket.close(1000, "").await;
    match socket.recv().await {
        Some(Ok(Message::Close(_))) => format!("ok {protocol}"),
        other => format!("{other:?}"),
    }
}

/// Starts the server whose handler is the client.
fn visitor(engine: Engine) -> Handle {
    let app = App::new()
        .get("/", async |Query(query): Query<HashMap<String, String>>| visit(query["url"].clone()).await)
        .configure(|config| {
            config.engine = engine;
            config.workers = 1;
        });
    app.listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn ask(visitor: &Handle, url: &str) -> String {
    let address = visitor.addresses()[0].to_string();
    let url: String = url.chars().map(|c| if c == '&' { "%26".into() } else { c.to_string() }).collect();
    let answer = testkit::http1::get(&address, &format!("/?url={url}"));
    testkit::http1::body(&answer).to_string()
}

#[test]
fn messages_come_back_from_our_own_server() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let app = || {
            App::new().get("/{how}", |upgrade: WebSocketUpgrade| {
                let deflate = Deflate::new().client_context_takeover(true).server_context_takeover(true);
                upgrade.protocols(["b"]).deflate(deflate).on_upgrade(echo)
            })
        };
        let plain = app().listen("127.0.0.1:0").unwrap().start().unwrap();
        let tls = TlsConfig::new().self_signed(["localhost"]);
        let secure = app().server().unwrap().listen_tls("127.0.0.1:0", tls).unwrap().start().unwrap();
        let visitor = visitor(engine);
        for path in ["plain", "deflate", "deflate-takeover", "http2", "http2-deflate", "auto"] {
            let url = format!("ws://{}/{path}", plain.addresses()[0]);
            assert_eq!(ask(&visitor, &url), "ok b", "{engine:?}: {url}");
            let port = secure.addresses()[0].to_string().rsplit(':').next().unwrap().to_string();
            let url = format!("wss://localhost:{port}/{path}");
            assert_eq!(ask(&visitor, &url), "ok b", "{engine:?}: {url}");
        }
    }
}

#[test]
fn messages_come_back_from_tungstenite() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut socket = tungstenite::accept(stream.unwrap()).unwrap();
            while let Ok(message) = socket.read() {
                if !message.is_close() && socket.send(message).is_err() {
                    break;
                }
            }
        }
    });
    for engine in engines::available(engines::EVENT_LOOPS) {
        assert_eq!(ask(&visitor(engine), &url), "ok ", "{engine:?}");
    }
}

#[test]
fn a_refused_server_gets_the_messages_before_its_mistake() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let engines: Vec<Engine> = engines::available(engines::EVENT_LOOPS).collect();
    let clients = engines.len();
    let server = std::thread::spawn(move || {
        let serve = |_| {
            let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
            socket.get_mut().write_all(b"\x81\x05hello\xb1\x05hello").unwrap();
            let echo = socket.read();
            let close = socket.read();
            socket.get_mut().read_to_end(&mut Vec::new()).unwrap();
            // A server that has not read yet may still send. If that caused a reset, the server would lose the echo.
            let sent: Result<Vec<()>, _> = (0..3).map(|_| socket.get_mut().write_all(b"\x89\0")).collect();
            (echo.unwrap().into_text().unwrap().to_string(), close.unwrap().is_close(), sent.is_ok())
        };
        (0..clients).map(serve).collect::<Vec<_>>()
    });
    for engine in engines {
        let app = App::new().get("/", move || async move {
            let connect = Connect::new(&format!("ws://127.0.0.1:{port}/")).unwrap();
            echo(connect.connect().await.unwrap()).await;
        });
        let app = app.configure(|config| {
            config.engine = engine;
            config.workers = 1;
        });
        let handle = app.listen("127.0.0.1:0").unwrap().start().unwrap();
        testkit::http1::get(&handle.addresses()[0].to_string(), "/");
    }
    for (echo, close, is_open) in server.join().unwrap() {
        assert_eq!((echo.as_str(), close, is_open), ("hello", true, true));
    }
}

#[test]
fn a_thread_per_connection_cannot_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    assert_eq!(ask(&visitor(Engine::Threads), &url), "refused");
}

/// Starts a server that reads a request and answers each connection with these bytes; it keeps the connections open if
/// `stalls` is true.
fn liar(answer: &'static [u8], stalls: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut request = [0; 2048];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
            if stalls {
                open.push(stream);
            }
        }
    });
    format!("ws://{address}/")
}

#[test]
fn wrong_servers_are_errors_that_name_the_reason() {
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("ws://{}/", listener.local_addr().unwrap())
    };
    let ended = "the server has ended the connection before its response";
    let cases = [
        (refused, "refused"),
        ("http://localhost/".into(), "the URL is not a valid ws: or wss: URL"),
        ("ws://".into(), "the URL is not a valid ws: or wss: URL"),
        (liar(b"", false), ended),
        (liar(b"HTTP/1.1 101 Switch", false), ended),
        (liar(b"hello there\r\n\r\n", true), "the server's response is wrong: the HTTP version is malformed"),
        (
            liar(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", true),
            "the server has refused the WebSocket with 403 Forbidden",
        ),
        (
            liar(
                b"HTTP/1.1 101 OK\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
                true,
            ),
            "the server has not accepted the key",
        ),
        (
            liar(b"HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n", true),
            "the server's response does not upgrade the connection",
        ),
        (
            liar(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", true),
            "the server has refused the WebSocket with 302 Found",
        ),
        (
            liar(b"HTTP/1.0 101 OK\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", true),
            "the server's response does not upgrade the connection",
        ),
        ("ws://localhost:99999/".into(), "the URL is not a valid ws: or wss: URL"),
        (
            liar(b"", false).replace("ws:", "wss:"),
            "cannot secure the connection: the server has ended the connection during the handshake",
        ),
        (liar(b"", true).replace("ws:", "wss:"), "the time limit has passed"),
        (liar(b"", true), "the time limit has passed"),
    ];
    for engine in engines::available(engines::EVENT_LOOPS) {
        let visitor = visitor(engine);
        for (url, expected) in &cases {
            let said = ask(&visitor, url);
            // The client's own errors begin with the URL.
            let http = format!(
                "{}: ",
                if let Some(rest) = url.strip_prefix("wss") {
                    format!("https{rest}")
                } else {
                    url.replacen("ws", "http", 1)
                }
            );
            assert_eq!(said.strip_prefix(&http).unwrap_or(&said), *expected, "{engine:?}: {url}");
        }
    }
}

#[test]
fn the_connection_of_a_refused_handshake_is_not_used_again() {
    let url = liar(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", true);
    for engine in engines::available(engines::EVENT_LOOPS) {
        let visitor = visitor(engine);
        for _ in 0..3 {
            // The server answers only the first request of each connection.
            assert_eq!(ask(&visitor, &url), "the server has refused the WebSocket with 403 Forbidden", "{engine:?}");
        }
    }
}

/// Sends an opening request with these fields to a server. Returns the status.
fn opened(address: &str, fields: &str) -> u16 {
    let request = format!(
        "GET /echo HTTP/1.1\r\nHost: app.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    );
    let mut stream = testkit::http1::connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

#[test]
fn pages_of_the_own_host_may_open_a_websocket_also_behind_proxies() {
    let app = App::new()
        .ws("/echo", echo)
        .with(highwire::middleware::TrustedProxies::new(["127.0.0.1"]).unwrap().by_forwarded());
    let server = app.configure(|config| config.workers = 1).listen("127.0.0.1:0").unwrap();
    let address = server.addresses()[0].to_string();
    let handle = server.start().unwrap();
    for (fields, expected) in [
        ("", 101),
        ("Origin: https://app.example\r\n", 101),
        ("Origin: https://evil.example\r\n", 403),
        ("Origin: https://public.example\r\n", 403),
        ("Origin: https://public.example\r\nX-Forwarded-Host: public.example\r\n", 101),
        ("Origin: https://public.example\r\nX-Forwarded-Host: public.example, inner:8080\r\n", 101),
        ("Origin: https://public.example\r\nForwarded: for=192.0.2.1;host=public.example\r\n", 101),
        ("Origin: https://public.example\r\nSec-Fetch-Site: same-origin\r\n", 101),
        ("Origin: https://evil.example\r\nX-Forwarded-Host: public.example\r\n", 403),
        ("Origin: https://evil.example\r\nForwarded: for=192.0.2.1;host=public.example\r\n", 403),
        ("Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("Origin: https://a.app.example\r\nSec-Fetch-Site: same-site\r\n", 403),
        ("Sec-WebSocket-Extensions: permessage-deflate; x=\"y\", z\r\n", 101),
        ("Sec-WebSocket-Extensions: permessage-deflate; ;\r\n", 400),
        ("Sec-WebSocket-Extensions:\r\n", 400),
        ("Sec-WebSocket-Extensions: a\r\nSec-WebSocket-Extensions: b c\r\n", 400),
    ] {
        assert_eq!(opened(&address, fields), expected, "{fields:?}");
    }
    handle.abort();
    handle.join().unwrap();
}

/// The variable that tells the process of the next test that it is the inner one.
const INNER: &str = "HIGHWIRE_TEST_TRUSTED";

/// The system's trusted certificates are read once in a process, so an inner process with other ones connects.
#[test]
fn by_default_the_systems_certificates_are_trusted() {
    if let Ok(url) = std::env::var(INNER) {
        let app = App::new().get("/", |Query(query): Query<HashMap<String, String>>| async move {
            match highwire::ws::connect(&query["url"]).await {
                Ok(mut socket) => match socket.send("hello").await {
                    Ok(()) => format!("{:?}", socket.recv().await),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            }
        });
        let visitor = app.listen("127.0.0.1:0").unwrap().start().unwrap();
        println!("the answer is {}", ask(&visitor, &url));
        return;
    }
    let folder = tls_peer::Folder::new();
    let authority = tls_peer::Authority::new("trusted");
    let pem = authority.issue(&["localhost"]);
    let tls =
        TlsConfig::new().certificate_files(folder.write("site.pem", &pem.chain), folder.write("site.key", &pem.key));
    let app = App::new().ws("/", echo);
    let server = app.server().unwrap().listen_tls("127.0.0.1:0", tls).unwrap().start().unwrap();
    let url = format!("wss://localhost:{}/", server.addresses()[0].to_string().rsplit(':').next().unwrap());
    let other = tls_peer::Authority::new("other");
    for (trusted, expected) in [
        (authority.pem.clone(), "the answer is Some(Ok(Text(\"hello\")))"),
        (other.pem.clone(), "UnknownIssuer"),
        (String::new(), "no trusted certificate can be read"),
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "websocket::connect::by_default_the_systems_certificates_are_trusted", "--nocapture"])
            .env(INNER, &url)
            .env("SSL_CERT_FILE", folder.write("roots.pem", trusted))
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.contains(expected), "{output}");
    }
}
