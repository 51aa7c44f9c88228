//! Seeded clients against the whole server: what they do, what they must get, and what must be left when they are gone.
//!
//! A seed decides the number of clients, what each does and when, how the network cuts, stalls and breaks, and where time
//! goes. At the end three things are checked: nothing is lost (a client that behaved, on a link that did not break, has
//! every answer, whole and in order; over HTTP/2 in any order), nothing leaked (no connection, socket or task is left, and the memory account is as it
//! was), nothing hangs (all of it within a bound of turns).

use crate::answers;
use crate::app::app;
use crate::frames::{self, Field, Part, Request};
use crate::tls::{self, Clients, Http, Resumption, Session, Version};
use highwire_io::random::Seeded;
use highwire_io::sim::{Arrived, Client, Faults, Network, Simulated};
use highwire_io::{Instant, ListenerId};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;
use std::time::Duration;
use testkit::frames::frame;

/// Turns that a run may take: a hundred times what the longest seed needs.
const MOST_TURNS: usize = 2_000_000;

/// The listeners of the server.
const CLEAR: ListenerId = ListenerId(0);
const SECURE: ListenerId = ListenerId(1);

/// No session is resumed: what a seed does must not depend on those before it.
static CLIENTS: LazyLock<Clients> = LazyLock::new(|| Clients::new(Resumption::disabled()));

/// What a seed led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Clients that were played.
    pub clients: usize,
    /// Answers that were checked.
    pub answers: usize,
    /// Links that broke.
    pub broken: usize,
    /// Turns of the worker.
    pub turns: usize,
    /// The run as a number: the same seed has the same.
    pub trace: u64,
}

/// What a client expects of one request.
#[derive(Clone, Debug)]
struct Expected {
    status: u16,
    body: Option<Vec<u8>>,
    head: bool,
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Sends its requests, reads its answers, closes.
    Good,
    /// The same, but reads little and late.
    SlowReader,
    /// The same, but ends its direction right after its last request.
    HalfCloser,
    /// Goes away in the middle, in order or not: no answer is owed.
    Leaver,
    /// Sends what is no HTTP somewhere: answers to what came before are owed, then an error and the end.
    Garbage,
    /// Connects and says nothing.
    Silent,
    /// Begins a request and never ends it.
    Unfinished,
}

struct Player {
    client: Option<Client>,
    session: Option<Session>,
    /// What the session has encrypted and the network has not taken yet.
    sealed: Vec<u8>,
    /// It speaks HTTP/2.
    http2: Option<frames::Client>,
    manner: Manner,
    unsent: Vec<u8>,
    sent: usize,
    expected: Vec<Expected>,
    received: Vec<u8>,
    starts: Instant,
    leaves_after: usize,
    /// It goes when it has all answers, where only the server could end the connection otherwise.
    goes: bool,
    shut: bool,
    /// What the server may not do.
    problem: Option<String>,
    ended: bool,
    /// The network broke the link.
    broken: bool,
    /// The server did.
    reset: bool,
}

