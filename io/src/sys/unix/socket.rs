//! Stream sockets as descriptors.

use crate::socket::peer;
use crate::sys::Waitable;
use crate::{Address, Options, Peer};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A connected socket, or one that is being connected. It does not block.
pub(crate) type Stream = OwnedFd;

/// True, because a registered socket reports further events without another registration.
pub(crate) const KEEPS_EVENTS: bool = true;

/// Does nothing, because all options are set before the socket connects.
pub(crate) fn has_connected(_: &Stream) {}

pub(crate) fn waitable(stream: &OwnedFd) -> Waitable {
    stream.as_raw_fd()
}

pub(crate) fn from_socket(socket: socket2::Socket) -> Stream {
    socket.into()
}

pub(crate) fn into_std(stream: Stream) -> std::net::TcpStream {
    stream.into()
}

pub(crate) fn register(registry: &Registry, socket: &mut OwnedFd, token: Token, interest: Interest) -> io::Result<()> {
    registry.register(&mut SourceFd(&socket.as_raw_fd()), token, interest)
}

pub(crate) fn reregister(
    registry: &Registry,
    socket: &mut OwnedFd,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    registry.reregister(&mut SourceFd(&socket.as_raw_fd()), token, interest)
}

pub(crate) fn deregister(registry: &Registry, socket: &mut OwnedFd) -> io::Result<()> {
    registry.deregister(&mut SourceFd(&socket.as_raw_fd()))
}

/// Begins to connect. Returns the socket and the peer. A TCP socket gets the options that a listener's connections have
/// by default.
pub(crate) fn connect(address: &Address) -> io::Result<(Stream, Peer)> {
    let (socket, address) = match address {
        Address::Tcp(to) => {
            let socket = socket2::Socket::new(Domain::for_address(*to), Type::STREAM, Some(Protocol::TCP))?;
            Options::default().set_on(&socket)?;
            (socket, SockAddr::from(*to))
        }
        Address::Unix(path) => (socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?),
        Address::Inherited(_) => {
            let text = "an inherited descriptor is not an address to connect to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    };
    socket.set_nonblocking(true)?;
    match socket.connect(&address) {
        // Linux returns this error if the queue of a unix socket's listener is full. The caller would take it for an
        // attempt in progress.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the listener's queue is full"))
        }
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok((socket.into(), peer(&address).ok_or(io::ErrorKind::InvalidInput)?)),
    }
}

/// Returns true if a failed send may be tried again, because the socket takes no more now, a signal interrupted the
/// call, or the kernel lacks memory at the moment.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM))
}

/// Returns true if a failed accept is not the listener's fault, for example because there was no connection or it has
/// broken already.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
        || matches!(
            error.raw_os_error(),
            // accept(2) also returns errors that are already pending on the new socket.
            Some(
                libc::EPROTO
                    | libc::ENETDOWN
                    | libc::EHOSTDOWN
                    | libc::EHOSTUNREACH
                    | libc::EOPNOTSUPP
                    | libc::ENETUNREACH
                    | libc::EPERM
            )
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_kernel_memory_passes_and_a_broken_connection_does_not() {
        for (number, passes) in [
            (libc::EAGAIN, true),
            (libc::EINTR, true),
            (libc::ENOBUFS, true),
            (libc::ENOMEM, true),
            (libc::EPIPE, false),
            (libc::ECONNRESET, false),
            (libc::EIO, false),
        ] {
            assert_eq!(is_passing(&io::Error::from_raw_os_error(number)), passes, "{number}");
        }
    }
}
