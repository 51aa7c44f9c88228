//! A bridge from WebSockets over HTTP/1 to WebSockets over HTTP/2 (RFC 8441), with the HTTP/2 client of another project.
//! `cargo xtask conformance autobahn` puts it between the Autobahn test suite, which knows only HTTP/1, and our server,
//! so that all of the suite's cases are played over HTTP/2.
//!
//! Usage: `websocket_bridge PORT SERVER_PORT`. Every connection to `PORT` becomes a connection to `SERVER_PORT` of its
//! own, with one stream. The bytes of the WebSocket pass unchanged.

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use std::error::Error;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tungstenite::handshake::derive_accept_key;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The most bytes of a request's head.
const HEAD_BYTES: usize = 16 * 1024;

/// The longest wait for the server's settings.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let mut ports = std::env::args().skip(1).map(|port| port.parse::<u16>());
    let (Some(Ok(port)), Some(Ok(server))) = (ports.next(), ports.next()) else {
        return Err("usage: websocket_bridge PORT SERVER_PORT".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::task::spawn_local(async move {
                if let Err(error) = bridge(stream, server).await {
                    eprintln!("{error}");
                }
            });
        }
    })
}

/// Connects a client's WebSocket to the server.
async fn bridge(mut stream: TcpStream, server: u16) -> Result<()> {
    stream.set_nodelay(true)?;
    let (head, rest) = read_head(&mut stream).await?;
    let upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    upstream.set_nodelay(true)?;
    let (client, connection) = h2::client::handshake(upstream).await?;
    let connection = tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            eprintln!("the connection to the server: {error}");
        }
    });
    let (response, sending) = ask(client.ready().await?, &head, server).await?;
    let response = response.await?;
    if response.status() != 200 {
        return Err(format!("the server answers {}", response.status()).into());
    }
    let accept = derive_accept_key(field(&head, "sec-websocket-key").unwrap_or_default().as_bytes());
    let mut answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n"
    );
    for name in ["sec-websocket-extensions", "sec-websocket-protocol"] {
        if let Some(value) = response.headers().get(name) {
            answer += &format!("{name}: {}\r\n", value.to_str()?);
        }
    }
    stream.write_all(format!("{answer}\r\n").as_bytes()).await?;
    let (reader, writer) = stream.into_split();
    // An end of one direction leaves the other one open.
    let sent = tokio::task::spawn_local(async move {
        if let Err(error) = send(rest, reader, sending).await {
            eprintln!("to the server: {error}");
        }
    });
    let received = receive(response.into_body(), writer).await;
    sent.abort();
    connection.abort();
    received
}

/// Reads a request's head. Also returns the bytes behind it.
async fn read_head(stream: &mut TcpStream) -> Result<(String, Bytes)> {
    let mut bytes = BytesMut::new();
    while bytes.len() < HEAD_BYTES {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err("the client has ended within its request".into());
        }
        if let Some(at) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4).freeze();
            return Ok((String::from_utf8(bytes.to_vec())?, rest));
        }
    }
    Err("the client's request is too large".into())
}

/// Returns the value of a field of a request's head.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.filter(|(its, _)| its.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

/// Sends the extended CONNECT request that stands for a client's request.
async fn ask(
    mut client: SendRequest<Bytes>,
    head: &str,
    server: u16,
) -> Result<(ResponseFuture, h2::SendStream<Bytes>)> {
    // The server's settings come after the connection is ready.
    let permitted = async {
        while !client.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let permitted = tokio::time::timeout(PATIENCE, permitted).await;
    permitted.map_err(|_| "the server does not permit extended CONNECT")?;
    let path = head.split(' ').nth(1).unwrap_or("/");
    let mut request = http::Request::builder()
        .method("CONNECT")
        .version(http::Version::HTTP_2)
        .uri(format!("http://127.0.0.1:{server}{path}"));
    for name in ["sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol", "origin"] {
        if let Some(value) = field(head, name) {
            request = request.header(name, value);
        }
    }
    let mut request = request.body(())?;
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    Ok(client.send_request(request, false)?)
}

/// Passes the client's bytes to the server.
async fn send(first: Bytes, mut client: OwnedReadHalf, mut server: h2::SendStream<Bytes>) -> Result<()> {
    let mut bytes = first;
    loop {
        while !bytes.is_empty() {
            server.reserve_capacity(bytes.len());
            let room = std::future::poll_fn(|cx| server.poll_capacity(cx)).await;
            let room = room.ok_or("the stream has ended")??;
            server.send_data(bytes.split_to(room.min(bytes.len())), false)?;
        }
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        match client.read_buf(&mut buffer).await {
            Ok(0) => return Ok(server.send_data(Bytes::new(), true)?),
            Ok(_) => bytes = buffer.freeze(),
            Err(error) => {
                server.send_reset(h2::Reason::CANCEL);
                return Err(error.into());
            }
        }
    }
}

/// Passes the server's bytes to the client.
async fn receive(mut server: RecvStream, mut client: OwnedWriteHalf) -> Result<()> {
    while let Some(bytes) = server.data().await {
        let bytes = bytes?;
        server.flow_control().release_capacity(bytes.len())?;
        client.write_all(&bytes).await?;
    }
    match client.shutdown().await {
        // The client has already ended the connection.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => Ok(result?),
    }
}
