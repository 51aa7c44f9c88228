//! Workers on simulated networks of their own, in a row: each connects to the next one. The bytes between them are carried
//! in pieces, late, or not to the end.

use highwire::App;
use highwire::server::{Listen, Worker};
use highwire_io::sim::{self, Arrived, Faults, Network, Simulated};
use highwire_io::{Address, Instant, ListenerId};
use std::time::Duration;

/// The address of the next worker, as a worker sees it.
pub const NEXT: &str = "10.0.0.1:80";

/// The same for TLS.
pub const NEXT_TLS: &str = "10.0.0.1:443";

/// The bytes of a link that wait for their receiver at most.
const MOST_WAITING: usize = 60_000;

/// A cut link resets its end once in so many times. Otherwise it ends its direction.
const RESET: u64 = 2;

/// A sequence of pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }
}

/// The faults of the links. Each happens once in so many times, and never with 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    /// A direction carries nothing in a turn.
    pub stall: u64,
    /// A new link is cut after some bytes.
    pub cut: u64,
}

/// A link between two networks.
struct Link {
    ends: [sim::Client; 2],
    /// What each end has sent and the other has not taken, and true if it has ended.
    waiting: [Vec<u8>; 2],
    ended: [bool; 2],
    shut: [bool; 2],
    /// The number of bytes after which the link is cut.
    cut_after: Option<u64>,
    carried: u64,
    is_gone: bool,
}

impl Link {
    fn new(ends: [sim::Client; 2], cut_after: Option<u64>) -> Link {
        let waiting = [Vec::new(), Vec::new()];
        Link { ends, waiting, ended: [false; 2], shut: [false; 2], cut_after, carried: 0, is_gone: false }
    }

    /// Carries some bytes. Returns true if anything moved.
    fn carry(&mut self, random: &mut Random, stall: u64, cut: &mut u64) -> bool {
        let mut any = false;
        for from in 0..2 {
            if random.one_in(stall) {
                continue;
            }
            if self.waiting[from].len() < MOST_WAITING && !self.ended[from] {
                match self.ends[from].receive(1 + random.below(40_000) as usize) {
                    Some(Arrived::Bytes(bytes)) => {
                        self.waiting[from].extend_from_slice(&bytes);
                        any = true;
                    }
                    Some(Arrived::End) => (self.ended[from], any) = (true, true),
                    Some(Arrived::Reset) => {
                        self.ends[1 - from].reset();
                        self.is_gone = true;
                        return true;
                    }
                    None => {}
                }
            }
            let left = self.cut_after.map_or(u64::MAX, |after| after - self.carried);
            let most = self.waiting[from].len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let sent = self.ends[1 - from].send(&self.waiting[from][..most]);
            self.waiting[from].drain(..sent);
            self.carried += sent as u64;
            any |= sent > 0;
            if self.cut_after == Some(self.carried) {
                *cut += 1;
                self.is_gone = true;
                for end in &self.ends {
                    if random.one_in(RESET) { end.reset() } else { end.shutdown() }
                }
                return true;
            }
            if self.ended[from] && self.waiting[from].is_empty() && !self.shut[from] {
                self.ends[1 - from].shutdown();
                (self.shut[from], any) = (true, true);
            }
        }
        self.is_gone |= self.shut == [true, true];
        any
    }
}

/// A worker on its network.
struct Node {
    network: Network,
    worker: Worker<Simulated>,
    /// The hosts to which the worker can connect: the next worker's listeners, in their order.
    hosts: Vec<sim::Host>,
}

/// Workers, each of which connects to the next one, and the links between them.
pub struct Nodes {
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// The number of links that were cut.
    pub cut: u64,
    /// The number of turns.
    pub turns: u64,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("nodes", &self.nodes.len()).field("links", &self.links.len()).finish()
    }
}

impl Nodes {
    /// Starts a worker for each app. The last one has a listener for TLS, too, if `has_tls`.
    ///
    /// # Errors
    /// Returns an error if an app cannot be served.
    pub fn new(apps: Vec<App>, seed: u64, has_tls: bool) -> Result<Nodes, String> {
        let (mut nodes, count) = (Vec::new(), apps.len());
        for (at, app) in apps.into_iter().enumerate() {
            let is_last = at + 1 == count;
            let faults = Faults { split: true, short_send: 4, stall: 3, late: 4, ..Faults::default() };
            let network = Network::new(seed ^ at as u64, faults);
            let names = if is_last { &[][..] } else { &[NEXT, NEXT_TLS] };
            let hosts = names.iter().map(|name| network.listen(Address::parse(name).expect("an address"))).collect();
            let driver = Simulated::new(network.clone()).map_err(|error| error.to_string())?;
            let worker = if is_last && has_tls {
                let server = app.listen("127.0.0.1:0");
                let server = server.and_then(|server| server.listen_tls("127.0.0.1:0", crate::tls::server_config()));
                server.and_then(|server| server.into_worker(driver))
            } else {
                app.server().and_then(|server| server.into_worker_with(driver, Listen::new()))
            };
            nodes.push(Node { network, worker: worker.map_err(|error| error.to_string())?, hosts });
        }
        Ok(Nodes { nodes, links: Vec::new(), cut: 0, turns: 0 })
    }

    /// Returns the first worker.
    pub fn first(&self) -> &Worker<Simulated> {
        &self.nodes[0].worker
    }

    /// Connects to the first worker from outside.
    pub fn connect(&self) -> sim::Client {
        self.nodes[0].network.connect()
    }

    /// Runs a turn of each worker, and carries bytes. Returns true if anything moved.
    ///
    /// # Errors
    /// Returns the error of a worker.
    pub fn step(&mut self, random: &mut Random, chaos: Chaos) -> Result<bool, String> {
        let mut any = false;
        self.turns += 1;
        for node in &mut self.nodes {
            let now = node.network.now();
            node.worker.turn(Some(now)).map_err(|error| error.to_string())?;
            any |= !node.worker.driver().is_idle();
        }
        for at in 0..self.nodes.len() {
            for host in 0..self.nodes[at].hosts.len() {
                while let Some(end) = self.nodes[at].hosts[host].accept() {
                    // Most cuts come early, in the first request and its response.
                    let most = if random.one_in(2) { 400 } else { 200_000 };
                    let cut_after = random.one_in(chaos.cut).then(|| random.below(most));
                    let other = self.nodes[at + 1].network.connect_to(ListenerId(host as u32));
                    self.links.push(Link::new([end, other], cut_after));
                    any = true;
                }
            }
        }
        for link in &mut self.links {
            any |= link.carry(random, chaos.stall, &mut self.cut);
        }
        self.links.retain(|link| !link.is_gone);
        Ok(any)
    }

    /// Advances all clocks to the next timer or deadline of the first worker, by 100 ms at most.
    pub fn advance(&mut self) {
        let now = self.nodes[0].network.now();
        let next = self.nodes.iter().filter_map(|node| node.worker.next_timer()).filter(|timer| *timer > now).min();
        let most = now + Duration::from_millis(100);
        let to = next.map_or(most, |next: Instant| next.min(most));
        self.nodes.iter().for_each(|node| node.network.advance_to(to));
    }
}
