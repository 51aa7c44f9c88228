//! Parts of files as answers over HTTP/1 and HTTP/2, on the simulator, with disk and network faults. Real threads read
//! uncached parts; the tests wait for them while virtual time stands still.

use crate::peer::{Play, SECOND, Weather, in_all_weathers};
use highwire::server::Worker;
use highwire::{App, Path, Response, StatusCode, blocking};
use highwire_io::file::Files;
use highwire_io::sim::files::{DiskFaults, SimulatedFolder};
use highwire_io::sim::{Arrived, Client, Network, Simulated};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The real time limit for threads of the blocking pool.
const PATIENCE: Duration = Duration::from_secs(20);

const FILE_BYTES: usize = 1_500_000;

const WELL: DiskFaults = DiskFaults { cold: 0, short: 0, broken: 0 };
const ODD: DiskFaults = DiskFaults { cold: 3, short: 2, broken: 0 };
const COLD: DiskFaults = DiskFaults { cold: 1, short: 0, broken: 0 };

fn content() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

fn folder(faults: DiskFaults) -> SimulatedFolder {
    let folder = SimulatedFolder::new(11, faults);
    folder.write(b"file", &content()).expect("room");
    folder
}

fn app(folder: &SimulatedFolder) -> App {
    let folder = folder.clone();
    App::new().get("/hello", || "hello").get("/{from}/{to}", move |Path((from, to)): Path<(u64, u64)>| {
        let file = folder.open(b"file").map_err(|_| StatusCode::NOT_FOUND)?;
        Ok::<_, StatusCode>(Response::file_part(Arc::new(file), from..to))
    })
}

/// A server and one HTTP/1 client.
struct Plain {
    network: Network,
    worker: Worker<Simulated>,
    client: Client,
    received: Vec<u8>,
    ended: Option<Arrived>,
    most: usize,
}

impl Plain {
    fn new(app: App, weather: &Weather) -> Plain {
        let network = weather.network();
        let driver = Simulated::new(network.clone()).expect("a driver");
        let worker = app.server().expect("an app").into_worker(driver).expect("a worker");
        let client = network.connect();
        Plain { network, worker, client, received: Vec::new(), ended: None, most: 0 }
    }

    fn ask(&mut self, method: &str, path: &str) {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(self.client.send(request.as_bytes()), request.len());
    }

    fn turn(&mut self) {
        self.worker.turn(Some(self.network.now())).expect("a turn");
        self.most = self.most.max(self.worker.account());
    }

    /// Runs turns until a condition holds, and reads at most `most` bytes after each turn.
    fn until(&mut self, most: usize, holds: impl Fn(&mut Plain) -> bool) {
        let begun = Instant::now();
        loop {
            self.turn();
            match self.client.receive(most) {
                _ if self.ended.is_some() => {}
                Some(Arrived::Bytes(bytes)) => self.received.extend(bytes),
                Some(end) => self.ended = Some(end),
                None => std::thread::yield_now(),
            }
            if holds(self) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the condition never held; {} bytes arrived", self.received.len());
        }
    }

    /// Returns the head, in lower case, and the body so far of the answer.
    fn answer(&self) -> (String, &[u8]) {
        let end = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        (String::from_utf8_lossy(&self.received[..end]).to_ascii_lowercase(), &self.received[end..])
    }

    fn body_is(&self, length: usize) -> bool {
        self.received.windows(4).any(|bytes| bytes == b"\r\n\r\n") && self.answer().1.len() >= length
    }
}

const RANGES: &[(usize, usize)] = &[
    (0, 0),
    (5, 6),
    (100, 1_100),
    (1, 16_386),
    (0, 33_000),
    (777, 100_777),
    (3, 1_200_003),
    (FILE_BYTES - 600_000, FILE_BYTES),
];

#[test]
fn every_part_arrives_whatever_disk_and_network_do() {
    let content = content();
    for faults in [WELL, ODD] {
        let folder = folder(faults);
        in_all_weathers(|weather| {
            let mut plain = Plain::new(app(&folder), weather);
            for &(from, to) in RANGES {
                plain.ask("GET", &format!("/{from}/{to}"));
                plain.until(usize::MAX, |plain| plain.body_is(to - from));
                let (head, body) = plain.answer();
                assert!(head.contains(&format!("content-length: {}\r\n", to - from)), "{head}");
                assert!(!head.contains("content-type"), "{head}");
                assert!(body == &content[from..to], "{from}..{to} in HTTP/1");
                plain.received.clear();
            }
            let mut play = Play::with_peer(app(&folder), weather);
            let asked = |&(from, to): &(usize, usize)| play.peers[0].get(&format!("/{from}/{to}"));
            let streams: Vec<_> = RANGES.iter().map(asked).collect();
            until(&mut play, |play| streams.iter().all(|&stream| play.peers[0].is_over(stream)));
            for (&stream, &(from, to)) in streams.iter().zip(RANGES) {
                assert!(play.peers[0].answer(stream).body == content[from..to], "{from}..{to} in HTTP/2");
            }
            play.end();
        });
    }
}

