//! Plays programs on the simulator, with faults.

use super::{Peers, Traits, run};
use crate::file::{File, Files};
use crate::sim::files::{DiskFaults, SimulatedFolder};
use crate::sim::{Arrived, Client, Faults, Host, Network, Simulated};
use crate::{Address, Instant, Peer};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The capacity of one direction of a simulated link, in bytes.
const LINK_BYTES: u64 = 16 * 1024;

/// The most turns of one wait, which suffice even if all kinds of faults occur.
const TURNS: u32 = 5_000;

/// The length of the part of the input that chooses the faults and the seed.
const HEADER_BYTES: usize = 3;

struct Simulation {
    network: Network,
    driver: Simulated,
    clients: Vec<Option<Client>>,
    /// Hosts for the driver to connect to, by the numbers of their clients.
    hosts: HashMap<usize, Host>,
    waited: u32,
}

/// Plays a program on the simulated driver. The first three bytes of the input choose the faults and the seed; a
/// shorter input does nothing. For one seed in eight, plays the program twice.
///
/// # Panics
/// Panics if the driver breaks its contract, or if the two runs differ.
pub fn driver(input: &[u8]) {
    let Some((&[often, seldom, seed], program)) = input.split_first_chunk::<HEADER_BYTES>() else { return };
    let odds = |number: u8| [0, 2, 4, 16][usize::from(number & 3)];
    let faults = Faults {
        split: often & 1 != 0,
        short_send: odds(often >> 1),
        no_send: odds(often >> 3),
        stall: odds(often >> 5),
        late: 4,
        reset: [0, 0, 0, 100][usize::from(seldom & 3)],
        accept: odds(seldom >> 2),
        connect: odds(seldom >> 4),
    };
    let play = || {
        let network = Network::new(u64::from(seed), faults.clone());
        let driver = Simulated::new(network.clone()).expect("a descriptor is left");
        let (clients, hosts) = (Vec::new(), HashMap::new());
        run(program, Simulation { network: network.clone(), driver, clients, hosts, waited: 0 });
        network.trace()
    };
    let trace = play();
    // This is done only for one seed in eight, because it doubles the time.
    if seed & 7 == 0 {
        assert_eq!(trace, play(), "two runs with the same seed differ");
    }
}

impl Peers for Simulation {
    type Driver = Simulated;

    fn driver(&mut self) -> &mut Simulated {
        &mut self.driver
    }

    fn traits(&self) -> Traits {
        Traits { resets_show: true, capacity: LINK_BYTES, connects_fail: true, most: 2 * LINK_BYTES }
    }

    fn connect(&mut self) -> Option<u16> {
        let client = self.network.connect();
        let port = match client.address() {
            Peer::Internet(_, port) => Some(port),
            Peer::Local => None,
        };
        self.clients.push(Some(client));
        port
    }

    fn expect(&mut self) -> Address {
        let client = self.clients.len();
        self.clients.push(None);
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 1, 0, 1), 1024 + client as u16)));
        self.hosts.insert(client, self.network.listen(address.clone()));
        address
    }

    fn is_accepted(&mut self, client: usize) -> bool {
        let accepted = self.hosts.get(&client).and_then(Host::accept);
        if accepted.is_some() {
            self.clients[client] = accepted;
        }
        self.clients[client].is_some()
    }

    fn send(&mut self, client: usize, bytes: &[u8]) -> usize {
        self.clients[client].as_ref().map_or(0, |client| client.send(bytes))
    }

    fn receive(&mut self, client: usize, most: usize) -> Option<Arrived> {
        self.clients[client].as_ref()?.receive(most)
    }

    fn shutdown(&mut self, client: usize) {
        self.clients[client].iter().for_each(Client::shutdown);
    }

    fn reset(&mut self, client: usize) {
        self.clients[client].iter().for_each(Client::reset);
    }

    fn close(&mut self, client: usize) {
        self.clients[client] = None;
    }

    fn is_gone(&mut self, client: usize) -> bool {
        // Receiving 0 bytes leaves the received bytes in place.
        self.clients[client].as_ref().is_none_or(|client| client.receive(0) == Some(Arrived::Reset))
    }

    fn is_broken(&self, client: usize) -> bool {
        self.clients[client].as_ref().is_none_or(Client::has_fault)
    }

    fn file(&self, content: &[u8]) -> Arc<dyn File> {
        let folder = SimulatedFolder::new(self.network.random(), DiskFaults { cold: 0, short: 3, broken: 0 });
        folder.write(b"file", content).expect("there is room");
        Arc::new(folder.open(b"file").expect("it was just written"))
    }

    fn until(&mut self) -> Instant {
        self.network.advance(Duration::from_millis(1));
        self.network.now()
    }

    fn pass(&mut self, time: Duration) -> bool {
        self.network.advance(time);
        true
    }

    fn sockets(&self) -> Option<usize> {
        Some(self.driver.sockets())
    }

    fn begin_to_wait(&mut self) {
        self.waited = 0;
    }

    fn is_patient(&mut self) -> bool {
        self.waited += 1;
        self.waited < TURNS
    }
}
