//! Windows: sockets by mio, which has readiness there. No io_uring, no unix sockets, no inherited listeners.

pub(crate) mod listen;
pub(crate) mod memory;
pub(crate) mod poll;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod wake;
