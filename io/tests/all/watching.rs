//! Descriptors that a driver watches for its loop.
#![expect(clippy::unwrap_used, reason = "in a test, a panic shows the failed step")]

use highwire_io::sim::{Faults, Network, Simulated};
use highwire_io::{Completion, Driver, Instant, Interest, Op, Queue, Readiness, Sink, Waitable};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const READABLE: Interest = Interest { readable: true, writable: false };
const WRITABLE: Interest = Interest { readable: false, writable: true };
const BOTH: Interest = Interest { readable: true, writable: true };

/// What a driver has reported. `waits` counts the waits that have begun and not ended.
#[derive(Default)]
struct Seen {
    watched: Vec<(u64, Interest)>,
    waits: usize,
    all_waits: usize,
    /// The watch to end when another one is reported.
    ends: Option<u64>,
}

impl Sink for Seen {
    fn begin(&mut self, _: Instant) {
        assert_eq!(self.waits, 0);
    }

    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        assert_eq!(self.waits, 0, "nothing is reported during a wait");
        let Completion::Watched { token, ready } = completion else { return };
        self.watched.push((token, ready));
        if let Some(token) = self.ends {
            queue.push(Op::Unwatch { token });
        }
    }

    fn before_wait(&mut self) {
        (self.waits, self.all_waits) = (self.waits + 1, self.all_waits + 1);
    }

    fn after_wait(&mut self) {
        self.waits -= 1;
    }
}

struct Play<D> {
    driver: D,
    queue: Queue,
    seen: Seen,
}

impl<D: Driver> Play<D> {
    fn new(driver: D) -> Play<D> {
        Play { driver, queue: Queue::new(), seen: Seen::default() }
    }

    fn watch(&mut self, token: u64, descriptor: Waitable, interest: Interest) {
        self.queue.push(Op::Watch { token, descriptor, interest });
    }

    /// Runs turns that may wait for 10 ms each until something is reported, or 20 turns. Returns the reports.
    fn turn(&mut self) -> Vec<(u64, Interest)> {
        for _ in 0..20 {
            let until = self.driver.now() + Duration::from_millis(10);
            self.driver.turn(Some(until), &mut self.queue, &mut self.seen).unwrap();
            if !self.seen.watched.is_empty() {
                break;
            }
        }
        std::mem::take(&mut self.seen.watched)
    }
}

fn play(driver: impl Driver) {
    let mut play = Play::new(driver);
    let (mut near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let descriptor = near.as_raw_fd();
    play.watch(7, descriptor, READABLE);
    assert_eq!(play.turn(), [], "nothing has come");
    far.write_all(b"hello").unwrap();
    assert_eq!(play.turn(), [(7, READABLE)]);
    assert_eq!(play.turn(), [], "a watch is reported once");
    play.watch(7, descriptor, BOTH);
    assert_eq!(play.turn(), [(7, BOTH)], "what has come before counts again");
    assert_eq!(near.read(&mut [0; 10]).unwrap(), 5);
    play.watch(7, descriptor, READABLE);
    play.watch(7, descriptor, WRITABLE);
    assert_eq!(play.turn(), [(7, WRITABLE)], "the later watch replaces the earlier one");

    // A watch that is ended is not reported, although its event has come.
    play.watch(8, descriptor, READABLE);
    assert_eq!(play.turn(), []);
    far.write_all(b"more").unwrap();
    play.queue.push(Op::Unwatch { token: 8 });
    play.queue.push(Op::Unwatch { token: 9 });
    assert_eq!(play.turn(), []);

    // Both are ready; the first report ends the other watch.
    let (other, _other_end) = UnixStream::pair().unwrap();
    play.watch(1, descriptor, READABLE);
    play.watch(2, other.as_raw_fd(), WRITABLE);
    play.seen.ends = Some(2);
    let reports = play.turn();
    assert!(reports == [(1, READABLE)] || reports == [(2, WRITABLE), (1, READABLE)], "{reports:?}");
    play.seen.ends = None;

    // The end of the other side, and descriptors for which no system can wait.
    drop(far);
    play.watch(3, descriptor, READABLE);
    assert_eq!(play.turn(), [(3, READABLE)]);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    play.watch(4, file.as_raw_fd(), READABLE);
    assert_eq!(play.turn(), [(4, READABLE)], "a file is always ready");
    play.watch(5, 1_000_000, BOTH);
    assert_eq!(play.turn(), [(5, BOTH)], "nor is there such a descriptor");

    assert_eq!(play.seen.waits, 0);
    let waits = play.seen.all_waits;
    play.driver.turn(Some(Instant::default()), &mut play.queue, &mut play.seen).unwrap();
    assert_eq!(play.seen.all_waits, waits, "a turn that does not wait does not say so");
    assert!(waits > 0);
}

#[test]
fn readiness_reports_each_watch_once() {
    play(Readiness::new().unwrap());
}

#[test]
#[cfg(target_os = "linux")]
fn uring_reports_each_watch_once() {
    match highwire_io::Uring::new() {
        Ok(driver) => play(driver),
        Err(error) => eprintln!("not run: this system has no io_uring ({error})"),
    }
}

#[test]
fn the_simulator_reports_what_a_test_makes_ready() {
    let network = Network::new(1, Faults::default());
    let mut play = Play::new(Simulated::new(network.clone()).unwrap());
    play.watch(7, 3, READABLE);
    network.set_ready(3, WRITABLE);
    assert_eq!(play.turn(), []);
    network.set_ready(3, BOTH);
    assert_eq!(play.turn(), [(7, READABLE)]);
    assert_eq!(play.turn(), [], "a watch is reported once");
    play.watch(7, 3, BOTH);
    play.queue.push(Op::Unwatch { token: 7 });
    assert_eq!(play.turn(), []);
}
