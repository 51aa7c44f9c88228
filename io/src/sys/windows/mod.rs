//! Windows: sockets through mio. io_uring, unix sockets and inherited listeners are unavailable.

pub(crate) mod listen;
pub(crate) mod memory;
pub(crate) mod poll;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod wake;
pub(crate) mod watch;
