//! Operations on connected sockets, for both real drivers and the engine with one thread per connection.

use crate::file::File;
use crate::outgoing::FileRange;
use crate::sys::socket as system;
use crate::{Peer, limit};
use socket2::{SockAddr, SockRef};
use std::io;
use std::net::Shutdown;
use std::time::Duration;

#[cfg(target_os = "linux")]
pub(crate) use system::disconnect;
pub(crate) use system::{
    KEEPS_EVENTS, Stream, accept, connect, deregister, is_passing, is_transient, receive, receive_into, register,
    reregister, send,
};

/// A connected stream socket that can move between drivers and threads.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    /// The address of the other end.
    pub peer: Peer,
}

impl Socket {
    pub(crate) fn new(stream: Stream, peer: Peer) -> Socket {
        Socket { stream, peer }
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Returns a second handle of the same connection, with which another thread can end it.
    ///
    /// # Errors
    /// Returns the system's error, for example if the process has no descriptor left.
    pub fn duplicate(&self) -> io::Result<Socket> {
        Ok(Socket { stream: system::from_socket(SockRef::from(&self.stream).try_clone()?), peer: self.peer })
    }

    /// Converts the socket to a TCP stream of the standard library, which does not block. For a unix socket, the result
    /// can be read and written, but has no TCP addresses or options.
    pub fn into_std(self) -> std::net::TcpStream {
        system::into_std(self.stream)
    }
}

/// Returns true for the error of a send on a connection that the peer has reset. Bytes that arrived before may still be
/// received, such as a server's answer to an upload that it does not read to the end.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Blocking calls for the engine with one thread per connection.
pub mod blocking {
    use super::*;
    use crate::Listener;
    use crate::sys::poll;
    use crate::wake::Notifier;

