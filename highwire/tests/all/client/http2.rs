//! Tests of the client against HTTP/2 servers that misbehave, and during a shutdown of its own worker.

use highwire::client::{Client, Error, Timeouts, block_on};
use highwire::{App, State};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM_AND_HEADERS: u8 = 5;
/// The field section of a response: `:status: 200`.
const OK: &[u8] = &[0x88];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// SETTINGS with a limit of the number of streams.
fn most_streams(most: u32) -> Vec<u8> {
    let mut setting = vec![0, 3];
    setting.extend(most.to_be_bytes());
    frame(SETTINGS, 0, 0, &setting)
}

fn goaway(last: u32) -> Vec<u8> {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend([0; 4]);
    frame(GOAWAY, 0, 0, &payload)
}

/// Receives the client's preface.
fn preface(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 24]).expect("a preface");
}

/// Receives frames up to the next HEADERS, and returns its stream; `None` if the client has closed the connection.
fn next_request(stream: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).ok()?;
        if head[3] == HEADERS {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

/// Starts a server whose connections `play` handles, each with its number. Returns its URL and the number of connections.
fn serve(play: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let (count, play) = (Arc::new(AtomicUsize::new(0)), Arc::new(play));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, play, number) =
                (stream.expect("a connection"), play.clone(), counted.fetch_add(1, Ordering::SeqCst));
            std::thread::spawn(move || play(number, stream));
        }
    });
    (url, count)
}

fn client() -> Client {
    Client::builder().http2_prior_knowledge().build().expect("a client")
}

#[test]
fn a_server_that_ends_each_connection_early_is_called_a_few_times() {
    let (url, count) = serve(|_, mut stream| {
        let _ = stream.write_all(&[most_streams(0), goaway(0)].concat());
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let result = block_on(async move { client().get(&url).send().await }).expect("a worker");
    assert!(result.is_err());
    let count = count.load(Ordering::SeqCst);
    assert!((1..=4).contains(&count), "{count} connections");
}

/// Sends requests at the same time. Returns how many of them were answered with 200.
async fn ask(client: Client, url: String, requests: usize) -> usize {
    let (answered, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for _ in 0..requests {
        let (request, answered, ended) = (client.get(&url).send(), answered.clone(), ended.clone());
        highwire::spawn(async move {
            let is_good = request.await.is_ok_and(|response| response.status() == 200);
            answered.set(answered.get() + usize::from(is_good));
            ended.set(ended.get() + 1);
        });
    }
    while ended.get() < requests {
        highwire::time::sleep(Duration::from_millis(2)).await;
    }
    answered.get()
}

#[test]
fn requests_behind_a_goaway_go_to_another_connection() {
    let (url, count) = serve(|number, mut stream| {
        preface(&mut stream);
        let _ = stream.write_all(&most_streams(1));
        while let Some(id) = next_request(&mut stream) {
            let end = if number == 0 { goaway(id) } else { Vec::new() };
            let answer = frame(HEADERS, END_STREAM_AND_HEADERS, id, OK);
            let _ = stream.write_all(&[end, answer].concat());
        }
    });
    assert_eq!(block_on(ask(client(), url, 5)).expect("a worker"), 5);
    assert!(count.load(Ordering::SeqCst) >= 2);
}

#[test]
fn a_server_may_lower_the_number_of_streams() {
    let (url, _) = serve(|_, mut stream| {
        preface(&mut stream);
        let _ = stream.write_all(&most_streams(10));
        while let Some(id) = next_request(&mut stream) {
            // Lowers the limit before the answer, as often as a request comes.
            let answer = frame(HEADERS, END_STREAM_AND_HEADERS, id, OK);
            let _ = stream.write_all(&[most_streams(1), answer].concat());
        }
    });
    assert_eq!(block_on(ask(client(), url, 30)).expect("a worker"), 30);
}

#[test]
fn a_handler_may_open_a_connection_during_the_shutdown() {
    let (url, _) = serve(|_, mut stream| {
        preface(&mut stream);
        let _ = stream.write_all(&most_streams(10));
        while let Some(id) = next_request(&mut stream) {
            let _ = stream.write_all(&frame(HEADERS, END_STREAM_AND_HEADERS, id, OK));
        }
    });
    let (is_called, may_go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let state = (client(), url, is_called.clone(), may_go_on.clone());
    type Shared = (Client, String, Arc<AtomicBool>, Arc<AtomicBool>);
    let app = App::new().state(state).get("/", async |State(shared): State<Shared>| {
        let (client, url, called, go_on) = shared;
        called.store(true, Ordering::SeqCst);
        while !go_on.load(Ordering::SeqCst) {
            highwire::time::sleep(Duration::from_millis(2)).await;
        }
        let response = client.get(&url).send().await?;
        Ok::<_, Error>(response.status().as_u16().to_string())
    });
    let server = app.configure(|config| config.workers = 1).listen("127.0.0.1:0").expect("an address");
    let address = server.addresses()[0].clone();
    let handle = server.start().expect("cannot start");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a server");
    while !is_called.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    handle.shutdown();
    may_go_on.store(true, Ordering::SeqCst);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n200"), "{answer}");
    drop(stream);
    handle.join().expect("cannot stop");
}

/// Another protocol needs the server's settings. A server that never sends them must not hold the request for ever, and its
/// other requests have their own limit.
#[test]
fn a_request_for_another_protocol_does_not_wait_for_settings_for_ever() {
    let (url, _) = serve(|_, mut stream| {
        preface(&mut stream);
        while let Some(_stream) = next_request(&mut stream) {}
    });
    let timeouts = Timeouts::default().head(Duration::from_millis(300)).idle(Duration::ZERO);
    let client = Client::builder().http2_prior_knowledge().timeouts(timeouts).retries(0).build().expect("a client");
    let error =
        block_on(async { client.get(&url).upgrade("websocket").send().await.map(drop).expect_err("no settings") });
    let error = error.expect("a worker");
    assert!(error.is_timeout(), "{error}");
}

#[derive(Debug)]
struct Nowhere;

impl highwire::client::Resolve for Nowhere {
    fn resolve(&self, _: &str, _: u16, answer: highwire::client::Answer) {
        answer(Err(std::io::ErrorKind::NotFound.into()));
    }
}

/// What a client has on a worker refers to its settings. It must not keep itself alive.
#[test]
fn a_dropped_client_leaves_nothing_on_its_worker() {
    block_on(async {
        let resolver = Arc::new(Nowhere);
        let watched = Arc::downgrade(&resolver);
        let client = Client::builder().resolver(resolver).retries(0).build().expect("a client");
        client.get("http://somewhere.example/").send().await.map(drop).expect_err("no address");
        drop(client);
        // The next new client frees what the dropped ones have left.
        let other = Client::builder().resolver(Arc::new(Nowhere)).retries(0).build().expect("a client");
        other.get("http://somewhere.example/").send().await.map(drop).expect_err("no address");
        assert!(watched.upgrade().is_none(), "the settings of the dropped client are still there");
    })
    .expect("a worker");
}
