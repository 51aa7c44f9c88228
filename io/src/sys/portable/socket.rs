//! The parts of sockets that Highwire supports on Linux only.

use crate::file::File;
use crate::sys::socket::Stream;
use socket2::Socket;
use std::io;
use std::time::Duration;

/// Returns [`io::ErrorKind::Unsupported`], so that the caller reads the file and sends its bytes. The `sendfile` of other
/// systems has not been tried.
pub(crate) fn send_file(_: &Stream, _: &dyn File, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `None`, because the bound on unsent bytes is set only on Linux.
pub(crate) fn unsent_bytes(_: &Stream) -> Option<u32> {
    None
}

/// Does nothing, because the bound on unsent bytes is set only on Linux.
pub(crate) fn set_unsent_bytes(_: &Stream, _: u32) {}

/// Does nothing, because the bound on unsent bytes is set only on Linux.
pub(crate) fn limit_unsent_bytes(_: &Socket, _: u32) -> io::Result<()> {
    Ok(())
}

/// Does nothing, because TCP_DEFER_ACCEPT exists only on Linux.
pub(crate) fn defer_accept(_: &Socket, _: Duration) -> io::Result<()> {
    Ok(())
}
