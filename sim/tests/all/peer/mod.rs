//! HTTP/2 clients for tests: the state machine of highwire-proto in the client's role, over the simulated network,
//! against the whole server, in virtual time. A second, simple parser records the server's frames.

pub(crate) mod plain;
pub(crate) mod seen;
pub(crate) mod tunnel;
pub(crate) mod websocket;

use highwire::server::Worker;
use highwire::{App, Body};
use highwire_io::sim::{Arrived, Client, Faults, Network, Simulated};
use highwire_proto::h2::{self, Bounds, Code, Event, Lent, Request, StreamRef};
use highwire_proto::{Head, Limits, Role};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A handler that answers with the number of bytes of a body.
pub(crate) async fn count(mut body: Body) -> String {
    let mut bytes = 0;
    while let Some(Ok(part)) = body.next().await {
        bytes += part.len();
    }
    bytes.to_string()
}

/// The number of consecutive idle turns after which no more progress is expected. A fault may delay progress by a turn,
/// with odds of at most 1 in 3.
const QUIET_TURNS: usize = 24;

/// The number of turns within which everything that needs no time must happen.
const MOST_TURNS: usize = 400_000;

/// The faults of a simulated network, and the seed that decides when they occur.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    seed: u64,
    faults: Faults,
    /// True if the server serves only HTTP/2, and therefore expects it from a connection's first byte, as under TLS.
    only: bool,
}

impl Weather {
    /// Returns the weather of a network without faults.
    pub(crate) fn fair() -> Weather {
        Weather { seed: 7, faults: Faults::default(), only: false }
    }
}

impl Weather {
    /// Returns the same weather for a server that also serves HTTP/1 on the port.
    pub(crate) fn shared(&self) -> Weather {
        Weather { only: false, ..self.clone() }
    }

    /// Creates a network with these faults.
    pub(crate) fn network(&self) -> Network {
        Network::new(self.seed, self.faults.clone())
    }
}

/// Plays a scenario on networks without faults, and on four that split, shorten and delay transfers.
pub(crate) fn in_all_weathers(scenario: impl Fn(&Weather)) {
    scenario(&Weather::fair());
    scenario(&Weather { only: true, ..Weather::fair() });
    for seed in 1..=4 {
        let faults =
            Faults { split: true, short_send: 4, no_send: 8, stall: 3, late: 4, reset: 0, connect: 0, accept: 0 };
        let weather = Weather { seed, faults, only: seed % 2 == 0 };
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenario(&weather)));
        if let Err(panic) = played {
            eprintln!("the scenario failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A server on the simulator and its clients.
pub(crate) struct Play {
    pub(crate) network: Network,
    pub(crate) worker: Worker<Simulated>,
    pub(crate) peers: Vec<Peer>,
    /// The highest value of the memory account so far.
    pub(crate) most: usize,
    account: usize,
    quiet_turns: usize,
    stopped: bool,
}

impl Play {
    pub(crate) fn new(app: App, weather: &Weather) -> Play {
        let network = weather.network();
        let driver = Simulated::new(network.clone()).expect("a driver");
        let app = app.configure(|config| config.http1 &= !weather.only);
        let worker = app.server().expect("an app").into_worker(driver).expect("a worker");
        let account = worker.account();
        let quiet_turns = if weather.faults == Faults::default() { 4 } else { QUIET_TURNS };
        Play { network, worker, peers: Vec::new(), most: 0, account, quiet_turns, stopped: false }
    }

    /// Starts a server and one client that reads everything.
    pub(crate) fn with_peer(app: App, weather: &Weather) -> Play {
        let mut play = Play::new(app, weather);
        play.connect(Bounds::default());
        play
    }

    /// Connects another client. Returns its index in `peers`.
    pub(crate) fn connect(&mut self, bounds: Bounds) -> usize {
        self.peers.push(Peer::new(self.network.connect(), bounds));
        self.peers.len() - 1
    }

    /// Runs turns until nothing more happens without time passing.
    pub(crate) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..MOST_TURNS {
            let mut any = false;
            for peer in &mut self.peers {
                any |= peer.act();
            }
            self.stopped |= self.worker.turn(Some(self.network.now())).expect("a turn");
            any |= !self.worker.driver().is_idle();
            self.most = self.most.max(self.worker.account());
            quiet = if any { 0 } else { quiet + 1 };
            if quiet > self.quiet_turns {
                return;
            }
        }
        panic!("the server or a client never becomes idle");
    }

    /// Lets a round trip pass: the clients hear what the server has sent before, and the server hears what they send then.
    pub(crate) fn round_trip(&mut self, time: Duration) {
        for peer in &mut self.peers {
            peer.reads = true;
            peer.act();
            peer.reads = false;
        }
        self.settle();
        self.network.advance(time);
    }

    /// Advances the clock by some seconds, one at a time.
    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.settle();
            self.network.advance(SECOND);
        }
        self.settle();
    }

    /// Advances the clock second by second until a condition holds. Returns the number of seconds.
    pub(crate) fn seconds_until(&mut self, mut holds: impl FnMut(&mut Play) -> bool) -> u64 {
        for second in 0..1000 {
            self.settle();
            if holds(self) {
                return second;
            }
            self.network.advance(SECOND);
        }
        panic!("the condition never held; {}", self.peers.iter().map(Peer::describe).collect::<String>());
    }

    /// Sends GET on the first client and returns the answer as far as it arrives without time passing.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        let stream = self.peers[0].get(path);
        self.settle();
        self.peers[0].answer(stream)
    }

    /// Returns the number of seconds until the server has stopped. The caller must have started the shutdown.
    pub(crate) fn seconds_to_the_stop(&mut self) -> u64 {
        self.seconds_until(|play| play.stopped)
    }

    /// Drops the clients and asserts that the server keeps nothing of them.
    pub(crate) fn end(mut self) {
        self.peers.clear();
        for _ in 0..80 {
            self.settle();
            if self.worker.connections() == 0 && self.worker.tasks() == 0 {
                break;
            }
            self.network.advance(SECOND);
        }
        let left = (self.worker.connections(), self.worker.tasks(), self.worker.account());
        assert_eq!(left, (0, 0, self.account), "connections, tasks and bytes that are left");
    }
}

