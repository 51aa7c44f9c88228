//! Listening sockets of mio's type.

use crate::sys::Waitable;
use crate::{Address, Options};
use socket2::Socket;
use std::io;
use std::os::windows::io::AsRawSocket;
use std::path::Path;

/// A listening socket. It does not block.
pub(crate) type Acceptor = mio::net::TcpListener;

/// False, because Windows gives all connections to one of the sockets on a port, usually the first.
pub(crate) const SHARES_PORTS: bool = false;

pub(crate) fn acceptor(socket: Socket) -> Acceptor {
    Acceptor::from_std(socket.into())
}

pub(crate) fn duplicate(acceptor: &Acceptor) -> io::Result<Acceptor> {
    Ok(self::acceptor(socket2::SockRef::from(acceptor).try_clone()?))
}

pub(crate) fn waitable(acceptor: &Acceptor) -> Waitable {
    acceptor.as_raw_socket()
}

pub(crate) fn reuse_port(_: &Socket) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "Windows does not spread connections over the listeners of one port",
    ))
}

/// Does nothing. A port can be bound again immediately, and SO_REUSEADDR would let any process take the port.
pub(crate) fn reuse_address(_: &Socket) -> io::Result<()> {
    Ok(())
}

/// The system's error for an address family that it does not have (WSAEAFNOSUPPORT).
pub(crate) const NO_SUCH_FAMILY: i32 = 10047;

/// Returns true, because there are no other files at the path of a listener.
pub(crate) fn is_socket(_: &std::fs::Metadata) -> bool {
    true
}

pub(crate) fn bind_unix(_: &Path, _: &Options) -> io::Result<Acceptor> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "unix sockets are unavailable on Windows"))
}

pub(crate) fn inherit(_: i32) -> io::Result<(Acceptor, Address)> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "inherited listeners are unavailable on Windows"))
}
