//! A bell in a driver's poll.

use crate::sys::wake::Bell;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;

/// A driver's registration of a bell.
#[derive(Debug)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) fn new(bell: &Bell, registry: &Registry, token: Token) -> io::Result<Watch> {
        registry.register(&mut SourceFd(&bell.waitable()), token, Interest::READABLE)?;
        Ok(Watch)
    }

    /// Makes the next ring an event, after the bell was silenced. Here each is one anyway.
    pub(crate) fn rearm(&mut self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }
}
