//! Tests that a connection that has paused reception resumes it when it has room. The driver delivers bytes in pieces
//! that a kernel delivers only rarely.

use crate::memory::{Memory, turn, worker};
use highwire::middleware::before;
use highwire::server::Worker;
use highwire::{App, Body, Handler, Request, StatusCode};

fn app() -> Worker<Memory> {
    let refuse = |_: &mut Request<'_>| Err::<(), _>(StatusCode::FORBIDDEN);
    let parts = async |body: Body| body.collect(1 << 20).await.map_or(0, |whole| whole.len()).to_string();
    let app = App::new()
        .post("/body", |body: bytes::Bytes| body.len().to_string())
        .post("/refused", parts.with(before(refuse)))
        .get("/hello", || "Hello, World!");
    worker(app.configure(|config| config.limits.unread_body_bytes = 1 << 20))
}

/// Delivers the pieces one by one, and checks that the sent bytes end with `answer_end`. Fails if reception is still
/// paused when the connection has nothing left to do, because the connection would never receive the rest.
fn check(pieces: &[&[u8]], answer_end: &str) {
    let mut worker = app();
    for (number, piece) in pieces.iter().enumerate() {
        let driver = worker.driver();
        assert!(!driver.paused, "reception is paused before piece {number}, with nothing left to do");
        driver.incoming.extend_from_slice(piece);
        // Many turns, because the work of a connection per turn is limited.
        for _ in 0..100 {
            turn(&mut worker);
        }
    }
    let driver = worker.driver();
    let sent = String::from_utf8_lossy(&driver.outgoing);
    assert!(sent.ends_with(answer_end), "{answer_end:?} is not the end of {sent:?}");
    assert!(!driver.paused, "reception is paused after the last answer");
}

/// A regression test: a receive that filled the whole buffer, after a few bytes that were left over, once paused
/// reception for good. Chunked uploads hung until their timeout.
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

/// A regression test: a body in parts once waited for its handler even if middleware had refused the request. The
/// connection hung until its timeout.
#[test]
fn a_body_in_parts_that_middleware_refuses_does_not_stall() {
    let body = vec![b'x'; 50_000];
    let head = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n";
    let next = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    check(&[head, &body, &body, &body, next], "\r\n\r\nHello, World!");
}
