//! The registration of a bell in a driver's poll.

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