/// Plays a seed.
///
/// # Errors
/// What was lost, leaked or hung, in words.
pub fn play(seed: u64) -> Result<Outcome, String> {
    let mut random = Seeded::new(seed ^ 0x5bf0_3635);
    let faults = if random.one_in(8) { Faults::default() } else { Faults::all() };
    let network = Network::new(seed, faults);
    if random.one_in(3) {
        // As much as a kernel holds: bodies come faster than handlers take them.
        network.hold(256 * 1024);
    }
    let driver = Simulated::new(network.clone()).map_err(|error| error.to_string())?;
    let app = app().configure(|config| {
        config.limits.requests_a_connection = 0;
        // Slow readers are as slow in the handshake.
        config.timeouts.handshake = Duration::from_secs(60);
    });
    let mut worker = app
        .listen("127.0.0.1:0")
        .and_then(|server| server.listen_tls("127.0.0.1:0", tls::server_config()))
        .and_then(|server| server.into_worker(driver))
        .map_err(|error| error.to_string())?;
    let start = worker.account();
    let count = 1 + random.below(12);
    let mut players: Vec<Player> = (0..count).map(|_| player(&mut random, network.now())).collect();
    let mut outcome = Outcome { clients: count, ..Outcome::default() };
    loop {
        outcome.turns += 1;
        if outcome.turns > MOST_TURNS {
            return Err(format!("hung: {} connections, {} tasks are left", worker.connections(), worker.tasks()));
        }
        let mut any = false;
        for player in &mut players {
            any |= player.act(&network, &mut random);
        }
        worker.turn(Some(network.now())).map_err(|error| error.to_string())?;
        any |= !worker.driver().is_idle();
        if players.iter().all(|player| player.ended) && worker.connections() == 0 && worker.driver().sockets() == 0 {
            break;
        }
        if !any {
            // Nothing moves until time does: to the next moment that somebody waits for, or a little on.
            let next = players.iter().filter(|player| !player.ended).map(|player| player.starts);
            let next = next
                .filter(|&starts| starts > network.now())
                .chain(worker.driver().until().filter(|&until| until > network.now()))
                .min();
            match next {
                Some(next) if random.one_in(2) => network.advance_to(next),
                _ => network.advance(Duration::from_millis(1 + random.below(400) as u64)),
            }
        }
    }
    for (number, player) in players.iter().enumerate() {
        outcome.broken += usize::from(player.broken);
        outcome.answers += player.check().map_err(|error| format!("client {number}, {}: {error}", player.kind()))?;
    }
    if worker.tasks() != 0 {
        return Err(format!("leaked: {} tasks", worker.tasks()));
    }
    if worker.account() != start {
        return Err(format!("leaked: the account was {start} and is {}", worker.account()));
    }
    outcome.trace = network.trace();
    Ok(outcome)
}

fn player(random: &mut Seeded, now: Instant) -> Player {
    let manner = match random.below(16) {
        0..8 => Manner::Good,
        8..10 => Manner::SlowReader,
        10..12 => Manner::HalfCloser,
        12 => Manner::Leaver,
        13 => Manner::Garbage,
        14 => Manner::Silent,
        _ => Manner::Unfinished,
    };
    let is_http2 = random.one_in(3);
    let version = if random.one_in(2) { Version::Tls13 } else { Version::Tls12 };
    let http = if is_http2 { Http::Two } else { Http::One };
    let mut player = Player {
        client: None,
        session: random.one_in(3).then(|| CLIENTS.session(version, http)),
        sealed: Vec::new(),
        http2: is_http2.then(frames::Client::new),
        manner,
        unsent: Vec::new(),
        sent: 0,
        expected: Vec::new(),
        received: Vec::new(),
        starts: now + Duration::from_millis(random.below(3000) as u64),
        leaves_after: 0,
        goes: !random.one_in(4),
        shut: false,
        problem: None,
        ended: false,
        broken: false,
        reset: false,
    };
    if manner == Manner::Silent {
        return player;
    }
    // One that asks once has no next request that could hide that the server forgot the end of this one.
    let requests = if random.one_in(3) { 1 } else { 1 + random.below(8) };
    for number in 0..requests {
        let last = number + 1 == requests;
        // Who ends by the last answer says so, or half-closes; the others are let go by the idle deadline.
        let close = last && manner != Manner::HalfCloser && !random.one_in(4);
        player.request(random, close);
    }
    // Only requests before the last can be followed by anything.
    match (manner, &mut player.http2) {
        (Manner::Garbage, None) => {
            let garbage: &[&[u8]] = &[
                b"GET\r\n\r\n",
                b"\0\0\0\0",
                b"GET / HTTP/1.1\nHost: a\n\n",
                b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            ];
            player.unsent.extend_from_slice(garbage[random.below(garbage.len())]);
        }
        (Manner::Garbage, Some(http2)) => {
            let garbage = [
                frame(0, 1, 0, b"abc"),
                frame(1, 5, 101, b"\xff\xff"),
                frame(9, 4, 1, b""),
                vec![b'x'; 50],
                vec![0xff; 9],
            ];
            http2.say(&garbage[random.below(garbage.len())]);
        }
        (Manner::Unfinished, None) => {
            let halves: &[&[u8]] = &[
                b"GET /hel",
                b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc",
                b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
            ];
            player.unsent.extend_from_slice(halves[random.below(halves.len())]);
        }
        (Manner::Unfinished, Some(http2)) => {
            let path = ["/body", "/upload"][random.below(2)];
            let parts = vec![Part::Data(b"abc".to_vec())];
            http2.ask(&Request { fields: fields("POST", path), parts, open: true });
        }
        _ => {}
    }
    if let Some(http2) = &mut player.http2 {
        player.unsent = http2.take();
    }
    player.leaves_after = random.below(player.unsent.len() + 1);
    player
}

