//! Links in memory between clients, which a test plays, and the simulated driver.

use super::{Faults, Receiving};
use crate::random::Seeded;
use crate::{Address, Instant, ListenerId, Peer, SocketId};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

/// Bytes that one direction of a link holds until the other side takes some, where a test says nothing else: few, so that
/// back-pressure is met often.
const LINK_BYTES: usize = 16 * 1024;

/// The most that one delivery brings.
const DELIVERY_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Direction {
    bytes: VecDeque<u8>,
    ended: bool,
}

#[derive(Debug)]
struct Link {
    to_server: Direction,
    to_client: Direction,
    broken: bool,
    /// It broke by a fault of the network, and not by what a side did.
    fault: bool,
    /// The breaking has been told to the server.
    told: bool,
    server_gone: bool,
    client_gone: bool,
    peer: Peer,
    listener: u32,
}

#[derive(Debug)]
struct State {
    links: Vec<Link>,
    backlog: VecDeque<usize>,
    hosts: Vec<Listening>,
    faults: Faults,
    random: Seeded,
    now: Instant,
    refusing: bool,
    /// Bytes that one direction of a link holds.
    room: usize,
    trace: u64,
}

impl Link {
    fn new(peer: Peer, listener: u32) -> Link {
        Link {
            to_server: Direction::default(),
            to_client: Direction::default(),
            broken: false,
            fault: false,
            told: false,
            server_gone: false,
            client_gone: false,
            peer,
            listener,
        }
    }
}

impl State {
    fn host(&mut self, address: &Address) -> Option<&mut Listening> {
        self.hosts.iter_mut().find(|host| host.address == *address)
    }

    /// Mixes an event into the trace, so that two runs can be told apart.
    fn note(&mut self, what: u64) {
        self.trace = (self.trace.rotate_left(5) ^ what).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// A network; clones are the same network.
#[derive(Clone, Debug)]
pub struct Network {
    state: Rc<RefCell<State>>,
}

/// What one side of a link finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// At least one byte.
    Bytes(Vec<u8>),
    /// The other side ended its direction.
    End,
    /// The link broke.
    Reset,
}

/// The test's end of a link: of a client that has connected to the driver, or of a host that the driver has connected to. It
/// closes when it is dropped.
#[derive(Debug)]
pub struct Client {
    network: Network,
    link: usize,
}

/// A server that a test plays, for the driver to connect to. It refuses connections once it is dropped.
#[derive(Debug)]
pub struct Host {
    network: Network,
    address: Address,
}

#[derive(Debug)]
struct Listening {
    address: Address,
    is_silent: bool,
    backlog: VecDeque<usize>,
}

impl Network {
    /// A network without links.
    pub fn new(seed: u64, faults: Faults) -> Network {
        let state = State {
            links: Vec::new(),
            backlog: VecDeque::new(),
            hosts: Vec::new(),
            faults,
            random: Seeded::new(seed),
            now: Instant { nanoseconds: 1_000_000_000 },
            refusing: false,
            room: LINK_BYTES,
            trace: seed,
        };
        Network { state: Rc::new(RefCell::new(state)) }
    }

    /// The present moment.
    pub fn now(&self) -> Instant {
        self.state.borrow().now
    }

    /// Moves time on.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.borrow_mut();
        state.now = state.now + by;
    }

    /// Moves time on to a moment, if that is later.
    pub fn advance_to(&self, moment: Instant) {
        let mut state = self.state.borrow_mut();
        state.now = state.now.max(moment);
    }

    /// From now on each direction of a link holds so many bytes until the other side takes some.
    pub fn hold(&self, bytes: usize) {
        self.state.borrow_mut().room = bytes;
    }

    /// A number that the seed decides.
    pub fn random(&self) -> u64 {
        self.state.borrow_mut().random.next()
    }

    /// What happened so far, as one number: two runs of a seed have the same.
    pub fn trace(&self) -> u64 {
        self.state.borrow().trace
    }

    /// Connects a client to the first listener. Its address is one of 250, so that some share one.
    pub fn connect(&self) -> Client {
        self.connect_to(ListenerId(0))
    }

    /// Connects a client to a listener: they count from 0 on, in the order in which the server has them.
    pub fn connect_to(&self, listener: ListenerId) -> Client {
        let mut state = self.state.borrow_mut();
        let last = state.random.below(250) as u8;
        let link = state.links.len();
        let peer = Peer::Internet(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 1024 + (link % 60_000) as u16);
        let broken = state.refusing;
        state.links.push(Link { broken, ..Link::new(peer, listener.0) });
        if !broken {
            state.backlog.push_back(link);
        }
        state.note(1);
        Client { network: self.clone(), link }
    }