/// An answer as far as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) interim: Vec<u16>,
    pub(crate) ended: bool,
    pub(crate) reset: Option<Code>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the status and the text of the answer, which must be complete.
    pub(crate) fn whole(&self) -> (u16, String) {
        assert!(self.ended && self.reset.is_none(), "an incomplete answer: {} {:?}", self.status, self.reset);
        (self.status, self.text())
    }
}

/// A part of a body that waits for windows.
struct Upload {
    bytes: Vec<u8>,
    at: usize,
    ends: bool,
    trailers: Vec<(String, String)>,
    /// True if all bytes are sent or the stream is closed.
    done: bool,
}

/// A frame of the server as the simple parser records it, without the payload of DATA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;

/// An HTTP/2 client.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) http: h2::Connection,
    /// True if the client reads from its socket.
    pub(crate) reads: bool,
    /// The number of bytes that the client may still read.
    pub(crate) takes: usize,
    /// True if the client opens the windows again for received bytes of bodies.
    pub(crate) credits: bool,
    /// True if the client passes received bytes to the state machine.
    pub(crate) parses: bool,
    /// The bytes that are not sent yet.
    pub(crate) out: Vec<u8>,
    /// How the connection ended.
    pub(crate) ended: Option<Arrived>,
    /// The streams in the order in which their answers ended.
    pub(crate) order: Vec<u32>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) received: usize,
    window: Vec<u8>,
    unparsed: Vec<u8>,
    answers: BTreeMap<u32, Answer>,
    uploads: Vec<(StreamRef, Upload)>,
    head: Head,
    limits: Limits,
}

impl Peer {
    fn new(client: Client, bounds: Bounds) -> Peer {
        let limits = Limits::default();
        let mut out = Vec::new();
        let http = h2::Connection::new(Role::Client, bounds, &limits, &mut out);
        Peer {
            client,
            http,
            reads: true,
            takes: usize::MAX,
            credits: true,
            parses: true,
            out,
            ended: None,
            order: Vec::new(),
            frames: Vec::new(),
            received: 0,
            window: Vec::new(),
            unparsed: Vec::new(),
            answers: BTreeMap::new(),
            uploads: Vec::new(),
            head: Head::default(),
            limits,
        }
    }

