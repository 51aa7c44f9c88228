//! Linux.

pub(crate) mod affinity;
pub(crate) mod embed;
pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod socket;
pub(crate) mod wake;
