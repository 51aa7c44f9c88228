//! The bystander: a well-behaved client that measures the latency of small requests. It has several connections, so that
//! probably every worker of the server serves some.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The shortest interval between the starts of two requests.
const EVERY: Duration = Duration::from_millis(2);

/// The time limit to connect, for each read and write, and for an answer that is not complete. A request that exceeds
/// it counts as an error.
const DEADLINE: Duration = Duration::from_secs(2);

/// The number of connections, which the requests use in turn. With one, an attack that holds up the other worker would
/// not be noticed.
const CONNECTIONS: usize = 4;

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
const STATUS: &[u8] = b"HTTP/1.1 200 ";
const BODY: &[u8] = b"Hello, World!";

/// The latencies of requests and the number of failed ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Latency {
    /// Latencies in microseconds, sorted.
    pub(super) micros: Vec<u64>,
    pub(super) errors: u32,
}

impl Latency {
    fn new(mut micros: Vec<u64>, errors: u32) -> Self {
        micros.sort_unstable();
        Self { micros, errors }
    }

    /// Returns a percentile of the latencies in milliseconds, or NaN if there are none.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.micros.len() * percent).div_ceil(100).max(1);
        self.micros.get(rank - 1).map_or(f64::NAN, |&micros| micros as f64 / 1000.0)
    }
}

/// The client and its connections.
pub(super) struct Bystander {
    address: SocketAddr,
    streams: [Option<TcpStream>; CONNECTIONS],
    /// The index of the connection of the next request.
    next: usize,
}

impl Bystander {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, streams: [const { None }; CONNECTIONS], next: 0 }
    }

    /// Sends requests for `seconds`, one every two milliseconds or whenever the previous one has ended, if that is
    /// later. The latencies also contain the time of each failed request until its error.
    ///
    /// Runs in its own thread with the highest priority, if the system allows that, so that the latencies contain
    /// little of the client's wait for a core.
    pub(super) fn watch(&mut self, seconds: f64) -> Latency {
        let watched = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                go_first();
                self.ask_for(seconds)
            });
            thread.join()
        });
        watched.unwrap_or_else(|_| Latency::new(Vec::new(), 1))
    }

    fn ask_for(&mut self, seconds: f64) -> Latency {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let (mut micros, mut errors) = (Vec::new(), 0);
        let mut next = Instant::now();
        while next < until {
            sleep(next.saturating_duration_since(Instant::now()));
            let begun = Instant::now();
            errors += u32::from(self.ask().is_err());
            micros.push(begun.elapsed().as_micros() as u64);
            next = (next + EVERY).max(Instant::now());
        }
        Latency::new(micros, errors)
    }

    /// Sends a request and reads the answer. A request that finds no connection opens one, also after an error.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        let index = self.next;
        self.next = (index + 1) % CONNECTIONS;
        let mut stream = match self.streams[index].take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&self.address, DEADLINE)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(DEADLINE))?;
                stream.set_write_timeout(Some(DEADLINE))?;
                stream
            }
        };
        ask_on(&mut stream)?;
        self.streams[index] = Some(stream);
        Ok(())
    }
}

/// Tries to give the current thread the highest priority, which usually needs root. Without that priority, the
/// latencies may include scheduling delays.
fn go_first() {
    let Ok(link) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(thread) = link.file_name() else { return };
    let quietly = || Stdio::null();
    let mut renice = Command::new("renice");
    renice.args(["-n", "-20", "-p"]).arg(thread).stdin(quietly()).stdout(quietly()).stderr(quietly());
    // Errors are ignored. Without `renice`, the thread keeps its priority.
    let _ = renice.status();
}

fn ask_on(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(REQUEST)?;
    let until = Instant::now() + DEADLINE;
    let (mut buffer, mut have) = ([0; 1024], 0);
    loop {
        let count = stream.read(&mut buffer[have..])?;
        have += count;
        let answer = &buffer[..have];
        let is_right = answer.len() < STATUS.len() || answer.starts_with(STATUS);
        if is_right && answer.ends_with(BODY) {
            return Ok(());
        }
        if count == 0 || !is_right || Instant::now() > until {
            return Err(io::Error::other("the answer is incomplete or wrong"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latency = Latency::new((1..=200).rev().map(|number| number * 1000).collect(), 0);
        assert_eq!((latency.percentile(50), latency.percentile(99)), (100.0, 198.0));
        assert_eq!(Latency::new(vec![7], 0).percentile(99), 0.007);
        assert!(Latency::default().percentile(50).is_nan());
    }
}
