//! Plays seeded clients against the whole server and checks their answers and the server's state afterwards.
//!
//! A seed determines the number of clients, the actions of each and their times, the splits, delays and failures of the
//! network, and the steps of the clock. At the end of a run three conditions must hold. (1) Nothing is lost. A
//! well-behaved client on a link that did not break has every answer that the server owes it, complete and in order
//! (over HTTP/2 in any order). (2) Nothing leaks. No connection, socket or task is left, and the memory account has its
//! first value. (3) Nothing hangs. The run takes a bounded number of turns.

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

/// The largest number of turns of the worker in a run, about a hundred times as many as the longest known run needs.
const MOST_TURNS: usize = 2_000_000;

/// The server's listeners, in cleartext and with TLS.
const CLEAR: ListenerId = ListenerId(0);
const SECURE: ListenerId = ListenerId(1);

/// Clients without session resumption, because a seed's run must not depend on the seeds before it.
static CLIENTS: LazyLock<Clients> = LazyLock::new(|| Clients::new(Resumption::disabled()));

/// The result of a seed's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of clients.
    pub clients: usize,
    /// The number of checked answers.
    pub answers: usize,
    /// The number of links that the network broke.
    pub broken: usize,
    /// The number of turns of the worker.
    pub turns: usize,
    /// A hash of the run. Two runs of a seed must have the same hash.
    pub trace: u64,
}

/// The expected answer to a request.
#[derive(Clone, Debug)]
struct Expected {
    status: u16,
    body: Option<Vec<u8>>,
    head: bool,
    /// True if the handler may wait, so that the server may give it up when the client has ended its direction.
    waits: bool,
}

/// The paths of handlers that answer at once.
const PROMPT: [&str; 5] = ["/hello", "/echo", "/users", "/nowhere", "/panic"];

/// The error code of a stream that is given up (RFC 9113 section 7).
const CANCEL: u32 = 8;

/// The behavior of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Sends its requests and reads its answers.
    Good,
    /// Like `Good`, but reads rarely and little.
    SlowReader,
    /// Like `Good`, but shuts down its sending direction right after its last request.
    HalfCloser,
    /// Closes or resets the connection early. The server owes this client no answer.
    Leaver,
    /// Sends invalid bytes after its requests. Over HTTP/1 the server still owes the client the answers to the
    /// requests.
    Garbage,
    /// Connects and sends nothing.
    Silent,
    /// Begins a request and never ends it.
    Unfinished,
}

struct Player {
    client: Option<Client>,
    session: Option<Session>,
    /// Encrypted bytes that the network has not taken yet.
    sealed: Vec<u8>,
    /// The HTTP/2 client, if it uses HTTP/2.
    http2: Option<frames::Client>,
    manner: Manner,
    unsent: Vec<u8>,
    sent: usize,
    expected: Vec<Expected>,
    received: Vec<u8>,
    starts: Instant,
    leaves_after: usize,
    /// True if a `Good` HTTP/2 client closes the connection after its last answer; otherwise the client waits until the
    /// server closes it.
    goes: bool,
    shut: bool,
    /// A violation of a protocol by the server: the first one, unless the connection later ended without close_notify.
    problem: Option<String>,
    ended: bool,
    /// True if the network broke the link.
    broken: bool,
    /// True if the server reset the connection.
    reset: bool,
}

