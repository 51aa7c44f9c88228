//! A client and an HTTP/2 server that is far away: after the first wait for a window, the next response need not wait.

use highwire::client::{Client, block_on};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The bytes by which a window grows at once for a server that is far away, at the least.
const MUCH: u32 = 1 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

struct Server {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Server {
    /// Returns the kind, the stream and the payload of the next frame, or `None` if there is none for some milliseconds.
    fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            if let Some(head) = self.received.first_chunk::<9>() {
                let (kind, stream) = (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                if self.received.len() >= 9 + length {
                    let payload = self.received[9..9 + length].to_vec();
                    self.received.drain(..9 + length);
                    return Some((kind, stream, payload));
                }
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("the client has closed the connection"),
                Ok(count) => self.received.extend(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits for the next request, and returns its stream.
    fn request(&mut self) -> u32 {
        loop {
            if let Some((HEADERS, stream, _)) = self.next() {
                return stream;
            }
        }
    }

    /// Returns the next increment of a stream's window, if there is one now.
    fn increment(&mut self, wanted: u32) -> Option<u32> {
        loop {
            match self.next()? {
                (WINDOW_UPDATE, stream, payload) if stream == wanted => {
                    return Some(u32::from_be_bytes(payload.try_into().expect("four bytes")));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the client reads");
    }
}

/// Answers two requests. The first response fills the window and pauses, until the client widens the window. Returns the increment
/// that comes with the second request, before anything of its response is sent.
fn play(stream: TcpStream) -> u32 {
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut server = Server { stream, received: Vec::new() };
    server.stream.set_read_timeout(None).expect("no timeout");
    server.stream.read_exact(&mut [0; 24]).expect("a preface");
    server.stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    server.send(&frame(SETTINGS, 0, 0, &[]));
    let stream = server.request();
    server.send(&frame(HEADERS, END_HEADERS, stream, &[0x88]));
    let mut window = 256 * 1024;
    for _ in 0..100 {
        while window > 0 {
            let part = window.min(16 * 1024);
            server.send(&frame(DATA, 0, stream, &vec![b'x'; part as usize]));
            window -= part;
        }
        // Pauses for 20 ms, as if the updates came from far away.
        while let Some(more) = server.increment(stream) {
            window += more;
        }
        if window > MUCH {
            break;
        }
    }
    server.send(&frame(DATA, END_STREAM, stream, &[]));
    let stream = server.request();
    let first = server.increment(stream).unwrap_or(0);
    server.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]));
    first
}

#[test]
fn the_next_response_from_far_away_may_come_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let (sender, first) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let _ = sender.send(play(stream));
    });
    let asked = async move {
        let client = Client::builder().http2_prior_knowledge().build().expect("a client");
        for _ in 0..2 {
            let mut response = client.get(&url).send().await.expect("a response");
            while let Some(part) = response.next().await {
                part.expect("a part");
            }
        }
    };
    block_on(asked).expect("a worker");
    let first = first.recv().expect("the server's end");
    assert!(first > MUCH, "{first} bytes");
}