    /// Adds a host that listens at an address.
    ///
    /// # Panics
    /// If another host listens there.
    pub fn listen(&self, address: Address) -> Host {
        let mut state = self.state.borrow_mut();
        assert!(state.host(&address).is_none(), "another host listens at {address}");
        state.hosts.push(Listening { address: address.clone(), is_silent: false, backlog: VecDeque::new() });
        Host { network: self.clone(), address }
    }

    /// Returns how a connection attempt of the driver's ends: with a link, or with an error. Returns `None` while there is no
    /// answer.
    pub(super) fn answer(&self, address: &Address) -> Option<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.random.one_in(state.faults.stall) {
            return None;
        }
        let peer = match address {
            Address::Tcp(address) => Peer::Internet(address.ip(), address.port()),
            Address::Unix(_) => Peer::Local,
            Address::Inherited(_) => return Some(Err(io::ErrorKind::InvalidInput.into())),
        };
        let fails = state.random.one_in(state.faults.connect);
        let link = state.links.len();
        let answer = match state.host(address) {
            Some(host) if host.is_silent => return None,
            Some(_) if fails => Err(io::ErrorKind::HostUnreachable.into()),
            Some(host) => {
                host.backlog.push_back(link);
                Ok(link)
            }
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        if answer.is_ok() {
            state.links.push(Link::new(peer, 0));
        }
        state.note(10 + ((link as u64) << 8) + (u64::from(answer.is_ok()) << 32));
        Some(answer)
    }

    pub(super) fn shuffle(&self, ids: &mut [SocketId]) {
        let random = &mut self.state.borrow_mut().random;
        for last in (1..ids.len()).rev() {
            ids.swap(last, random.below(last + 1));
        }
    }

    pub(super) fn accept(&self) -> Option<(ListenerId, io::Result<(usize, Peer)>)> {
        let mut state = self.state.borrow_mut();
        let &link = state.backlog.front()?;
        let listener = ListenerId(state.links[link].listener);
        let odds = state.faults.accept;
        if state.random.one_in(odds) {
            state.note(2);
            return Some((listener, Err(io::Error::other("no descriptor is left (EMFILE)"))));
        }
        state.backlog.pop_front();
        state.note(3 + ((link as u64) << 8));
        Some((listener, Ok((link, state.links[link].peer))))
    }

    pub(super) fn refuse_all(&self) {
        let mut state = self.state.borrow_mut();
        state.refusing = true;
        while let Some(link) = state.backlog.pop_front() {
            state.links[link].broken = true;
        }
    }

    /// Sends from the server: how much the link took, or `None` where it is broken.
    pub(super) fn server_send(&self, link: usize, bytes: &[u8]) -> Option<usize> {
        let mut state = self.state.borrow_mut();
        let (no_send, short_send) = (state.faults.no_send, state.faults.short_send);
        if state.links[link].broken || state.links[link].client_gone {
            return None;
        }
        let room = state.room.saturating_sub(state.links[link].to_client.bytes.len());
        let mut take = bytes.len().min(room);
        if state.random.one_in(no_send) {
            take = 0;
        } else if take > 1 && state.random.one_in(short_send) {
            take = 1 + state.random.below(take - 1);
        }
        state.links[link].to_client.bytes.extend(&bytes[..take]);
        state.note(4 + ((link as u64) << 8) + ((take as u64) << 32));
        Some(take)
    }

    pub(super) fn server_receive(&self, link: usize, receiving: Receiving) -> Option<Arrived> {
        let mut state = self.state.borrow_mut();
        let Faults { stall, reset, split, late, .. } = state.faults;
        if state.random.one_in(reset) {
            state.links[link].broken = true;
            state.links[link].fault = true;
        }
        if state.links[link].broken {
            if std::mem::replace(&mut state.links[link].told, true) {
                return None;
            }
            state.note(5 + ((link as u64) << 8));
            return Some(Arrived::Reset);
        }
        let comes = match receiving {
            Receiving::Wanted => !state.random.one_in(stall),
            Receiving::JustPaused => state.random.one_in(late),
            Receiving::Paused => false,
        };
        if !comes {
            return None;
        }
        let waiting = state.links[link].to_server.bytes.len().min(DELIVERY_BYTES);
        if waiting == 0 {
            return (state.links[link].to_server.ended).then_some(Arrived::End);
        }
        let take = match split {
            true if state.random.one_in(2) => 1 + state.random.below(waiting.min(8)),
            true => 1 + state.random.below(waiting),
            false => waiting,
        };
        state.note(6 + ((link as u64) << 8) + ((take as u64) << 32));
        Some(Arrived::Bytes(state.links[link].to_server.bytes.drain(..take.min(waiting)).collect()))
    }

