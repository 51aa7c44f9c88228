//! Descriptors that the loop watches. mio can register only sockets of its own here, so each counts as ready.

use crate::op;
use crate::sys::Waitable;
use mio::{Registry, Token};
use std::io;

pub(crate) fn register(_: &Registry, _: Waitable, _: Token, _: op::Interest) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn deregister(_: &Registry, _: Waitable) {}