/// Runs a seed.
///
/// # Errors
/// Returns a description of a lost answer, a leak or a hang.
pub fn play(seed: u64) -> Result<Outcome, String> {
    let mut random = Seeded::new(seed ^ 0x5bf0_3635);
    let faults = if random.one_in(8) { Faults::default() } else { Faults::all() };
    let network = Network::new(seed, faults);
    if random.one_in(3) {
        // The link holds about as many bytes as a kernel's socket buffers, so bodies may arrive faster than handlers
        // take them.
        network.hold(256 * 1024);
    }
    let driver = Simulated::new(network.clone()).map_err(|error| error.to_string())?;
    let app = app().configure(|config| {
        config.limits.requests_a_connection = 0;
        // Slow readers need more than the default 10 s for the handshake.
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
            return Err(format!("hung; {} connections and {} tasks are left", worker.connections(), worker.tasks()));
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
            // Nothing can happen now. Advances the clock to the next start or deadline, or by at most 400 ms.
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
        return Err(format!("leaked {} tasks", worker.tasks()));
    }
    if worker.account() != start {
        return Err(format!("leaked memory; the account was {start} bytes and is {} bytes", worker.account()));
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
        http2: is_http2.then(frames::Client::giving_back),
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
    // Many clients send only one request, because a second request could hide that the server does not end the first
    // answer.
    let requests = if random.one_in(3) { 1 } else { 1 + random.below(8) };
    for number in 0..requests {
        let last = number + 1 == requests;
        // The connection ends by `Connection: close`, by the client's half-close, or by the idle timeout.
        let close = last && manner != Manner::HalfCloser && !random.one_in(4);
        player.request(random, close);
    }
    // These bytes follow the last request.
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

/// Returns the pseudo-fields of an HTTP/2 request.
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
            let waits = !PROMPT.iter().any(|prompt| target.starts_with(prompt));
            self.expected.push(Expected { status, body, head: method == "HEAD", waits });
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
            // Too many tiny DATA frames are avoided, because the server would end the connection with
            // ENHANCE_YOUR_CALM.
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
                // Only the first 99 chunks have extensions, because the server limits their bytes per body.
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
        self.expected.push(Expected { status: 200, body: Some(answer), head: false, waits: true });
    }

    /// Lets the client act if its start time has passed. Returns true if anything changed.
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
                    self.problem = Some("the connection ended without close_notify".to_string());
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

    /// Returns true if the client must shut down its sending direction now.
    fn wants_to_end(&self) -> bool {
        let may = self.session.as_ref().is_none_or(|session| !session.is_handshaking());
        let all = self.sent == self.unsent.len() && self.http2.as_ref().is_none_or(frames::Client::has_said_all);
        self.manner == Manner::HalfCloser && may && all && !self.shut
    }

    /// Sends some bytes. Returns true if the network took any.
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

    /// Handles received bytes.
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

    /// Returns true if this is an HTTP/2 client with all answers complete.
    fn has_all(&self) -> bool {
        self.http2
            .as_ref()
            .is_some_and(|http2| http2.heard.values().filter(|heard| heard.ended).count() == self.expected.len())
    }

    /// Does the same as [`check`](Player::check) for HTTP/2. The server owes a `Garbage` client nothing over HTTP/2,
    /// because a connection error ends all streams.
    fn check_http2(&self, http2: &frames::Client) -> Result<usize, String> {
        let owed = !self.broken && !matches!(self.manner, Manner::Leaver | Manner::Garbage);
        let mut count = 0;
        for (number, expected) in self.expected.iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let heard = http2.heard.get(&stream).filter(|heard| heard.ended);
            let Some(answer) = heard.and_then(|heard| heard.answer.as_ref()) else {
                // A client of HTTP/2 keeps its direction open, so the server gives up what is not ready.
                let reset = http2.heard.get(&stream).and_then(|heard| heard.reset);
                let is_given_up = self.shut && expected.waits && reset == Some(CANCEL);
                if owed && !is_given_up {
                    return Err(format!(
                        "lost: stream {stream}: {:?}, goaway {:?}",
                        http2.heard.get(&stream),
                        http2.goaway
                    ));
                }
                continue;
            };
            // A slow reader reads window updates late, so its uploads may time out (408).
            if self.manner == Manner::SlowReader && answer.status == 408 {
                continue;
            }
            if answer.status != expected.status {
                return Err(format!("stream {stream}: status {}, not {}", answer.status, expected.status));
            }
            if !expected.head && expected.body.as_ref().is_some_and(|body| *body != answer.body) {
                return Err(format!("stream {stream} has a wrong body ({} bytes)", answer.body.len()));
            }
            count += 1;
        }
        // All owed answers are complete. The server may still reset a slow reader that sends and does not notice the
        // end of the idle connection within the linger timeout.
        let may_be_reset = self.manner == Manner::SlowReader;
        if owed && self.reset && !may_be_reset {
            return Err("lost: the server reset the connection".to_string());
        }
        Ok(count)
    }

    /// Checks the client's answers and returns the number of correct ones.
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
            // The server gives up what is not ready a second after the client has ended its direction, and ends.
            if answer.status == 499 && self.shut && expected.waits && rest.is_empty() {
                return Ok(count);
            }
            if answer.status != expected.status {
                let said = String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]).into_owned();
                return Err(format!("answer {count}: status {}, not {}: {said:?}", answer.status, expected.status));
            }
            if expected.body.as_ref().is_some_and(|body| *body != answer.body) {
                return Err(format!("answer {count} has a wrong body ({} bytes)", answer.body.len()));
            }
            count += 1;
        }
        let owed = !self.broken && self.manner != Manner::Leaver;
        if owed && self.reset {
            return Err("lost: the server reset the connection".to_string());
        }
        if owed && count < self.expected.len() {
            return Err(format!(
                "lost: {count} of {} answers arrived; then {:?}",
                self.expected.len(),
                String::from_utf8_lossy(rest)
            ));
        }
        if owed && self.manner != Manner::Garbage && self.manner != Manner::Unfinished && !rest.is_empty() {
            return Err(format!("bytes after the last answer: {:?}", String::from_utf8_lossy(rest)));
        }
        Ok(count)
    }
}
