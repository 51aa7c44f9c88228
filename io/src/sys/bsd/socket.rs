//! Stream sockets.

use crate::Peer;
use crate::file::File;
use crate::socket::peer;
use crate::sys::listen::Acceptor;
pub(crate) use crate::sys::unix::socket::*;
use socket2::{SockRef, Socket};
use std::io::{self, Read};
use std::time::Duration;

/// Accepts one connection, with the peer's address.
///
/// # Errors
/// Returns an error and closes the connection if the peer has no address any longer, because it has reset the connection.
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

/// Receives into `buffer`, without waiting.
pub(crate) fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    (&*SockRef::from(stream)).read(buffer)
}

/// Sends as much of `bytes` as the kernel takes, without waiting and without SIGPIPE. These systems cannot hold bytes back for those
/// that follow.
pub(crate) fn send(stream: &Stream, bytes: &[u8], _more: bool) -> io::Result<usize> {
    // macOS has the socket option SO_NOSIGPIPE instead of the flag.
    #[cfg(target_vendor = "apple")]
    const FLAGS: libc::c_int = 0;
    #[cfg(not(target_vendor = "apple"))]
    const FLAGS: libc::c_int = libc::MSG_NOSIGNAL;
    SockRef::from(stream).send_with_flags(bytes, FLAGS)
}

/// Returns [`io::ErrorKind::Unsupported`]: files are read and sent. (`sendfile` of these systems has not been tried.)
pub(crate) fn send_file(_: &Stream, _: &dyn File, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `None`: the bound of unsent bytes is set on Linux only.
pub(crate) fn unsent_bytes(_: &Stream) -> Option<u32> {
    None
}

/// Does nothing, because there is no bound of unsent bytes.
pub(crate) fn set_unsent_bytes(_: &Stream, _: u32) {}

/// Does nothing: these options exist on Linux only.
pub(crate) fn set_listener_options(_: &Socket, _: Option<Duration>, _: Option<u32>) -> io::Result<()> {
    Ok(())
}
