//! macOS and FreeBSD: what they do not have in common with Linux.

pub(crate) mod memory;
pub(crate) mod socket;
pub(crate) mod wake;
