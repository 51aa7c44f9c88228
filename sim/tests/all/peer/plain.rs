//! One client that sends raw bytes, against the whole server, in virtual time.

use super::SECOND;
use highwire::App;
use highwire::server::Worker;
use highwire_io::sim::{Arrived, Client, Faults, Network, Simulated};

/// A server on the simulator, and one client.
pub(crate) struct Play {
    pub(crate) network: Network,
    pub(crate) worker: Worker<Simulated>,
    pub(crate) client: Client,
    pub(crate) received: Vec<u8>,
    pub(crate) ended: Option<Arrived>,
}

impl Play {
    pub(crate) fn new(app: App) -> Play {
        let network = Network::new(7, Faults::default());
        let driver = Simulated::new(network.clone()).expect("a driver");
        let worker = app.server().expect("an app").into_worker(driver).expect("a worker");
        let client = network.connect();
        Play { network, worker, client, received: Vec::new(), ended: None }
    }

    /// Runs 50 turns without advancing the clock. The client reads only if `reading` is true.
    pub(crate) fn settle(&mut self, reading: bool) {
        for _ in 0..50 {
            self.worker.turn(Some(self.network.now())).expect("a turn");
            while reading && self.ended.is_none() {
                match self.client.receive(usize::MAX) {
                    None => break,
                    Some(Arrived::Bytes(bytes)) => self.received.extend(bytes),
                    Some(end) => self.ended = Some(end),
                }
            }
        }
    }

    /// Sends bytes, and reads meanwhile. Stops early if the link takes no more.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = self.client.send(rest);
            rest = &rest[sent..];
            self.settle(true);
            if sent == 0 {
                return;
            }
        }
    }

    /// Advances the clock second by second until the connection ends, and calls `each` before each second. Returns the
    /// number of seconds.
    pub(crate) fn seconds_to_the_end(&mut self, reading: bool, mut each: impl FnMut(&mut Play)) -> u64 {
        for second in 0..1000 {
            self.settle(reading);
            if self.ended.is_some() || (!reading && self.worker.connections() == 0) {
                return second;
            }
            each(self);
            self.network.advance(SECOND);
        }
        panic!("the connection never ended; the client received {:?}", String::from_utf8_lossy(&self.received));
    }

    pub(crate) fn status(&self) -> &str {
        std::str::from_utf8(self.received.get(9..12).unwrap_or(b"")).expect("ASCII")
    }
}
