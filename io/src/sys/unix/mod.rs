//! The parts that all unix systems share.

pub(crate) mod listen;
pub(crate) mod memory;
mod names;
pub(crate) mod poll;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod watch;
