//! Stream sockets on macOS and FreeBSD.

use crate::Peer;
use crate::lent_buffer::LentBuffer;
use crate::socket::peer;
use crate::sys::listen::Acceptor;
pub(crate) use crate::sys::portable::socket::*;
pub(crate) use crate::sys::unix::socket::*;
use socket2::SockRef;
use std::io::{self, Read};

/// Accepts one connection. Returns it with the peer's address.
///
/// # Errors
/// Returns the system's error. If the peer's address is unknown, for example because the peer has already reset the
/// connection, closes the connection and returns [`io::ErrorKind::ConnectionAborted`].
pub(crate) fn accept(acceptor: &Acceptor) -> io::Result<(Stream, Peer)> {
    let (socket, address) = SockRef::from(acceptor).accept()?;
    // Connections inherit this option from their listener, but an inherited listener may not have it.
    #[cfg(target_vendor = "apple")]
    socket.set_nosigpipe(true)?;
    socket.set_nonblocking(true)?;
    match peer(&address) {
        Some(peer) => Ok((socket.into(), peer)),
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Receives into `buffer` without waiting. Returns the number of bytes, or 0 if the peer has ended its direction.
pub(crate) fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    (&*SockRef::from(stream)).read(buffer)
}

/// Receives into a lent buffer without waiting; see [`LentBuffer::fill`].
pub(crate) fn receive_into(
    stream: &Stream,
    lent_buffer: LentBuffer,
) -> (io::Result<usize>, Result<Vec<u8>, LentBuffer>) {
    // SAFETY: `recv` returns the number of bytes that the system has written.
    unsafe { lent_buffer.fill(|spare| SockRef::from(stream).recv(spare)) }
}

/// Sends as much of `bytes` as the kernel takes, without waiting and without SIGPIPE. Ignores `more`, because these
/// systems have no MSG_MORE.
pub(crate) fn send(stream: &Stream, bytes: &[u8], _more: bool) -> io::Result<usize> {
    // macOS has the socket option SO_NOSIGPIPE instead of the flag.
    #[cfg(target_vendor = "apple")]
    const FLAGS: libc::c_int = 0;
    #[cfg(not(target_vendor = "apple"))]
    const FLAGS: libc::c_int = libc::MSG_NOSIGNAL;
    SockRef::from(stream).send_with_flags(bytes, FLAGS)
}
