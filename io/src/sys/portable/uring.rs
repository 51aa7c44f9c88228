//! A substitute for the io_uring driver, which is unavailable outside of Linux.

use crate::sys::Waitable;
use crate::wake::Notifier;
use crate::{Driver, Instant, Listener, ListenerId, Queue, Sink, Socket, SocketId};
use std::convert::Infallible;
use std::io;

/// The io_uring driver, which only Linux has. Here, [`new`](Self::new) always fails.
#[derive(Debug)]
pub struct Uring(Infallible);

impl Uring {
    /// Returns an error.
    ///
    /// # Errors
    /// Always returns [`io::ErrorKind::Unsupported`].
    pub fn new() -> io::Result<Uring> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring is available on Linux only"))
    }
}

impl Driver for Uring {
    fn listen(&mut self, _: Listener) -> io::Result<ListenerId> {
        match self.0 {}
    }

    fn adopt(&mut self, _: Socket) -> io::Result<SocketId> {
        match self.0 {}
    }

    fn descriptor(&mut self) -> io::Result<Waitable> {
        match self.0 {}
    }

    fn arm(&mut self, _: Option<Instant>) -> io::Result<()> {
        match self.0 {}
    }

    fn release(&mut self, _: SocketId) -> Option<Socket> {
        match self.0 {}
    }

    fn turn<S: Sink>(&mut self, _: Option<Instant>, _: &mut Queue, _: &mut S) -> io::Result<()> {
        match self.0 {}
    }

    fn now(&self) -> Instant {
        match self.0 {}
    }

    fn unix_nanoseconds(&self) -> u64 {
        match self.0 {}
    }

    fn notifier(&self) -> Notifier {
        match self.0 {}
    }

    fn random(&mut self) -> u64 {
        match self.0 {}
    }

    fn name(&self) -> &'static str {
        match self.0 {}
    }
}