    pub(super) fn server_shutdown(&self, link: usize) {
        let mut state = self.state.borrow_mut();
        state.links[link].to_client.ended = true;
        state.note(7 + ((link as u64) << 8));
    }

    /// Closes the server's end. As a kernel does, it breaks the link where something was not received, and what the client
    /// sends afterwards breaks it too.
    pub(super) fn server_close(&self, link: usize) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let unread = !state.links[link].to_server.bytes.is_empty();
        state.links[link].server_gone = true;
        state.links[link].to_client.ended = true;
        if unread {
            state.links[link].broken = true;
            state.links[link].to_client.bytes.clear();
        }
        state.note(8 + ((link as u64) << 8));
    }

    pub(super) fn server_reset(&self, link: usize) {
        let mut state = self.state.borrow_mut();
        state.links[link].server_gone = true;
        state.links[link].broken = true;
        state.links[link].to_client.bytes.clear();
        state.note(9 + ((link as u64) << 8));
    }
}

impl Host {
    /// Takes the next connection of the driver's, if there is one.
    pub fn accept(&self) -> Option<Client> {
        let link = self.network.state.borrow_mut().host(&self.address)?.backlog.pop_front()?;
        Some(Client { network: self.network.clone(), link })
    }

    /// Makes the host ignore connection attempts, as a host behind a firewall that drops packets does; or answer them again.
    pub fn set_silent(&self, is_silent: bool) {
        if let Some(host) = self.network.state.borrow_mut().host(&self.address) {
            host.is_silent = is_silent;
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut state = self.network.state.borrow_mut();
        let state = &mut *state;
        state.hosts.retain_mut(|host| {
            let is_this = host.address == self.address;
            if is_this {
                host.backlog.iter().for_each(|&link| state.links[link].broken = true);
            }
            !is_this
        });
    }
}

impl Client {
    /// Sends: how much the link took. What is sent to a server that has closed breaks the link.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let mut state = self.network.state.borrow_mut();
        let room = state.room;
        let link = &mut state.links[self.link];
        if link.server_gone && !bytes.is_empty() {
            link.broken = true;
        }
        if link.broken || link.to_server.ended {
            return 0;
        }
        let take = bytes.len().min(room.saturating_sub(link.to_server.bytes.len()));
        link.to_server.bytes.extend(&bytes[..take]);
        take
    }

    /// Receives up to `most` bytes; `None` where nothing has come.
    pub fn receive(&self, most: usize) -> Option<Arrived> {
        let mut state = self.network.state.borrow_mut();
        let link = &mut state.links[self.link];
        let take = link.to_client.bytes.len().min(most);
        if take > 0 {
            return Some(Arrived::Bytes(link.to_client.bytes.drain(..take).collect()));
        }
        if !link.to_client.bytes.is_empty() {
            return None;
        }
        match (link.broken, link.to_client.ended) {
            // What had arrived before a break is read first, then the break shows.
            (true, _) => Some(Arrived::Reset),
            (false, true) => Some(Arrived::End),
            (false, false) => None,
        }
    }

    /// Returns the peer's address as the driver sees it.
    pub fn address(&self) -> Peer {
        self.network.state.borrow().links[self.link].peer
    }

    /// Ends the client's direction.
    pub fn shutdown(&self) {
        self.network.state.borrow_mut().links[self.link].to_server.ended = true;
    }

    /// Breaks the link.
    pub fn reset(&self) {
        self.network.state.borrow_mut().links[self.link].broken = true;
    }

    /// Whether the link broke by a fault of the network: then nobody owes the client anything. A link that broke because the
    /// server closed it with bytes unread has lost an answer.
    pub fn has_fault(&self) -> bool {
        self.network.state.borrow().links[self.link].fault
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut state = self.network.state.borrow_mut();
        let link = &mut state.links[self.link];
        link.client_gone = true;
        link.to_server.ended = true;
        if !link.to_client.bytes.is_empty() {
            link.broken = true;
        }
    }
}
