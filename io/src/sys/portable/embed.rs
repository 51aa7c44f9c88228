//! No descriptor for a foreign loop: it is made of epoll and timerfd on Linux.

use crate::Instant;
use crate::sys::Waitable;
use crate::wake::Notifier;
use std::convert::Infallible;
use std::io;

/// Never made.
#[derive(Debug)]
pub(crate) struct Nest(Infallible);

impl Nest {
    pub(crate) fn around(_: &mio::Poll, _: &Notifier) -> io::Result<Nest> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a driver has a descriptor for foreign loops on Linux only"))
    }

    pub(crate) fn descriptor(&self) -> Waitable {
        match self.0 {}
    }

    pub(crate) fn wake_at(&self, _: Option<Instant>, _: Instant) -> io::Result<()> {
        match self.0 {}
    }
}
