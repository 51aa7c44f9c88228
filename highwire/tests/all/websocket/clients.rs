//! Tests WebSockets with the client of another project (tungstenite) over real sockets, on every engine: messages of
//! many sizes, many clients at the same time, clients that vanish, and the end of the server.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use crate::engines;
use highwire::App;
use highwire::server::{Engine, Handle};
use highwire::ws::{Message, WebSocket};
use socket2::SockRef;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message as Theirs, WebSocket as Client};

/// The longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(20);

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

fn serve(engine: Engine) -> Handle {
    let app = App::new().ws("/echo", echo).configure(|config| {
        config.engine = engine;
        config.workers = 1;
    });
    app.listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn connect(handle: &Handle) -> Client<TcpStream> {
    let address = handle.addresses()[0].to_string();
    let stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    tungstenite::client(format!("ws://{address}/echo"), stream).unwrap().0
}

#[test]
fn messages_of_all_sizes_come_back() {
    for engine in engines::available(engines::ALL) {
        let handle = serve(engine);
        let mut client = connect(&handle);
        for length in [0, 1, 125, 126, 4095, 4096, 4097, 16_384, 65_535, 65_536, 300_000, 1 << 20] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let text = "aé€😀".chars().cycle().take(length / 3).collect::<String>();
            for message in [Theirs::binary(bytes), Theirs::text(text)] {
                client.send(message.clone()).unwrap();
                assert!(client.read().unwrap() == message, "{engine:?}: {length} bytes");
            }
        }
        client.close(None).unwrap();
        assert!(matches!(client.read().unwrap(), Theirs::Close(None)), "{engine:?}");
        assert!(matches!(client.read(), Err(tungstenite::Error::ConnectionClosed)), "{engine:?}");
        handle.shutdown();
        assert_eq!(handle.join().unwrap().cut, 0, "{engine:?}");
    }
}

#[test]
fn many_clients_talk_at_the_same_time_and_some_vanish() {
    for engine in engines::available(engines::ALL) {
        let handle = serve(engine);
        let mut clients: Vec<_> = (0..60).map(|_| connect(&handle)).collect();
        for round in 0..20 {
            for (number, client) in clients.iter_mut().enumerate() {
                client.send(Theirs::text(format!("{round} of {number}"))).unwrap();
            }
            if round == 10 {
                for client in clients.drain(..20) {
                    SockRef::from(client.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
                }
                // The others keep their numbers.
                clients.iter_mut().for_each(|client| drop(client.read().unwrap()));
                continue;
            }
            for (number, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.read().unwrap(), Theirs::text(format!("{round} of {number}")), "{engine:?}");
            }
        }
        let end = Instant::now() + PATIENCE;
        while handle.connections() > 40 {
            assert!(Instant::now() < end, "{engine:?}: {} connections stay", handle.connections());
            std::thread::yield_now();
        }
        drop(clients);
        handle.shutdown();
    }
}

/// The driver has a test of its own for the fault that such clients once found in it.
#[test]
fn floods_of_empty_frames_leave_others_their_turn() {
    for engine in engines::available(engines::EVENT_LOOPS) {
        let handle = serve(engine);
        let mut bystander = connect(&handle);
        let floods: Vec<TcpStream> = (0..16).map(|_| connect(&handle).get_ref().try_clone().unwrap()).collect();
        let done = Arc::new(AtomicBool::new(false));
        let flooding = std::thread::spawn({
            let done = done.clone();
            move || {
                let frames = [0x8a, 0x80, 0, 0, 0, 0].repeat(20_000);
                let mut floods: Vec<_> = floods.into_iter().map(|flood| (flood, 0)).collect();
                floods.iter().for_each(|(flood, _)| flood.set_nonblocking(true).unwrap());
                while !done.load(Ordering::Relaxed) {
                    for (flood, sent) in &mut floods {
                        // Continues within a frame that was cut.
                        *sent = (*sent + flood.write(&frames[*sent..]).unwrap_or(0)) % frames.len();
                    }
                }
            }
        });
        for number in 0..100 {
            let message = Theirs::text(number.to_string());
            bystander.send(message.clone()).unwrap();
            assert_eq!(bystander.read().unwrap(), message, "{engine:?}");
        }
        done.store(true, Ordering::Relaxed);
        flooding.join().unwrap();
        handle.shutdown();
    }
}

#[test]
fn a_stopping_server_closes_with_1001() {
    for engine in engines::available(engines::ALL) {
        let handle = serve(engine);
        let mut client = connect(&handle);
        handle.shutdown();
        match client.read().unwrap() {
            Theirs::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Away, "{engine:?}"),
            other => panic!("{engine:?}: {other:?}"),
        }
        // The client answers while it reads.
        while client.read().is_ok() {}
        assert_eq!(handle.join().unwrap().cut, 0, "{engine:?}");
    }
}