/// The fields of a request in HTTP/2.
fn fields(method: &str, path: &str) -> Vec<Field> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "sim"), (":path", path)];
    fields.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).to_vec()
}

impl Player {
    fn request(&mut self, random: &mut Seeded, close: bool) {
        let connection = if close { "Connection: close\r\n" } else { "" };
        let head = |method: &str, target: &str| format!("{method} {target} HTTP/1.1\r\nHost: sim\r\n{connection}");
        let mut plain = |method: &str, target: &str, status: u16, body: Option<Vec<u8>>| {
            if let Some(http2) = &mut self.http2 {
                http2.ask(&Request { fields: fields(method, target), ..Request::default() });
            } else {
                self.unsent.extend_from_slice(head(method, target).as_bytes());
                self.unsent.extend_from_slice(b"\r\n");
            }
            self.expected.push(Expected { status, body, head: method == "HEAD" });
        };
        match random.below(16) {
            0 => plain("GET", "/hello", 200, Some(b"Hello, World!".to_vec())),
            1 => plain("HEAD", "/hello", 200, None),
            2 => plain("GET", "/echo?hello=world", 200, Some(b"{\"query\":{\"hello\":\"world\"}}".to_vec())),
            3 => {
                let id = random.below(1000);
                plain("GET", &format!("/users/{id}"), 200, Some(format!("user {id}\n").into_bytes()));
            }
            4 => plain("GET", "/nowhere", 404, None),
            5 => plain("DELETE", "/hello", 405, None),
            6 => {
                let bytes = random.below(200_000);
                plain("GET", &format!("/stream?bytes={bytes}"), 200, Some(vec![b'x'; bytes]));
            }
            7 => {
                let ms = random.below(3000);
                plain("GET", &format!("/sleep?ms={ms}"), 200, Some(format!("slept {ms} ms\n").into_bytes()));
            }
            8 => plain("GET", "/panic", 500, None),
            9 => plain("GET", "/late-panic", 500, None),
            10 => plain("GET", "/trailers", 200, Some(b"trail".to_vec())),
            11 => plain("GET", "/early", 200, Some(b"hints".to_vec())),
            12 => self.upload(random, "/body", &head("POST", "/body")),
            13 => self.upload(random, "/upload", &head("POST", "/upload")),
            _ => self.upload(random, "/slow-upload", &head("POST", "/slow-upload")),
        }
    }

    fn upload(&mut self, random: &mut Seeded, path: &str, head: &str) {
        let most = [300, 300, 300, 150_000, 150_000, 400_000][random.below(6)];
        let length = random.below(most);
        let body: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let has_length = random.one_in(2);
        if let Some(http2) = &mut self.http2 {
            let mut request = Request { fields: fields("POST", path), ..Request::default() };
            if has_length {
                request.fields.push((b"content-length".to_vec(), length.to_string().into_bytes()));
            }
            // Not a body of nothing but bytes: whoever sends that is told to be calm.
            let most = body.len() / 10_000 + 1 + random.below(20_000);
            request.parts = body.chunks(most).map(|part| Part::Data(part.to_vec())).collect();
            if !has_length {
                request.parts.push(Part::Trailers(vec![(b"x-trailer".to_vec(), b"y".to_vec())]));
            }
            http2.ask(&request);
        } else if has_length {
            self.unsent.extend_from_slice(head.as_bytes());
            self.unsent.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
            self.unsent.extend_from_slice(&body);
        } else {
            self.unsent.extend_from_slice(head.as_bytes());
            self.unsent.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            let (mut rest, mut chunks) = (&body[..], 0);
            while !rest.is_empty() {
                let (part, after) = rest.split_at(1 + random.below(rest.len().min(5000)));
                chunks += 1;
                // As many extensions as a body may have.
                let extension = if chunks < 100 { ";ext=1" } else { "" };
                self.unsent.extend_from_slice(format!("{:x}{extension}\r\n", part.len()).as_bytes());
                self.unsent.extend_from_slice(part);
                self.unsent.extend_from_slice(b"\r\n");
                rest = after;
            }
            self.unsent.extend_from_slice(b"0\r\nx-trailer: y\r\n\r\n");
        }
        let answer = if path == "/body" {
            body
        } else {
            let sum: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{\"bytes\":{length},\"sha256\":\"{sum}\"}}\n").into_bytes()
        };
        self.expected.push(Expected { status: 200, body: Some(answer), head: false });
    }