    /// Waits for a connection, at most `patience`. Returns `None` if none was accepted.
    ///
    /// # Errors
    /// Returns the system's error, such as a lack of descriptors.
    pub fn accept(listener: &Listener, patience: Duration) -> io::Result<Option<Socket>> {
        if !poll::wait_readable(listener.waitable(), Some(patience)) {
            return Ok(None);
        }
        match super::accept(listener.acceptor()) {
            Ok((stream, peer)) => Ok(Some(Socket::new(stream, peer))),
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The result of [`receive`].
    #[derive(Debug, PartialEq, Eq)]
    pub enum Got {
        /// This many bytes, at least one.
        Bytes(usize),
        /// The peer ended its direction.
        End,
        /// Nothing was received, for example because the time is over or a wake ended the wait.
        Nothing,
    }

    /// Waits for a wake, at most `patience`; without a limit if that is `None`. A signal may also end the wait.
    pub fn wait(notifier: &Notifier, patience: Option<Duration>) {
        poll::wait_readable(notifier.descriptor(), patience);
    }

    /// Receives into `buffer`. Waits at most `patience`, without a limit if that is `None`; a wake of `notifier`
    /// ends the wait.
    ///
    /// # Errors
    /// Returns the system's error, for example if the connection has broken.
    pub fn receive(
        socket: &Socket,
        notifier: &Notifier,
        buffer: &mut [u8],
        patience: Option<Duration>,
    ) -> io::Result<Got> {
        if !poll::wait_readable_or(system::waitable(&socket.stream), notifier.descriptor(), patience) {
            return Ok(Got::Nothing);
        }
        match super::receive(&socket.stream, buffer) {
            Ok(0) => Ok(Got::End),
            Ok(count) => Ok(Got::Bytes(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(Got::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends as much of `bytes` as the kernel takes in one call. Waits at most `patience` if it takes nothing at first.
    /// Returns the number of bytes sent, possibly 0.
    ///
    /// # Errors
    /// Returns the system's error, for example if the connection has broken.
    pub fn send(socket: &Socket, bytes: &[u8], patience: Duration) -> io::Result<usize> {
        send_within(&socket.stream, patience, || super::send(&socket.stream, bytes, false))
    }

    /// Sends at most `most` bytes of an open file from `offset` on, as [`send`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`send`], [`io::ErrorKind::UnexpectedEof`] if the file has no bytes at `offset`, or
    /// the error of reading the file.
    pub fn send_file(
        socket: &Socket,
        file: &dyn File,
        offset: u64,
        most: usize,
        patience: Duration,
    ) -> io::Result<usize> {
        send_within(&socket.stream, patience, || super::send_file(&socket.stream, file, offset, most))
    }

    fn send_within(stream: &Stream, patience: Duration, send: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
        if !poll::wait_writable(system::waitable(stream), patience) {
            return Ok(0);
        }
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Makes closing drop the unsent bytes and reset the connection, so that the peer can see that it has not received
    /// all data. Has no effect on unix sockets, which have no reset.
    pub fn reset_on_close(socket: &Socket) {
        super::reset_on_close(&socket.stream);
    }

    /// Ends our sending direction (FIN).
    pub fn shutdown(socket: &Socket) {
        super::shutdown(&socket.stream, Shutdown::Write);
    }
}

/// Returns the peer that an address names. Returns `None` for an unsupported address family, because an unknown peer
/// must not look like a trusted one.
pub(crate) fn peer(address: &SockAddr) -> Option<Peer> {
    match address.as_socket() {
        Some(address) => Some(Peer::Internet(address.ip().to_canonical(), address.port())),
        None if address.is_unix() => Some(Peer::Local),
        None => None,
    }
}

/// Returns the other end of a connected socket. Returns `None` if the peer's address is unknown, for example because
/// the peer has reset the connection.
pub(crate) fn peer_of(stream: &Stream) -> Option<Peer> {
    SockRef::from(stream).peer_addr().ok().as_ref().and_then(peer)
}

/// Returns true if a connection attempt of a socket has succeeded, and false if it is in progress. Sets the options that
/// the system allows only on a connected socket.
///
/// # Errors
/// Returns the error with which the attempt has failed.
pub(crate) fn finish_connect(stream: &Stream, peer: Peer) -> io::Result<bool> {
    match SockRef::from(stream).take_error()? {
        Some(error) => Err(error),
        // A unix socket connects during the call of `connect` or not at all.
        None if peer == Peer::Local => Ok(true),
        // Only a connected socket has a peer address. After a reset, the socket has an error instead.
        None if peer_of(stream).is_none() => Ok(false),
        None => {
            system::has_connected(stream);
            Ok(true)
        }
    }
}

/// Ends one or both directions of a connection. Ignores errors, because the connection may have ended already.
pub(crate) fn shutdown(stream: &Stream, how: Shutdown) {
    let _ = SockRef::from(stream).shutdown(how);
}

/// Makes closing drop the unsent bytes and reset the connection. Has no effect on unix sockets, which have no reset.
pub(crate) fn reset_on_close(stream: &Stream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// The most bytes read at a time from a file that the kernel cannot send directly.
const COPY_BYTES: usize = 16 * 1024;

/// Sends as much of an open file as the kernel takes, at most `most` bytes from `offset` on, and at most [`COPY_BYTES`]
/// if the kernel cannot send the file directly.
///
/// # Errors
/// Returns [`io::ErrorKind::UnexpectedEof`] if the file has no bytes at `offset`, or the system's error. If the kernel
/// cannot send the file directly, an error of reading it is wrapped as [`io::ErrorKind::Other`], so that it is not
/// mistaken for an error of the socket.
pub(crate) fn send_file(stream: &Stream, file: &dyn File, offset: u64, most: usize) -> io::Result<usize> {
    let sent = match system::send_file(stream, file, offset, most) {
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {
            let mut buffer = [0; COPY_BYTES];
            let buffer = &mut buffer[..most.min(COPY_BYTES)];
            match file.read(buffer, offset).map_err(io::Error::other)? {
                0 => Ok(0),
                count => send(stream, &buffer[..count], false),
            }
        }
        sent => sent,
    };
    match sent {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the last byte to send")),
        sent => sent,
    }
}

/// The bound on unsent bytes that a socket had before it was lifted for a file; `None` if it is not lifted.
#[derive(Debug, Default)]
pub(crate) struct Lifted(Option<u32>);

impl Lifted {
    fn restore(&mut self, stream: &Stream) {
        if let Some(before) = self.0.take() {
            system::set_unsent_bytes(stream, before);
        }
    }
}

/// Sends as much of a waiting range as the kernel takes, at most [`limit::SEND_FILE_BYTES`]. For a large range, lifts
/// the bound on unsent bytes, because the kernel usually holds pages of the file instead of copies. With the bound, the
/// extra calls and small segments took a quarter of the CPU time of sending 10 MB (measured).
pub(crate) fn send_range(stream: &Stream, range: &FileRange, lifted: &mut Lifted) -> io::Result<usize> {
    match lifted.0 {
        None if range.unbounded => {
            lifted.0 = system::unsent_bytes(stream);
            system::set_unsent_bytes(stream, 0);
        }
        // The loop has chosen a small range, so it considers the peer slow now.
        Some(_) if !range.unbounded && range.more => lifted.restore(stream),
        _ => {}
    }
    let sent = send_file(stream, &*range.file, range.offset, range.next(limit::SEND_FILE_BYTES))?;
    if sent as u64 == range.length && !range.more {
        lifted.restore(stream);
    }
    Ok(sent)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::file::{Files, Folder};
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::Arc;
    use system::{set_unsent_bytes, unsent_bytes};

    #[test]
    fn large_ranges_are_sent_whole_and_leave_the_bound_of_unsent_bytes_as_it_was() {
        const BOUND: u32 = 77_777;
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
        let server = Stream::from(server);
        set_unsent_bytes(&server, BOUND);
        let (file, mut lifted, mut received) = (Arc::new(file), Lifted::default(), Vec::new());
        // Two large parts, a small one for a peer that has become slow, another large one, and a small last one.
        for (part, more, during, after) in [
            (0..1_100_000, true, 0, 0),
            (1_100_000..2_200_000, true, 0, 0),
            (2_200_000..2_300_000, true, BOUND, BOUND),
            (2_300_000..3_400_000, true, 0, 0),
            (3_400_000..3_500_000, false, 0, BOUND),
        ] {
            let mut range = FileRange::new(file.clone(), part.start, part.end - part.start, more);
            while range.length > 0 {
                match send_range(&server, &range, &mut lifted) {
                    Ok(sent) => (range.offset, range.length) = (range.offset + sent as u64, range.length - sent as u64),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                let there = range.offset as usize - received.len();
                let bound = if range.length > 0 { during } else { after };
                assert_eq!(unsent_bytes(&server), Some(bound), "{} bytes are left of {part:?}", range.length);
                let mut piece = vec![0; there];
                client.read_exact(&mut piece).expect("the sent bytes");
                received.extend(piece);
            }
        }
        assert!(received == content, "the received bytes are not the sent ones");
    }
}
