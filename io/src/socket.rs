//! Connected sockets and the few system calls on them that both real drivers make.

use crate::file::File;
use crate::outgoing::FileRange;
use crate::{Address, Peer, limit};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// A connected stream socket that can move between drivers and threads.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    /// Who is at the other end.
    pub peer: Peer,
}

impl Socket {
    pub(crate) fn new(descriptor: OwnedFd, peer: Peer) -> Socket {
        Socket { descriptor, peer }
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// A second handle of the same connection, to end it from another thread.
    ///
    /// # Errors
    /// What the system says.
    pub fn duplicate(&self) -> io::Result<Socket> {
        Ok(Socket { descriptor: self.descriptor.try_clone()?, peer: self.peer })
    }

    /// The socket, which does not block, as the standard library's TCP stream, which fits unix sockets too where only bytes are moved.
    pub fn into_std(self) -> std::net::TcpStream {
        self.descriptor.into()
    }
}

/// Blocking calls for the engine that has a thread for each connection.
pub mod blocking {
    use super::*;
    use crate::Listener;
    use crate::wake::Notifier;
    use std::time::Duration;

    /// Waits for a connection, at most `patience` long: `None` where none came.
    ///
    /// # Errors
    /// What the system says, such as want of descriptors.
    pub fn accept(listener: &Listener, patience: Duration) -> io::Result<Option<Socket>> {
        let mut poll = libc::pollfd { fd: listener.raw(), events: libc::POLLIN, revents: 0 };
        let milliseconds = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer describes one pollfd.
        if unsafe { libc::poll(&mut poll, 1, milliseconds) } <= 0 {
            return Ok(None);
        }
        match super::accept(listener.raw()) {
            Ok((descriptor, peer)) => Ok(Some(Socket::new(descriptor, peer))),
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What [`receive`] found.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Got {
        /// This many bytes, at least one.
        Bytes(usize),
        /// The peer ended its direction.
        End,
        /// Nothing, for as long as was asked.
        Nothing,
    }

    /// Waits for a wake, at most `patience`; without end where there is none.
    pub fn wait(notifier: &Notifier, patience: Option<Duration>) {
        poll(&mut [libc::pollfd { fd: notifier.descriptor(), events: libc::POLLIN, revents: 0 }], patience);
    }

    fn poll(descriptors: &mut [libc::pollfd], patience: Option<Duration>) {
        let milliseconds = patience.map_or(-1, |patience| {
            libc::c_int::try_from(patience.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: the pointer and length describe the array. A signal that interrupts the wait only ends it early.
        unsafe { libc::poll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, milliseconds) };
    }

    /// Receives into `buffer`, waiting at most `patience` or until a wake; without end where there is none.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive(
        socket: &Socket,
        notifier: &Notifier,
        buffer: &mut [u8],
        patience: Option<Duration>,
    ) -> io::Result<Got> {
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut descriptors = [readable(socket.descriptor.as_raw_fd()), readable(notifier.descriptor())];
        poll(&mut descriptors, patience);
        if descriptors[0].revents == 0 {
            return Ok(Got::Nothing);
        }
        match super::receive(socket.descriptor.as_raw_fd(), buffer) {
            Ok(0) => Ok(Got::End),
            Ok(count) => Ok(Got::Bytes(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(Got::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends as much of `bytes` as the kernel takes within `patience`: how many it took, 0 where none.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(socket: &Socket, bytes: &[u8], patience: Duration) -> io::Result<usize> {
        let descriptor = socket.descriptor.as_raw_fd();
        send_within(descriptor, patience, || super::send(descriptor, bytes, false))
    }

    /// As [`send`], from an open file: at most `most` bytes from `offset` on.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::UnexpectedEof`] where the file ends there.
    pub fn send_file(
        socket: &Socket,
        file: &dyn File,
        offset: u64,
        most: usize,
        patience: Duration,
    ) -> io::Result<usize> {
        let descriptor = socket.descriptor.as_raw_fd();
        send_within(descriptor, patience, || super::send_file(descriptor, file, offset, most))
    }

    fn send_within(descriptor: RawFd, patience: Duration, send: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
        let milliseconds = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer describes one pollfd.
        if unsafe { libc::poll(&mut poll, 1, milliseconds) } <= 0 {
            return Ok(0);
        }
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Ends our direction.
    /// Makes closing drop what was not sent and reset the connection: the peer sees that what it got is not whole.
    pub fn reset_on_close(socket: &Socket) {
        super::reset_on_close(socket.descriptor.as_raw_fd());
    }

    /// Ends our direction.
    pub fn shutdown(socket: &Socket) {
        super::shutdown(socket.descriptor.as_raw_fd(), libc::SHUT_WR);
    }
}

/// Accepts one connection, not blocking, with the peer's address. One whose peer has none any more is an error, and closed.
pub(crate) fn accept(listener: RawFd) -> io::Result<(OwnedFd, Peer)> {
    // SAFETY: an all-zero sockaddr_storage is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&storage) as libc::socklen_t;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the pointers describe the storage and its length.
    let descriptor = unsafe { libc::accept4(listener, std::ptr::from_mut(&mut storage).cast(), &mut length, flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and nobody else's.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    match peer(&storage) {
        Some(peer) => Ok((descriptor, peer)),
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Returns who is at the other end of a connected socket; none if the peer has reset the connection already, so that the kernel
/// does not know its address any more.
pub(crate) fn peer_of(descriptor: RawFd) -> Option<Peer> {
    // SAFETY: an all-zero sockaddr_storage is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: the pointers describe the storage and its length.
    let done = unsafe { libc::getpeername(descriptor, std::ptr::from_mut(&mut storage).cast(), &mut length) };
    if done == 0 { peer(&storage) } else { None }
}

/// Returns none for a family without a meaning here: a peer that is not known must never look like one that is trusted.
fn peer(storage: &libc::sockaddr_storage) -> Option<Peer> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage holds a sockaddr_in, which it is large and aligned enough for.
            let address = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(Peer::Internet(IpAddr::V4(ip), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the storage holds a sockaddr_in6, which it is large and aligned enough for.
            let address = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr).to_canonical();
            Some(Peer::Internet(ip, u16::from_be(address.sin6_port)))
        }
        libc::AF_UNIX => Some(Peer::Local),
        _ => None,
    }
}

/// Receives into `buffer`, without waiting.
pub(crate) fn receive(descriptor: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length describe the buffer.
    let count = unsafe { recv(descriptor, buffer.as_mut_ptr(), buffer.len(), libc::MSG_DONTWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Returns true if what was to be sent may be tried again: the socket takes no more now, a signal came in between, or the kernel
/// has no memory for it at the moment.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM))
}

/// Sends what the kernel takes of `bytes`, without waiting and without SIGPIPE. With `more` they wait for what follows.
pub(crate) fn send(descriptor: RawFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the pointer and length describe the bytes.
    let count = unsafe { send_raw(descriptor, bytes.as_ptr(), bytes.len(), flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Bytes that are read of a file that the kernel cannot send by itself.
const COPY_BYTES: usize = 16 * 1024;

/// Sends what the kernel takes of an open file, at most `most` bytes from `offset` on. The socket does not block: `sendfile` has
/// no flag to say so.
pub(crate) fn send_file(descriptor: RawFd, file: &dyn File, offset: u64, most: usize) -> io::Result<usize> {
    let sent = match file.descriptor() {
        Some(from) if pipe_signal_is_ignored() => send_descriptor(descriptor, from, offset, most),
        _ => Err(io::ErrorKind::Unsupported.into()),
    };
    let sent = match sent {
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {
            let mut buffer = [0; COPY_BYTES];
            let buffer = &mut buffer[..most.min(COPY_BYTES)];
            // Whatever its error is, it is none of the socket's.
            match file.read(buffer, offset).map_err(io::Error::other)? {
                0 => Ok(0),
                count => send(descriptor, &buffer[..count], false),
            }
        }
        sent => sent,
    };
    match sent {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before its part does")),
        sent => sent,
    }
}

fn send_descriptor(descriptor: RawFd, from: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
    // SAFETY: the pointer is to the offset, which outlives the call; both descriptors are open.
    let count = unsafe { libc::sendfile(descriptor, from.as_raw_fd(), &raw mut offset, most) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// The bound of unsent bytes that a socket had before it was lifted for a file.
#[derive(Debug, Default)]
pub(crate) struct Lifted(Option<libc::c_int>);

impl Lifted {
    fn restore(&mut self, descriptor: RawFd) {
        if let Some(before) = self.0.take() {
            set_unsent_bytes(descriptor, before);
        }
    }
}

/// Sends what the kernel takes of a range that waits, and no more than is fair. Of a large one the kernel may take what it has
/// room for, whatever the bound of unsent bytes says: it holds the file's own pages and no copies, and each time that it
/// takes little costs a call and small segments (measured: a quarter of the CPU of 10 MB).
pub(crate) fn send_range(descriptor: RawFd, range: &FileRange, lifted: &mut Lifted) -> io::Result<usize> {
    match lifted.0 {
        None if range.unbounded => {
            lifted.0 = unsent_bytes(descriptor);
            set_unsent_bytes(descriptor, 0);
        }
        // The peer has become slow.
        Some(_) if !range.unbounded && range.more => lifted.restore(descriptor),
        _ => {}
    }
    let sent = send_file(descriptor, &*range.file, range.offset, range.next(limit::SEND_FILE_BYTES))?;
    if sent as u64 == range.length && !range.more {
        lifted.restore(descriptor);
    }
    Ok(sent)
}

/// The bound of bytes that the kernel holds unsent; `None` where there is no such thing, as for unix sockets.
fn unsent_bytes(descriptor: RawFd) -> Option<libc::c_int> {
    let mut bytes: libc::c_int = 0;
    let mut length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the pointers describe the integer and its length.
    let done = unsafe {
        let value = std::ptr::from_mut(&mut bytes).cast();
        libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, &mut length)
    };
    (done == 0).then_some(bytes)
}

/// Sets it; 0 is the system's own, which is none where nobody has set it. A socket that has no such thing refuses, and needs
/// none.
fn set_unsent_bytes(descriptor: RawFd, bytes: libc::c_int) {
    let length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the pointer and length describe the integer.
    unsafe {
        let value = std::ptr::from_ref(&bytes).cast();
        libc::setsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, length)
    };
}

/// Whether SIGPIPE is ignored, as it is in programs of Rust. `sendfile` has no flag to leave it out: in a host that would die
/// of it, files are read and sent.
fn pipe_signal_is_ignored() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        // SAFETY: an all-zero sigaction is valid, and the pointer describes it; nothing is changed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    })
}

/// The system call itself where there is one: the C library's wrapper is a point where threads are cancelled, and pays for it
/// with two locked instructions a call in a process that has threads (measured: 2 % of a small request on epoll).
///
/// # Safety
/// `buffer` has `length` writable bytes.
unsafe fn recv(descriptor: RawFd, buffer: *mut u8, length: usize, flags: libc::c_int) -> libc::ssize_t {
    const NONE: *mut u8 = std::ptr::null_mut();
    // SAFETY: the contract is the call's own; no address is asked for.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::syscall(libc::SYS_recvfrom, descriptor, buffer, length, flags, NONE, NONE) as libc::ssize_t;
        #[cfg(not(target_os = "linux"))]
        return libc::recv(descriptor, buffer.cast(), length, flags);
    }
}

/// As [`recv`], to send.
///
/// # Safety
/// `bytes` has `length` readable bytes.
unsafe fn send_raw(descriptor: RawFd, bytes: *const u8, length: usize, flags: libc::c_int) -> libc::ssize_t {
    const NONE: *const u8 = std::ptr::null();
    // SAFETY: the contract is the call's own; no address is given.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::syscall(libc::SYS_sendto, descriptor, bytes, length, flags, NONE, 0usize) as libc::ssize_t;
        #[cfg(not(target_os = "linux"))]
        return libc::send(descriptor, bytes.cast(), length, flags);
    }
}

pub(crate) fn shutdown(descriptor: RawFd, how: libc::c_int) {
    // SAFETY: shutdown takes no pointers. A peer that is gone already is no news.
    unsafe { libc::shutdown(descriptor, how) };
}

/// Makes closing drop what was not sent and reset the connection.
pub(crate) fn reset_on_close(descriptor: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the pointer and length describe the struct. A unix socket refuses, and closes as well without.
    unsafe {
        libc::setsockopt(descriptor, libc::SOL_SOCKET, libc::SO_LINGER, std::ptr::from_ref(&linger).cast(), length)
    };
}

/// Begins to connect, not blocking.
pub(crate) fn connect(address: &Address) -> io::Result<(OwnedFd, Peer)> {
    let (socket, address, peer) = match address {
        Address::Tcp(to) => {
            let socket = socket2::Socket::new(Domain::for_address(*to), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_tcp_nodelay(true)?;
            (socket, SockAddr::from(*to), Peer::Internet(to.ip(), to.port()))
        }
        Address::Unix(path) => {
            (socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?, Peer::Local)
        }
        Address::Inherited(_) => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an inherited descriptor is not to connect to"));
        }
    };
    socket.set_nonblocking(true)?;
    match socket.connect(&address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok((socket.into(), peer)),
    }
}

/// Returns true if a socket's connection attempt has succeeded, and false if it is in progress.
///
/// # Errors
/// Returns why the attempt has failed.
pub(crate) fn is_connected(descriptor: RawFd) -> io::Result<bool> {
    match pending_error(descriptor) {
        Some(error) => Err(error),
        // Only a connected socket has a peer's address. (One that was reset since then has an error.)
        None => Ok(peer_of(descriptor).is_some()),
    }
}

/// The error that waits on a socket, such as why a connection could not be made.
fn pending_error(descriptor: RawFd) -> Option<io::Error> {
    let mut number: libc::c_int = 0;
    let mut length = size_of_val(&number) as libc::socklen_t;
    // SAFETY: the pointers describe the integer and its length.
    unsafe {
        let value = std::ptr::from_mut(&mut number).cast();
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_ERROR, value, &mut length);
    }
    (number != 0).then(|| io::Error::from_raw_os_error(number))
}

/// Whether an accept may be tried again at once or later: the fault of one connection, or nothing there.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
        || matches!(
            error.raw_os_error(),
            // accept(2): errors that are already pending on the new socket are passed on.
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

/// Breaks a connection now: TCP is reset, anything else shut down.
pub(crate) fn disconnect(descriptor: RawFd) {
    // SAFETY: an all-zero sockaddr is valid, of no family, and the pointer describes it.
    let done = unsafe {
        let nowhere: libc::sockaddr = std::mem::zeroed();
        libc::connect(descriptor, &nowhere, size_of_val(&nowhere) as libc::socklen_t)
    };
    if done != 0 {
        shutdown(descriptor, libc::SHUT_RDWR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Files, Folder};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

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

    #[test]
    fn large_ranges_are_sent_whole_and_leave_the_bound_of_unsent_bytes_as_it_was() {
        const BOUND: libc::c_int = 77_777;
        let content: Vec<u8> = (0..3_500_000_u32).map(|at| (at % 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("highwire-range-{}", std::process::id()));
        std::fs::write(&path, &content).expect("room");
        let folder = Folder::open(path.parent().expect("a folder")).expect("a folder");
        let file = folder.open(path.file_name().expect("a name").as_encoded_bytes()).expect("a file");
        std::fs::remove_file(&path).expect("it is there");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (server, _) = listener.accept().expect("a connection");
        server.set_nonblocking(true).expect("an option");
        set_unsent_bytes(server.as_raw_fd(), BOUND);
        let (file, mut lifted, mut received) = (Arc::new(file), Lifted::default(), Vec::new());
        // Two large parts, one for a peer that has become slow, one large again, and a small last one.
        for (part, more, during, after) in [
            (0..1_100_000, true, 0, 0),
            (1_100_000..2_200_000, true, 0, 0),
            (2_200_000..2_300_000, true, BOUND, BOUND),
            (2_300_000..3_400_000, true, 0, 0),
            (3_400_000..3_500_000, false, 0, BOUND),
        ] {
            let mut range = FileRange::new(file.clone(), part.start, part.end - part.start, more);
            while range.length > 0 {
                match send_range(server.as_raw_fd(), &range, &mut lifted) {
                    Ok(sent) => (range.offset, range.length) = (range.offset + sent as u64, range.length - sent as u64),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                let there = range.offset as usize - received.len();
                let bound = if range.length > 0 { during } else { after };
                assert_eq!(
                    unsent_bytes(server.as_raw_fd()),
                    Some(bound),
                    "{} bytes are left of {part:?}",
                    range.length
                );
                let mut piece = vec![0; there];
                client.read_exact(&mut piece).expect("what was sent");
                received.extend(piece);
            }
        }
        assert!(received == content, "what was received is not what was sent");
    }
}