    /// Sends a GET request.
    pub(crate) fn get(&mut self, path: &str) -> StreamRef {
        self.ask("GET", path, &[], true)
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], ends: bool) -> StreamRef {
        self.begin(Request { method, scheme: "http", authority: "sim", path, protocol: None, ends }, fields)
    }

    /// Sends extended CONNECT for a protocol at a path (RFC 8441), or CONNECT for a tunnel.
    pub(crate) fn connect(&mut self, protocol: Option<&str>, path: &str) -> StreamRef {
        self.connect_with(protocol, path, &[])
    }

    /// Sends what [`connect`](Self::connect) sends, with these fields.
    pub(crate) fn connect_with(&mut self, protocol: Option<&str>, path: &str, fields: &[(&str, &str)]) -> StreamRef {
        let (scheme, path) = if protocol.is_some() { ("http", path) } else { ("", "") };
        let request = Request { method: "CONNECT", scheme, authority: "sim:80", path, protocol, ends: false };
        self.begin(request, fields)
    }

    fn begin(&mut self, request: Request<'_>, fields: &[(&str, &str)]) -> StreamRef {
        let stream = self.http.send_request(request, &mut self.out, |writer| {
            fields.iter().for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
        });
        let stream = stream.expect("a stream may be begun");
        self.answers.insert(stream.number, Answer::default());
        stream
    }

    /// Sends a GET as raw bytes, past the client's state machine.
    pub(crate) fn get_raw(&mut self, number: u32, path: &str) {
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(&[0x01, 1, b'a']);
        self.out.extend_from_slice(&[0, 0, block.len() as u8, HEADERS, 5]);
        self.out.extend_from_slice(&number.to_be_bytes());
        self.out.extend_from_slice(&block);
    }

    /// Sends POST with a body, which follows as the windows allow.
    pub(crate) fn post(&mut self, path: &str, body: Vec<u8>) -> StreamRef {
        let stream = self.ask("POST", path, &[], false);
        self.push(stream, body, true);
        stream
    }

    /// Sends bytes of a body, as the windows allow.
    pub(crate) fn push(&mut self, stream: StreamRef, bytes: Vec<u8>, ends: bool) {
        self.uploads.push((stream, Upload { bytes, at: 0, ends, trailers: Vec::new(), done: false }));
    }

    /// Sends bytes of a body and then trailers.
    pub(crate) fn push_with_trailers(&mut self, stream: StreamRef, bytes: Vec<u8>, trailers: &[(&str, &str)]) {
        let trailers = trailers.iter().map(|&(name, value)| (name.to_string(), value.to_string())).collect();
        self.uploads.push((stream, Upload { bytes, at: 0, ends: true, trailers, done: false }));
    }

    /// Returns the number of body bytes that wait for the server's windows.
    pub(crate) fn unsent(&self) -> usize {
        self.uploads.iter().map(|(_, upload)| upload.bytes.len() - upload.at).sum()
    }

    pub(crate) fn reset(&mut self, stream: StreamRef) {
        self.http.reset(stream, Code::Cancel, &mut self.out);
    }

    pub(crate) fn answer(&self, stream: StreamRef) -> Answer {
        self.answers.get(&stream.number).cloned().unwrap_or_default()
    }

    /// Returns true if an answer is complete or its stream was reset.
    pub(crate) fn is_over(&self, stream: StreamRef) -> bool {
        self.answers.get(&stream.number).is_some_and(|answer| answer.ended || answer.reset.is_some())
    }

    /// Reports `bytes` bytes as used up on the connection, and on the stream if one is given, independent of the
    /// received bytes. The windows then open by as much.
    pub(crate) fn credit(&mut self, stream: Option<StreamRef>, bytes: usize) {
        match stream {
            Some(stream) => self.http.used(stream, bytes, &mut self.out),
            None => self.http.dropped(bytes, &mut self.out),
        }
    }

    /// Returns the last stream and the error code of each GOAWAY.
    pub(crate) fn goaways(&self) -> Vec<(u32, u32)> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let of = self.frames.iter().filter(|frame| frame.kind == GOAWAY);
        of.map(|frame| (number(&frame.payload), number(&frame.payload[4..]))).collect()
    }

    /// Returns the stream and the error code of each RST_STREAM.
    pub(crate) fn resets(&self) -> Vec<(u32, u32)> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let of = self.frames.iter().filter(|frame| frame.kind == RST_STREAM);
        of.map(|frame| (frame.stream, number(&frame.payload))).collect()
    }

    fn describe(&self) -> String {
        let answers = self.answers.iter().map(|(stream, answer)| {
            let Answer { status, ended, reset, body, .. } = answer;
            format!("{stream}: {status}, {} bytes, ended {ended}, reset {reset:?}; ", body.len())
        });
        format!(
            "[{} unsent {} goaways {:?} end {:?}]",
            answers.collect::<String>(),
            self.unsent(),
            self.goaways(),
            self.ended
        )
    }

    /// Reads, handles and sends as much as possible now. Returns true if anything moved.
    pub(crate) fn act(&mut self) -> bool {
        let mut any = false;
        while self.reads && self.ended.is_none() {
            match self.client.receive(self.takes) {
                None => break,
                Some(Arrived::Bytes(bytes)) => {
                    self.takes -= bytes.len();
                    self.received += bytes.len();
                    if self.parses {
                        self.window.extend_from_slice(&bytes);
                    }
                    self.unparsed.extend_from_slice(&bytes);
                }
                Some(end) => self.ended = Some(end),
            }
            any = true;
        }
        if any {
            self.look();
            if self.parses {
                self.read();
            }
        }
        self.send_bodies();
        let sent = self.client.send(&self.out);
        self.out.drain(..sent);
        any | (sent > 0)
    }

    /// Records the received frames with the simple parser.
    fn look(&mut self) {
        while let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = self.unparsed.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if self.unparsed.len() < 9 + length {
                return;
            }
            let payload = if kind == 0 { Vec::new() } else { self.unparsed[9..9 + length].to_vec() };
            self.frames.push(Frame { kind, flags, stream: u32::from_be_bytes([s0, s1, s2, s3]), payload });
            self.unparsed.drain(..9 + length);
        }
    }

    fn read(&mut self) {
        let window = std::mem::take(&mut self.window);
        let mut fields = Vec::new();
        let mut at = 0;
        loop {
            let mut lent = Lent { head: &mut self.head, fields: &mut fields, out: &mut self.out, limits: &self.limits };
            let received = match self.http.receive(&window[at..], &mut lent) {
                Ok(received) => received,
                Err(failure) => panic!("the server broke the protocol: {failure:?}"),
            };
            at += received.consumed;
            match received.event {
                Event::NeedMore => break,
                Event::Head(stream, length) => {
                    let answer = self.answers.entry(stream.number).or_default();
                    assert_eq!(answer.status, 0, "a second head");
                    (answer.status, answer.fields) = (self.head.status, list(&self.head, &fields));
                    if length == highwire_proto::Length::Empty {
                        answer.ended = true;
                        self.order.push(stream.number);
                    }
                }
                Event::Interim(stream) => {
                    self.answers.entry(stream.number).or_default().interim.push(self.head.status);
                }
                Event::Data(stream, bytes) => {
                    self.answers.entry(stream.number).or_default().body.extend_from_slice(bytes);
                    if self.credits {
                        self.http.used(stream, bytes.len(), &mut self.out);
                    }
                }
                Event::End(stream, trailers) => {
                    let answer = self.answers.entry(stream.number).or_default();
                    answer.ended = true;
                    if trailers {
                        answer.trailers = list(&self.head, &fields);
                    }
                    self.order.push(stream.number);
                }
                Event::Reset(stream, code) => {
                    self.answers.entry(stream.number).or_default().reset = Some(code);
                }
                Event::Refused(stream, error) => panic!("{stream:?} is refused by a client: {error}"),
                Event::Opened(_) | Event::AllOpened | Event::GoingAway => {}
            }
        }
        self.window = window[at..].to_vec();
    }

    fn send_bodies(&mut self) {
        for (stream, upload) in &mut self.uploads {
            if !self.http.is_open(*stream) {
                upload.at = upload.bytes.len();
                upload.done = true;
                continue;
            }
            let ends = upload.ends && upload.trailers.is_empty();
            let sent = self.http.send_data(*stream, &upload.bytes[upload.at..], ends, &mut self.out);
            // An error means that the client's direction is closed; the answer shows the reason.
            upload.at += sent.unwrap_or(0);
            if upload.at == upload.bytes.len() {
                upload.done = true;
                if !upload.trailers.is_empty() {
                    let sent = self.http.send_trailers(*stream, &mut self.out, |writer| {
                        let fields = upload.trailers.iter();
                        fields.for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
                    });
                    sent.expect("trailers may be sent");
                }
            }
        }
        self.uploads.retain(|(_, upload)| !upload.done);
    }
}

fn list(head: &Head, window: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    head.fields.iter().map(|field| (text(field.name.of(window)), text(field.value.of(window)))).collect()
}