    /// Does something, if it is time: whether anything moved.
    fn act(&mut self, network: &Network, random: &mut Seeded) -> bool {
        if self.ended || network.now() < self.starts {
            return false;
        }
        if self.client.is_none() {
            let listener = if self.session.is_some() { SECURE } else { CLEAR };
            self.client = Some(network.connect_to(listener));
            if let Some(session) = &mut self.session {
                session.seal(b"", &mut self.sealed);
            }
            return true;
        }
        let unsent = (self.sent < self.unsent.len() && !self.shut) || !self.sealed.is_empty();
        let mut any = (unsent || self.wants_to_end()) && !random.one_in(3) && self.send(random);
        let Some(client) = &self.client else { return any };
        if self.manner == Manner::Leaver && self.sent >= self.leaves_after {
            if random.one_in(2) {
                client.reset();
            }
            self.client = None;
            self.ended = true;
            return true;
        }
        let patience = if self.manner == Manner::SlowReader { 8 } else { 2 };
        if !random.one_in(patience) && self.manner == Manner::SlowReader {
            return any;
        }
        let most = if self.manner == Manner::SlowReader { 1 + random.below(2000) } else { usize::MAX };
        match client.receive(most) {
            None => any,
            Some(Arrived::Bytes(bytes)) => {
                any = true;
                self.hear(bytes);
                if self.goes && self.manner == Manner::Good && self.has_all() {
                    self.client = None;
                    self.ended = true;
                }
                any
            }
            Some(end) => {
                let said = self.session.as_ref().is_none_or(|session| session.is_closed() || session.is_handshaking());
                if !said && end == Arrived::End && !client.has_fault() {
                    self.problem = Some("an end without a word of TLS".to_string());
                }
                self.broken = client.has_fault();
                self.reset = end == Arrived::Reset && !self.broken;
                self.client = None;
                self.ended = true;
                true
            }
        }
    }

    fn kind(&self) -> String {
        let http = if self.http2.is_some() { "HTTP/2" } else { "HTTP/1" };
        format!("{:?} over {http}{}", self.manner, if self.session.is_some() { " and TLS" } else { "" })
    }

    /// It ends its direction, and has not yet.
    fn wants_to_end(&self) -> bool {
        let may = self.session.as_ref().is_none_or(|session| !session.is_handshaking());
        let all = self.sent == self.unsent.len() && self.http2.as_ref().is_none_or(frames::Client::has_said_all);
        self.manner == Manner::HalfCloser && may && all && !self.shut
    }

    /// Sends something: whether anything moved.
    fn send(&mut self, random: &mut Seeded) -> bool {
        let Some(client) = &self.client else { return false };
        let most = if random.one_in(4) { 1 + random.below(16) } else { usize::MAX };
        let end = self.unsent.len().min(self.sent.saturating_add(most));
        let Some(session) = &mut self.session else {
            let sent = client.send(&self.unsent[self.sent..end]);
            self.sent += sent;
            if self.wants_to_end() {
                client.shutdown();
                self.shut = true;
            }
            return sent > 0;
        };
        if self.sealed.is_empty() && !session.is_handshaking() && !self.shut {
            session.seal(&self.unsent[self.sent..end], &mut self.sealed);
            self.sent = end;
        }
        let ends = self.wants_to_end();
        if let Some(session) = self.session.as_mut().filter(|_| ends) {
            session.close(&mut self.sealed);
            self.shut = true;
        }
        let sent = client.send(&self.sealed[..most.min(self.sealed.len())]);
        self.sealed.drain(..sent);
        if self.shut && self.sealed.is_empty() {
            client.shutdown();
        }
        sent > 0
    }

