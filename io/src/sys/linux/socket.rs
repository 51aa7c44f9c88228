//! Stream sockets: direct system calls for receiving and sending, sendfile(2), and the bound on unsent bytes.

use crate::Peer;
use crate::file::File;
use crate::lent_buffer::LentBuffer;
use crate::socket::peer;
use crate::sys::listen::Acceptor;
pub(crate) use crate::sys::unix::socket::*;
use socket2::{SockRef, Socket};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

/// Accepts one connection. Returns it with the peer's address.
///
/// # Errors
/// Returns the system's error. If the peer's address is unknown, for example because the peer has already reset the
/// connection, closes the connection and returns [`io::ErrorKind::ConnectionAborted`].
pub(crate) fn accept(acceptor: &Acceptor) -> io::Result<(Stream, Peer)> {
    let (socket, address) = SockRef::from(acceptor).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
    match peer(&address) {
        Some(peer) => Ok((socket.into(), peer)),
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Receives into `buffer` without waiting. Returns the number of bytes, or 0 if the peer has ended its direction.
pub(crate) fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    const NONE: *mut u8 = std::ptr::null_mut();
    let (descriptor, flags) = (stream.as_raw_fd(), libc::MSG_DONTWAIT);
    // This is a direct system call, because the C library's wrapper is a cancellation point and executes two locked
    // instructions per call in a process with threads (measured on epoll: 2 % of the time of a small request).
    // SAFETY: the pointer and length describe the buffer. The null pointers mean that no address is returned.
    let count =
        unsafe { libc::syscall(libc::SYS_recvfrom, descriptor, buffer.as_mut_ptr(), buffer.len(), flags, NONE, NONE) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Receives into a lent buffer without waiting; see [`LentBuffer::fill`].
pub(crate) fn receive_into(
    stream: &Stream,
    lent_buffer: LentBuffer,
) -> (io::Result<usize>, Result<Vec<u8>, LentBuffer>) {
    // SAFETY: `recv` returns the number of bytes that the system has written.
    unsafe { lent_buffer.fill(|spare| SockRef::from(stream).recv(spare)) }
}

/// Sends as much of `bytes` as the kernel takes, without waiting and without SIGPIPE. With `more`, the kernel may hold
/// the bytes back, to send them together with the following ones.
pub(crate) fn send(stream: &Stream, bytes: &[u8], more: bool) -> io::Result<usize> {
    const NONE: *const u8 = std::ptr::null();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // This is a direct system call, for the same reason as in `receive`.
    // SAFETY: the pointer and length describe the bytes. The null pointer means that no address is passed.
    let count = unsafe {
        libc::syscall(libc::SYS_sendto, stream.as_raw_fd(), bytes.as_ptr(), bytes.len(), flags, NONE, 0usize)
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Sends as much of an open file as the kernel takes, at most `most` bytes from `offset` on. Returns
/// [`io::ErrorKind::Unsupported`] if the caller must read the bytes and send them instead.
pub(crate) fn send_file(stream: &Stream, file: &dyn File, offset: u64, most: usize) -> io::Result<usize> {
    match file.descriptor() {
        // The call does not wait for the peer, because the socket is non-blocking. `sendfile` has no flag for that.
        Some(from) if pipe_signal_is_ignored() => send_descriptor(stream, from, offset, most),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn send_descriptor(stream: &Stream, from: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
    // SAFETY: the pointer is to the offset, which outlives the call; both descriptors are open.
    let count = unsafe { libc::sendfile(stream.as_raw_fd(), from.as_raw_fd(), &raw mut offset, most) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Returns true if SIGPIPE was ignored at the first call, as it is by default in Rust programs. `sendfile` has no flag
/// to suppress the signal. If SIGPIPE is not ignored, it could end the host program, so the caller must read the file
/// and send its bytes.
fn pipe_signal_is_ignored() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        // SAFETY: an all-zero sigaction is valid, and the pointer is to it. The null pointer means that nothing is
        // changed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    })
}

/// Returns the number of unsent bytes up to which the kernel takes more (TCP_NOTSENT_LOWAT). Returns `None` if the
/// socket cannot have such a bound, for example because it is a unix socket.
pub(crate) fn unsent_bytes(stream: &Stream) -> Option<u32> {
    SockRef::from(stream).tcp_notsent_lowat().ok()
}

/// Sets the bound of [`unsent_bytes`]. 0 selects the system's default, usually no bound. Ignores sockets without such a
/// bound.
pub(crate) fn set_unsent_bytes(stream: &Stream, bytes: u32) {
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(bytes);
}

/// Sets [`Options::unsent_bytes`](crate::Options::unsent_bytes) of a TCP socket.
pub(crate) fn limit_unsent_bytes(socket: &Socket, bytes: u32) -> io::Result<()> {
    socket.set_tcp_notsent_lowat(bytes.min(i32::MAX as u32))
}

/// Sets [`Options::defer_accept`](crate::Options::defer_accept) of a TCP listener.
pub(crate) fn defer_accept(socket: &Socket, after: Duration) -> io::Result<()> {
    let seconds = libc::c_int::try_from(after.as_secs().max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer and length describe the integer.
    let done = unsafe {
        let (value, length) = (std::ptr::from_ref(&seconds).cast(), size_of_val(&seconds) as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value, length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Breaks a connection immediately. Resets a TCP connection, and shuts any other socket down.
pub(crate) fn disconnect(stream: &OwnedFd) {
    // SAFETY: an all-zero sockaddr is valid (its family is AF_UNSPEC), and the pointer and length describe it.
    let done = unsafe {
        let nowhere: libc::sockaddr = std::mem::zeroed();
        libc::connect(stream.as_raw_fd(), &nowhere, size_of_val(&nowhere) as libc::socklen_t)
    };
    if done != 0 {
        crate::socket::shutdown(stream, std::net::Shutdown::Both);
    }
}
