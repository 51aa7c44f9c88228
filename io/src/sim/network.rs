//! In-memory links between the simulated driver and the clients and hosts that a test plays.

use super::{Faults, Receiving};
use crate::random::Seeded;
use crate::sys::Waitable;
use crate::{Address, Instant, Interest, ListenerId, Peer, SocketId};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

/// The default capacity of one direction of a link, in bytes. It is small, so that back-pressure occurs often.
const LINK_BYTES: usize = 16 * 1024;

/// The most bytes of one delivery to the driver.
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
    /// True if a simulated fault has broken the link: see [`Faults::reset`].
    fault: bool,
    /// True if the driver has been notified that the link is broken.
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
    /// The capacity of one direction of every link, in bytes.
    room: usize,
    /// The address of clients, if they have the same.
    peers: Option<IpAddr>,
    /// The states of watched descriptors.
    ready: HashMap<Waitable, Interest>,
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

    /// Adds an event to the hash of the trace, so that two runs can be compared.
    fn note(&mut self, what: u64) {
        self.trace = (self.trace.rotate_left(5) ^ what).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// A simulated network. Clones share it.
#[derive(Clone, Debug)]
pub struct Network {
    state: Rc<RefCell<State>>,
}

/// The result of receiving from a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Received bytes, at least one.
    Bytes(Vec<u8>),
    /// The other side has closed its sending direction.
    End,
    /// The link is broken.
    Reset,
}

/// The test's end of a link. The test is either a client that has connected to the driver, or a host that the driver
/// has connected to. Dropping this closes the test's end.
#[derive(Debug)]
pub struct Client {
    network: Network,
    link: usize,
}

/// A server, played by a test, to which the driver can connect. After the host is dropped, the network refuses
/// connections to the host's address.
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
    /// Creates a network without links. The seed decides when faults occur.
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
            peers: None,
            ready: HashMap::new(),
            trace: seed,
        };
        Network { state: Rc::new(RefCell::new(state)) }
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.state.borrow().now
    }

    /// Advances the virtual time.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.borrow_mut();
        state.now = state.now + by;
    }

    /// Advances the virtual time to a moment. Does nothing if that has passed.
    pub fn advance_to(&self, moment: Instant) {
        let mut state = self.state.borrow_mut();
        state.now = state.now.max(moment);
    }

    /// Sets whether a descriptor that the driver watches is ready, until it is set again. The descriptor need not exist.
    pub fn set_ready(&self, descriptor: Waitable, ready: Interest) {
        self.state.borrow_mut().ready.insert(descriptor, ready);
    }

    pub(super) fn ready(&self, descriptor: Waitable) -> Interest {
        let never = Interest { readable: false, writable: false };
        self.state.borrow().ready.get(&descriptor).copied().unwrap_or(never)
    }

    /// Gives all clients that connect from now on this address, in place of random ones.
    pub fn set_peers(&self, address: IpAddr) {
        self.state.borrow_mut().peers = Some(address);
    }

    /// Sets how many bytes each direction of a link can hold until the other side takes some.
    pub fn hold(&self, bytes: usize) {
        self.state.borrow_mut().room = bytes;
    }

    /// Returns the next random number of the seed.
    pub fn random(&self) -> u64 {
        self.state.borrow_mut().random.next()
    }

    /// Returns a hash of the main events so far. Two runs of one deterministic test with the same seed have the same
    /// hash.
    pub fn trace(&self) -> u64 {
        self.state.borrow().trace
    }

    /// Connects a client to the first listener. The client's IP address is one of 250, so that several clients may
    /// share an address.
    pub fn connect(&self) -> Client {
        self.connect_to(ListenerId(0))
    }

    /// Connects a client to a listener. Listeners are numbered from 0, in the order in which they were added to the
    /// driver.
    pub fn connect_to(&self, listener: ListenerId) -> Client {
        let mut state = self.state.borrow_mut();
        let last = state.random.below(250) as u8;
        let link = state.links.len();
        let address = state.peers.unwrap_or(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let peer = Peer::Internet(address, 1024 + (link % 60_000) as u16);
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
    /// Panics if another host listens at the address.
    pub fn listen(&self, address: Address) -> Host {
        let mut state = self.state.borrow_mut();
        assert!(state.host(&address).is_none(), "another host listens at {address}");
        state.hosts.push(Listening { address: address.clone(), is_silent: false, backlog: VecDeque::new() });
        Host { network: self.clone(), address }
    }

    /// Answers a connection attempt of the driver with a link or an error. Returns `None` if there is no answer yet.
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

    /// Sends from the driver. Returns the number of bytes that the link took, or `None` if the link is broken or the
    /// client has closed its end.
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

    /// Returns true if the client has ended its direction or the link is broken, although the driver may not have received that.
    pub(super) fn server_hears_end(&self, link: usize) -> bool {
        let link = &self.state.borrow().links[link];
        link.to_server.ended || link.broken
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

    /// Closes the driver's end. As in a kernel, this breaks the link if the driver has not received all bytes. Bytes
    /// that the client sends later break the link, too.
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
    /// Takes the next connection that the driver has made to this host, if there is one.
    pub fn accept(&self) -> Option<Client> {
        let link = self.network.state.borrow_mut().host(&self.address)?.backlog.pop_front()?;
        Some(Client { network: self.network.clone(), link })
    }

    /// Sets whether the host leaves connection attempts unanswered, as a host behind a firewall that drops packets
    /// does.
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
    /// Sends bytes. Returns the number of bytes that the link took. Sending at least one byte breaks the link if the
    /// driver has closed its end.
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

    /// Receives up to `most` bytes. Returns `None` if nothing has arrived, or if bytes have arrived and `most` is 0.
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
            // The bytes that arrived before a break have been read by now.
            (true, _) => Some(Arrived::Reset),
            (false, true) => Some(Arrived::End),
            (false, false) => None,
        }
    }

    /// Returns the address of this end, as the driver sees it.
    pub fn address(&self) -> Peer {
        self.network.state.borrow().links[self.link].peer
    }

    /// Closes the client's sending direction.
    pub fn shutdown(&self) {
        self.network.state.borrow_mut().links[self.link].to_server.ended = true;
    }

    /// Breaks the link.
    pub fn reset(&self) {
        self.network.state.borrow_mut().links[self.link].broken = true;
    }

    /// Returns true if a simulated fault has broken the link. The client may then miss an answer. Returns false if only
    /// the server has broken it, for example by closing it with unread bytes. An answer that is lost in that way is the
    /// server's mistake.
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