/// Runs turns and lets real threads work until a condition holds.
fn until(play: &mut Play, mut holds: impl FnMut(&mut Play) -> bool) {
    let begun = Instant::now();
    loop {
        play.settle();
        if holds(play) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the condition never held");
        std::thread::yield_now();
    }
}

#[test]
fn head_says_the_length_and_reads_nothing() {
    let folder = folder(DiskFaults { broken: 1, ..WELL });
    let mut plain = Plain::new(app(&folder), &Weather::fair());
    plain.ask("HEAD", "/0/100000");
    plain.ask("GET", "/hello");
    plain.until(usize::MAX, |plain| plain.received.ends_with(b"\r\n\r\nhello"));
    assert!(plain.answer().0.contains("content-length: 100000\r\n"));
}

#[test]
fn a_file_that_shrinks_or_breaks_cuts_its_answer_and_nothing_else() {
    for (to, broken) in [(1_400_000, 0), (20_000, 0), (1_400_000, 2), (20_000, 1)] {
        let folder = folder(DiskFaults { broken, ..ODD });
        let mut plain = Plain::new(app(&folder), &Weather::fair());
        if broken == 0 {
            folder.write(b"file", &content()[..10_000]).expect("room");
        }
        plain.ask("GET", &format!("/0/{to}"));
        plain.until(usize::MAX, |plain| plain.ended.is_some());
        assert_eq!(plain.ended, Some(Arrived::Reset), "{to} {broken}");
        assert!(plain.received.len() < to, "{to} {broken}");
        assert_eq!(plain.worker.connections(), 0);

        let mut play = Play::with_peer(app(&folder), &Weather::fair());
        let stream = play.peers[0].get(&format!("/0/{to}"));
        until(&mut play, |play| play.peers[0].is_over(stream));
        let answer = play.peers[0].answer(stream);
        assert_eq!(answer.reset, Some(highwire_proto::h2::Code::Internal), "{to} {broken}");
        assert_eq!(play.get("/hello").text(), "hello", "the connection still serves requests");
        play.end();
    }
}

#[test]
fn a_peer_that_takes_little_costs_little_and_one_that_takes_nothing_is_cut() {
    for (faults, to) in [(WELL, 1_400_000), (COLD, 1_400_000), (COLD, 30_000)] {
        let folder = folder(faults);
        let mut plain = Plain::new(app(&folder), &Weather::fair());
        plain.ask("GET", &format!("/0/{to}"));
        plain.until(0, |plain| plain.worker.driver().is_idle());
        plain.until(1_000, |plain| plain.received.len() > 10_000);
        for _ in 0..60 {
            plain.turn();
            assert_eq!(plain.worker.connections(), 1, "{to}");
            plain.network.advance(SECOND);
        }
        plain.until(0, |plain| plain.worker.connections() == 0);
        assert!(plain.most < 200_000, "the account reached {} bytes", plain.most);
    }
}

#[test]
fn a_part_waits_for_a_pool_that_is_full_as_long_as_for_any_body() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let with_full_pool = |folder: &SimulatedFolder| {
        let gate = gate.clone();
        let wait = blocking(move || drop(gate.lock().map(|gate| gate.recv())));
        let app = app(folder).get("/block", wait);
        let mut plain = Plain::new(
            app.configure(|config| (config.limits.blocking_threads, config.limits.blocking_queue) = (1, 0)),
            &Weather::fair(),
        );
        let blocker = plain.network.connect();
        assert!(blocker.send(b"GET /block HTTP/1.1\r\nHost: a\r\n\r\n") > 0);
        plain.until(usize::MAX, |plain| plain.worker.driver().is_idle());
        (plain, blocker)
    };
    let (mut plain, _blocker) = with_full_pool(&folder(DiskFaults { cold: 2, ..WELL }));
    plain.ask("GET", "/0/1000000");
    let before = plain.network.now();
    while !plain.body_is(1_000_000) {
        plain.until(usize::MAX, |plain| plain.worker.driver().is_idle());
        plain.network.advance(Duration::from_millis(1));
    }
    assert!(plain.network.now().since(before) > Duration::from_millis(10), "the file was never uncached");
    let never = folder(COLD);
    for to in [20_000, 1_000_000] {
        let (mut plain, _blocker) = with_full_pool(&never);
        plain.ask("GET", &format!("/0/{to}"));
        let mut seconds = 0;
        while plain.ended.is_none() {
            plain.until(usize::MAX, |plain| plain.worker.driver().is_idle());
            plain.network.advance(SECOND);
            seconds += 1;
        }
        assert!((60..64).contains(&seconds), "{seconds} seconds");
        assert_eq!(plain.ended, Some(Arrived::Reset));
    }
    drop(release);
}
