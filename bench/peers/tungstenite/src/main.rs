//! The peer `peer-tungstenite PORT [INTERVAL]`: tungstenite on tokio with one thread. Each connection gets the messages
//! that are published every INTERVAL milliseconds (default 100), through a broadcast channel, and its own messages back.

use std::time::Duration;
use std::{env, io, net::Ipv4Addr};

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

fn main() -> io::Result<()> {
    let number = |at| env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let port = number(1).expect("usage: peer-tungstenite PORT [INTERVAL]") as u16;
    let interval = Duration::from_millis(number(2).unwrap_or(100));
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(port, interval))
}

async fn serve(port: u16, interval: Duration) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let listener = socket.listen(4096)?;
    let (publisher, _) = broadcast::channel::<Utf8Bytes>(16);
    let ticks = publisher.clone();
    tokio::spawn(async move {
        for number in 0_u64.. {
            tokio::time::sleep(interval).await;
            let cents = 10_000 + number * 7919 % 200;
            let text = format!("{{\"name\":\"ACME\",\"price\":{}.{:02}}}", cents / 100, cents % 100);
            // Fails while there is no subscriber.
            let _ = ticks.send(text.into());
        }
    });
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, publisher.subscribe()));
    }
}

/// Ends at an error, which occurs if the load generator stops.
async fn connection(stream: TcpStream, mut ticks: broadcast::Receiver<Utf8Bytes>) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    loop {
        tokio::select! {
            tick = ticks.recv() => match tick {
                Ok(text) => if socket.send(Message::Text(text)).await.is_err() { return },
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
            message = socket.next() => match message {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                    if socket.send(message).await.is_err() { return }
                }
                Some(Ok(_)) => {}
                _ => return,
            },
        }
    }
}
