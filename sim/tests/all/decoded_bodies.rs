//! Request bodies that middleware decompresses: decoded bodies that handlers hold are charged to the memory budget,
//! over HTTP/1 and HTTP/2, and only requests with body bytes hold decoders.

use crate::peer::{Play, SECOND, Weather};
use bytes::Bytes;
use highwire::compress::testing::Encoding;
use highwire::compress::{Coding, Decompression};
use highwire::middleware::{Next, from_fn};
use highwire::{App, Body, Handler, Reply, time};
use highwire_io::sim::{Arrived, Client};

/// The decoded size of the bomb in bytes, which is the default of `Limits::body_bytes`.
const DECODED: usize = 1 << 20;

const REQUESTS: usize = 4;

/// Returns a zstd frame of 38 bytes: eight blocks that each repeat one byte 131,072 times (RFC 8878 section 3.1.1.2).
fn bomb() -> Vec<u8> {
    let block = |last: u32| [&(131_072_u32 << 3 | 1 << 1 | last).to_le_bytes()[..3], b"x"].concat();
    [b"\x28\xb5\x2f\xfd\x00\x68".to_vec(), block(0).repeat(7), block(1)].concat()
}

/// Returns the bomb after a skippable frame of 100,000 bytes, so that it arrives in many parts.
fn long_bomb() -> Vec<u8> {
    let skipped = [&b"\x50\x2a\x4d\x18"[..], &100_000_u32.to_le_bytes(), &[7; 100_000]].concat();
    [skipped, bomb()].concat()
}

async fn bytes(body: Bytes) -> String {
    time::sleep(5 * SECOND).await;
    body.len().to_string()
}

async fn text(body: String) -> String {
    time::sleep(5 * SECOND).await;
    body.len().to_string()
}

fn reply(body: Bytes, reply: Reply) {
    highwire::spawn(async move {
        time::sleep(5 * SECOND).await;
        reply.send(body.len().to_string());
    });
}

fn app(memory: usize) -> App {
    let decoded = Decompression::new;
    let late = || {
        from_fn(async |request, next: Next| {
            time::sleep(SECOND).await;
            next.run(request).await
        })
    };
    App::new()
        .post("/bytes", bytes.with(decoded()))
        .post("/text", text.with(decoded()))
        .post("/reply", reply.with(decoded()))
        .post("/late", bytes.with(decoded()).with(late()))
        .get("/hello", || "hello")
        .configure(|config| config.memory = Some(memory))
}

const PATHS: [&str; 4] = ["/bytes", "/text", "/reply", "/late"];

/// Sends each of [`REQUESTS`] requests on its own HTTP/1 connection.
fn ask_http1(play: &mut Play, path: &str, body: &[u8]) -> Vec<Client> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Encoding: zstd\r\nContent-Length: {length}\r\n\r\n");
    let said = [head.as_bytes(), body].concat();
    let ask = |_| {
        let connection = play.network.connect();
        let mut sent = 0;
        while sent < said.len() {
            sent += connection.send(&said[sent..]);
            play.settle();
        }
        connection
    };
    let connections = (0..REQUESTS).map(ask).collect();
    play.pass(2);
    connections
}

/// Returns the status and the body that a connection has received.
fn heard(connection: &Client) -> (u16, String) {
    let mut all = Vec::new();
    while let Some(Arrived::Bytes(bytes)) = connection.receive(usize::MAX) {
        all.extend_from_slice(&bytes);
    }
    let all = String::from_utf8(all).expect("text");
    let status = all.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, all.rsplit("\r\n\r\n").next().unwrap_or_default().to_string())
}

/// Counts the answers by kind: 200 with the whole length, 503, others.
fn counts(answers: impl Iterator<Item = (u16, String)>) -> [usize; 3] {
    answers.fold([0; 3], |mut counts, (status, text)| {
        let kind = match status {
            200 if text == DECODED.to_string() => 0,
            503 => 1,
            _ => 2,
        };
        counts[kind] += 1;
        counts
    })
}

