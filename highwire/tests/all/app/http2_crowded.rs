//! Tests clients that request much and read nothing. While a worker is crowded, it refuses further requests of such
//! clients, but serves other clients, and still sends the responses that it has begun. The parts of a body are not made
//! while its window is closed.
//!
//! Needs real sockets, because the memory of a response depends on how much of it the kernel takes.

use crate::engines;
use bytes::Bytes;
use futures_core::Stream;
use highwire::server::{Config, Engine, Handle};
use highwire::{App, Response};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use testkit::frames::{self, ACK, DATA, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM};
use testkit::http1::{connect_within, get};

const PATIENCE: Duration = Duration::from_secs(20);
const STREAMS: u32 = 128;
const ANSWER_BYTES: usize = 30_000;

/// The identifier of the setting SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 section 6.5.2).
const INITIAL_WINDOW: u16 = 0x4;
/// The error code REFUSED_STREAM (RFC 9113 section 7).
const REFUSED: u32 = 0x7;

static PARTS: AtomicUsize = AtomicUsize::new(0);

/// A stream of parts, which are counted when they are made.
struct Parts(usize);

impl Stream for Parts {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        PARTS.fetch_add(1, Relaxed);
        Poll::Ready(Some(Ok(Bytes::from_static(&[b'x'; 1000]))))
    }
}

fn serve(engine: Engine) -> Handle {
    let set = |config: &mut Config| (config.engine, config.workers) = (engine, 1);
    let app = App::new()
        .get("/long", || vec![b'x'; ANSWER_BYTES])
        .get("/hello", || "hello")
        .get("/parts", || Response::stream_of(100_000, Parts(100)));
    app.configure(set).listen("127.0.0.1:0").expect("a free port").start().expect("the server starts")
}

/// The frames that a client has read.
#[derive(Default)]
struct Seen {
    unread: Vec<u8>,
    /// Streams that were answered, each with the length of its body so far, and true if the body has ended.
    answered: BTreeMap<u32, (usize, bool)>,
    refused: Vec<u32>,
    pongs: usize,
}

struct Client {
    socket: TcpStream,
    read: Seen,
}

impl Client {
    fn new(address: &str, window: u32) -> Client {
        let mut socket = connect_within(address, PATIENCE);
        let opening = [PREFACE, &frames::settings(&[(INITIAL_WINDOW, window)])].concat();
        socket.write_all(&opening).expect("an open connection");
        Client { socket, read: Seen::default() }
    }

    fn ask(&mut self, streams: impl Iterator<Item = u32>, path: &str) {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a.example"), (":path", path)];
        let requests: Vec<u8> = streams.flat_map(|stream| frames::headers(END_STREAM, stream, &fields)).collect();
        self.socket.write_all(&requests).expect("an open connection");
    }

    fn send(&mut self, frame: &[u8]) {
        self.socket.write_all(frame).expect("an open connection");
    }

    /// Reads until a condition holds. Panics if that takes longer than [`PATIENCE`].
    fn until(&mut self, holds: impl Fn(&Seen) -> bool) {
        let (mut buffer, end) = ([0; 64 * 1024], Instant::now() + PATIENCE);
        while !holds(&self.read) {
            assert!(Instant::now() < end, "{:?}, refused {:?}", self.read.answered, self.read.refused);
            let count = self.socket.read(&mut buffer).expect("more");
            assert!(count > 0, "the server ends the connection");
            self.read.take(&buffer[..count]);
        }
    }

    /// Waits until the server has handled all frames that were sent so far. The server handles frames in order, so it
    /// has handled them when it acknowledges a PING.
    fn sync(&mut self) {
        let pongs = self.read.pongs;
        self.send(&frames::frame(PING, 0, 0, &[0; 8]));
        self.until(|read| read.pongs > pongs);
    }
}

impl Seen {
    fn take(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(head) = self.unread[at..].first_chunk::<9>() {
            let end = at + 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = self.unread.get(at + 9..end) else { break };
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match kind {
                HEADERS => _ = self.answered.insert(stream, (0, flags & END_STREAM != 0)),
                DATA => {
                    let answer = self.answered.get_mut(&stream).expect("a head before its body");
                    *answer = (answer.0 + payload.len(), flags & END_STREAM != 0);
                }
                RST_STREAM => {
                    assert_eq!(frames::number(payload), REFUSED);
                    self.refused.push(stream);
                }
                PING if flags & ACK != 0 => self.pongs += 1,
                _ => {}
            }
            at = end;
        }
        self.unread.drain(..at);
    }

    fn is_whole(&self, bytes: usize) -> bool {
        self.answered.values().all(|answer| *answer == (bytes, true))
    }
}

fn greedy_clients_are_refused(engine: Engine) {
    let handle = serve(engine);
    let address = &handle.addresses()[0];
    let mut clients: Vec<Client> = (0..10).map(|_| Client::new(address, 0)).collect();
    for client in &mut clients {
        client.ask((0..STREAMS).map(|number| 2 * number + 1), "/long");
        client.sync();
        assert_eq!(client.read.answered.len() + client.read.refused.len(), STREAMS as usize);
    }
    let refused: Vec<usize> = clients.iter().map(|client| client.read.refused.len()).collect();
    assert_eq!(refused[..3], [0, 0, 0], "the first clients are not refused: {refused:?}");
    assert!(refused[7..].iter().all(|&count| (100..125).contains(&count)), "{refused:?}");
    // The connection's window alone permits no data, because the windows of the streams are closed. The next request is
    // refused too.
    let mut last = clients.pop().expect("a client");
    let refused = last.read.refused.len();
    last.send(&frames::window_update(0, 1));
    last.ask(std::iter::once(2 * STREAMS + 1), "/long");
    last.sync();
    assert_eq!(last.read.refused.len(), refused + 1);
    // Other clients are served, and the responses that were begun are sent.
    assert!(get(address, "/hello").ends_with("hello"));
    last.send(&frames::settings(&[(INITIAL_WINDOW, 1 << 20)]));
    last.send(&frames::window_update(0, 1 << 26));
    last.until(|read| read.is_whole(ANSWER_BYTES));
    let before = last.read.answered.len();
    last.ask(std::iter::once(2 * STREAMS + 3), "/long");
    last.until(|read| read.answered.len() > before && read.is_whole(ANSWER_BYTES));
    handle.abort();
    handle.join().expect("a server that ends");
}

#[test]
fn greedy_clients_are_refused_on_uring() {
    if engines::has(Engine::Uring) {
        greedy_clients_are_refused(Engine::Uring);
    }
}

#[test]
fn greedy_clients_are_refused_on_readiness() {
    greedy_clients_are_refused(Engine::Readiness);
}

#[test]
fn a_body_is_not_made_while_its_window_is_closed() {
    let handle = serve(Engine::Auto);
    let mut client = Client::new(&handle.addresses()[0], 0);
    client.ask(std::iter::once(1), "/parts");
    client.sync();
    client.sync();
    assert_eq!(client.read.answered[&1], (0, false));
    assert_eq!(PARTS.load(Relaxed), 0, "no part was asked for");
    client.send(&frames::window_update(1, 1000));
    client.until(|read| read.answered[&1].0 == 1000);
    client.sync();
    assert_eq!(PARTS.load(Relaxed), 1);
    client.send(&frames::window_update(1, 1 << 20));
    client.send(&frames::window_update(0, 1 << 20));
    client.until(|read| read.is_whole(100_000));
    assert_eq!(PARTS.load(Relaxed), 100);
    handle.abort();
    handle.join().expect("a server that ends");
}