    /// Bytes came.
    fn hear(&mut self, bytes: Vec<u8>) {
        let mut plain = Vec::new();
        let heard = match &mut self.session {
            Some(session) => session.open(&bytes, &mut plain, &mut self.sealed),
            None => {
                plain = bytes;
                Ok(())
            }
        };
        let heard = heard.and_then(|()| match &mut self.http2 {
            Some(http2) => http2.hear(&plain),
            None => {
                self.received.append(&mut plain);
                Ok(())
            }
        });
        self.problem = self.problem.take().or(heard.err());
        if let Some(http2) = &mut self.http2 {
            self.unsent.extend(http2.take());
        }
    }

    /// Over HTTP/2: every answer is whole.
    fn has_all(&self) -> bool {
        self.http2
            .as_ref()
            .is_some_and(|http2| http2.heard.values().filter(|heard| heard.ended).count() == self.expected.len())
    }

    /// The same for HTTP/2, where a connection error takes all answers with it.
    fn check_http2(&self, http2: &frames::Client) -> Result<usize, String> {
        let owed = !self.broken && !matches!(self.manner, Manner::Leaver | Manner::Garbage);
        let mut count = 0;
        for (number, expected) in self.expected.iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let heard = http2.heard.get(&stream).filter(|heard| heard.ended);
            let Some(answer) = heard.and_then(|heard| heard.answer.as_ref()) else {
                if owed {
                    return Err(format!(
                        "lost: stream {stream}: {:?}, goaway {:?}",
                        http2.heard.get(&stream),
                        http2.goaway
                    ));
                }
                continue;
            };
            // Who reads late learns late that more may be sent.
            if self.manner == Manner::SlowReader && answer.status == 408 {
                continue;
            }
            if answer.status != expected.status {
                return Err(format!("stream {stream} is {}, expected {}", answer.status, expected.status));
            }
            if !expected.head && expected.body.as_ref().is_some_and(|body| *body != answer.body) {
                return Err(format!("stream {stream} has another body ({} bytes)", answer.body.len()));
            }
            count += 1;
        }
        // All that is owed is whole. Who reads too late to see the end of an idle connection within the linger deadline, and
        // still sends, is reset then, and has lost nothing.
        let may_be_reset = self.manner == Manner::SlowReader;
        if owed && self.reset && !may_be_reset {
            return Err("lost: the server reset the connection".to_string());
        }
        Ok(count)
    }

    /// Checks what the client got: how many answers were right.
    fn check(&self) -> Result<usize, String> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        if let Some(http2) = &self.http2 {
            return self.check_http2(http2);
        }
        let mut rest = &self.received[..];
        let mut count = 0;
        for expected in &self.expected {
            let answer = loop {
                match answers::read(rest, expected.head, !self.broken && self.manner != Manner::Leaver) {
                    Ok(Some((answer, length))) => {
                        rest = &rest[length..];
                        if answer.status >= 200 {
                            break Some(answer);
                        }
                    }
                    Ok(None) => break None,
                    Err(_) if self.broken || self.manner == Manner::Leaver => break None,
                    Err(error) => return Err(format!("lost: answer {count}: {error}")),
                }
            };
            let Some(answer) = answer else { break };
            if answer.status != expected.status {
                let said = String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]).into_owned();
                return Err(format!("answer {count} is {}, expected {}: {said:?}", answer.status, expected.status));
            }
            if expected.body.as_ref().is_some_and(|body| *body != answer.body) {
                return Err(format!("answer {count} has another body ({} bytes)", answer.body.len()));
            }
            count += 1;
        }
        let owed = !self.broken && self.manner != Manner::Leaver;
        if owed && self.reset {
            return Err("lost: the server reset the connection".to_string());
        }
        if owed && count < self.expected.len() {
            return Err(format!(
                "lost: {count} of {} answers came; then {:?}",
                self.expected.len(),
                String::from_utf8_lossy(rest)
            ));
        }
        if owed && self.manner != Manner::Garbage && self.manner != Manner::Unfinished && !rest.is_empty() {
            return Err(format!("more than was asked for: {:?}", String::from_utf8_lossy(rest)));
        }
        Ok(count)
    }
}
