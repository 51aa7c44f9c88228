//! Finds out that the completions of a turn take long.

use crate::clock::RealClock;
use crate::{Instant, limit};

/// The most completions between two readings of the clock.
const MOST_COMPLETIONS: u32 = 4;

/// The pace of a turn. A reading of the clock would be a notable part of a short handler's time, so there are more and more
/// completions between two readings, until they take long.
pub(super) struct Pace {
    /// The moment since which the queued operations wait.
    since: Instant,
    /// The number of completions until the next reading, and between the last two.
    left: u32,
    interval: u32,
}

impl Pace {
    /// Begins a turn.
    pub(super) fn new(now: Instant) -> Pace {
        Pace { since: now, left: 1, interval: 1 }
    }

    /// Returns true if operations that were queued in this turn have waited for too long. The caller then starts them. Must be
    /// called after each completion.
    #[inline]
    pub(super) fn is_late(&mut self, clock: &RealClock) -> bool {
        self.left -= 1;
        self.left == 0 && self.look(clock.now())
    }

    fn look(&mut self, now: Instant) -> bool {
        let is_late = now.since(self.since) >= limit::MOST_DELAY;
        if is_late {
            self.since = now;
        }
        self.interval = if is_late { 1 } else { (self.interval * 2).min(MOST_COMPLETIONS) };
        self.left = self.interval;
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_clock_is_read_more_often_when_completions_take_long() {
        let start = Instant::default();
        let mut pace = Pace::new(start);
        let mut intervals = Vec::new();
        for _ in 0..6 {
            assert!(!pace.look(start + limit::MOST_DELAY / 2));
            intervals.push(pace.interval);
        }
        assert_eq!(intervals, [2, 4, 4, 4, 4, 4]);
        assert!(pace.look(start + limit::MOST_DELAY));
        assert_eq!(pace.left, 1);
        assert!(!pace.look(start + limit::MOST_DELAY * 3 / 2), "counted from the last start");
    }
}

#[cfg(test)]
mod driver_tests {
    use super::super::tests::{accept, listening};
    use super::*;
    use crate::{Completion, Driver as _, Op, Queue, Sink};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    /// Takes long for each message, and answers it. Before the second answer, its client must have the first one.
    struct Slow {
        answered: Vec<u8>,
        clients: Vec<TcpStream>,
    }

    impl Sink for Slow {
        fn begin(&mut self, _: Instant) {}
        fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
            let Completion::Received { socket, bytes, .. } = completion else { return };
            if let Some(&first) = self.answered.last() {
                let mut answer = [0];
                self.clients[usize::from(first)].read_exact(&mut answer).expect("the answer before");
                assert_eq!(answer, [first]);
            }
            let end = std::time::Instant::now() + limit::MOST_DELAY * 2;
            while std::time::Instant::now() < end {}
            self.answered.push(bytes[0]);
            let start = queue.output.len() as u32;
            queue.output.extend_from_slice(&bytes[..1]);
            queue.push(Op::Send { socket, start, end: start + 1, more: false });
        }
    }

    #[test]
    fn an_answer_does_not_wait_for_the_next_slow_handler() {
        let Some((mut driver, address)) = listening() else { return };
        let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        accept(&mut driver, clients.len());
        for (number, client) in clients.iter_mut().enumerate() {
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("an option");
            client.write_all(&[number as u8]).expect("room");
        }
        let mut slow = Slow { answered: Vec::new(), clients };
        let mut queue = Queue::new();
        while slow.answered.len() < slow.clients.len() {
            driver.turn(None, &mut queue, &mut slow).expect("a turn");
        }
    }
}
