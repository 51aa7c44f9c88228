//! Answers of a proxy that many clients do not read, in virtual time: little of each is received before its client takes some,
//! and later all of it.

use crate::peer::{Play, Weather, in_all_weathers};
use highwire::App;
use highwire::proxy::Proxy;
use highwire_io::Address;
use highwire_io::sim::{Arrived, Client as Socket, Host};
use highwire_proto::h2::Bounds;
use std::time::Duration;

const CLIENTS: usize = 12;

/// The number of requests of each client, as many as a new connection may have at upstreams.
const REQUESTS: usize = 8;

const BODY_BYTES: usize = 100_000;

/// An upstream of HTTP/1 that answers each request at once.
struct Upstream {
    host: Host,
    links: Vec<(Socket, Vec<u8>, Vec<u8>)>,
    is_chunked: bool,
}

fn body() -> impl Iterator<Item = u8> {
    (0..BODY_BYTES).map(|at| (at % 251) as u8)
}

impl Upstream {
    fn act(&mut self) {
        while let Some(client) = self.host.accept() {
            self.links.push((client, Vec::new(), Vec::new()));
        }
        self.links.retain_mut(|(client, received, unsent)| {
            loop {
                match client.receive(usize::MAX) {
                    Some(Arrived::Bytes(bytes)) => received.extend(bytes),
                    Some(_) => return false,
                    None => break,
                }
            }
            if received.ends_with(b"\r\n\r\n") {
                received.clear();
                let framing = match self.is_chunked {
                    true => format!("Transfer-Encoding: chunked\r\n\r\n{BODY_BYTES:x}\r\n"),
                    false => format!("Content-Length: {BODY_BYTES}\r\n\r\n"),
                };
                unsent.extend(format!("HTTP/1.1 200 OK\r\n{framing}").bytes().chain(body()));
                unsent.extend_from_slice(if self.is_chunked { b"\r\n0\r\n\r\n" } else { b"" });
            }
            let sent = client.send(unsent);
            unsent.drain(..sent);
            true
        });
    }

    /// Lets some time pass.
    fn play(&mut self, play: &mut Play, steps: usize) {
        for _ in 0..steps {
            self.act();
            play.settle();
            play.network.advance(Duration::from_millis(1));
        }
    }
}

fn answers_wait_upstream(weather: &Weather, is_chunked: bool) {
    let app = App::new().proxy("/", Proxy::to(["http://10.0.0.1"]).expect("a proxy"));
    let mut play = Play::new(app, weather);
    let host = play.network.listen(Address::parse("10.0.0.1:80").expect("an address"));
    let mut upstream = Upstream { host, links: Vec::new(), is_chunked };
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        let client = play.connect(Bounds { stream_window: 0, ..Bounds::default() });
        streams.extend((0..REQUESTS).map(|_| (client, play.peers[client].get("/"))));
    }
    upstream.play(&mut play, 30);
    let heads = streams.iter().filter(|(client, stream)| play.peers[*client].answer(*stream).status == 200).count();
    assert_eq!(heads, streams.len(), "all have their heads");
    // The first 32 are received as always, the others in pieces. Without that, 6.5 to 8 MB are held.
    assert!(play.worker.account() < 6_400_000, "{} bytes are held", play.worker.account());

    for (client, stream) in &streams {
        play.peers[*client].credit(Some(*stream), BODY_BYTES);
        play.peers[*client].credit(None, BODY_BYTES);
    }
    upstream.play(&mut play, 60);
    for (client, stream) in &streams {
        let answer = play.peers[*client].answer(*stream);
        assert!(answer.ended && answer.reset.is_none(), "{} bytes of client {client}", answer.body.len());
        assert!(answer.body.iter().copied().eq(body()), "client {client}");
    }
    drop(upstream);
    play.end();
}

#[test]
fn answers_that_many_clients_do_not_take_wait_at_the_upstream() {
    in_all_weathers(|weather| {
        [false, true].into_iter().for_each(|is_chunked| answers_wait_upstream(weather, is_chunked))
    });
}
