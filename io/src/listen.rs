//! Listening sockets, their addresses and their options.

use crate::Address;
use crate::sys::Waitable;
use crate::sys::listen::{self as system, Acceptor};
use crate::sys::socket::{defer_accept, limit_unsent_bytes};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// True if the kernel spreads connections over several listeners on one port ([`Options::reuse_port`]), which Linux and
/// FreeBSD do.
pub const SHARES_PORTS: bool = system::SHARES_PORTS;

/// Options of a listener and its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most connections that the kernel queues until they are accepted. The system may lower it
    /// (`net.core.somaxconn`).
    pub backlog: u32,
    /// True to send small segments immediately (TCP_NODELAY).
    pub no_delay: bool,
    /// The idle time after which the kernel probes a connection, to find peers that have vanished (SO_KEEPALIVE).
    pub keep_alive: Option<Duration>,
    /// True to let several listeners share the port, each with its own queue of connections (SO_REUSEPORT).
    pub reuse_port: bool,
    /// True if an IPv6 listener accepts only IPv6 connections. Otherwise one on all addresses accepts IPv4, too, and is one on
    /// `0.0.0.0` if the system has no IPv6.
    pub only_v6: bool,
    /// The permission bits of a unix socket's file, such as `0o660`. Without them, the process's umask decides.
    pub unix_mode: Option<u32>,
    /// The owner of a unix socket's file: the name or number of a user, of which most systems let only root choose another.
    pub unix_user: Option<String>,
    /// The group of a unix socket's file: its name or number.
    pub unix_group: Option<String>,
    /// The number of unsent bytes per connection above which the kernel takes no more (TCP_NOTSENT_LOWAT, set on Linux
    /// only). The limit bounds the kernel memory per slow reader, and lets the loop see that a slow reader still reads.
    /// The driver may lift it for large parts of files.
    pub unsent_bytes: Option<u32>,
    /// The time for which the kernel waits for a connection's first bytes before it reports the connection
    /// (TCP_DEFER_ACCEPT, set on Linux only).
    pub defer_accept: Option<Duration>,
}

impl Options {
    /// Sets the options of a TCP connection. A listener's connections inherit them from its socket.
    pub(crate) fn set_on(&self, socket: &socket2::Socket) -> io::Result<()> {
        socket.set_tcp_nodelay(self.no_delay)?;
        if let Some(after) = self.keep_alive {
            socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(after))?;
        }
        match self.unsent_bytes {
            Some(bytes) => limit_unsent_bytes(socket, bytes),
            None => Ok(()),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backlog: 4096,
            no_delay: true,
            keep_alive: Some(Duration::from_secs(60)),
            reuse_port: false,
            only_v6: false,
            unix_mode: None,
            unix_user: None,
            unix_group: None,
            unsent_bytes: Some(64 * 1024),
            defer_accept: None,
        }
    }
}

/// A bound, listening socket. Dropping it closes this handle of the socket and removes the file of a unix socket that
/// this listener has created.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    address: Address,
    /// The path of the socket file to remove, if this listener has created one.
    path: Option<PathBuf>,
    /// True if the process has inherited the socket.
    is_inherited: bool,
    /// True if other workers, or other processes, may accept from the socket's queue.
    is_shared: Cell<bool>,
}

impl Listener {
    /// Binds a socket and listens. For [`Address::Inherited`], takes over the listening descriptor instead and ignores
    /// `options`.
    ///
    /// # Errors
    /// Returns an error that names the address, for example if it is in use, not permitted, or not an address of this
    /// machine.
    pub fn bind(address: &Address, options: &Options) -> io::Result<Listener> {
        let named = |error: io::Error| io::Error::new(error.kind(), explain(address, &error));
        let listener = match address {
            Address::Tcp(socket) => bind_tcp(*socket, options),
            Address::Unix(path) => system::bind_unix(path, options).map(|acceptor| Listener {
                acceptor,
                address: address.clone(),
                path: Some(path.clone()),
                is_inherited: false,
                is_shared: Cell::new(false),
            }),
            Address::Inherited(number) => system::inherit(*number).map(|(acceptor, address)| Listener {
                acceptor,
                address,
                path: None,
                is_inherited: true,
                is_shared: Cell::new(true),
            }),
        };
        listener.map_err(named)
    }

