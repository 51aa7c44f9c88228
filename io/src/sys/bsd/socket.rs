//! Stream sockets on macOS and FreeBSD.

use crate::Peer;
use crate::file::File;
use crate::socket::peer;
use crate::sys::listen::Acceptor;
pub(crate) use crate::sys::unix::socket::*;
use socket2::{SockRef, Socket};
use std::io::{self, Read};
use std::time::Duration;

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

/// Returns [`io::ErrorKind::Unsupported`], so that the caller reads the file and sends its bytes. The `sendfile` of
/// these systems has not been tried.
pub(crate) fn send_file(_: &Stream, _: &dyn File, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `None`, because the bound on unsent bytes is set only on Linux.
pub(crate) fn unsent_bytes(_: &Stream) -> Option<u32> {
    None
}

/// Does nothing, because the bound on unsent bytes is set only on Linux.
pub(crate) fn set_unsent_bytes(_: &Stream, _: u32) {}

/// Does nothing, because these options are set only on Linux.
pub(crate) fn set_listener_options(_: &Socket, _: Option<Duration>, _: Option<u32>) -> io::Result<()> {
    Ok(())
}
