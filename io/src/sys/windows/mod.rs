//! Windows: sockets through mio. There is no io_uring, and no unix sockets or inherited listeners.

pub(crate) mod listen;
pub(crate) mod memory;
pub(crate) mod poll;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod wake;
