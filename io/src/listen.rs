//! Listeners: addresses as people write them, socket options, inherited descriptors.

use crate::sys::Waitable;
use crate::sys::listen::{self as system, Acceptor};
use crate::sys::socket::set_listener_options;
use socket2::{Domain, Protocol, SockAddr, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Where to listen or to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
    /// A listening descriptor that the process inherited.
    Inherited(i32),
}

impl Address {
    /// Reads `HOST:PORT`, `:PORT` (every address, both families), `unix:PATH` or `fd:NUMBER`.
    ///
    /// # Errors
    /// What is wrong with the text, or why the host's name was not found.
    pub fn parse(text: &str) -> io::Result<Address> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} is no address: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(invalid("the path is empty")) } else { Ok(Address::Unix(path.into())) };
        }
        if let Some(number) = text.strip_prefix("fd:") {
            return match number.parse() {
                Ok(number) if number >= 0 => Ok(Address::Inherited(number)),
                _ => Err(invalid("a descriptor is a number")),
            };
        }
        if text.parse::<u16>().is_ok() {
            let why =
                format!("it is a port alone; :{text} is every address of this machine, 127.0.0.1:{text} itself only");
            return Err(invalid(&why));
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            // The end of it may be meant as the port.
            let with_port = text
                .rsplit_once(':')
                .filter(|(ip, port)| ip.parse::<Ipv6Addr>().is_ok() && port.parse::<u16>().is_ok_and(|port| port > 0));
            let meant = with_port.map_or_else(String::new, |(ip, port)| format!(", or in [{ip}]:{port}"));
            let why = format!("an IPv6 address stands in brackets before its port, as in [{text}]:8080{meant}");
            return Err(invalid(&why));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(invalid(&format!("the port is missing, as in {text}:8080")));
        };
        let Ok(port) = port.parse::<u16>() else { return Err(invalid("the port is not a number from 0 to 65535")) };
        if host.is_empty() {
            return Ok(Address::Tcp(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)));
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(host).parse::<IpAddr>() {
            return match (ip, bare) {
                (IpAddr::V6(_), None) => Err(invalid("an IPv6 address stands in brackets, as in [::1]:8080")),
                _ => Ok(Address::Tcp(SocketAddr::new(ip, port))),
            };
        }
        let found = (host, port).to_socket_addrs().map_err(|error| invalid(&format!("{host}: {error}")))?;
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found.first().map(|&address| Address::Tcp(address)).ok_or_else(|| invalid("the name has no address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Inherited(number) => write!(f, "fd:{number}"),
        }
    }
}

/// True if the kernel spreads connections over several listeners at one port ([`Options::reuse_port`]): Linux and FreeBSD.
pub const SHARES_PORTS: bool = system::SHARES_PORTS;

/// Options of a listener and the connections that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Connections that the kernel holds until they are accepted. The system caps it (`net.core.somaxconn`).
    pub backlog: u32,
    /// Send small segments at once (TCP_NODELAY).
    pub no_delay: bool,
    /// Probe idle connections after this long (SO_KEEPALIVE), so that peers that vanished are found.
    pub keep_alive: Option<Duration>,
    /// Let several listeners share the port, each with a queue of its own (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Whether an IPv6 listener takes IPv6 connections only.
    pub only_v6: bool,
    /// Bytes of a connection that the kernel holds unsent before it takes no more (TCP_NOTSENT_LOWAT). It bounds what a slow
    /// reader costs in the kernel, and lets the loop see that a slow reader still reads.
    pub unsent_bytes: Option<u32>,
    /// Hand a connection over only when its first bytes have come, or after this long (TCP_DEFER_ACCEPT).
    pub defer_accept: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backlog: 4096,
            no_delay: true,
            keep_alive: Some(Duration::from_secs(60)),
            reuse_port: false,
            only_v6: false,
            unsent_bytes: Some(64 * 1024),
            defer_accept: None,
        }
    }
}

/// A bound, listening socket. Dropped, it closes, and a unix socket's file is removed.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    address: Address,
    /// The path to remove, where this process made it.
    path: Option<PathBuf>,
}

impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// What the system says, with the address: taken, not permitted, not ours.
    pub fn bind(address: &Address, options: &Options) -> io::Result<Listener> {
        let named = |error: io::Error| io::Error::new(error.kind(), explain(address, &error));
        let listener = match address {
            Address::Tcp(socket) => bind_tcp(*socket, options),
            Address::Unix(path) => system::bind_unix(path, options).map(|acceptor| Listener {
                acceptor,
                address: address.clone(),
                path: Some(path.clone()),
            }),
            Address::Inherited(number) => {
                system::inherit(*number).map(|(acceptor, address)| Listener { acceptor, address, path: None })
            }
        };
        listener.map_err(named)
    }

    /// The listeners that a service manager passed (`LISTEN_FDS`, `LISTEN_PID`): descriptors from 3 on.
    ///
    /// # Errors
    /// Where a descriptor that was announced is no listening socket.
    pub fn inherited() -> io::Result<Vec<Listener>> {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        match (number("LISTEN_PID"), number("LISTEN_FDS")) {
            (Some(pid), Some(count)) if pid == std::process::id() => (3..3 + count as i32)
                .map(|number| Listener::bind(&Address::Inherited(number), &Options::default()))
                .collect(),
            _ => Ok(Vec::new()),
        }
    }

    /// Where it listens: the port is filled in where 0 was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Another handle of the same socket and queue.
    ///
    /// # Errors
    /// What the system says.
    pub fn duplicate(&self) -> io::Result<Listener> {
        Ok(Listener { acceptor: system::duplicate(&self.acceptor)?, address: self.address.clone(), path: None })
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
            // Somebody else may have removed it; there is nobody to tell.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn explain(address: &Address, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("{address} is taken by another process"),
        io::ErrorKind::PermissionDenied => format!("{address}: no permission (ports below 1024 need a privilege)"),
        io::ErrorKind::AddrNotAvailable => format!("{address} is not an address of this machine"),
        _ => format!("{address}: {error}"),
    }
}

fn bind_tcp(address: SocketAddr, options: &Options) -> io::Result<Listener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    system::reuse_address(&socket)?;
    if options.reuse_port {
        system::reuse_port(&socket)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.only_v6)?;
    }
    // Accepted connections inherit these: no system call for each.
    socket.set_tcp_nodelay(options.no_delay)?;
    if let Some(after) = options.keep_alive {
        socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(after))?;
    }
    set_listener_options(&socket, options.defer_accept, options.unsent_bytes)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(Listener { acceptor: system::acceptor(socket), address: Address::Tcp(bound), path: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            (":80", "[::]:80"),
            ("unix:/tmp/x", "unix:/tmp/x"),
            ("fd:3", "fd:3"),
        ] {
            assert_eq!(Address::parse(text).expect(text).to_string(), shown);
        }
        for (text, why) in [
            ("", "the port is missing"),
            ("8080", ":8080 is every address of this machine, 127.0.0.1:8080 itself only"),
            ("127.0.0.1", "the port is missing, as in 127.0.0.1:8080"),
            ("localhost", "the port is missing, as in localhost:8080"),
            ("127.0.0.1:", "the port is not a number"),
            ("127.0.0.1:99999", "the port is not a number from 0 to 65535"),
            ("99999", "the port is missing"),
            ("::1", "as in [::1]:8080"),
            ("::", "as in [::]:8080"),
            ("unix:", "the path is empty"),
            ("fd:x", "a descriptor is a number"),
            ("fd:-1", "a descriptor is a number"),
            ("a b:80", "a b"),
        ] {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?} is no address: ")) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn an_ipv6_address_without_brackets_is_told_what_may_be_meant() {
        for (text, expected) in [
            ("::1", "in brackets before its port, as in [::1]:8080"),
            ("::1:80", "in brackets before its port, as in [::1:80]:8080, or in [::1]:80"),
            ("::1:ab", "in brackets before its port, as in [::1:ab]:8080"),
            ("::1:99999", "the port is not a number from 0 to 65535"),
        ] {
            let error = Address::parse(text).expect_err("there are no brackets").to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn errors_name_the_address() {
        let address = Address::parse("127.0.0.1:0").expect("an address");
        let first = Listener::bind(&address, &Options::default()).expect("a free port");
        let error = Listener::bind(first.address(), &Options::default()).expect_err("the port is taken");
        assert_eq!(error.to_string(), format!("{} is taken by another process", first.address()));
    }
}
