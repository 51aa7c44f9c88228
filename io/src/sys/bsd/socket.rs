//! Stream sockets.

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
/// Returns the system's error. If the peer has already reset the connection, so that its address is unknown, closes the
/// connection and returns [`io::ErrorKind::ConnectionAborted`].
pub(crate) fn accept(acceptor: &Acceptor) -> io::Result<(Stream, Peer)> {
    let (socket, address) = SockRef::from(acceptor).accept()?;
    // An inherited listener may lack what its connections inherit.
    #[cfg(target_vendor = "apple")]
    socket.set_nosigpipe(true)?;
    socket.set_nonblocking(true)?;
    match peer(&address) {
        Some(peer) => Ok((socket.into(), peer)),
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Receives into `buffer` without waiting. Returns the number of bytes, 0 at the peer's end.
pub(crate) fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    (&*SockRef::from(stream)).read(buffer)
}

/// Sends as much of `bytes` as the kernel takes, without waiting and without SIGPIPE. These systems cannot hold bytes
/// back for the ones that follow.
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