    /// Takes over a socket that listens already, and sets the options that accepted connections inherit from it.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn from_std(listener: std::net::TcpListener, options: &Options) -> io::Result<Listener> {
        let address = Address::Tcp(listener.local_addr()?);
        listener.set_nonblocking(true)?;
        let socket = socket2::Socket::from(listener);
        options.set_on(&socket)?;
        let (acceptor, is_shared) = (system::acceptor(socket), Cell::new(false));
        Ok(Listener { acceptor, address, path: None, is_inherited: false, is_shared })
    }

    /// Returns the listeners that a service manager has passed to this process (`LISTEN_FDS`, `LISTEN_PID`):
    /// descriptors from 3 on, each with its name (`LISTEN_FDNAMES`), which may be empty. The result is empty if there are
    /// none. Call this once, because the listeners own the descriptors.
    ///
    /// # Errors
    /// Returns an error if one of these descriptors is not a listening socket or cannot be set up.
    pub fn inherited() -> io::Result<Vec<(String, Listener)>> {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.split(':').map(str::to_string).chain(std::iter::repeat(String::new()));
        match (number("LISTEN_PID"), number("LISTEN_FDS")) {
            (Some(pid), Some(count)) if pid == std::process::id() => (3..3_i32.saturating_add_unsigned(count))
                .zip(names)
                .map(|(number, name)| Ok((name, Listener::bind(&Address::Inherited(number), &Options::default())?)))
                .collect(),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns true if the socket is one of IPv6 and accepts IPv4 connections as well.
    pub fn takes_both(&self) -> bool {
        let is_v6 = matches!(self.address, Address::Tcp(address) if address.is_ipv6());
        is_v6 && socket2::SockRef::from(&self.acceptor).only_v6().is_ok_and(|only| !only)
    }

    /// Returns true if the process has inherited the socket.
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.get()
    }

    /// Returns the address on which the socket listens, with the port that the system chose if port 0 was requested.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a second handle of the same socket and queue. Dropping the second handle does not remove the file of a
    /// unix socket.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn duplicate(&self) -> io::Result<Listener> {
        let (acceptor, address) = (system::duplicate(&self.acceptor)?, self.address.clone());
        self.is_shared.set(true);
        Ok(Listener { acceptor, address, path: None, is_inherited: self.is_inherited, is_shared: Cell::new(true) })
    }

    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    pub(crate) fn acceptor_mut(&mut self) -> &mut Acceptor {
        &mut self.acceptor
    }

    pub(crate) fn waitable(&self) -> Waitable {
        system::waitable(&self.acceptor)
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp(_))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Another process may have removed the file, and a destructor cannot return an error.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn explain(address: &Address, error: &io::Error) -> String {
    let is_other_file = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| !system::is_socket(&file));
    match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, Address::Unix(path)) if is_other_file(path) => {
            format!("cannot listen on {address}: there is a file or folder that is not a socket")
        }
        (io::ErrorKind::AddrInUse, _) => format!("cannot listen on {address}: it is already in use"),
        (io::ErrorKind::PermissionDenied, Address::Tcp(tcp)) if tcp.port() < 1024 => {
            format!("cannot listen on {address}: permission denied (ports below 1024 need CAP_NET_BIND_SERVICE)")
        }
        (io::ErrorKind::PermissionDenied, Address::Unix(_)) => {
            format!(
                "cannot listen on {address}: permission denied (this process must be able to write to the folder, and to give \
                 the socket the mode, owner and group that are set)"
            )
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            format!("cannot listen on {address}: it is not an address of this machine")
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

fn bind_tcp(address: SocketAddr, options: &Options) -> io::Result<Listener> {
    let new = |address| socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP));
    let (address, socket) = match new(address) {
        Err(error) => {
            let Some(address) = without_v6(address, &error).filter(|_| !options.only_v6) else { return Err(error) };
            (address, new(address)?)
        }
        Ok(socket) => (address, socket),
    };
    system::reuse_address(&socket)?;
    if options.reuse_port {
        system::reuse_port(&socket)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.only_v6)?;
    }
    // Accepted connections inherit these options, which saves system calls per connection.
    options.set_on(&socket)?;
    if let Some(after) = options.defer_accept {
        defer_accept(&socket, after)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(Listener {
        acceptor: system::acceptor(socket),
        address: Address::Tcp(bound),
        path: None,
        is_inherited: false,
        is_shared: Cell::new(false),
    })
}

/// Returns false if the system has no IPv6.
pub fn has_v6() -> bool {
    let opened = socket2::Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP));
    opened.err().and_then(|error| error.raw_os_error()) != Some(system::NO_SUCH_FAMILY)
}

/// Returns the address that stands for all addresses on a system without IPv6, as the error tells.
fn without_v6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let is_all = address.is_ipv6() && address.ip().is_unspecified();
    let is_missing = error.raw_os_error() == Some(system::NO_SUCH_FAMILY);
    (is_all && is_missing).then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4() {
        let error = io::Error::from_raw_os_error(system::NO_SUCH_FAMILY);
        let shown =
            |address: &str| without_v6(address.parse().expect("an address"), &error).map(|address| address.to_string());
        assert_eq!(shown("[::]:80").as_deref(), Some("0.0.0.0:80"));
        assert_eq!((shown("[::1]:80"), shown("0.0.0.0:80")), (None, None));
        assert_eq!(without_v6("[::]:80".parse().expect("an address"), &io::ErrorKind::AddrInUse.into()), None);
    }

    #[test]
    fn errors_name_the_address() {
        let address = Address::parse("127.0.0.1:0").expect("an address");
        let first = Listener::bind(&address, &Options::default()).expect("a free port");
        let error = Listener::bind(first.address(), &Options::default()).expect_err("the port is taken");
        assert_eq!(error.to_string(), format!("cannot listen on {}: it is already in use", first.address()));
    }
}