#[test]
fn what_a_waiting_handler_holds_of_a_decoded_body_is_charged() {
    for path in PATHS {
        for body in [bomb(), long_bomb()] {
            let mut play = Play::new(app(64 << 20), &Weather::fair());
            let connections = ask_http1(&mut play, path, &body);
            let account = play.worker.account();
            assert!(account >= REQUESTS * DECODED, "HTTP/1 {path}: {account} bytes are charged");
            play.pass(10);
            assert_eq!(counts(connections.iter().map(heard)), [REQUESTS, 0, 0], "HTTP/1 {path}");
            let account = play.worker.account();
            assert!(account < DECODED, "HTTP/1 {path}: {account} bytes are charged when the answers are out");
            drop(connections);
            play.end();

            let mut play = Play::with_peer(app(64 << 20), &Weather::fair());
            let streams: Vec<_> = (0..REQUESTS).map(|_| ask_http2(&mut play, path, &body)).collect();
            play.pass(2);
            let account = play.worker.account();
            assert!(account >= REQUESTS * DECODED, "HTTP/2 {path}: {account} bytes are charged");
            play.pass(10);
            let answers = streams.iter().map(|&stream| play.peers[0].answer(stream).whole());
            assert_eq!(counts(answers), [REQUESTS, 0, 0], "HTTP/2 {path}");
            let account = play.worker.account();
            assert!(account < DECODED, "HTTP/2 {path}: {account} bytes are charged when the answers are out");
            play.end();
        }
    }
}

fn ask_http2(play: &mut Play, path: &str, body: &[u8]) -> highwire_proto::h2::StreamRef {
    let stream = play.peers[0].ask("POST", path, &[("content-encoding", "zstd")], false);
    play.peers[0].push(stream, body.to_vec(), true);
    stream
}

#[test]
fn where_the_budget_has_no_room_for_what_bodies_decode_to_the_answer_is_503() {
    for path in PATHS {
        for body in [bomb(), long_bomb()] {
            let memory = DECODED * 5 / 2;
            let mut play = Play::new(app(memory), &Weather::fair());
            let connections = ask_http1(&mut play, path, &body);
            play.pass(10);
            assert_eq!(counts(connections.iter().map(heard)), [2, REQUESTS - 2, 0], "HTTP/1 {path}");
            drop(connections);
            play.end();

            // One connection may use only a part of the budget.
            let mut play = Play::with_peer(app(memory * 2), &Weather::fair());
            let streams: Vec<_> = (0..REQUESTS).map(|_| ask_http2(&mut play, path, &body)).collect();
            play.pass(12);
            let answers = streams.iter().map(|&stream| play.peers[0].answer(stream).whole());
            assert_eq!(counts(answers), [2, REQUESTS - 2, 0], "HTTP/2 {path}");
            assert_eq!(play.get("/hello").whole(), (200, "hello".to_string()));
            play.end();
        }
    }
}

/// Requests without any body bytes once held the memory of their decoders. After 15 such requests all others got 503.
#[test]
fn requests_whose_bodies_do_not_come_hold_no_decoders() {
    let length = async |body: Body| body.collect(1 << 20).await.map(|whole| whole.len().to_string());
    // A Brotli decoder counts as 17 MiB, so only one fits.
    let app = App::new().post("/", length.with(Decompression::new().memory(17 << 20)));
    let mut play = Play::new(app, &Weather::fair());
    let body = Encoding::new(Coding::Brotli, 4, None).end(b"twelve bytes");
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: {length}\r\n\r\n");
    let ask = |play: &mut Play, sent: usize| {
        let connection = play.network.connect();
        let said = [head.as_bytes(), &body[..sent]].concat();
        assert_eq!(connection.send(&said), said.len());
        play.settle();
        connection
    };
    let whole = |connection: &Client| heard(connection) == (200, "12".to_string());
    let silent: Vec<_> = (0..3).map(|_| ask(&mut play, 0)).collect();
    let upload = ask(&mut play, length);
    assert!(whole(&upload), "beside silent requests");
    let begun = ask(&mut play, 1);
    let upload = ask(&mut play, length);
    assert_eq!(heard(&upload).0, 503, "beside a request whose body has begun");
    begun.send(&body[1..]);
    play.settle();
    assert!(whole(&begun));
    for connection in &silent {
        connection.send(&body);
        play.settle();
        assert!(whole(connection), "a request whose body is late");
    }
    drop((silent, upload, begun));
    play.end();
}
