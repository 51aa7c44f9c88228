//! macOS and FreeBSD: the parts that differ from Linux.

pub(crate) mod memory;
pub(crate) mod socket;
pub(crate) mod wake;
