//! A socket that one thread makes readable for another. It is a UDP socket connected to itself, so it receives no
//! datagrams of other sockets.

use crate::sys::Waitable;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::windows::io::AsRawSocket;

/// A socket that is readable from [`ring`](Self::ring) until [`silence`](Self::silence).
#[derive(Debug)]
pub(crate) struct Bell(UdpSocket);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(Bell(socket))
    }

    /// Makes the socket readable. Returns true if it is readable afterwards, which is also the case if its buffer is
    /// full.
    pub(crate) fn ring(&self) -> bool {
        self.0.send(&[1]).map_or_else(|error| error.kind() == std::io::ErrorKind::WouldBlock, |_| true)
    }

    pub(crate) fn silence(&self) {
        while self.0.recv(&mut [0]).is_ok() {}
    }

    pub(crate) fn waitable(&self) -> Waitable {
        self.0.as_raw_socket()
    }
}

/// A driver's registration of a bell.
#[derive(Debug)]
pub(crate) struct Watch(mio::net::UdpSocket);

impl Watch {
    pub(crate) fn new(bell: &Bell, registry: &Registry, token: Token) -> io::Result<Watch> {
        let mut socket = mio::net::UdpSocket::from_std(bell.0.try_clone()?);
        registry.register(&mut socket, token, Interest::READABLE)?;
        Ok(Watch(socket))
    }

    /// Makes the next ring an event again, after the bell was silenced, because mio reports a socket only once.
    pub(crate) fn rearm(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.reregister(&mut self.0, token, Interest::READABLE)
    }
}
