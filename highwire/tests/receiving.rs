//! When a connection stops receiving, and that it goes on once it has room: over a driver that hands it bytes in such
//! pieces as a kernel gives now and then.

mod memory;

use highwire::middleware::before;
use highwire::server::Worker;
use highwire::{App, Body, Handler, Request, StatusCode};
use memory::{Memory, turn, worker};

fn app() -> Worker<Memory> {
    let refuse = |_: &mut Request<'_>| Err::<(), _>(StatusCode::FORBIDDEN);
    let parts = async |body: Body| body.collect(1 << 20).await.map_or(0, |whole| whole.len()).to_string();
    let app = App::new()
        .post("/body", |body: bytes::Bytes| body.len().to_string())
        .post("/refused", parts.with(before(refuse)))
        .get("/hello", || "Hello, World!");
    worker(app.configure(|config| config.limits.unread_body_bytes = 1 << 20))
}

/// Hands pieces over, each in a turn of its own, and compares how all that was sent ends. Whoever has stopped receiving
/// though there is room never sees the rest.
fn check(pieces: &[&[u8]], answer_end: &str) {
    let mut worker = app();
    for (number, piece) in pieces.iter().enumerate() {
        let driver = worker.driver();
        assert!(!driver.paused, "reception is paused before piece {number}, with nothing left to do");
        driver.incoming.extend_from_slice(piece);
        // A connection has an allowance of work for each turn.
        for _ in 0..100 {
            turn(&mut worker);
        }
    }
    let driver = worker.driver();
    let sent = String::from_utf8_lossy(&driver.outgoing);
    assert!(sent.ends_with(answer_end), "{answer_end:?} is not the end of {sent:?}");
    assert!(!driver.paused, "reception is paused after the last answer");
}

/// A receive that fills the whole buffer, behind a few bytes that were left over, once stopped reception for good: uploads
/// in chunks hung until their deadline.
#[test]
fn a_full_receive_behind_half_a_chunk_line_does_not_stall() {
    let body = vec![b'x'; 0x20000];
    let head = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n20";
    let first = [b"000\r\n", &body[..65531]].concat();
    check(&[head, &first, &body[65531..], b"\r\n0\r\n\r\n"], "\r\n\r\n131072");
}

#[test]
fn a_full_receive_behind_half_a_head_does_not_stall() {
    let pipelined = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n".repeat(4096);
    let (start, rest) = pipelined.split_at(10);
    let (most, last) = rest.split_at(65536);
    check(&[start, most, last], "\r\n\r\nHello, World!");
}

/// A body in parts whose handler was never called once waited for somebody to take it: the connection hung until its
/// deadline.
#[test]
fn a_body_in_parts_that_middleware_refuses_does_not_stall() {
    let body = vec![b'x'; 50_000];
    let head = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n";
    let next = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    check(&[head, &body, &body, &body, next], "\r\n\r\nHello, World!");
}
