//! Tests that join a client's exchange to a server's without a protocol between them: the incoming half of each side
//! receives the parts that the outgoing half of the other side sends. The client's exchange has the same type as the
//! server's; it begins with its outgoing half.

use super::outgoing::Next;
use super::state::State;
use super::*;
use crate::body::{Body, BodyStream, INCOMING_BYTES, PART_BYTES};
use crate::message::response::Streamed;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderName, HeaderValue};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

/// The most bytes in one part of a client's body.
const PART: usize = 16 * 1024;

/// A body in parts. If `panics` is true, it panics after the last part.
struct Upload {
    parts: VecDeque<Bytes>,
    panics: bool,
}

impl Upload {
    fn of(bytes: &[u8], panics: bool) -> Upload {
        Upload { parts: bytes.chunks(PART).map(Bytes::copy_from_slice).collect(), panics }
    }
}

impl Stream for Upload {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = self.parts.pop_front();
        assert!(part.is_some() || !self.panics, "on purpose");
        Poll::Ready(part.map(Ok))
    }
}

/// Returns a client's exchange whose request has this body.
fn client(upload: Upload) -> Exchange {
    let mut exchange = Exchange::default();
    exchange.incoming = Incoming::awaited();
    let trailers = || vec![(HeaderName::from_static("digest"), HeaderValue::from_static("of the request"))];
    let body = Streamed { length: None, body: BodyStream::new(upload), trailers: Some(Box::new(trailers)) };
    exchange.outgoing.stream(Box::new(body));
    exchange
}

/// Moves the parts and the end of a body from one side to the other until nothing is ready or the receiver is full.
/// Returns true if anything moved.
fn carry(from: &mut Exchange, to: &mut Exchange) -> bool {
    let mut any = false;
    while !to.incoming.is_full() {
        match from.outgoing.next(false, Waker::noop()) {
            Some(Poll::Ready(Next::Part(crate::body::Part::Bytes(bytes)))) => {
                to.incoming.receive(&bytes);
            }
            Some(Poll::Ready(Next::End)) => {
                let trailers = from.outgoing.end().expect("making the trailers panicked");
                to.incoming.end(trailers);
            }
            Some(Poll::Ready(Next::Failed(abort, _))) => {
                from.outgoing.cut();
                to.incoming.cut(abort.body_error());
            }
            Some(Poll::Ready(Next::Part(_))) => unreachable!("`next` was called with `files` set to false"),
            Some(Poll::Pending) | None => return any,
        }
        any = true;
    }
    any
}

/// Reads the received parts of a body into `into`. Returns the body's result if the body has ended, otherwise `None`.
fn read(body: &mut Body, into: &mut Vec<u8>) -> Option<Result<(), BodyError>> {
    loop {
        match pin!(body.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(part))) => into.extend_from_slice(&part),
            Poll::Ready(Some(Err(error))) => return Some(Err(error)),
            Poll::Ready(None) => return Some(Ok(())),
            Poll::Pending => return None,
        }
    }
}

fn states(exchange: &Exchange) -> (State, State) {
    (exchange.incoming.state(), exchange.outgoing.state())
}

#[test]
fn a_client_half_and_a_server_half_carry_both_bodies_and_their_trailers() {
    for length in [0, 1, PART, PART + 1, 10 * PART] {
        let sent: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let (mut client, mut server) = (client(Upload::of(&sent, false)), Exchange::default());
        assert_eq!(states(&client), (State::Awaited, State::Parts));
        assert_eq!(states(&server), (State::Begun, State::Awaited));

        // The server's handler sends back the request's body. The client reads the response when neither side can move
        // another part.
        let request = server.incoming.stream(Waker::noop().clone());
        let echo = Streamed { length: None, body: BodyStream::new(request), trailers: None };
        server.outgoing.stream(Box::new(echo));
        client.incoming.begin();
        let mut response = client.incoming.stream(Waker::noop().clone());
        assert_eq!(states(&client), (State::Parts, State::Parts));

        let (mut got, mut ended) = (Vec::new(), None);
        while ended.is_none() {
            while carry(&mut client, &mut server) | carry(&mut server, &mut client) {}
            for held in [client.incoming.held(), server.incoming.held()] {
                assert!(held <= INCOMING_BYTES + PART + PART_BYTES, "{held} bytes held for a body of {length}");
            }
            ended = read(&mut response, &mut got);
        }
        assert_eq!((ended, got == sent), (Some(Ok(())), true), "{length} bytes");
        for exchange in [&client, &server] {
            assert_eq!(states(exchange), (State::Complete, State::Complete), "{length} bytes");
            assert!(exchange.is_over(), "{length} bytes");
        }
    }
}

#[test]
fn trailers_of_a_request_reach_the_handler() {
    let (mut client, mut server) = (client(Upload::of(b"a body", false)), Exchange::default());
    let mut request = server.incoming.stream(Waker::noop().clone());
    while carry(&mut client, &mut server) {}
    let mut got = Vec::new();
    assert_eq!((read(&mut request, &mut got), got.as_slice()), (Some(Ok(())), b"a body".as_slice()));
    assert_eq!(request.trailers(), [("digest".parse().unwrap(), HeaderValue::from_static("of the request"))]);
}

#[test]
fn a_request_that_fails_at_the_client_is_cut_at_the_server() {
    let (mut client, mut server) = (client(Upload::of(b"half of it", true)), Exchange::default());
    let mut request = server.incoming.stream(Waker::noop().clone());
    while carry(&mut client, &mut server) {}
    let mut got = Vec::new();
    assert_eq!(read(&mut request, &mut got), Some(Err(BodyError::CutShort)));
    assert_eq!(got, b"half of it");
    assert_eq!(states(&client), (State::Awaited, State::Cut));
    assert_eq!(states(&server), (State::Cut, State::Awaited));
}

#[test]
fn a_response_that_nobody_reads_any_more_is_dropped_as_it_comes() {
    let (mut client, mut server) = (client(Upload::of(&[7; 4 * PART], false)), Exchange::default());
    let request = server.incoming.stream(Waker::noop().clone());
    let body = Streamed { length: None, body: BodyStream::new(request), trailers: None };
    server.outgoing.stream(Box::new(body));
    client.incoming.begin();
    drop(client.incoming.stream(Waker::noop().clone()));
    while carry(&mut client, &mut server) | carry(&mut server, &mut client) {}
    assert_eq!((client.incoming.held(), states(&client)), (0, (State::Complete, State::Complete)));
}
