//! The descriptor for a foreign loop, which is unavailable outside of Linux because it needs epoll and timerfd.

use crate::Instant;
use crate::sys::Waitable;
use crate::wake::Notifier;
use std::convert::Infallible;
use std::io;

/// A type without values.
#[derive(Debug)]
pub(crate) struct Nest(Infallible);

impl Nest {
    pub(crate) fn around(_: &mio::Poll, _: &Notifier) -> io::Result<Nest> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a driver has a descriptor for a foreign loop on Linux only"))
    }

    pub(crate) fn descriptor(&self) -> Waitable {
        match self.0 {}
    }

    pub(crate) fn wake_at(&self, _: Option<Instant>, _: Instant) -> io::Result<()> {
        match self.0 {}
    }
}
