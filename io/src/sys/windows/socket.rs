//! Stream sockets of mio's type. On Windows, mio reports a further event of a socket only after a call on the socket
//! would have blocked.

use crate::lent_buffer::LentBuffer;
use crate::socket::peer;
use crate::sys::Waitable;
use crate::sys::listen::Acceptor;
pub(crate) use crate::sys::portable::socket::*;
use crate::{Address, Peer};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{SockAddr, SockRef, Socket};
use std::io::{self, Read, Write};
use std::os::windows::io::AsRawSocket;
use windows_sys::Win32::Networking::WinSock::WSAENOBUFS;

/// A connected socket, or one that is being connected. It does not block.
pub(crate) type Stream = mio::net::TcpStream;

/// False, because mio reports a further event of a socket only after a call on the socket would have blocked, or after
/// the socket was registered again.
pub(crate) const KEEPS_EVENTS: bool = false;

/// Sets TCP_NODELAY, which mio allows only on connected sockets.
pub(crate) fn has_connected(stream: &Stream) {
    let _ = stream.set_nodelay(true);
}

pub(crate) fn waitable(stream: &Stream) -> Waitable {
    stream.as_raw_socket()
}

pub(crate) fn from_socket(socket: Socket) -> Stream {
    Stream::from_std(socket.into())
}

pub(crate) fn into_std(stream: Stream) -> std::net::TcpStream {
    stream.into()
}

pub(crate) fn register(
    registry: &Registry,
    socket: &mut impl Source,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    registry.register(socket, token, interest)
}

pub(crate) fn reregister(
    registry: &Registry,
    socket: &mut impl Source,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    registry.reregister(socket, token, interest)
}

pub(crate) fn deregister(registry: &Registry, socket: &mut impl Source) -> io::Result<()> {
    registry.deregister(socket)
}

/// Accepts one connection. Returns it with the peer's address.
pub(crate) fn accept(acceptor: &Acceptor) -> io::Result<(Stream, Peer)> {
    let (stream, address) = acceptor.accept()?;
    match peer(&SockAddr::from(address)) {
        Some(peer) => Ok((stream, peer)),
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Begins to connect. Returns the socket and the peer.
pub(crate) fn connect(address: &Address) -> io::Result<(Stream, Peer)> {
    let Address::Tcp(address) = address else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "Windows connects to TCP addresses only"));
    };
    Ok((Stream::connect(*address)?, peer(&SockAddr::from(*address)).ok_or(io::ErrorKind::InvalidInput)?))
}

/// Receives into a lent buffer without waiting; see [`LentBuffer::fill`].
pub(crate) fn receive_into(
    stream: &Stream,
    lent_buffer: LentBuffer,
) -> (io::Result<usize>, Result<Vec<u8>, LentBuffer>) {
    // `try_io` arms the next event if nothing has arrived.
    // SAFETY: `recv` returns the number of bytes that the system has written.
    unsafe { lent_buffer.fill(|spare| stream.try_io(|| SockRef::from(stream).recv(spare))) }
}

/// Receives into `buffer`, without waiting.
pub(crate) fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    (&*stream).read(buffer)
}

/// Sends as much of `bytes` as the system takes, without waiting. Ignores `more`, because Windows has no MSG_MORE.
pub(crate) fn send(stream: &Stream, bytes: &[u8], _more: bool) -> io::Result<usize> {
    (&*stream).write(bytes)
}

/// Returns true if a failed send may be tried again, because the socket takes no more now, the call was interrupted, or
/// the system lacks memory at the moment.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(WSAENOBUFS)
}

/// Returns true if a failed accept is not the listener's fault, for example because there was no connection or it has
/// broken already.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
