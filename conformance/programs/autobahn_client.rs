//! Plays the cases of the Autobahn test suite as a client: `autobahn_client PORT`, where the suite's fuzzing server
//! listens. `cargo xtask conformance autobahn` runs it. The server judges each case and writes its report.

use highwire::App;
use highwire::server::Engine;
use highwire::ws::{Connect, ConnectError, Deflate, Message, WebSocket};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The largest messages of the suite have 16 MiB.
const MESSAGE_BYTES: u64 = 16 * 1024 * 1024;

async fn open(port: u16, target: &str) -> Result<WebSocket, ConnectError> {
    let deflate = Deflate::new().client_context_takeover(true).server_context_takeover(true);
    let connect = Connect::new(&format!("ws://127.0.0.1:{port}{target}"))?.deflate(deflate);
    connect.max_message_size(MESSAGE_BYTES).timeout(Duration::from_secs(60)).connect().await
}

/// Sends each message back until the server closes.
async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

/// Returns the number of cases.
async fn count(port: u16) -> Result<u32, ConnectError> {
    let mut socket = open(port, "/getCaseCount").await?;
    Ok(match socket.recv().await {
        Some(Ok(Message::Text(count))) => count.parse().unwrap_or(0),
        _ => 0,
    })
}

async fn play(port: u16) -> Result<String, ConnectError> {
    let count = self::count(port).await?;
    for case in 1..=count {
        echo(open(port, &format!("/runCase?case={case}&agent=highwire")).await?).await;
    }
    // The suite adds a case to its report when it has seen the end of the case's connection. Another exchange gives it time for
    // that.
    self::count(port).await?;
    echo(open(port, "/updateReports?agent=highwire").await?).await;
    Ok(format!("{count} cases\n"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let port: u16 = words.next().ok_or("usage: autobahn_client PORT [readiness|uring]")?.parse()?;
    let engine = if words.next().as_deref() == Some("readiness") { Engine::Readiness } else { Engine::Auto };
    // A client needs a worker, so a request starts it.
    let run = move || async move { play(port).await.unwrap_or_else(|error| format!("{error}\n")) };
    let app = App::new().get("/", run);
    let app = app.configure(|config| {
        config.engine = engine;
        config.workers = 1;
        config.timeouts.handler = Duration::from_secs(3600);
    });
    let server = app.listen("127.0.0.1:0")?.start()?;
    let mut stream = TcpStream::connect(server.addresses()[0].to_string())?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("{}", answer.split("\r\n\r\n").last().unwrap_or_default().trim_end());
    Ok(())
}
