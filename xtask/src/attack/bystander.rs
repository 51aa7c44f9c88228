//! A well-behaved client: one connection, one small request at a time, and how long each takes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two requests.
const EVERY: Duration = Duration::from_millis(2);

/// A request that takes longer is an error.
const DEADLINE: Duration = Duration::from_secs(2);

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
const STATUS: &[u8] = b"HTTP/1.1 200 ";
const BODY: &[u8] = b"Hello, World!";

/// How long requests took, and how many failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Latency {
    /// Sorted.
    pub(super) micros: Vec<u64>,
    pub(super) errors: u32,
}

impl Latency {
    fn new(mut micros: Vec<u64>, errors: u32) -> Self {
        micros.sort_unstable();
        Self { micros, errors }
    }

    /// The latency in milliseconds below which so many of a hundred requests stayed; not a number without any.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.micros.len() * percent).div_ceil(100).max(1);
        self.micros.get(rank - 1).map_or(f64::NAN, |&micros| micros as f64 / 1000.0)
    }
}

/// The client and its connection.
pub(super) struct Bystander {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Bystander {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Asks every two milliseconds for so many seconds. A request that failed counts with the time until it did.
    ///
    /// It has a thread of its own that goes before all others, where the system allows that: what is measured is how long the
    /// server takes, not how long a client waits for a core beside it.
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

    /// One request. After an error the next one is on a new connection.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        let mut stream = match self.stream.take() {
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
        self.stream = Some(stream);
        Ok(())
    }
}

/// Gives the present thread the highest priority. Only root may; without it the figures have the scheduler's share in them.
fn go_first() {
    let Ok(link) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(thread) = link.file_name() else { return };
    let quietly = || Stdio::null();
    let mut renice = Command::new("renice");
    renice.args(["-n", "-20", "-p"]).arg(thread).stdin(quietly()).stdout(quietly()).stderr(quietly());
    // The page says how the bystander was run; a system without the program measures as before.
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
            return Err(io::Error::other("no answer, or another one"));
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
