//! The client's side of a tunnel, over HTTP/1 and HTTP/2.

use super::{Play, SECOND, Weather, plain};
use highwire::App;
use highwire::server::Worker;
use highwire_io::sim::{Arrived, Simulated};
use highwire_proto::h2::StreamRef;

/// The client's side of a tunnel.
pub(crate) enum Peer {
    Http1(plain::Play),
    Http2(Box<Play>, StreamRef),
}

impl Peer {
    /// Opens one tunnel of each kind and returns them with their names.
    pub(crate) fn all(app: impl Fn() -> App) -> Vec<(&'static str, Peer)> {
        let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n";
        vec![
            ("Upgrade over HTTP/1", Peer::http1(app(), upgrade, "101").0),
            ("CONNECT over HTTP/1", Peer::http1(app(), "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "200").0),
            ("CONNECT over HTTP/2", Peer::http2(app(), None, "", &[])),
            ("extended CONNECT over HTTP/2", Peer::http2(app(), Some("test"), "/", &[])),
        ]
    }

    /// Opens a tunnel with a request of HTTP/1. Also returns the head of the answer, which must have this status.
    pub(crate) fn http1(app: App, request: &str, status: &str) -> (Peer, String) {
        let mut play = plain::Play::new(app);
        play.send(request.as_bytes());
        play.settle(true);
        assert_eq!(play.status(), status, "{request}");
        let head = play.received.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head: Vec<u8> = play.received.drain(..head + 4).collect();
        (Peer::Http1(play), String::from_utf8(head).expect("a head is text"))
    }

    /// Opens a tunnel with a request of HTTP/2, with these fields.
    pub(crate) fn http2(app: App, protocol: Option<&str>, path: &str, fields: &[(&str, &str)]) -> Peer {
        let mut play = Play::with_peer(app, &Weather::fair());
        play.settle();
        let stream = play.peers[0].connect_with(protocol, path, fields);
        play.settle();
        assert_eq!(play.peers[0].answer(stream).status, 200);
        Peer::Http2(Box::new(play), stream)
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        match self {
            Peer::Http1(play) => play.send(bytes),
            Peer::Http2(play, stream) => play.peers[0].push(*stream, bytes.to_vec(), false),
        }
        self.pass(0);
    }

    /// Ends the client's direction.
    pub(crate) fn end(&mut self) {
        match self {
            Peer::Http1(play) => play.client.shutdown(),
            Peer::Http2(play, stream) => play.peers[0].push(*stream, Vec::new(), true),
        }
        self.pass(0);
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        match self {
            Peer::Http1(play) => {
                play.settle(true);
                for _ in 0..seconds {
                    play.network.advance(SECOND);
                    play.settle(true);
                }
            }
            Peer::Http2(play, _) => play.pass(seconds),
        }
    }

    /// Returns the received bytes, and how the server's direction ended.
    pub(crate) fn heard(&self) -> (Vec<u8>, Option<&'static str>) {
        match self {
            Peer::Http1(play) => {
                let end = play.ended.as_ref().map(|end| if *end == Arrived::End { "end" } else { "reset" });
                (play.received.clone(), end)
            }
            Peer::Http2(play, stream) => {
                let answer = play.peers[0].answer(*stream);
                // The server may reset the stream later if the client does not end its direction.
                (answer.body, if answer.ended { Some("end") } else { answer.reset.map(|_| "reset") })
            }
        }
    }

    pub(crate) fn worker(&self) -> &Worker<Simulated> {
        match self {
            Peer::Http1(play) => &play.worker,
            Peer::Http2(play, _) => &play.worker,
        }
    }
}
