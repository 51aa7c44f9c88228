//! Registrations of descriptors that a driver does not own in its poll: of a bell, and of those that the loop watches.

use crate::op;
use crate::sys::Waitable;
use crate::sys::wake::Bell;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;

/// A bell's registration.
#[derive(Debug)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) fn new(bell: &Bell, registry: &Registry, token: Token) -> io::Result<Watch> {
        registry.register(&mut SourceFd(&bell.waitable()), token, Interest::READABLE)?;
        Ok(Watch)
    }

    /// Does nothing, because here every ring is an event. On Windows, this makes the next ring an event again.
    pub(crate) fn rearm(&mut self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }
}

/// Registers a descriptor of the loop.
pub(crate) fn register(
    registry: &Registry,
    descriptor: Waitable,
    token: Token,
    interest: op::Interest,
) -> io::Result<()> {
    let readable = interest.readable.then_some(Interest::READABLE);
    let writable = interest.writable.then_some(Interest::WRITABLE);
    let both = readable.into_iter().chain(writable).reduce(Interest::add).unwrap_or(Interest::READABLE);
    registry.register(&mut SourceFd(&descriptor), token, both)
}

/// Removes a descriptor of the loop. It may be unknown, for example because the loop has closed it.
pub(crate) fn deregister(registry: &Registry, descriptor: Waitable) {
    let _ = registry.deregister(&mut SourceFd(&descriptor));
}
